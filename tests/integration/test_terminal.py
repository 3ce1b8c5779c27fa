"""``paceline top``, ``report`` and ``timeline`` against a real collector and in a real terminal."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from paceline.vocabulary import Phase
from tests.integration.collector.kit import (
    TOKEN,
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.integration.collector.test_standstill import heartbeat
from tests.integration.collector.traces import check_trace
from tests.integration.terminal import LEAVE_SCREEN, Terminal
from tests.simulator.job import Fault, Scenario, Simulated, simulate
from tests.unit.importers.logs import small_job, write


@pytest.fixture(scope="module")
def slow() -> Simulated:
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=15, first=60)
    return simulate(Scenario(steps=160, faults=(fault,), seed=3))


@pytest.fixture(scope="module")
def collector(
    tmp_path_factory: pytest.TempPathFactory, slow: Simulated
) -> Iterator[CollectorProcess]:
    """A collector with the ended job ``slow-one``."""
    process = CollectorProcess(tmp_path_factory.mktemp("collector") / "state").start()
    client = process.client()
    post_all(client, bodies(slow, senders(slow, job="slow-one")))
    wait_for_state(client, "slow-one", "ended")
    yield process
    assert process.stop() == 0


def environment(collector: CollectorProcess, **more: str) -> dict[str, str]:
    return {"PACELINE_URL": collector.url, "PACELINE_TOKEN": TOKEN, **more}


def paceline(
    collector: CollectorProcess, *arguments: str | Path, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline", *map(str, arguments)],
        capture_output=True, text=True, timeout=90, check=False,
        env={**os.environ, **environment(collector), **more},
    )  # fmt: skip


def begin(collector: CollectorProcess, slow: Simulated, job: str) -> Iterator[bytes]:
    """Send most of a job, and return what is left to be sent."""
    left = list(bodies(slow, senders(slow, job=job)))
    post_all(collector.client(), left[:-4])
    wait_until(lambda: collector.client().report(job)["findings"], 30)
    return iter(left[-4:])


def test_top_shows_a_running_job_follows_it_and_leaves_when_it_ends(
    collector: CollectorProcess, slow: Simulated
) -> None:
    rest = begin(collector, slow, "live")
    with Terminal("top", "live", environment=environment(collector)) as terminal:
        terminal.wait_for("Rank 2 on node-a is slow in backward since step 60")
        terminal.wait_for("step 118")
        terminal.wait_for("waits for the last one")
        assert re.search(r"rank 2 slow \u2588+", terminal.text)
        terminal.press(b"\x1b[C")
        terminal.wait_for("telling ranks")
        terminal.press(b"p")
        terminal.wait_for("PAUSED")
        so_far = len(terminal.raw)
        terminal.press(b"p")
        post_all(collector.client(), [next(rest)])
        terminal.wait_for("step 128", since=so_far)
        post_all(collector.client(), rest)
        assert terminal.ended() == 0
        assert terminal.is_as_before()
        kept = terminal.raw[terminal.raw.rfind(LEAVE_SCREEN) :].decode()
        assert "Rank 2 on node-a is slow in backward since step 60" in kept.replace("\r\n", " ")
        assert "step 159" in kept


@pytest.fixture(scope="module")
def running(collector: CollectorProcess, slow: Simulated) -> str:
    """A job that goes on."""
    list(begin(collector, slow, "goes-on"))
    return "goes-on"


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_top_leaves_the_terminal_as_it_was(
    collector: CollectorProcess, running: str, key: bytes
) -> None:
    with Terminal("top", running, environment=environment(collector)) as terminal:
        terminal.wait_for("rank 2 slow")
        terminal.press(key)
        assert terminal.ended() == 0
        assert terminal.is_as_before()


def test_top_that_is_stopped_gives_the_terminal_back_and_goes_on(
    collector: CollectorProcess, running: str
) -> None:
    with Terminal("top", running, environment=environment(collector)) as terminal:
        terminal.wait_for("rank 2 slow")
        terminal.press(b"\x1a")
        terminal.wait_until_stopped()
        assert terminal.is_as_before()
        so_far = len(terminal.raw)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for("rank 2 slow", since=so_far)
        terminal.process.terminate()
        assert terminal.ended() == 128 + signal.SIGTERM
        assert terminal.is_as_before()


def test_top_says_that_the_collector_is_away_and_goes_on_when_it_is_back(
    tmp_path: Path, slow: Simulated
) -> None:
    collector = CollectorProcess(tmp_path / "state").start()
    try:
        rest = begin(collector, slow, "cut-off")
        with Terminal("top", "cut-off", environment=environment(collector)) as terminal:
            terminal.wait_for("step 118")
            collector.kill()
            terminal.wait_for("Nothing new comes: no answer from the collector")
            collector.start("--port", str(urlsplit(collector.url).port))
            so_far = len(terminal.raw)
            post_all(collector.client(), rest)
            terminal.wait_for("step 159", since=so_far)
            assert terminal.ended() == 0
    finally:
        collector.stop()


def test_top_of_a_job_that_nobody_knows_is_one_line_and_status_2(
    collector: CollectorProcess,
) -> None:
    with Terminal("top", "nobody", environment=environment(collector)) as terminal:
        assert terminal.ended() == 2
        assert terminal.is_as_before()
        kept = terminal.raw[terminal.raw.rfind(LEAVE_SCREEN) :].decode()
        assert "paceline top: the collector answered 404" in kept


def test_top_in_a_pipe_prints_one_picture_and_ends(collector: CollectorProcess) -> None:
    done = paceline(collector, "top", "slow-one", COLUMNS="90", PYTHONIOENCODING="utf-8")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "slow-one  ended  4 ranks  step 159" in done.stdout
    assert done.stdout.count("\u2581") > 10
    plain = paceline(collector, "top", "slow-one", "--once", PYTHONIOENCODING="ascii")
    assert plain.stdout.isascii()
    assert "rank 2 slow ####" in plain.stdout


def test_top_without_colours_still_tells_who_is_slow(collector: CollectorProcess) -> None:
    with Terminal(
        "top", "slow-one", "--once", environment=environment(collector, NO_COLOR="1")
    ) as terminal:
        assert terminal.ended() == 0
        assert not re.search(rb"\x1b\[[0-9;]*(3[0-9]|4[0-9]|9[0-7])[;m]", terminal.raw)
        assert "rank 2 slow" in terminal.text


def test_top_of_a_job_that_stands_still_tells_for_how_long_and_who_is_missing(
    collector: CollectorProcess,
) -> None:
    job = simulate(Scenario(steps=60, seed=5))
    client, ranks = collector.client(), senders(job, job="hung")
    post_all(client, bodies(job, ranks, end=False))
    wait_until(lambda: client.report("hung")["job"]["steps"] > 50, 30)
    for after_s in (20, 95):
        post_all(client, [heartbeat(sender, job, after_s) for sender in ranks])
    wait_until(lambda: client.report("hung")["verdict"] == "hang", 30)
    shown = paceline(collector, "top", "hung", COLUMNS="100").stdout
    assert "The job hangs: rank 1 on node-a never entered all_reduce" in shown
    rows = [line for line in shown.splitlines() if line.startswith("rank ")]
    assert [row.split()[-2:] for row in rows] == [["94", "s"], ["not", "in"]] + [["94", "s"]] * 2
    assert rows[1].startswith("rank 1 missing")


def test_top_without_a_job_lists_jobs(collector: CollectorProcess) -> None:
    done = paceline(collector, "top", COLUMNS="150")
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("slow-one"))
    assert "ended" in row
    assert "Rank 2 on node-a is slow in backward" in row
    assert "paceline top JOB" in done.stdout


def test_a_report_is_written_as_a_page_for_a_ticket(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    path = tmp_path / "ticket.html"
    done = paceline(collector, "report", "slow-one", "-o", path)
    assert done.returncode == 0, done.stderr
    assert "kB" in done.stderr
    page = path.read_text(encoding="utf-8")
    assert "<h1>Rank 2 on node-a is slow in backward since step 60</h1>" in page
    assert "How it began: steps 54 to 69" in page
    assert "The newest steps: steps 144 to 159" in page
    assert "without rank 2" in page
    assert page.count('class="backward"') > 8  # lanes of both drawings, and the legends
    assert f"{collector.url}/#/jobs/slow-one?attempt=1" in page
    piped = paceline(collector, "report", "slow-one", "--format", "html")
    assert piped.stdout.startswith("<!doctype html>")


def test_a_report_tells_the_flops_that_a_rank_reaches_where_somebody_says_those_of_a_step(
    collector: CollectorProcess,
) -> None:
    size = ("--parameters", "1M", "--tokens-per-step", "2k")
    done = paceline(collector, "report", "slow-one", "--format", "json", *size)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["calibration"]
    assert told["flops_per_step"] == 6 * 1e6 * 2e3
    assert told["flops_per_s_per_rank"] > 0
    half = paceline(collector, "report", "slow-one", "--parameters", "1M")
    assert half.returncode == 2
    assert "give --flops-per-step, or --parameters and --tokens-per-step" in half.stderr


def test_html_is_not_written_into_a_terminal(collector: CollectorProcess) -> None:
    with Terminal(
        "report", "slow-one", "--format", "html", environment=environment(collector)
    ) as terminal:
        assert terminal.ended() == 2
        assert "give -o FILE.html" in terminal.text


def test_files_become_a_page_without_a_collector(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    log = write(tmp_path / "job.ndjson", small_job(3, steps=20))
    path = tmp_path / "job.html"
    done = paceline(collector, "analyze", log, "-o", path, PACELINE_URL="http://127.0.0.1:9")
    assert done.returncode in (0, 1, 3), done.stderr
    page = path.read_text(encoding="utf-8")
    assert page.count("<h1>") == 1
    assert "3 ranks" in page


def test_a_timeline_holds_all_the_steps_that_are_asked_for(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    path = tmp_path / "all.trace.json"
    done = paceline(
        collector, "timeline", "slow-one", "--from", "30", "--to", "129", "--ranks", "1-2",
        "-o", path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "steps 30 to 129, ranks 1-2" in done.stderr
    assert "ui.perfetto.dev" in done.stderr
    trace = json.loads(path.read_bytes())
    counts = check_trace(trace)
    assert f"{sum(counts.values()):,} events" in done.stderr
    steps = {e["args"]["step"] for e in trace["traceEvents"] if e.get("cat") == "step"}
    assert steps == set(range(30, 130))
    assert {e["pid"] for e in trace["traceEvents"]} == {2, 3}


def test_a_timeline_that_is_cut_says_how_to_go_on_and_can_be_packed(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    path = tmp_path / "packed.json.gz"
    done = paceline(
        collector, "timeline", "slow-one", "--from", "10", "--to", "40", "--limit", "5", "-o", path
    )
    assert done.returncode == 0, done.stderr
    assert "go on with --from 15 --to 40" in done.stderr
    check_trace(json.loads(gzip.decompress(path.read_bytes())))
    assert list(tmp_path.iterdir()) == [path]


def test_a_timeline_that_cannot_be_drawn_leaves_no_file(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    path = tmp_path / "never.json"
    done = paceline(collector, "timeline", "slow-one", "--from", "900", "-o", path)
    assert done.returncode == 2
    assert "the newest step is 159" in done.stderr
    assert list(tmp_path.iterdir()) == []
