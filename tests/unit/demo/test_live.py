"""The live view draws what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from paceline_service.demo import live
from paceline_service.demo.feed import Step, read_steps
from paceline_service.demo.processes import LossPoint

PHASES = ["host", "input", "forward", "backward", "optimizer"]
MS = 1_000_000


def step(index: int, slow: int | None = None) -> Step:
    phases: list[list[int | None] | None] = [[MS, MS, 8 * MS, 10 * MS, 4 * MS] for _ in range(4)]
    self_ns: list[int | None] = [24 * MS] * 4
    wait_ns: list[int | None] = [0] * 4
    if slow is not None:
        phases[slow] = [MS, MS, 8 * MS, 34 * MS, 4 * MS]
        self_ns[slow] = 48 * MS
        wait_ns = [0 if rank == slow else 24 * MS for rank in range(4)]
    return Step(
        step=index,
        duration_ns=50 * MS,
        slowest_rank=-1 if slow is None else slow,
        self_ns=self_ns,
        wait_ns=wait_ns,
        comm_ns=[2 * MS] * 4,
        phase_self_ns=phases,
    )


def report(verdict: str, findings: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "job": {"world_size": 4, "ranks_observed": 4, "steps": 60, "collectives": 100},
        "verdict": verdict,
        "findings": findings,
        "data": {"complete": True, "dropped": {}, "notes": []},
    }


STRAGGLER = report(
    "straggler",
    [
        {
            "kind": "straggler", "ranks": [2], "nodes": [], "phase": "backward",
            "first_step": 30, "last_step": 59, "slowdown": 1.5, "wasted_gpu_s": 3.1,
            "evidence": ["rank 2 arrived last in 30 of 30 steps"],
        }
    ],
)  # fmt: skip


def view(**changes: Any) -> live.View:
    fields: dict[str, Any] = {
        "url": "http://127.0.0.1:8750/",
        "elapsed_s": 12.0,
        "report": STRAGGLER,
        "phases": PHASES,
        "steps": [step(i, slow=2) for i in range(60)],
        "losses": [LossPoint(step=10 * i, steps=280, loss=2.4 - i / 10) for i in range(6)],
        "lines": [],
        "total_steps": 280,
        "ranks": 4,
        **changes,
    }
    return live.View(**fields)


def screen(of: live.View) -> str:
    console = Console(width=100, height=30, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(live.render(of))
        return console.export_text()


def test_the_screen_fits_100_by_30_and_begins_with_the_verdict() -> None:
    lines = screen(view()).splitlines()
    assert len(lines) <= 29
    assert max(map(len, lines)) <= 100
    assert "straggler" in lines[1]
    assert "ank 2" in lines[2]
    assert "backward" in lines[2]


def test_the_named_rank_is_marked_and_its_peers_wait() -> None:
    lines = screen(view()).splitlines()
    lane = {line.split()[0]: line for line in lines if line[:3].strip().isdigit()}
    assert "◀" in lane["2"]
    assert "◀" not in lane["1"]
    assert "20/20" in lane["2"]
    assert "░" in lane["1"]
    assert "░" not in lane["2"]


def test_a_job_that_has_not_begun_still_has_a_screen() -> None:
    text = screen(view(report=None, phases=[], steps=[], losses=[]))
    assert len(text.splitlines()) == len(screen(view()).splitlines())
    assert "starting" in text


def test_a_rank_without_data_in_a_step_is_left_out_of_its_mean() -> None:
    missing = Step(
        step=1, duration_ns=50 * MS, slowest_rank=0, self_ns=[24 * MS, None, 24 * MS, 24 * MS],
        wait_ns=[0, None, 0, 0], comm_ns=[0, None, 0, 0], phase_self_ns=[None] * 4,
    )  # fmt: skip
    lanes = live.lanes_of([step(0), missing], PHASES)
    assert lanes[1].busy_ns == 24 * MS


def test_lanes_of_equal_totals_end_together() -> None:
    lanes = live.lanes_of([step(0, slow=2)], PHASES)
    drawn = {live.bar(lane, 50 * MS).plain.rstrip() for lane in lanes}
    assert {len(bar) for bar in drawn} == {live.LANE_CELLS}


def test_the_plain_line_tells_step_time_loss_and_verdict() -> None:
    line = live.plain_line(view())
    assert "step 60/280  50 ms a step  loss 1.90" in line
    assert "ank 2" in line


def test_the_columnar_answer_becomes_rows() -> None:
    columns = {
        "ranks": [0, 1], "phases": PHASES, "steps": [7], "duration_ns": [10], "slowest_rank": [1],
        "self_ns": [[4, 6]], "wait_ns": [[2, 0]], "comm_ns": [[4, None]],
    }  # fmt: skip
    (row,) = read_steps(columns)
    assert (row.step, row.slowest_rank, row.comm_ns) == (7, 1, [4, None])


def test_the_picture_asks_no_server_for_a_font(tmp_path: Path) -> None:
    live.save_picture(view(), tmp_path / "screen.svg")
    text = (tmp_path / "screen.svg").read_text(encoding="utf-8")
    assert "straggler" in text
    assert "font-face" not in text
    assert "cdn" not in text
