"""What single lines of training logs say about time: the print statements of the frameworks.

Each pattern is of a statement as it stands in the sources of Megatron-LM (2019 to 2026), NeMo,
Megatron-Bridge and DeepSpeed (0.3 to 0.18); docs/formats/timing-logs.md lists them.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

from paceline.dataclass import dataclass
from paceline_service.importers.timing_logs.text import Line

MAX_MS = 1e10
_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_ITERATION = re.compile(r"\biteration\s+(\d{1,10})\s*/\s*(\d{1,10})\s*\|(.*)")
_PAIR = re.compile(rf"([A-Za-z][\w ()/.-]{{0,60}}?)\s*:\s*({_NUMBER})\s*(?=\||$)")
_TIMERS = re.compile(r"(?:\brank=(\d{1,7}) |\[Rank (\d{1,7})\] )?\btime \(ms\)\s*\|(.*)")
_SETTING = re.compile(r"(?:^|\s)([a-z][A-Za-z0-9_]{2,60}) \.{3,} (\S+)")
_WORLD = re.compile(
    r"using world size: (\d{1,7})(?:, data-parallel-size: (\d{1,7}))?"
    r"(?:,? (?:context-parallel-size: \d+,? )?)"
    r"(?:[^|]*?tensor-model-parallel size: (\d{1,5}))?"
    r"(?:[^|]*?pipeline-model-parallel size: (\d{1,5}))?"
)
_DIST_WORLD = re.compile(r"\bdist_world_size=(\d{1,7})\b")
_NEMO = re.compile(rf"global_step[:=]\s*({_NUMBER})\b.*?train_step_timing in s[:=]\s*({_NUMBER})")
_BRIDGE = re.compile(rf"Step Time : ({_NUMBER})s GPU utilization: ({_NUMBER})")
_DS_PIPE = re.compile(rf"\bsteps: (\d{{1,10}}) loss: \S+.*? iter time \(s\): ({_NUMBER})")
_DS_STEP = re.compile(r"\[Rank 0\] step=(\d{1,10}), skipped=(\d{1,10}), lr=")
_DS_RATE = re.compile(rf"global_step=(\d{{1,10}}), .*?CurrSamplesPerSec=({_NUMBER})")
_DETECTOR = re.compile(r"\bM[nx]Rtt/Rnk:")
_DETECTED = re.compile(rf"\b(M[nx][A-Z][A-Za-z]{{2,4}})/Rnk: ({_NUMBER})([A-Za-z%]*)/(\d{{1,7}})")
_ENDS = re.compile(r"\^\^\^\^ (Bottom|Top)\s+(\d+) Ranks with \w+\s+Etpt\(TF\):(.*)")
_END = re.compile(rf"({_NUMBER})/(\d{{1,7}}),")
_WHY = (
    ("evaluation", re.compile(r"validation loss at|\bevaluate\b|Evaluating")),
    ("checkpoint", re.compile(r"saving checkpoint|successfully saved checkpoint|save-checkpoint|"
                              r"\[Torch\] Sav(?:ing|ed) |Saving model checkpoint")),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An iteration, or the average over some, was reported."""

    iteration: int | None
    """None where only the order tells."""
    step_ms: float
    last_iteration: int = 0
    skipped: int = 0
    """Iterations whose gradients overflowed, so that the loss scale fell."""
    batch: float | None = None
    sequence: float | None = None
    tflops: float | None = None
    relative: bool = False
    """Whether ``step_ms`` is right but for a factor."""
    kind: str = "megatron"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A step was over at a time of day."""

    step: int
    skipped: int
    """Steps skipped so far."""
    at_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timers:
    """One line of timers of one rank, -1 where it is not told which."""

    rank: int
    ms: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """A line of Megatron's straggler detector: value, unit and rank of each figure."""

    figures: dict[str, tuple[float, str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughputs:
    """The ranks with the lowest or the highest throughput, from the detector."""

    lowest: bool
    by_rank: dict[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """An argument of the job."""

    values: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something besides training: ``evaluation`` or ``checkpoint``."""

    what: str


Statement = Step | Passed | Timers | Detector | Throughputs | Setting | Happened


def statement_of(line: Line) -> Statement | None:
    """Return what a line says by itself; None for one that says nothing, or is part of a block."""
    text = line.text
    if "iteration" in text and (found := _ITERATION.search(text)):
        step = _iteration(found)
        if step is not None:
            return step
    if "time (ms)" in text and (found := _TIMERS.search(text)):
        told = found[1] or found[2]
        ms = _pairs(found[3])
        return Timers(rank=int(told) if told else line.rank, ms=ms) if ms else None
    if "Rtt/Rnk" in text and _DETECTOR.search(text):
        figures = {m[1]: (float(m[2]), m[3], int(m[4])) for m in _DETECTED.finditer(text)}
        return Detector(figures=figures)
    if "^^^^" in text and (found := _ENDS.search(text)):
        by_rank = {int(m[2]): float(m[1]) for m in _END.finditer(found[3])}
        return Throughputs(lowest=found[1] == "Bottom", by_rank=by_rank) if by_rank else None
    if "skipped=" in text and (found := _DS_STEP.search(text)):
        at_ms = _time_of_day_ms(line.stamp)
        if at_ms is not None:
            return Passed(step=int(found[1]), skipped=int(found[2]), at_ms=at_ms)
    return _elsewhere(text)


def _time_of_day_ms(stamp: str) -> float | None:
    """Return a timestamp of a logger as ms since an epoch."""
    text = stamp.strip().strip("[]").replace(",", ".").replace("Z", "+00:00")
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        return None
    # The zone does not matter: only differences within one log are used.
    return told.replace(tzinfo=timezone.utc).timestamp() * 1e3


def _elsewhere(text: str) -> Statement | None:
    if "train_step_timing" in text and (found := _NEMO.search(text)):
        return _timed(int(float(found[1])), float(found[2]) * 1e3, "nemo")
    if "Step Time" in text and (found := _BRIDGE.search(text)):
        return _timed(None, float(found[1]) * 1e3, "bridge")
    if "iter time (s)" in text and (found := _DS_PIPE.search(text)):
        return _timed(int(found[1]), float(found[2]) * 1e3, "deepspeed")
    if "CurrSamplesPerSec" in text and (found := _DS_RATE.search(text)) and float(found[2]) > 0:
        return Step(iteration=int(found[1]), step_ms=1e3 / float(found[2]), relative=True,
                    kind="rate")  # fmt: skip
    if "...." in text and (found := _SETTING.search(text)):
        return Setting(values={found[1]: found[2]})
    if "world" in text:
        if found := _DIST_WORLD.search(text):
            return Setting(values={"world_size": found[1]})
        if found := _WORLD.search(text):
            names = ("world_size", "data_parallel_size", "tensor_model_parallel_size",
                     "pipeline_model_parallel_size")  # fmt: skip
            pairs = zip(names, found.groups(), strict=True)
            return Setting(values={name: value for name, value in pairs if value})
    for what, pattern in _WHY:
        if pattern.search(text):
            return Happened(what=what)
    return None


def _iteration(found: re.Match[str]) -> Step | None:
    pairs = _pairs(found[3], most=float("inf"))
    step_ms = pairs.get("elapsed time per iteration (ms)")
    if step_ms is None and (seconds := pairs.get("elapsed time per iteration (s)")) is not None:
        step_ms = seconds * 1e3
    if step_ms is None or not 0 < step_ms <= MAX_MS:
        return None
    return Step(
        iteration=int(found[1]),
        step_ms=step_ms,
        last_iteration=int(found[2]),
        skipped=int(pairs.get("number of skipped iterations", 0)),
        batch=pairs.get("global batch size"),
        sequence=pairs.get("actual seqlen"),
        tflops=pairs.get("throughput per GPU (TFLOP/s/GPU)", pairs.get("TFLOPs")),
    )


def _timed(iteration: int | None, step_ms: float, kind: str) -> Step | None:
    if not 0 < step_ms <= MAX_MS:
        return None
    return Step(iteration=iteration, step_ms=step_ms, kind=kind)


def _pairs(text: str, most: float = MAX_MS) -> dict[str, float]:
    found = ((m[1].strip(), float(m[2])) for m in _PAIR.finditer(text))
    return {name: value for name, value in found if 0 <= value <= most}
