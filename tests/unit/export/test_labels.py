from __future__ import annotations

from paceline_service.export.labels import MAX_REASONS, OTHER, bounded_reasons


def test_reasons_that_are_names_keep_their_series() -> None:
    drops = {("agent", "ring_full"): 3, ("ingest", "corrupt"): 1}
    assert bounded_reasons(drops) == {("agent", "ring_full"): 3.0, ("ingest", "corrupt"): 1.0}


def test_what_is_no_name_or_one_too_many_is_counted_under_other() -> None:
    invented = {("agent", f"reason_{number:04d}"): 1 for number in range(MAX_REASONS + 50)}
    strange = {("agent", 'x"} 1\nfaked_metric 1'): 5, ("agent", "É" * 100): 2}
    told = bounded_reasons({**invented, **strange, ("ingest", "corrupt"): 1})
    assert len(told) == MAX_REASONS + 2
    assert told["agent", OTHER] == 50 + 7
    assert told["ingest", "corrupt"] == 1
    assert sum(told.values()) == MAX_REASONS + 50 + 7 + 1
