"""Why a phase took longer, as far as the process itself can tell: pauses and starvation."""

from __future__ import annotations

from paceline.hooks.patches import Patches
from paceline.hooks.pauses import GcPauses
from paceline.hooks.recorder import Recorder
from paceline.hooks.starvation import RunQueue


def install_causes(recorder: Recorder, patches: Patches) -> None:
    """Listen for causes; each asks for the level when something happens.

    The third of them, the look at the interpreter's lock, is the poller's.
    """
    pauses, run_queue = GcPauses(recorder), RunQueue(recorder)
    pauses.install()
    patches.on_undo(pauses.uninstall)
    recorder.clock.probe = run_queue.boundary
    patches.on_undo(run_queue.close)
