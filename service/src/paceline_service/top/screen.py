"""The screen of ``paceline top``: the verdict in words, then a lane per rank."""

from __future__ import annotations

import re
import textwrap
import time
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from paceline.counted import counted
from paceline_service.export import missing, words
from paceline_service.export.telling import Lane, all_lanes, node_lanes, telling_lanes
from paceline_service.export.units import format_ns, format_times
from paceline_service.top.lanes import (
    COMM,
    COMPUTE,
    UNICODE,
    WAIT,
    Glyphs,
    sawtooth,
)
from paceline_service.top.moment import Moment
from paceline_service.top.rows import Rows, span

VIEWS = ("telling", "nodes", "all")
ALL_AT_ONCE = 32
"""Ranks that are shown one by one where nobody chose a view, if the screen is high enough."""
LANES_WITHOUT_HEIGHT = 12
_VIEW_WORDS = {"telling": "telling ranks", "nodes": "by node", "all": "all ranks"}
NARROWEST = 40
SPARK_FLOOR = 0.6
"""Of the shortest step: where the row of step times begins, so that a tenth more is seen."""
_BAD, _QUIET, _COMMAND = "bold red", "dim", "bold cyan"
_STYLES = {
    "healthy": "bold green", "insufficient_evidence": "bold yellow",
    "imbalance": "bold magenta", "stage_imbalance": "bold magenta",
    "communication_bound": "bold magenta",
}  # fmt: skip
_STATE_STYLES = {"running": "green", "silent": "bold yellow", "ended": "dim"}
_NUMBER_AND_UNIT = re.compile(r"(\d) (?=(?:ns|us|ms|s|h|GPU-[sh])\b|%)")
"""These stay on one line."""
_KEYS = "q quit   \u2190 \u2192 view   \u2191 \u2193 scroll   p pause"
_ASCII_KEYS = "q quit   left/right view   up/down scroll   p pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How somebody looks at it.

    Attributes:
        view: one of ``VIEWS``; None for what fits.
        scroll: lanes that are scrolled past.
        paused: whether the picture stands still.
        keys: whether there is a keyboard.
        glyphs: to draw with.
    """

    view: str | None = None
    scroll: int = 0
    paused: bool = False
    keys: bool = True
    glyphs: Glyphs = UNICODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A screen.

    Attributes:
        lines: of it.
        view: which lanes it shows.
        lanes: how many there are.
        rows: how many of them are on the screen.
        scroll: how many are above it.
    """

    lines: list[Text]
    view: str = VIEWS[0]
    lanes: int = 0
    rows: int = 0
    scroll: int = 0


def picture(moment: Moment, look: Look, width: int, height: int | None) -> Picture:
    """Return the screen.

    Args:
        moment: what is known.
        look: how it is looked at.
        width: cells of a line.
        height: lines of the screen; None where everything is shown.
    """
    width = max(width, NARROWEST)
    head = [_title(moment, look, width), Text(), *_verdict(moment, look, width, height)]
    table = moment.table
    if table is None or not len(table):
        foot = _foot(moment, look, width)
        return Picture(lines=[*head, Text(), Text(_nothing_yet(moment), style=_QUIET), *foot])
    head += [Text(), _history(moment, look, width), Text()]
    legend, foot = _legend(look, width), _foot(moment, look, width)
    room = None if height is None else height - len(head) - len(foot) - 2
    if room is not None and room < 4:  # a very low screen: lanes before explanations
        head = [head[0], *_verdict(moment, look, width, 0)]
        room = max(height - len(head) - len(foot) - 2, 1) if height is not None else None
    lanes, view = choose_lanes(moment, look, room)
    first, shown = _window(lanes, look.scroll, room)
    rows = Rows(shown, width, moment.pending, look.glyphs)
    drawn = sawtooth(table, rows.lane_cells)
    told = _VIEW_WORDS[view]
    if len(shown) < len(lanes):
        told += f" {first + 1}-{first + len(shown)} of {len(lanes):,}"
    body = [rows.heading(drawn, told), *(rows.row(drawn, lane) for lane in shown)]
    return Picture(
        lines=[*head, *body, legend, *foot], view=view, lanes=len(lanes), rows=len(shown),
        scroll=first,
    )  # fmt: skip


def choose_lanes(moment: Moment, look: Look, room: int | None) -> tuple[list[Lane], str]:
    """Return the lanes of the chosen view, and the view."""
    table, size = moment.table, moment.world_size
    self_ns = table.mean_self_ns() if table is not None else np.full(size, np.nan)
    size = len(self_ns)
    view = look.view
    if view is None:
        fits = size <= ALL_AT_ONCE and (room is None or size <= room)
        view = "all" if fits else "telling"
    nodes, flagged = moment.nodes, moment.flagged
    if view == "nodes":
        return node_lanes(self_ns, nodes, flagged), view
    if view == "all":
        return all_lanes(size, nodes, flagged), view
    rows = LANES_WITHOUT_HEIGHT if room is None else max(room, 4)
    return telling_lanes(self_ns, nodes, flagged, rows), view


def _window(lanes: list[Lane], scroll: int, room: int | None) -> tuple[int, list[Lane]]:
    if room is None or len(lanes) <= room:
        return 0, lanes
    first = min(max(scroll, 0), len(lanes) - room)
    return first, lanes[first : first + room]


def _title(moment: Moment, look: Look, width: int) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(words.clean(moment.job), "bold")
    state = words.clean(moment.state) or "connecting"
    text.append(f"  {state}", _STATE_STYLES.get(state, ""))
    seen = moment.detail.get("last_seen_wall_ns")
    if state == "silent" and seen:
        text.append(f" for {span(time.time() - seen / 1e9)}", "bold yellow")
    parts = []
    if moment.attempt > 1:
        parts.append(f"attempt {moment.attempt}")
    if moment.world_size:
        nodes = len(set(moment.nodes.values()))
        on = f" on {nodes:,} nodes" if nodes > 1 else ""
        parts.append(f"{counted(moment.world_size, 'rank')}{on}")
    if moment.table is not None and len(moment.table):
        parts.append(f"step {moment.table.steps[-1]:,}")
    text.append("  " + "  ".join(parts))
    if look.paused:
        text.append("  PAUSED", "bold yellow")
    _cut(text, width)
    right = moment.url
    if len(text) + len(right) + 2 <= width:
        text.append(" " * (width - len(text) - len(right)) + right, _QUIET)
    return text


def _verdict(moment: Moment, look: Look, width: int, height: int | None) -> list[Text]:
    """Return the verdict, why, and what to do; less of it on a low screen."""
    report = moment.report
    if report is None:
        return [Text("Waiting for the collector's report ...", style=_QUIET)]
    style = _STYLES.get(str(report["verdict"]), _BAD)
    main = words.main_finding(report)
    inner = width - 2
    lines = []
    tight = height is not None and height < 22
    if main is None:
        lines += [(line, style) for line in _wrap(words.headline(report) + ".", inner)]
        notes = (report.get("data") or {}).get("notes") or []
        if report["verdict"] == "insufficient_evidence":
            notes = [*notes] or missing.what_is_missing(report)
        lines += [(line, "") for note in notes[:1] for line in _wrap(words.clean(note), inner)]
    else:
        cost = words.costs(main, report)
        told = f"{words.statement(main, report)}{': ' + cost if cost else ''}."
        lines += [(line, style) for line in _wrap(told, inner)]
        if height != 0:
            more = [words.because(main), words.gain(main)]
            lines += [(line, "") for line in _wrap(" ".join(m for m in more if m), inner)]
            evidence = [words.clean(one) for one in main.get("evidence") or ()]
            shown = evidence[: 0 if tight else 2]
            lines += [(line, _QUIET) for one in shown for line in _wrap(one, inner, "- ")]
        others = [one for one in report["findings"] if one is not main]
        for other in others[: 0 if tight else 2]:
            also = f"Also: {words.statement(other, report)}."
            lines += [(line, "") for line in _wrap(also, inner)]
        if len(others) > 2 and not tight:
            lines.append((f"and {len(others) - 2} more findings: paceline report", _QUIET))
    made = [_barred(line, line_style, style, look) for line, line_style in lines]
    if main is not None and main.get("action"):
        made += _command(words.clean(main["action"]), look, inner, height, style)
    return made


def _command(action: str, look: Look, inner: int, height: int | None, style: str) -> list[Text]:
    if height is None:  # in a pipe or a scrolling terminal it is one line, for copying
        return [_barred(f"$ {action}", _COMMAND, style, look)]
    folded = [action[at : at + inner - 2] for at in range(0, len(action), inner - 2)]
    lines = folded[: 1 if height < 22 else 3]
    return [
        _barred(("$ " if place == 0 else "  ") + line, _COMMAND, style, look)
        for place, line in enumerate(lines)
    ]


def _barred(line: str, line_style: str, style: str, look: Look) -> Text:
    return Text.assemble((look.glyphs.bar + " ", style), (line, line_style), no_wrap=True)


def _history(moment: Moment, look: Look, width: int) -> Text:
    table, report = moment.table, moment.report
    assert table is not None
    recent = table.duration_ns[-min(len(table), 20) :]
    told = format_ns(round(float(np.median(recent)))) + " a step"
    if report is not None and report.get("slowdown"):
        told += f", {format_times(report['slowdown'])} of what it could be"
    cells = min(width - len(told) - 14, len(table), 100)
    text = Text(no_wrap=True)
    text.append("step time  ", _QUIET)
    if cells >= 10:
        parts = np.array_split(table.duration_ns, cells)
        values = np.array([float(np.median(part)) for part in parts])
        # One long pause must not flatten the rest of the row.
        high = float(np.quantile(values, 0.97)) or 1.0
        low = min(float(values.min()), high) * SPARK_FLOOR
        top = len(look.glyphs.sparks) - 1
        places = np.clip(np.round((values - low) / (high - low) * top), 0, top).astype(int)
        text.append("".join(look.glyphs.sparks[place] for place in places), COMPUTE)
        text.append("  ")
    text.append(told)
    return _cut(text, width)


def _legend(look: Look, width: int) -> Text:
    glyphs = look.glyphs
    text = Text(no_wrap=True)
    for glyph, style, name in (
        (glyphs.compute, COMPUTE, "computes"),
        (glyphs.comm, COMM, "communication"),
        (glyphs.wait, WAIT, "waits for the last one"),
    ):
        text.append(glyph * 2 + " ", style).append(f"{name}   ", _QUIET)
    return _cut(text, width)


def _foot(moment: Moment, look: Look, width: int) -> list[Text]:
    lines = []
    if moment.trouble:
        said = words.clean(f"Nothing new comes: {moment.trouble}")
        lines += [Text(line, style="bold yellow") for line in _wrap(said, width)[:3]]
    if look.keys:
        keys = _KEYS if look.glyphs is UNICODE else _ASCII_KEYS
        lines.append(Text(keys[:width], style=_QUIET, no_wrap=True))
    return lines


def _nothing_yet(moment: Moment) -> str:
    if moment.state == "ended":
        return "No step of it was analysed."
    return "No step is complete yet."


def _wrap(text: str, width: int, first: str = "") -> list[str]:
    lines = textwrap.wrap(
        _NUMBER_AND_UNIT.sub("\\1\u00a0", text), width, initial_indent=first,
        subsequent_indent=" " * len(first), break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\u00a0", " ") for line in lines]


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text
