"""The tables of an HTML report: ranks, nodes, what-if, incidents; each of bounded length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from paceline_service.export.html.markup import Markup, h, join, px
from paceline_service.export.telling import named_ranks
from paceline_service.export.units import format_gpu_s, format_ratio, in_unit, time_unit
from paceline_service.export.words import statement

Json = Mapping[str, Any]
ALL_RANKS = 64
"""As many ranks are all shown; of more the named ones and those that cost most."""
TOP_RANKS = 32
TOP_NODES = 16
TOP_CANDIDATES = 8
LEAST_GAIN = 0.005
"""Shares below half a per cent are what any rank gives back."""
TOP_INCIDENTS = 20
_BAR = 90
_TIMES = (
    ("self_ns", "own work"), ("wait_ns", "waiting"), ("exposed_comm_ns", "transfer"),
    ("blamed_wait_ns", "blamed"),
)  # fmt: skip
_SUMMED = ("self_ns", "wait_ns", "exposed_comm_ns", "caused_wait_ns", "blamed_wait_ns")


def rank_table(report: Json, nodes: Mapping[int, str]) -> Markup | None:
    """Return the table of ranks, None where there are none."""
    rows: Sequence[Json] = report.get("ranks") or ()
    if not rows:
        return None
    named = named_ranks(report.get("findings") or ())
    shown = list(rows)
    if len(rows) > ALL_RANKS:
        order = sorted(rows, key=lambda r: (r["rank"] not in named, -(r["blamed_wait_ns"] or 0)))
        shown = order[:TOP_RANKS]
    told = (
        f"{len(shown)} of {len(rows):,} ranks: those that findings name, then those that most "
        "waiting is due to."
        if len(shown) < len(rows)
        else None
    )

    def name(row: Json) -> tuple[str, str]:
        return f"{row['rank']:,}", nodes.get(row["rank"], "")

    table = _times_table(
        shown, rows, ("rank", "node"), name, lambda row: row["rank"] in named, node=bool(nodes)
    )
    return join([h("p", told, class_="quiet"), table]) if told else table


def node_table(report: Json, nodes: Mapping[int, str]) -> Markup | None:
    """Return the sums of nodes, None where there are not several."""
    named = named_ranks(report.get("findings") or ())
    sums: dict[str, dict[str, Any]] = {}
    for row in report.get("ranks") or ():
        node = nodes.get(row["rank"])
        if node is None:
            continue
        of = sums.setdefault(node, {"node": node, "ranks": 0, "named": False, "last_arriver": 0})
        of["ranks"] += 1
        of["named"] = of["named"] or row["rank"] in named
        of["last_arriver"] += row["last_arriver"] or 0
        for key in _SUMMED:
            of[key] = of.get(key, 0) + (row[key] or 0)
    if len(sums) < 2:
        return None
    order = sorted(sums.values(), key=lambda s: (not s["named"], -s["blamed_wait_ns"]))
    table = _times_table(
        order[:TOP_NODES], order, ("node", "ranks"),
        lambda row: (str(row["node"]), f"{row['ranks']:,}"), lambda row: bool(row["named"]),
        node=True,
    )  # fmt: skip
    if len(order) > TOP_NODES:
        told = f"{TOP_NODES} of {len(order):,} nodes, those that most waiting is due to."
        return join([h("p", told, class_="quiet"), table])
    return table


def what_if_table(what_if: Json, world_size: int) -> Markup | None:
    """Return what leaving out a rank or a node gives back, None where nothing does."""
    rows = [row for row in what_if.get("candidates") or () if row["recoverable_ratio"] > LEAST_GAIN]
    if not rows:
        return None
    body = []
    for row in rows[:TOP_CANDIDATES]:
        ratio = row["recoverable_ratio"]
        kind, _, name = str(row["without"]).partition(":")
        body.append(
            h(
                "tr",
                h("td", f"without {kind} {name}"),
                h("td", f"{format_ratio(ratio)} shorter", class_="number"),
                h("td", format_gpu_s(ratio * world_size * 86_400), class_="number"),
            )
        )
    head = h(
        "tr", h("th", "what is left out", scope="col"),
        h("th", "steps", scope="col", class_="number"),
        h("th", "given back a day", scope="col", class_="number"),
    )  # fmt: skip
    return h("table", h("thead", head), h("tbody", *body))


def incident_table(incidents: Sequence[Json], report: Json) -> Markup | None:
    """Return when incidents began and ended, and who knows of them."""
    if not incidents:
        return None
    body = []
    for incident in incidents[:TOP_INCIDENTS]:
        known = incident.get("acknowledged")
        told = f"{known['by']}: {known['note']}" if known else "nobody yet"
        ended = incident.get("closed_wall_ns")
        state = f"{utc(ended)} ({incident['closed_reason']})" if ended else "open"
        number = h("td", incident["id"], class_="number")
        said = (statement(incident, report), utc(incident["opened_wall_ns"]), state, told)
        body.append(h("tr", number, *(h("td", one) for one in said)))
    heads = ("incident", "what", "opened", "closed", "acknowledged")
    head = [
        h("th", name, scope="col", class_="number" if name == "incident" else None)
        for name in heads
    ]
    return h("table", h("thead", h("tr", *head)), h("tbody", *body))


def utc(wall_ns: int) -> str:
    """Return a time of the wall clock, to the second."""
    if not 0 < wall_ns < 253_402_300_799 * 10**9:
        return "unknown"
    return datetime.fromtimestamp(wall_ns // 10**9, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _times_table(
    shown: Sequence[Json],
    rows: Sequence[Json],
    heads: tuple[str, str],
    name: Callable[[Json], tuple[str, str]],
    is_named: Callable[[Json], bool],
    *,
    node: bool,
) -> Markup:
    units = {key: time_unit(max(abs(row[key] or 0) for row in rows)) for key, _ in _TIMES}
    head = [h("th", heads[0], scope="col", class_="number" if heads[0] == "rank" else None)]
    if node:
        head.append(
            h("th", heads[1], scope="col", class_="number" if heads[1] == "ranks" else None)
        )
    head.append(h("th", "busy", scope="col"))
    head += [
        h("th", f"{title} {units[key][0]}", scope="col", class_="number") for key, title in _TIMES
    ]
    head.append(h("th", "last in", scope="col", class_="number"))
    body = []
    for row in shown:
        first, second = name(row)
        cells = [h("td", first, class_="number" if heads[0] == "rank" else None)]
        if node:
            cells.append(h("td", second, class_="number" if heads[1] == "ranks" else None))
        cells.append(h("td", _bar(row)))
        cells += [
            h("td", in_unit(row[key] or 0, units[key][1]), class_="number") for key, _ in _TIMES
        ]
        cells.append(h("td", f"{row['last_arriver'] or 0:,}", class_="number"))
        body.append(h("tr", *cells, class_="bad" if is_named(row) else None))
    return h("table", h("thead", h("tr", *head)), h("tbody", *body))


def _bar(row: Json) -> Markup:
    """Return own work, communication and waiting of a row as a bar, and own work in words."""
    parts = [("work", row["self_ns"]), ("comm", row["exposed_comm_ns"]), ("wait", row["wait_ns"])]
    whole = sum(part or 0 for _, part in parts)
    if whole <= 0:
        return h("span", "no data", class_="quiet")
    x, drawn = 0.0, []
    for kind, part in parts:
        width = (part or 0) / whole * _BAR
        drawn.append(h("rect", x=px(x), y=0, width=px(width), height=10, class_=kind))
        x += width
    told = f"works {format_ratio((row['self_ns'] or 0) / whole)} of the time"
    return h("svg", *drawn, viewBox=f"0 0 {_BAR} 10", class_="bar", role="img", aria_label=told)
