"""The replica check on a real GPU: the same digest as on a CPU, and nobody waits for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paceline.hooks.patches import Patches
from paceline.hooks.replica_digest import combine, divide, sums_of
from paceline.hooks.replica_sets import ReplicaSets
from paceline.hooks.replicas import ReplicaCheck
from paceline.ring.replicas import ReplicaDigest

pytestmark = pytest.mark.gpu


class Module:
    """What the check looks at in a module of DistributedDataParallel."""

    mixed_precision = None
    require_forward_param_sync = True
    _comm_hooks: tuple[()] = ()
    _join_config = SimpleNamespace(enable=False)
    process_group = SimpleNamespace(group_name="0", _get_sequence_number_for_group=lambda: 5)

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        self._module_parameters = parameters


def digest(tensors: list[torch.Tensor]) -> int:
    (part,) = divide(tensors, 1 << 30)
    return combine([int(one) for one in sums_of(torch, tensors, part)])


def test_a_check_synchronizes_nothing_and_gives_the_digest_of_the_cpu() -> None:
    shapes, dtypes = [(1000, 1000), (7,), (33, 3)], [torch.float32, torch.bfloat16, torch.float16]
    host = [torch.randn(shape).to(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    module = Module([torch.nn.Parameter(one.cuda()) for one in host])
    written: list[ReplicaDigest] = []
    recorder: Any = SimpleNamespace(
        clock=SimpleNamespace(step=0), level="full", writer=SimpleNamespace(digest=written.append),
        groups=SimpleNamespace(get=lambda group: SimpleNamespace(index=0, size=2)),
    )  # fmt: skip

    def failed(error: Exception) -> None:
        raise error

    recorder.failed = failed
    sets = ReplicaSets(Patches(), lambda what: None)
    sets.made(module)
    optimizer = torch.optim.SGD(module._module_parameters, lr=0.1)
    check = ReplicaCheck(torch, recorder, 1, sets)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        check.optimizer_begins(optimizer)
        with torch.no_grad():
            module._module_parameters[0].add_(1)  # the update comes behind the read
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    check.flush()
    assert [one.digest for one in written] == [digest(host)]
