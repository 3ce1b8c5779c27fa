"""Is it the GPU: held down, damaged, or badly connected (docs/math/causes.md)."""

from __future__ import annotations

import numpy as np

from paceline import telemetry as names
from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline_service.analysis.causes.telemetry import REASONS, Event
from paceline_service.analysis.causes.watch import Surroundings

REASON_EXCESS = 0.1
"""A hardware reason must be set in this share of samples more than on the peers: healthy GPUs
show none; a tenth of the time at half the clock already costs 5 %."""
SOFT_REASON_EXCESS = 0.2
"""Power caps are set now and then on healthy GPUs under load; and then the clock must be lower."""
CLOCK_RATIO = 0.97
"""A clock this much below the peers' supports a reason; healthy GPUs of one kind under one load
differ by one or two steps of 15 MHz."""
LOW_CLOCK_RATIO = 0.93
"""A clock this low is a finding also where no reason is given (locked clocks)."""
_HARD = ("hw_thermal", "hw_brake", "hw_slowdown", "sw_thermal")
SOFTWARE_XIDS = frozenset({13, 31, 32, 43, 45, 68, 69, 109})
"""XIDs that a program causes, or that report its end (NVIDIA's catalogue); all others are taken as
trouble of GPU, driver or link."""
_XIDS = {
    48: "double-bit ECC error", 62: "micro-controller halt", 63: "row remapping",
    64: "row remapping failed", 74: "NVLink error", 79: "GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors", 94: "contained ECC error",
    95: "uncontained ECC error", 119: "GSP timeout", 120: "GSP error", 140: "ECC error",
}  # fmt: skip
_WORDS = {
    names.ECC_UNCORRECTED: "uncorrected ECC errors",
    names.REMAPPED_UNCORRECTABLE: "rows remapped for uncorrectable errors",
    names.NVLINK_CRC: "NVLink CRC errors",
    names.NVLINK_REPLAY: "NVLink replays",
    names.NVLINK_RECOVERY: "NVLink recoveries",
    names.GPU_LOST: "it fell off the bus",
    names.REMAP_PENDING: "a row remap waits for a reset",
    names.REMAP_FAILURE: "a row remap failed",
}
MANY_LINK_ERRORS = 100
"""CRC errors and replays are corrected one by one; a few are normal."""
_MANY_ARE_NEEDED = (names.NVLINK_CRC, names.NVLINK_REPLAY)
NVML_STUCK_S = 5.0
"""The sidecar tells of a stuck call after this long (docs/telemetry.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """What was found: sentences with figures, and which remedy fits."""

    remedy: str
    sentences: list[str]


def gpu_fault(around: Surroundings) -> Hit | None:
    """Return what damage the GPU reported in the window, that its peers did not."""
    sentences, remedy = [], "reset"
    grown: dict[str, float] = {}
    for event in around.events:
        if event.name == names.XID:
            if int(event.value) not in SOFTWARE_XIDS:
                sentences.append(_xid(event))
                remedy = "drain_gpu" if int(event.value) in (79, 48, 95, 64) else remedy
        elif event.name in _WORDS:
            grown[event.name] = grown.get(event.name, 0.0) + event.value
    for name in (names.REMAP_PENDING, names.REMAP_FAILURE, names.GPU_LOST):
        if name in around.states:
            grown.setdefault(name, 1.0)
    for name, count in grown.items():
        if name in around.peer_events and name not in (names.GPU_LOST, names.REMAP_FAILURE):
            continue  # what peers have too makes nobody late
        if name in (names.GPU_LOST, names.REMAP_PENDING, names.REMAP_FAILURE):
            sentences.append(f"its GPU reports: {_WORDS[name]}")
            remedy = remedy if name == names.REMAP_PENDING else "drain_gpu"
        elif name not in _MANY_ARE_NEEDED or count >= MANY_LINK_ERRORS:
            sentences.append(f"its GPU counted {count:.0f} {_WORDS[name]} in these steps")
    stuck_s, _ = around.value(names.NVML_STUCK)
    if stuck_s >= NVML_STUCK_S:
        sentences.append(f"its driver did not answer for {stuck_s:.0f} s")
        remedy = "drain_gpu"
    return Hit(remedy=remedy, sentences=list(dict.fromkeys(sentences))) if sentences else None


def gpu_throttle(around: Surroundings, *, sure: bool) -> Hit | None:
    """Return what holds the GPU's clock down, if it is lower than its peers'.

    Args:
        around: the samples.
        sure: whether the time was lost where a slow GPU shows; if not, only plain signs count.
    """
    own_hz, peers_hz = around.value(names.SM_CLOCK)
    known = own_hz > 0 and peers_hz > 0
    ratio = own_hz / peers_hz if known else float("nan")
    lowered = ratio <= CLOCK_RATIO
    held: list[tuple[float, str]] = []
    for key in REASONS:
        own, peers = around.value(key)
        excess = own - (0.0 if np.isnan(peers) else peers)
        hard = key in _HARD
        enough = excess >= (REASON_EXCESS if hard else SOFT_REASON_EXCESS)
        if enough and (lowered or (hard and not known)):
            held.append((excess, key))
    if not held and not (ratio <= LOW_CLOCK_RATIO and sure):
        return None
    if not sure and not (known and ratio <= LOW_CLOCK_RATIO):
        return None
    held.sort(reverse=True)
    sentences = []
    if known:
        sentences.append(
            f"its SM clock was {own_hz / 1e9:.2f} GHz against {peers_hz / 1e9:.2f} GHz on its "
            f"{_peers(around)}"
        )
    sentences += [_reason(around, key) for _, key in held]
    if not held:
        sentences.append(
            "no throttle reason was set: its clock may be locked or its application clock lower"
        )
    sentences += _heat_and_power(around)
    keys = {key for _, key in held}
    if keys & {"hw_thermal", "sw_thermal"}:
        remedy = "cooling"
    elif keys & {"hw_brake", "sw_power"}:
        remedy = "power"
    else:
        remedy = "throttle" if held else "clocks"
    return Hit(remedy=remedy, sentences=sentences)


def pcie_fault(around: Surroundings) -> Hit | None:
    """Return how the GPU's PCIe link is worse than its peers' links."""
    sentences = []
    for name, most, words in (
        (names.PCIE_WIDTH, names.PCIE_WIDTH_MAX, "lanes wide"),
        (names.PCIE_GEN, names.PCIE_GEN_MAX, "generation"),
    ):
        own, peers = around.value(name)
        own_most, _ = around.value(most)
        if own <= peers - 0.9:
            could = f"; it could have {own_most:.0f}" if own_most > own + 0.9 else ""
            what = f"{own:.0f} {words} against {peers:.0f}" if words == "lanes wide" else (
                f"of generation {own:.0f} against {peers:.0f}"
            )  # fmt: skip
            sentences.append(f"its PCIe link was {what} on its {_peers(around)}{could}")
    return Hit(remedy="reseat", sentences=sentences) if sentences else None


def _peers(around: Surroundings) -> str:
    count = around.peer_count
    return f"{count:,} peers" if count != 1 else "one peer"


def _reason(around: Surroundings, key: str) -> str:
    own, peers = around.value(key)
    times = round(own * around.samples)
    share = "none" if np.isnan(peers) or peers <= 0 else f"{peers:.0%}"
    return (
        f"{REASONS[key][0]} was set in {times} of {counted(around.samples, 'sample')} ({share} of "
        "its peers')"
    )


def _heat_and_power(around: Surroundings) -> list[str]:
    sentences = []
    own_c, peers_c = around.value(names.TEMPERATURE)
    if own_c >= peers_c + 5:
        sentences.append(f"its GPU was {own_c:.0f} C hot, its peers {peers_c:.0f} C")
    own_w, peers_w = around.value(names.POWER)
    if own_w <= 0.9 * peers_w:
        sentences.append(f"it drew {own_w:.0f} W against {peers_w:.0f} W")
    own_w, peers_w = around.value(names.POWER_LIMIT)
    if own_w <= 0.98 * peers_w:
        sentences.append(f"its power limit is {own_w:.0f} W against {peers_w:.0f} W")
    return sentences


def _xid(event: Event) -> str:
    number = int(event.value)
    meaning = _XIDS.get(number, "")
    return f"its GPU reported XID {number}" + (f" ({meaning})" if meaning else "")
