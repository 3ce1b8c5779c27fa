from __future__ import annotations

import io

import pytest
from rich.console import Console

from paceline_service.commands.top import look_after
from paceline_service.export.telling import telling_lanes
from paceline_service.top.keys import split_keys
from paceline_service.top.lanes import ASCII, sawtooth
from paceline_service.top.moment import Moment
from paceline_service.top.screen import NARROWEST, Look, picture
from tests.unit.export.reports import healthy
from tests.unit.top.moments import moment, nodes, table


def shown(at: Moment, look: Look | None = None, width: int = 100, height: int | None = 30) -> str:
    lines = picture(at, look or Look(), width, height).lines
    return "\n".join(line.plain.rstrip() for line in lines)


def lanes(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(("rank ", "node-"))]


def test_the_screen_says_who_is_slow_since_when_what_it_costs_and_what_to_do() -> None:
    text = " ".join(shown(moment(4)).replace("\u258c ", "").split())
    assert "Rank 2 on node-a is slow in backward since step 210" in text
    assert "has cost 91.7 GPU-s so far" in text
    assert "Cause: its GPU is throttled" in text
    assert "$ scontrol update nodename=node-a state=drain" in text


def test_fast_ranks_stand_at_the_floor_in_unison_and_the_slow_one_never_does() -> None:
    rows = lanes(shown(moment(4)))
    assert len(rows) == 4
    floors = [[place for place, cell in enumerate(row) if cell == "\u2581"] for row in rows]
    assert floors[2] == []
    assert floors[0]
    # The barrier behind each tooth lies in the same cell of every lane.
    ends = [{place for place in range(len(row) - 1) if row[place] in "\u2581\u2584"
             and row[place + 1] == " "} for row in rows]  # fmt: skip
    assert ends[0] == ends[1] == ends[2] == ends[3]
    assert rows[2].startswith("rank 2 slow")


@pytest.mark.parametrize("width", [20, 40, 55, 80, 120, 250])
@pytest.mark.parametrize("height", [8, 15, 24, 60])
@pytest.mark.parametrize("ranks", [1, 4, 64])
def test_no_line_is_wider_and_no_screen_higher_than_the_terminal(
    width: int, height: int, ranks: int
) -> None:
    slow = (2,) if ranks > 2 else ()
    lines = picture(moment(ranks, slow=slow), Look(), width, height).lines
    assert max(len(line) for line in lines) <= max(width, NARROWEST)
    assert len(lines) <= max(height, 13)


def test_a_thousand_ranks_are_shown_by_those_that_tell() -> None:
    text = shown(moment(1024, slow=(100, 101)), width=110, height=40)
    rows = lanes(text)
    assert [row.split()[2] for row in rows[:2]] == ["slow", "slow"]
    assert {row.split()[2] for row in rows} == {"slow", "slowest", "median", "fastest"}
    assert "1,024 ranks on 128 nodes" in text
    assert len(text.splitlines()) <= 40


def test_by_node_the_nodes_of_named_ranks_come_first() -> None:
    rows = lanes(shown(moment(64, slow=(17,)), Look(view="nodes")))
    assert rows[0].startswith("node-2 slow")
    assert len(rows) == 8


def test_all_ranks_are_scrolled_and_never_beyond_the_last() -> None:
    at = moment(64)
    first = lanes(shown(at, Look(view="all")))
    far = picture(at, Look(view="all", scroll=10_000), 100, 30)
    last = lanes("\n".join(line.plain for line in far.lines))
    assert first[0].startswith("rank 0 ")
    assert last[-1].startswith("rank 63")
    assert far.scroll == 64 - len(last)


def test_ranks_of_which_nothing_is_known_are_told_as_such() -> None:
    held = table(4)
    held.self_ns[:, 3] = held.wait_ns[:, 3] = held.comm_ns[:, 3] = float("nan")
    rows = lanes(shown(moment(4, table=held)))
    assert "no data" in rows[3]
    assert "no data" not in rows[0]


def test_without_an_answer_of_the_collector_it_says_why_nothing_comes() -> None:
    text = shown(Moment(url="http://x", job="llm", trouble="no answer from the collector"))
    assert "connecting" in text
    assert "Nothing new comes: no answer from the collector" in text


def test_a_healthy_job_is_called_healthy() -> None:
    at = moment(4, slow=(), report=healthy())
    text = shown(at)
    assert "Healthy: in 500 steps none of 4 ranks held the others back" in text
    assert "slow" not in "\n".join(lanes(text))


def test_names_cannot_steer_the_terminal() -> None:
    evil = "node\x1b[2J\x07\u202e"
    at = moment(64, detail={"nodes": dict.fromkeys(nodes(64), evil) | {"0": "b"}}, job=evil)
    for view in ("all", "nodes"):
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, width=120, color_system=None)
        for line in picture(at, Look(view=view), 120, 30).lines:
            console.print(line, soft_wrap=True)
        assert "\x1b[2J" not in out.getvalue()
        assert "\x07" not in out.getvalue()
        assert "\u202e" not in out.getvalue()


def test_where_the_terminal_has_no_unicode_lanes_are_plain_ascii() -> None:
    rows = lanes(shown(moment(4), Look(glyphs=ASCII)))
    assert all(row.isascii() for row in rows)
    assert "_" in rows[0]
    assert "_" not in rows[2]


def test_teeth_of_short_steps_are_means_and_of_long_steps_single_ones() -> None:
    assert sawtooth(table(4, steps=400, step_ms=20), 80).every >= 20
    assert sawtooth(table(4, step_ms=2000), 80).every == 1


def test_telling_lanes_are_never_more_than_there_is_room_for() -> None:
    self_ns = table(500, slow=tuple(range(40))).mean_self_ns()
    for rows in (4, 5, 7, 12, 33):
        chosen = telling_lanes(self_ns, {}, dict.fromkeys(range(40), "slow"), rows)
        assert len(chosen) <= rows
        assert len({lane.ranks for lane in chosen}) == len(chosen)
        assert {lane.role for lane in chosen} >= {"slow", "slowest", "fastest"}
    assert len(telling_lanes(self_ns[:3], {}, {1: "slow"}, 10)) == 3


def test_keys_are_told_apart_also_when_several_come_at_once() -> None:
    assert split_keys(b"q") == ["q"]
    assert split_keys(b"\x1b[A\x1b[B\x1bOCp") == ["up", "down", "right", "p"]
    assert split_keys(b"\x1b[5~\x1b[99;5~ \x1b") == ["page-up", "p"]
    assert split_keys(b"\xff\x00") == []


def test_arrows_change_the_view_and_p_pauses() -> None:
    at, look = moment(64), Look()
    seen = picture(at, look, 100, 30)
    assert seen.view == "telling"
    assert look_after("right", look, seen).view == "nodes"
    assert look_after("left", look, seen).view == "all"
    assert look_after("p", look, seen).paused
    every = Look(view="all")
    seen = picture(at, every, 100, 30)
    assert look_after("down", every, seen).scroll == 1
    assert look_after("up", every, seen).scroll == 0
    assert look_after("page-down", every, seen).scroll == seen.rows
    far = picture(at, look_after("end", every, seen), 100, 30)
    assert far.scroll == 64 - far.rows
    assert look_after("x", every, seen) == every


def test_the_view_after_an_arrow_is_another_one_on_a_low_screen_too() -> None:
    at, look = moment(20), Look()
    for height in (12, 20, 24, 30, 60):
        seen = picture(at, look, 100, height)
        after = picture(at, look_after("right", look, seen), 100, height)
        assert after.view != seen.view
