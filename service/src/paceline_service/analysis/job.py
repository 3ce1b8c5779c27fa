"""The analysis of one job attempt: records in, steps and a report out.

Live, replayed and offline input take this one way:

    records -> steps (table) -> matching -> waits -> self time (timeline) -> blame
            -> scores -> evidence and episodes -> findings -> report
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paceline.errors import AnalysisError
from paceline_service.analysis.blame.ledger import BlameLedger
from paceline_service.analysis.blame.noise import ReleaseNoise
from paceline_service.analysis.blame.sampling import is_left_out, row_of_times
from paceline_service.analysis.blame.timeline import StepDetail, StepRow, build_step
from paceline_service.analysis.blame.waits import measure_waits
from paceline_service.analysis.causes.telemetry import SampleLike
from paceline_service.analysis.causes.watch import CauseWatch
from paceline_service.analysis.channel import Channel, JobFacts, JudgedStep
from paceline_service.analysis.evidence.episode import make_note
from paceline_service.analysis.evidence.episodes import EpisodeTracker
from paceline_service.analysis.evidence.peers import PeerFinder
from paceline_service.analysis.expected.steps import StepSample
from paceline_service.analysis.kinds.imbalance import Imbalance
from paceline_service.analysis.kinds.stages_watch import StageWatch
from paceline_service.analysis.kinds.uniform import UniformSlowdown
from paceline_service.analysis.matching.clocks import ClockOffsets, ClockWatch
from paceline_service.analysis.matching.device import behind_host_ns, launch_lag_ns, one_timeline
from paceline_service.analysis.matching.groups import Members
from paceline_service.analysis.matching.match import match
from paceline_service.analysis.matching.pool import StepPool
from paceline_service.analysis.matching.table import Table, as_table
from paceline_service.analysis.network.fit import TransferFit
from paceline_service.analysis.network.series import TransferFigures
from paceline_service.analysis.network.watch import NetworkWatch
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import Group, Int64Array, Records
from paceline_service.analysis.replicas.watch import Replicas
from paceline_service.analysis.report import Finding, Report
from paceline_service.analysis.standstill.desync import Desync
from paceline_service.analysis.standstill.watch import Standstill
from paceline_service.analysis.totals import Totals
from paceline_service.analysis.verdict import judge
from paceline_service.analysis.whatif.drain import Drain, DrainWatch

MAX_WORLD_SIZE = 1_000_000


class JobAnalysis:
    """Everything that is known about one attempt of one job.

    Args:
        world_size: R, number of ranks.
        options: how cautious to be.

    Raises:
        AnalysisError: ``world_size`` is out of range.
    """

    def __init__(self, world_size: int, options: Options | None = None) -> None:
        if not 1 <= world_size <= MAX_WORLD_SIZE:
            raise AnalysisError(
                f"world size {world_size} is out of range 1..{MAX_WORLD_SIZE}; check the header "
                "of the log or the launcher's environment"
            )
        self.world_size = world_size
        self._begin(options or Options())

    def _begin(self, options: Options) -> None:
        world_size = self.world_size
        self.options = options
        self.groups: list[Group] = []
        self._members = Members()
        self._group_index: dict[tuple[str, tuple[int, ...], int], int] = {}
        self._clock_numbers: dict[str, int] = {}
        self._clock_of_rank = np.full(world_size, -1, dtype=np.int64)
        self._node_of_rank: dict[int, str] = {}
        self._observed = np.zeros(world_size, dtype=np.bool_)
        self._ended: dict[int, str] = {}
        self._dropped: dict[int, dict[str, int]] = {}
        self._pool = StepPool(
            world_size,
            grace_steps=self.options.grace_steps,
            patience_s=self.options.patience_s,
            patience_rows=self.options.patience_rows,
            catch_up_s=self.options.catch_up_s,
        )
        self._noise = ReleaseNoise()
        self._ledger = BlameLedger(world_size)
        self._peers = PeerFinder(world_size)
        self._totals = Totals(world_size, self.options.settling_steps)
        self._sample = StepSample(world_size, self.options.settling_steps)
        self._tracker = EpisodeTracker(world_size, self.options)
        self._watch = CauseWatch(world_size)
        self._stages = StageWatch(world_size, self.options)
        self._drain = DrainWatch(world_size, self.options, self._node_of_rank)
        self._clocks = ClockWatch(world_size)
        self._network = NetworkWatch(world_size, self.options, self.groups, self._node_of_rank)
        self._standstill = Standstill(world_size, self._pool)
        self._replicas = Replicas()
        self._channels: list[Channel] = [
            self._standstill,
            Desync(),
            self._replicas,
            self._stages,
            self._network,
            Imbalance(world_size),
            UniformSlowdown(world_size, self.options, self._watch),
        ]

    def declare_rank(self, rank: int, *, node: str = "", clock_domain: str = "") -> None:
        """Say where a rank runs; ranks of one ``clock_domain`` share a clock.

        Raises:
            AnalysisError: ``rank`` is not of this job.
        """
        self._check_rank(rank)
        self._observed[rank] = True
        if node:
            self._node_of_rank[rank] = node
            self._tracker.declare_node(rank, node)
        if clock_domain:
            number = self._clock_numbers.setdefault(clock_domain, len(self._clock_numbers))
            self._clock_of_rank[rank] = number

    def declare_group(self, group: Group) -> int:
        """Return the job-wide index of ``group``, the same for the same (name, ranks, epoch).

        Raises:
            AnalysisError: it names ranks that are not of this job.
        """
        for rank in group.ranks:
            self._check_rank(rank)
        key = (group.name, group.ranks, group.epoch)
        index = self._group_index.setdefault(key, len(self.groups))
        if index == len(self.groups):
            self.groups.append(group)
            self._members.add(group)
        return index

    def settle_after(self, steps: int) -> None:
        """Take so many first steps to be settling, where the job is known to begin elsewhere.

        It is said before anything else; later it changes nothing.
        """
        if not self._observed.any() and steps != self.options.settling_steps:
            self._begin(replace(self.options, settling_steps=steps))

    def assume_noise(self, group: int, noise_ns: int) -> None:
        """Say how exactly the releases of a group are known, where that was measured before."""
        self._noise.assume(group, noise_ns)

    def add(self, records: Records) -> None:
        """Take records of one rank, in the order they were written.

        Raises:
            AnalysisError: the rank or a group index is unknown.
        """
        self._check_rank(records.rank)
        self._observed[records.rank] = True
        self._resume(records.rank)
        self.add_table(as_table(records))

    def add_table(self, table: Table) -> None:
        """Take records of many ranks, those of each rank in the order they were written.

        Raises:
            AnalysisError: a rank or a group index is unknown.
        """
        if not len(table):
            return
        self._check_rank(int(table.rank.min()))
        self._check_rank(int(table.rank.max()))
        groups = max(len(self.groups), 1)
        if not 0 <= table.group.min() <= table.group.max() < groups:
            wrong = np.flatnonzero((table.group < 0) | (table.group >= groups))[0]
            raise AnalysisError(
                f"records of rank {table.rank[wrong]} name group {table.group[wrong]}; "
                f"{len(self.groups)} groups are declared: declare_group comes first"
            )
        self._observed[table.rank] = True
        last = np.append(np.flatnonzero(table.rank[1:] != table.rank[:-1]), len(table) - 1)
        if self._ended:
            for rank in table.rank[last].tolist():
                self._resume(rank)
        self._pool.add_table(table)
        self._standstill.wrote(table, last)

    def _resume(self, rank: int) -> None:
        """Expect more of a rank, also where it had ended."""
        self._ended.pop(rank, None)
        self._pool.resume(rank)
        self._standstill.resumed(rank)

    def add_telemetry(self, rank: int, samples: Sequence[SampleLike]) -> None:
        """Take samples of GPU, process and host of one rank, in the order they were sent.

        Raises:
            AnalysisError: ``rank`` is not of this job.
        """
        self._check_rank(rank)
        for listener in (self._watch, self._standstill, self._replicas):
            listener.add_telemetry(rank, samples)

    def heard(self, rank: int, now_ns: int) -> None:
        """Say when records of ``rank`` came, on one clock for all ranks; see ``StepPool``."""
        self._check_rank(rank)
        self._pool.heard(rank, now_ns)

    def more_to_come(self, rank: int, *, more: bool) -> None:
        """Say whether ``rank`` is known to have written more than came: it is waited for."""
        self._check_rank(rank)
        self._pool.to_come(rank, more=more)

    @property
    def late_records(self) -> int:
        """How many records came when their step had been judged without them."""
        return self._pool.dropped()["late"]

    def rank_ended(self, rank: int, how: str) -> None:
        """Expect nothing more of ``rank``; ``how`` is ``closed`` or ``killed``."""
        self._check_rank(rank)
        self._ended[rank] = how
        self._pool.end(rank)
        self._standstill.ended(rank, how)

    def note_dropped(self, rank: int, dropped: Mapping[str, int]) -> None:
        """Take the counts of what was lost on ``rank`` so far, by reason."""
        if dropped:
            self._dropped[rank] = dict(dropped)

    def note_pending(
        self,
        rank: int,
        pending: Int64Array,
        *,
        now_ns: int,
        heard_wall_ns: int = 0,
        step: int = -1,
        checkpoint_ns: int = 0,
    ) -> None:
        """Take what ``rank`` was in when a frame was made (``Standstill.note``)."""
        self._check_rank(rank)
        self._standstill.note(
            rank, pending, now_ns=now_ns, heard_wall_ns=heard_wall_ns, step=step,
            checkpoint_ns=checkpoint_ns,
        )  # fmt: skip

    def advance(self) -> list[StepRow]:
        """Analyse the steps that have become complete, and return them in order."""
        return [self._judge_step(step, table) for step, table in self._pool.complete()]

    @property
    def standstill(self) -> Standstill:
        """Takes what ranks wait in, beside their records."""
        return self._standstill

    def log_ends(self, *, ages_known: bool) -> None:
        """The log ends here, before ``finish``: what is pending in it stays pending.

        Args:
            ages_known: see ``Standstill.log_ends``.
        """
        self._standstill.log_ends(self._clock_of_rank, ages_known=ages_known)

    def finish(self) -> list[StepRow]:
        """Analyse what is left: no more records will come."""
        rows = [self._judge_step(step, table) for step, table in self._pool.complete(final=True)]
        self._stages.finish()
        return rows

    def report(self) -> Report:
        """Return the answer for what was analysed so far."""
        dropped: dict[str, int] = {}
        for reasons in self._dropped.values():
            for reason, count in reasons.items():
                dropped[reason] = dropped.get(reason, 0) + count
        for reason, count in self._pool.dropped().items():
            dropped[reason] = dropped.get(reason, 0) + count
        report = judge(
            world_size=self.world_size,
            observed=self._observed,
            nodes=self._node_of_rank,
            ended=self._ended,
            dropped=dropped,
            totals=self._totals,
            tracker=self._tracker,
            peers=self._peers,
            options=self.options,
            channels=self._channels,
            facts=self._facts(),
            watch=self._watch,
        )
        expected, calibration = self._expected(report.findings)
        return replace(
            report, what_if=self._stages.figures(self._facts()), expected=expected,
            calibration=calibration,
        )  # fmt: skip

    def _expected(self, findings: list[Finding]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the step of healthy ranks against the seen one, and what it was made of."""
        from paceline_service.analysis.expected.answer import Sources, expected_blocks

        sources = Sources(
            totals=self._totals, sample=self._sample, network=self._network,
            tracker=self._tracker, peer_groups=self._peers.groups(), groups=self.groups,
        )  # fmt: skip
        return expected_blocks(sources, findings)

    def drain(self) -> Drain:
        """Return what leaving out ranks or nodes would give back."""
        return self._drain.drain()

    @property
    def unattributed_wait_ns(self) -> float:
        """Waits that nobody's delay explains; with the blamed waits they are all waits."""
        return self._totals.unattributed_ns

    def clock_offsets(self) -> ClockOffsets:
        """Return how far the ranks' clocks are apart; for drawing timelines only."""
        return self._clocks.offsets(self._clock_of_rank)

    def release_noise_ns(self) -> Int64Array:
        """Return how exactly the releases of each group are known, (G,), ns."""
        return self._noise.noise_ns(len(self._members.settle().sizes))

    def transfer_fits(self) -> list[TransferFit]:
        """Return what transfers cost in each group: alpha, beta, bus bandwidth."""
        return self._network.fits()

    def transfer_figures(self) -> tuple[TransferFigures, ...]:
        """Return the transfers of the largest groups as they are now."""
        return self._network.figures()

    def phase_totals_ns(self) -> Int64Array:
        """Return the own time of each rank by phase, (R, 7), over the steps of the report."""
        return self._totals.phase_ns()

    def _judge_step(self, step: int, table: Table) -> StepRow:
        if is_left_out(table):
            self._totals.left_out += 1
            return row_of_times(step, table, self.world_size)
        members = self._members.settle()
        table, on_device = one_timeline(table, self.world_size)
        matches = match(table, members, self._clock_of_rank)
        waits = measure_waits(
            matches, self._clock_of_rank, self._noise.noise_ns(len(members.sizes))
        )
        behind_ns = behind_host_ns(matches.rows, on_device)
        row, exposures = build_step(step, table, matches, waits, behind_ns, self.world_size)
        self._peers.learn(matches, members)
        peer_groups = self._peers.groups()
        blame = self._ledger.charge(row, matches, waits, exposures, peer_groups)
        lag_ns = launch_lag_ns(table, self.world_size)
        self._noise.learn(matches)
        self._clocks.see(matches)
        self._totals.add(row, table, matches, blame)
        self._sample.see(row)
        note = make_note(row, blame.blamed_ns, blame.last_count, lag_ns, on_device)
        note = self._tracker.update(note, peer_groups)
        judged = JudgedStep(
            row=row, table=table, matches=matches, waits=waits, blame=blame, note=note,
            peer_groups=peer_groups,
        )  # fmt: skip
        self._watch.see(judged)
        self._drain.see(judged)
        for channel in self._channels:
            channel.see(judged)
        if not self.options.details:
            return row
        detail = StepDetail(
            rank=exposures.rank, position_ns=exposures.position_ns, wait_ns=exposures.wait_ns,
            comm_ns=exposures.comm_ns, caused_ns=blame.caused_ns,
            blamed_ns=blame.blamed_ns.sum(axis=1), last_count=blame.last_count,
        )  # fmt: skip
        return replace(row, detail=detail)

    def _facts(self) -> JobFacts:
        return JobFacts(
            world_size=self.world_size,
            groups=self.groups,
            nodes=self._node_of_rank,
            options=self.options,
            step_s=self._tracker.step_s,
            judged_steps=self._tracker.judged_steps,
        )

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self.world_size:
            raise AnalysisError(
                f"rank {rank} is not of a job of world size {self.world_size}; "
                "the header or the launcher's environment is wrong"
            )
