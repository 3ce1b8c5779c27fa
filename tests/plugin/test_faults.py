from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.ring import layout
from paceline.vocabulary import Flag, Op
from tests.plugin import kit

pytestmark = pytest.mark.integration
TICK_NS = 1024


@contextmanager
def started(runtime: Path, mode: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """Run the host until it says that it is ready, and end it afterwards."""
    process = subprocess.Popen(
        kit.built().command(mode, options),
        env=kit.environment(runtime),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if '"ready"' in line:
                break
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("abi", kit.ABIS)
def test_nonsense_beside_good_work_changes_nothing_of_it(tmp_path: Path, abi: int) -> None:
    # 6000 unfinished ones wear every place out many times, and still fit into the ring.
    truth = kit.play(
        tmp_path,
        "faults",
        abi=abi,
        collectives=100,
        events=6000,
        env={"PACELINE_NCCL_KERNELS": "on"},
    )
    good = kit.only_ring(tmp_path).by_hash()["000000000000600d"]
    ops = truth.ops("coll")
    assert len(good) == len(ops) > 400
    for op, record in zip(ops, sorted(good, key=lambda one: one.seq), strict=True):
        assert (record.seq, record.code) == (op["seq"], Op.ALL_REDUCE)
        assert record.flags == Flag.GPU_TIME
        assert record.end_ns - record.start_ns == pytest.approx(
            op["stop"] - op["start"], abs=TICK_NS
        )


@pytest.mark.parametrize("abi", kit.ABIS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_callbacks_in_no_order_at_all_leave_a_whole_ring(
    tmp_path: Path, abi: int, seed: int
) -> None:
    kit.play(tmp_path, "fuzz", abi=abi, seed=seed, threads=4, events=30_000)
    ring = kit.only_ring(tmp_path)
    assert ring.torn == 0
    assert ring.closed
    for record in ring.records:
        assert record.end_ns == 0 or record.end_ns >= record.start_ns


def test_a_forked_child_writes_nothing_into_its_parents_ring(tmp_path: Path) -> None:
    truth = kit.play(tmp_path, "fork", collectives=40)
    ring = kit.only_ring(tmp_path)
    assert len(kit.keyed(ring)) == len(truth.ops("coll")) == 80
    assert all(kit.is_timed(record) for record in ring.records)
    assert {entry["hash"] for entry in ring.meta if "comm" in entry} == {"00000000000000f0"}


def test_a_ring_is_its_writers_while_a_child_of_it_has_come_and_gone(tmp_path: Path) -> None:
    with started(tmp_path, "fork", collectives=10, linger_s=30) as process:
        ring = kit.only_ring(tmp_path)
        assert ring.alive
        assert not ring.closed
        process.kill()
        process.wait()
        assert not kit.only_ring(tmp_path).alive


@pytest.mark.parametrize("after_ms", [20, 50, 90, 140])
def test_a_process_killed_while_it_writes_leaves_a_ring_that_can_be_read(
    tmp_path: Path, after_ms: int
) -> None:
    with started(tmp_path, "kill") as process:
        time.sleep(after_ms / 1e3)
        process.send_signal(signal.SIGKILL)
        process.wait()
    ring = kit.only_ring(tmp_path)
    assert not ring.alive
    assert not ring.closed
    assert ring.records
    assert ring.torn <= 1
    numbers = [record.seq for record in ring.records]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(ring.inflight) <= 1


def test_a_hang_is_seen_from_outside_by_what_began_and_what_never_did(tmp_path: Path) -> None:
    with started(tmp_path, "hang", collectives=12, linger_s=30):
        ring = kit.only_ring(tmp_path)
        assert len(ring.records) == 12
        stuck, waiting = sorted(ring.inflight, key=lambda one: one.seq)
        assert (stuck.seq, stuck.op) == (12, Op.REDUCE_SCATTER)
        assert stuck.flags & Flag.GPU_TIME
        assert (waiting.seq, waiting.op) == (13, Op.ALL_GATHER)
        assert not waiting.flags & Flag.GPU_TIME
        assert stuck.payload_bytes == 4 << 20


def test_communicators_destroyed_while_collectives_hang_record_them_as_unfinished(
    tmp_path: Path,
) -> None:
    kit.play(tmp_path, "hang", collectives=3)
    ring = kit.only_ring(tmp_path)
    assert ring.inflight == []
    stuck, waiting = ring.records[3:]
    assert stuck.flags & Flag.NOT_WAITED
    assert waiting.flags & Flag.NOT_WAITED
    assert (stuck.end_ns, waiting.end_ns) == (0, 0)


def test_a_directory_that_cannot_be_made_costs_the_records_and_not_the_job(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("no directory")
    truth = kit.play(tmp_path / "file" / "rings", collectives=50)
    assert len(truth.ops("coll")) == 50


def test_a_full_directory_costs_the_records_and_not_the_job(tmp_path: Path) -> None:
    mounted = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=64k none {tmp_path}"
    if (
        not shutil.which("unshare")
        or subprocess.run([*mounted, mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("no user namespaces to mount a small tmpfs in (unshare from util-linux)")
    words = kit.built().command("play", {"collectives": 50})
    done = subprocess.run(
        [*mounted, f"{mount} && {' '.join(words)} && ls {tmp_path}"],
        env=kit.environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"violations":0' in done.stdout
    assert ".ring" not in done.stdout
    assert ".tmp" not in done.stdout


@pytest.mark.parametrize(
    "env",
    [
        {"PACELINE_DISABLE": "1"},
        {"PACELINE_LEVEL": "off"},
        {"PACELINE_LEVEL": "steps"},
    ],
)
def test_what_is_turned_off_makes_no_ring(tmp_path: Path, env: dict[str, str]) -> None:
    kit.play(tmp_path, collectives=20, env=env)
    assert kit.ring_paths(tmp_path) == []


@pytest.mark.parametrize(
    "env",
    [
        {"RANK": "nonsense", "WORLD_SIZE": "-4", "PACELINE_LEVEL": "everything"},
        {"PACELINE_JOB": "no job / name\n" * 40, "PACELINE_RUN_ID": "x" * 5000},
        {"PACELINE_NCCL_KERNELS": "perhaps", "PACELINE_JOB": ""},
    ],
)
def test_nonsense_in_the_environment_is_passed_over(tmp_path: Path, env: dict[str, str]) -> None:
    kit.play(tmp_path, collectives=20, env=env)
    assert len(kit.only_ring(tmp_path).records) == 20


def test_the_ring_of_a_busy_job_keeps_the_newest_records(tmp_path: Path) -> None:
    kit.play(tmp_path, "churn", comms=10, collectives=3000, channels=1, kernel_us=0)
    ring = kit.only_ring(tmp_path)
    assert ring.overwritten == 30_000 - (layout.DEFAULT_CAPACITY - 1)
    assert len(ring.records) == layout.DEFAULT_CAPACITY - 1
    assert os.stat(kit.ring_paths(tmp_path)[0]).st_size <= layout.MAX_FILE_BYTES
