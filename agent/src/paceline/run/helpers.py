"""The processes beside a job: the sidecar, and on a single node a collector."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

READY_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 8.0
_POLL_S = 0.05
_PR_SET_PDEATHSIG = 1
_ONLY_FOR_THE_JOB = ("PACELINE_INJECT", "PACELINE_RUN_ID")


class Helper:
    """One process that serves a job and is in no way part of it.

    It is in a session of its own: a Ctrl-C in the terminal ends the job, and the helper
    then sends what the job left. Its standard input stays open until ``job_ended``, or until
    this process dies.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        *,
        dies_with_parent: bool,
        log: Path | None = None,
    ) -> None:
        clean = {name: value for name, value in env.items() if name not in _ONLY_FOR_THE_JOB}
        with contextlib.ExitStack() as opened:
            errors = None if log is None else opened.enter_context(log.open("wb"))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "paceline", *arguments],
                env=clean,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                preexec_fn=die_with_parent if dies_with_parent else None,
            )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def running(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself, and well."""
        return self._process.poll() == 0

    def job_ended(self) -> None:
        """Tell it that no rank will be started any more."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """End it: politely, then not."""
        self.job_ended()
        if self.running():
            self._process.terminate()
            if not self.wait(STOP_TIMEOUT_S):
                self._process.kill()
                self._process.wait()


def start_sidecar(
    runtime_dir: Path, env: Mapping[str, str], *, url: str = "", events_dir: Path | None = None
) -> Helper:
    """Start a sidecar that ends when the job has ended and everything is sent."""
    where = ["--url", url] if events_dir is None else ["--events-dir", str(events_dir)]
    # Between two attempts no rank lives, and the job goes on.
    until = ["--exit-when-idle", "--job-holds-stdin"]
    arguments = ["sidecar", "--runtime-dir", str(runtime_dir), *until, *where]
    return Helper(arguments, env, dies_with_parent=False)


def start_collector(state_dir: Path, env: Mapping[str, str], token: str) -> tuple[Helper, str]:
    """Start a collector on a free port; return it and its URL.

    Raises:
        OSError: it cannot be started or does not get ready.
    """
    ready = state_dir / "ready.json"
    arguments = ["serve", "--port", "0", "--ready-file", str(ready)]
    own_env = {
        **{name: value for name, value in env.items() if name != "PACELINE_URL"},
        "PACELINE_TOKEN": token,
        "PACELINE_STATE_DIR": str(state_dir),
    }
    log = state_dir / "collector.log"
    collector = Helper(arguments, own_env, dies_with_parent=True, log=log)
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline_s and collector.running():
        try:
            return collector, str(json.loads(ready.read_text(encoding="utf-8"))["url"])
        except (OSError, ValueError, KeyError):
            time.sleep(_POLL_S)
    ended = not collector.running()
    collector.stop()
    last_line = next(iter(log.read_text(errors="replace").splitlines()[::-1]), "it said nothing")
    raise OSError(
        f"the collector could not be started: {last_line}"
        if ended
        else f"the collector was not ready within {READY_TIMEOUT_S:.0f} s"
    )


def die_with_parent() -> None:
    """Have this process end when the one that started it is killed (``preexec_fn``).

    Its parent is the thread that started it, so that has to live on.
    """
    # Were `paceline run` killed with -9, nobody else would ever end the collector.
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    except (OSError, AttributeError):
        os.getpid()  # no Linux: it is stopped by us, or by hand
