"""A digest of tensors: a sum of their raw words, the same in whatever order it is added up.

Source: docs/math/replicas.md eq. 4. Nothing is copied, no gradient is recorded, and on a GPU
nothing is waited for: the sums stay on the device until somebody fetches them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

MULTIPLIER = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: odd, and no small pattern in its bits."""
MASK = (1 << 64) - 1
MAX_PIECES = 1024
"""Of a part: a sum takes about 10 us to begin, however little there is to add up."""
_WORD = 8
Span = tuple[int, int, int]
"""Which tensor, and which of its elements: from, up to."""


def divide(tensors: Sequence[Any], part_bytes: int) -> list[list[Span]]:
    """Return the tensors divided into parts of about ``part_bytes`` each, at least one part."""
    parts: list[list[Span]] = [[]]
    room = part_bytes
    begin_bytes = part_bytes // MAX_PIECES  # what could be read in the time that a piece costs
    for number, tensor in enumerate(tensors):
        size, done, elements = tensor.element_size(), 0, tensor.numel()
        while done < elements:
            if room <= 0:
                parts.append([])
                room = part_bytes
            # Pieces end at whole words, so that all but the last of them are read as such.
            take = min(max(room // _WORD * _WORD // size, _WORD), elements - done)
            parts[-1].append((number, done, done + take))
            done += take
            room -= take * size + begin_bytes
    return parts


def layout_of(tensors: Sequence[Any], part_bytes: int) -> int:
    """Return a checksum of all that decides how the bytes are read: equal ones are comparable."""
    facts = [
        (tuple(t.shape), str(t.dtype), t.is_contiguous(), t.data_ptr() % _WORD) for t in tensors
    ]
    return crc32(repr((part_bytes, facts)).encode())


def sums_of(torch: Any, tensors: Sequence[Any], part: Sequence[Span]) -> list[Any]:
    """Return the sums of the words of each span, integers on the tensors' device, one by one.

    Args:
        torch: the imported torch; gradients are off.
        tensors: all of one set.
        part: of them.
    """
    return [
        words.sum()
        for number, begin, end in part
        for words in _words(torch, tensors[number], begin, end)
    ]


def combine(sums: Sequence[int]) -> int:
    """Return the digest of sums in their order, 64 bits."""
    digest = 0
    for one in sums:
        digest = (digest * MULTIPLIER + one) & MASK
    return digest


def _words(torch: Any, tensor: Any, begin: int, end: int) -> list[Any]:
    """Return a span as integers: 64 bits wide as far as it goes, then as wide as its elements."""
    size = tensor.element_size()
    narrow = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    flat = _flat(tensor)
    if flat is None:  # strided in memory: rare, and slower
        return [tensor.view(narrow)] if begin == 0 else []
    flat = flat[begin:end]
    whole = (end - begin) * size // _WORD * _WORD // size
    if size == _WORD or flat.data_ptr() % _WORD or not whole:
        return [flat.view(narrow)]
    wide = [flat[:whole].view(torch.int64)]
    return wide if whole == end - begin else [*wide, flat[whole:].view(narrow)]


def _flat(tensor: Any) -> Any | None:
    """Return its memory as one row; None where it has holes, or is longer than its elements."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    # Dense in another order (channels_last): the sum does not mind the order.
    strides = sorted(
        (stride, length)
        for stride, length in zip(tensor.stride(), tensor.shape, strict=True)
        if length != 1
    )
    expected = 1
    for stride, length in strides:
        if stride != expected:
            return None
        expected *= length
    return tensor.as_strided((tensor.numel(),), (1,))
