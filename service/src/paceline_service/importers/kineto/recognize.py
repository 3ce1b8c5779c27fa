"""How a trace begins."""

from __future__ import annotations

_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def begins_trace(head: bytes) -> bool:
    """Whether these first bytes of a file are those of a Chrome trace of the PyTorch profiler.

    Also in UTF-16, which is not read but deserves a better answer than an unknown format.
    """
    if encoding := _UTF16.get(head[:2]):
        head = head[2:].decode(encoding, errors="replace").encode()
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return b'"traceEvents"' in text or (
            b'"schemaVersion"' in text and b'"deviceProperties"' in text
        )
    return text.startswith(b"[") and b'"ph"' in text and b'"ts"' in text
