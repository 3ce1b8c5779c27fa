"""Waiting for what a page shows; its CSP forbids playwright's own wait_for_function."""

from __future__ import annotations

import time
from typing import Any

PATIENCE_S = 40.0
DASH = "\u2013"
"""Between two steps or ranks, and for what is not known."""


def until(page: Any, expression: str, argument: Any = None) -> Any:
    """Return the value of ``expression`` in the page once it is true.

    Raises:
        AssertionError: it has not become true in time.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        value = page.evaluate(expression, argument)
        if value:
            return value
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not true within {PATIENCE_S} s: {expression} ({argument!r})")
        page.wait_for_timeout(50)


def until_text(page: Any, selector: str, part: str) -> None:
    """Wait until the first element of ``selector`` contains ``part``."""
    until(page, _TEXT, [selector, part])


_TEXT = "([s, part]) => document.querySelector(s)?.textContent.includes(part)"
