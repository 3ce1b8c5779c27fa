"""``paceline-dashboards build OUT``: writes every dashboard as JSON, the same bytes every time."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grafanalib.core import Dashboard

from paceline_dashboards import job
from paceline_dashboards.normalise import Json, normalise

DASHBOARDS: dict[str, Callable[[], Dashboard]] = {"job": job.dashboard}
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


def render() -> dict[str, str]:
    """Return file name -> text of every dashboard."""
    return {
        f"{name}.json": json.dumps(as_json(make()), indent=2, sort_keys=True) + "\n"
        for name, make in DASHBOARDS.items()
    }


def stale(directory: Path) -> list[str]:
    """Return the names of files in ``directory`` that differ from what would be built."""
    wanted = render()
    present = {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*.json")}
    names = wanted.keys() | present.keys()
    return sorted(name for name in names if wanted.get(name) != present.get(name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Build or check; return the exit status: 0, or 1 where a committed file is out of date."""
    parser = argparse.ArgumentParser(prog="paceline-dashboards", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="write the dashboards into a directory")
    build.add_argument("out", type=Path, metavar="OUT")
    build.add_argument("--check", action="store_true", help="write nothing; fail if OUT is stale")
    options = parser.parse_args(arguments)
    out: Path = options.out
    if options.check:
        names = stale(out)
        if names:
            print(
                f"{', '.join(names)} in {out} differ from what the code builds: "
                "run `make dashboards` and commit",
                file=sys.stderr,
            )
        return 1 if names else 0
    out.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (out / name).write_text(text, encoding="utf-8")
        print(out / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
