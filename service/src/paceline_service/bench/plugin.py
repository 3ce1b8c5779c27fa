"""What the NCCL plugin costs, measured by a program that plays NCCL (``nccl_host``)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from paceline.errors import InputError
from paceline.plugin import compile as compiling
from paceline.plugin import library_path
from paceline_service.bench.launch import memory, quiet_environment

HOST_SOURCES = Path(__file__).with_name("nccl_host")
HOST_TIMEOUT_S = 300.0
CHANNELS = 8
"""Of each collective: NCCL's choice depends on the machine; 8 is usual within a node."""
_INSTRUCTIONS_PER_RUN = 6400


def measure(*, quick: bool) -> dict[str, Any]:
    """Return ns on the calling thread a collective, ns a callback of others, instructions.

    ``collective_cold_ns`` is for a collective after other work has filled the caches: nearer to
    what a job sees. Two threads with a communicator each show what they cost one another.
    ``skipped`` says what is missing where nothing could be measured.
    """
    compiler = find_compiler()
    if compiler is None:
        return {"skipped": "no C compiler to build the program that plays NCCL: install gcc"}
    with tempfile.TemporaryDirectory(prefix="paceline-bench-", dir=memory()) as directory:
        host = build_host(Path(directory) / "ncclhost", compiler)
        library = library_path() or _built(Path(directory) / compiling.LIBRARY, compiler)
        collectives = 64 * (200 if quick else 3000)
        alone = _run(host, library, directory, threads=1, collectives=collectives)
        pair = _run(host, library, directory, threads=2, collectives=collectives)
        del pair["collective_cold_ns"]  # the two would measure each other's use of the caches
        return {
            **alone,
            "two_threads": pair,
            "instructions_per_collective": _instructions(host, library, directory),
        }


def find_compiler() -> str | None:
    """Return the C compiler: ``CC``, cc or gcc."""
    names = (os.environ.get("CC", ""), "cc", "gcc")
    return next((found for name in names if name and (found := shutil.which(name))), None)


def build_host(target: Path, compiler: str, flags: Sequence[str] = ("-O2",)) -> Path:
    """Compile the program that plays NCCL.

    Raises:
        InputError: the compiler refused.
    """
    command = [
        compiler, "-std=c11", "-D_GNU_SOURCE", "-g", *flags, "-o", str(target),
        *map(str, sorted(HOST_SOURCES.glob("*.c"))), "-ldl", "-lpthread",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise InputError(f"the program that plays NCCL does not compile:\n{done.stderr[-3000:]}")
    return target


def _built(target: Path, compiler: str) -> Path:
    if problem := compiling.compile_library(compiler, target):
        raise InputError(f"the NCCL plugin does not compile: {problem}")
    return target


def _run(
    host: Path, library: Path, directory: str, *, threads: int, collectives: int
) -> dict[str, Any]:
    done = _bench(
        [str(host), "bench", "--plugin", str(library), "--threads", str(threads),
         "--collectives", str(collectives), "--channels", str(CHANNELS)],
        directory,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines() if '"bench"' in line]
    return {
        "collectives": sum(row["collectives"] for row in rows),
        "channels": CHANNELS,
        "collective_ns": round(fmean(row["collective_ns"] for row in rows), 1),
        "callback_ns": round(fmean(row["callback_ns"] for row in rows), 1),
        "collective_cold_ns": max(row["cold_ns"] for row in rows),
        "kernel_times": all(row["kernels"] for row in rows),
    }


def _instructions(host: Path, library: Path, directory: str) -> float | None:
    """Return the instructions that start and stop of a collective take; None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    with_plugin, without = (
        _collected(host, plugin, directory) for plugin in (str(library), "none")
    )
    return round((with_plugin - without) / _INSTRUCTIONS_PER_RUN, 1)


def _collected(host: Path, plugin: str, directory: str) -> int:
    done = _bench(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
         "--toggle-collect=bench_collectives", str(host), "bench", "--plugin", plugin,
         "--collectives", str(_INSTRUCTIONS_PER_RUN), "--channels", "1"],
        directory,
    )  # fmt: skip
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise InputError(f"callgrind gave no count:\n{done.stderr[-2000:]}")
    return int(found.group(1))


def _bench(command: Sequence[str], directory: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **quiet_environment(directory), "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "8",
    }  # fmt: skip
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HOST_TIMEOUT_S
    )
    if done.returncode != 0:
        raise InputError(
            f"the program that plays NCCL failed ({done.returncode}):\n{done.stderr[-2000:]}"
        )
    return done
