"""What is told, when, and how bad it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from paceline_dashboards import alerts_model
from paceline_service.notify import severity
from paceline_service.notify.changes import QUIET_NS, Rules, first_due, next_due
from paceline_service.notify.facts import Links, facts_of
from paceline_service.notify.message import Facts, Message, pack, unpack
from paceline_service.report_schema import EXAMPLE, Kind

HOUR = 3600.0
RULES = Rules(min_severity="info", after_ns=20 * 10**9, update_gpu_s=HOUR)


def facts(**changes: Any) -> Facts:
    row = {
        "id": 17, "job": "llm", "attempt": 2, "world_size": 64, "finding": json.dumps(EXAMPLE),
        "opened_wall_ns": 10**18, "updated_wall_ns": 10**18, "closed_wall_ns": None,
        "closed_reason": "",
    }  # fmt: skip
    links = Links(page="https://paceline.example/", dashboards="https://grafana.example",
                  runbooks="https://wiki.example/runbooks/")  # fmt: skip
    return msgspec.structs.replace(facts_of(row, [], 3, links), **changes)


def event(told: Facts, now: Facts, ago_ns: int = QUIET_NS) -> tuple[str, list[str]] | None:
    due = next_due(told, now, RULES, ago_ns)
    return None if due is None else (due.event, list(due.changes))


def test_a_message_names_node_reason_cost_next_command_and_page() -> None:
    told = facts()
    assert told.headline == "Rank 5 on node-a is slow in backward since step 210"
    assert told.nodes == ["node-a"]
    assert told.cause == "gpu_throttle"
    assert told.cost == "91.7 GPU-s"
    assert told.action is not None
    assert told.action.startswith("scontrol update nodename=node-a")
    assert told.page_url == "https://paceline.example/#/incidents/17"
    assert told.dashboard_url == "https://grafana.example/d/paceline-job?var-job=llm"
    assert told.runbook_url == "https://wiki.example/runbooks/PacelineStragglerRank.md"
    assert told.earlier_incidents == 3


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_of_incident_leads_to_a_runbook_that_there_is(
    kind: str, repository: Path
) -> None:
    link = Links(runbooks="docs/runbooks").runbook_of(kind)
    assert (repository / link).is_file()


def test_severity_has_the_limits_of_the_alerts() -> None:
    assert severity.PAGE_GPUS == alerts_model.PAGE_GPUS
    assert severity.TICKET_GPUS == alerts_model.TICKET_GPUS


@pytest.mark.parametrize(
    ("kind", "ratio", "world_size", "expected"),
    [
        ("straggler", 0.12, 64, "ticket"),
        ("straggler", 0.125, 64, "page"),
        ("straggler", 0.12, 8, "info"),
        ("straggler", None, 10_000, "info"),
        ("hang", None, 8, "page"),
        ("hang", None, 4, "ticket"),
        ("desync", None, 1024, "page"),
    ],
)
def test_severity_goes_by_the_gpus_that_stand_idle(
    kind: str, ratio: float | None, world_size: int, expected: str
) -> None:
    finding = {**EXAMPLE, "kind": kind, "recoverable_ratio": ratio}
    assert severity.severity_of(severity.idle_gpus(finding, world_size)) == expected


def test_an_incident_is_told_of_when_it_has_lasted_and_is_bad_enough() -> None:
    now = facts()
    late_ns = now.opened_wall_ns + RULES.after_ns
    assert first_due(now, RULES, late_ns - 1) is None
    due = first_due(now, RULES, late_ns)
    assert due is not None
    assert due.event == "opened"
    assert first_due(now, replace(RULES, min_severity="page"), late_ns) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"acknowledged_by": "ana"},
        {"silenced_until_wall_ns": 2 * 10**18},
        {"closed_wall_ns": 10**18, "closed_reason": "ended"},
    ],
)
def test_nobody_is_told_of_what_somebody_knows_or_silenced_or_what_is_over(
    changes: dict[str, Any],
) -> None:
    assert first_due(facts(**changes), RULES, 2 * 10**18) is None


def test_nothing_new_is_nothing_told() -> None:
    assert event(facts(), facts()) is None
    assert event(facts(wasted_gpu_s=HOUR), facts(wasted_gpu_s=1.9 * HOUR)) is None
    assert event(facts(wasted_gpu_s=1.0), facts(wasted_gpu_s=600.0)) is None


def test_a_cost_is_told_again_when_it_has_doubled_and_grown_by_an_hour() -> None:
    told = event(facts(wasted_gpu_s=HOUR), facts(wasted_gpu_s=2 * HOUR))
    assert told == ("updated", ["it has cost 2.0 GPU-h, before 3,600 GPU-s"])
    known = facts(wasted_gpu_s=9 * HOUR, acknowledged_by="ana")
    assert event(facts(acknowledged_by="ana", wasted_gpu_s=HOUR), known) is None


def test_a_cause_is_told_when_it_becomes_known_and_not_when_it_is_lost() -> None:
    unknown = facts(cause="unknown")
    assert event(unknown, facts(), 0) == ("updated", ["its cause is gpu_throttle"])
    assert event(facts(), unknown) is None
    other = facts(cause="gpu_fault")
    assert event(facts(), other) == ("updated", ["its cause is gpu_fault, before gpu_throttle"])
    assert event(facts(), other, QUIET_NS - 1) is None, "what goes to and fro is told seldom"


def test_a_severity_is_told_when_it_rises_only() -> None:
    low, high = facts(severity="info"), facts(severity="page")
    assert event(low, high, 0) == ("updated", ["now page, before info"])
    assert event(high, low) is None


def test_what_people_say_is_told_once() -> None:
    known = facts(acknowledged_by="ana", acknowledged_note="draining")
    assert event(facts(), known, 0) == ("acknowledged", ["acknowledged by ana: draining"])
    assert event(known, known) is None
    assert event(known, facts(), 0) == ("updated", ["ana no longer says to know of it"])
    silenced = facts(silenced_until_wall_ns=2 * 10**18, silenced_by="ben")
    assert event(facts(), silenced, 0) == ("silenced", ["silenced by ben"])
    worse = facts(silenced_until_wall_ns=2 * 10**18, severity="page", wasted_gpu_s=99 * HOUR)
    assert event(silenced, worse) is None, "who silenced it wants to hear nothing"
    assert event(silenced, facts(), 0) == ("updated", ["its silence is over"])


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("recovered", "over: the ranks keep up again; it has cost 91.7 GPU-s"),
        ("ended", "over: the job has ended; it has cost 91.7 GPU-s"),
        ("withdrawn", "over: with what came later the analysis no longer says so"),
    ],
)
def test_the_end_is_told_with_its_reason_even_when_silenced(reason: str, words: str) -> None:
    over = facts(closed_wall_ns=10**18, closed_reason=reason)
    silenced = facts(silenced_until_wall_ns=2 * 10**18)
    for told in (facts(), silenced, facts(acknowledged_by="ana")):
        assert event(told, over, 0) == ("resolved", [words])
    assert event(over, over) is None


def test_what_begins_again_is_told_again_but_not_at_once() -> None:
    over = facts(closed_wall_ns=10**18, closed_reason="recovered")
    assert event(over, facts()) == ("opened", ["it has begun again"])
    assert event(over, facts(), QUIET_NS - 1) is None


def test_a_message_survives_the_outbox() -> None:
    message = Message(event="opened", sequence=1, changes=["ä"], incident=facts())
    assert unpack(pack(message)) == message
    assert message.id == "paceline-17-1000000000000000000-1"
