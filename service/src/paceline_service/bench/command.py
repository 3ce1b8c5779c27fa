"""``paceline bench``: measure, print a table, write JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from paceline.errors import PacelineError
from paceline_service.bench import agent, ingest
from paceline_service.bench.machine import describe

DEFAULT_RESULTS = Path("bench/results")
PARTS = ("agent", "ingest")


def main(argv: Sequence[str]) -> int:
    """Run the parts that were asked for; returns 0 when all were measured."""
    options = _parser().parse_args(argv)
    console = Console(highlight=False)
    try:
        for part in PARTS if options.part == "all" else (options.part,):
            console.print(f"measuring {part} ...", style="dim")
            result = _measure(part, quick=options.quick)
            console.print(table_of(part, result))
            options.results.mkdir(parents=True, exist_ok=True)
            path = options.results / f"{part}{'-quick' if options.quick else ''}.json"
            path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
            console.print(f"written to {path}", style="dim", soft_wrap=True)
    except PacelineError as error:
        print(f"paceline bench: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def table_of(part: str, result: Mapping[str, Any]) -> Table:
    """Return the figures that matter as a table; the JSON has all of them."""
    machine = result["machine"]
    table = Table(
        title=f"{part}: {machine['cores']} cores of {machine['cpu']}, torch {machine['torch']}",
        title_justify="left",
    )
    table.add_column("what")
    if part == "agent":
        table.add_column("value", justify="right")
        table.add_column("95 % interval", justify="right")
        rows: Sequence[Sequence[str]] = _agent_rows(result)
    else:
        for shape in result["shapes"]:
            table.add_column(shape, justify="right")
        rows = _ingest_rows(result["shapes"].values())
    for row in rows:
        table.add_row(*row)
    return table


def _measure(part: str, *, quick: bool) -> dict[str, object]:
    header: dict[str, object] = {
        "schema": "paceline.bench/1", "name": part, "quick": quick, "machine": describe(),
    }  # fmt: skip
    if part == "ingest":
        return {**header, "shapes": ingest.measure(quick=quick)}
    return {
        **header,
        "step_time": agent.measure_step_time(quick=quick),
        "collective": agent.measure_collective(quick=quick),
        "memory": agent.measure_memory(quick=quick),
    }


def _agent_rows(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    step, call, memory = result["step_time"], result["collective"], result["memory"]
    return [
        ("step time without the agent", f"{step['step_ms']['off']:.1f} ms", ""),
        ("step time, with to without", *_ratio(step["on_to_off"])),
        ("the same of two without (noise)", *_ratio(step["null_to_off"])),
        ("of block medians, with to without", *_ratio(step["on_to_off_of_medians"])),
        ("of block medians, noise", *_ratio(step["null_to_off_of_medians"])),
        ("sidecar, share of one core", f"{step['sidecar_cpu_ratio']:.1%}", ""),
        ("all_reduce without the agent", f"{call['off_us']:.2f} us", ""),
        ("added to it by the agent", *_micros(call["added_us"])),
        ("the same of two without (noise)", *_micros(call["null_us"])),
        ("memory of a rank (RSS)", f"{memory['rank_rss_mib']:.0f} MiB", ""),
        ("added to it: RSS", f"{memory['added_mib']['rss']:.1f} MiB", ""),
        ("added to it: private", f"{memory['added_mib']['private']:.1f} MiB", ""),
        ("the ring's share of that, at most", f"{memory['ring_mib']:.1f} MiB", ""),
    ]


def _ingest_rows(shapes: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    rows = [
        ("frames/s, durable", "{frames_per_s:,.0f}"),
        ("records/s, durable", "{records_per_s:,.0f}"),
        ("records/s, analysed", "{records_per_s_analysed:,.0f}"),
        ("records per CPU second of the collector", "{records_per_collector_cpu_s:,.0f}"),
        ("CPU of the collector", "{collector_cpu_s:.2f} s"),
        ("CPU of the generator", "{generator_cpu_s:.2f} s"),
        ("bytes a record on the wire", "{wire_bytes_per_record:.1f}"),
        ("bytes a record in the store", "{stored_bytes_per_record:.1f}"),
        ("memory of the collector", "{collector_rss_mib:.0f} MiB"),
    ]
    figures = list(shapes)
    return [[what, *(value.format_map(one) for one in figures)] for what, value in rows]


def _ratio(interval: Mapping[str, float]) -> tuple[str, str]:
    return f"{interval['mean']:.4f}", f"{interval['low']:.4f} to {interval['high']:.4f}"


def _micros(interval: Mapping[str, float]) -> tuple[str, str]:
    return f"{interval['mean']:+.2f} us", f"{interval['low']:+.2f} to {interval['high']:+.2f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paceline bench", description="Measure what Paceline costs and what it carries."
    )
    parser.add_argument("part", nargs="?", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: wide intervals")
    parser.add_argument(
        "--results", type=Path, metavar="DIR", default=DEFAULT_RESULTS,
        help="where the JSON goes (default: bench/results)",
    )  # fmt: skip
    return parser
