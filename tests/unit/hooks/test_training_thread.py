from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tests.unit.hooks.kit import recorder


def in_a_thread(action: Callable[[], object]) -> object:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(action()))
    thread.start()
    thread.join()
    return found[0]


def test_until_an_optimizer_steps_any_thread_may_train(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    assert in_a_thread(made.in_training_thread)
    assert made.training_thread_id == 0
    made.claim_training_thread()
    assert made.in_training_thread()
    assert made.training_thread_id == threading.get_native_id()
    assert not in_a_thread(made.in_training_thread)
    made.close()


def test_training_that_moved_out_of_a_thread_that_ended_goes_on_at_once(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    in_a_thread(made.claim_training_thread)
    made.claim_training_thread()
    assert made.in_training_thread()
    made.close()


def test_training_that_moved_out_of_a_living_thread_goes_on_with_the_second_step(
    tmp_path: Path,
) -> None:
    made = recorder(tmp_path)
    made.claim_training_thread()

    def step_twice() -> list[bool]:
        found = []
        for _ in range(2):
            made.claim_training_thread()
            found.append(made.in_training_thread())
        return found

    assert in_a_thread(step_twice) == [False, True]
    assert not made.in_training_thread()
    made.close()


def test_threads_that_step_in_turns_do_not_take_over_from_each_other(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    made.claim_training_thread()
    turn, back = threading.Event(), threading.Event()

    def step_when_told() -> None:
        for _ in range(5):
            turn.wait()
            turn.clear()
            made.claim_training_thread()
            back.set()

    other = threading.Thread(target=step_when_told)
    other.start()
    for _ in range(5):
        turn.set()
        back.wait()
        back.clear()
        assert made.in_training_thread()
        made.claim_training_thread()
    other.join()
    made.close()


def test_a_rival_that_steps_during_a_backward_is_not_taken_for_autograd(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    made.claim_training_thread()
    assert made.may_be_autograd()
    assert not in_a_thread(made.may_be_autograd)
    made.close()
