"""Transfers one by one, of growing size, while nothing else runs: what the wire costs alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

SMALLEST_BYTES = 4096
"""Start-up is nearly all of what so little takes."""
SIZES = 7
REPETITIONS, LEAST_REPETITIONS = 24, 3
MOST_PROBED_BYTES = 64 << 20
"""Of one kind and size, beyond the least repetitions: a large model is not to wait for minutes."""


def probe(device: torch.device, largest_bytes: int) -> str:
    """Run each kind of collective at each size; Paceline measures them, nothing is timed here.

    Args:
        device: of the tensors.
        largest_bytes: of the sizes, so that the line covers what training sends.

    Returns:
        The name of the process group, by which they are found again.
    """
    group = dist.new_group(group_desc="lab-probe")
    assert group is not None
    ranks = dist.get_world_size()
    calls = {}
    for size in probe_bytes(largest_bytes):
        whole = torch.zeros(size // 4, device=device)
        part = torch.zeros(size // 4 // ranks, device=device)
        whole = whole[: len(part) * ranks]
        calls[size] = _calls(whole, part, group)
    # In rounds over all sizes: a burst of something else on the machine does not hit one alone.
    for done in range(REPETITIONS):
        dist.barrier(group=group)  # the smallest would meet what the largest left behind
        for size, of_size in calls.items():
            if done < max(MOST_PROBED_BYTES // size, LEAST_REPETITIONS):
                for call in of_size:
                    call()
    return str(group.group_name)


def probe_bytes(largest_bytes: int) -> list[int]:
    """Return sizes from the smallest to the largest, each the same factor more than the last."""
    factor = max(largest_bytes / SMALLEST_BYTES, 4.0) ** (1 / (SIZES - 1))
    return [round(SMALLEST_BYTES * factor**power) for power in range(SIZES)]


def _calls(whole: Tensor, part: Tensor, group: dist.ProcessGroup) -> list[Callable[[], object]]:
    return [
        lambda: dist.all_reduce(whole, group=group),
        lambda: dist.all_gather_into_tensor(whole, part, group=group),
        lambda: dist.reduce_scatter_tensor(part, whole, group=group),
    ]
