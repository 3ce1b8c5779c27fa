"""How a trace begins."""

from __future__ import annotations


def begins_trace(head: bytes) -> bool:
    """Whether these first bytes of a file are those of a Chrome trace of the PyTorch profiler."""
    text = head.lstrip()
    if text.startswith(b"{"):
        return b'"traceEvents"' in text or (
            b'"schemaVersion"' in text and b'"deviceProperties"' in text
        )
    return text.startswith(b"[") and b'"ph"' in text and b'"ts"' in text
