"""What each section does: ``python -m tools.gpu_check.sections NAME ANSWER LIMIT_S``."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from paceline.plugin import compile as compiling
from paceline.plugin import library_path
from paceline.ring.layout import Record
from paceline.vocabulary import Flag, Op, RecordKind
from tools.gpu_check.figures import (
    compare,
    drift_ppm,
    find_late,
    offset,
    paired_ratio,
    smallest_step_ns,
    tick_ns,
)
from tools.gpu_check.plan import FAILED, OK, SKIPPED, Section
from tools.gpu_check.ranks import ON_GPU, PRODUCER, Finished, RanksError, started

MS = 1_000_000
DELAY_MS = 120
LEAST_MS = 80
HANG_S = 8.0
SECTIONS = (
    Section(name="timer", limit_s=60, proves="tick of the global timer, its place on our clock"),
    Section(name="two ranks", limit_s=75, proves="real NCCL fills the ring; a late rank is found"),
    Section(name="same collectives", limit_s=75, proves="plugin = CUDA events = torch's own"),
    Section(name="hang", limit_s=75, proves="what is pending is seen from outside"),
    Section(name="operations", limit_s=75, proves="every operation is named and sized"),
    Section(name="four ranks", limit_s=90, proves="a late rank among four"),
    Section(name="overhead", limit_s=240, proves="what plugin and events add"),
    Section(name="graphs", limit_s=75, proves="what is seen of replays"),
)
Found = tuple[str, str, dict[str, Any]]
"""Status, a sentence, figures."""


def timer(limit_s: float) -> Found:
    """Read the timer back to back, and between two readings of the host's clock."""
    import torch

    from tools.gpu_check.timer import Timer

    torch.zeros(1, device="cuda")
    gpu = Timer(torch)
    gpu.rounds(10)
    stamps = gpu.stamps(20_000)
    unix_ns = time.time_ns()
    early_at, early = time.monotonic_ns(), offset(gpu.rounds(2000))
    time.sleep(min(8.0, limit_s / 4))
    late_at, late = time.monotonic_ns(), offset(gpu.rounds(2000))
    figures = {
        "tick_ns": tick_ns(stamps),
        "smallest_step_ns": smallest_step_ns(stamps),
        "from_unix_time_ms": round((stamps[-1] - unix_ns) / MS, 3),
        "offset_unknown_ns": late.width_ns,
        "plugins_bias_ns": late.width_ns,
        "drift_ppm": round(drift_ppm(early, late, late_at - early_at), 3),
    }
    fine = 0 <= late.width_ns < MS and figures["tick_ns"] > 0
    return (
        OK if fine else FAILED,
        f"tick {figures['tick_ns']} ns, mapping known to {late.width_ns / 1e3:.1f} us, "
        f"drift {figures['drift_ppm']} ppm, {figures['from_unix_time_ms']} ms from Unix time",
        figures,
    )


def ranks(world: int) -> Callable[[float], Found]:
    """Return the section of ``world`` ranks, the last of which comes late now and then."""

    def run(limit_s: float) -> Found:
        slow = world - 1
        arguments = {"collectives": 24, "slow_rank": slow, "delay_ms": DELAY_MS}
        with started("delayed", world, plugin=plugin(), arguments=arguments) as job:
            job_done = job.wait(limit_s - 5)
        durations, arrivals = {}, {}
        for rank in range(world):
            records = job_done.by_payload(PRODUCER, rank)
            timed = {size: one for size, one in records.items() if is_timed(one)}
            durations[rank] = {size: one.end_ns - one.start_ns for size, one in timed.items()}
            arrivals[rank] = {size: one.start_ns for size, one in timed.items()}
        keys = job_done.answers[0]["late"]
        late = find_late(durations, keys, slow, LEAST_MS * MS)
        behind = [
            (arrivals[slow][key] - max(arrivals[rank][key] for rank in range(slow))) / MS
            for key in keys
            if all(key in mine for mine in arrivals.values())
        ]
        figures = {
            **facts(job_done),
            "late_found": late.found,
            "late_of": late.of,
            "others_waited_ms": round(late.waited_ns / MS, 2),
            "arrived_later_ms": round(median(behind), 2) if behind else None,
            "delay_ms": DELAY_MS,
            "timed_records": {rank: len(mine) for rank, mine in durations.items()},
            "results_right": all(answer["right"] for answer in job_done.answers.values()),
        }
        fine = late.of > 0 and late.found == late.of and figures["results_right"]
        return (
            OK if fine else FAILED,
            f"late rank found in {late.found} of {late.of}: the others waited "
            f"{figures['others_waited_ms']} ms longer, it arrived {figures['arrived_later_ms']} ms "
            f"later (delay {DELAY_MS} ms)",
            figures,
        )

    return run


def same_collectives(limit_s: float) -> Found:
    """Compare four measurements of the same collectives on rank 0."""
    env = {
        "PACELINE_DEVICE_TIMERS": "on", "TORCH_NCCL_ENABLE_TIMING": "1",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_FR_BUFFER_SIZE": "2000",
    }  # fmt: skip
    with started("exact", 2, plugin=plugin(), arguments={"collectives": 60}, env=env) as job:
        done = job.wait(limit_s - 5)
    answer = done.answers[0]
    events = {int(key): float(value) for key, value in answer["events_ns"].items()}
    recorder = {int(key): float(value) for key, value in answer["recorder_ns"].items()}
    ours = {}
    for producer in ("nccl", "hooks"):
        ours[producer] = {
            size: float(one.end_ns - one.start_ns)
            for size, one in done.by_payload(producer, 0).items()
            if is_timed(one) and size in events
        }
    outside = [
        max(before - one.start_ns, one.end_ns - after, 0)
        for size, (before, after) in (
            (int(key), value) for key, value in answer["bracket_ns"].items()
        )
        if (one := done.by_payload("nccl", 0).get(size)) and one.end_ns
    ]
    figures = {
        **facts(done),
        "plugin_to_events": compare(ours["nccl"], events),
        "timers_to_events": compare(ours["hooks"], events),
        "recorder_to_events": compare(recorder, events),
        "plugin_to_recorder": compare(ours["nccl"], recorder),
        "median_us": round(median(events.values()) / 1e3, 1),
        "mapped_outside_its_call_us": round(max(outside) / 1e3, 1) if outside else None,
    }
    plugin_seen = figures["plugin_to_events"]
    fine = plugin_seen.get("collectives", 0) >= 50 and 0.5 < plugin_seen["ratio"] < 1.05
    return (
        OK if fine else FAILED,
        f"of {figures['median_us']} us by the job's events: plugin "
        f"{plugin_seen.get('median_us')} us, timers "
        f"{figures['timers_to_events'].get('median_us')} us, torch "
        f"{figures['recorder_to_events'].get('median_us')} us (medians of differences)",
        figures,
    )


def hang(limit_s: float) -> Found:
    """Look at rank 0's ring while rank 1 has not come."""
    begun = time.monotonic()
    seen = None
    with started("hang", 2, plugin=plugin(), arguments={"hang_s": HANG_S}) as job:
        while time.monotonic() - begun < limit_s - 10 and seen is None:
            time.sleep(0.25)
            ring = job.rings().get((PRODUCER, 0))
            for entry in ring.inflight if ring else ():
                age_s = (time.monotonic_ns() - entry.start_ns) / 1e9
                if entry.payload_bytes > MS and age_s > 1.5:
                    seen = {
                        "op": Op(entry.op).name, "seq": entry.seq, "age_s": round(age_s, 2),
                        "began_on_gpu": bool(entry.flags & Flag.GPU_TIME),
                    }  # fmt: skip
            if any(process.poll() is not None for process in job.processes):
                break
        done = job.wait(limit_s - (time.monotonic() - begun) - 3)
    left = done.rings[PRODUCER, 0].inflight
    figures = {**facts(done), "seen": seen, "left_afterwards": len(left)}
    fine = seen is not None and seen["began_on_gpu"] and not left
    said = "nothing was seen pending" if seen is None else (
        f"{seen['op']} {seen['seq']} seen pending after {seen['age_s']} s, "
        f"{'begun' if seen['began_on_gpu'] else 'not begun'} on the GPU; gone afterwards"
    )  # fmt: skip
    return OK if fine else FAILED, said, figures


def operations(limit_s: float) -> Found:
    """Compare names and sizes of one operation of each kind with the records."""
    with started("operations", 2, plugin=plugin()) as job:
        done = job.wait(limit_s - 5)
    ring = done.rings.get((PRODUCER, 1))
    records = ring.records if ring else []
    seen = [
        (Op(one.code).name, one.payload_bytes)
        for one in records
        if one.kind == RecordKind.COLLECTIVE
    ]
    expected = [(name, size) for name, size in done.answers[1]["expected"]]
    missing = [f"{name} {size}" for name, size in expected if (name, size) not in seen]
    figures = {**facts(done), "seen": seen[-40:], "missing": missing}
    said = "all are there" if not missing else f"missing: {', '.join(missing)}"
    return FAILED if missing else OK, said, figures


def graphs(limit_s: float) -> Found:
    """Count the records of a captured collective."""
    with started("graph", 2, plugin=plugin(), arguments={"replays": 5}) as job:
        done = job.wait(limit_s - 5)
    answer = done.answers[0]
    ring = done.rings.get((PRODUCER, 0))
    mine = [one for one in (ring.records if ring else ()) if one.payload_bytes == answer["payload"]]
    timed = sum(is_timed(one) for one in mine)
    figures = {**facts(done), "records": len(mine), "timed": timed, "replays": answer["replays"]}
    # One call before the capture, and one for each replay.
    fine = len(mine) >= answer["replays"]
    return (
        OK if fine else FAILED,
        f"{len(mine)} records ({timed} with times) of 1 call and {answer['replays']} replays",
        figures,
    )


CONDITIONS: dict[str, tuple[bool, bool, dict[str, str]]] = {
    "bare": (False, False, {}),
    "hooks": (False, True, {"PACELINE_DEVICE_TIMERS": "off"}),
    "timers": (False, True, {"PACELINE_DEVICE_TIMERS": "on"}),
    "plugin": (True, True, {"PACELINE_DEVICE_TIMERS": "off"}),
    "recorder": (False, False, {"TORCH_NCCL_ENABLE_TIMING": "1",
                                "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}),
}  # fmt: skip
"""Plugin, agent, environment."""


def overhead(limit_s: float) -> Found:
    """Start jobs of each condition in turn, as often as there is time, and compare in pairs."""
    until = time.monotonic() + limit_s - 15
    kept: list[float] = []
    ignored: list[float] = []
    medians: dict[str, dict[str, list[float]]] = {
        name: {"host_us": [], "wall_us": []} for name in CONDITIONS
    }
    longest_s, rounds = 0.0, 0
    while rounds < 6:
        order = list(CONDITIONS) if rounds % 2 == 0 else list(reversed(CONDITIONS))
        round_begun = time.monotonic()
        if round_begun + longest_s > until:
            break
        found = {}
        for name in order:
            with_plugin, agent, env = CONDITIONS[name]
            with started(
                "cost", 2, plugin=plugin() if with_plugin else None,
                arguments={"blocks": 16, "calls": 20, "agent": agent, "toggle": with_plugin},
                env=env,
            ) as job:  # fmt: skip
                found[name] = job.wait(max(until - time.monotonic(), 5)).answers[0]
        for name, answer in found.items():
            for what, values in medians[name].items():
                values.append(median(answer[what]))
        kept += found["plugin"]["wall_us"]
        ignored += found["plugin"]["ignored_wall_us"]
        rounds += 1
        longest_s = max(longest_s, time.monotonic() - round_begun)
    if not rounds:
        return SKIPPED, "no time for one round", {}
    figures: dict[str, Any] = {
        "bare_host_us": round(median(medians["bare"]["host_us"]), 2),
        "bare_wall_us": round(median(medians["bare"]["wall_us"]), 2),
    }
    if kept and len(kept) == len(ignored):
        figures["plugin_kept_to_ignored_wall_ratio"] = paired_ratio(kept, ignored)
    for name in CONDITIONS:
        if name == "bare":
            continue
        for what in ("host_us", "wall_us"):
            ratio = paired_ratio(medians[name][what], medians["bare"][what])
            figures[f"{name}_{what[:4]}_ratio"] = ratio
        figures[f"{name}_host_added_us"] = round(
            median(medians[name]["host_us"]) - figures["bare_host_us"], 2
        )
    said = ", ".join(
        f"{name} {figures[f'{name}_host_added_us']:+.1f} us a call, "
        f"x {figures[f'{name}_wall_ratio']['mean']:.3f}"
        for name in CONDITIONS
        if name != "bare"
    )
    return OK, f"{rounds} rounds: {said}", figures


def is_timed(record: Record) -> bool:
    """Whether a record has both its times from the device."""
    return record.end_ns > 0 and bool(record.flags & Flag.GPU_TIME or not ON_GPU)


def plugin() -> Path:
    """Return the compiled plugin; compiles it where nobody has.

    Raises:
        RanksError: no compiler, or it failed.
    """
    found = library_path()
    if found is not None:
        return found
    directory = Path(tempfile.gettempdir()) / f"gpu-check-plugin-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    target = directory / compiling.LIBRARY
    if compiling.is_built_from_these(target):
        return target
    compiler = compiling.compiler(os.environ)
    if compiler is None:
        raise RanksError("the plugin is not built and there is no C compiler: install gcc")
    if problem := compiling.compile_library(compiler, target):
        raise RanksError(f"the plugin does not compile: {problem}")
    return target


def facts(done: Finished) -> dict[str, Any]:
    """Return what NCCL and the ring say of the plugin."""
    ring = done.rings.get((PRODUCER, 0))
    loaded = [line.split("INFO")[-1].strip() for line in done.nccl_log.splitlines()
              if "Loaded Paceline" in line]  # fmt: skip
    return {
        "nccl_says": loaded[0] if loaded else "nothing of our plugin",
        "ring_info": ring.info if ring else {},
        "records": len(ring.records) if ring else 0,
        "records_lost": ring.lost if ring else 0,
    }


RUN: dict[str, Callable[[float], Found]] = {
    "timer": timer,
    "two ranks": ranks(2),
    "four ranks": ranks(4),
    "same collectives": same_collectives,
    "hang": hang,
    "operations": operations,
    "overhead": overhead,
    "graphs": graphs,
}


def main(name: str, answer: Path, limit_s: float) -> None:
    """Run a section and leave what it found at ``answer``."""
    try:
        status, said, figures = RUN[name](limit_s)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        status, said, figures = FAILED, text.splitlines()[0][:200], {"error": text[-3000:]}
    answer.write_text(json.dumps({"status": status, "said": said, "figures": figures}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
