"""``paceline run``: a job, instrumented, and the answer at its end.

Whatever of Paceline cannot be started, the job runs all the same.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from paceline.plugin import library_path
from paceline.ring.private import make_private
from paceline.run.helpers import Helper, start_collector, start_sidecar
from paceline.run.job import exec_job, run_job
from paceline.run.nccl import choose_plugin
from paceline.run.plan import Destination, Plan, make_plan
from paceline.run.report import fetch_report, print_report, write_report
from paceline.settings import PLUGIN_ENV, RUN_MARK, is_disabled

DRAIN_TIMEOUT_S = 20.0
"""How long the end of a job waits for its last records to be acknowledged."""
ABSENT_DRAIN_TIMEOUT_S = 5.0
"""The same for a collector that may not be there: what waits is kept in the spool."""
NOTHING_RECORDED = (
    "nothing was recorded: the job used no torch.distributed, or `paceline doctor` tells why"
)


def main(argv: Sequence[str]) -> int:
    """Run a job; return its status."""
    options = _parser().parse_args(argv)
    command = options.command
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        _parser().error("no command is given: paceline run [options] -- torchrun ... train.py")
    env = dict(os.environ)
    token = env.pop("PACELINE_TOKEN", "")
    if is_disabled(env):
        return exec_job(command, env)
    plan = make_plan(command, env, job=options.job, report=options.report, can_serve=_can_serve())
    with _Launch(plan, env, token).services() as launch:
        status = run_job(command, launch.job_environment())
        launch.finish()
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paceline run",
        description="Runs a job, instrumented, with no change to its code.",
        epilog="PACELINE_URL names a collector; without it one is started for the job's length "
        "where paceline-service is installed. PACELINE_DISABLE=1 runs the bare command.",
    )
    parser.add_argument("--job", help="name of the job (PACELINE_JOB; default: the script's name)")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write the report there as JSON"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the job's command line")
    return parser


class _Launch:
    """What runs beside one job, from its start to its report."""

    def __init__(self, plan: Plan, env: Mapping[str, str], token: str) -> None:
        self._plan = plan
        self._env = dict(env)
        self._token = token
        self._url = plan.url
        self._embedded = False
        self._events_dir: Path | None = None
        self._sidecar: Helper | None = None
        self._kept = False

    @contextlib.contextmanager
    def services(self) -> Iterator[_Launch]:
        """Start what the plan needs, and stop it in the end."""
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self._clean_up)
            try:
                self._start(cleanup)
            except Exception as error:
                _say(f"{error}; the job runs without being recorded")
            yield self

    def job_environment(self) -> dict[str, str]:
        """Return the environment of the job: it has no token and knows no collector's secret."""
        plan = self._plan
        env = {
            **self._env,
            "PACELINE_INJECT": "1",
            "PACELINE_JOB": plan.job,
            "PACELINE_RUNTIME_DIR": str(plan.runtime_dir),
        }
        if plan.run_id:
            env["PACELINE_RUN_ID"] = plan.run_id
        plugin = choose_plugin(self._env, library_path())
        if plugin.path:
            env[PLUGIN_ENV] = plugin.path
        if plugin.said:
            _say(plugin.said)
        return env

    def finish(self) -> None:
        """See that what was recorded arrives, and give the answer; never raises."""
        try:
            self._finish()
        except Exception as error:
            _say(f"no report: {error}")

    def _start(self, cleanup: contextlib.ExitStack) -> None:
        plan = self._plan
        if plan.destination is Destination.NODE_SIDECAR:
            return
        make_private(plan.runtime_dir)
        if plan.destination is Destination.EMBEDDED:
            self._start_collector(cleanup)
        if not self._url:
            self._events_dir = plan.events_dir
        sidecar_env = {**self._env, "PACELINE_TOKEN": self._token} if self._token else self._env
        self._sidecar = start_sidecar(
            plan.runtime_dir, sidecar_env, url=self._url, events_dir=self._events_dir
        )
        cleanup.callback(self._sidecar.stop)

    def _clean_up(self) -> None:
        if self._plan.owns_runtime_dir and not self._kept:
            shutil.rmtree(self._plan.runtime_dir, ignore_errors=True)

    def _start_collector(self, cleanup: contextlib.ExitStack) -> None:
        state_dir = Path(
            cleanup.enter_context(
                tempfile.TemporaryDirectory(prefix="paceline-", ignore_cleanup_errors=True)
            )
        )
        token = secrets.token_urlsafe(24)
        try:
            collector, self._url = start_collector(state_dir, self._env, token)
        except OSError as error:
            _say(f"{error}; keeping event logs instead")
            return
        cleanup.callback(collector.stop)
        self._token, self._embedded = token, True
        _say(f"live at {self._url}/ while the job runs")

    def _finish(self) -> None:
        plan = self._plan
        if self._sidecar is None:
            if plan.destination is Destination.NODE_SIDECAR and plan.report is not None:
                _say(f"this node's sidecar sends what was recorded; write the report with: "
                     f"paceline report {plan.job} --format json -o {plan.report}")  # fmt: skip
            return
        marks = list(plan.runtime_dir.glob(f"{RUN_MARK}{plan.run_id or '*'}"))
        if not marks:
            _say(NOTHING_RECORDED)
            return
        self._sidecar.job_ended()
        drained = self._sidecar.wait(
            DRAIN_TIMEOUT_S if self._embedded or self._events_dir else ABSENT_DRAIN_TIMEOUT_S
        )
        # One that could not start has sent nothing.
        drained = drained and self._sidecar.succeeded
        self._sidecar.stop()
        if self._events_dir is not None:
            self._tell_event_logs()
        elif self._embedded:
            report = fetch_report(self._url, plan.job, self._token)
            if not print_report(self._url, plan.job, self._env):
                print(report.get("job", {}).get("headline", report.get("verdict")))
            if plan.report is not None:
                write_report(report, plan.report)
        elif drained:
            _say(f"recorded: {self._url.rstrip('/')}/v1/jobs/{plan.job}/report")
            if plan.report is not None:
                write_report(fetch_report(self._url, plan.job, self._token), plan.report)
        else:
            _say(
                f"the collector at {self._url} did not take everything; the rest is kept. Send it "
                f"with: paceline sidecar --drain --url {self._url} "
                f"--runtime-dir {plan.runtime_dir}"
            )
        self._kept = not drained and not self._embedded
        if plan.run_id:
            for mark in marks:
                mark.unlink(missing_ok=True)

    def _tell_event_logs(self) -> None:
        plan = self._plan
        _say(f"event logs are in {plan.events_dir}; see what they say with: "
             f"paceline analyze {plan.events_dir}")  # fmt: skip
        if plan.report is not None:
            _say(f"for the report: paceline analyze {plan.events_dir} --format json "
                 f"> {plan.report}")  # fmt: skip


def _can_serve() -> bool:
    from paceline.cli import added_commands

    return {"serve", "report"} <= set(added_commands())


def _say(text: str) -> None:
    print(f"paceline: {text}", file=sys.stderr, flush=True)
