"""A result names the hardware, and nothing that tells whose it was."""

from __future__ import annotations

import json
import os
import socket

from paceline_service.bench.machine import cpu_s, describe, memory_kib


def test_the_description_has_hardware_and_versions_but_no_host_and_no_path() -> None:
    text = json.dumps(describe())
    assert {"cpu", "cores", "memory_gib", "python", "torch"} <= set(json.loads(text))
    assert f'"{socket.gethostname()}"' not in text
    assert "/" not in json.loads(text)["kernel"]


def test_memory_and_cpu_time_of_a_process_can_be_read() -> None:
    memory = memory_kib(os.getpid())
    assert memory["rss"] >= memory["pss"] > 0
    assert cpu_s(os.getpid()) > 0
