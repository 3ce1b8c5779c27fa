"""Frames and records per second through HTTP into the durable store of one collector process."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from paceline.errors import TransportError
from paceline.wire.codec import CONTENT_TYPE
from paceline_service.bench.machine import cpu_s, memory_kib
from paceline_service.bench.traffic import Shape, bodies
from paceline_service.demo.processes import Collector

SHAPES = {
    "one step a frame": Shape(ranks=64, steps=60, collectives=100, steps_per_frame=1),
    "four steps a frame": Shape(ranks=64, steps=120, collectives=100, steps_per_frame=4),
}
QUICK_SHAPES = {
    "one step a frame": Shape(ranks=16, steps=20, collectives=100, steps_per_frame=1),
}
RETRY_S = 0.05
MAX_RETRIES = 2400


def measure(*, quick: bool) -> dict[str, object]:
    """Return the figures of every shape."""
    return {
        name: _measure_shape(shape) for name, shape in (QUICK_SHAPES if quick else SHAPES).items()
    }


def _measure_shape(shape: Shape) -> dict[str, object]:
    prepared = [(len(frames), b"".join(frames)) for frames in bodies(shape, "bench", seed=1)]
    wire_bytes = sum(len(body) for _, body in prepared)
    token = secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as directory:
        collector = Collector(Path(directory), os.environ, token)
        try:
            _post(collector.url, token, [])
            before_cpu_s, own_before_s = cpu_s(collector.pid), time.process_time()
            started_s = time.perf_counter()
            accepted, refusals = _post(collector.url, token, prepared)
            wall_s = time.perf_counter() - started_s
            generator_cpu_s = time.process_time() - own_before_s
            _wait_until_analysed(collector.url, shape.steps)
            caught_up_s = time.perf_counter() - started_s
            collector_cpu_s = cpu_s(collector.pid) - before_cpu_s
            memory = memory_kib(collector.pid)
        finally:
            collector.close()
        stored_bytes = sum(file.stat().st_size for file in Path(directory).glob("*.db*"))
    frames = sum(count for count, _ in prepared)
    if accepted != frames:
        raise TransportError(
            f"{accepted} of {frames} frames were accepted; the figures mean nothing"
        )
    return {
        "shape": {**asdict(shape), "records": shape.records, "frames": frames},
        "wall_s": round(wall_s, 3),
        "frames_per_s": round(frames / wall_s, 1),
        "records_per_s": round(shape.records / wall_s),
        "caught_up_s": round(caught_up_s, 3),
        "records_per_s_analysed": round(shape.records / caught_up_s),
        "records_per_collector_cpu_s": round(shape.records / max(collector_cpu_s, 1e-9)),
        "collector_cpu_s": round(collector_cpu_s, 3),
        "generator_cpu_s": round(generator_cpu_s, 3),
        "asked_to_wait": refusals,
        "collector_rss_mib": round(memory["rss"] / 1024, 1),
        "wire_bytes_per_record": round(wire_bytes / shape.records, 2),
        "stored_bytes_per_record": round(stored_bytes / shape.records, 2),
    }


def _post(url: str, token: str, prepared: Sequence[tuple[int, bytes]]) -> tuple[int, int]:
    """Send every body over one connection.

    Returns:
        How many frames were accepted, and how often the collector asked to wait.
    """
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": CONTENT_TYPE}
    accepted = refusals = 0
    try:
        connection.connect()
        for _, body in prepared:
            for _ in range(MAX_RETRIES):
                connection.request("POST", "/v1/frames", body=body, headers=headers)
                answer = connection.getresponse()
                said = answer.read()
                if answer.status not in (429, 503):
                    break
                refusals += 1
                time.sleep(RETRY_S)
            if answer.status != 200:
                raise TransportError(f"the collector answered {answer.status}: {said[:300]!r}")
            accepted += json.loads(said)["accepted"]
    finally:
        connection.close()
    return accepted, refusals


def _wait_until_analysed(url: str, steps: int, timeout_s: float = 120.0) -> None:
    """Wait until the job's steps are known: acknowledged data may still be on their way through."""
    address = urlsplit(url).netloc
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("GET", "/v1/jobs/bench")
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        # The last steps stay open until their ranks end or go on.
        if answer.status == 200 and int(json.loads(said).get("steps") or 0) >= steps - 2:
            return
        time.sleep(0.05)
    raise TransportError(f"the collector did not analyse {steps} steps within {timeout_s:.0f} s")
