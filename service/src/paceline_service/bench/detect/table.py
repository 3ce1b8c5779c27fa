"""The result as rows of a table, each beside the limit that the project set itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline_service.bench.detect.limits import DELAY_MEDIAN_LIMIT, DELAY_P95_LIMIT

Rows = list[Sequence[str]]
COLUMNS = ("what", "value", "of", "limit")


def rows_of_detect(result: Mapping[str, Any]) -> Rows:
    """Return the rows: scores, volume, what simple rules do, families."""
    s = result["score"]
    delay, culprit, severity = s["delay"], s["culprit"], s["severity"]
    rows: Rows = [
        ("precision of findings", _share(s["precision"]),
         f"{s['right_findings']} right, {s['false_findings']} false", ">= 99 %"),
        ("  said falsely in passing", str(s["false_in_passing"]), "", ""),
        ("recall, faults that cost >= 0.5 %", _share(s["recall"]),
         f"{s['faults_found']} of {s['faults_counted']}", ">= 97 %"),
        *((f"  apart: {why}", str(one["found"]), f"of {one['faults']}", "")
          for why, one in s["apart"].items()),
        ("delay over its bound, median", _times(delay["median"], delay["faults"]),
         f"{delay['faults']} faults, K >= 8", f"<= {DELAY_MEDIAN_LIMIT}"),
        ("  95th percentile", _times(delay["p95"], delay["faults"]),
         f"{delay['not_found']} not found", f"<= {DELAY_P95_LIMIT}"),
        ("cause right", _share(s["cause_right"]), "of the found", ">= 95 %"),
        ("verdict right", _share(s["verdict_right"]), f"{s['scenarios']} jobs", ""),
        ("healthy jobs with somebody named", str(s["healthy_jobs_with_somebody_named"]),
         f"of {s['healthy_jobs']}", "0"),
        *_culprits("TP, PP", culprit["tp_pp"]),
        *_culprits("DP, EP, sharded", culprit["others"]),
        ("error of wasted GPU-seconds, median", _share(s["blame_error"]["median"]),
         f"95th: {_share(s['blame_error']['p95'])}", ""),
        ("error of recoverable time, median", _share(s["recoverable_error"]["median"]),
         f"95th: {_share(s['recoverable_error']['p95'])}", ""),
        ("severity-weighted score", _share(severity["score"]),
         f"recall {_share(severity['recall'])}", ""),
    ]  # fmt: skip
    rows += [row for one in result.get("volume", ()) for row in _volume(one)]
    rows += _baselines(s["baselines"], result["peer_rules"])
    rows += _confusion("cause", s["causes"]) + _confusion("verdict", s["kinds"])
    rows += [_family(name, one) for name, one in result["families"].items()]
    rows += [("crashed", error, "", "none") for error in s["errors"]]
    return rows


def _culprits(jobs: str, one: Mapping[str, int]) -> Rows:
    """Return how often the culprit and nobody else was named in jobs of one kind."""
    return [
        (f"culprit named and no victim ({jobs})", str(one["named"]), f"of {one['cases']}", "all"),
        ("  somebody else named", str(one["victims_named"]), "", "0"),
        ("  is most blamed, most waited for",
         f"{one['most_blamed']}, {one['most_waited_for']}", f"of {one['cases']}", ""),
    ]  # fmt: skip


def _volume(one: Mapping[str, Any]) -> Rows:
    rows: Rows = []
    for prefix, what in (("", "false namings, K = {ranks}"), ("raised_", "  at a raised rate")):
        fine = "" if one[prefix + "consistent"] else " (exceeded)"
        rows.append(
            (
                what.format_map(one),
                f"{one[prefix + 'false_namings']}{fine}",
                f"{one[prefix + 'rank_steps'] / 1e6:.1f} M rank-steps, "
                f"<= {one[prefix + 'upper_per_million_rank_steps']:.2f} per M at 95 %",
                f"stated {one[prefix + 'stated']:.2g}",
            )
        )
    return rows


def _baselines(baselines: Mapping[str, Any], missing: str) -> Rows:
    rows: Rows = []
    for rule, one in baselines.items():
        if one is None:
            rows.append((f"{rule}: not run", "", missing, ""))
            continue
        rows.append(
            (
                f"{rule}: precision, recall",
                f"{_share(one['precision'])}, {_share(one['recall'])}",
                f"named somebody in {one['healthy_jobs_with_somebody_named']} "
                f"of {one['healthy_jobs']} healthy jobs",
                "",
            )
        )
    return rows


def _confusion(what: str, table: Mapping[str, Mapping[str, int]]) -> Rows:
    return [
        (f"{what} {true}", str(named.get(true, 0)),
         ", ".join(f"{count} {name}" for name, count in named.items() if name != true), "")
        for true, named in table.items()
    ]  # fmt: skip


def _family(name: str, one: Mapping[str, Any]) -> Sequence[str]:
    delay = one["delay"]
    shown = f", delay {_times(delay['median'], delay['faults'])}" if delay["faults"] else ""
    faults = f"{one['found']}/{one['counted']} found{shown}" if one["counted"] else ""
    return (
        f"family {name}",
        f"{one['verdict_right']}/{one['scenarios']} verdicts",
        faults,
        f"{one['false']} false" if one["false"] else "",
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _times(value: float | None, faults: int) -> str:
    return f"{value:.2f}x" if value is not None else ("never" if faults else "-")
