"""What ranks are in, and how far they have come: the input of the diagnosis, as columns."""

from __future__ import annotations

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.records import BoolArray, Int64Array

MessageKey = tuple[int, int, int, bool]
"""Group, source, destination, and whether it is the sender who is known to have issued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """N collectives that are pending, of any ranks; columns of shape (N,).

    ``peer`` is that of a send or recv, else anything. ``age_ns`` is since when, by the clock of
    the rank that waits; -1 where nobody can tell.
    """

    rank: Int64Array
    group: Int64Array
    op: Int64Array
    seq: Int64Array
    step: Int64Array
    peer: Int64Array
    payload_bytes: Int64Array
    age_ns: Int64Array

    def __len__(self) -> int:
        """Return N."""
        return len(self.rank)

    def take(self, index: BoolArray | Int64Array) -> Waiting:
        """Return the rows that ``index`` selects."""
        return Waiting(**{name: getattr(self, name)[index] for name in WAITING_COLUMNS})


WAITING_COLUMNS = (
    "rank", "group", "op", "seq", "step", "peer", "payload_bytes", "age_ns",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """How far ranks have come in groups: M pairs of (rank, group), columns of shape (M,).

    ``issued`` is the newest sequence number that the rank is known to have issued, ``released``
    the newest whose end it saw; -1 is none. Send and recv are not in it.
    """

    rank: Int64Array
    group: Int64Array
    issued: Int64Array
    released: Int64Array


def waiting_of(rows: list[tuple[int, ...]]) -> Waiting:
    """Return rows in the order of ``WAITING_COLUMNS`` as columns."""
    table = np.array(rows, dtype=np.int64).reshape(-1, len(WAITING_COLUMNS))
    return Waiting(**{name: table[:, at].copy() for at, name in enumerate(WAITING_COLUMNS)})
