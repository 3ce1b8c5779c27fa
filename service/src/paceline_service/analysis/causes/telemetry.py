"""Telemetry of ranks as it comes in, in bounded memory (docs/math/causes.md).

Gauges are kept as they are, counters that grow with time as their rate, texts of throttling as
one share per reason. Damage (an XID, an ECC error, a lost GPU) is kept as events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from paceline import telemetry as names
from paceline.dataclass import dataclass
from paceline_service.analysis.causes.history import ThinningHistory
from paceline_service.analysis.records import BoolArray, FloatArray

MAX_VALUES = 8_000_000
"""Numbers that are kept over all ranks, 64 MB."""
LEAST_ROWS, MOST_ROWS = 64, 2048
"""Of one rank: a minute of samples as they came, and half an hour where memory allows."""
MOST_VALUE = 1e20
"""No counter of 64 bits is larger; what is cannot be summed."""
MAX_EVENTS = 16
"""Of one rank and name; the newest are kept. A GPU that fails logs the same again and again."""

REASONS = {
    "hw_thermal": ("HW thermal slowdown", names.THROTTLE_HW_THERMAL),
    "hw_brake": ("HW power brake", names.THROTTLE_HW_BRAKE),
    "hw_slowdown": ("HW slowdown", ""),
    "sw_thermal": ("SW thermal slowdown", names.THROTTLE_SW_THERMAL),
    "sw_power": ("SW power cap", names.THROTTLE_SW_POWER),
}
"""What holds clocks down: the words for it, and the counter of how long it did."""
_GAUGES = (
    names.SM_CLOCK, names.TEMPERATURE, names.MEM_TEMPERATURE, names.POWER, names.POWER_LIMIT,
    names.UTILIZATION, names.PCIE_GEN, names.PCIE_WIDTH, names.PCIE_GEN_MAX, names.PCIE_WIDTH_MAX,
    names.SM_CLOCK_MAX, names.CPU_STEAL, names.CPU_IOWAIT, names.CPU_USER, names.CPU_SYSTEM,
    names.CPU_CLOCK_MEAN, names.NVML_STUCK,
)  # fmt: skip
_RATES = {
    names.RANK_RUN_QUEUE: 1e-9, names.CGROUP_THROTTLED: 1e-9, names.STALL_CPU: 1e-6,
    names.STALL_MEMORY: 1e-6, names.STALL_IO: 1e-6, names.SWAP_IN: 1.0,
    names.CPU_CORE_THROTTLE: 1.0,
}  # fmt: skip
"""Counters, and what makes them shares of time (or pages and events) per second."""
_COLUMNS = (*_GAUGES, *_RATES, *REASONS)
COLUMN = {name: index for index, name in enumerate(_COLUMNS)}
_REASON_OF_COUNTER = {counter: key for key, (_, counter) in REASONS.items() if counter}
_DAMAGE = {
    names.ECC_UNCORRECTED, names.REMAPPED_UNCORRECTABLE, names.NVLINK_CRC, names.NVLINK_REPLAY,
    names.NVLINK_RECOVERY, names.PCIE_REPLAY,
}  # fmt: skip
"""Counters of errors: each increase is an event."""
_STATES = {names.GPU_LOST, names.REMAP_PENDING, names.REMAP_FAILURE}
"""0 or 1: an event while it is 1."""
NODE_COLUMNS = np.array(
    [
        COLUMN[name]
        for name in (*_GAUGES, *_RATES)
        if names.CATALOGUE[name].scope is names.Scope.NODE
    ]
)
_FACTS = [COLUMN[name] for name in _GAUGES if names.kind_of(name) is names.Kind.FACT]
_BITS = {2: "sw_power", 3: "hw_slowdown", 5: "sw_thermal", 6: "hw_thermal", 7: "hw_brake"}
"""Of NVML's mask, for logs that carry the number."""
_BUSY_RATIO = 0.3
"""Below it a GPU is idle, and an idle GPU lowers its clock without being throttled."""


class SampleLike(Protocol):
    """One sample: ``Sample`` of the wire, ``LogTelemetry`` of a log."""

    @property
    def time_ns(self) -> int:
        """On the clock of the rank."""

    @property
    def values(self) -> Mapping[str, Any]:
        """By name of the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a GPU or its link reported at one moment."""

    time_ns: int
    name: str
    value: float
    """An XID's number, by how much a counter grew, 1 for a state."""
    text: str = ""


class RankTelemetry:
    """What was sampled of one rank."""

    def __init__(self, capacity: int) -> None:
        self.history = ThinningHistory((len(_COLUMNS),), capacity)
        self.events: dict[str, list[Event]] = {}
        self._counters: dict[str, float] = {}
        self._states: set[str] = set()
        self._facts = np.full(len(_COLUMNS), np.nan)
        self._before_ns = 0

    @property
    def has_node(self) -> bool:
        """Whether the node's values come with this rank."""
        return bool(len(self.history)) and not np.isnan(
            self.history.values[-1, NODE_COLUMNS]
        ).all()  # fmt: skip

    def add(self, time_ns: int, values: Mapping[str, Any]) -> None:
        """Take one sample; what is no finite number is left out."""
        if not 0 <= time_ns < 1 << 62:
            return
        row = np.full(len(_COLUMNS), np.nan)
        row[_FACTS] = self._facts[_FACTS]
        elapsed_s = (time_ns - self._before_ns) / 1e9
        for name in self._counters:
            if name in _RATES and elapsed_s > 0:
                row[COLUMN[name]] = 0.0  # a counter that is not there is unchanged
        reasons = None
        for name, value in values.items():
            if name == names.THROTTLE:
                reasons = reasons_of(value)
                continue
            number = _number(value)
            if number is None:
                continue
            if name in _RATES:
                grown = self._grown(name, number)
                if grown is not None and elapsed_s > 0:
                    row[COLUMN[name]] = grown * _RATES[name] / elapsed_s
            elif name in COLUMN:
                row[COLUMN[name]] = number
            elif name in _REASON_OF_COUNTER:
                grown = self._grown(name, number)
                if grown is not None and elapsed_s > 0:
                    row[COLUMN[_REASON_OF_COUNTER[name]]] = min(grown / 1e9 / elapsed_s, 1.0)
            else:
                self._see_damage(time_ns, name, number, values)
        if reasons is not None:
            for key in REASONS:
                row[COLUMN[key]] = float(key in reasons)
        if _idle(row, reasons):
            row[COLUMN[names.SM_CLOCK]] = np.nan
        self._facts[_FACTS] = row[_FACTS]
        if time_ns > self._before_ns:
            self._before_ns = time_ns
        if not np.isnan(row).all():
            self.history.append(float(time_ns), row)

    def _grown(self, name: str, total: float) -> float | None:
        """Return by how much a counter grew since the last sample that held it."""
        before = self._counters.get(name)
        self._counters[name] = total
        if before is None:
            return None
        return total - before if total >= before else total  # it began again from 0

    def _see_damage(
        self, time_ns: int, name: str, number: float, values: Mapping[str, Any]
    ) -> None:
        if name in _DAMAGE:
            grown = self._grown(name, number)
            if grown:
                self._note(time_ns, name, grown)
        elif name in _STATES:
            if number and name not in self._states:
                self._states.add(name)
                self._note(time_ns, name, 1.0)
            elif not number:
                self._states.discard(name)
        elif name == names.XID:
            self._note(time_ns, name, number, str(values.get(names.XID_TEXT, "")))

    def _note(self, time_ns: int, name: str, value: float, text: str = "") -> None:
        kept = self.events.setdefault(name, [])
        kept.append(Event(time_ns=time_ns, name=name, value=value, text=text))
        del kept[:-MAX_EVENTS]

    @property
    def states(self) -> set[str]:
        """The states that were 1 in their newest sample."""
        return set(self._states)


class TelemetryStore:
    """The telemetry of all ranks of a job."""

    def __init__(self, world_size: int) -> None:
        self._capacity = int(
            np.clip(MAX_VALUES // (world_size * len(_COLUMNS)), LEAST_ROWS, MOST_ROWS)
        )
        self.ranks: dict[int, RankTelemetry] = {}

    def add(self, rank: int, samples: Iterable[SampleLike]) -> None:
        """Take samples of one rank, in the order in which they were sent."""
        kept = self.ranks.get(rank)
        for sample in samples:
            if kept is None:
                kept = self.ranks[rank] = RankTelemetry(self._capacity)
            kept.add(sample.time_ns, sample.values)

    def mean(self, rank: int, windows: FloatArray) -> tuple[FloatArray, int]:
        """Return the mean of each column within ``windows`` (W, 2) ns, and how many samples.

        Where no sample lies within, the one that is nearest in time and within a sampling
        interval of the slowest gauges is taken.
        """
        unknown = np.full(len(_COLUMNS), np.nan)
        kept = self.ranks.get(rank)
        if kept is None or not len(kept.history) or not len(windows):
            return unknown, 0
        times = kept.history.keys
        at = times[:, None]
        inside: BoolArray = np.any((at >= windows[:, 0]) & (at <= windows[:, 1]), axis=1)
        if not inside.any():
            away = np.maximum(windows[:, 0] - at, at - windows[:, 1])
            nearest = int(np.argmin(away.min(axis=1)))
            if away[nearest].min() > NEAR_NS:
                return unknown, 0
            inside[nearest] = True
        return kept.history.mean(inside), int(kept.history.counts[inside].sum())


NEAR_NS = 10_000_000_000
"""The slowest values are sampled every ten seconds."""


def reasons_of(value: object) -> set[str]:
    """Return the keys of ``REASONS`` that a value names: texts, one text, or NVML's mask."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {key for bit, key in _BITS.items() if value >> bit & 1} | (
            {"idle"} if value & 1 else set()
        )
    texts = value if isinstance(value, list) else re.split(r"[,|;]", str(value))
    found = set()
    for text in texts:
        word = re.sub(r"[^a-z]+", "", str(text).lower())
        if "idle" in word:
            found.add("idle")
        elif "thermal" in word:
            found.add("sw_thermal" if word.startswith("sw") else "hw_thermal")
        elif "brake" in word:
            found.add("hw_brake")
        elif "power" in word:
            found.add("sw_power")
        elif "hwslowdown" in word:
            found.add("hw_slowdown")
    return found


def _idle(row: FloatArray, reasons: set[str] | None) -> bool:
    busy = row[COLUMN[names.UTILIZATION]]
    return bool(busy < _BUSY_RATIO) or (reasons is not None and reasons == {"idle"})


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    number = float(value)
    return number if abs(number) <= MOST_VALUE else None
