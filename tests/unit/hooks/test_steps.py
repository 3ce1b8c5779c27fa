from __future__ import annotations

from paceline.hooks.steps import StepClock
from paceline.vocabulary import Phase, RecordKind


class Paper:
    """Keeps what a step clock records, as (name, step, start, end)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, int, int]] = []

    def record(
        self,
        kind: int,
        code: int,
        group: int,
        seq: int,
        step: int,
        peer: int,
        payload_bytes: int,
        start_ns: int,
        end_ns: int,
    ) -> None:
        name = "step" if kind == RecordKind.STEP else Phase(code).name.lower()
        self.lines.append((name, step, start_ns, end_ns))


def clock() -> tuple[StepClock, Paper]:
    paper = Paper()
    return StepClock(paper), paper


def one_step(clock: StepClock, at: int) -> None:
    """Input 1, host 1, forward 2, loss 1, backward 3, host 1, optimizer 1: ten ticks."""
    clock.input_begin(at)
    clock.input_end(at + 1, got_batch=True)
    clock.forward_begin(at + 2)
    clock.forward_return(at + 4, backward_follows=True)
    clock.backward_begin(at + 5)
    clock.backward_end(at + 8)
    clock.optimizer_begin(1, at + 9)
    clock.optimizer_end(at + 10)


def test_a_usual_step_is_four_phases_and_the_loss_belongs_to_forward() -> None:
    steps, paper = clock()
    one_step(steps, 10)
    one_step(steps, 20)
    assert paper.lines[:5] == [
        ("input", 0, 10, 11),
        ("forward", 0, 12, 15),
        ("backward", 0, 15, 18),
        ("optimizer", 0, 19, 20),
        ("step", 0, 10, 20),
    ]
    assert paper.lines[5] == ("input", 1, 20, 21)


def test_a_step_is_written_when_the_next_thing_happens() -> None:
    steps, paper = clock()
    one_step(steps, 10)
    assert paper.lines[-1][0] == "optimizer"
    steps.collective(21)
    assert paper.lines[-1] == ("step", 0, 10, 20)
    assert steps.step == 1


def test_without_a_hooked_forward_it_lasts_from_input_to_backward() -> None:
    steps, paper = clock()
    steps.input_begin(0)
    steps.input_end(1, got_batch=True)
    steps.backward_begin(5)
    assert paper.lines == [("input", 0, 0, 1), ("forward", 0, 1, 5)]


def test_a_batch_that_is_fetched_ahead_splits_the_forward() -> None:
    steps, paper = clock()
    steps.forward_begin(0)
    steps.forward_return(3, backward_follows=True)
    steps.input_begin(4)
    steps.input_end(6, got_batch=True)
    steps.backward_begin(8)
    assert paper.lines == [("forward", 0, 0, 3), ("input", 0, 4, 6), ("forward", 0, 6, 8)]


def test_a_forward_without_backward_ends_where_it_returned() -> None:
    steps, paper = clock()
    steps.forward_begin(0)
    steps.forward_return(3, backward_follows=False)
    steps.input_begin(9)
    assert paper.lines == [("forward", 0, 0, 3)]


def test_the_end_of_an_epoch_begins_no_forward() -> None:
    steps, paper = clock()
    steps.input_begin(0)
    steps.input_end(1, got_batch=False)
    steps.backward_begin(5)
    assert paper.lines == [("input", 0, 0, 1)]


def test_gradients_taken_in_the_forward_return_to_it() -> None:
    steps, paper = clock()
    steps.forward_begin(0)
    steps.backward_begin(2)
    steps.backward_end(3, accumulates=False)
    steps.forward_return(5, backward_follows=True)
    steps.backward_begin(6)
    assert paper.lines == [("forward", 0, 0, 2), ("backward", 0, 2, 3), ("forward", 0, 3, 6)]


def test_a_backward_within_backward_is_one() -> None:
    steps, paper = clock()
    steps.backward_begin(0)
    steps.backward_begin(1)
    steps.forward_begin(1)  # recomputation for checkpointing
    steps.forward_return(2, backward_follows=True)
    assert not steps.backward_end(3)
    assert steps.backward_end(4)
    assert paper.lines == [("backward", 0, 0, 4)]


def test_a_nested_optimizer_is_one_step() -> None:
    steps, paper = clock()
    steps.backward_begin(1)
    steps.backward_end(2)
    steps.optimizer_begin(1, 3)
    steps.optimizer_begin(2, 4)
    steps.optimizer_end(5)
    steps.optimizer_end(6)
    steps.commit()
    assert paper.lines[1:] == [("optimizer", 0, 3, 6), ("step", 0, 1, 6)]


def test_a_second_optimizer_extends_the_step() -> None:
    steps, paper = clock()
    one_step(steps, 10)
    steps.optimizer_begin(2, 21)
    steps.collective(22)  # its own, within its step
    steps.optimizer_end(23)
    one_step(steps, 30)
    ends = [line for line in paper.lines if line[0] == "step"]
    assert ends == [("step", 0, 10, 23)]
    assert steps.step == 1


def test_an_optimizer_after_a_collective_ends_no_second_step() -> None:
    steps, _ = clock()
    one_step(steps, 10)
    steps.collective(21)
    steps.optimizer_begin(2, 22)
    steps.optimizer_end(23)
    one_step(steps, 30)
    steps.commit()
    assert steps.step == 2


def test_an_optimizer_that_raised_does_not_hide_the_next_steps() -> None:
    steps, paper = clock()
    steps.backward_begin(0)
    steps.backward_end(1)
    steps.optimizer_begin(1, 2)  # raises: no end
    for at in (10, 20):
        one_step(steps, at)
    steps.commit()
    assert [line[1] for line in paper.lines if line[0] == "step"] == [0, 1]


def test_engines_of_their_own_make_a_step_of_every_optimizer_step() -> None:
    steps, _ = clock()
    for at in (0, 10, 20):
        steps.optimizer_begin(1, at)
        steps.optimizer_end(at + 1)
    steps.commit()
    assert steps.step == 3


def test_level_off_counts_steps_and_records_nothing() -> None:
    steps = StepClock(None)
    one_step(steps, 0)
    steps.commit()
    assert steps.step == 1


def test_marking_steps_by_hand_overrules_the_optimizer() -> None:
    steps, _ = clock()
    one_step(steps, 0)
    steps.mark_step(11)
    assert steps.step == 1
    one_step(steps, 20)
    steps.commit()
    assert steps.step == 1
    steps.mark_step(31)
    assert steps.step == 2


def test_a_copy_between_batch_and_forward_is_no_forward() -> None:
    steps, paper = clock()
    one_step(steps, 10)  # a forward was seen once: until the next one the time is the host's
    steps.input_begin(20)
    steps.input_end(21, got_batch=True)
    steps.copied(22, 24)
    steps.copied(25, 26)
    steps.forward_begin(27)
    steps.copied(27, 28)
    steps.forward_return(29, backward_follows=True)
    steps.backward_begin(30)
    assert paper.lines[5:] == [
        ("input", 1, 20, 21),
        ("copy", 1, 22, 24),
        ("copy", 1, 25, 26),
        ("forward", 1, 27, 30),
    ]


def test_a_copy_parts_a_forward_that_is_not_seen_to_begin() -> None:
    steps, paper = clock()
    steps.input_begin(10)
    steps.input_end(11, got_batch=True)
    steps.copied(12, 14)
    steps.backward_begin(18)
    assert paper.lines == [
        ("input", 0, 10, 11),
        ("forward", 0, 11, 12),
        ("copy", 0, 12, 14),
        ("forward", 0, 14, 18),
    ]


def test_copies_at_other_times_are_what_surrounds_them() -> None:
    steps, paper = clock()
    steps.copied(1, 2)
    steps.backward_begin(10)
    steps.copied(11, 12)
    steps.backward_end(13)
    steps.copied(13, 14)
    assert paper.lines == [("backward", 0, 10, 13)]


def test_a_checkpoint_belongs_to_the_step_after_and_counts_once() -> None:
    steps, paper = clock()
    one_step(steps, 10)
    steps.checkpoint_begin(22)
    steps.checkpoint_begin(23)
    steps.checkpoint_end(24)
    steps.checkpoint_end(28)
    steps.input_begin(30)
    steps.input_end(31, got_batch=True)
    assert paper.lines[4:] == [
        ("step", 0, 10, 20),
        ("checkpoint", 1, 22, 28),
        ("input", 1, 30, 31),
    ]


def test_a_checkpoint_between_batch_and_forward_takes_nothing_else() -> None:
    steps, paper = clock()
    steps.input_begin(10)
    steps.input_end(11, got_batch=True)
    steps.checkpoint_begin(12)
    steps.checkpoint_end(15)
    steps.backward_begin(18)
    assert paper.lines == [
        ("input", 0, 10, 11),
        ("forward", 0, 11, 12),
        ("checkpoint", 0, 12, 15),
        ("forward", 0, 15, 18),
    ]


def test_another_thread_begins_with_nothing_open() -> None:
    steps, paper = clock()
    steps.input_begin(10)  # in the thread that never comes back to it
    steps.restart(12)
    one_step(steps, 20)
    one_step(steps, 30)
    assert paper.lines[:2] == [("input", 0, 10, 12), ("input", 0, 20, 21)]
    assert ("step", 0, 10, 30) in paper.lines
    assert ("input", 1, 30, 31) in paper.lines


def test_the_present_step_is_the_next_one_as_soon_as_the_optimizer_is_done() -> None:
    steps, _ = clock()
    assert steps.present_step == 0
    one_step(steps, 10)
    assert (steps.step, steps.present_step) == (0, 1)
    steps.optimizer_begin(2, 21)  # a second one in a row: the step goes on
    assert steps.present_step == 0
    steps.optimizer_end(22)
    steps.input_begin(23)
    assert (steps.step, steps.present_step) == (1, 1)
