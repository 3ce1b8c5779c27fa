"""Backwards, seen at autograd's engine, by whichever way of torch or a trainer it is called."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from paceline.hooks.patches import Patches


def watch_engine(
    module: ModuleType,
    patches: Patches,
    make: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> bool:
    """Put an engine in torch's place whose ``run_backward`` is wrapped; False if there is none.

    ``Tensor.backward``, ``autograd.grad``, checkpointing and trainers that call the engine
    themselves (Megatron's ``custom_backward``) all fetch it from ``Variable``.

    Args:
        module: ``torch.autograd.variable``.
        patches: remembers what was replaced.
        make: makes the wrapper from the original.
    """
    owner = getattr(module, "Variable", None)
    original = getattr(owner, "_execution_engine", None)
    if original is None:
        return False
    try:
        # A subclass, because torch's compiler asks for the type. All engines are one in C++.
        watched: Any = type("PacelineEngine", (type(original),), {"__slots__": ()})
        run_backward = make(original.run_backward)
        patches.hide(run_backward)
        watched.run_backward = staticmethod(run_backward)
        engine = watched()
    except (TypeError, AttributeError):
        return False
    owner._execution_engine = engine  # type: ignore[union-attr]

    def restore() -> None:
        if owner._execution_engine is engine:  # type: ignore[union-attr]
            owner._execution_engine = original  # type: ignore[union-attr]

    patches.on_undo(restore)
    return True
