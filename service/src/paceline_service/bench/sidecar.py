"""What a sidecar costs a node whose ranks issue many collectives."""

from __future__ import annotations

import subprocess
import sys
import time

from paceline.errors import InputError
from paceline_service.bench.launch import sidecar
from paceline_service.bench.machine import cpu_s, memory_kib

RANKS = 8
PER_SECOND = 1000
_SETTLE_S = 3.0
_MEASURED_S = 30.0
_QUICK_S = 5.0


def measure(*, quick: bool, device_times: bool = False) -> dict[str, object]:
    """Return CPU and memory of a sidecar that reads 8 ranks of 1,000 collectives/s each.

    Args:
        quick: measure for 5 s instead of 30.
        device_times: the ranks also have a ring of the NCCL plugin, to be joined.

    Raises:
        InputError: records were lost, so the figures would flatter.
    """
    with sidecar() as (environment, sink, pid):
        writer = subprocess.Popen(
            [
                sys.executable, "-m", "paceline_service.bench.ring_job",
                environment["PACELINE_RUNTIME_DIR"], "--ranks", str(RANKS),
                "--per-second", str(PER_SECOND), *(["--device-times"] if device_times else []),
            ],
            env=environment, stdin=subprocess.PIPE,
        )  # fmt: skip
        try:
            time.sleep(_SETTLE_S)
            begun_s, cpu_before_s = time.monotonic(), cpu_s(pid)
            records, wire_bytes = sink.records, sink.wire_bytes
            time.sleep(_QUICK_S if quick else _MEASURED_S)
            measured_s = time.monotonic() - begun_s
            used_s = cpu_s(pid) - cpu_before_s
            records, wire_bytes = sink.records - records, sink.wire_bytes - wire_bytes
            rss_mib = memory_kib(pid)["rss"] / 1024
        finally:
            writer.communicate()
    per_s = records / measured_s
    if per_s < 0.9 * RANKS * PER_SECOND or writer.returncode:
        raise InputError(f"only {per_s:.0f} records/s arrived; the machine is too busy to measure")
    return {
        "ranks": RANKS,
        "seconds": round(measured_s, 1),
        "records_per_s": round(per_s),
        "device_times": device_times,
        "cpu_ratio": round(used_s / measured_s, 4),
        "cpu_us_per_record": round(used_s / records * 1e6, 2),
        "wire_bytes_per_record": round(wire_bytes / records, 1),
        "rss_mib": round(rss_mib, 1),
    }
