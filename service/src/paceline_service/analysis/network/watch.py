"""Watches the transfers of a job: fits, bus bandwidth, degradation (docs/math/network.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from paceline.counted import counted
from paceline_service.analysis.channel import JobFacts, JudgedStep
from paceline_service.analysis.evidence.edetector import steps_between_false_alarms
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.network.bound import Bound, CommunicationShare, bound_finding
from paceline_service.analysis.network.evidence import (
    LEAST_SIBLING_SHIFT,
    SIBLINGS,
    Evidence,
    least_shift,
    median_of_sets,
)
from paceline_service.analysis.network.fit import TransferFit
from paceline_service.analysis.network.levels import fits_of
from paceline_service.analysis.network.series import TransferFigures, TransferSeries
from paceline_service.analysis.network.table import (
    BIN_LOG_WIDTH,
    BINS_PER_OCTAVE,
    ClassTable,
    mix,
)
from paceline_service.analysis.network.transfers import Transfers, transfers_of
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import FloatArray, Group, Int64Array
from paceline_service.analysis.report import Finding
from paceline_service.analysis.sets import distinct

SHARE_OF_NAMINGS = 10
"""The network takes a tenth of the false namings that the job allows; the tests of ranks and nodes
share the rest (evidence.episodes)."""
LEAST_SIBLINGS = 4
"""With fewer no majority says what is normal."""
SIBLING_SPREADS = 5.0
HOST_FLOOR_NS = 50_000.0
"""What a hook and a scheduler tick add to a transfer that is timed on the host."""
DEVICE_FLOOR_NS = 5_000.0
"""What a kernel's launch and its timestamps add."""

RUN = np.dtype(
    [
        ("steps", "i8"), ("first", "i8"), ("last", "i8"), ("gpu_ns", "f8"),
        ("duration_ns", "f8"), ("value", "f8"), ("expected", "f8"), ("beside", "f8"),
        ("beside_steps", "i8"), ("peak", "f8"),
    ]
)  # fmt: skip
"""Sums over the steps of one stretch: exposed excess, step durations, log transfers (also as
expected, and of the siblings), and the largest evidence."""


class NetworkWatch:
    """The channel of the network.

    Args:
        world_size: R.
        options: how cautious to be.
        groups: the job's groups, by index; the caller adds to it.
        nodes: node of each rank that told it; the caller adds to it.
    """

    def __init__(
        self, world_size: int, options: Options, groups: Sequence[Group], nodes: Mapping[int, str]
    ) -> None:
        self._world_size = world_size
        self._options = options
        self._groups = groups
        self._nodes = nodes
        self.table = ClassTable()
        self.evidence = Evidence()
        self._run = np.zeros(0, dtype=RUN)
        """The stretch in which each class looks slow at present, (C,)."""
        self._past = np.zeros(0, dtype=RUN)
        """All its stretches that were named and have ended, (C,)."""
        self._sets = np.zeros(0, dtype=np.int64)
        self._sets_of = (0, 0)
        self._node = np.full(world_size, -1, dtype=np.int64)
        self._group_spans: list[int] = []
        self._durations_ns: deque[int] = deque(maxlen=64)
        self.seen_steps = 0
        self.transfers = 0
        self.compared = 0
        """Transfers whose time was known well enough to be compared."""
        self.share = CommunicationShare()
        self.series = TransferSeries(groups)
        self.exposed_ns = np.zeros(0)
        """(C,) time that ranks stood still for the transfers of each class, settled steps."""
        self.took_ns = np.zeros(0)
        """(C,) sum over steps of the typical transfer of each class in a step."""

    def see(self, step: JudgedStep) -> None:
        """Take the next step."""
        self.seen_steps += 1
        self._durations_ns.append(step.row.duration_ns)
        if self.seen_steps <= self._options.settling_steps:
            return
        transfers = transfers_of(step.matches, step.waits)
        self.share.add(step.row, float(transfers.exposed_ns.sum()) if transfers else 0.0)
        if transfers is None:
            return
        classes = self.table.number(transfers)
        self._grow()
        numbered = classes >= 0
        of_row = classes[transfers.of_row]
        watched = of_row >= 0
        self.exposed_ns += np.bincount(
            of_row[watched], weights=transfers.exposed_ns[watched], minlength=len(self.table)
        )
        used = np.flatnonzero(numbered & transfers.exact)
        self.transfers += len(transfers)
        self.compared += len(used)
        self.series.take(self.table, transfers, classes, used)
        if len(used):
            self._compare(step, transfers, classes, used)

    def findings(self, facts: JobFacts) -> list[Finding]:
        """Return where the network is or was slow, and whether it is too little for the job."""
        slow = [finding for finding, cost in self._described(facts) if cost >= self._material]
        return slow + self._bound()

    def notes(self, facts: JobFacts) -> list[str]:
        """Return what was slow and cost little, and what could not be watched."""
        notes = [
            f"{finding.evidence[0]}, but that costs the job only {cost:.2%}"
            for finding, cost in self._described(facts)
            if cost < self._material
        ]
        if self.transfers and not self.compared and self.seen_steps > self._options.learning_steps:
            notes.append(
                "of no collective both payload and time of release are known, so the network was "
                "not compared with its own past"
            )
        if self.table.refused:
            notes.append(
                f"not watched: {counted(self.table.refused, 'transfer')} of further groups and "
                "sizes"
            )
        return notes

    def fits(self) -> list[TransferFit]:
        """Return alpha, beta and bus bandwidth of every group and operation seen so far."""
        return fits_of(self.table, self.evidence)

    def figures(self) -> tuple[TransferFigures, ...]:
        """Return the transfers of the largest groups as they are now."""
        return self.series.figures(self.table, self.evidence)

    def _bound(self) -> list[Finding]:
        if self.share.least_gamma() <= 1:
            return []
        bound = Bound(
            share=self.share,
            table=self.table,
            fits=lambda classes: fits_of(self.table, self.evidence, classes),
            exposed_ns=self.exposed_ns,
            excess_ns=self.excess_ns,
            least_steps=self._options.learning_steps,
            world_size=self._world_size,
        )
        return bound_finding(bound)

    @property
    def excess_ns(self) -> float:
        """Exposed time beyond what the named classes took before, ns."""
        named = self.evidence.state["slow"]
        return float(self._run["gpu_ns"][named].sum() + self._past["gpu_ns"].sum())

    def excess_by_class(self) -> FloatArray:
        """Return (C,) ``excess_ns`` by class."""
        named = self.evidence.state["slow"]
        return np.asarray(np.where(named, self._run["gpu_ns"], 0.0) + self._past["gpu_ns"])

    @property
    def _material(self) -> float:
        return self._options.material_ratio

    def _described(self, facts: JobFacts) -> list[tuple[Finding, float]]:
        state = self.evidence.state
        stretch = self._past.copy()
        open_now = np.flatnonzero(state["slow"])
        _add(stretch, open_now, self._run[open_now])
        classes = np.flatnonzero(stretch["steps"] > 0)
        if not len(classes):
            return []
        # Only imported where there is something to tell: starting is most of a small answer.
        from paceline_service.analysis.network.findings import Slow, describe

        slow = Slow(
            classes=classes, stretch=stretch[classes], open=state["slow"][classes],
            table=self.table, evidence=self.evidence, judged_steps=self.seen_steps,
        )  # fmt: skip
        return describe(slow, facts)

    def _grow(self) -> None:
        more = len(self.table) - len(self._run)
        if more:
            self.evidence.grow(len(self.table))
            self._run = np.concatenate([self._run, np.zeros(more, dtype=RUN)])
            self._past = np.concatenate([self._past, np.zeros(more, dtype=RUN)])
            self.exposed_ns = np.append(self.exposed_ns, np.zeros(more))
            self.took_ns = np.append(self.took_ns, np.zeros(more))

    def _compare(
        self, step: JudgedStep, transfers: Transfers, classes: Int64Array, used: NDArray[np.intp]
    ) -> None:
        """Compare each class with its past and with its siblings, and keep what it costs."""
        log_ns = self._comparable_log_ns(transfers, classes)
        seen, of = np.unique(classes[used], return_inverse=True)
        count = np.bincount(of)
        value = np.bincount(of, weights=log_ns[used]) / count
        pair = self.table.source[seen] >= 0
        if pair.any():  # a message queues behind others of its sender; the fastest did not
            fastest = np.full(len(seen), np.inf)
            np.minimum.at(fastest, of, log_ns[used])
            value = np.where(pair, fastest, value)
        self.series.follow(seen, value)
        sets = self._sibling_sets()[seen]
        present = np.bincount(sets[sets >= 0], minlength=1)
        sets = np.where((sets >= 0) & (present[sets] >= LEAST_SIBLINGS), sets, -1)
        siblings, spread = median_of_sets(value, sets)
        apart = value - siblings - np.maximum(LEAST_SIBLING_SHIFT, SIBLING_SPREADS * spread)
        on_device = np.bincount(of, weights=transfers.on_device[used]) == count
        floor = np.where(on_device, DEVICE_FLOOR_NS, HOST_FLOOR_NS)
        took_ns = np.exp(value)
        self.took_ns[seen] += took_ns
        least = least_shift(took_ns, floor, self.table.binned[seen], BIN_LOG_WIDTH)
        self.evidence.update(seen, value, apart, least)
        state = self.evidence.state
        state["last_seen"][seen] = step.row.step
        state["polled"][seen] |= np.bincount(of, weights=transfers.polled[used]) > 0
        suspect = state["evidence"][seen]
        hot = (suspect.max(axis=1) >= 1) | state["slow"][seen]
        self._run[seen[~hot]] = 0
        if hot.any():
            beside = (
                np.where(
                    state["slow"][seen],
                    state["by_sibling"][seen],
                    suspect.argmax(axis=1) == SIBLINGS,
                )
                | ~state["learned"][seen]
            )
            expected = np.where(beside, siblings, state["centre"][seen])
            expected = np.where(np.isnan(expected), value, expected)
            self._charge(step, transfers, classes, seen[hot], log_ns, value[hot], expected[hot])
            self._remember(seen[hot], siblings[hot])
            self._judge(seen[hot], value[hot], expected[hot])

    def _comparable_log_ns(self, transfers: Transfers, classes: Int64Array) -> FloatArray:
        """Return (T,) log transfers, those of binned sizes as if in the middle of their bin."""
        log_ns = np.log(transfers.transfer_ns.astype(np.float64))
        code = self.table.payload_bytes[classes]
        binned = (classes >= 0) & (code < 0)
        if binned.any():
            middle = (0.5 - 1 - code[binned]) / BINS_PER_OCTAVE * np.log(2.0)
            log_ns[binned] += middle - np.log(transfers.payload_bytes[binned])
        return log_ns

    def _charge(
        self, step: JudgedStep, transfers: Transfers, classes: Int64Array,
        hot: NDArray[np.intp], log_ns: FloatArray, value: FloatArray, expected: FloatArray,
    ) -> None:  # fmt: skip
        """Add up what the suspected classes ``hot`` take beyond what is expected of them.

        Also where a release is not known exactly: no transfer is charged with more excess than
        the known ones of its class have, and nobody with more than he stood still.
        """
        place = np.full(len(self.table) + 1, -1, dtype=np.int64)
        place[hot] = np.arange(len(hot))
        at = place[classes]  # the last entry is for those that are not watched
        charged = np.flatnonzero(at >= 0)
        longest = np.maximum(value - expected, 0.0)[at[charged]]
        if len(charged):
            pair = self.table.source[classes[charged]] >= 0
            longer = np.maximum(log_ns[charged] - expected[at[charged]], 0.0)
            known = transfers.exact[charged] & ~pair
            longer = np.where(known, longer, np.minimum(longer, longest))
            excess_ns = np.zeros(len(transfers))
            excess_ns[charged] = -np.expm1(-longer) * transfers.transfer_ns[charged]
            rows = np.flatnonzero(excess_ns[transfers.of_row] > 0)
            of_row = transfers.of_row[rows]
            exposed = np.minimum(transfers.exposed_ns[rows], excess_ns[of_row])
            cost = np.bincount(at[of_row], weights=exposed, minlength=len(hot))
            self._run["gpu_ns"][hot] += cost
        run = self._run
        begins = hot[run["steps"][hot] == 0]
        run["first"][begins] = step.row.step
        run["steps"][hot] += 1
        run["last"][hot] = step.row.step
        run["duration_ns"][hot] += step.row.duration_ns
        run["value"][hot] += value
        run["expected"][hot] += expected
        run["peak"][hot] = np.maximum(run["peak"][hot], self.evidence.total(hot))

    def _remember(self, hot: NDArray[np.intp], siblings: FloatArray) -> None:
        """Keep what the siblings of suspected classes took, as far as they have some."""
        known = ~np.isnan(siblings)
        self._run["beside"][hot] += np.where(known, siblings, 0.0)
        self._run["beside_steps"][hot] += known

    def _judge(self, hot: NDArray[np.intp], value: FloatArray, expected: FloatArray) -> None:
        """Name the classes whose evidence suffices; close those that have recovered."""
        state, run = self.evidence.state, self._run
        was_slow = state["slow"][hot]
        step_s = median_of(self._durations_ns) / 1e9
        gamma = steps_between_false_alarms(
            self._options.false_namings_per_month, step_s, channels=SHARE_OF_NAMINGS
        )
        named = ~was_slow & (self.evidence.total(hot) >= self.evidence.watched() * gamma)
        if named.any():
            self.evidence.open(hot[named])
        if was_slow.any():
            followed = hot[was_slow]
            steps = np.maximum(run["steps"][followed], 1)
            half = (run["value"][followed] - run["expected"][followed]) / steps / 2
            ended = self.evidence.follow(followed, (value - expected)[was_slow] > half)
            if len(ended):
                _add(self._past, ended, run[ended])
                run[ended] = 0

    def _sibling_sets(self) -> Int64Array:
        """Return the set of siblings of each class, (C,), -1 where it has too few.

        Siblings do the same: operation, size, members, nodes that they span. Within a node
        the ways between GPUs differ by design, so only classes that leave one are compared.
        """
        state = (len(self.table), len(self._nodes))
        if state != self._sets_of:
            before = self._sets_of[1]
            self._sets_of = state
            if len(self._nodes) != before:
                self._node = node_numbers(self._nodes, self._world_size)
                self._group_spans = []
            spans = self._spans()
            table = self.table
            key = mix(table.op, table.payload_bytes, table.members, spans)
            _, sets, count = np.unique(key, return_inverse=True, return_counts=True)
            usable = (spans > 1) & ~table.binned & (count[sets] >= LEAST_SIBLINGS)
            self._sets = np.where(usable, sets, -1)
        return self._sets

    def _spans(self) -> Int64Array:
        """Return how many nodes each class spans, (C,), 0 where one of them is unknown."""
        table, node = self.table, self._node
        new = self._groups[len(self._group_spans) :]
        self._group_spans += [_distinct(node[list(group.ranks)]) for group in new]
        of_group = np.array(self._group_spans, dtype=np.int64)
        ends = np.stack([node[table.source], node[table.destination]])
        of_pair = np.where((ends < 0).any(axis=0), 0, 1 + (ends[0] != ends[1]))
        return np.where(table.source >= 0, of_pair, of_group[table.group])


def node_numbers(nodes: Mapping[int, str], world_size: int) -> Int64Array:
    """Return a number for each rank's node, in the order of their names, (R,); -1 unknown."""
    number = {name: index for index, name in enumerate(sorted(set(nodes.values())))}
    node = np.full(world_size, -1, dtype=np.int64)
    node[list(nodes)] = [number[name] for name in nodes.values()]
    return node


def _distinct(nodes: Int64Array) -> int:
    return 0 if not len(nodes) or nodes.min() < 0 else len(distinct(nodes))


def _add(total: NDArray[np.void], classes: NDArray[np.intp], run: NDArray[np.void]) -> None:
    """Add stretches to the totals of their classes."""
    before = total["steps"][classes] > 0
    first = np.where(before, np.minimum(total["first"][classes], run["first"]), run["first"])
    for name in ("steps", "gpu_ns", "duration_ns", "value", "expected", "beside", "beside_steps"):
        total[name][classes] += run[name]
    total["first"][classes] = first
    for name in ("last", "peak"):
        total[name][classes] = np.maximum(total[name][classes], run[name])
