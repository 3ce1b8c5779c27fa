"""The figures of one load, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from paceline_service.bench.load.bodies import Bodies
from paceline_service.bench.load.sender import Sent
from paceline_service.bench.load.watch import Seen, lags_s, names

Json = dict[str, Any]
RSS_POINTS = 60
LATEST_STEPS = 30


def figures(
    bodies: Bodies, sent: Sent, seen: Seen, report: Json, *, collector_cpu_s: float, judged_s: float
) -> Json:
    """Return everything that was measured, for JSON.

    Args:
        bodies: what was sent.
        sent: what the sender saw.
        seen: what the watch saw.
        report: of the collector, after the end.
        collector_cpu_s: from the first body to the last verdict; 0 where not known.
        judged_s: how long that took.
    """
    shape = bodies.shape
    lags = lags_s(shape, sent.began_s, seen.judged) if shape.rate else []
    fault = shape.fault
    cpu = collector_cpu_s or float("nan")
    out: Json = {
        "shape": {
            **asdict(shape), "records": shape.records, "frames": bodies.frames,
            "bundles": bodies.bundles,
            "steps_per_frame": shape.steps_per_frame, "connections": shape.nodes,
        },
        "wall_s": round(sent.wall_s, 3),
        "judged_s": round(judged_s, 3),
        "records_per_s": round(shape.records / judged_s),
        "frames_per_s": round(bodies.frames / sent.wall_s, 1),
        "collector_cpu_s": _rounded(cpu, 3),
        "records_per_collector_cpu_s": _rounded(shape.records / cpu, 0),
        "collector_cpu_us_per_frame": _rounded(cpu / bodies.frames * 1e6, 1),
        "collector_cpu_ratio": _rounded(cpu / judged_s, 3),
        "generator_cpu_s": round(sent.cpu_s, 3),
        "wire_bytes": bodies.total_bytes,
        "wire_bytes_per_record": round(bodies.total_bytes / shape.records, 2),
        "wire_bytes_per_collective": round(bodies.total_bytes / shape.collective_records, 2),
        "request_s": _quantiles(sent.latency_s),
        "lag_s": _quantiles(lags),
        "latest_steps": _latest(lags),
        "sender_late_s": round(sent.late_s, 3),
        "accepted": sent.accepted,
        "duplicate": sent.duplicate,
        "rejected": sent.rejected,
        "refused": {str(status): count for status, count in sorted(sent.refused.items())},
        "reconnects": sent.reconnects,
        "stride_asked": sent.stride,
        "rss_mib": _rss(seen, sent.began_s),
        "judged_steps": report["job"]["steps"],
        "complete": report["data"]["complete"],
        "dropped": report["data"]["dropped"],
        "verdict": report["verdict"],
    }  # fmt: skip
    if sent.storm_answered or sent.storm_s:
        out["storm"] = {"answered": sent.storm_answered, "seconds": round(sent.storm_s, 3)}
    if fault is not None:
        out["fault"] = {
            **asdict(fault),
            "named": names(report, fault.rank),
            "named_after_step": seen.named_after_step if seen.named_after_step >= 0 else None,
        }
    return out


def add_stored(found: Json, stored_bytes: int) -> None:
    """Add what the job takes on disk."""
    found["stored_bytes"] = stored_bytes
    shape = found["shape"]
    collectives = shape["ranks"] * shape["steps"] * shape["collectives"]
    found["stored_bytes_per_record"] = round(stored_bytes / shape["records"], 2)
    found["stored_bytes_per_collective"] = round(stored_bytes / collectives, 2)


def faults_of(found: Mapping[str, Any]) -> list[str]:
    """Return what did not go as it must: empty when all is well."""
    wrong = []
    shape = found["shape"]
    if found["accepted"] != shape["bundles"]:
        wrong.append(f"{found['accepted']:,} of {shape['bundles']:,} bundles were accepted")
    if found["judged_steps"] != shape["steps"]:
        wrong.append(f"{found['judged_steps']:,} of {shape['steps']:,} steps were judged")
    if not found["complete"]:
        wrong.append(f"the report is incomplete: {found['dropped']}")
    fault = found.get("fault")
    if fault is not None and not fault["named"]:
        wrong.append(f"rank {fault['rank']} was not named; the verdict is {found['verdict']}")
    return wrong


def lines_of(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the figures as rows of a table: what, and how much."""
    shape, request, lag, rss = (found[name] for name in ("shape", "request_s", "lag_s", "rss_mib"))
    rows = [
        ("ranks x collectives x steps",
         f"{shape['ranks']:,} x {shape['collectives']} x {shape['steps']:,}"),
        ("steps per second", f"{shape['rate']:g}" if shape["rate"] else "as acknowledged"),
        ("records per second, judged", f"{found['records_per_s']:,}"),
        ("records per CPU second of the collector",
         _shown(found["records_per_collector_cpu_s"], ",.0f")),
        ("CPU of the collector a frame", _shown(found["collector_cpu_us_per_frame"], ".0f", " us")),
        ("CPU of the collector", _shown(found["collector_cpu_s"], ".2f", " s")),
        ("CPU of the generator, not counted", f"{found['generator_cpu_s']:.2f} s"),
        ("request, p50 and p99", _pair(request)),
        ("release to verdict, p50 and p99", _pair(lag)),
        ("bytes a collective on the wire", f"{found['wire_bytes_per_collective']:.1f}"),
    ]  # fmt: skip
    if "stored_bytes_per_collective" in found:
        stored = f"{found['stored_bytes_per_collective']:.1f}"
        rows.append(("bytes a collective in the database", stored))
    if rss:
        shown = f"{rss[len(rss) // 2][1]:.0f}, {rss[-1][1]:.0f} MiB"
        rows.append(("memory of the collector, half-way and at the end", shown))
    refused = sum(found["refused"].values())
    rows.append(("asked to wait", f"{refused:,} of {refused + len_of(request):,} requests"))
    fault = found.get("fault")
    if fault is not None:
        after = fault["named_after_step"]
        begun = f"{after - fault['first_step']} steps" if after is not None else "at the end only"
        said = f"named after {begun}" if fault["named"] else "NOT named"
        rows.append((f"rank {fault['rank']}, slower by {fault['percent']:g} %", said))
    return rows


def len_of(quantiles: Mapping[str, Any]) -> int:
    """Return how many values the quantiles are of."""
    return int(quantiles.get("count", 0))


def _quantiles(values: list[float]) -> Json:
    if not values:
        return {}
    p50, p99, most = np.quantile(values, [0.5, 0.99, 1.0]).tolist()
    return {"p50": round(p50, 4), "p99": round(p99, 4), "max": round(most, 4), "count": len(values)}


def _latest(lags: list[float]) -> list[tuple[int, float]]:
    """Return the steps with the latest verdicts, and how late they were."""
    worst = sorted(range(len(lags)), key=lambda step: -lags[step])[:LATEST_STEPS]
    return [(step, round(lags[step], 2)) for step in sorted(worst)]


def _rss(seen: Seen, began_s: float) -> list[tuple[float, float]]:
    points = seen.rss_mib
    every = max(len(points) // RSS_POINTS, 1)
    return [(round(at - began_s, 1), round(mib, 1)) for at, mib in points[::-every][::-1]]


def _rounded(value: float, digits: int) -> float | None:
    return None if value != value else round(value, digits)


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return "unknown" if value is None else f"{value:{form}}{unit}"


def _pair(quantiles: Mapping[str, Any]) -> str:
    if not quantiles:
        return "not measured"
    return f"{quantiles['p50']:.3f}, {quantiles['p99']:.3f} s"
