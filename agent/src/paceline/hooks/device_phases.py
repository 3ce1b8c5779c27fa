"""Phases and steps on the device: marks at the boundaries that the step clock tells."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from paceline.hooks.device_collectives import DeviceCollectives
from paceline.hooks.device_marks import Mark
from paceline.ring.writer import RingWriter
from paceline.vocabulary import Flag, Phase, RecordKind

MAX_BOUNDARIES = 64
"""Boundaries whose phase has not ended; a phase ends a few boundaries after it began."""
MAX_OPEN = 4096
_PHASE = int(RecordKind.PHASE)
_STEP = int(RecordKind.STEP)
_ON_DEVICE = frozenset({int(phase) for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)})
_GPU_TIME = int(Flag.GPU_TIME)
_NO_COLLECTIVES = int(Flag.NO_COLLECTIVES)

_Stretch = tuple[int, int, int, Mark, Mark, int, int]
"""kind, code, step, where it begins and ends, when it began on the host, and flags."""


class DevicePhases:
    """Observes a step clock; see ``StepClock.observer``.

    Args:
        record: marks the current stream of the device that the job uses; None when it cannot.
        collectives: hear of the end of each backward.
        wanted: whether the phases of the present step are kept (its own times always are).
        whole: whether its collectives are.
    """

    def __init__(
        self,
        record: Callable[[], Mark | None],
        collectives: DeviceCollectives,
        wanted: Callable[[], bool],
        whole: Callable[[], bool],
    ) -> None:
        self._record = record
        self._wanted = wanted
        self._whole = whole
        self._collectives = collectives
        self._boundaries: dict[int, Mark] = {}
        self._step_end: tuple[int, Mark | None] = (0, None)
        self._open: deque[_Stretch] = deque()

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def boundary(self, now_ns: int) -> None:
        """A phase ends or begins at ``now_ns``, which is now."""
        mark = self._record()
        if mark is None:
            return
        if len(self._boundaries) >= MAX_BOUNDARIES:
            del self._boundaries[next(iter(self._boundaries))]
        self._boundaries[now_ns] = mark

    def phase(self, code: int, step: int, start_ns: int, end_ns: int) -> None:
        """A phase of the host has ended."""
        end = self._boundaries.get(end_ns)
        if end is None:
            return
        if code == Phase.BACKWARD:
            self._collectives.backward_ended(start_ns, end)
        start = self._boundaries.get(start_ns)
        if start is not None and code in _ON_DEVICE and self._wanted():
            self._append((_PHASE, int(code), step, start, end, start_ns, _GPU_TIME))

    def step(self, step: int, start_ns: int, end_ns: int) -> None:
        """A step of the host has ended."""
        end = self._boundaries.get(end_ns)
        if self._step_end[0] == start_ns:
            start = self._step_end[1]
        else:
            start = self._boundaries.get(start_ns)
        self._step_end = (end_ns, end)
        if start is not None and end is not None:
            flags = _GPU_TIME if self._whole() else _GPU_TIME | _NO_COLLECTIVES
            self._append((_STEP, 0, step, start, end, start_ns, flags))

    def poll(self, writer: RingWriter) -> None:
        """Write those that the device has left behind, in the order of the host."""
        while self._open:
            kind, code, step, start, end, issue_ns, flags = self._open[0]
            if not (start.host_ns and end.host_ns):
                return
            self._open.popleft()
            # Not by the difference on the axis: what follows begins where this one ends.
            writer.record(
                kind, code, 0, 0, step, -1, 0, start.host_ns, end.host_ns, 0, issue_ns, flags
            )

    def give_up(self) -> None:
        """Forget what is open: the host's records of it are there."""
        self._open.clear()
        self._boundaries.clear()
        self._step_end = (0, None)

    def _append(self, stretch: _Stretch) -> None:
        if len(self._open) < MAX_OPEN:
            self._open.append(stretch)
