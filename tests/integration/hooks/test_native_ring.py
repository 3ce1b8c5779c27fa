"""Every way into a ring goes through the native writer once it serves: one counter, one table."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from paceline.ring import RingReader
from paceline.vocabulary import Op, RecordKind

pytestmark = pytest.mark.integration
PROGRAM = """
import os, sys, torch
from pathlib import Path
from paceline.hooks.native.hook import _adopt
from paceline.hooks.native.loader import find
from paceline.ring.writer import RingWriter, new_identity, pack_fields

writer = RingWriter(Path(sys.argv[1]), new_identity(
    job="job", run_id="run", attempt=0, rank=0, local_rank=0, world_size=1, node="node",
    boot_id="boot", time_namespace=1, producer="hooks"))
_adopt(find(torch, os.environ).library, writer)
fields = [pack_fields(64, seq, 7, -1, 3, 1, 1) for seq in range(4)]
writer.record(1, 1, 3, 0, 7, -1, 64, 100, 200)
slot = writer.enter(1, fields[1], 300, 2)
left = writer.enter(1, fields[3], 500, 0)
writer.complete(slot, 300, 400, 350, fields[1], 2)
writer.append(410, 420, 0, 405, fields[2], 0)
print(writer.path)
sys.stdout.flush()
os._exit(0)
"""


def test_packed_fields_and_plain_records_share_the_native_ring(
    tmp_path: Path, native: Mapping[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, **native}, capture_output=True, text=True, check=True, timeout=90,
    )  # fmt: skip
    reader = RingReader(Path(done.stdout.strip()))
    records = reader.poll().records
    inflight = reader.inflight()
    reader.close()
    assert [(r.seq, r.start_ns, r.end_ns, r.join_ns, r.issue_ns) for r in records] == [
        (0, 100, 200, 0, 0), (1, 300, 400, 350, 300), (2, 410, 420, 0, 405),
    ]  # fmt: skip
    assert {(r.kind, r.code, r.group, r.step, r.payload_bytes) for r in records} == {
        (RecordKind.COLLECTIVE, Op.ALL_REDUCE, 3, 7, 64)
    }
    assert [(one.seq, one.start_ns, one.op) for one in inflight] == [(3, 500, Op.ALL_REDUCE)]
