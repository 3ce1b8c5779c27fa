"""Transfers one by one, of growing size, while nothing else runs: what the wire costs alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

PROBE_BYTES = tuple(4096 * 4**power for power in range(6))
"""4 KiB to 4 MiB: start-up dominates the smallest, bandwidth the largest."""
REPETITIONS = 12


def probe(device: torch.device) -> str:
    """Run each kind of collective at each size; Paceline measures them, nothing is timed here.

    Returns:
        The name of the process group, by which they are found again.
    """
    group = dist.new_group(group_desc="lab-probe")
    assert group is not None
    ranks = dist.get_world_size()
    for size in PROBE_BYTES:
        whole = torch.zeros(size // 4, device=device)
        part = torch.zeros(size // 4 // ranks, device=device)
        whole = whole[: len(part) * ranks]
        for call in _calls(whole, part, group):
            for _ in range(REPETITIONS):
                call()
    return str(group.group_name)


def _calls(whole: Tensor, part: Tensor, group: dist.ProcessGroup) -> list[Callable[[], object]]:
    return [
        lambda: dist.all_reduce(whole, group=group),
        lambda: dist.all_gather_into_tensor(whole, part, group=group),
        lambda: dist.reduce_scatter_tensor(part, whole, group=group),
    ]
