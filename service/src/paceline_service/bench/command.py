"""``paceline bench``: measure, print a table, write JSON."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from paceline.errors import PacelineError
from paceline_service.bench import agent, analysis, ingest, peers, plugin, restart, sidecar, steps
from paceline_service.bench.detect.measure import measure as measure_detection
from paceline_service.bench.detect.suite import FAMILIES
from paceline_service.bench.launch import build_native_hook
from paceline_service.bench.load.command import main as load
from paceline_service.bench.machine import describe
from paceline_service.bench.offline.measure import measure as measure_offline
from paceline_service.bench.rows import rows_of

DEFAULT_RESULTS = Path("bench/results")
PARTS = ("agent", "peers", "ingest", "restart", "analysis", "detect")
ALONE = ("offline",)
"""Not part of ``all``: it installs other tools, and wants a machine of its own."""


def main(argv: Sequence[str]) -> int:
    """Run the parts that were asked for; returns 0 when all were measured."""
    # What was started is stopped when this is told to end.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if argv and argv[0] == "ingest" and any(word.startswith("--ranks") for word in argv):
        return load(argv[1:])
    options = _parser().parse_args(argv)
    console = Console(highlight=False)
    try:
        for part in PARTS if options.part == "all" else (options.part,):
            console.print(f"measuring {part} ...", style="dim")
            result = _measure(part, options, console)
            console.print(table_of(part, result))
            options.results.mkdir(parents=True, exist_ok=True)
            path = options.results / f"{_file_name(part, options)}.json"
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
    columns, rows = rows_of(part, result)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _file_name(part: str, options: argparse.Namespace) -> str:
    """Return a name that tells partial results from whole ones."""
    partial = [*options.only, "tuning"] if options.tuning else options.only
    words = [part, *(partial if part == "detect" else ()), *(["quick"] if options.quick else [])]
    return "-".join(words)


def _measure(part: str, options: argparse.Namespace, console: Console) -> dict[str, object]:
    quick = options.quick
    header: dict[str, object] = {
        "schema": "paceline.bench/1", "name": part, "quick": quick, "machine": describe(),
    }  # fmt: skip
    if part == "analysis":
        return {**header, "shapes": analysis.measure(quick=quick)}
    if part == "ingest":
        told = ingest.measure(quick=quick, say=lambda text: console.print(text, style="dim"))
        return {**header, **told}
    if part == "restart":
        return {**header, **restart.measure(quick=quick)}
    if part == "peers":
        return {**header, "tools": peers.measure(quick=quick)}
    if part == "offline":
        told = measure_offline(
            quick=quick, say=lambda text: console.print(text, style="dim", soft_wrap=True)
        )
        return {**header, **told}
    if part == "detect":
        found = measure_detection(
            quick=quick, families=options.only, seeds="tuning" if options.tuning else "scored",
            progress=lambda text: console.print(text, style="dim"),
        )  # fmt: skip
        return {**header, **found}
    native = build_native_hook()
    return {
        **header,
        "steps": steps.measure(quick=quick, native=native),
        "collective": agent.measure_collective(quick=quick, native=native),
        "plugin": plugin.measure(quick=quick),
        "sidecar": sidecar.measure(quick=quick),
        "sidecar_joining": sidecar.measure(quick=quick, device_times=True),
        "memory": agent.measure_memory(quick=quick),
        "import": agent.measure_import(quick=quick),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paceline bench", description="Measure what Paceline costs and what it carries."
    )
    parser.add_argument("part", nargs="?", choices=(*PARTS, *ALONE, "all"), default="all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: wide intervals")
    parser.add_argument(
        "--only", action="append", choices=FAMILIES, default=[], metavar="FAMILY",
        help=f"detect: only these scenarios ({', '.join(FAMILIES)})",
    )  # fmt: skip
    parser.add_argument(
        "--tuning", action="store_true",
        help="detect: seeds for improving the analysis, not those that are reported",
    )  # fmt: skip
    parser.add_argument(
        "--results", type=Path, metavar="DIR", default=DEFAULT_RESULTS,
        help="where the JSON goes (default: bench/results)",
    )  # fmt: skip
    return parser
