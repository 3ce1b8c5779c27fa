"""The page of a real collector: what it shows, and what it changes: acknowledged, silenced, set."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.vocabulary import Phase
from paceline_service.client import Client
from tests.e2e.page.conftest import OpenPage
from tests.e2e.page.looking import until, until_text
from tests.integration.collector.kit import (
    TOKEN,
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_until,
)
from tests.simulator.job import Fault, Scenario, simulate
from tests.unit.importers.logs import write_simulated

pytestmark = pytest.mark.e2e

PACELINE = Path(sys.executable).parent / "paceline"
JOB = "llm.train"
NOTE = "<img src=x onerror=\"document.title='owned'\"> drained"


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """A collector with a job that runs on with a slow rank 1, and its open incident."""
    process = CollectorProcess(tmp_path_factory.mktemp("changes") / "state").start()
    fault = Fault(rank=1, phase=Phase.INPUT, extra_ms=20, first=40)
    job = simulate(Scenario(steps=140, faults=(fault,), seed=11))
    client = process.client()
    post_all(client, bodies(job, senders(job, job=JOB), end=False))
    wait_until(lambda: client.get_json(f"/v1/jobs/{JOB}/incidents")["incidents"], 20)
    yield process
    assert process.stop() == 0


def incident(client: Client) -> dict[str, Any]:
    number = client.get_json(f"/v1/jobs/{JOB}/incidents")["incidents"][0]["id"]
    return dict(client.get_json(f"/v1/incidents/{number}"))


def give_token(page: Any, token: str) -> None:
    page.locator("dialog.token").wait_for()
    page.keyboard.type(token)
    page.keyboard.press("Enter")


def test_replayed_job_is_shown_as_the_real_collector_tells_it(
    collector: CollectorProcess, open_page: OpenPage, tmp_path: Path
) -> None:
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=12.0, first=60)
    logs = write_simulated(tmp_path, simulate(Scenario(steps=160, faults=(fault,))))
    replay = [PACELINE, "replay", *logs, "--url", collector.url, "--job", "replayed"]
    subprocess.run(replay, check=True, timeout=60, env={**os.environ, "PACELINE_TOKEN": TOKEN})
    page = open_page(collector.url)
    page.locator(".job-list").get_by_role("link", name="replayed").click()
    page.get_by_role("heading", name="Rank 2 is slow in the backward pass", level=1).wait_for()
    until(page, "document.querySelector('.lanes canvas').dataset.teeth > 0")
    until_text(page, "#sawtooth-words", "Rank 2 waits 0")
    assert page.locator("#ranks tr.slow").count() == 1
    assert "complete" in page.inner_text(".figures")


def test_incident_is_acknowledged_and_silenced_by_keyboard_with_a_token_asked_for_in_place(
    collector: CollectorProcess, open_page: OpenPage
) -> None:
    client = collector.client()
    page = open_page(f"{collector.url}/#/jobs/{JOB}?at=incidents", refused=True)
    page.locator(".incident").wait_for()
    assert "Nobody has acknowledged it." in page.inner_text(".incident")

    page.get_by_role("button", name="Acknowledge").focus()
    page.keyboard.press("Enter")
    page.keyboard.type(NOTE)
    page.get_by_label("Your name").fill("ana")
    page.keyboard.press("Enter")
    give_token(page, "wrong")
    page.get_by_role("alert").get_by_text("It needs the scope “admin” for this job.").wait_for()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    until_text(page, ".incident", "Acknowledged by ana")
    assert NOTE in page.inner_text(".incident")
    assert "owned" not in page.title()
    said = incident(client)["acknowledged"]
    assert (said["by"], said["note"]) == ("ana", NOTE)
    back = page.get_by_role("button", name="Take the acknowledgement back")
    assert back.evaluate("node => node === document.activeElement")

    page.get_by_role("button", name="Silence").focus()
    page.keyboard.press("Enter")
    page.get_by_label("For ", exact=False).first.select_option(label="1 day")
    page.get_by_label("Note").fill("known")
    page.keyboard.press("Enter")
    until_text(page, ".incident", "Silenced until")
    assert page.locator("dialog.token").count() == 0, "the token is kept until the page is left"
    silence = incident(client)["silenced"]
    assert (silence["created_by"], silence["note"]) == ("ana", "known")
    assert 86_000 < (silence["until_wall_ns"] - silence["created_wall_ns"]) / 1e9 <= 86_401

    page.get_by_role("button", name="End the silence").press("Enter")
    until_text(page, ".incident", "The silence has ended.")
    back.press("Enter")
    until_text(page, ".incident", "Nobody has acknowledged it.")
    shown = incident(client)
    assert (shown["acknowledged"], shown["silenced"]) == (None, None)
    assert page.evaluate("JSON.stringify({...sessionStorage, ...localStorage})").find(TOKEN) < 0


def test_message_leads_to_the_incident_with_evidence_command_and_history(
    collector: CollectorProcess, open_page: OpenPage
) -> None:
    shown = incident(collector.client())
    collector.client().post_json(f"/v1/incidents/{shown['id']}/ack", {"who": "ben", "note": "mine"})
    page = open_page(f"{collector.url}/#/incidents/{shown['id']}")
    page.get_by_role("heading", name="Rank 1 is slow loading input", level=1).wait_for()
    text = page.inner_text("main")
    assert shown["evidence"][0] in text
    assert shown["action"] in text
    assert "acknowledged by ben: “mine”" in text
    page.get_by_role("link", name="The steps at which it begins").click()
    page.locator("#sawtooth").wait_for()
    first = shown["first_step"]
    assert f"from={max(0, first - 8)}&to={max(0, first - 8) + 40}" in page.url
    assert "rank=1" in page.url


def test_silences_without_an_incident_are_listed_and_can_be_ended(
    collector: CollectorProcess, open_page: OpenPage
) -> None:
    client = collector.client()
    wanted = {"node": "node-b", "kind": "hang", "for_s": 3600, "who": "ben", "note": NOTE}
    client.post_json("/v1/silences", wanted)
    page = open_page(f"{collector.url}/#/incidents", refused=True)
    page.get_by_text("1 silence holds").press("Enter")
    until_text(page, ".silences", "Hang of all jobs, on node-b, until ")
    assert NOTE in page.inner_text(".silences")
    page.get_by_role("button", name="End the silence of Hang of all jobs, on node-b").press("Enter")
    give_token(page, TOKEN)
    page.get_by_text("The silence has ended.").wait_for()
    assert client.get_json("/v1/silences?active=true")["silences"] == []


def test_who_gives_no_token_changes_nothing(
    collector: CollectorProcess, open_page: OpenPage
) -> None:
    client = collector.client()
    before = client.get_json(f"/v1/jobs/{JOB}/settings")
    page = open_page(f"{collector.url}/#/jobs/{JOB}?at=settings", refused=True)
    until_text(page, "#settings", "Nobody asked for anything.")
    page.get_by_label("Level").select_option("steps")
    page.get_by_role("button", name="Apply").press("Enter")
    page.locator("dialog.token").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog.token").wait_for(state="detached")
    assert client.get_json(f"/v1/jobs/{JOB}/settings") == before
    assert page.get_by_label("Level").input_value() == "steps", "what was chosen stays"
    page.get_by_role("button", name="Leave as it is").click()
    assert page.get_by_label("Level").input_value() == ""


def test_settings_are_changed_and_their_errors_told(
    collector: CollectorProcess, open_page: OpenPage
) -> None:
    client = collector.client()
    page = open_page(f"{collector.url}/#/jobs/{JOB}?at=settings", refused=True)
    until_text(page, "#settings", "Nobody asked for anything.")
    page.get_by_label("Telemetry every").fill("0.05")
    page.evaluate("document.querySelector('#settings form').noValidate = true")
    page.get_by_role("button", name="Apply").press("Enter")
    until_text(page, "#settings .status", "Not done: ")
    assert "0.05" in page.inner_text("#settings .status")
    page.get_by_label("Telemetry every").fill("")
    page.get_by_label("Level").select_option("collectives")
    page.get_by_label("Every n-th step").fill("5")
    page.get_by_role("button", name="Apply").press("Enter")
    give_token(page, TOKEN)
    until_text(page, "#settings", "level collectives, every 5th step")
    asked = client.get_json(f"/v1/jobs/{JOB}/settings")
    assert (asked["level"], asked["stride"], asked["enabled"]) == ("collectives", 5, True)


def test_timeline_file_of_the_steps_on_screen_is_downloaded(
    collector: CollectorProcess, open_page: OpenPage
) -> None:
    page = open_page(f"{collector.url}/#/jobs/{JOB}?from=50&to=60&at=trace")
    until_text(page, "#trace .command", "--from 50 --to 59")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").press("Enter")
    assert download.value.suggested_filename == f"{JOB}-50-59.trace.json"
    text = download.value.path().read_text()
    assert '"traceEvents"' in text
    assert '"step 50"' in text or '"step":50' in text.replace(" ", "")
