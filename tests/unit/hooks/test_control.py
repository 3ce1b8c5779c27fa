from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.hooks.control import STEPLESS_NS
from paceline.hooks.recorder import Recorder
from paceline.ring import layout as at
from paceline.ring.control import Setting, pack_control, write_control
from paceline.vocabulary import Flag, Phase, RecordKind
from tests.unit.hooks.kit import recorder, records

MS = 1_000_000


class Training:
    """A rank that trains: one optimizer step after forward and backward, 10 ms a step."""

    def __init__(self, made: Recorder) -> None:
        self.made = made
        self.now_ns = 1000 * MS
        self.full: dict[int, bool] = {}
        self.detail: dict[int, bool] = {}

    def steps(self, count: int) -> None:
        clock = self.made.clock
        for _ in range(count):
            clock.forward_begin(self._tick())
            self.full[clock.step] = self.made.full
            self.detail[clock.step] = self.made.detail
            clock.forward_return(self._tick(), backward_follows=True)
            clock.backward_begin(self._tick())
            clock.backward_end(self._tick())
            clock.optimizer_begin(1, self._tick())
            clock.optimizer_end(self._tick())
        self.made.before_collective(self._tick())  # the last step is committed

    def _tick(self) -> int:
        self.now_ns += MS
        return self.now_ns

    def ask(
        self, effective_step: int, level: str = "full", stride: int = 1, generation: int = 1
    ) -> None:
        setting = Setting(
            generation=generation, effective_step=effective_step, level=level, stride=stride
        )
        write_control(self.made.writer.path, self.made.writer.identity.incarnation, setting)

    def written(self) -> tuple[list[int], list[int], list[int]]:
        """Return the steps that have a STEP record, those without the flag, those with phases."""
        rows = records(self.made)
        steps = [r for r in rows if r.kind == RecordKind.STEP]
        phases = {r.step for r in rows if r.kind == RecordKind.PHASE}
        whole = [r.step for r in steps if not r.flags & Flag.NO_COLLECTIVES]
        return [r.step for r in steps], whole, sorted(phases)

    def applied(self) -> tuple[int, int]:
        path = self.made.writer.path.read_bytes()
        words = (at.APPLIED_GENERATION_OFFSET, at.APPLIED_STEP_OFFSET)
        generation, step = (at.U64.unpack_from(path, offset)[0] for offset in words)
        return generation, step

    def counted(self, offset: int) -> int:
        return int(at.U64.unpack_from(self.made.writer.path.read_bytes(), offset)[0])


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    made = recorder(tmp_path)
    yield Training(made)
    made.close()


def test_a_setting_takes_effect_with_the_step_that_was_agreed(training: Training) -> None:
    training.steps(3)
    training.ask(6, "collectives")
    training.steps(2)
    assert training.applied() == (0, 0)
    training.steps(5)
    assert training.applied() == (1, 6)
    assert [step for step, detail in training.detail.items() if detail] == [0, 1, 2, 3, 4, 5]
    assert all(training.full.values())
    assert training.made.level == "collectives"


def test_with_a_stride_every_kth_step_is_whole_and_of_the_others_the_time_is_kept(
    training: Training,
) -> None:
    training.ask(4, stride=3)
    training.steps(13)
    steps, whole, phases = training.written()
    assert steps == list(range(13))
    assert whole == phases == [0, 1, 2, 3, 6, 9, 12]
    assert [step for step, full in training.full.items() if full] == whole
    training.ask(14, generation=2)
    training.steps(4)
    assert training.written()[1][-4:] == [12, 14, 15, 16]


def test_off_writes_nothing_and_the_steps_are_counted_on(training: Training) -> None:
    training.ask(2, "off")
    training.steps(10)
    assert training.written() == ([0, 1], [0, 1], [0, 1])
    training.ask(12, "full", generation=2)
    training.steps(4)
    assert training.written() == ([0, 1, 12, 13], [0, 1, 12, 13], [0, 1, 12, 13])
    assert training.applied() == (2, 12)


def test_off_from_the_start_can_be_switched_on(tmp_path: Path) -> None:
    training = Training(recorder(tmp_path, "off"))
    training.steps(3)
    assert training.written() == ([], [], [])
    training.ask(4)
    training.steps(3)
    assert training.written() == ([4, 5], [4, 5], [4, 5])
    training.made.close()


def test_level_steps_keeps_phases_and_says_that_there_are_no_collectives(
    training: Training,
) -> None:
    training.ask(2, "steps")
    training.steps(4)
    assert training.written() == ([0, 1, 2, 3], [0, 1], [0, 1, 2, 3])
    assert [training.full[step] for step in range(4)] == [True, True, False, False]


def test_a_step_that_is_past_already_is_made_up_for_at_once_and_told(training: Training) -> None:
    training.steps(5)
    training.ask(2, "off")
    training.steps(2)
    assert training.applied() == (1, 6)  # step 5 had begun when it was asked


def test_a_block_that_is_torn_is_ignored_until_it_is_whole_and_one_that_stays_so_is_counted(
    training: Training,
) -> None:
    block = bytearray(pack_control(Setting(generation=9, effective_step=0, level="off", stride=1)))
    path = training.made.writer.path
    whole = bytes(block)
    block[12] ^= 1
    with path.open("r+b") as file:
        file.seek(at.CONTROL_OFFSET)
        file.write(block)
    training.steps(1)
    assert training.made.full
    assert training.counted(at.CONTROL_REFUSED_OFFSET) == 0
    training.steps(5)
    assert training.made.full
    assert training.counted(at.CONTROL_REFUSED_OFFSET) == 1
    with path.open("r+b") as file:
        file.seek(at.CONTROL_OFFSET)
        file.write(whole)
    training.steps(1)
    assert not training.made.full
    assert training.counted(at.HOOK_ERRORS_OFFSET) == 0


def test_a_rank_that_ends_no_steps_follows_after_a_while_and_keeps_everything(
    training: Training,
) -> None:
    made = training.made
    made.before_collective(10 * MS)
    training.ask(1000, "collectives", stride=7)
    made.control.poll(20 * MS)
    made.control.poll(20 * MS + STEPLESS_NS - 1)
    assert made.level == "full"
    made.control.poll(20 * MS + STEPLESS_NS)
    assert (made.level, made.full, training.applied()) == ("collectives", True, (1, 0))
    # Should it begin to count steps: the level changed in the middle of the first one.
    training.steps(8)
    assert training.written() == (list(range(8)), [7], [0, 7])


def test_a_rank_that_ends_steps_does_not_change_between_them(training: Training) -> None:
    training.steps(2)
    training.ask(1000, "off")
    training.made.control.poll(1 * MS)
    training.made.control.poll(2 * MS + STEPLESS_NS)
    training.steps(2)
    assert training.made.level == "full"


def test_a_later_setting_replaces_one_that_is_not_in_force_yet(training: Training) -> None:
    training.ask(5, "off")
    training.steps(2)
    training.ask(8, "steps", generation=2)
    training.steps(8)
    assert training.applied() == (2, 8)
    assert training.written()[0] == list(range(10))


def test_in_a_new_ring_the_setting_stays_and_is_told_again(
    training: Training, tmp_path: Path
) -> None:
    training.ask(1, "steps", stride=2)
    training.steps(3)
    other = recorder(tmp_path / "other").writer
    training.made.renew(other)
    assert training.applied() == (1, 1)
    training.ask(0, "steps", stride=2)  # by the sidecar, that has found the ring
    training.steps(2)
    assert training.applied() == (1, 1)
    assert training.written()[0] == [3, 4]
    assert Phase.FORWARD in {r.code for r in records(training.made) if r.step == 4}
    training.ask(0, "off", generation=2)
    training.steps(2)
    assert training.applied() == (2, 6)


class Plugin:
    """What NCCL has loaded into the process, as far as the level is its business."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def paceline_capture(self, on: int) -> None:
        self.told.append(on)


def test_the_nccl_plugin_is_told_when_collectives_go_off_and_on_and_not_of_a_stride(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = Plugin()
    monkeypatch.setattr("paceline.plugin.load", lambda: plugin)
    for generation, (level, stride) in enumerate(
        [("collectives", 1), ("steps", 1), ("off", 1), ("full", 5), ("collectives", 2)], start=1
    ):
        training.ask(0, level, stride, generation)
        training.steps(3)
    assert plugin.told == [0, 1]


def test_a_plugin_that_cannot_be_loaded_changes_nothing(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> None:
        raise OSError("no such library")

    monkeypatch.setattr("paceline.plugin.load", load)
    training.ask(0, "off")
    training.steps(2)
    assert not training.made.full
    assert training.counted(at.HOOK_ERRORS_OFFSET) == 0
