"""Whether a file is a log of text with times of training steps, or a dump of pipeline times."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from paceline.errors import InputError
from paceline_service.importers.opening import open_binary

_STATEMENTS = (
    rb"elapsed time per iteration \((?:ms|s)\): *[0-9]|times? across ranks \(ms\):[\s\x1b]|"
    rb"time \(ms\) \| [A-Za-z][A-Za-z0-9_ /.-]*: [0-9]|train_step_timing in s[:=] ?[0-9]|"
    rb"M[nx]Rtt/Rnk: [0-9.]+|Step Time : [0-9.]+s GPU utilization|iter time \(s\): [0-9]|"
    rb"CurrSamplesPerSec=[0-9]|\] step=[0-9]+, skipped=[0-9]+, lr=|"
    rb"Comm\. Op +Message Size +Count +Total"
)
"""With their values: a table of a manual or the source of a framework has only the words."""
_WORDS = (
    b"elapsed time per iteration", b"across ranks (ms)", b"time (ms) | ", b"train_step_timing in s",
    b"Rtt/Rnk", b"Step Time : ", b"iter time (s)", b"CurrSamplesPerSec=", b"skipped=", b"Comm. Op ",
)  # fmt: skip
"""One of them is in each statement; a word is looked for far faster than a pattern."""
MAX_BYTES = 1 << 30
"""Unpacked, of a file in which they are looked for."""
_CHUNK_BYTES = 1 << 20
_OVERLAP_BYTES = 128
_NOT_TEXT = b"\0"
_STRUCTURED = (b"{", b"[")


def begins_timing_log(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is such a log, as far as that tells."""
    if _NOT_TEXT in head or _is_structured(head):
        return False
    return _has_statement(head)


def holds_timing_log(path: Path) -> bool:
    """Return whether the statements come later: a log begins with pages of other output."""
    before, read = b"", 0
    try:
        with open_binary(path) as file:
            while read < MAX_BYTES and (chunk := file.read1(_CHUNK_BYTES)):  # type: ignore[attr-defined]
                if not read and (_NOT_TEXT in chunk or _is_structured(chunk)):
                    return False
                if _has_statement(before + chunk):
                    return True
                before, read = chunk[-_OVERLAP_BYTES:], read + len(chunk)
    except (EOFError, OSError, zlib.error, InputError):
        return False
    return False


def _has_statement(text: bytes) -> bool:
    return any(word in text for word in _WORDS) and re.search(_STATEMENTS, text) is not None


def _is_structured(head: bytes) -> bool:
    """Whether it is JSON: of that a log that merely quotes such a line may be part."""
    begin = head.lstrip()[:2]
    return begin[:1] == b"{" or begin in (b"[{", b"[\n", b"[]")


def begins_primus(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is of such a dump."""
    if head.lstrip()[:1] != b"{":
        return False
    if b'"fwd_start"' in head and b'"fwd_end"' in head and b'"total"' in head:
        return True
    return b'"pp_size"' in head and (b'"num_mbs"' in head or b'"micro_batches"' in head)
