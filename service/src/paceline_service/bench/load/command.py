"""``paceline bench ingest --ranks N``: put the load of a whole job on a collector."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from paceline.errors import InputError, PacelineError
from paceline_service.bench.load.figures import Json, faults_of, lines_of
from paceline_service.bench.load.run import Target, run_load
from paceline_service.bench.load.sender import Troubles
from paceline_service.bench.load.shape import LoadShape, parse_fault
from paceline_service.bench.machine import describe
from paceline_service.client import find_token

SPARE_DESCRIPTORS = 256


def main(argv: Sequence[str]) -> int:
    """Run one load; 0: all went as it must, 1: not, 2: bad arguments."""
    options = _parser().parse_args(argv)
    console = Console(highlight=False, stderr=options.format == "json")
    try:
        shape = _shape(options)
        troubles = Troubles(
            duplicates=options.duplicates / 100,
            out_of_order=options.out_of_order / 100,
            storm=options.storm,
        )
        _allow_connections(shape.nodes + troubles.storm)
        found = run_load(
            shape, troubles, _target(options), lambda text: console.print(text, style="dim")
        )
    except PacelineError as error:
        print(f"paceline bench ingest: {error}", file=sys.stderr)
        return error.exit_code
    wrong = faults_of(found)
    if options.format == "json":
        header: Json = {"schema": "paceline.bench/1", "name": "load", "machine": describe()}
        print(json.dumps({**header, **found, "wrong": wrong}, indent=2))
    else:
        console.print(_table(found))
    for line in wrong:
        print(f"paceline bench ingest: {line}", file=sys.stderr)
    return 1 if wrong else 0


def _table(found: Json) -> Table:
    machine = describe()
    table = Table(
        title=f"load on one collector: {machine['cores']} cores of {machine['cpu']}",
        title_justify="left",
    )
    table.add_column("what")
    table.add_column("value", justify="right")
    for row in lines_of(found):
        table.add_row(*row)
    return table


def _shape(options: argparse.Namespace) -> LoadShape:
    steps = options.steps
    if options.duration is not None:
        if not options.rate:
            raise InputError("--duration needs a --rate; without one, give --steps")
        steps = round(options.duration * options.rate)
    shape = LoadShape(
        ranks=options.ranks, collectives=options.collectives, steps=steps, rate=options.rate,
        tensor_parallel=options.tensor_parallel, job=options.job, seed=options.seed,
        fault=parse_fault(options.fault, steps) if options.fault else None,
    )  # fmt: skip
    shape.check()
    return shape


def _target(options: argparse.Namespace) -> Target:
    if not options.url:
        return Target(database=options.database)
    if options.database:
        raise InputError("--database is for a collector that is started here; leave out --url")
    token = options.token or find_token(options.url) or ""
    return Target(url=options.url, token=token, pid=options.collector_pid)


def _allow_connections(connections: int) -> None:
    """Raise the limit of open files as far as this user may; the collector inherits it."""
    wanted = connections + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted and hard >= wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    elif hard < wanted:
        raise InputError(
            f"{connections} connections need {wanted} open files; the limit is {hard}: raise it "
            "(ulimit -Hn), or take fewer --ranks or a smaller --storm"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paceline bench ingest",
        description="Put the load of a whole job on a collector, with a fault that it must name.",
        epilog="Without --ranks: the benchmark with its table (paceline bench --help).",
    )
    add = parser.add_argument
    add("--ranks", type=int, required=True, help="ranks of the job; 8 share a node and connection")
    add("--collectives", type=int, default=20, metavar="C", help="a rank and step (default 20)")
    add("--rate", type=float, default=1.0, metavar="R",
        help="steps per second (default 1; 0: as fast as the collector acknowledges)")  # fmt: skip
    add("--steps", type=int, default=60, help="length of the job in steps (default 60)")
    add("--duration", type=float, metavar="SECONDS", help="or in seconds")
    add("--tensor-parallel", type=int, default=1, metavar="T",
        help="all but one collective within groups of T ranks (default 1: one group)")  # fmt: skip
    add("--fault", metavar="RANK:straggler:PERCENT[@STEP]",
        help="this rank computes so much longer; exit status 1 if it is not named")  # fmt: skip
    add("--duplicates", type=float, default=0.0, metavar="%", help="bodies that are sent twice")
    add("--out-of-order", type=float, default=0.0, metavar="%", help="frames that swap places")
    add("--storm", type=int, default=0, metavar="N", help="half-way: N connections at once")
    add("--url", help="an existing collector (default: one is started for the load)")
    add("--token", help="for it (default: PACELINE_TOKEN, or the token file on this machine)")
    add("--collector-pid", type=int, default=0, metavar="PID",
        help="its process, if on this machine: for CPU and memory")  # fmt: skip
    add("--database", default="", metavar="URL", help="of the collector that is started")
    add("--job", default="load", help="name of the job (default load)")
    add("--seed", type=int, default=1)
    add("--format", choices=("text", "json"), default="text")
    return parser
