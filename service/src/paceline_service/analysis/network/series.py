"""Transfers by group and operation as figures that are watched over time (docs/metrics.md).

A few series of a job, the largest groups first: a histogram of all their transfers, and of each
the bandwidth of now beside what was fitted through its healthy past. It accuses nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.vocabulary import Op, op_name
from paceline_service.analysis.network.evidence import Evidence
from paceline_service.analysis.network.fit import TransferFit, busbw
from paceline_service.analysis.network.levels import fits_of, sizes_of
from paceline_service.analysis.network.table import BINS_PER_OCTAVE, ClassTable
from paceline_service.analysis.network.transfers import Transfers
from paceline_service.analysis.records import FloatArray, Group, Int64Array

MAX_SERIES = 64
"""Pairs of group and operation with figures of their own; the others are only watched."""
TRANSFER_BOUNDS_S = (
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
NEWEST_WEIGHT = 0.1
"""Of the newest step in what is typical now: about twenty steps count."""
REFIT_STEPS = 50
"""Fits change when a class learns its levels again, three times at most."""
STALE_STEPS = 256
_BOUNDS_NS = np.array(TRANSFER_BOUNDS_S) * 1e9
_BUCKETS = len(_BOUNDS_NS) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFigures:
    """One group and operation; of several groups of one name the slowest.

    Attributes:
        group, op: their names.
        buckets: transfers by ``TRANSFER_BOUNDS_S``, one more than bounds.
        sum_ns: of their durations.
        busbw_bytes_per_s: bus bandwidth of the largest transfers of now.
        alpha_ns, beta_ns_per_byte: what a healthy transfer costs; None where not told apart.
        residual_ratio: those of now over what is expected of them; None before that is known.
    """

    group: str
    op: str
    buckets: tuple[int, ...]
    sum_ns: float
    busbw_bytes_per_s: float | None
    alpha_ns: float | None
    beta_ns_per_byte: float | None
    residual_ratio: float | None


class TransferSeries:
    """Follows the transfers of the largest groups.

    Args:
        groups: the job's groups, by index; the caller adds to it.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups
        self._slots: dict[tuple[str, int], int] = {}
        self._slot_of = np.zeros(0, dtype=np.int64)
        """The series of each class, (C,); -1 for a class without one."""
        self._counts = np.zeros((0, _BUCKETS), dtype=np.int64)
        self._sum_ns = np.zeros(0)
        self._typical = np.zeros(0)
        """(C,) log transfer of now; NaN before the first."""
        self._steps = 0
        self._fitted_at = -REFIT_STEPS
        self._shown: dict[int, tuple[int, TransferFit | None]] = {}
        """By series: the class that stands for it, and the fit through its sizes."""

    def take(
        self,
        table: ClassTable,
        transfers: Transfers,
        classes: Int64Array,
        used: NDArray[np.intp],
    ) -> None:
        """Count the transfers ``used`` of a step, whose classes are known."""
        if len(self._slot_of) < len(table):
            self._grow(table)
        self._steps += 1
        slot = self._slot_of[classes[used]]
        mine = np.flatnonzero(slot >= 0)
        slot, took_ns = slot[mine], transfers.transfer_ns[used[mine]]
        size = len(self._slots)
        place = slot * _BUCKETS + np.searchsorted(_BOUNDS_NS, took_ns)
        self._counts += np.bincount(place, minlength=size * _BUCKETS).reshape(size, _BUCKETS)
        self._sum_ns += np.bincount(slot, weights=took_ns, minlength=size)

    def follow(self, seen: NDArray[np.intp], value: FloatArray) -> None:
        """Take the mean log transfers of the classes of a step."""
        before = self._typical[seen]
        first = np.isnan(before)
        self._typical[seen] = np.where(first, value, before + NEWEST_WEIGHT * (value - before))

    def figures(self, table: ClassTable, evidence: Evidence) -> tuple[TransferFigures, ...]:
        """Return what is known now."""
        if self._steps - self._fitted_at >= REFIT_STEPS:
            self._fitted_at = self._steps
            self._fit(table, evidence)
        counts = self._counts.tolist()
        return tuple(
            self._figure(name, op, counts[slot], slot, table, evidence)
            for (name, op), slot in self._slots.items()
        )

    def _grow(self, table: ClassTable) -> None:
        """Give series to the new classes: first to those with the most members and bytes."""
        begin = len(self._slot_of)
        group, op = table.group[begin:], table.op[begin:]
        weight = table.members[begin:] * sizes_of(table)[begin:]
        kinds, of = np.unique(np.stack([group, op]), axis=1, return_inverse=True)
        of = of.reshape(-1)
        largest = np.zeros(kinds.shape[1])
        np.maximum.at(largest, of, weight)
        slots = np.full(len(largest), -1, dtype=np.int64)
        for kind in np.argsort(-largest, kind="stable").tolist():
            key = (self._groups[int(kinds[0, kind])].name, int(kinds[1, kind]))
            if key in self._slots or len(self._slots) < MAX_SERIES:
                slots[kind] = self._slots.setdefault(key, len(self._slots))
        self._slot_of = np.concatenate([self._slot_of, slots[of]])
        more = len(self._slots) - len(self._counts)
        self._counts = np.concatenate([self._counts, np.zeros((more, _BUCKETS), dtype=np.int64)])
        self._sum_ns = np.append(self._sum_ns, np.zeros(more))
        self._typical = np.append(self._typical, np.full(len(of), np.nan))

    def _fit(self, table: ClassTable, evidence: Evidence) -> None:
        """Choose of each series the class that is farthest above its past, and fit its sizes."""
        state = evidence.state
        newest = int(state["last_seen"].max(initial=0))
        known = (self._slot_of >= 0) & ~np.isnan(self._typical)
        known &= state["last_seen"] >= newest - STALE_STEPS
        classes = np.flatnonzero(known)
        size = sizes_of(table)[classes]
        order = np.lexsort((size, table.series[classes]))
        classes = classes[order]
        largest = np.append(np.diff(table.series[classes]) != 0, True)[: len(classes)]
        classes = classes[largest]
        excess = np.where(
            state["learned"][classes], self._typical[classes] - state["centre"][classes], 0.0
        )
        shown = {
            int(self._slot_of[classes[at]]): int(classes[at])
            for at in np.lexsort((sizes_of(table)[classes], excess)).tolist()
        }
        fits = fits_of(table, evidence, np.array(list(shown.values()), dtype=np.intp))
        of_series = {(f.group, f.op, f.source, f.destination): f for f in fits}
        self._shown = {
            slot: (number, of_series.get(tuple(table.columns[number, :4].tolist())))
            for slot, number in shown.items()
        }

    def _figure(
        self, name: str, op: int, counts: list[int], slot: int, table: ClassTable,
        evidence: Evidence,
    ) -> TransferFigures:  # fmt: skip
        number, fit = self._shown.get(slot, (-1, None))
        alpha, beta = (fit.alpha_ns, fit.beta_ns_per_byte) if fit else (None, None)
        speed = expected_ns = None
        took_ns = 0.0
        if number >= 0:
            size = _size(table, number)
            took_ns = float(np.exp(self._typical[number]))
            speed = busbw(op, int(table.members[number]), size, took_ns)
            if evidence.state["learned"][number]:
                expected_ns = float(np.exp(evidence.state["centre"][number]))
                if alpha is not None and beta is not None:
                    expected_ns = alpha + beta * size
        return TransferFigures(
            group=name,
            op=op_name(Op(op)),
            buckets=tuple(counts),
            sum_ns=float(self._sum_ns[slot]),
            busbw_bytes_per_s=speed or None,
            alpha_ns=alpha,
            beta_ns_per_byte=beta,
            residual_ratio=took_ns / expected_ns if expected_ns else None,
        )


def _size(table: ClassTable, number: int) -> float:
    """Return the size of one class in bytes, as ``sizes_of`` does of all."""
    code = float(table.payload_bytes[number])
    return code if code >= 0 else float(np.exp2((0.5 - 1 - code) / BINS_PER_OCTAVE))
