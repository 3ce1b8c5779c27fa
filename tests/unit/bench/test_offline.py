"""The comparison with other tools: what it makes up, how it measures, what it tells of failures."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.errors import InputError
from paceline_service.bench.offline.process import run
from paceline_service.bench.offline.table import COLUMNS, rows_of_offline
from paceline_service.bench.offline.traces import Job, write_traces

JOB = Job(ranks=2, events=6_250, slow_rank=1)


def test_made_up_traces_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    texts = [
        [path.read_text() for path in write_traces(tmp_path / name, job)]
        for name, job in (("a", JOB), ("b", JOB), ("c", replace(JOB, seed=2)))
    ]
    assert texts[0] == texts[1] != texts[2]


def test_made_up_traces_have_the_events_and_the_late_rank(tmp_path: Path) -> None:
    starts = []
    for path in write_traces(tmp_path, JOB):
        events = json.loads(path.read_text())["traceEvents"]
        assert JOB.events <= len(events) < 1.01 * JOB.events
        kernels = [e for e in events if e.get("cat") == "kernel" and "nccl" in e["name"]]
        starts.append([kernel["ts"] for kernel in kernels])
    assert len(starts[0]) == len(starts[1]) > 20
    assert all(late > early for early, late in zip(*starts, strict=True))


def test_memory_is_that_of_all_processes_of_a_command() -> None:
    child = "x = bytearray(60 << 20); import time; time.sleep(0.4)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    done = run([sys.executable, "-c", code], {}, watch=True)
    assert 60 < done.pss_mib < 120
    assert done.seconds > 0.4


def test_a_command_that_fails_is_told_with_its_last_word() -> None:
    with pytest.raises(InputError, match="status 2: no traces here"):
        run([sys.executable, "-c", "import sys; print('no traces here', file=sys.stderr);"
             " sys.exit(2)"], {})  # fmt: skip


def test_rows_tell_ratios_failures_and_what_was_skipped() -> None:
    own = {"version": "", "pss_mib": 50.0, "seconds": [0.2, 0.3, 0.1], "says": {"S": 1.17871}}
    peer = {**own, "version": "1.0", "seconds": [2.0, 3.0, 1.0], "times_as_large": 4.0,
            "times_as_long": {"mean": 10.0, "low": 9.0, "high": 11.0}}  # fmt: skip
    result = {
        "workloads": {"traces": {"Paceline": own, "HTA": peer,
                                 "TraceLens": {"version": "", "failed": "no word"}}},
        "skipped": {"ST": "no such directory"},
    }  # fmt: skip
    rows = rows_of_offline(result)
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert rows[1][:2] == ("  Paceline", "0.20 s")
    assert rows[1][4] == "S 1.1787"
    assert rows[2][2] == "10.0 (9.0 to 11.0)"
    assert rows[3][4] == "failed: no word"
    assert rows[4][0] == "skipped: ST"
