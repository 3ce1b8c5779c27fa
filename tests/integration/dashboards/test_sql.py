"""The SQL of the panels, on a real PostgreSQL with what a real collector wrote."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

import pytest

from paceline_dashboards import build
from paceline_dashboards.queries.sql import INCIDENTS, STEPS
from paceline_dashboards.words import LANES
from tests.integration.dashboards.conftest import Recorded
from tests.integration.dashboards.grafana import View
from tests.integration.dashboards.jobs import SLOW_RANK
from tests.integration.postgres import PostgresServer, rows

STANDS = [name for name, _ in LANES].index("stands")
SLOW = f"rank {SLOW_RANK} (named)"


def statement(title: str) -> str:
    panels = json.loads(build.render()["job.json"])["panels"]
    (panel,) = (one for one in panels if one["title"].startswith(title) and one["type"] != "row")
    (target,) = panel["targets"]
    text: str = target["rawSql"]
    return text


def ask(recorded: Recorded, title: str, view: View) -> list[tuple[Any, ...]]:
    return rows(recorded.database_url, view.sql(statement(title)))


def teeth(found: list[tuple[Any, ...]]) -> dict[str, list[tuple[float, float]]]:
    lines = defaultdict(list)
    for at_s, name, own_s in found:
        lines[name].append((at_s, own_s))
    return dict(lines)


@pytest.fixture
def view(recorded: Recorded) -> View:
    return recorded.view("llm-7b")


def test_sawtooth_has_a_tooth_per_rank_and_step_and_the_slow_rank_is_named(
    recorded: Recorded, view: View
) -> None:
    lines = teeth(ask(recorded, "The sawtooth", view))
    assert set(lines) == {f"rank {rank}" for rank in range(8) if rank != SLOW_RANK} | {SLOW}
    for points in lines.values():
        assert sum(own_s == 0 for _, own_s in points) >= STEPS, "each tooth begins at 0"
        assert all(later[0] >= earlier[0] for earlier, later in pairwise(points))


def test_fast_ranks_level_off_in_unison_and_the_slow_one_climbs_to_the_end(
    recorded: Recorded, view: View
) -> None:
    lines = teeth(ask(recorded, "The sawtooth", view))
    top = {name: max(own_s for _, own_s in points) for name, points in lines.items()}
    slow = top.pop(SLOW)
    assert slow > 1.15 * max(top.values())
    assert max(top.values()) < 1.1 * min(top.values())


def test_all_teeth_begin_at_the_same_place(recorded: Recorded, view: View) -> None:
    lines = teeth(ask(recorded, "The sawtooth", view))
    begins = {
        tuple(at_s for (at_s, own_s), (_, later_s) in pairwise(points) if own_s == 0 and later_s)
        for points in lines.values()
    }
    assert len(begins) == 1
    assert len(*begins) == STEPS


def test_sawtooth_shows_the_newest_whole_steps_of_the_time_shown(
    recorded: Recorded, view: View
) -> None:
    early = View(from_s=view.from_s, to_s=view.from_s + 30, values=view.values)
    lines = teeth(ask(recorded, "The sawtooth", early))
    assert set(lines) == {f"rank {rank}" for rank in range(8)}, "nobody was named by then"
    heights = [max(own_s for _, own_s in points) for points in lines.values()]
    assert max(heights) < 1.2, "the fault came later"


def test_time_without_steps_gives_no_teeth_and_no_lanes(recorded: Recorded, view: View) -> None:
    before = View(from_s=view.from_s - 3600, to_s=view.from_s - 1800, values=view.values)
    for title in ("The sawtooth", "Lanes", "Costliest steps"):
        assert ask(recorded, title, before) == []


def test_lanes_say_what_each_rank_did_and_end_where_its_steps_end(
    recorded: Recorded, view: View
) -> None:
    found = ask(recorded, "Lanes", view)
    assert [at for at, *_ in found] == sorted(at for at, *_ in found)
    stood: dict[str, float] = defaultdict(float)
    by_rank = defaultdict(list)
    for at, name, value in found:
        by_rank[name].append((at, value))
    for name, changes in by_rank.items():
        for (at, value), (end, _) in pairwise(changes):
            if value == STANDS:
                stood[name] += (end - at).total_seconds()
        assert changes[-1][1] == len(LANES), "nothing goes on after the last step"
    assert len(by_rank) == 8
    assert min(stood, key=lambda name: stood[name]) == f"rank {SLOW_RANK}"


def test_costliest_steps_are_those_of_the_fault_and_tell_where_to_look(
    recorded: Recorded, view: View
) -> None:
    found = ask(recorded, "Costliest steps", view)
    assert [row[3] for row in found] == sorted((row[3] for row in found), reverse=True)
    step, began, took_s, _, last_in, from_ms, to_ms = found[0]
    assert step >= 50
    assert last_in == f"rank {SLOW_RANK}"
    assert int(from_ms) < began.timestamp() * 1000 < int(to_ms)
    assert 1.1 < took_s < 1.6


def test_incidents_are_marked_from_their_opening_on(recorded: Recorded, view: View) -> None:
    now = datetime.now(timezone.utc).timestamp()
    around = View(from_s=now - 600, to_s=now + 60, values=view.values)
    ((opened, until, text, tags),) = rows(recorded.database_url, around.sql(INCIDENTS))
    assert text == f"llm-7b: straggler, rank {SLOW_RANK}, cause gpu_throttle"
    assert tags == "straggler,gpu_throttle"
    assert opened < until <= datetime.now(timezone.utc)
    everywhere = View(from_s=now - 600, to_s=now + 60, values={"job": ".*"})
    texts = [row[2] for row in rows(recorded.database_url, everywhere.sql(INCIDENTS))]
    assert any(text.startswith("moe-16b: communication") for text in texts)


def test_a_job_name_is_data_and_never_sql(recorded: Recorded, view: View) -> None:
    hostile = View(from_s=view.from_s, to_s=view.to_s, values={"job": "x' OR '1'='1"})
    for title in ("The sawtooth", "Lanes", "Costliest steps"):
        assert ask(recorded, title, hostile) == []


@pytest.mark.parametrize("title", ["The sawtooth", "Lanes", "Costliest steps"])
def test_rows_are_found_by_their_key(
    recorded: Recorded, postgres: PostgresServer, view: View, title: str
) -> None:
    # With few rows a planner reads them all; what matters is whether it could do otherwise.
    text = view.sql(statement(title)).replace("\n", " ")
    plan = postgres.psql(f"SET enable_seqscan = off; EXPLAIN {text}", "dashboards")
    assert "Seq Scan on lanes" not in plan
    assert "Seq Scan on step_summaries" not in plan


@pytest.mark.parametrize(
    ("ranks", "named"),
    [("0-3", {0, 1, 2, 3}), ("1,6", {1, 6}), ("0-6:2", {0, 2, 4, 6}), ("", set())],
)
def test_ranks_of_an_incident_are_read_in_every_form_of_a_list(
    recorded: Recorded, postgres: PostgresServer, view: View, ranks: str, named: set[int]
) -> None:
    postgres.psql(f"UPDATE incidents SET ranks = '{ranks}' WHERE kind = 'straggler'", "dashboards")
    try:
        lines = teeth(ask(recorded, "The sawtooth", view))
    finally:
        postgres.psql("UPDATE incidents SET ranks = '5' WHERE kind = 'straggler'", "dashboards")
    assert {int(name.split()[1]) for name in lines if name.endswith("(named)")} == named
