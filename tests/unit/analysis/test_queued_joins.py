from __future__ import annotations

from paceline.vocabulary import Op, RecordKind
from paceline_service.analysis.blame.waits import expose
from paceline_service.analysis.matching.groups import members_of
from paceline_service.analysis.matching.match import match
from paceline_service.analysis.matching.table import as_table, stack
from paceline_service.analysis.records import Group, records_from_rows


def row(seq: int, start: int, end: int, join: int, group: int = 0) -> tuple[int, ...]:
    return (int(RecordKind.COLLECTIVE), int(Op.ALL_REDUCE), group, seq, 0, -1, 8, start, end, join,
            0, 0)  # fmt: skip


def exposed(rows: list[tuple[int, ...]]) -> list[int]:
    groups = [Group(name="dp", ranks=(0, 1)), Group(name="tp", ranks=(0, 1))]
    both = stack([as_table(records_from_rows(rank, rows)) for rank in (0, 1)])
    matches = match(both, members_of(groups))
    by_rank = expose(matches)[1][matches.written]
    assert by_rank[: len(rows)].tolist() == by_rank[len(rows) :].tolist()
    return by_rank[: len(rows)].tolist()


def test_who_joins_a_queued_collective_waits_for_those_before_it() -> None:
    """Compute ended at 150, while the stream was still busy with the first of three."""
    rows = [row(0, 100, 200, 0), row(1, 200, 260, 0), row(2, 260, 300, 150)]
    assert exposed(rows) == [50, 60, 40]


def test_what_ended_before_the_join_was_not_waited_for() -> None:
    rows = [row(0, 100, 140, 0), row(1, 140, 200, 0), row(2, 200, 300, 150)]
    assert exposed(rows) == [0, 50, 100]


def test_a_join_of_a_running_collective_says_nothing_of_the_others() -> None:
    rows = [row(0, 100, 400, 0), row(1, 150, 300, 200)]
    assert exposed(rows) == [0, 100]


def test_another_group_has_another_queue() -> None:
    rows = [row(0, 100, 250, 0, group=1), row(0, 260, 300, 150)]
    assert exposed(rows) == [0, 40]
