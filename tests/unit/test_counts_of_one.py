"""Nobody reads of ``1 ranks``: what is told of jobs, steps and nodes of which there is one."""

from __future__ import annotations

import re

import pytest

from paceline.counted import counted
from paceline.event_log import LogTelemetry
from paceline_service.analysis.job import JobAnalysis
from paceline_service.commands.plan import main as plan
from paceline_service.commands.simulate import main as simulate
from paceline_service.export.html import html_report
from paceline_service.export.text import render_text
from tests.unit.export.reports import report

ONE_OF_MANY = re.compile(
    r"(?<![\w.,-])1 (?:(?!ms )[a-z]+ )?(?:rank|step|node|collective|record|sample|bucket|token|"
    r"layer|head|parameter|file|event|operation|peer|check|stage|example|synchronization|group|"
    r"superstep|finding)s\b"
)


def wrong(text: str) -> list[str]:
    text = " ".join(re.sub(r"<[^>]*>", " | ", text).split())
    return [text[max(0, m.start() - 40) : m.end() + 20] for m in ONE_OF_MANY.finditer(text)]


def test_a_number_has_its_noun() -> None:
    assert [counted(number, "rank") for number in (0, 1, 2, 1024)] == [
        "0 ranks", "1 rank", "2 ranks", "1,024 ranks",
    ]  # fmt: skip
    assert counted(1, "process", "processes") == "1 process"
    assert counted(3, "process", "processes") == "3 processes"
    assert wrong("<td>1</td> ranks, 11 ranks, 1 rank") == []
    assert len(wrong("<p>1 ranks</p> <p>and 1 recorded steps</p>")) == 2


@pytest.mark.parametrize("verdict", ["healthy", "insufficient_evidence", "uniform_slowdown"])
def test_a_report_of_one_rank_and_one_step(verdict: str) -> None:
    told = report(ranks=1, verdict=verdict, findings=[])
    told["job"] |= {"steps": 1, "collectives": 1, "ranks_observed": 1}
    told["data"] |= {"what_if": {"steps": 1, "ratio": 0.1}}
    assert not wrong(render_text(told))
    assert not wrong(html_report(told))


@pytest.mark.parametrize("world", [1, 2])
def test_an_analysis_of_hardly_anything(world: int) -> None:
    analysis = JobAnalysis(world)
    analysis.add_telemetry(0, [LogTelemetry(rank=0, time_ns=1, values={"gpu_power_w": 1.0})])
    analysis.advance()
    assert not wrong(render_text(analysis.report().to_dict()))


@pytest.mark.parametrize(
    "command",
    [
        "bsp --ranks 80ms,90ms --steps 1",
        "ssp --ranks 80ms,90ms --steps 1",
        "exact --ranks 2 --steps 1",
        "overlap --buckets 1",
        "overlap --buckets 2 --backward 200ms --all-reduce 900ms",
    ],
)
def test_simulations_of_one_step(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert simulate(command.split()) == 0, capsys.readouterr().err
    assert not wrong(capsys.readouterr().out)


@pytest.mark.parametrize(
    "command",
    [
        "step --ranks 1 --ranks-per-node 1",
        "step --ranks 1 --batch 1",
        "memory --ranks 1 --batch 1",
        "memory --layers 1 --hidden 1 --heads 1 --sequence 1",
        "gamma --ranks 1,2",
        "collectives --ranks 2 --ranks-per-node 2 --node-bandwidth 450GB/s",
    ],
)
def test_plans_for_one_rank(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert plan(command.split()) == 0, capsys.readouterr().err
    assert not wrong(capsys.readouterr().out)
