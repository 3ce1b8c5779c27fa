from __future__ import annotations

import io
import math
import sys
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from PIL import Image

from paceline.errors import ConfigError
from paceline_service.export.plots import (
    Bar,
    Lane,
    Line,
    Mark,
    Section,
    Span,
    bars,
    lanes,
    page,
    plot,
    svg,
)
from paceline_service.export.plots.axes import axis, say
from paceline_service.export.plots.png import png


def chart(*given: Any, **options: Any) -> str:
    return str(svg(plot(*given, **options)))


def test_a_chart_is_an_svg_that_names_its_axes_its_lines_and_its_marks() -> None:
    drawn = chart(
        "Step <time>", "ranks K", "ms", [Line("compute", [1, 2, 4], [8, 4, 2])], log_x=True,
        marks=[Mark(3, "break-even")],
    )  # fmt: skip
    words = [node.text for node in ET.fromstring(drawn).iter() if node.text]
    for word in ("Step <time>", "ranks K", "ms", "compute", "break-even", "4"):
        assert word in words


def test_what_is_not_finite_leaves_a_gap_and_breaks_nothing() -> None:
    line = Line("x", [1, 2, 3, 4, 5], [1, 2, math.nan, math.inf, 3])
    assert "nan" not in chart("t", "x", "y", [line]) + chart("t", "x", "y", [line], log_y=True)
    assert chart("t", "x", "y", [Line("none", [], [])])
    assert chart("t", "x", "y", [Line("flat", [3.0], [0.0])], log_x=True, log_y=True)


def test_a_line_of_unequal_lengths_is_refused() -> None:
    with pytest.raises(ValueError, match="2 x and 1 values"):
        chart("t", "x", "y", [Line("a", [1, 2], [1])])


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ([1, 16, 1024], True, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)),
        ([1, 1000], True, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
        ([0, 37], False, (0, 5, 10, 15, 20, 25, 30, 35)),
        ([-1, 1], False, (-1, -0.5, 0, 0.5, 1)),
    ],
)
def test_ticks_are_round_and_few(values: list[float], log: bool, ticks: tuple[float, ...]) -> None:
    found = axis(values, 0, 100, log=log, zero=False).ticks
    assert found == pytest.approx(ticks)


def test_numbers_on_axes_are_short() -> None:
    told = [say(value) for value in (0, 0.25, 1024, 250_000, 7e9, 5e-6)]
    assert told == ["0", "0.25", "1,024", "250,000", "7e9", "5e-6"]


def test_a_page_loads_nothing_runs_nothing_and_holds_plots_tables_and_sentences() -> None:
    timeline = lanes("who", "ms", [Lane("rank 0", [Span(0, 1, "work")])], {"work": "compute"})
    parts = bars("a step", "ms", [Bar("naive", {"compute": 200, "exposed": 60})])
    text = page(
        "Title", [Section(title="One", plots=[timeline, parts], heads=("s", "wall"),
                          rows=[("0", "1 ms")], sentences=["So it is."])],
    )  # fmt: skip
    assert not [word for word in ("<script", "src=", "style=") if word in text]
    for word in ("rank 0", "naive", "260", "1 ms", "So it is."):
        assert word in text
    assert svg(timeline) in text


def test_a_png_has_the_same_drawings_one_below_the_other() -> None:
    drawing = plot("t", "x", "y", [Line("a", [1, 2], [1, 2]), Line("b", [1, 2], [2, 1])])
    one, two = (Image.open(io.BytesIO(png([drawing] * count))) for count in (1, 2))
    assert one.width == two.width == 2 * (1040 + 32)
    assert two.height - one.height == 2 * (drawing.height_px + 16)
    assert len(one.getcolors(1 << 24) or ()) > 3


def test_without_pillow_a_png_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError, match=r"pip install 'paceline-service\[plots\]'"):
        png([plot("t", "x", "y", [Line("a", [1, 2], [1, 2])])])
