"""Saves of checkpoints: the time that the training loop spends in them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from paceline.hooks.patches import Patches
from paceline.hooks.steps import StepClock

SAVES = (
    ("torch", ("save",)),
    # The second is the first's source: whichever is imported, and by whichever name.
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

    def install(self, when_imported: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
        """Wrap what is imported now, and the rest when it is."""
        for module, names in SAVES:
            when_imported(module, partial(self._wrap, names))

    def _wrap(self, names: tuple[str, ...], module: ModuleType) -> None:
        for name in names:
            self._patches.wrap(module, name, self._timed)

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, tell = self._clock, self._tell

        def save(*args: Any, **kwargs: Any) -> Any:
            tell(clock.checkpoint_begin)
            try:
                return original(*args, **kwargs)
            finally:
                tell(clock.checkpoint_end)

        return save
