"""The HTML report as a file, opened in a real browser that can reach nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline_service.export.html import html_report
from tests.unit.export.comparisons import comparison
from tests.unit.export.reports import finding, report
from tests.unit.export.test_html import EVIL, evil, story

Opened = tuple[Any, list[str], list[str]]


@pytest.fixture
def open_file(browser: Any, tmp_path: Path) -> Any:
    """Open a document as a file; return the page, what was said and what was asked for."""
    windows: list[Any] = []

    def open_(document: str, *, width: int = 1200, **context: Any) -> Opened:
        path = tmp_path / f"report-{len(windows)}.html"
        path.write_text(document, encoding="utf-8")
        window = browser.new_context(viewport={"width": width, "height": 900}, **context)
        windows.append(window)
        page = window.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append("a dialog"))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        return page, said, asked

    yield open_
    for window in windows:
        window.close()


Open = Callable[..., Opened]


def test_the_file_is_drawn_under_its_policy_and_asks_for_nothing(open_file: Open) -> None:
    page, said, asked = open_file(html_report(report(), story(64)))
    assert page.locator("h1").inner_text().startswith("Rank 2 on node-a is slow")
    assert page.locator("svg.sawtooth").count() == 2
    for kind in ("backward", "wait", "last"):
        box = page.locator(f"svg.sawtooth path.{kind}").first.bounding_box()
        assert box is not None
        assert box["width"] > 100
        assert box["height"] > 1
    colour = "e => getComputedStyle(e).fill"
    assert page.locator("svg.sawtooth path.backward").first.evaluate(colour) == "rgb(42, 118, 184)"
    assert said == []
    assert len(asked) == 1


def test_hostile_names_run_nothing(open_file: Open) -> None:
    hostile = evil(report()) | {"verdict": "straggler"}
    hostile["job"]["name"] = EVIL
    hostile["findings"][0]["kind"] = "straggler"
    page, said, asked = open_file(html_report(hostile, story(4, asked=EVIL)))
    assert page.locator("script, img").count() == 0
    assert "<script>alert(1)</script>" in page.locator("header").inner_text()
    assert said == []
    assert len(asked) == 1


def test_it_is_dark_where_the_reader_wants_it_and_light_on_paper(open_file: Open) -> None:
    page, _, _ = open_file(html_report(report(), story(4)), color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(13, 18, 24)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert ink == "rgb(20, 32, 44)"
    assert len(page.pdf(format="A4")) > 10_000


def test_on_a_narrow_screen_only_drawings_and_tables_scroll_sideways(open_file: Open) -> None:
    page, _, _ = open_file(html_report(report(), story(64)), width=420)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_mend(open_file: Open, scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python", reason="pip install axe-playwright-python brings axe-core"
    )
    script = Path(axe.__file__).with_name("axe.min.js").read_text()
    told = report(ranks=64, findings=[finding(), finding(ranks=[3], kind="imbalance")])
    page, _, _ = open_file(html_report(told, story(64)), color_scheme=scheme)
    page.evaluate(script)
    found = page.evaluate(
        "axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html.slice(0, 200))]))"
    )
    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_comparison_is_drawn_under_the_same_policy_and_can_be_read_aloud(
    open_file: Open, scheme: str
) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python", reason="pip install axe-playwright-python brings axe-core"
    )
    page, said, asked = open_file(comparison(), color_scheme=scheme)
    assert page.locator("h1").inner_text().startswith("Steps take")
    lines = page.locator("svg.chart path.line")
    assert lines.count() == 2
    assert lines.first.bounding_box()["width"] > 500
    page.evaluate(Path(axe.__file__).with_name("axe.min.js").read_text())
    found = page.evaluate(
        "axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html.slice(0, 200))]))"
    )
    assert found == []
    assert said == []
    assert len(asked) == 1
