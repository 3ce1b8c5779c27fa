"""What the demonstration reads from its collector, over the public API."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

KEPT_STEPS = 400
REQUEST_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step over all ranks, ns; None where a rank has no data."""

    step: int
    duration_ns: int
    slowest_rank: int
    self_ns: list[int | None]
    wait_ns: list[int | None]
    comm_ns: list[int | None]
    phase_self_ns: list[list[int | None] | None]


class Feed:
    """Follows one job: its report, and its steps as they complete."""

    def __init__(self, url: str, job: str) -> None:
        self._address = f"{url}/v1/jobs/{job}"
        self.steps: list[Step] = []
        self.phases: list[str] = []
        self.report: dict[str, Any] | None = None
        self.problem = ""
        """What the last request met; empty when it was answered."""

    def poll(self) -> None:
        """Read what is new; a collector that does not know the job yet is no error."""
        last = self.steps[-1].step if self.steps else -1
        columns = self._get(f"/steps?phases=1&limit=1000&from={last + 1}")
        if columns is not None:
            self.phases = columns.get("phases", self.phases)
            self.steps = (self.steps + read_steps(columns))[-KEPT_STEPS:]
        report = self._get("/report")
        if report is not None:
            self.report = report

    def state(self) -> str:
        """Return ``running``, ``ended``, ``silent``, or nothing while the job is unknown."""
        job = self._get("")
        return str(job["state"]) if job is not None else ""

    def _get(self, path: str) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(self._address + path, timeout=REQUEST_TIMEOUT_S) as answer:
                body: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            self.problem = f"status {error.code}: {error.read(500).decode(errors='replace')}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The next poll asks again; what stays missing is told at the end.
            self.problem = str(error)
        else:
            self.problem = ""
            return body
        return None


def read_steps(columns: dict[str, Any]) -> list[Step]:
    """Return the rows of the API's columnar answer."""
    ranks = len(columns["ranks"])
    phase_self = columns.get("phase_self_ns") or [[None] * ranks] * len(columns["steps"])
    rows = zip(
        columns["steps"], columns["duration_ns"], columns["slowest_rank"],
        columns["self_ns"], columns["wait_ns"], columns["comm_ns"], phase_self,
        strict=True,
    )  # fmt: skip
    return [
        Step(
            step=step,
            duration_ns=duration_ns or 0,
            slowest_rank=-1 if slowest is None else slowest,
            self_ns=self_ns,
            wait_ns=wait_ns,
            comm_ns=comm_ns,
            phase_self_ns=phases,
        )
        for step, duration_ns, slowest, self_ns, wait_ns, comm_ns, phases in rows
    ]
