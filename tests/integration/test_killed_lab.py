"""What `paceline lab` and `paceline demo` start and leave when they are killed with -9."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from paceline_service.demo.scratch import scratch_directory
from tests.integration.collector.kit import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(150)]
PREFIX = "paceline-lab-"
OWNER = f"""
import os, sys, time
from pathlib import Path
from paceline_service.demo.processes import Collector, Job
from paceline_service.demo.scratch import scratch_directory

with scratch_directory({PREFIX!r}, Path(sys.argv[1])) as directory:
    collector = Collector(directory, os.environ, "a-token-of-the-test")
    job = Job(["sleep", "600"], os.environ)
    print(collector.url, job._process.pid, flush=True)
    time.sleep(600)
"""


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/healthz", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"  # nobody may be there to collect it


def folders(parent: Path) -> list[Path]:
    return sorted(parent.glob(f"{PREFIX}*"))


def test_after_kill_9_collector_and_job_end_and_the_next_one_removes_the_folder(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        url, job = owner.stdout.readline().split()
        (theirs,) = folders(tmp_path)
        assert answers(url)
        assert runs(int(job))
        with scratch_directory(PREFIX, tmp_path) as ours:  # beside one that is at work
            assert folders(tmp_path) == sorted([theirs, ours])
        owner.kill()
        owner.wait()
    wait_until(lambda: not answers(url) and not runs(int(job)))
    assert folders(tmp_path) == [theirs]
    unknown = tmp_path / f"{PREFIX}of-somebody-else"
    unknown.mkdir()
    with scratch_directory(PREFIX, tmp_path) as ours:
        assert folders(tmp_path) == sorted([ours, unknown])
    assert folders(tmp_path) == [unknown]
