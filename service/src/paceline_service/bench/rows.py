"""Results as rows of a table, each beside the limit that the project set itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline_service.bench.analysis import MEMORY_TIMES
from paceline_service.bench.detect.table import COLUMNS, rows_of_detect
from paceline_service.bench.offline.table import COLUMNS as OFFLINE_COLUMNS
from paceline_service.bench.offline.table import rows_of_offline

STEP_LIMITS = {
    ("ddp", "python"): 1.02, ("ddp", "native"): 1.01,
    ("fsdp2", "python"): 1.05, ("fsdp2", "native"): 1.015,
}  # fmt: skip
"""Upper ends of the intervals."""
COLLECTIVE_LIMITS_US = {"python": 10.0, "native": 0.6}
HOOKS = {"python": "Python hook", "native": "native hook", "null": "noise (no hook twice)"}
Rows = list[Sequence[str]]


def rows_of(part: str, result: Mapping[str, Any]) -> tuple[Sequence[str], Rows]:
    """Return the heads of the columns and the rows for one part of a result."""
    if part == "agent":
        return ("what", "value", "95 % interval", "limit"), _agent(result)
    if part == "peers":
        return ("tool", "step time to bare", "95 % interval", "noise of its run"), _peers(result)
    if part == "detect":
        return COLUMNS, rows_of_detect(result)
    if part == "offline":
        return OFFLINE_COLUMNS, rows_of_offline(result)
    if part == "ingest":
        return ("what", "value", "limit"), _ingest(result)
    if part == "restart":
        return ("what", "value", "limit"), _restart(result)
    shapes = result["shapes"]
    return ("what", *shapes), _analysis(shapes.values())


def _agent(result: Mapping[str, Any]) -> Rows:
    rows: Rows = []
    for model, one in result["steps"].items():
        rows.append((f"{model} step without the agent", f"{one['step_ms']['off']:.1f} ms", "", ""))
        for name, ratios in one["to_off"].items():
            limit = STEP_LIMITS.get((model, name))
            shown = f"<= {limit}" if limit else ""
            rows.append((f"  with {HOOKS[name]}", *_ratio(ratios["of_medians"]), shown))
    call = result["collective"]
    rows.append(("all_reduce on the fake backend", f"{call['off_us']:.2f} us", "", ""))
    for name, added in call["added_us"].items():
        limit = COLLECTIVE_LIMITS_US.get(name)
        rows.append((f"  added by {HOOKS[name]}", *_micros(added), f"<= {limit}" if limit else ""))
    rows.append(("  after its code left the caches", f"{call['off_cold_us']:.0f} us", "", ""))
    for name, added in call["added_cold_us"].items():
        rows.append((f"    added by {HOOKS[name]}", *_micros(added), ""))
    rows += _plugin(result["plugin"])
    sidecar, memory, imports = result["sidecar"], result["memory"], result["import"]
    return [
        *rows,
        (
            f"sidecar, {sidecar['records_per_s']:,.0f} records/s of {sidecar['ranks']} ranks",
            f"{sidecar['cpu_ratio']:.2%} of a core", "", "<= 2 %",
        ),
        (
            "  the same with the plugin's records to be joined",
            f"{result['sidecar_joining']['cpu_ratio']:.2%} of a core", "", "<= 2 %",
        ),
        ("sidecar, memory (RSS)", f"{sidecar['rss_mib']:.0f} MiB", "", "<= 80"),
        ("memory of a rank (RSS)", f"{memory['rank_rss_mib']:.0f} MiB", "", ""),
        ("  added: private, without the ring", *_mib(memory["added_mib"]), "<= 2"),
        ("  the same, tensors within malloc's heap", *_mib(memory["added_mib_default_heap"]), ""),
        ("  the ring", f"{memory['ring_mib']:.1f} MiB", "", "<= 4"),
        ("import paceline", f"{imports['median_ms']:.1f} ms", "", "<= 20"),
    ]  # fmt: skip


def _mib(added: Mapping[str, float]) -> tuple[str, str]:
    low, high = (added["private"] + sign * added["noise"] for sign in (-1, 1))
    return f"{added['private']:.1f} MiB", f"{low:.1f} to {high:.1f}"


def _plugin(plugin: Mapping[str, Any]) -> Rows:
    if "skipped" in plugin:
        return [("NCCL plugin", plugin["skipped"], "", "")]
    instructions = plugin.get("instructions_per_collective")
    shown = f"{instructions:,.0f}" if instructions else "valgrind is missing"
    return [
        ("NCCL plugin, a collective on the calling thread",
         f"{plugin['collective_ns']:.0f} ns", "", "<= 300"),
        ("  after its memory left the caches", f"{plugin['collective_cold_ns']:.0f} ns", "", ""),
        ("  instructions of it (callgrind)", shown, "", ""),
        ("  another callback", f"{plugin['callback_ns']:.0f} ns", "", ""),
    ]  # fmt: skip


def _peers(result: Mapping[str, Any]) -> Rows:
    rows: Rows = []
    for tool, one in result["tools"].items():
        if "skipped" in one:
            rows.append((tool, "skipped", one["skipped"], ""))
            continue
        noise = one["to_off"]["null"]["of_medians"]
        (name,) = set(one["to_off"]) - {"null"}
        shown = f"{tool} {one['version']}".strip()
        bounds = f"{noise['low']:.3f} to {noise['high']:.3f}"
        rows.append((shown, *_ratio(one["to_off"][name]["of_medians"]), bounds))
    return rows


def _ingest(result: Mapping[str, Any]) -> Rows:
    rows: Rows = []
    for name, one in result["loads"].items():
        shape, lag, fault = one["shape"], one["lag_s"], one["fault"]
        size = f"{shape['ranks']:,} ranks x {shape['collectives']} x {shape['steps']} steps"
        collectives = shape["ranks"] * shape["collectives"] * shape["steps"]
        per_two_s = 2 * collectives / max(one["collector_cpu_s"], 1e-9)
        rows += [
            (f"{name}: {size}", f"{one['records_per_s']:,} records/s", ""),
            ("  collectives per two CPU seconds of the collector", f"{per_two_s:,.0f}",
             ">= 1,000,000"),
            ("  CPU of the collector a frame", f"{one['collector_cpu_us_per_frame']:.0f} us", ""),
            ("  CPU of the generator", f"{one['generator_cpu_s']:.2f} s", "not counted"),
            ("  request, p99", f"{one['request_s']['p99']:.2f} s", ""),
            ("  bytes a collective on the wire", f"{one['wire_bytes_per_collective']:.1f}", ""),
            ("  in the database", f"{one['stored_bytes_per_collective']:.1f}", "<= 10"),
            ("  memory of the collector", f"{one['rss_mib'][-1][1]:.0f} MiB", "<= 4,096"),
            ("  straggler named after", f"{fault['named_after_step'] or 'the end'}",
             f"fault at {fault['first_step']}"),
        ]  # fmt: skip
        if lag:
            rows.append(("  release to verdict, p99", f"{lag['p99']:.1f} s", "<= 5 s"))
    query = result["query"]
    return [
        *rows,
        (
            f"last {query['steps']:,} steps of {query['ranks']:,} ranks",
            f"{query['seconds'] * 1e3:.0f} ms",
            "<= 300 ms",
        ),
        ("  CPU of the collector for it", f"{query['collector_cpu_s'] * 1e3:.0f} ms", ""),
        ("  of one rank of them", f"{query['one_rank_s'] * 1e3:.0f} ms", ""),
    ]


def _restart(result: Mapping[str, Any]) -> Rows:
    kill, stop = result["after_kill"], result["after_stop"]
    stored = f"{result['stored_s'] / 3600:.0f} h of {result['ranks']} ranks"
    whole_s = result["without_checkpoint_day_s"]
    return [
        (f"start after a kill with {stored}", f"{kill['ready_s']:.1f} s", "<= 10 s"),
        ("  CPU of the collector until its first report", f"{kill['cpu_s']:.1f} s", ""),
        ("  after an orderly stop", f"{stop['ready_s']:.1f} s", ""),
        ("  without a checkpoint (extrapolated)", f"{whole_s:,} s", ""),
        ("checkpoint", f"{result['checkpoint_kib']:,} KiB", ""),
        ("database", f"{result['database_mib']:,} MiB", ""),
    ]


def _analysis(shapes: Iterable[Mapping[str, Any]]) -> Rows:
    figures = list(shapes)
    after = [one["shape"]["steps"] for one in figures]
    rows: Rows = [
        ("ranks", *(f"{one['shape']['ranks']:,}" for one in figures)),
        ("records/s of one core (limit >= 1,000,000 at 10,000 ranks)",
         *(f"{one['records_per_s']:,}" for one in figures)),
        ("a step of all ranks", *(f"{one['step_s']:.2f} s" for one in figures)),
        ("the report", *(f"{one['report_s']:.2f} s" for one in figures)),
    ]  # fmt: skip
    for place, times in enumerate((1, MEMORY_TIMES)):
        steps = ", ".join(sorted({str(times * one) for one in after}))
        shown = (f"{one['rss_mib'][place]} MiB" for one in figures)
        rows.append((f"memory after {steps} steps", *shown))
    return rows


def _ratio(interval: Mapping[str, float]) -> tuple[str, str]:
    return f"{interval['mean']:.4f}", f"{interval['low']:.4f} to {interval['high']:.4f}"


def _micros(interval: Mapping[str, float]) -> tuple[str, str]:
    return f"{interval['mean']:+.2f} us", f"{interval['low']:+.2f} to {interval['high']:+.2f}"
