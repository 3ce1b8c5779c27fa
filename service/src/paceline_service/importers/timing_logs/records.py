"""Times of every rank as records: what a report knows is laid on an axis of each rank's own.

A log tells how long, not when. So the records of a report follow each other in the order in which
a step does them, and each rank has its own clock: ranks are compared by duration alone. A report
over n iterations becomes one record of n times the average: sums stay true, and nothing pretends
to be a single step (docs/formats/timing-logs.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paceline.event_log import LogGroup
from paceline.vocabulary import Op, Phase, RecordKind
from paceline_service.analysis.options import Options
from paceline_service.importers.faults import Faults
from paceline_service.importers.log import EventLog
from paceline_service.importers.spool import RowSpool
from paceline_service.importers.timing_logs.places import Places, places_of, stages_by_timers
from paceline_service.importers.timing_logs.series import Report, Series

_FIRST_NS = 1_000_000
_MAX_NS = 1 << 61
_MAX_NUMBER = (1 << 31) - 1
_ALL, _PIPELINE = 0, 1
COMMUNICATION = (
    "all-grads-sync", "params-all-gather", "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce", "non-tensor-parallel-grads-all-reduce",
    "conditional-embedder-grads-all-reduce", "grads-all-reduce", "grads-reduce-scatter",
    "backward-params-all-reduce", "backward-embedding-all-reduce",
)  # fmt: skip
"""Timers of collectives among ranks."""
OWN = ("forward-compute", "backward-compute")
"""Timers of a rank's own work (with the collectives of its tensor-parallel group in them)."""
INNER_OPTIMIZER = (
    "optimizer-copy-to-main-grad", "optimizer-inner-step", "optimizer-copy-main-to-model-params",
)  # fmt: skip
"""Parts of the optimizer in which no rank waits for another."""


class Recorder:
    """Makes records of reports; those of the latest attempt stay."""

    def __init__(self) -> None:
        self.spool = RowSpool()
        self.reports = 0
        self.iterations = 0
        self.first = 0
        self.partial = 0
        """Reports with the times of all ranks, but not of their own work."""
        self.unplaced = 0
        """Reports whose ranks are of unknown pipeline stages."""
        self.places: Places | None = None
        self._at: dict[int, int] = {}
        self._last: int | None = None
        self._seq = 0

    @property
    def any(self) -> bool:
        """Whether there are records of at least two ranks."""
        return len(self._at) > 1

    def megatron(self, report: Report, series: Series) -> None:
        """Take a report with the times of all ranks (``--timing-log-option all``)."""
        if self._last is not None and report.iteration <= self._last:
            self.restart()
        self._last = report.iteration
        times = report.by_rank
        ranks = sorted(set().union(*(times.get(name, {}) for name in OWN)))
        if not all(name in times for name in OWN) or len(ranks) < 2:
            self.partial += 1
            return
        places = places_of(series.settings, series.largest_rank)
        if not places.stages:
            by_timers = stages_by_timers(times, places.world_size)
            receives = any(name.endswith("-recv") for name in times)
            places = replace(places, stages=by_timers or (None if receives else 1))
            if not places.stages:
                self.unplaced += 1
                return
        self.places = places
        ms = {rank: _own_ms(times, rank) for rank in ranks}
        most_ms = max(sum(own.values()) for own in ms.values())
        least_comm_ms = min(_sum(times, rank, COMMUNICATION) for rank in ranks)
        step_ms = max(report.step_ms, most_ms + least_comm_ms)
        host_ms = max(step_ms - most_ms - least_comm_ms, 0.0)
        for rank in ranks:
            spans = [(Phase.HOST, host_ms), *ms[rank].items()]
            rest_ms = step_ms - host_ms - sum(ms[rank].values())
            self._lay(rank, report.iteration, report.covers, spans, rest_ms, places)
        self._count(report)

    def deepspeed(self, rank: int, number: int, ms: Mapping[str, float]) -> None:
        """Take the timers of one step of one rank (``wall_clock_breakdown``)."""
        inner = ms.get("bwd_inner", max(ms["bwd"] - ms.get("bwd_allreduce", 0.0), 0.0))
        before = [(Phase.FORWARD, ms["fwd"]), (Phase.BACKWARD, inner)]
        rest = ms.get("bwd_allreduce", max(ms["bwd"] - inner, 0.0))
        own = ms.get("optimizer", ms["step"])
        self._lay(rank, number, 1, before, rest, None, after=((Phase.OPTIMIZER, own),),
                  gather_ms=ms.get("step_allgather"))  # fmt: skip
        if number > self.reports:
            self.reports, self.iterations = number, number
        self.first = self.first or number

    def detector(self, report: Report, ms: Mapping[int, float], places: Places) -> None:
        """Take a report in which the straggler detector named every rank."""
        most = max(ms.values())
        for rank, own in ms.items():
            self._lay(rank, report.iteration, report.covers, [(Phase.FORWARD, own)], most - own,
                      places)  # fmt: skip
        self.places = places
        self._count(report)

    def restart(self) -> None:
        """Forget what came before: the job began anew."""
        self.spool.close()
        self.__init__()  # type: ignore[misc]

    def log(self, size: int, faults: Faults) -> EventLog:
        """Return the records as the log of a job."""
        log = EventLog(world_size=size, faults=faults, spool=self.spool)
        everyone = tuple(range(size))
        log.groups.append(LogGroup(name="all", ranks=everyone))
        if self.places is not None and (self.places.stages or 1) > 1:
            log.groups.append(LogGroup(name="pipeline", ranks=everyone, mesh_dim="pp"))
        self.spool.flush()
        for rank, end_ns in self._at.items():
            log.ranks_with_steps.add(rank)
            log.extents[rank] = (_FIRST_NS, end_ns)
        each = max(self.iterations // max(self.reports, 1), 1)
        settling = max(1, -(-Options().settling_steps // each))
        log.options = replace(Options(), settling_steps=settling)
        return log

    def _count(self, report: Report) -> None:
        self.reports += 1
        self.iterations += report.covers
        self.first = self.first or report.iteration
        self._seq += 1

    def _lay(
        self,
        rank: int,
        number: int,
        covers: int,
        spans: list[tuple[Phase, float]],
        rest_ms: float,
        places: Places | None,
        after: tuple[tuple[Phase, float], ...] = (),
        gather_ms: float | None = None,
    ) -> None:
        """Lay phases, then the collective in which the rank waits for the others.

        ``after`` comes behind it, and then a gathering of ``gather_ms``.
        """
        begin = at = self._at.get(rank, _FIRST_NS)
        together_ms = sum(ms for _, ms in (*spans, *after)) + rest_ms + (gather_ms or 0)
        if not 0 <= number <= _MAX_NUMBER or begin + together_ms * covers * 1e6 > _MAX_NS:
            return  # no job ran so long: the number is damaged
        if places is not None and (places.stages or 1) > 1:
            self._mark(rank, number, at, places)
        for phase, ms in spans:
            at = self._phase(rank, number, phase, at, ms * covers)
        end = at + max(round(rest_ms * covers * 1e6), 0)
        self.spool.append(
            rank,
            _row(RecordKind.COLLECTIVE, int(Op.ALL_REDUCE), number, at, end, join_ns=at,
                 group=_ALL, seq=2 * number),
        )  # fmt: skip
        at = end
        for phase, ms in after:
            at = self._phase(rank, number, phase, at, ms * covers)
        if gather_ms is not None:
            begun, at = at, at + round(gather_ms * covers * 1e6)
            self.spool.append(
                rank,
                _row(RecordKind.COLLECTIVE, int(Op.ALL_GATHER), number, begun, at, join_ns=begun,
                     group=_ALL, seq=2 * number + 1),
            )  # fmt: skip
        self.spool.append(rank, _row(RecordKind.STEP, int(Op.UNKNOWN), number, begin, at))
        self._at[rank] = at

    def _phase(self, rank: int, number: int, phase: Phase, at: int, ms: float) -> int:
        end = at + round(ms * 1e6)
        if end > at and phase != Phase.HOST:
            self.spool.append(rank, _row(RecordKind.PHASE, int(phase), number, at, end))
        return end

    def _mark(self, rank: int, number: int, at: int, places: Places) -> None:
        """Say who hands to whom in the pipeline, in transfers that take no time.

        So ranks are compared with those of their own stage, and stages with each other. A stage
        takes before it hands on, so the two are a nanosecond apart.
        """
        for op, peer, ns in (
            (Op.RECV, places.before(rank), at),
            (Op.SEND, places.after(rank), at + 1),
        ):
            if peer >= 0:
                row = _row(
                    RecordKind.COLLECTIVE, int(op), number, ns, ns, group=_PIPELINE, peer=peer,
                    seq=number,
                )  # fmt: skip
                self.spool.append(rank, row)


def _own_ms(times: Mapping[str, Mapping[int, float]], rank: int) -> dict[Phase, float]:
    forward = times["forward-compute"].get(rank, 0.0)
    data = min(times.get("batch-generator", {}).get(rank, 0.0), forward)
    optimizer = _sum(times, rank, INNER_OPTIMIZER)
    return {
        Phase.INPUT: data,
        Phase.FORWARD: forward - data,
        Phase.BACKWARD: times["backward-compute"].get(rank, 0.0),
        Phase.OPTIMIZER: optimizer,
    }


def _sum(times: Mapping[str, Mapping[int, float]], rank: int, names: tuple[str, ...]) -> float:
    return sum(times.get(name, {}).get(rank, 0.0) for name in names)


def _row(
    kind: int, code: int, step: int, start_ns: int, end_ns: int, *,
    group: int = 0, seq: int = 0, peer: int = -1, join_ns: int = 0,
) -> tuple[int, ...]:  # fmt: skip
    """Return a row of the spool: the columns of ``ROW_FIELDS``, then file and line."""
    return (int(kind), code, group, seq, step, peer, 0, start_ns, end_ns, join_ns, 0, 0, 0, 0)
