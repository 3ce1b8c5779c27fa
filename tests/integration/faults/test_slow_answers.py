"""A collector that answers byte by byte: the job does not wait for it, and nothing is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.sidecar import collector as sidecar_collector
from paceline.sidecar.collector import Collector, Outcome
from tests.integration.collector.kit import CollectorProcess, wait_until
from tests.integration.sidecar_kit import Processes

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"


class Dripping:
    """Takes connections and requests, and sends an answer that never ends, a byte at a time."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.ended = threading.Event()
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self.ended.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._drip, args=(connection,), daemon=True).start()

    def _drip(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(0.05)
            sent = 0
            while not self.ended.is_set():
                try:
                    if not connection.recv(1 << 20):
                        return
                except TimeoutError:
                    pass
                except OSError:
                    return
                time.sleep(0.05)
                try:
                    connection.sendall(ANSWER[sent : sent + 1] or b" ")
                except OSError:
                    return
                sent += 1

    def close(self) -> None:
        """End."""
        self.ended.set()
        self.listener.close()


@pytest.fixture
def dripping() -> Iterator[Dripping]:
    """A collector that drips."""
    made = Dripping()
    yield made
    made.close()


def test_an_answer_that_drips_is_cut_off_and_the_frames_are_kept(
    dripping: Dripping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_collector, "ANSWER_S", 0.5)
    collector = Collector(dripping.url, lambda: "")
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            collector.cut_off_late_answer()

    threading.Thread(target=watch, daemon=True).start()
    answer = collector.post(bytes(200_000))
    done.set()
    assert answer.outcome is Outcome.LATER
    assert answer.timed_out
    assert dripping.connections == 1
    collector.close()


def test_a_sidecar_ends_when_it_is_told_to_and_the_next_one_sends_what_it_kept(
    dripping: Dripping, processes: Processes, collector: CollectorProcess
) -> None:
    sidecar = processes.sidecar("--url", dripping.url, "--drain-s", "0.5")
    processes.writer(total=500)
    wait_until(lambda: dripping.connections, 20)
    wait_until(lambda: not list(processes.runtime_dir.glob("*.ring")), 20)
    sidecar.terminate()
    assert sidecar.wait(60) == 0
    assert "unsent frames" in processes.log.read_text()
    drain = processes.sidecar(
        "--url", collector.url, "--drain", PACELINE_TOKEN=collector.environment["PACELINE_TOKEN"]
    )
    assert drain.wait(60) == 0
    assert collector.rows("select sum(records) from frames") == [(500,)]


def test_an_ignored_interrupt_stays_ignored_and_a_slow_collector_does_not_hold_the_job(
    dripping: Dripping, tmp_path: Path
) -> None:
    code = (
        "import os, signal, sys\n"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "from pathlib import Path\n"
        "from paceline.ring import RingWriter, new_identity\n"
        "directory = Path(os.environ['PACELINE_RUNTIME_DIR'])\n"
        "ring = RingWriter(directory, new_identity(job='j', run_id='r', attempt=0, rank=0,\n"
        "    local_rank=0, world_size=1, node='n', boot_id='b', time_namespace=1, producer='t'))\n"
        "for seq in range(100): ring.record(1, 1, 0, seq, seq, -1, 8, seq + 1, seq + 2)\n"
        "ring.close()\n"
        "(directory / ('.recorded-' + os.environ['PACELINE_RUN_ID'])).touch()\n"
        "sys.exit(5)\n"
    )
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", "run", "--", sys.executable, "-c", code],
        env={
            **os.environ, "PACELINE_URL": dripping.url,
            "PACELINE_RUNTIME_DIR": str(tmp_path / "rings"),
        },
        cwd=tmp_path, stdin=read, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    os.close(read)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert process.poll() is None
    os.write(write, b"go\n")
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5, err
