"""``paceline-dashboards build OUT``: writes dashboards and rules, the same bytes every time."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from grafanalib.core import Dashboard

from paceline_dashboards import alerts, alerts_options, fleet, frame, itself, job, network, rank
from paceline_dashboards.normalise import Json, normalise

DASHBOARDS: dict[str, Callable[[frame.Sources], Dashboard]] = {
    "fleet": fleet.dashboard,
    "job": job.dashboard,
    "rank": rank.dashboard,
    "network": network.dashboard,
    "itself": itself.dashboard,
}
"""File name without its ending -> what builds it."""


def _plain(value: Any) -> Any:
    """Turn grafanalib's objects into plain JSON values."""
    if hasattr(value, "to_json_data"):
        return _plain(value.to_json_data())
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def as_json(dashboard: Dashboard) -> Json:
    """Return ``dashboard`` as the JSON that Grafana loads."""
    return normalise(_plain(dashboard.auto_panel_ids()))


def render(*, sql: bool = True, page: str = frame.PAGE) -> dict[str, str]:
    """Return file name -> text of every dashboard.

    Args:
        sql: with panels that read PostgreSQL; otherwise from Prometheus alone.
        page: where the collector's page is, for links.
    """
    sources = frame.Sources(sql=sql, page=page)
    return {
        f"{name}.json": json.dumps(as_json(make(sources)), indent=2, sort_keys=True) + "\n"
        for name, make in DASHBOARDS.items()
    }


def stale(directory: Path, *, sql: bool = True, page: str = frame.PAGE) -> list[str]:
    """Return the names of files in ``directory`` that differ from what would be built."""
    wanted = render(sql=sql, page=page)
    present = {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*.json")}
    names = wanted.keys() | present.keys()
    return sorted(name for name in names if wanted.get(name) != present.get(name))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="paceline-dashboards", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="write the dashboards into a directory")
    build.add_argument("out", type=Path, metavar="OUT")
    build.add_argument(
        "--prometheus-only", type=Path, metavar="DIR",
        help="also build the dashboards that do without PostgreSQL",
    )  # fmt: skip
    build.add_argument("--check", action="store_true", help="write nothing; fail if OUT is stale")
    alerts_options.add_arguments(build)
    return parser


def _check(options: argparse.Namespace) -> Iterator[tuple[Path, list[str]]]:
    yield options.out, stale(options.out, page=options.page)
    if options.prometheus_only:
        directory = options.prometheus_only
        yield directory, stale(directory, sql=False, page=options.page)
    if options.rules:
        yield options.rules, alerts.stale(options.rules, alerts_options.options_of(options))


def _files(options: argparse.Namespace) -> Iterator[tuple[Path, dict[str, str]]]:
    yield options.out, render(page=options.page)
    if options.prometheus_only:
        yield options.prometheus_only, render(sql=False, page=options.page)
    if options.rules:
        yield options.rules, alerts.render(alerts_options.options_of(options))


def main(arguments: Sequence[str] | None = None) -> int:
    """Build or check; return the exit status: 0, or 1 where a committed file is out of date."""
    options = _parser().parse_args(arguments)
    if options.check:
        told = [(directory, names) for directory, names in _check(options) if names]
        for directory, names in told:
            print(
                f"{', '.join(names)} in {directory} differ from what the code builds: "
                "run `make dashboards` and commit",
                file=sys.stderr,
            )
        return 1 if told else 0
    for directory, files in _files(options):
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
            print(directory / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
