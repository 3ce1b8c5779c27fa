"""For who has no mouse, sees little, or cannot tell red from green: axe-core and own checks."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.page.conftest import OpenPage, Serve
from tests.e2e.page.looking import until
from tests.e2e.page.page_jobs import PageJob
from tests.e2e.page.page_server import WEB

pytestmark = pytest.mark.e2e

AA = 4.5
AA_SHAPES = 3.0
TOLD_APART = 10.0
"""CIE 1976; about 2 is the least that anybody sees side by side."""
SEEING = {
    # Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
}
FULL_HEIGHT = ("host", "input", "forward", "backward", "optimizer", "copy", "checkpoint")
TEXT_ON = [
    *itertools.product(("ink", "ink-2", "ink-3", "bad"), ("paper", "surface")),
    *itertools.product(("ink", "ink-2", "bad"), ("bad-soft",)),
    ("ink", "line-2"), ("good", "good-soft"), ("note", "note-soft"), ("none", "none-soft"),
    ("surface", "bad"), ("surface", "focus"),
    *((f"on-{phase}", phase) for phase in (*FULL_HEIGHT, "work")),
]  # fmt: skip
SHAPES_ON = [("focus", "paper"), ("focus", "surface"), ("bad", "surface"), ("good", "surface")]
FAULTS = """rules => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  const chosen = rules.length ? { runOnly: { type: "rule", values: rules } } : {};
  const told = ({ violations }) => violations.map(({ id, nodes }) => [id, nodes[0].html]);
  return axe.run(chosen).then(told);
}"""


def linear(colour: str) -> list[float]:
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2."""
    lights = sorted(
        sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear(c), strict=True))
        for c in (one, other)
    )
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def seen(colour: str, how: str) -> tuple[float, float, float]:
    """Return a colour in L*a*b* as somebody who sees ``how`` sees it."""
    rgb = linear(colour)
    r, g, b = (
        min(1.0, max(0.0, sum(share * part for share, part in zip(row, rgb, strict=True))))
        for row in SEEING[how]
    )
    x, y, z = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def palettes() -> dict[str, dict[str, str]]:
    """Return the colours of each theme by name."""
    css = (WEB / "static" / "tokens.css").read_text()
    blocks = re.split(r"color-scheme: (?:light|dark);", css)[1:]
    found = [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block)) for block in blocks]
    assert len(found) == 3
    assert found[1] == found[2], "the dark theme is the same by choice and by the system"
    return {"light": found[0], "dark": found[1]}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_the_contrast_that_wcag_aa_asks_for(theme: str) -> None:
    colours = palettes()[theme]
    pairs = [(pair, AA) for pair in TEXT_ON] + [(pair, AA_SHAPES) for pair in SHAPES_ON]
    weak = {
        pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2)
        for pair, least in pairs
        if contrast(colours[pair[0]], colours[pair[1]]) < least
    }
    assert not weak


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("how", sorted(SEEING))
def test_phases_and_states_differ_for_who_cannot_tell_red_from_green(theme: str, how: str) -> None:
    colours = palettes()[theme]
    pairs = [*itertools.combinations(FULL_HEIGHT, 2), ("bad", "good"), ("bad", "none")]
    alike = {
        pair: round(math.dist(seen(colours[pair[0]], how), seen(colours[pair[1]], how)), 1)
        for pair in pairs
    }
    assert not {pair: apart for pair, apart in alike.items() if apart < TOLD_APART}


def slow_job(**changes: Any) -> PageJob:
    return PageJob(**{"name": "demo", "ranks": 4, "steps": 140, "slow_ranks": (2,), **changes})


def lasting_faults(page: Any) -> Any:
    """Return what axe finds once one address has given way to the next, which takes a moment."""
    found = page.evaluate(FAULTS, [])
    for _ in range(10):
        if not found:
            break
        page.wait_for_timeout(300)
        found = page.evaluate(FAULTS, [])
    return found


def test_axe_finds_nothing_to_mend(serve: Serve, open_page: OpenPage) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python", reason="pip install axe-playwright-python brings axe-core"
    )
    script = Path(axe.__file__).with_name("axe.min.js").read_text()
    jobs = (slow_job(slow_until=100, silent_ranks=(3,)), PageJob("young", ranks=4, steps=6))
    server = serve(*jobs)
    page = open_page(server.url, color_scheme="light", refused=True)
    ready = {
        "#/": ".job-list li", "#/jobs/demo": ".job .incident", "#/jobs/young": "h1#verdict-title",
        "#/incidents?state=all": ".incident", "#/incidents/1": ".incident.alone",
        "#/offenders": "tbody tr", "#/jobs/nope": ".empty",
    }  # fmt: skip
    page.evaluate(script)
    found = {}
    for address, shown in ready.items():
        page.evaluate("address => { location.hash = address; }", address)
        page.locator(shown).first.wait_for(state="attached")
        page.wait_for_timeout(100)
        found[address] = lasting_faults(page)
        page.emulate_media(color_scheme="dark")
        found[f"{address}, dark"] = page.evaluate(FAULTS, ["color-contrast"])
        page.emulate_media(color_scheme="light")
    assert {address: faults for address, faults in found.items() if faults} == {}


def test_every_control_is_reached_by_tab_and_seen_to_have_the_focus(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo")
    page.locator(".incident").wait_for()
    page.locator("#cost tbody button").first.wait_for()
    controls = page.evaluate(
        """() => {
          const all = document.querySelectorAll("a[href], button, input, select, summary, canvas");
          const seen = [...all].filter((node) => node.checkVisibility() && node.tabIndex >= 0);
          seen.forEach((node, i) => { node.dataset.control = i; });
          document.activeElement.blur();
          return seen.length;
        }"""
    )
    reached, unseen = [], []
    for _ in range(controls + 20):
        page.keyboard.press("Tab")
        at, outline = page.evaluate(
            """() => {
              const node = document.activeElement;
              const { outlineStyle, outlineWidth } = getComputedStyle(node);
              return [node.dataset.control ?? "", `${outlineStyle} ${outlineWidth}`];
            }"""
        )
        if at in reached:
            break
        if at:
            reached.append(at)
            if outline.startswith("none") or outline.endswith(" 0px"):
                unseen.append(at)
    assert sorted(map(int, reached)) == list(range(controls))
    assert list(map(int, reached)) == sorted(map(int, reached)), "in the order of the page"
    assert unseen == []


def test_focus_stays_where_it_is_while_figures_come_in(serve: Serve, open_page: OpenPage) -> None:
    server = serve(slow_job())
    page = open_page(f"{server.url}/#/jobs/demo")
    page.locator("#cost tbody button").first.wait_for()
    for selector in ("#cost tbody button", "#ranks tbody button", "#incidents .incident button"):
        page.locator(selector).first.focus()
        before = page.evaluate("document.activeElement.outerHTML")
        steps = server.jobs["demo"].steps + 5
        server.advance("demo", 5)
        until(page, "n => document.querySelector('.figures').textContent.includes(n)", str(steps))
        page.wait_for_timeout(50)
        assert page.evaluate("document.activeElement.outerHTML") == before
