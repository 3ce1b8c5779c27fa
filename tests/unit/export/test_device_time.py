"""What the GPUs did while they were traced, in figures and in words."""

from __future__ import annotations

from typing import Any

import pytest

from paceline_service.export.device_time import device_sentences, device_times
from paceline_service.export.html import html_report
from paceline_service.export.text import render_text
from tests.unit.export.reports import healthy


def rank(number: int, **changes: int) -> dict[str, Any]:
    return {
        "rank": number, "files": [], "window_ns": 1000, "compute_ns": 500, "communication_ns": 300,
        "memory_ns": 60, "busy_ns": 740, "overlap_ns": 100, "exposed_communication_ns": 200,
        "idle_ns": 260,
    } | changes  # fmt: skip


def traced(*ranks: dict[str, Any]) -> dict[str, Any]:
    told = healthy()
    told["data"]["trace"] = {"ranks": list(ranks), "collectives": 1, "wait_ns": 0}
    return told


def test_the_parts_of_a_device_add_up_to_its_time() -> None:
    (one,) = device_times(traced(rank(0)))
    assert (one.compute_ns, one.overlap_ns, one.exposed_ns) == (400, 100, 200)
    assert (one.memory_ns, one.idle_ns) == (40, 260)
    assert one.overlap_ratio == pytest.approx(1 / 3)
    assert one.gamma == pytest.approx(0.6)


def test_overlap_exposed_communication_gamma_and_idle_are_told_with_who_has_most() -> None:
    busy = rank(1, exposed_communication_ns=20, idle_ns=440)
    text = " ".join(render_text(traced(rank(0), busy)).split())
    assert "The GPUs compute 50 % of the time, stand in exposed communication 11 %" in text
    assert "idle 35 %" in text
    assert "Of their communication 48 % overlaps computation; it takes 0.42x the time" in text
    assert "Least exposed communication: rank 1 (2.0 %), most: rank 0 (20 %)" in text
    assert "What the GPUs did" in html_report(traced(rank(0), busy))


def test_where_no_trace_tells_nothing_is_said() -> None:
    assert device_times(healthy()) == []
    assert device_sentences([]) == []
    assert "GPUs compute" not in render_text(healthy())
    assert "What the GPUs did" not in html_report(healthy())
    idle = rank(0, compute_ns=0, overlap_ns=0, exposed_communication_ns=0, idle_ns=1000)
    assert device_sentences(device_times(traced(idle))) == []


def test_of_many_ranks_the_page_shows_those_that_are_exposed_or_idle_most() -> None:
    ranks = [rank(number, idle_ns=260 - number) for number in range(200)]
    document = html_report(traced(*ranks))
    assert "32 of 200 ranks" in document
    assert len(document) < 200_000


def test_a_job_without_gpus_is_not_said_to_have_some() -> None:
    text = " ".join(render_text(traced(rank(0) | {"device": "cpu"})).split())
    assert "The CPUs compute" in text
    assert "GPUs" not in text
