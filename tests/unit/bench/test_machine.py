"""A result names the hardware, and nothing that tells whose it was."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading

from paceline_service.bench.machine import (
    cpu_s,
    describe,
    family,
    family_cpu_s,
    family_pss_kib,
    memory_kib,
)

BURNS = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"


def test_the_description_has_hardware_and_versions_but_no_host_and_no_path() -> None:
    text = json.dumps(describe())
    assert {"cpu", "cores", "memory_gib", "python", "torch"} <= set(json.loads(text))
    assert f'"{socket.gethostname()}"' not in text
    assert "/" not in json.loads(text)["kernel"]


def test_memory_and_cpu_time_of_a_process_can_be_read() -> None:
    memory = memory_kib(os.getpid())
    assert memory["rss"] >= memory["pss"] > 0
    assert cpu_s(os.getpid()) > 0


def test_what_a_process_started_counts_while_it_runs_and_when_it_has_ended() -> None:
    before_s = family_cpu_s(os.getpid())
    own_kib = memory_kib()["pss"]
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", BURNS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )

    thread = threading.Thread(target=start)  # children belong to the thread that made them
    thread.start()
    thread.join()
    (child,) = started
    assert child.stdout is not None
    child.stdout.readline()
    if child.pid in family(os.getpid()):  # some kernels do not tell
        assert family_cpu_s(os.getpid()) - before_s >= 0.3
        assert family_pss_kib(os.getpid()) > own_kib / 2
    child.communicate(b"\n")
    assert child.pid not in family(os.getpid())
    assert family_cpu_s(os.getpid()) - before_s >= 0.3
