"""The comparison of two runs as text and as a page."""

from __future__ import annotations

import json

from paceline_service.export.compare_text import compare_text
from tests.unit.export.comparisons import answer, comparison
from tests.unit.export.test_html import EVIL, Reader


def test_the_text_says_what_who_and_how_sure_in_eighty_columns() -> None:
    text = compare_text(answer())
    plain = " ".join(text.split())
    assert "Steps take" in plain
    assert "99 % interval" in plain
    assert "Rank 3 on node-a takes" in plain
    assert "Findings that came - Rank 2 on node-a is slow" in plain
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.isascii()


def test_of_many_ranks_those_that_changed_most_are_shown() -> None:
    text = compare_text(answer(600))
    assert "8 of 600, those that changed most" in text
    assert "  3 " in text
    assert len(comparison(600)) < 100_000


def test_whatever_comes_from_outside_is_text() -> None:
    document = comparison(name=EVIL, node=EVIL)
    names = {tag for tag, _ in Reader(document).elements}
    assert names <= {tag for tag, _ in Reader(comparison()).elements}
    assert "<script" not in document
    assert "\x1b" not in document
    assert "\x1b" not in compare_text(answer(name=EVIL, node=EVIL))


def test_the_object_is_json_and_its_parts_add_up_to_the_change() -> None:
    told = json.loads(json.dumps(answer(), allow_nan=False))
    assert told["schema"] == "paceline.compare/1"
    assert told["verdict_by"] == "steps"
    total = sum(one["change_ns"] for one in told["parts"])
    assert abs(total - (told["step"]["after_ns"] - told["step"]["before_ns"])) < 0.2 * abs(total)
