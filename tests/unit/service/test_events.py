from __future__ import annotations

import pytest

from paceline_service.jobs.events import MAX_MISSED_CELLS, MAX_MISSED_STEPS, Place, resume


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("3-70", Place(attempt=3, step=70)),
        ("70", Place(attempt=0, step=70)),
        ("", None),
        (None, None),
        ("3-", None),
        ("-70", None),
        ("3-70\n", None),
        ("\u0663-70", None),
        ("1" * 30, None),
    ],
)
def test_an_id_is_the_attempt_and_the_step_that_were_told_last(
    text: str | None, place: Place | None
) -> None:
    assert Place.parse(text) == place


def test_who_comes_back_soon_goes_on_where_it_was() -> None:
    assert resume(Place(attempt=2, step=70), 2, 90, 8) == (70, "")
    assert resume(Place(attempt=0, step=70), 2, 90, 8) == (70, "")
    assert resume(Place(attempt=2, step=90), 2, 90, 8) == (90, "")


def test_who_never_came_begins_with_the_newest_steps_and_is_told_no_reason() -> None:
    assert resume(None, 2, 90, 8) == (None, "")


@pytest.mark.parametrize(
    ("place", "newest", "ranks", "reason"),
    [
        (Place(attempt=1, step=70), 90, 8, "attempt 2, not 1"),
        (Place(attempt=2, step=91), 90, 8, "the newest step is 90"),
        (Place(attempt=2, step=0), MAX_MISSED_STEPS + 1, 8, "at most 5,000 can"),
        (Place(attempt=2, step=0), 3, MAX_MISSED_CELLS, "at most 1 can"),
    ],
)
def test_who_missed_too_much_begins_anew(
    place: Place, newest: int, ranks: int, reason: str
) -> None:
    after, told = resume(place, 2, newest, ranks)
    assert after is None
    assert reason in told


def test_what_may_be_missed_is_just_that() -> None:
    assert resume(Place(attempt=2, step=0), 2, MAX_MISSED_STEPS, 8) == (0, "")
