"""The live view: one screen with the verdict, a lane per rank, and who arrives last."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from paceline_service.demo.feed import Step
from paceline_service.demo.processes import LossPoint
from paceline_service.export.text import headline

WINDOW_STEPS = 20
"""How many steps a lane averages: about a second, so the eye can follow."""
LANE_CELLS = 56
HISTORY_CELLS = 76
PHASE_STYLES = {
    "input": "#d16ba5",
    "forward": "#4cc9f0",
    "backward": "#4f6df5",
    "optimizer": "#2a9d8f",
    "copy": "#e07a3f",
    "checkpoint": "#8a9a5b",
    "host": "#8d99ae",
}
"""Readable on dark and on light terminals; rich takes the nearest where there are fewer colours."""
COMM_STYLE, WAIT_STYLE = "#d9a520", "#7a7f87"
RANK_STYLES = ("#4cc9f0", "#d16ba5", "#d9a520", "#2a9d8f")
VERDICT_STYLES = {"healthy": "green", "insufficient_evidence": "bright_black"}
VERDICT_LINES = 6
"""A fixed height: what stands below must not jump when the verdict changes."""
SPARKS = "▁▂▃▄▅▆▇█"
TAIL_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that is on the screen at one moment."""

    url: str
    elapsed_s: float
    report: dict[str, Any] | None
    phases: Sequence[str]
    steps: Sequence[Step]
    losses: Sequence[LossPoint]
    lines: Sequence[str]
    total_steps: int
    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """How one rank spent its time in the last steps, ns a step."""

    rank: int
    phase_ns: list[float]
    comm_ns: float
    wait_ns: float
    last: int
    """In how many of these steps it arrived last."""

    @property
    def busy_ns(self) -> float:
        """What the rank did by itself."""
        return sum(self.phase_ns)

    @property
    def total_ns(self) -> float:
        """All of it."""
        return self.busy_ns + self.comm_ns + self.wait_ns


def render(view: View) -> RenderableType:
    """Return the screen."""
    return Group(
        _title(view), _verdict(view), Text(), _lanes(view), Text(), _legend(), Text(),
        _history(view), Text(), _tail(view),
    )  # fmt: skip


def save_picture(view: View, path: Path) -> None:
    """Write the screen as SVG, with the fonts of whoever looks at it."""
    console = Console(width=100, force_terminal=True, record=True, file=io.StringIO())
    console.print(render(view))
    svg = console.export_svg(title="paceline demo")
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), encoding="utf-8")


def verdict_of(report: dict[str, Any] | None) -> str:
    """Return the verdict, or ``insufficient_evidence`` while there is no report."""
    return str(report["verdict"]) if report else "insufficient_evidence"


def headline_of(report: dict[str, Any] | None) -> str:
    """Return the verdict as one sentence, also while there is none."""
    if report is None or not report["job"]["steps"]:
        return "Nothing is measured yet: torch starts on every rank"
    return headline(report)


def plain_line(view: View) -> str:
    """Return the moment as one line, for a log."""
    parts = [f"{view.elapsed_s:4.0f} s"]
    if view.steps:
        recent = view.steps[-WINDOW_STEPS:]
        mean_ms = sum(step.duration_ns for step in recent) / len(recent) / 1e6
        parts.append(f"step {view.steps[-1].step + 1}/{view.total_steps}")
        parts.append(f"{mean_ms:.0f} ms a step")
    if view.losses:
        parts.append(f"loss {view.losses[-1].loss:.2f}")
    return "  ".join([*parts, headline_of(view.report)])


def lanes_of(steps: Sequence[Step], phases: Sequence[str]) -> list[Lane]:
    """Return the mean of ``steps`` for each rank."""
    if not steps:
        return []
    order = [phases.index(name) for name in PHASE_STYLES if name in phases]
    lanes = []
    for rank in range(len(steps[-1].self_ns)):
        rows = [step for step in steps if step.self_ns[rank] is not None]
        count = max(len(rows), 1)
        phase_ns = []
        for column in order:
            values = [(step.phase_self_ns[rank] or [0] * len(phases))[column] or 0 for step in rows]
            phase_ns.append(sum(values) / count)
        self_ns = sum(step.self_ns[rank] or 0 for step in rows) / count
        if not any(phase_ns):
            phase_ns = [0.0] * (len(PHASE_STYLES) - 1) + [self_ns]
        lanes.append(
            Lane(
                rank=rank,
                phase_ns=phase_ns,
                comm_ns=sum(step.comm_ns[rank] or 0 for step in rows) / count,
                wait_ns=sum(step.wait_ns[rank] or 0 for step in rows) / count,
                last=sum(step.slowest_rank == rank for step in rows),
            )
        )
    return lanes


def bar(lane: Lane, longest_ns: float, cells: int = LANE_CELLS) -> Text:
    """Return one lane: its phases in colour, then communication, then waiting."""
    parts = [
        *(
            ("█", style, ns)
            for style, ns in zip(PHASE_STYLES.values(), lane.phase_ns, strict=False)
        ),
        ("▒", COMM_STYLE, lane.comm_ns),
        ("░", WAIT_STYLE, lane.wait_ns),
    ]
    text = Text()
    done_ns = 0.0
    for cell, style, part_ns in parts:
        # Ends are rounded, not lengths, so that the lanes of equal totals end together.
        first = round(done_ns / longest_ns * cells) if longest_ns else 0
        done_ns += part_ns
        text.append(
            cell * ((round(done_ns / longest_ns * cells) if longest_ns else 0) - first), style
        )
    text.pad_right(cells - len(text))
    return text


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """Return ``values`` as a row of blocks between ``low`` and ``high``."""
    span = high - low
    top = len(SPARKS) - 1
    return "".join(
        SPARKS[min(top, max(0, int((value - low) / span * top + 0.5)))] if span > 0 else SPARKS[0]
        for value in values
    )


def _title(view: View) -> RenderableType:
    table = Table.grid(expand=True)
    table.add_column()
    table.add_column(justify="right")
    table.add_row(
        Text.assemble(
            ("Paceline", "bold"), f"  {view.ranks} ranks train a small transformer, DDP over Gloo"
        ),
        Text(view.url, style="underline"),
    )
    return table


def _verdict(view: View) -> RenderableType:
    verdict = verdict_of(view.report)
    style = VERDICT_STYLES.get(verdict, "red")
    begun = view.report is not None and view.report["job"]["steps"] > 0
    text = Text(headline_of(view.report), style=f"bold {style}" if begun else "")
    findings = (view.report or {}).get("findings") or []
    reasons = findings[0]["evidence"] if findings else []
    if view.report is not None and begun and not findings:
        reasons = view.report["data"].get("notes") or []
    for reason in reasons[:1]:
        text.append(f"\n{reason}", style="default not bold")
    return Panel(
        text,
        box=box.ROUNDED,
        border_style=style,
        title=verdict.replace("_", " ") if begun else "starting",
        title_align="left",
        height=VERDICT_LINES,
    )


def _lanes(view: View) -> RenderableType:
    recent = view.steps[-WINDOW_STEPS:]
    lanes = lanes_of(recent, view.phases)
    longest_ns = max((lane.total_ns for lane in lanes), default=0.0)
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=False, header_style="dim")
    table.add_column("rank")
    table.add_column(f"mean of the last {len(recent) or WINDOW_STEPS} steps", width=LANE_CELLS)
    table.add_column("busy", justify="right", min_width=7)
    table.add_column("waits", justify="right", min_width=7)
    table.add_column("last in", justify="right", min_width=7)
    named = {rank for f in (view.report or {}).get("findings") or [] for rank in f["ranks"]}
    for lane in lanes:
        style = "bold red" if lane.rank in named else ""
        table.add_row(
            Text(f"{lane.rank:>2}{' ◀' if lane.rank in named else '  '}", style=style),
            bar(lane, longest_ns),
            Text(f"{lane.busy_ns / 1e6:.0f} ms", style=style),
            Text(f"{lane.wait_ns / lane.total_ns:.0%}" if lane.total_ns else ""),
            Text(f"{lane.last}/{len(recent)}", style=style),
        )
    if not lanes:
        for rank in range(view.ranks):
            table.add_row(f"{rank:>2}", Text("·" * LANE_CELLS, style="dim"), "", "", "")
    return table


def _legend() -> RenderableType:
    text = Text("     ")
    for name, style in PHASE_STYLES.items():
        text.append("█ ", style).append(f"{name}  ", "dim")
    text.append("▒ ", COMM_STYLE).append("communication  ", "dim")
    text.append("░ ", WAIT_STYLE).append("waiting for others", "dim")
    return text


def _history(view: View) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", width=13)
    table.add_column(width=HISTORY_CELLS, no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    steps = view.steps[-HISTORY_CELLS:]
    durations = [step.duration_ns / 1e6 for step in steps]
    recent = durations[-WINDOW_STEPS:]
    recent_ms = sum(recent) / max(len(recent), 1)
    ordered = sorted(durations)
    # One long pause must not flatten the rest of the row.
    high = ordered[int(len(ordered) * 0.97)] if ordered else 0.0
    table.add_row(
        "step time",
        Text(sparkline(durations, 0.0, high), style="cyan"),
        f"{recent_ms:.0f} ms" if durations else "",
    )
    last = Text()
    for step in steps:
        rank = step.slowest_rank
        last.append(str(rank) if 0 <= rank < 10 else "·", RANK_STYLES[rank % len(RANK_STYLES)])
    table.add_row("arrives last", last, "")
    losses = [point.loss for point in view.losses][-HISTORY_CELLS:]
    table.add_row(
        "loss",
        Text(sparkline(losses, 0.0, max(losses, default=0.0)), style="green"),
        f"{losses[-1]:.2f}" if losses else "",
    )
    done = view.steps[-1].step + 1 if view.steps else 0
    filled = round(HISTORY_CELLS * min(1.0, done / max(view.total_steps, 1)))
    table.add_row(
        f"step {done}",
        Text.assemble(("━" * filled, "default"), ("━" * (HISTORY_CELLS - filled), "bright_black")),
        f"{view.elapsed_s:.0f} s",
    )
    return table


def _tail(view: View) -> RenderableType:
    printed = [line for line in view.lines if not line.startswith("paceline")]
    lines = [line[:94] for line in printed[-TAIL_LINES:]]
    text = Text("\n".join(lines + [""] * (TAIL_LINES - len(lines))), style="dim")
    return Panel(
        text, box=box.ROUNDED, border_style="bright_black", title="train.py", title_align="left"
    )
