from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from paceline.hooks.patches import Patches
from paceline.hooks.replica_digest import MAX_PIECES, combine, divide, layout_of, sums_of
from paceline.hooks.replica_sets import ReplicaSets, _why_not

PART_BYTES = 1 << 20
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool)


def digest(tensors: list[torch.Tensor], part_bytes: int = PART_BYTES) -> list[int]:
    with torch.no_grad():
        return [
            combine([int(one) for one in sums_of(torch, tensors, part)])
            for part in divide(tensors, part_bytes)
        ]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=draw) * 8).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 3, 8, 1001])
def test_one_changed_byte_changes_the_digest_wherever_it_is(dtype: torch.dtype, size: int) -> None:
    tensors = [random(5), random(size, dtype=dtype), random(7)]
    whole = digest(tensors)
    raw = tensors[1].view(torch.uint8)
    for place in {0, len(raw) // 2, len(raw) - 1}:
        raw[place] ^= 1
        assert digest(tensors) != whole
        raw[place] ^= 1
    assert digest(tensors) == whole


def test_the_digest_does_not_depend_on_threads_nor_on_the_order_in_memory() -> None:
    tensors = [random(300, 1000), random(4, 3, 5, 7)]
    whole = digest(tensors)
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    try:
        assert digest(tensors) == whole
    finally:
        torch.set_num_threads(threads)
    last = tensors[1].contiguous(memory_format=torch.channels_last)
    assert digest([tensors[0], last]) == digest([tensors[0], last.clone()])
    assert layout_of([tensors[0], last], PART_BYTES) != layout_of(tensors, PART_BYTES)


def test_tensors_that_change_places_or_have_holes_are_told_apart() -> None:
    one, other = random(100, seed=1), random(100, seed=2)
    assert digest([one, other]) != digest([other, one])
    holes = random(64, 3)[:, 1]
    before = digest([holes])
    holes[63] += 1
    assert digest([holes]) != before


def test_parts_cover_every_element_once_and_one_flip_shows_in_one_of_them() -> None:
    tensors = [random(3), random(10_000), random(1), random(777, dtype=torch.bfloat16)]
    parts = divide(tensors, 4096)
    assert len(parts) >= 10
    seen = [torch.zeros(t.numel()) for t in tensors]
    for number, begin, end in (span for part in parts for span in part):
        seen[number][begin:end] += 1
    assert all((one == 1).all() for one in seen)
    before = digest(tensors, 4096)
    tensors[1].view(torch.int32)[8765] ^= 1 << 30
    assert sum(one != other for one, other in zip(before, digest(tensors, 4096), strict=True)) == 1


def test_reading_records_no_gradient_and_changes_nothing() -> None:
    parameter = torch.nn.Parameter(random(1000))
    version = parameter._version
    digest([parameter.detach()])
    assert parameter._version == version
    assert parameter.grad is None


class Module:
    """What the check looks at in a module of DistributedDataParallel."""

    def __init__(self) -> None:
        self._join_config = type("Join", (), {"enable": False})
        self.mixed_precision = None
        self.process_group = SimpleNamespace(group_name="dp")
        self._comm_hooks: list[tuple[object, object]] = []
        self._module_parameters = [torch.nn.Parameter(random(3))]


def test_a_module_that_is_updated_without_averaging_is_left_alone_from_then_on() -> None:
    told: list[str] = []
    sets = ReplicaSets(Patches(), told.append)
    module, other = Module(), Module()
    sets.made(module)
    sets.made(other)
    optimizer = torch.optim.SGD(module._module_parameters, 0.1)
    for synchronizes in (True, False, True):
        module.require_forward_param_sync = synchronizes
        other.require_forward_param_sync = False  # but this optimizer is not its own
        sets.updates(optimizer)
    assert [one.tensors for one in sets.now(0)] == [other._module_parameters]
    assert ["after a forward without synchronization" in one for one in told] == [True]


def test_modules_keep_their_numbers_when_earlier_ones_are_gone() -> None:
    sets = ReplicaSets(Patches(), lambda what: None)
    gone, kept = Module(), Module()
    sets.made(gone)
    sets.made(kept)
    assert [one.module for one in sets.now(0)] == [0, 1]
    del gone
    assert [one.module for one in sets.now(0)] == [1]


def test_modules_whose_replicas_may_differ_by_right_are_left_alone() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook

    module = Module()
    assert _why_not(module) == ""
    module._comm_hooks = [(default_hooks.bf16_compress_hook, None)]
    assert _why_not(module) == ""
    module._comm_hooks = [(post_localSGD_hook.post_localSGD_hook, None)]
    assert "post_localSGD_hook" in _why_not(module)
    module._comm_hooks = [(lambda state, bucket: None, None)]
    assert "communication hook" in _why_not(module)
    module = Module()
    module._join_config.enable = True
    assert "Join" in _why_not(module)


def test_many_small_tensors_are_divided_too_since_each_costs_time() -> None:
    tensors = [torch.ones(4) for _ in range(5000)]
    parts = divide(tensors, 64 << 20)
    assert len(parts) == 5
    assert max(map(len, parts)) <= MAX_PIECES + 1
    assert [number for part in parts for number, _, _ in part] == list(range(5000))
