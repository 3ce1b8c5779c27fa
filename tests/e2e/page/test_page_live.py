from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.page.conftest import OpenPage, Serve
from tests.e2e.page.looking import DASH, until, until_text
from tests.e2e.page.page_jobs import PageJob

pytestmark = pytest.mark.e2e

FEED = """
async ([text, sizes]) => {
  const { EventParser } = await import("/static/stream.js");
  const parser = new EventParser();
  const out = [];
  for (let at = 0; at < text.length; at += sizes) out.push(...parser.feed(text.slice(at, at + sizes)));
  return out;
}
"""  # noqa: E501


def slow_job(**changes: Any) -> PageJob:
    return PageJob(**{"name": "demo", "ranks": 4, "steps": 50, "slow_ranks": (2,), **changes})


def shows_last_step(page: Any, step: int) -> None:
    until_text(page, ".sawtooth .range", f"{DASH}{step}")


def test_new_steps_and_the_forming_verdict_arrive_by_themselves(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(slow_job())
    page = open_page(f"{server.url}/#/jobs/demo")
    page.get_by_role("heading", name="Healthy", level=1).wait_for()
    shows_last_step(page, 49)
    server.advance("demo", 40)
    page.get_by_role("heading", name="Rank 2 is slow in the backward pass", level=1).wait_for()
    shows_last_step(page, 89)
    assert page.inner_text("#link-state") == "live"


def test_view_that_was_moved_away_stays_where_it_is(serve: Serve, open_page: OpenPage) -> None:
    server = serve(slow_job())
    page = open_page(f"{server.url}/#/jobs/demo?from=10&to=30")
    shows_last_step(page, 29)
    server.advance("demo", 10)
    until(page, "document.querySelector('.figures').textContent.includes('60')")
    shows_last_step(page, 29)


def test_lost_stream_resumes_after_the_last_step_it_had(serve: Serve, open_page: OpenPage) -> None:
    server = serve(slow_job())
    page = open_page(f"{server.url}/#/jobs/demo")
    shows_last_step(page, 49)
    server.drop_streams()
    server.advance("demo", 3)
    shows_last_step(page, 52)
    streams = [headers for path, headers in server.requests_seen if "/events" in path]
    assert len(streams) == 2
    assert streams[1]["Last-Event-ID"] == "49"


def test_page_polls_where_streams_do_not_get_through(serve: Serve, open_page: OpenPage) -> None:
    server = serve(slow_job())
    server.streams_refused = True
    page = open_page(f"{server.url}/#/jobs/demo", refused=True)
    shows_last_step(page, 49)
    until(page, "document.querySelector('#link-state').textContent.includes('polling')")
    server.advance("demo", 5)
    shows_last_step(page, 54)


def test_restarted_job_is_shown_anew(serve: Serve, open_page: OpenPage) -> None:
    server = serve(slow_job())
    page = open_page(f"{server.url}/#/jobs/demo")
    shows_last_step(page, 49)
    server.jobs["demo"] = slow_job(attempt=2, steps=9)
    server.drop_streams()
    page.get_by_role("heading", name="Not enough evidence yet", level=1).wait_for()
    shows_last_step(page, 8)


def test_thousand_ranks_are_readable(serve: Serve, open_page: OpenPage) -> None:
    node_42 = tuple(range(336, 344))
    server = serve(PageJob("big", ranks=1024, steps=160, slow_ranks=node_42, slow_phase="forward"))
    page = open_page(f"{server.url}/#/jobs/big")
    page.get_by_role("heading", name="node-042 is slow in the forward pass", level=1).wait_for()
    until(page, "document.querySelector('.lanes canvas').dataset.teeth > 0")
    until(page, "document.querySelector('#heat-words').textContent.includes('on node-042 wait')")
    lanes = int(page.get_attribute(".lanes canvas", "data-lanes"))
    assert 10 < lanes < 40
    assert page.locator("#ranks tbody tr").count() < 60


def test_all_thousand_lanes_scroll_in_a_canvas_of_screen_size(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(PageJob("big", ranks=1024, steps=40))
    page = open_page(f"{server.url}/#/jobs/big?lanes=all")
    until(page, "document.querySelector('.lanes canvas')?.dataset.lanes === '1024'")
    assert page.evaluate("document.querySelector('.lanes canvas').clientHeight") < 800
    page.evaluate("document.querySelector('.lanes').scrollTop = 1e9")
    page.focus(".lanes canvas")
    page.keyboard.press("ArrowUp")
    page.get_by_label("rank or node").first.fill("node-127")
    until(page, "document.querySelectorAll('#ranks tbody tr').length === 8")


def test_nodes_that_are_opened_are_in_the_address_of_each_chart(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(PageJob("big", ranks=64, steps=40))
    page = open_page(f"{server.url}/#/jobs/big?lanes=nodes")
    charts = [".sawtooth .lanes canvas", ".timeline .lanes canvas"]
    for chart, lanes in zip(charts, (2, 1), strict=True):
        until(page, lanes_are(chart, 8))
        page.focus(chart)
        for opened in range(lanes):
            page.keyboard.press("Enter")
            until(page, lanes_are(chart, 16 + 8 * opened))
            for _ in range(9):  # over the ranks of the node, to the next node
                page.keyboard.press("ArrowDown")
    address = page.url
    assert address.count("open=") == 3
    assert address.count("timeline-open=") == 1
    again = open_page(address)
    until(again, lanes_are(charts[0], 24))
    until(again, lanes_are(charts[1], 16))
    # A link to a section of the same page keeps what is open, and does not load the page anew.
    again.evaluate("document.querySelector('.sawtooth .lanes canvas').same = true")
    again.get_by_role("link", name="Gamma").click()
    until(again, "location.hash.includes('at=gamma')")
    assert again.url.count("open=") == 3
    assert again.evaluate("document.querySelector('.sawtooth .lanes canvas').same")


def lanes_are(chart: str, lanes: int) -> str:
    return f"document.querySelector('{chart}')?.dataset.lanes === '{lanes}'"


def test_heatmap_row_pins_its_ranks_lane(serve: Serve, open_page: OpenPage) -> None:
    server = serve(PageJob("big", ranks=64, steps=40))
    page = open_page(f"{server.url}/#/jobs/big")
    until(page, "document.querySelector('#heat-words')?.textContent.includes('64 ranks')")
    page.focus(".heat-wrap canvas")
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('rank=5')")


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_parsed_however_they_are_cut(
    serve: Serve, open_page: OpenPage, size: int
) -> None:
    page = open_page(serve().url)
    text = ": hello\r\nevent: steps\r\nid: 7\r\ndata: {\ndata: }\r\n\r\nretry: 9\n\ndata: x\n\n"
    assert page.evaluate(FEED, [text, size]) == [
        {"event": "steps", "data": "{\n}", "id": "7"},
        {"event": "message", "data": "x", "id": "7"},
    ]


def test_figures_carry_units_and_unknown_is_a_dash(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(serve().url)
    shown = page.evaluate(
        """async () => {
          const f = await import("/static/format.js");
          return [f.duration(1_420_000), f.duration(null), f.duration(3.2e9), f.gpuTime(91.7),
            f.gpuTime(7200), f.percent(0.123), f.percent(0.004), f.times(null),
            f.rankList([0, 1, 2, 5, 8, 9]), f.counted(1, "rank"), f.counted(1024, "rank")];
        }"""
    )
    plain = json.loads(json.dumps(shown).replace("\\u202f", " ").replace("\\u2009", " "))
    assert plain == [
        "1.42 ms", DASH, "3.20 s", "91.7 GPU-s", "2.00 GPU-h", "12 %", "0.4 %", DASH,
        f"0{DASH}2, 5, 8{DASH}9", "1 rank", "1,024 ranks",
    ]  # fmt: skip
