"""What became of one attempt to deliver a message."""

from __future__ import annotations

import email.utils
import time
from dataclasses import dataclass
from typing import Literal

from paceline_service.notify.http import Answer

Verdict = Literal["delivered", "again", "refused"]
MAX_RETRY_AFTER_S = 3600.0
_AGAIN = frozenset({401, 403, 404, 408, 409, 425, 429})
"""Statuses that another attempt may change: some of them after somebody mended a setting."""
_NOT_TAKEN = frozenset({401, 403, 404, 429})
"""With these the receiver says that it did nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How it went."""

    verdict: Verdict
    thread: str | None = None
    """What the receiver calls the first message, where it has changed."""
    reason: str = ""
    """Why it was not delivered; never a secret."""
    after_s: float = 0.0
    """Do not try again before."""
    uncertain: bool = False
    """It may have arrived all the same."""


DELIVERED = Result(verdict="delivered")


def result_of(answer: Answer, where: str) -> Result:
    """Return what an HTTP answer means, by its status alone."""
    if 200 <= answer.status < 300:
        return DELIVERED
    reason = f"{where} answers {answer.status}: {said(answer)}"
    if answer.status in _AGAIN or answer.status >= 500:
        return Result(
            verdict="again",
            reason=reason,
            after_s=retry_after_s(answer),
            uncertain=answer.status not in _NOT_TAKEN,
        )
    if 300 <= answer.status < 400:
        reason = f"{where} answers {answer.status}; redirects are not followed: give the last URL"
    return Result(verdict="refused", reason=reason)


def retry_after_s(answer: Answer, now_s: float | None = None) -> float:
    """Return how long the receiver wants to be left alone; 0 where it does not say."""
    value = answer.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), MAX_RETRY_AFTER_S)
    try:
        when = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(0.0, when - (time.time() if now_s is None else now_s)), MAX_RETRY_AFTER_S)


def said(answer: Answer) -> str:
    """Return the beginning of an answer on one line, for errors."""
    text = answer.body[:200].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text).strip()
