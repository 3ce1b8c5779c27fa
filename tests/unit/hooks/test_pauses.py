from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.clock import mono_ns
from paceline.hooks.pauses import PAUSE_NS, GcPauses
from paceline.hooks.recorder import Recorder
from paceline.vocabulary import Phase
from tests.unit.hooks.kit import phases, recorder


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Recorder]:
    made = recorder(tmp_path)
    pauses = GcPauses(made)
    pauses.install()
    yield made
    pauses.uninstall()
    made.close()


def collect_much() -> tuple[int, int]:
    kept = [[index] for index in range(400_000)]
    start_ns = mono_ns()
    gc.collect()
    end_ns = mono_ns()
    assert kept
    assert end_ns - start_ns > PAUSE_NS
    return start_ns, end_ns


def test_a_pause_of_the_collector_is_recorded_with_its_generation(made: Recorder) -> None:
    start_ns, end_ns = collect_much()
    pause = phases(made, Phase.GC)[-1]
    assert start_ns <= pause.start_ns < pause.end_ns <= end_ns
    assert pause.end_ns - pause.start_ns > 0.5 * (end_ns - start_ns)
    assert (pause.seq, pause.group, pause.step, pause.payload_bytes) == (2, 0, 0, 0)


def test_short_collections_are_left_out(made: Recorder) -> None:
    before = len(phases(made, Phase.GC))
    for _ in range(20):
        gc.collect(0)
    assert len(phases(made, Phase.GC)) == before


def test_pauses_are_recorded_at_level_full_only_and_at_once(made: Recorder) -> None:
    made.detail = False
    before = len(phases(made, Phase.GC))  # other tests leave much to collect
    collect_much()
    assert len(phases(made, Phase.GC)) == before
    made.detail = True
    collect_much()
    assert len(phases(made, Phase.GC)) > before


def test_a_pause_after_a_step_belongs_to_the_next(made: Recorder) -> None:
    made.clock.backward_begin(mono_ns())
    made.clock.backward_end(mono_ns())
    made.clock.optimizer_begin(1, mono_ns())
    made.clock.optimizer_end(mono_ns())
    collect_much()
    assert phases(made, Phase.GC)[-1].step == 1
    assert made.clock.step == 0


def test_nothing_is_recorded_after_uninstall(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    pauses = GcPauses(made)
    pauses.uninstall()
    pauses.install()
    pauses.uninstall()
    collect_much()
    assert phases(made, Phase.GC) == []
    made.close()
