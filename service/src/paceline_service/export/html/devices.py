"""What each device did while it was traced, as bars: computed, communicated, idled."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paceline.counted import counted
from paceline_service.export.device_time import DeviceTime, device_sentences
from paceline_service.export.html.markup import Markup, h, join, px
from paceline_service.export.units import format_ratio

MOST_RANKS = 64
TOP_RANKS = 32
_BAR = 220
_PARTS = (
    ("work", "computes", "compute_ns"),
    ("forward", "computes and communicates", "overlap_ns"),
    ("comm", "exposed communication", "exposed_ns"),
    ("copy", "copies memory", "memory_ns"),
    ("wait", "idle", "idle_ns"),
)


def device_section(times: Sequence[DeviceTime], named: Collection[int]) -> Markup | None:
    """Return the bars of all ranks, of more than 64 those of which most is exposed or idle."""
    if not times:
        return None
    shown = list(times)
    if len(times) > MOST_RANKS:
        order = sorted(
            times, key=lambda one: (one.rank not in named, -one.exposed_ratio - one.idle_ratio)
        )
        shown = sorted(order[:TOP_RANKS], key=lambda one: one.rank)
    heads = ("computes", "exposed", "overlap", "communication / computation", "idle")
    head = h(
        "tr", h("th", "rank", scope="col", class_="number"), h("th", "its time", scope="col"),
        *(h("th", name, scope="col", class_="number") for name in heads),
    )  # fmt: skip
    body = [_row(one, one.rank in named) for one in shown]
    parts = [
        h("p", " ".join(device_sentences(times))),
        h("div", h("table", h("thead", head), h("tbody", *body)), class_="scroll"),
        _legend(),
    ]
    if len(shown) < len(times):
        parts.append(h("p", f"{len(shown)} of {counted(len(times), 'rank')}.", class_="quiet"))
    return join(parts)


def _row(one: DeviceTime, is_named: bool) -> Markup:
    computes = (one.compute_ns + one.overlap_ns) / one.window_ns
    overlap = one.overlap_ratio
    figures = (
        format_ratio(computes), format_ratio(one.exposed_ratio),
        format_ratio(overlap) if overlap is not None else "\u2013",
        f"{one.gamma:.2f}" if one.gamma is not None else "\u2013", format_ratio(one.idle_ratio),
    )  # fmt: skip
    cells = [h("td", f"{one.rank:,}", class_="number"), h("td", _bar(one))]
    cells += [h("td", figure, class_="number") for figure in figures]
    return h("tr", *cells, class_="bad" if is_named else None)


def _bar(one: DeviceTime) -> Markup:
    x, drawn, told = 0.0, [], []
    for kind, name, field in _PARTS:
        share = getattr(one, field) / one.window_ns
        width = share * _BAR
        drawn.append(h("rect", x=px(x), y=0, width=px(width), height=10, class_=kind))
        told.append(f"{name} {format_ratio(share)}")
        x += width
    return h(
        "svg", *drawn, viewBox=f"0 0 {_BAR} 10", class_="bar wide", role="img",
        aria_label=", ".join(told),
    )  # fmt: skip


def _legend() -> Markup:
    keys = []
    for kind, name, _ in _PARTS:
        swatch = h(
            "svg", h("rect", y=0, width=14, height=12, class_=kind), viewBox="0 0 14 12",
            class_="swatch", aria_hidden="true",
        )  # fmt: skip
        keys.append(h("span", swatch, name, class_="key"))
    return h("p", *keys, class_="legend")
