from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from tests.e2e.page.conftest import OpenPage, Serve
from tests.e2e.page.looking import DASH, until, until_text
from tests.e2e.page.page_jobs import PageJob
from tests.e2e.page.page_timeline import timeline

pytestmark = pytest.mark.e2e

CANVAS = ".timeline canvas"
RANGE = ".timeline .range"
DATA = "document.querySelector('.timeline canvas')?.dataset"
READ = """
async ([trace, step, rank]) => {
  const { KINDS, readTrace } = await import("/static/cells.js");
  const cell = readTrace(trace).cells.get(step).get(rank);
  return {
    pieces: [...cell.kinds].map((kind, i) => [KINDS[kind], cell.times[2 * i] / 1e6, cell.times[2 * i + 1] / 1e6]),
    behind: cell.hidden.map((one) => [one.about.op, one.start / 1e6, one.end / 1e6]),
    lasts: cell.lasts.map((one) => [one.last, one.at / 1e6, one.lateNs / 1e6]),
  };
}
"""  # noqa: E501
AXIS = """
async ([view, width, steps]) => {
  const { TimeAxis } = await import("/static/timeaxis.js");
  const axis = new TimeAxis(view, width, (step) => steps[step] ?? null);
  return { at: steps.map((_, step) => axis.x(step)), under: axis.under(axis.xAt(1, 40)).relNs, cut: axis.isCut(2) };
}
"""  # noqa: E501


class StandingJob(PageJob):
    """A job that hangs: its last rank has not come to a collective."""

    def _make_report(self) -> dict[str, Any]:
        finding = {
            "kind": "hang", "ranks": [self.ranks - 1], "nodes": ["node-000"], "cause": "host",
            "phase": None, "first_step": self.steps, "last_step": None, "slowdown": None,
            "recoverable_ratio": None, "wasted_gpu_s": 561.0, "confidence": None, "links": [],
            "collective": {"group": "dp0", "op": "all_reduce", "seq": 1443, "age_s": 187.0},
            "period_steps": None, "evidence": ["rank 3 never issued it"], "action": "py-spy dump",
        }  # fmt: skip
        return {**PageJob._make_report(self), "verdict": "hang", "findings": [finding]}

    def rank_rows(self) -> dict[str, Any]:
        rows = PageJob.rank_rows(self)["ranks"]
        return {"ranks": [{**row, "pending_s": 186.0 if row["rank"] < 3 else None} for row in rows]}


def slow_job(**changes: Any) -> PageJob:
    return PageJob(**{"name": "demo", "ranks": 4, "steps": 140, "slow_ranks": (2,), **changes})


def big_job(**changes: Any) -> PageJob:
    node_42 = tuple(range(336, 344))
    return PageJob(**{"name": "big", "ranks": 1024, "steps": 80, "slow_ranks": node_42, **changes})


def ordered(page: Any, cells: int = 1) -> None:
    """Wait until the order within steps is drawn."""
    until(page, f"{DATA}?.ordered >= {cells}")


def timelines_asked(server: Any) -> list[str]:
    return [path for path, _ in server.requests_seen if "/timeline?" in path]


def test_pieces_of_a_step_follow_each_other_as_they_happened(
    serve: Serve, open_page: OpenPage
) -> None:
    job = slow_job()
    page = open_page(serve(job).url)
    trace = timeline(job, 100, 100, 1, [0, 1, 2, 3])
    slow, fast = (page.evaluate(READ, [trace, 100, rank]) for rank in (2, 0))
    names = [piece[0] for piece in fast["pieces"]]
    assert names == ["host", "input", "forward", "backward", "wait", "comm", "optimizer"]
    assert "wait" not in [piece[0] for piece in slow["pieces"]]
    for pieces in (fast["pieces"], slow["pieces"]):
        assert all(before[2] == pytest.approx(after[1]) for before, after in pairwise(pieces))
    wait = fast["pieces"][4]
    assert wait[2] - wait[1] > 20
    assert slow["lasts"] == [[2, pytest.approx(wait[2]), pytest.approx(wait[2] - wait[1], rel=0.3)]]
    assert fast["lasts"] == []
    assert [one[0] for one in fast["behind"]] == ["all_reduce"], "one runs behind the backward pass"


def test_axis_is_real_time_with_gaps_and_long_steps_cut(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(serve().url)
    starts = [0, 100, 200, 2200, 2300, 2400]
    steps = [{"startWallNs": at, "durationNs": 90} for at in starts]
    shown = page.evaluate(AXIS, [{"from": 0, "to": 5}, 800, steps])
    assert shown["at"][:6] == pytest.approx([0, 100, 200, 600, 700, 800])
    assert shown["under"] == pytest.approx(40)
    assert shown["cut"]


def test_timeline_draws_the_order_and_says_who_comes_last(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(slow_job())
    page = open_page(f"{server.url}/#/jobs/demo?from=100&to=106")
    ordered(page, 24)
    assert page.evaluate(f"{DATA}.barriers") == "6"
    assert re.search(r"steps 100.105 . 9\d\d\sms", page.inner_text(RANGE))
    words = page.inner_text("#timeline-words")
    assert "Rank 2 comes last in 6 of 6 steps; it waits 0.0" in words
    assert re.search(r"the others 2\d\s%", words)
    assert page.get_attribute(CANVAS, "aria-describedby").split()[0] == "timeline-words"
    assert len(timelines_asked(server)) == 1


def test_keys_go_from_barrier_to_barrier_and_tell_who_came_last(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo?from=100&to=106")
    ordered(page, 24)
    page.focus(CANVAS)
    told = page.locator(".timeline [aria-live]")
    page.keyboard.press("b")
    until_text(page, ".timeline [aria-live]", "Step 100: rank 2 on node-000 comes last")
    assert "all_reduce 201 of dp0, 25 MiB" in told.inner_text()
    assert re.search(r"\d\d\.\d\sms after the first; 3 of the ranks drawn wait", told.inner_text())
    page.keyboard.press("b")
    until_text(page, ".timeline [aria-live]", "Step 101: rank 2")
    page.keyboard.press("Shift+B")
    until_text(page, ".timeline [aria-live]", "Step 100: rank 2")


def test_pointer_tells_what_a_rank_does_at_that_moment(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo?from=100&to=101")
    ordered(page, 4)
    box = page.evaluate(f"document.querySelector('{CANVAS}').clientWidth")
    page.hover(CANVAS, position={"x": 164 + 0.72 * (box - 354), "y": 60})
    page.locator("#tooltip").wait_for()
    tip = page.inner_text("#tooltip")
    assert re.search(r"rank 0 on node-000 . step 100 \+ 1\d\d\sms", tip)
    assert re.search(r"waits\s+\d\d\.\d\sms", tip)
    assert "until rank 2 arrives at all_reduce 201 of dp0, 25 MiB" in tip


def test_fingers_pan_and_zoom(serve: Serve, open_page: OpenPage) -> None:
    url = f"{serve(slow_job()).url}/#/jobs/demo?from=100&to=110"
    page = open_page(url, has_touch=True)
    ordered(page)
    page.locator(CANVAS).scroll_into_view_if_needed()
    box = page.locator(CANVAS).bounding_box()
    y = box["y"] + 80
    device = page.context.new_cdp_session(page)

    def touch(kind: str, *xs: float) -> None:
        points = [{"x": x, "y": y, "id": i} for i, x in enumerate(xs)]
        device.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 500)
    touch("touchMove", 560)
    touch("touchMove", 680)
    touch("touchEnd")
    until(page, "!document.querySelector('.timeline .range').textContent.includes('100')")
    touch("touchStart", 480, 620)
    touch("touchMove", 400, 700)
    touch("touchMove", 200, 900)
    touch("touchEnd")
    until(page, f"{DATA}.ordered > 0 && {DATA}.ordered <= 16")


def test_thousands_of_steps_are_shown_without_asking_for_their_order(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(slow_job(steps=3000, slow_from=1500))
    page = open_page(f"{server.url}/#/jobs/demo?from=0&to=3000")
    until_text(page, "#timeline-words", "of 3,000 steps")
    assert int(page.evaluate(f"{DATA}.bin")) >= 8
    assert page.evaluate(f"{DATA}.ordered") == "0"
    assert "zoom in for the order" in page.inner_text(RANGE)
    assert timelines_asked(server) == []
    page.focus(CANVAS)
    for _ in range(9):
        page.keyboard.press("+")
    ordered(page)
    asked = timelines_asked(server)
    assert asked
    assert all(0 < _steps(path) <= 200 for path in asked)


def test_order_that_is_not_kept_is_said_and_shares_are_drawn(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(slow_job(raw_from=60))
    page = open_page(f"{server.url}/#/jobs/demo?from=20&to=30", refused=True)
    until_text(page, RANGE, "is not kept any more")
    assert page.evaluate(f"{DATA}.ordered") == "0"
    assert len(timelines_asked(server)) == 1, "it is not asked for again and again"


def test_thousand_ranks_are_lanes_by_node_and_the_slow_one_is_open(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(big_job(steps=240, slow_from=100))
    page = open_page(f"{server.url}/#/jobs/big")
    until_text(page, "#timeline-words", "One of node-042 comes last")
    until(page, f"{DATA}.lanes === '136'")  # 128 nodes, and the 8 ranks of the slow one
    ordered(page, 100)
    page.focus(CANVAS)
    page.keyboard.press("ArrowDown")
    until_text(page, ".timeline [aria-live]", "rank 336 on node-042")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    until(page, f"{DATA}.lanes === '128'")
    again = open_page(page.url)
    until_text(again, "#timeline-words", "One of node-042 comes last")
    until(again, f"{DATA}.lanes === '128'")
    assert max(_steps(path) for path in timelines_asked(server)) < 20, "pages stay small"
    page.locator(".timeline").get_by_role("button", name="All steps").click()
    until_text(page, "#timeline-words", "One of node-042 comes last in")
    until_text(page, "#timeline-words", "of 240 steps")
    until_text(page, "#heat-words", f"Steps 0{DASH}239, 1,024 ranks")


def test_job_that_stands_still_shows_who_has_not_come(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(f"{serve(StandingJob('still', ranks=4, steps=60)).url}/#/jobs/still")
    until_text(page, "#timeline-words", "The job hangs: rank 3 holds everyone up, for 3.12")
    assert "at all_reduce 1443 of dp0." in page.inner_text("#timeline-words")
    page.focus(CANVAS)
    page.keyboard.press("ArrowDown")
    until_text(page, ".timeline [aria-live]", "since the last step waits 3.10")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    until_text(page, ".timeline [aria-live]", "since the last step has not come")


def test_new_steps_come_with_their_order(serve: Serve, open_page: OpenPage) -> None:
    server = serve(slow_job())
    page = open_page(f"{server.url}/#/jobs/demo")
    until_text(page, RANGE, f"{DASH}139 ")
    ordered(page)
    before = int(page.evaluate(f"{DATA}.ordered"))
    asked = len(timelines_asked(server))
    server.advance("demo", 3)
    until_text(page, RANGE, f"{DASH}142 ")
    until(page, f"{DATA}.ordered >= {before}")
    until(page, "!document.querySelector('.timeline .range').textContent.includes('loading')")
    new = timelines_asked(server)[asked:]
    assert new
    assert all(int(first) >= 140 for path in new for first in re.findall(r"from=(\d+)", path))


def test_heatmap_moves_over_steps_like_the_lanes(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(f"{serve(slow_job(ranks=32, steps=600)).url}/#/jobs/demo?from=400&to=440")
    until_text(page, ".sawtooth .range", f"400{DASH}439")
    page.focus(".heat-wrap canvas")
    page.keyboard.press("ArrowLeft")
    until_text(page, ".sawtooth .range", f"390{DASH}429")
    page.keyboard.press("Home")
    until_text(page, ".sawtooth .range", f"steps 0{DASH}39")
    page.keyboard.press("End")
    until_text(page, ".sawtooth .range", f"560{DASH}599")


def test_sawtooth_and_timeline_show_the_same_steps_and_the_address_keeps_parts_of_one(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo?from=100.2&to=100.8&lanes=all")
    until_text(page, RANGE, "step 100 ")
    until_text(page, ".sawtooth .range", f"{DASH}102")
    page.focus(CANVAS)
    page.keyboard.press("ArrowRight")
    until(page, "location.hash.includes('from=100.35')")


def _steps(path: str) -> int:
    numbers = dict(re.findall(r"(from|to)=(\d+)", path))
    return int(numbers["to"]) - int(numbers["from"]) + 1
