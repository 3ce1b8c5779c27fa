"""What ranks wait in, as it is told while a job runs, and what that amounts to.

A hung job writes no records, so this listens to the in-flight tables that come with every frame,
also with one that holds no records, and to the rows that are left when a log ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from paceline.counted import counted
from paceline.ranks import format_ranks
from paceline.vocabulary import P2P_OPS, Flag, RecordKind
from paceline_service.analysis.causes.telemetry import SampleLike
from paceline_service.analysis.channel import JobFacts, JudgedStep
from paceline_service.analysis.matching.pool import StepPool
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.report import Finding
from paceline_service.analysis.sets import distinct, one_of
from paceline_service.analysis.standstill.came import came_in, messages_of
from paceline_service.analysis.standstill.diagnose import (
    NEVER_ISSUED,
    STUCK,
    Culprits,
    diagnose,
)
from paceline_service.analysis.standstill.findings import Scene, finding_of_culprits
from paceline_service.analysis.standstill.rank_now import RankNow
from paceline_service.analysis.standstill.waiting import Waiting, waiting_of

LONGEST_STEPS = 5
"""A hang is a wait of so many of the longest recent steps: evaluations and checkpoints that come
again are among those, and last about as long each time."""
RECENT_STEPS = 256
"""How many steps back the longest is looked for."""
SILENT_S = 20.0
"""A rank that was not heard of for so long, while others were, is silent: sidecars send at least
every 5 s, and one frame may have to be sent again."""
EXCUSED_NS = 3600 * 10**9
"""A rank that saves a checkpoint, or that still writes records, is busy and not hung, but not for
ever: storage hangs too."""
STACK = "stack"
"""The name of the telemetry that holds the lines of a stuck process, innermost first."""
MAX_LINES = 24
MAX_LINE_CHARS = 200
_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)


class Standstill:
    """The channel that finds hangs.

    Args:
        world_size: R.
        pool: holds the records of steps that are not complete, as those of a hung job are.
    """

    def __init__(self, world_size: int, pool: StepPool) -> None:
        self._world_size = world_size
        self._pool = pool
        self._ranks: dict[int, RankNow] = {}
        self._oldest_ns = np.full(world_size, -1, dtype=np.int64)
        """(R,) age of the oldest pending collective of each rank."""
        self._ended: dict[int, str] = {}
        self._durations_ns: deque[int] = deque(maxlen=RECENT_STEPS)
        self._whole = np.zeros(0, dtype=np.int64)
        self._left: Table | None = None
        self._version = 0
        self._known: tuple[tuple[int, int], tuple[list[Culprits], Waiting]] | None = None
        self._cut_short = False

    def note(
        self,
        rank: int,
        pending: Int64Array,
        *,
        now_ns: int,
        heard_wall_ns: int = 0,
        step: int = -1,
        checkpoint_ns: int = 0,
    ) -> None:
        """Take what ``rank`` was in when a frame was made; see ``RankNow`` for the columns."""
        self._version += 1
        state = self._now(rank)
        if now_ns < state.now_ns:  # another process, on a machine with another clock
            state = self._ranks[rank] = RankNow()
        state.pending, state.checkpoint_ns = pending, checkpoint_ns
        state.now_ns = max(state.now_ns, now_ns)
        state.heard_wall_ns = max(state.heard_wall_ns, heard_wall_ns)
        if step != state.step:
            state.step, state.step_since_ns = step, now_ns
        start_ns = int(pending[:, 6].min()) if len(pending) else state.now_ns
        self._oldest_ns[rank] = state.now_ns - start_ns if len(pending) else -1

    def wrote(self, table: Table, last: Int64Array) -> None:
        """Take note that ranks wrote records: they do something.

        Args:
            table: what they wrote, in the order in which each wrote it.
            last: rows behind which the rows of another rank begin, and the last row.
        """
        self._version += 1
        newest_ns = np.maximum(table.end_ns[last], table.start_ns[last])
        for rank, at_ns in zip(table.rank[last].tolist(), newest_ns.tolist(), strict=True):
            state = self._now(rank)
            if at_ns > state.written_ns:
                state.written_ns = at_ns

    def add_telemetry(self, rank: int, samples: Iterable[SampleLike]) -> None:
        """Take samples of ``rank``, few of which hold a stack."""
        for sample in samples:
            if STACK in sample.values:
                self.stack(rank, sample.time_ns, sample.values[STACK])

    def stack(self, rank: int, time_ns: int, lines: object) -> None:
        """Take the stack of the main thread of ``rank``, innermost line first."""
        if isinstance(lines, list):
            state = self._now(rank)
            state.stack = tuple(str(line)[:MAX_LINE_CHARS] for line in lines[:MAX_LINES])
            state.stack_ns = time_ns

    def ended(self, rank: int, how: str) -> None:
        """Expect nothing more of ``rank``; who ended by itself waits for nothing."""
        self._version += 1
        self._ended[rank] = how
        state = self._now(rank)
        state.ended_wall_ns = state.heard_wall_ns
        if how == "closed":
            state.pending = state.pending[:0]
            self._oldest_ns[rank] = -1

    def resumed(self, rank: int) -> None:
        """A rank that had ended is there again."""
        if self._ended.pop(rank, None) is not None:
            self._ranks[rank] = RankNow()

    def alive_at(self, rank: int, now_ns: int) -> None:
        """The clock of ``rank`` showed ``now_ns`` when its log ended, or later."""
        state = self._now(rank)
        state.now_ns = max(state.now_ns, now_ns)

    def log_ends(self, clock_of_rank: Int64Array, *, ages_known: bool) -> None:
        """No more records will come: what the held rows say is pending stays so.

        Args:
            clock_of_rank: (R,) ranks of one number share a clock; -1 is one of its own.
            ages_known: whether the log tells how long ranks went on living after their last
                record; without that, nobody knows an age, and what is pending counts as it is.
        """
        self._version += 1
        self._left = left = self._pool.remaining()
        self._cut_short = not ages_known
        if not len(left):
            return
        newest_ns = np.zeros(self._world_size, dtype=np.int64)
        np.maximum.at(newest_ns, left.rank, np.maximum(left.start_ns, left.end_ns))
        for rank, state in self._ranks.items():
            newest_ns[rank] = max(int(newest_ns[rank]), state.now_ns, state.written_ns)
        shared = np.flatnonzero(clock_of_rank >= 0)
        if len(shared):
            of_clock = np.zeros(int(clock_of_rank.max()) + 1, dtype=np.int64)
            np.maximum.at(of_clock, clock_of_rank[shared], newest_ns[shared])
            newest_ns[shared] = of_clock[clock_of_rank[shared]]
        done = np.full(self._world_size, -1, dtype=np.int64)
        steps = left.kind == RecordKind.STEP
        np.maximum.at(done, left.rank[steps], left.step[steps])
        pending = (
            (left.kind == RecordKind.COLLECTIVE)
            & (left.end_ns == 0)
            & ((left.flags & Flag.NOT_WAITED) != 0)
            & (left.step > done[left.rank])
        )
        for rank in distinct(left.rank[pending]).tolist():
            if self._ended.get(rank) == "closed":
                continue
            mine = left.take(pending & (left.rank == rank))
            columns = (mine.group, mine.code, mine.seq, mine.step, mine.peer,
                       mine.payload_bytes, mine.start_ns)  # fmt: skip
            self.note(rank, np.stack(columns, axis=1), now_ns=int(newest_ns[rank]),
                      step=int(mine.step.max()))  # fmt: skip
            self._ranks[rank].step_since_ns = int(mine.start_ns.min())

    def ages_s(self) -> dict[int, float]:
        """Return the age of the oldest pending collective of each rank that is in one."""
        return {
            int(rank): float(self._oldest_ns[rank]) / 1e9
            for rank in np.flatnonzero(self._oldest_ns >= 0)
        }

    def see(self, step: JudgedStep) -> None:
        """Learn how long steps take, and how far every member of each group has come."""
        self._version += 1
        if step.row.duration_ns > 0:
            self._durations_ns.append(int(step.row.duration_ns))
        matches = step.matches
        whole = matches.first[matches.complete]
        whole = whole[~one_of(matches.rows.code[whole], _P2P)]
        if not len(whole):
            return
        group = matches.rows.group[whole]
        if group.max() >= len(self._whole):
            grown = np.full(int(group.max()) + 1, -1, dtype=np.int64)
            grown[: len(self._whole)] = self._whole
            self._whole = grown
        np.maximum.at(self._whole, group, matches.rows.seq[whole])

    def threshold_ns(self, facts: JobFacts) -> int:
        """Return how old a wait must be to be called a hang."""
        if self._cut_short:
            return 0
        options = facts.options
        if not self._durations_ns:
            return int(options.hang_startup_s * 1e9)
        return max(int(options.hang_floor_s * 1e9), LONGEST_STEPS * max(self._durations_ns))

    def findings(self, facts: JobFacts) -> list[Finding]:
        """Return the hang or desync that goes on, or that the job ended in."""
        found, waiting = self._diagnose(facts)
        scene = self._scene(facts, self.threshold_ns(facts))
        kept = [(one, self._unexcused(one, facts)) for one in found]
        return [
            finding_of_culprits(_about(one, ranks), waiting, scene)
            for one, ranks in kept
            if ranks or (one.manner == STUCK and not self._lives(waiting, facts))
        ]

    def notes(self, facts: JobFacts) -> list[str]:
        """Return who is waited for and excused."""
        found, _ = self._diagnose(facts)
        notes = []
        for one in found:
            excused = sorted(set(one.ranks) - set(self._unexcused(one, facts)))
            if excused:
                many = len(excused) > 1
                saving = any(self._state(rank).checkpoint_ns for rank in excused)
                does = "saving a checkpoint" if saving else "still writing records"
                notes.append(
                    f"{counted(one.waiters, 'rank waits', 'ranks wait')} for "
                    f"rank{'s' if many else ''} "
                    f"{format_ranks(excused)}, {'which are' if many else 'which is'} {does}: "
                    "no hang"
                )
        return notes

    def _diagnose(self, facts: JobFacts) -> tuple[list[Culprits], Waiting]:
        """Return the culprits among what is pending; asked again, it looks at what is new."""
        threshold_ns = self.threshold_ns(facts)
        key = (self._version, threshold_ns)
        if self._known is None or self._known[0] != key:
            self._known = key, self._look(facts, threshold_ns)
        return self._known[1]

    def _look(self, facts: JobFacts, threshold_ns: int) -> tuple[list[Culprits], Waiting]:
        if not self._cut_short and self._oldest_ns.max(initial=-1) < threshold_ns:
            return [], waiting_of([])
        pending = [(rank, state) for rank, state in self._ranks.items() if len(state.pending)]
        stands = {rank for rank, state in pending if state.in_step_ns >= threshold_ns}
        if not stands:
            return [], waiting_of([])
        # Whose step is younger is not waited for long, but it is there: left out, it would be
        # missed by those who wait a moment longer, and accused.
        rows = [
            (rank, *row[:6], age_ns if rank in stands else min(age_ns, state.in_step_ns))
            for rank, state in pending
            for row, age_ns in state.pending_with_age()
        ]
        waiting = waiting_of([(r, g, op, seq, step, peer, size, age)
                              for r, g, op, seq, step, peer, size, age in rows])  # fmt: skip
        if not len(waiting):
            return [], waiting
        members = [np.array(group.ranks, dtype=np.int64) for group in facts.groups]
        held = self._left if self._left is not None else self._pool.remaining()
        came = came_in(waiting, held, members, self._whole, self._world_size)
        messages = messages_of(waiting, held)
        found = diagnose(waiting, came, members, self._world_size, threshold_ns, messages)
        return found, waiting

    def _unexcused(self, culprits: Culprits, facts: JobFacts) -> list[int]:
        """Return the ranks that do nothing else in the meantime."""
        if culprits.manner != NEVER_ISSUED or self._cut_short:
            return culprits.ranks
        threshold_ns = self.threshold_ns(facts)
        silent_s = self._silent_s()
        kept = []
        for rank in culprits.ranks:
            state = self._state(rank)
            saving_ns = state.now_ns - state.checkpoint_ns if state.checkpoint_ns else -1
            idle_ns = state.now_ns - state.written_ns if state.written_ns else -1
            waited_ns = int(self._oldest_ns.max())
            excused = 0 <= saving_ns < EXCUSED_NS or (
                0 <= idle_ns < threshold_ns and waited_ns < EXCUSED_NS
            )
            if rank in self._ended or rank in silent_s or not excused:
                kept.append(rank)
        return kept

    def _lives(self, waiting: Waiting, facts: JobFacts) -> bool:
        """Whether one of those who wait does something else meanwhile: it did not ask yet."""
        threshold_ns = self.threshold_ns(facts)
        states = [self._state(rank) for rank in distinct(waiting.rank).tolist()]
        return any(
            state.checkpoint_ns or 0 <= state.now_ns - state.written_ns < threshold_ns
            for state in states
        )

    def _silent_s(self) -> dict[int, float]:
        """Return for how long nothing was heard of ranks that are still awaited."""
        heard = {rank: s.heard_wall_ns for rank, s in self._ranks.items() if s.heard_wall_ns}
        newest_ns = max(heard.values(), default=0)
        return {
            rank: (newest_ns - at) / 1e9
            for rank, at in heard.items()
            if newest_ns - at > SILENT_S * 1e9 and rank not in self._ended
        }

    def _scene(self, facts: JobFacts, threshold_ns: int) -> Scene:
        since_ns = min(
            (
                state.heard_wall_ns - int(self._oldest_ns[rank])
                for rank, state in self._ranks.items()
                if state.heard_wall_ns and self._oldest_ns[rank] >= threshold_ns > 0
            ),
            default=0,
        )
        # A rank that was killed long after its peers had begun to wait was killed with the job.
        before = {
            rank: how
            for rank, how in self._ended.items()
            if not since_ns or self._state(rank).ended_wall_ns <= since_ns + threshold_ns
        }
        return Scene(
            groups=facts.groups,
            nodes=facts.nodes,
            ended=before,
            silent_s=self._silent_s(),
            stacks={
                rank: state.stack
                for rank, state in self._ranks.items()
                if state.stack and state.stack_ns > max(state.written_ns, state.step_since_ns)
            },
        )

    def _now(self, rank: int) -> RankNow:
        state = self._ranks.get(rank)
        if state is None:
            state = self._ranks[rank] = RankNow()
        return state

    def _state(self, rank: int) -> RankNow:
        return self._ranks.get(rank) or RankNow()


def _about(culprits: Culprits, ranks: list[int]) -> Culprits:
    if ranks == culprits.ranks:
        return culprits
    return Culprits(
        manner=culprits.manner, ranks=ranks, row=culprits.row, waiters=culprits.waiters,
        waited_ns=culprits.waited_ns,
    )  # fmt: skip
