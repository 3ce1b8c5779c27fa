"""Saves of checkpoints: the time that the training loop spends in them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from paceline.hooks.patches import Patches
from paceline.hooks.steps import StepClock

SAVES = (
    # Each after its source. All names of a function get one wrapper: pickle looks a function up
    # in its module and wants to find the same one (a pool of processes that saves).
    ("torch.serialization", ("save",)),
    ("torch", ("save",)),
    ("torch.distributed.checkpoint.state_dict_saver", ("save", "async_save")),
    ("torch.distributed.checkpoint", ("save", "async_save")),
    ("safetensors.torch", ("save_file",)),
)
"""Modules and their functions that save. Of ``async_save`` only what blocks its caller."""


class CheckpointHooks:
    """Wraps what saves a checkpoint.

    Args:
        clock: hears of it.
        tell: tells the clock if the caller is the training thread (``PhaseHooks.tell``).
        patches: remembers what was replaced.
    """

    def __init__(self, clock: StepClock, tell: Callable[..., Any], patches: Patches) -> None:
        self._clock = clock
        self._tell = tell
        self._patches = patches
        self._wrappers: dict[Callable[..., Any], Callable[..., Any]] = {}

    def install(self, when_imported: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
        """Wrap what is imported now, and the rest when it is."""
        for module, names in SAVES:
            when_imported(module, partial(self._wrap, names))

    def _wrap(self, names: tuple[str, ...], module: ModuleType) -> None:
        for name in names:
            found: Any = vars(module).get(name)
            if found in self._wrappers.values():  # imported from where it was wrapped already
                self._patches.on_undo(partial(_put_back, module, name, found))
            else:
                self._patches.wrap(module, name, self._timed)

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        if original in self._wrappers:
            return self._wrappers[original]
        clock, tell = self._clock, self._tell

        def save(*args: Any, **kwargs: Any) -> Any:
            tell(clock.checkpoint_begin)
            try:
                return original(*args, **kwargs)
            finally:
                tell(clock.checkpoint_end)

        self._wrappers[original] = save
        return save


def _put_back(module: ModuleType, name: str, wrapper: Any) -> None:
    original = wrapper.__wrapped__
    if vars(module).get(name) is wrapper:
        setattr(module, name, original)
