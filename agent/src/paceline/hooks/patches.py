"""Replacing functions of torch by wrappers, and putting the originals back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class Patches:
    """Remembers what was replaced.

    Args:
        skip_frame: tells torch's compiler not to trace a code object; None where it has none.
    """

    def __init__(self, skip_frame: Callable[[Any], object] | None = None) -> None:
        self._undo: list[Callable[[], object]] = []
        self._skip_frame = skip_frame

    def wrap(
        self,
        owner: Any,
        name: str,
        make: Callable[[Callable[..., Any]], Callable[..., Any]],
        *,
        traceable: bool = False,
    ) -> bool:
        """Replace ``owner.name`` by ``make(original)``; False where there is no such thing.

        Args:
            owner: a module or class.
            name: which of its functions.
            make: makes the wrapper.
            traceable: whether torch's compiler may look into the wrapper.
        """
        original = vars(owner).get(name)
        if original is None:
            return False
        wrapper: Any = functools.wraps(original)(make(original))
        if not traceable:
            self.hide(wrapper)
        setattr(owner, name, wrapper)

        def restore() -> None:
            # Somebody may have wrapped us since: then our wrapper stays, and passes through.
            if vars(owner).get(name) is wrapper:
                setattr(owner, name, original)

        self._undo.append(restore)
        return True

    def hide(self, function: Any) -> None:
        """Tell torch's compiler not to trace ``function``."""
        function._torchdynamo_disable = True
        if self._skip_frame is not None:
            self._skip_frame(function.__code__)

    def on_undo(self, action: Callable[[], object]) -> None:
        """Run ``action`` when everything is put back."""
        self._undo.append(action)

    def undo(self) -> None:
        """Put the originals back, the last first."""
        while self._undo:
            self._undo.pop()()
