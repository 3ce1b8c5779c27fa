"""Hooks and plugin in one process: two rings of one identity, which the sidecar can join."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paceline.ring import RingReader
from tests.conftest import ROOT

JOB = """
import os, sys
from pathlib import Path
import torch
import torch.distributed as dist
import paceline
from paceline import plugin
from tests.contract.nccl_driver import Nccl

handle = paceline.init(job="named-in-code")
dist.init_process_group("gloo", rank=0, world_size=1)
nccl = Nccl(plugin.library_path(), Path(sys.argv[1]), fresh=False)
context = nccl.comm(rank=0, ranks=1)
nccl.runs(context, nccl.coll(context))
dist.destroy_process_group()
"""


def test_rings_of_hooks_and_plugin_are_a_pair(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PACELINE_RUNTIME_DIR": str(tmp_path / "rings"),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "TORCHELASTIC_RESTART_COUNT": "3",
        "RANK": "7",  # not what torch was told
    }
    made = subprocess.run(
        [sys.executable, "-c", "from paceline.plugin import build; print(build())"],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    env["NCCL_PROFILER_PLUGIN"] = made.stdout.strip()
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path)],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    readers = [RingReader(path) for path in (tmp_path / "rings").glob("*.ring")]
    assert {reader.identity.producer for reader in readers} == {"hooks", "nccl"}
    names = ("job", "run_id", "attempt", "rank", "local_rank", "world_size", "node", "pid",
             "boot_id", "time_namespace")  # fmt: skip
    first, second = ({name: getattr(reader.identity, name) for name in names} for reader in readers)
    assert first == second
    assert first["job"] == "named-in-code"
    assert first["rank"] == 0
    assert readers[0].identity.incarnation != readers[1].identity.incarnation
    for reader in readers:
        reader.close()
