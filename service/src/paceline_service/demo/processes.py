"""The processes of the demonstration: a collector of its own, and the training job."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from paceline.errors import TransportError
from paceline.run.helpers import die_with_parent

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
LOSS_LINE = re.compile(r"step (?P<step>\d+)/(?P<steps>\d+)\s+loss (?P<loss>[\d.]+)")
KEPT_LINES = 200


class Collector:
    """A collector process with its own token and database, for as long as this object lives.

    It also ends when this process, or the thread that made it, is killed.

    Args:
        directory: where its database and its output go.
        environment: of the process; names starting with ``PACELINE_`` are replaced.
        port: 0 lets the system choose.
        settings: variables of the collector, for example PACELINE_SERVE_DATABASE.

    Raises:
        TransportError: it did not come up; the message carries what it said.
    """

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str],
        token: str,
        port: int = 0,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.log_path = directory / "collector.log"
        self.token = token
        ready_file = directory / "ready.json"
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "paceline", "serve",
                    "--port", str(port), "--ready-file", str(ready_file),
                ],
                env={
                    **without_paceline(environment),
                    "PACELINE_TOKEN": token,
                    "PACELINE_STATE_DIR": str(directory),
                    **settings,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        try:
            self.url = self._wait_until_ready(ready_file)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process id of the collector."""
        return self._process.pid

    def close(self) -> None:
        """Stop the process."""
        stop(self._process)

    def _wait_until_ready(self, ready_file: Path) -> str:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if ready_file.exists():
                return str(json.loads(ready_file.read_text(encoding="utf-8"))["url"])
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        said = self.log_path.read_text(encoding="utf-8", errors="replace").strip()
        state = (
            f"did not answer within {START_TIMEOUT_S:.0f} s"
            if self._process.poll() is None
            else f"ended with status {self._process.returncode}"
        )
        raise TransportError(f"the collector {state}: {said or 'it said nothing'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPoint:
    """One line of the training script's log."""

    step: int
    steps: int
    loss: float


class Job:
    """The training job, run under ``paceline run``; its output is kept and read for the loss."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._losses: list[LossPoint] = []
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        self._reader = threading.Thread(target=self._read, name="demo-job-output", daemon=True)
        self._reader.start()

    def status(self) -> int | None:
        """Return the exit status, or None while the job runs."""
        return self._process.poll()

    def lines(self) -> list[str]:
        """Return the last lines that the job printed."""
        return list(self._lines)

    def losses(self) -> list[LossPoint]:
        """Return what the job has said about its loss."""
        return list(self._losses)

    def close(self) -> None:
        """Stop what still runs and let go of the output."""
        stop(self._process)
        self._reader.join(STOP_TIMEOUT_S)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.rstrip())
            found = LOSS_LINE.search(line)
            if found is not None:
                point = LossPoint(
                    step=int(found["step"]), steps=int(found["steps"]), loss=float(found["loss"])
                )
                self._losses.append(point)


def without_paceline(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` without settings of Paceline or of a launcher around us."""
    inherited = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("PACELINE_") and name not in inherited
    }


def stop(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End a process that leads its own session, and what is left of the session."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_TIMEOUT_S)
