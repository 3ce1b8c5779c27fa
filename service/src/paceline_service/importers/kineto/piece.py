"""What is used of a piece of a trace, as one process hands it to another.

It needs little: whoever takes pieces imports nothing that reads them.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any

from paceline.dataclass import dataclass

GPU, LAUNCHES, CALLS, HOST, BACKWARD, STEPS, PHASES, OTHERS = range(8)
"""Tables of a piece. Each begins with start and duration in us, as the trace gives them; then:
GPU: whether it communicates (2: memory), correlation, stream; LAUNCHES: correlation, thread;
CALLS: thread; STEPS: number; PHASES: code. BACKWARD repeats rows of HOST; OTHERS tell only when
there was something."""
WIDTHS = (5, 4, 3, 2, 2, 3, 3, 2)

Told = tuple[Any, ...]
"""The fields of ``Args`` in their order."""


@dataclass(slots=True)
class Piece:
    """A piece of one trace: ``tables`` are columns of doubles, one after the other.

    Everything in it is of Python's own plain types.
    """

    tables: list[bytes] = field(default_factory=list)
    kernel_names: list[str] = field(default_factory=list)
    """Of the rows of GPU that communicate; ``kernel_args`` beside them."""
    kernel_args: list[Told | None] = field(default_factory=list)
    suspects: dict[str, int] = field(default_factory=dict)
    """Kernels that look like communication but are of no known name: how many of each."""
    compute_streams: set[int] = field(default_factory=set)
    """Streams on which other kernels ran."""
    call_names: list[str] = field(default_factory=list)
    call_args: list[Told | None] = field(default_factory=list)
    odd_times: int = 0
    packed_bytes: int = 0
    """How much of the file was read since the piece before."""
    faults: list[tuple[str, str, int]] = field(default_factory=list)
    """Reason, sentence, count."""
    metadata: dict[str, Any] | None = None
    """Comes with the last piece of a file."""
    whole: bool = True

    def plain(self) -> tuple[Any, ...]:
        """Return the values, of which ``Piece(*values)`` is made again."""
        return tuple(getattr(self, name) for name in _NAMES)


_NAMES = tuple(one.name for one in fields(Piece))
