"""A refusal of the collector as an exception."""

from __future__ import annotations

import http.client
import json
from typing import Any

from paceline.errors import TransportError

MAX_ERROR_BYTES = 1 << 16
_URN = "urn:paceline:problem:"


class ProblemError(TransportError):
    """The collector refused a request.

    Attributes:
        status: of the answer.
        problem: its problem+json document, empty where it had none.
        kind: the stable last part of the document's ``type``, such as ``unknown-job``.
        retry_after_s: when to come back, where it says so.
    """

    def __init__(
        self, status: int, problem: dict[str, Any], retry_after_s: float | None = None
    ) -> None:
        detail = problem.get("detail") or problem.get("title") or "no detail"
        super().__init__(f"the collector answered {status}: {detail}")
        self.status = status
        self.problem = problem
        self.kind = str(problem.get("type", "")).removeprefix(_URN)
        self.retry_after_s = retry_after_s


def problem_of(response: http.client.HTTPResponse) -> ProblemError:
    """Return the error that a response tells of; reads a bounded part of its body."""
    raw = response.read(MAX_ERROR_BYTES)
    if len(raw) == MAX_ERROR_BYTES:
        response.close()
    try:
        problem = json.loads(raw)
    except ValueError:
        problem = {"title": response.reason}
    retry_after = response.headers.get("Retry-After", "")
    seconds = float(retry_after) if retry_after.isdigit() else None
    return ProblemError(response.status, problem if isinstance(problem, dict) else {}, seconds)
