from __future__ import annotations

import re
from typing import Any

import pytest

from tests.e2e.page.conftest import OpenPage, Serve
from tests.e2e.page.looking import DASH, until, until_text
from tests.e2e.page.page_jobs import HANG, PageJob

pytestmark = pytest.mark.e2e

LANES = ".lanes canvas"
COUNT_PIXELS = """
([colour, top, bottom]) => {
  const canvas = document.querySelector(".lanes canvas");
  const scale = canvas.width / canvas.clientWidth;
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(colour);
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
  const y = Math.round(top * scale);
  const { data } = canvas.getContext("2d").getImageData(0, y, canvas.width, Math.round((bottom - top) * scale));
  let n = 0;
  for (let i = 0; i < data.length; i += 4) if (data[i] === r && data[i + 1] === g && data[i + 2] === b) n += 1;
  return n;
}
"""  # noqa: E501
AXIS_PX = 26
LANE_PX = 54  # of a job of four


def slow_job(**changes: Any) -> PageJob:
    return PageJob(**{"name": "demo", "ranks": 4, "steps": 140, "slow_ranks": (2,), **changes})


def drawn(page: Any) -> None:
    until(page, "document.querySelector('.lanes canvas')?.dataset.teeth > 0")


def lane_pixels(page: Any, colour: str, lane: int) -> int:
    top = AXIS_PX + lane * LANE_PX
    return int(page.evaluate(COUNT_PIXELS, [colour, top, top + LANE_PX]))


def test_list_names_each_job_with_its_state_verdict_and_slowdown(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(slow_job(), PageJob("calm", ranks=8, steps=90, state="ended"))
    page = open_page(server.url)
    rows = page.locator(".job-list li")
    rows.first.wait_for()
    assert rows.count() == 2
    first = rows.nth(0).inner_text()
    assert "demo" in first
    assert "Straggler" in first
    assert "rank 2 is slow in backward" in first
    assert re.search(r"1\.[12]\d\u00d7", first)
    assert "running" in first
    second = rows.nth(1).inner_text()
    assert "Healthy" in second
    assert "ended" in second


def test_list_without_jobs_says_what_to_run(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(serve().url)
    page.get_by_text("No job has reported yet").wait_for()
    assert "make demo" in page.inner_text("main")
    assert "paceline run" in page.inner_text("main")


def test_job_is_reached_from_the_list_by_keyboard_alone(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(serve(slow_job()).url)
    page.locator(".job-list a").wait_for()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.job-list a')"):
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Rank 2 is slow in the backward pass", level=1).wait_for()


def test_verdict_gives_evidence_cause_cost_and_next_command(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo")
    page.get_by_role("heading", name="Rank 2 is slow in the backward pass", level=1).wait_for()
    verdict = page.inner_text(".verdict")
    assert re.search(r"since step 60 takes 1\.[12]\d\u00d7 as long while 3 other ranks", verdict)
    assert re.search(r": \d+\.\d GPU-s so far", verdict)
    assert "its backward takes 37.2 ms longer" in verdict
    assert "its compute takes longer" in verdict
    assert "scontrol update nodename=node-000" in verdict
    figures = page.inner_text(".figures")
    for name in ("Slowdown", "Idle", "Wasted", "Gamma"):
        assert name in figures


def test_slow_rank_is_drawn_working_while_the_others_stand_on_the_floor(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo")
    drawn(page)
    waits = [lane_pixels(page, "--wait", lane) for lane in range(4)]
    works = [lane_pixels(page, "--backward", lane) for lane in range(4)]
    assert waits[2] < 0.2 * min(waits[0], waits[1], waits[3])
    assert works[2] > 1.3 * max(works[0], works[1], works[3])
    assert lane_pixels(page, "--bad-soft", 2) > 0
    assert lane_pixels(page, "--bad-soft", 0) == 0


def test_sawtooth_is_told_in_words_beside_the_canvas(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo")
    drawn(page)
    words = page.locator("#sawtooth-words").inner_text()
    assert re.search(r"Rank 2 waits 0\.\d % of the time shown; the other 3 wait 2\d %", words)
    assert page.get_attribute(LANES, "aria-describedby").split()[0] == "sawtooth-words"


def test_healthy_job_is_called_healthy_and_nobody_is_marked(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(f"{serve(PageJob('calm', ranks=8, steps=120)).url}/#/jobs/calm")
    page.get_by_role("heading", name="Healthy: no rank sets the pace", level=1).wait_for()
    drawn(page)
    assert page.locator("#ranks tr.slow").count() == 0
    assert page.locator(".tone-bad").count() == 0


def test_missing_ranks_and_drops_are_shown(serve: Serve, open_page: OpenPage) -> None:
    job = PageJob("young", ranks=4, steps=6, missing_ranks=(3,), dropped={"ring_overwritten": 1289})
    page = open_page(f"{serve(job).url}/#/jobs/young")
    page.get_by_role("heading", name="Not enough evidence yet", level=1).wait_for()
    assert "1,289 dropped" in page.inner_text(".figures")
    data = page.inner_text("#data")
    assert "3 of 4; nothing yet from 3" in data
    assert "1,289 ring overwritten" in data


def test_ranks_sort_by_any_column_and_the_address_keeps_it(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(slow_job())
    page = open_page(f"{server.url}/#/jobs/demo")
    first = page.locator("#ranks tbody tr").first
    first.wait_for()
    assert "slow" in first.inner_text()
    page.get_by_role("button", name="Waits").click()
    assert "slow" not in page.locator("#ranks tbody tr").first.inner_text()
    assert "sort=wait.down" in page.url
    again = open_page(page.url)
    again.locator("#ranks tbody tr").first.wait_for()
    assert again.locator('#ranks th[aria-sort="descending"]').inner_text().startswith("Waits")


def test_deep_link_opens_the_steps_it_names(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(f"{serve(slow_job(steps=400)).url}/#/jobs/demo?from=40&to=60")
    until_text(page, ".range", f"40{DASH}59")
    assert (
        page.locator("#sawtooth")
        .get_by_role("button", name="Follow live")
        .get_attribute("aria-pressed")
        == "false"
    )
    until_text(page, "#sawtooth-words", "the other 3 wait")


def test_keys_move_zoom_and_follow(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo")
    drawn(page)
    page.focus(LANES)
    follow = page.locator("#sawtooth").get_by_role("button", name="Follow live")
    shown = page.locator(".sawtooth .range")
    before = shown.inner_text()
    page.keyboard.press("ArrowLeft")
    until(page, "text => document.querySelector('.range').textContent !== text", before)
    assert follow.get_attribute("aria-pressed") == "false"
    page.keyboard.press("Home")
    until_text(page, ".range", f"steps 0{DASH}")
    teeth = int(page.get_attribute(LANES, "data-teeth"))
    page.keyboard.press("+")
    until(page, "n => document.querySelector('.lanes canvas').dataset.teeth < n", teeth)
    page.keyboard.press("f")
    until_text(page, ".range", f"{DASH}139")
    assert follow.get_attribute("aria-pressed") == "true"


def test_arrow_down_tells_a_lanes_figures(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo")
    drawn(page)
    page.focus(LANES)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    told = page.locator(".sawtooth [aria-live]")
    until(page, "document.querySelector('.sawtooth [aria-live]').textContent")
    assert "rank 2" in told.inner_text()
    assert re.search(r"backward \d+(\.\d)? ms", told.inner_text())
    assert "arrives last" in told.inner_text()


def test_pointer_over_a_step_shows_its_figures_with_units(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo")
    drawn(page)
    page.hover(LANES, position={"x": 500, "y": AXIS_PX + 10})
    page.locator("#tooltip").wait_for()
    tip = page.inner_text("#tooltip")
    assert "rank 0 on node-000 · step " in tip
    assert re.search(r"waits\s+\d+(\.\d+)? ms \(\d+ %\)", tip)
    assert "waits for rank 2" in tip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_follows_the_systems_theme_and_the_button_overrides_it(
    serve: Serve, open_page: OpenPage, scheme: str
) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo", color_scheme=scheme)
    drawn(page)
    dark = "getComputedStyle(document.documentElement).backgroundColor === 'rgb(13, 18, 24)'"
    assert page.evaluate(dark) is (scheme == "dark")
    page.click("#theme")
    assert page.evaluate(dark) is False
    page.click("#theme")
    assert page.evaluate(dark) is True
    page.wait_for_timeout(100)
    assert lane_pixels(page, "--backward", 2) > 0
    page.reload()
    assert page.evaluate(dark) is True


HOSTILE = "<img src=x onerror=\"document.title='owned'\">/../?&#"


def test_hostile_names_and_texts_stay_text(serve: Serve, open_page: OpenPage) -> None:
    job = slow_job(name=HOSTILE, action="<script>document.title='owned'</script>")
    page = open_page(serve(job).url)
    page.locator(".job-list a").click()
    page.get_by_role("heading", name="Rank 2 is slow in the backward pass", level=1).wait_for()
    drawn(page)
    assert page.inner_text("#crumbs") == HOSTILE
    assert page.inner_text(".verdict .command") == "<script>document.title='owned'</script>"
    assert page.locator("main img, main script").count() == 0
    assert page.title() == f"{HOSTILE} {DASH} Paceline"


def test_unknown_job_is_said_to_be_unknown(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/nope", refused=True)
    page.get_by_role("heading", name="No such job", level=1).wait_for()
    assert "nope" in page.inner_text("main")


def test_token_is_asked_for_and_kept_for_the_tab(serve: Serve, open_page: OpenPage) -> None:
    server = serve(slow_job(), token="right")
    page = open_page(f"{server.url}/#/jobs/demo", refused=True)
    page.fill('input[name="token"]', "wrong")
    page.keyboard.press("Enter")
    page.get_by_text("That token was not accepted").wait_for()
    page.fill('input[name="token"]', "right")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Rank 2 is slow in the backward pass", level=1).wait_for()
    drawn(page)
    assert all("right" not in path for path, _ in server.requests_seen)
    page.reload()
    page.get_by_role("heading", name="Rank 2 is slow in the backward pass", level=1).wait_for()
    assert page.evaluate("localStorage.getItem('paceline-token')") is None


def test_narrow_screen_needs_no_sideways_scrolling(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo", width=390)
    drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    until_text(page, "#expected tbody", "Slow ranks")
    table = "document.querySelector('#expected .table-scroll')"
    assert page.evaluate(f"{table}.scrollWidth <= {table}.clientWidth")


def test_slowness_that_is_over_is_told_in_the_past(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(f"{serve(slow_job(slow_until=100)).url}/#/jobs/demo")
    page.get_by_role("heading", name="Rank 2 was slow in the backward pass", level=1).wait_for()
    assert f"Steps 60{DASH}99 took" in page.inner_text(".verdict")


def test_the_expected_step_of_a_job_that_stands_still_is_told_in_the_past(
    serve: Serve, open_page: OpenPage
) -> None:
    job = PageJob("vision", ranks=8, steps=240, finding=HANG, pending_s=187.0)
    page = open_page(f"{serve(job).url}/#/jobs/vision")
    until_text(page, "#expected .lead", "The job stands still. Before, a step took")
    words = page.inner_text("#expected .lead")
    assert "With healthy ranks it would have taken" in words
    assert words.endswith("it took what it should.")
