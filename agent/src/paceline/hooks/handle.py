"""What ``paceline.init()`` returns: a few optional words for the training loop."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from paceline.clock import mono_ns
from paceline.vocabulary import EXCLUSIVE_PHASES, phase_name

if TYPE_CHECKING:
    from paceline.hooks.agent import Agent

log = logging.getLogger("paceline")
_PHASES = {phase_name(phase): phase for phase in EXCLUSIVE_PHASES}


class Handle:
    """The agent of this process. No method raises; where nothing is captured they do nothing."""

    def __init__(self, agent: Agent | None) -> None:
        self._agent = agent

    @property
    def active(self) -> bool:
        """Whether this process is captured now (it is from ``init_process_group`` on)."""
        recorder = self._agent.recorder if self._agent is not None else None
        return recorder is not None and recorder.on

    def step(self) -> None:
        """Say that a step ends here; from the first call on, only these calls end steps."""
        self._tell(lambda clock: clock.mark_step(mono_ns()), ends_step=True)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Mark a stretch: input, copy, forward, backward, optimizer, checkpoint or host.

        Only needed for what is not seen by itself (docs/capture.md), such as a data loader
        that is not torch's.
        """
        phase = _PHASES.get(name)
        if phase is None:
            log.warning("phase(%r) is none of %s; ignored", name, ", ".join(_PHASES))
            yield
            return
        before = self._tell(lambda clock: clock.enter(phase, mono_ns()))
        try:
            yield
        finally:
            if before is not None:
                self._tell(lambda clock: clock.leave(before, mono_ns()))

    def close(self) -> None:
        """Stop capturing; the ring stays for the sidecar."""
        if self._agent is not None:
            try:
                self._agent.close()
            except Exception:
                log.warning("closing failed", exc_info=True)

    def _tell(self, event: Any, *, ends_step: bool = False) -> Any:
        recorder = self._agent.recorder if self._agent is not None else None
        if recorder is None or not recorder.on:
            return None
        try:
            if ends_step:
                recorder.claim_training_thread()
            if not recorder.in_training_thread():
                return None
            if ends_step:
                recorder.sweep(mono_ns())
            return event(recorder.clock)
        except Exception as error:
            recorder.failed(error)
            return None


def start(job: str | None = None) -> Handle:
    """Instrument this process; never raises."""
    try:
        from paceline.hooks.agent import arm

        return Handle(arm(job))
    except Exception:
        log.warning("cannot instrument this process; the job runs on without", exc_info=True)
        return Handle(None)
