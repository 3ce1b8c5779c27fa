"""What the devices did while they were traced: computed, communicated, moved memory, idled.

From ``data.trace`` of a report on profiler traces (docs/math/trace-facts.md): unions over the
streams of a device, so that what runs side by side counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.dataclass import dataclass
from paceline_service.export.units import format_ratio, format_times
from paceline_service.export.words import Json, ranks_in_words

_TELLING = 0.05
"""Ranks that differ by less are not told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """One device, or several together, ns; the parts add up to ``window_ns``.

    ``overlap_ns`` is computation and communication at the same time; ``memory_ns`` copies alone.
    """

    rank: int
    window_ns: int
    compute_ns: int
    overlap_ns: int
    exposed_ns: int
    memory_ns: int
    idle_ns: int
    on_gpu: bool = True
    """False where the trace shows no GPU: then operators of the host are its computation."""

    @property
    def communication_ns(self) -> int:
        """Time in communication, whatever ran beside it."""
        return self.overlap_ns + self.exposed_ns

    @property
    def exposed_ratio(self) -> float:
        """Share of the time in communication alone."""
        return self.exposed_ns / self.window_ns if self.window_ns > 0 else 0.0

    @property
    def idle_ratio(self) -> float:
        """Share of the time in which nothing ran."""
        return self.idle_ns / self.window_ns if self.window_ns > 0 else 0.0

    @property
    def overlap_ratio(self) -> float | None:
        """Share of the communication that ran beside computation, None where there was none."""
        whole_ns = self.communication_ns
        return self.overlap_ns / whole_ns if whole_ns > 0 else None

    @property
    def gamma(self) -> float | None:
        """Communication over computation, None where there was none of it."""
        whole_ns = self.compute_ns + self.overlap_ns
        return self.communication_ns / whole_ns if whole_ns > 0 else None


def device_times(report: Json) -> list[DeviceTime]:
    """Return what is known of each rank's device, none where no trace tells."""
    trace: Json = (report.get("data") or {}).get("trace") or {}
    return [_device_time(row) for row in trace.get("ranks") or () if row.get("window_ns")]


def device_word(times: Sequence[DeviceTime]) -> str:
    """Return what the devices are called."""
    return "GPUs" if any(one.on_gpu for one in times) else "CPUs"


def together(times: Sequence[DeviceTime]) -> DeviceTime:
    """Return the sums of several devices."""
    names = ("window_ns", "compute_ns", "overlap_ns", "exposed_ns", "memory_ns", "idle_ns")
    return DeviceTime(rank=-1, **{n: sum(getattr(one, n) for one in times) for n in names})


def device_sentences(times: Sequence[DeviceTime]) -> list[str]:
    """Return computation, exposed communication, overlap, gamma and idle time in words."""
    if not times:
        return []
    whole = together(times)
    if whole.compute_ns + whole.communication_ns + whole.memory_ns <= 0:
        return []
    computing = (whole.compute_ns + whole.overlap_ns) / whole.window_ns
    exposed, idle = format_ratio(whole.exposed_ratio), format_ratio(whole.idle_ratio)
    on_gpu = any(one.on_gpu for one in times)
    sentences = [
        f"The GPUs compute {format_ratio(computing)} of the time, stand in exposed communication "
        f"{exposed}, and are idle {idle}."
        if on_gpu
        else f"The CPUs compute in operators of torch {format_ratio(computing)} of the time and "
        f"stand in exposed communication {exposed}; {idle} is in neither: Python, data, sleep."
    ]
    if whole.overlap_ratio is not None:
        text = f"Of their communication {format_ratio(whole.overlap_ratio)} overlaps computation"
        if whole.gamma is not None:
            text += (
                f"; it takes {format_times(whole.gamma)} the time of the computation, the waiting "
                "for others included"
            )
        sentences.append(text + ".")
    sentences += _extremes(times, lambda one: one.exposed_ratio, "exposed communication")
    sentences += _extremes(
        times, lambda one: one.idle_ratio, "idle time" if on_gpu else "time in neither"
    )
    return sentences


def _device_time(row: Json) -> DeviceTime:
    compute_ns, overlap_ns = int(row["compute_ns"]), int(row["overlap_ns"])
    exposed_ns, idle_ns = int(row["exposed_communication_ns"]), int(row["idle_ns"])
    window_ns = int(row["window_ns"])
    return DeviceTime(
        rank=int(row["rank"]),
        window_ns=window_ns,
        compute_ns=compute_ns - overlap_ns,
        overlap_ns=overlap_ns,
        exposed_ns=exposed_ns,
        memory_ns=max(window_ns - idle_ns - compute_ns - exposed_ns, 0),
        idle_ns=idle_ns,
        on_gpu=row.get("device") != "cpu",
    )


def _extremes(
    times: Sequence[DeviceTime], share: Callable[[DeviceTime], float], what: str
) -> list[str]:
    """Return who has least and most of something, where that differs."""
    if len(times) < 2:
        return []
    least, most = min(times, key=share), max(times, key=share)
    if share(most) - share(least) < _TELLING:
        return []
    return [
        f"Least {what}: {ranks_in_words([least.rank])} ({format_ratio(share(least))}), most: "
        f"{ranks_in_words([most.rank])} ({format_ratio(share(most))})."
    ]
