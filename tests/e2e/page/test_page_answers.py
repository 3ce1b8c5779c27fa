"""The parts below the charts: cost, what-if, gamma, agents, incidents of all jobs, offenders."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from paceline_service.control.schemas import JobSettingsView
from paceline_service.incidents import schemas as incidents
from paceline_service.jobs import schemas as jobs
from tests.e2e.page import page_people
from tests.e2e.page.conftest import OpenPage, Serve
from tests.e2e.page.looking import DASH, until, until_text
from tests.e2e.page.page_jobs import PageJob

pytestmark = pytest.mark.e2e

NODE_5 = tuple(range(40, 48))


def slow_job(**changes: Any) -> PageJob:
    return PageJob(**{"name": "demo", "ranks": 4, "steps": 140, "slow_ranks": (2,), **changes})


def slow_node(**changes: Any) -> PageJob:
    job = {"name": "llm", "ranks": 64, "steps": 120, "slow_ranks": NODE_5, "slow_ratio": 0.5}
    return PageJob(**{**job, **changes})


def test_stand_in_answers_in_the_shapes_of_the_collector() -> None:
    ended = slow_job(name="old", state="ended", silent_ranks=(1,), earlier_incidents=2)
    for job in (slow_job(), slow_node(), ended, PageJob("young", ranks=4, steps=6)):
        jobs.JobDetail.model_validate(job.detail())
        jobs.JobList.model_validate({"jobs": [job.row()], "next": None})
        jobs.RankList.model_validate(job.rank_rows())
        jobs.Report.model_validate(job.report())
        jobs.Steps.model_validate(job.columns(0, 3, None, True))
        jobs.WhatIf.model_validate(page_people.what_if(job, "rank:2"))
        JobSettingsView.model_validate(page_people.settings(job))
        rows = page_people.incidents(job, 1)
        incidents.IncidentList.model_validate({"incidents": rows, "next": None})
    offenders = {"offenders": page_people.offenders([slow_job(), ended]), "next": None}
    incidents.OffenderList.model_validate(offenders)


def test_cost_names_the_node_that_is_to_blame_and_what_it_gives_back(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(f"{serve(slow_node()).url}/#/jobs/llm")
    until_text(page, "#cost tbody", "GPU-h a day")
    first = page.locator("#cost tbody tr").first.inner_text()
    assert "node-005" in first
    assert "its compute takes longer" in first
    assert re.search(r"100 %\s+\d+\s+\d+ %\s+\d+ GPU-h a day", first)
    assert "because its compute takes longer" in page.inner_text("#cost .words")
    page.locator("#cost select").select_option("rank")
    until_text(page, "#cost tbody", "rank 40 on node-005")
    assert page.locator("#cost tbody tr").count() == len(NODE_5)


def test_what_if_tells_speed_and_gpu_hours_and_its_address_can_be_passed_on(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(slow_node())
    page = open_page(f"{server.url}/#/jobs/llm?at=what-if")
    field = page.get_by_label("Ranks or node to leave out")
    field.fill("node-005")
    field.press("Enter")
    back = server.jobs["llm"].report()["findings"][0]["recoverable_ratio"]
    faster, gpu_hours = 100 * (1 / (1 - back) - 1), 24 * 64 * back
    told = f"Without node-005: {faster:.0f} % faster, {gpu_hours:.0f} GPU-h a day."
    until_text(page, "#what-if [role=status]", told)
    again = open_page(page.url)
    until_text(again, "#what-if [role=status]", told)
    field.fill("7")
    field.press("Enter")
    until_text(page, "#what-if [role=status]", "Without rank 7: no faster.")


def test_the_expected_step_stands_beside_the_observed_one_with_what_it_loses(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(PageJob("demo", ranks=8, steps=140, slow_ranks=(2,)), PageJob("calm", 8, 90))
    page = open_page(f"{server.url}/#/jobs/demo?at=expected")
    until_text(page, "#expected", "most of that: slow ranks")
    block = server.jobs["demo"].report()["expected"]
    lost = page.locator("#expected tbody tr", has_text="Slow ranks").first.inner_text()
    assert f"{block['gap_parts_s']['straggler'] * 1e3:.1f}" in lost
    expected, observed = (
        sum(part.bounding_box()["width"] for part in track.locator(".swatch").all())
        for track in page.locator(".step-bars .track").all()
    )
    assert observed / expected == pytest.approx(1 + block["gap_ratio"], rel=0.02)
    page.goto(f"{server.url}/#/jobs/calm?at=expected")
    until_text(page, "#expected", "it takes what it should")


def test_gamma_tells_what_it_means_and_where_it_breaks_even(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(PageJob("calm", ranks=8, steps=120))
    page = open_page(f"{server.url}/#/jobs/calm")
    until_text(page, "#gamma", "Break-even")
    gamma = server.jobs["calm"].report()["gamma"]
    text = page.inner_text("#gamma")
    assert f"Gamma is {gamma:.2f}" in text
    assert "Compute sets the pace" in text
    assert "now there are 8" in text
    assert "Assumed: ranks are added or taken away as data-parallel ones" in text
    assert page.locator("#gamma tbody tr", has_text="now").inner_text().startswith("8")


def test_break_even_is_where_ring_transfers_take_as_long_as_compute(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(serve().url)
    measured, compute_s, whole_ring_s = 16, 10.0, 3.0

    def gamma_of(ranks: int) -> float:
        return (whole_ring_s * (ranks - 1) / ranks) / (compute_s * measured / ranks)

    told = page.evaluate(
        """async ([gamma, measured]) => {
          const { breakEven, gammaAt, gammaOfManyRanks } = await import("/static/scaling.js");
          const at = [2, 16, 40, 100].map((ranks) => gammaAt(ranks, gamma, measured));
          return [breakEven(gamma, measured), at, gammaOfManyRanks(gamma, measured),
            breakEven(0, measured), breakEven(gamma, 1), breakEven(1e9, measured)];
        }""",
        [gamma_of(measured), measured],
    )
    assert told[0] == max(n for n in range(1, 1000) if gamma_of(n) <= 1)
    assert told[1] == pytest.approx([gamma_of(n) for n in (2, 16, 40, 100)])
    assert told[2] == pytest.approx(whole_ring_s / compute_s)
    assert math.isnan(told[3])
    assert math.isnan(told[4])
    assert told[5] == 1


def test_agents_that_are_silent_lost_records_or_never_came_are_named(
    serve: Serve, open_page: OpenPage
) -> None:
    job = PageJob("llm", ranks=16, steps=60, silent_ranks=(5, 6), missing_ranks=(15,),
                  dropped={"ring_overwritten": 1289})  # fmt: skip
    page = open_page(f"{serve(job).url}/#/jobs/llm")
    until_text(page, "#agents", "4 of 16 ranks need a look.")
    text = page.inner_text("#agents")
    assert f"Silent: ranks 5{DASH}6 on node-000, for up to 42.0 s." in text
    assert "Nothing yet from rank 15: does its node reach the collector?" in text
    assert "Records lost by rank 0: 1,289 ring overwritten." in text
    assert "paceline 0.1.0, torch 2.13.0, Python 3.11.2" in text
    assert "4 to look at" in page.inner_text(".sections")


def test_healthy_agents_are_said_to_be_well(serve: Serve, open_page: OpenPage) -> None:
    page = open_page(f"{serve(PageJob('calm', ranks=8, steps=120)).url}/#/jobs/calm")
    until_text(page, "#agents", "All 8 ranks are heard of and nothing was lost.")
    until_text(page, "#incidents", "None.")
    until_text(page, "#cost", "Nobody stands out")


def test_incidents_of_all_jobs_lead_to_their_jobs(serve: Serve, open_page: OpenPage) -> None:
    server = serve(slow_job(), slow_node(earlier_incidents=3), slow_job(name="old", state="ended"))
    page = open_page(server.url)
    page.get_by_role("link", name="Incidents").click()
    page.locator(".incident").first.wait_for()
    assert page.locator(".incident").count() == 2
    text = page.locator(".incident", has_text="job llm").inner_text()
    assert "Repeat offender: 3 earlier incidents of other jobs or launches named node-005" in text
    page.get_by_label("Which incidents").select_option("over")
    until_text(page, ".incident", "Closed: the job ended.")
    assert page.locator(".incident").count() == 1
    page.locator(".incident").get_by_role("link", name="old").click()
    page.get_by_role("heading", name="Rank 2", level=1).wait_for()
    until(page, "document.activeElement.id === 'incidents'")


def test_offenders_are_listed_with_the_jobs_that_they_slowed(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(f"{serve(slow_job(), slow_job(name='other'), slow_node()).url}/#/offenders")
    page.locator("tbody tr").first.wait_for()
    first = page.locator("tbody tr").first.inner_text()
    assert first.startswith("node-000")
    assert "2: demo, other" in first


def test_sections_are_gone_to_by_keyboard_and_the_charts_stay(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(f"{serve(slow_job()).url}/#/jobs/demo")
    until_text(page, ".sections", "1 to acknowledge")
    page.evaluate("document.querySelector('.lanes canvas').dataset.same = 1")
    page.get_by_role("link", name="Settings").focus()
    page.keyboard.press("Enter")
    until(page, "document.activeElement.id === 'settings'")
    assert "at=settings" in page.url
    page.go_back()
    page.get_by_role("link", name="Gamma", exact=True).press("Enter")
    until(page, "document.activeElement.id === 'gamma'")
    assert page.locator(".lanes canvas[data-same]").count() == 1
    page.get_by_role("link", name="incident 1").wait_for()
    page.evaluate("location.hash = '#/jobs/demo?incident=1'")
    until(page, "document.activeElement.id === 'incident-1'")


def test_jobs_are_found_by_name_and_state_and_the_address_keeps_it(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(slow_job(), PageJob("calm", ranks=8, steps=90, state="ended"))
    page = open_page(server.url)
    page.get_by_label("Filter by name").fill("CAL")
    until_text(page, "h1 + .range", "1 of 2")
    assert page.locator(".job-list li").inner_text().startswith("calm")
    page.get_by_label("State").select_option("running")
    until_text(page, "h1 + .range", "0 of 2")
    again = open_page(page.url)
    again.locator("h1").wait_for()
    assert again.get_by_label("State").input_value() == "running"


def test_stream_that_cannot_go_on_makes_the_page_begin_anew(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(slow_job())
    page = open_page(f"{server.url}/#/jobs/demo?at=gamma")
    until_text(page, ".sawtooth .range", f"{DASH}139")
    server.jobs["demo"].steps = 80  # the database was replaced: later steps are not there any more
    server.drop_streams()
    until_text(page, ".sawtooth .range", f"{DASH}79")
    until_text(page, ".figures", "80")
    server.advance("demo", 3)
    until_text(page, ".sawtooth .range", f"{DASH}82")
    assert page.inner_text("#link-state") == "live"
