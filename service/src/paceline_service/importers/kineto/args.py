"""What a trace says beside a collective's kernel or call."""

from __future__ import annotations

from typing import Any

from paceline.dataclass import dataclass


@dataclass(slots=True)
class Args:
    """Arguments of an event; absent ones are None. Their types vary between versions."""

    correlation: Any = None
    stream: Any = None
    grid: Any = None
    dtype: Any = None
    collective: Any = None
    in_elements: Any = None
    out_elements: Any = None
    group_size: Any = None
    group_name: Any = None
    group_ranks: Any = None
    first_rank: Any = None
    rank_stride: Any = None
    seq: Any = None
    source: Any = None
    destination: Any = None
