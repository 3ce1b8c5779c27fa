"""Steps and phases of one rank as a state machine; it reads no clock and knows no torch.

``docs/capture.md`` tells the rules and why they are as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from paceline.vocabulary import Phase, RecordKind

_NO_GROUP = 0
_NO_PEER = -1


class Sink(Protocol):
    """What takes the records of a step clock: a ring writer."""

    def record(
        self,
        kind: int,
        code: int,
        group: int,
        seq: int,
        step: int,
        peer: int,
        payload_bytes: int,
        start_ns: int,
        end_ns: int,
    ) -> None:
        """Append one record."""


class Observer(Protocol):
    """Hears of what a step clock finds, at the time that it finds it."""

    def boundary(self, now_ns: int) -> None:
        """A phase ends or begins now."""

    def phase(self, code: int, step: int, start_ns: int, end_ns: int) -> None:
        """A phase has ended; its bounds were boundaries, or a forward's return."""

    def step(self, step: int, start_ns: int, end_ns: int) -> None:
        """A step has ended."""


class StepClock:
    """Turns what happens in one training thread into phases that never overlap, and steps.

    A step ends with the last of a run of optimizer steps that nothing interrupts. An
    optimizer step with no input, forward or backward since the last boundary ends no step.

    Args:
        sink: takes the records; None records nothing and counts steps all the same.
    """

    def __init__(self, sink: Sink | None) -> None:
        self.sink = sink
        self.observer: Observer | None = None
        self.probe: Callable[[int], None] | None = None
        """Called at each boundary of a phase, in the training thread."""
        self.saving: Callable[[int], None] | None = None
        """Told when a checkpoint begins, and 0 when it is over."""
        self.step = 0
        self.boundary_ns = 0
        """When the optimizer ended a step that is not committed yet; 0: there is none."""
        self.phase = Phase.HOST
        self._since_ns = 0
        self.step_start_ns = 0
        self._work = False
        self._ever_work = False
        self._manual = False
        self._input_depth = 0
        self._forward_depth = 0
        self._forward_return_ns = 0
        self._forward_ever_hooked = False
        self.awaits_forward = False
        """A batch came, and no forward was seen to begin since: it counts as forward so far."""
        self._checkpoint_depth = 0
        self._after_checkpoint: tuple[Phase, bool] = (Phase.HOST, False)
        self._backward_depth = 0
        self._before_backward = Phase.HOST
        self.stepped_in_backward = False
        """An optimizer stepped while autograd runs: the step ends when autograd returns."""
        self._optimizers: list[int] = []

    @property
    def in_backward(self) -> bool:
        """Whether autograd runs."""
        return self._backward_depth > 0

    @property
    def present_step(self) -> int:
        """The step that the present time lies in, also if the one before is not committed yet."""
        return self.step + (1 if self.boundary_ns and not self._optimizers else 0)

    def seen(self, now_ns: int) -> None:
        """Something happened: the first such time is the start of step 0."""
        if not self.step_start_ns:
            self.step_start_ns = now_ns

    def input_begin(self, now_ns: int) -> None:
        """The training loop asks for its next batch."""
        self._input_depth += 1
        if self._input_depth > 1:
            return
        self._mark_work(now_ns)
        self._optimizers.clear()
        self._switch(Phase.INPUT, now_ns)

    def input_end(self, now_ns: int, *, got_batch: bool) -> None:
        """The batch is there, or the epoch is over."""
        self._input_depth -= 1
        if self._input_depth > 0:
            return
        self._input_depth = 0
        if self._forward_depth:
            self._switch(Phase.FORWARD, now_ns)
        elif got_batch:
            # Until a forward is seen to begin, what follows the input counts as forward.
            self._switch(Phase.FORWARD, now_ns)
            self.awaits_forward = True
            self._forward_return_ns = 0
        else:
            self._switch(Phase.HOST, now_ns)

    def copied(self, start_ns: int, end_ns: int) -> None:
        """The batch was copied to a device; only between its arrival and the forward."""
        if not self.awaits_forward or self.phase is not Phase.FORWARD:
            return
        self._switch(Phase.COPY, max(start_ns, self._since_ns), is_now=False)
        self._switch(Phase.FORWARD, end_ns)
        self.awaits_forward = True

    def checkpoint_begin(self, now_ns: int) -> None:
        """A checkpoint is to be saved (saves call each other)."""
        self._checkpoint_depth += 1
        if self._checkpoint_depth > 1:
            return
        self.collective(now_ns)  # like one it comes after the step that has ended
        self._after_checkpoint = (self.phase, self.awaits_forward)
        self._switch(Phase.CHECKPOINT, now_ns)

    def checkpoint_end(self, now_ns: int) -> None:
        """It is saved, or what of it blocks the training is over."""
        self._checkpoint_depth = max(self._checkpoint_depth - 1, 0)
        if self._checkpoint_depth or self.phase is not Phase.CHECKPOINT:
            return
        phase, awaits_forward = self._after_checkpoint
        if phase is Phase.FORWARD and not (self._forward_depth or awaits_forward):
            phase = Phase.HOST  # the forward had returned
        self._switch(phase, now_ns)
        self.awaits_forward = awaits_forward

    def forward_begin(self, now_ns: int) -> None:
        """A model that is known to be the outermost one begins its forward."""
        self._forward_depth += 1
        self._forward_ever_hooked = True
        if self._forward_depth > 1 or self._backward_depth:
            return
        self._mark_work(now_ns)
        if self.phase is Phase.FORWARD and self.awaits_forward:
            self._since_ns = now_ns  # the time between input and forward was the host's
            self._tell_boundary(now_ns)
        elif self.phase is not Phase.FORWARD:
            self._switch(Phase.FORWARD, now_ns)
        self.awaits_forward = False
        self._forward_return_ns = 0

    def forward_return(self, now_ns: int, *, backward_follows: bool) -> None:
        """That model's forward returned; the loss still belongs to it if a backward follows."""
        self._forward_depth = max(self._forward_depth - 1, 0)
        if self._forward_depth or self._backward_depth or self.phase is not Phase.FORWARD:
            return
        self._forward_return_ns = now_ns
        if backward_follows:
            self._tell_boundary(now_ns)
        else:
            self._switch(self._outer(), now_ns)

    def backward_begin(self, now_ns: int) -> None:
        """Autograd begins (it may call itself again)."""
        self._backward_depth += 1
        if self._backward_depth > 1:
            return
        self._mark_work(now_ns)
        self._before_backward = self.phase
        self._switch(Phase.BACKWARD, now_ns)

    def backward_end(self, now_ns: int, *, accumulates: bool = True) -> bool:
        """Autograd returned.

        Args:
            now_ns: when.
            accumulates: False for ``autograd.grad``, which may be a part of the forward.

        Returns:
            Whether it was the outermost call.
        """
        self._backward_depth = max(self._backward_depth - 1, 0)
        if self._backward_depth:
            return False
        resumes = not accumulates and self._before_backward is Phase.FORWARD
        if self._forward_depth or resumes:
            self._switch(Phase.FORWARD, now_ns)
            self._forward_return_ns = 0 if self._forward_depth else now_ns
        else:
            self._switch(self._outer(), now_ns)
        if self.stepped_in_backward:
            self.stepped_in_backward = False
            self._end_step(now_ns)
        return True

    def optimizer_begin(self, optimizer: int, now_ns: int) -> None:
        """An optimizer, told by its ``id``, begins to step (optimizers can be nested)."""
        if self._backward_depth:
            self.stepped_in_backward = True
            return
        if optimizer in self._optimizers:
            self._optimizers.clear()  # its last step raised, so its end was never told
        self._optimizers.append(optimizer)
        if len(self._optimizers) > 1:
            return
        self.seen(now_ns)
        if self.boundary_ns and not self._ever_work:
            self.commit()
        # A boundary that is not committed yet stays: a closure may begin the next step in here.
        self._switch(Phase.OPTIMIZER, now_ns)

    def optimizer_end(self, now_ns: int) -> bool:
        """An optimizer's step returned.

        Returns:
            Whether it was the outermost one.
        """
        if self._backward_depth:
            return False
        if self._optimizers:
            self._optimizers.pop()
        if self._optimizers:
            return False
        self._switch(Phase.HOST, now_ns)
        if self._work or not self._ever_work:
            self._end_step(now_ns)
        return True

    def restart(self, now_ns: int) -> None:
        """From now on another thread trains: what the one before had begun, it does not end."""
        self._switch(Phase.HOST, now_ns)
        self._input_depth = self._forward_depth = self._backward_depth = 0
        self._checkpoint_depth = 0
        self.stepped_in_backward = False
        self._optimizers.clear()
        self._work = self._ever_work  # its forward and backward were not told, but it steps

    def scaler_updated(self, now_ns: int) -> None:
        """A gradient scaler was updated: an iteration ends, also when its step was skipped."""
        if self._work and not self.boundary_ns and not self._optimizers:
            self._switch(Phase.HOST, now_ns)
            self._end_step(now_ns)

    def mark_step(self, now_ns: int) -> None:
        """The training loop itself says that a step ended; from now on only it does."""
        self._manual = True
        self.seen(now_ns)
        self._switch(Phase.HOST, now_ns)
        self.boundary_ns = now_ns
        self.commit()

    def enter(self, phase: Phase, now_ns: int) -> Phase:
        """Begin ``phase`` by hand; returns the one to give to ``leave``."""
        self._mark_work(now_ns)
        before = self.phase
        self._switch(phase, now_ns)
        self.awaits_forward = False
        self._forward_return_ns = 0
        return before

    def leave(self, before: Phase, now_ns: int) -> None:
        """End what ``enter`` began."""
        self._switch(before, now_ns)
        self._forward_return_ns = 0

    def collective(self, now_ns: int) -> None:
        """A collective arrives; outside an optimizer it belongs to the next step."""
        self.seen(now_ns)
        if self.boundary_ns and not self._optimizers:
            self.commit()

    def commit(self) -> None:
        """Write the step whose end is known, and count on."""
        if not self.boundary_ns:
            return
        end_ns, self.boundary_ns = self.boundary_ns, 0
        if self.observer is not None:  # before the sink, with which another step begins
            self.observer.step(self.step, self.step_start_ns, end_ns)
        if self.sink is not None:
            self.sink.record(
                RecordKind.STEP, 0, _NO_GROUP, 0, self.step, _NO_PEER, 0,
                self.step_start_ns, end_ns,
            )  # fmt: skip
        self.step += 1
        self.step_start_ns = end_ns
        self._work = False

    def _mark_work(self, now_ns: int) -> None:
        if self.boundary_ns:
            self.commit()
        self.seen(now_ns)
        self._work = self._ever_work = True

    def _end_step(self, now_ns: int) -> None:
        if not self._manual:
            self.boundary_ns = now_ns

    def _outer(self) -> Phase:
        # A closure runs forward and backward within the optimizer's step.
        return Phase.OPTIMIZER if self._optimizers else Phase.HOST

    def _tell_boundary(self, now_ns: int) -> None:
        if self.probe is not None:
            self.probe(now_ns)
        if self.observer is not None:
            self.observer.boundary(now_ns)

    def _switch(self, phase: Phase, now_ns: int, *, is_now: bool = True) -> None:
        if is_now:
            self._tell_boundary(now_ns)
        old, since_ns, end_ns = self.phase, self._since_ns, now_ns
        if old is Phase.FORWARD and phase is not Phase.BACKWARD:
            # No backward follows, so the forward ended when it returned.
            if not self.awaits_forward:
                end_ns = self._forward_return_ns or now_ns
            elif self._forward_ever_hooked:
                end_ns = 0
        if old is not Phase.HOST and end_ns > since_ns:
            if self.sink is not None:
                self.sink.record(
                    RecordKind.PHASE, old, _NO_GROUP, 0, self.step, _NO_PEER, 0, since_ns, end_ns
                )
            if self.observer is not None:
                self.observer.phase(old, self.step, since_ns, end_ns)
        if self.saving is not None and Phase.CHECKPOINT in (old, phase):
            self.saving(now_ns if phase is Phase.CHECKPOINT else 0)
        self.phase, self._since_ns = phase, now_ns
        if phase is not Phase.FORWARD:
            self.awaits_forward = False
