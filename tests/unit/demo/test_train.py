"""The training script of the demonstration, one rank at a time and without a launcher."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from paceline_service.demo import train as script

TINY = argparse.Namespace(steps=40, batch=4, window=24, width=32, layers=2, rate=5e-3, seed=7)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def no_fault() -> script.Fault:
    return script.Fault("none", active=False, pause_ms=0, first_step=0)


def paused(place: str, pause_ms: float = 120, first_step: int = 0) -> script.Fault:
    return script.Fault(place, active=True, pause_ms=pause_ms, first_step=first_step)


def test_the_script_knows_nothing_of_who_watches_it() -> None:
    assert "paceline" not in Path(script.__file__).read_text(encoding="utf-8").lower()


@pytest.mark.usefixtures("alone")
def test_the_loss_falls() -> None:
    lines: list[str] = []
    first, last = script.train(TINY, no_fault(), lines.append)
    assert last < 0.85 * first
    assert lines[0].startswith("step 10/40  loss ")


def test_text_agrees_in_number_and_uses_only_letters_of_the_alphabet() -> None:
    text = script.write_text(200, seed=1)
    assert set(text) <= set(script.ALPHABET)
    assert all(line.split()[0] in ("a", "two") for line in text.splitlines())
    singular = next(line for line in text.splitlines() if line.startswith("a "))
    assert singular.split()[3].endswith("s")


def test_a_seed_makes_the_same_text_again() -> None:
    assert script.write_text(20, seed=3) == script.write_text(20, seed=3)


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def quickest_s(action: Callable[[], object]) -> float:
    """A pause is in every call, what the machine does to us is not."""
    return min(seconds(action) for _ in range(40))


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.randint(0, len(script.ALPHABET), (2, 16))
    return codes, codes


def model_with(fault: script.Fault) -> script.Transformer:
    return script.Transformer(width=16, heads=4, layers=2, window=16, fault=fault)


def test_a_forward_fault_pauses_in_forward_only(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    model = model_with(paused("forward"))
    logits = model(batch[0])
    assert seconds(lambda: model(batch[0])) > 0.1
    assert quickest_s(lambda: logits.sum().backward(retain_graph=True)) < 0.09


def test_a_backward_fault_pauses_in_backward_only(
    batch: tuple[torch.Tensor, torch.Tensor],
) -> None:
    model = model_with(paused("backward"))
    model(batch[0])
    assert quickest_s(lambda: model(batch[0])) < 0.09
    assert seconds(lambda: model(batch[0]).sum().backward()) > 0.1


def test_a_backward_fault_changes_no_gradient(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    torch.manual_seed(0)
    slow = model_with(paused("backward", pause_ms=1))
    torch.manual_seed(0)
    healthy = model_with(no_fault())
    for model in (slow, healthy):
        model(batch[0]).square().sum().backward()
    for one, other in zip(slow.parameters(), healthy.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]


def test_an_optimizer_fault_pauses_between_the_global_step_hooks() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = script.Optimizer(iter([parameter]), 1e-3, paused("optimizer"))
    parameter.grad = torch.ones(2)
    entered: list[float] = []
    left: list[float] = []
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    handles = [
        register_optimizer_step_pre_hook(lambda *_: entered.append(time.perf_counter())),
        register_optimizer_step_post_hook(lambda *_: left.append(time.perf_counter())),
    ]
    try:
        optimizer.step()
    finally:
        for handle in handles:
            handle.remove()
    assert left[-1] - entered[0] > 0.1


def test_an_input_fault_pauses_while_a_batch_is_made() -> None:
    windows = script.TextWindows(script.write_text(20, 1), 16, paused("input"))
    loader = torch.utils.data.DataLoader(windows, batch_size=2, collate_fn=windows.collate)
    batches = iter(loader)
    assert seconds(lambda: next(batches)) > 0.1


def test_the_fault_waits_for_its_first_step() -> None:
    fault = paused("host", first_step=5)
    fault.step = 4
    assert quickest_s(lambda: fault.at("host")) < 0.09
    fault.step = 5
    assert seconds(lambda: fault.at("host")) > 0.1


def test_other_ranks_never_pause() -> None:
    fault = script.fault_from_environment({"FAULT": "backward"}, rank=1, world_size=4, steps=90)
    assert fault.place == "none"


def test_the_default_is_a_pause_in_backward_on_rank_2_after_a_third_of_the_run() -> None:
    fault = script.fault_from_environment({"FAULT": "", "DEMO_SLOW_RANK": ""}, 2, 4, 90)
    assert (fault.place, fault.first_step) == ("backward", 30)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"FAULT": "gpu"}, "FAULT=gpu is unknown; choose one of: none, input"),
        ({"DEMO_SLOW_RANK": "4"}, "ranks are 0 to 3"),
        ({"DEMO_SLOW_RANK": "two"}, "are numbers"),
    ],
)
def test_a_fault_that_does_not_exist_ends_with_a_message(
    environment: dict[str, str], said: str
) -> None:
    with pytest.raises(SystemExit, match=said):
        script.fault_from_environment(environment, rank=0, world_size=4, steps=90)
