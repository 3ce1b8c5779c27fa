"""The plugin and the process it lives in: communicators that end, forks, full disks, threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from paceline.ring import RingReader
from paceline.ring import layout as at
from paceline.vocabulary import Flag
from tests.conftest import ROOT
from tests.contract.nccl_driver import Nccl

HEAD = """
import os, signal, sys, time
from pathlib import Path
from tests.contract.nccl_driver import Nccl
nccl = Nccl(Path(sys.argv[1]), Path(sys.argv[2]))
context = nccl.comm()
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PACELINE_RUNTIME_DIR", str(tmp_path / "rings"))
    monkeypatch.setenv("RANK", "1")


@pytest.fixture
def nccl(plugin_library: Path, tmp_path: Path) -> Nccl:
    return Nccl(plugin_library, tmp_path)


def process(library: Path, directory: Path, body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HEAD + body, str(library), str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def only_ring(directory: Path) -> RingReader:
    (path,) = (directory / "rings").glob("*.ring")
    return RingReader(path)


def test_what_is_under_way_when_a_communicator_ends_is_recorded_as_not_released(
    nccl: Nccl,
) -> None:
    context = nccl.comm()
    handle = nccl.coll(context)
    channels = [nccl.channel_starts(context, handle, n) for n in range(2)]
    nccl.channel_stops(channels[0])
    nccl.finalize(context)
    (record,) = nccl.records()
    assert record.flags == Flag.GPU_TIME | Flag.PARTIAL | Flag.NOT_WAITED
    assert record.end_ns == 0
    assert nccl.inflight() == []


def test_calls_for_a_communicator_that_has_ended_are_ignored(nccl: Nccl) -> None:
    context = nccl.comm()
    handle = nccl.coll(context)
    channel = nccl.channel_starts(context, handle, 0)
    nccl.finalize(context)
    nccl.channel_stops(channel)
    assert nccl.channel_starts(context, handle, 1) is None
    assert nccl.coll(context) is None
    nccl.finalize(context)
    again = nccl.comm(b"next")  # takes the same place
    assert again != context
    nccl.channel_stops(channel)
    assert nccl.channel_starts(again, handle, 1) is None
    assert nccl.coll(context) is None
    nccl.runs(again, nccl.coll(again))
    assert [(r.group, r.seq) for r in nccl.records()] == [(0, 0), (1, 0)]
    assert [entry["name"] for entry in nccl.meta()[1:]] == ["world", "next"]


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def test_thousands_of_communicators_one_after_the_other_take_no_more_memory(nccl: Nccl) -> None:
    def use(count: int) -> None:
        for n in range(count):
            context = nccl.comm(id=n, ranks=300)
            nccl.runs(context, nccl.coll(context))
            nccl.finalize(context)

    use(500)
    before_kib = resident_kib()
    use(5000)
    assert resident_kib() - before_kib < 2048
    assert nccl.library.paceline_active() == 5500
    assert nccl.counter("lost_communicators") == 0


def test_communicators_alive_at_once_are_bounded_and_counted(nccl: Nccl) -> None:
    before_kib = resident_kib()
    contexts = [nccl.comm(id=n) for n in range(4100)]
    assert contexts[4095] is not None
    assert contexts[4096:] == [None] * 4
    assert nccl.counter("lost_communicators") == 4
    assert nccl.coll(contexts[4099]) is None
    assert resident_kib() - before_kib < 64 * 1024
    nccl.finalize(contexts[0])
    assert nccl.comm() is not None


def test_metadata_that_is_full_loses_no_record(nccl: Nccl) -> None:
    for n in range(2000):
        context = nccl.comm(b"x" * 120, id=n)
        nccl.runs(context, nccl.coll(context))
        nccl.finalize(context)
    assert nccl.word(at.DROPPED_META_OFFSET) > 0
    assert [record.group for record in nccl.records()] == list(range(2000))


def test_name_of_a_communicator_is_quoted(nccl: Nccl) -> None:
    context = nccl.comm('a"b\\c\n\x01é'.encode() + b"\xff" + b"y" * 300)
    nccl.coll(context)
    name = nccl.meta()[1]["name"]
    assert name.startswith('a"b\\c\n\x01???y')
    assert len(name) < 130


@pytest.mark.parametrize("kind", ["a file in the way", "no permission", "full"])
def test_directory_that_cannot_be_used_costs_the_records_and_nothing_else(
    plugin_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place = tmp_path / "place"
    if kind == "a file in the way":
        place.write_text("")
    else:
        place.mkdir()
        options = "size=256k" if kind == "full" else "ro,size=8m"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            pytest.skip("needs root that may mount a tmpfs: run as root with CAP_SYS_ADMIN")
    monkeypatch.setenv("PACELINE_RUNTIME_DIR", str(place / "rings"))
    try:
        nccl = Nccl(plugin_library, tmp_path)
        context = nccl.comm()
        for _ in range(5):
            nccl.runs(context, nccl.coll(context))
        assert nccl.library.paceline_errors() == 1
        assert nccl.counter("lost_records") == 5
        assert nccl.library.paceline_seen() == 5
    finally:
        if kind != "a file in the way":
            subprocess.run(["umount", str(place)], check=True)


def test_forked_child_writes_nothing_and_its_parent_goes_on(
    plugin_library: Path, tmp_path: Path
) -> None:
    done = process(
        plugin_library,
        tmp_path,
        """
pending = nccl.coll(context)
child = os.fork()
if child == 0:
    for _ in range(100):
        nccl.runs(context, nccl.coll(context))
    nccl.runs(context, pending)
    nccl.library.paceline_identify(b"j", b"r", 0, 9, 0, 9, b"n", None)
    nccl.finalize(context)
    assert nccl.comm() is None
    sys.exit(0)  # with the destructors
assert os.waitpid(child, 0)[1] == 0
reader = nccl.reader()
assert not reader.closed_by_writer and len(reader.inflight()) == 1
nccl.runs(context, pending)
nccl.runs(context, nccl.coll(context))
assert [record.seq for record in nccl.records()] == [0, 1], nccl.records()
""",
    )
    assert done.returncode == 0, done.stderr


def test_child_of_a_process_that_used_no_nccl_is_like_any_other(
    plugin_library: Path, tmp_path: Path
) -> None:
    body = HEAD.replace("context = nccl.comm()\n", "") + (
        "child = os.fork()\n"
        "if child == 0:\n"
        "    context = nccl.comm()\n"
        "    nccl.runs(context, nccl.coll(context))\n"
        "    os._exit(len(nccl.records()))\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1\n"
    )
    command = [sys.executable, "-c", body, str(plugin_library), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_child_that_is_forked_while_hooks_speak_to_the_plugin_can_speak_to_it(
    plugin_library: Path, tmp_path: Path
) -> None:
    body = """
import ctypes, threading
library = ctypes.CDLL(sys.argv[1])
tell = lambda: library.paceline_identify(b"j", b"r", 0, 1, 1, 2, b"n", b"/nowhere")
threading.Thread(target=lambda: [tell() for _ in iter(int, 1)], daemon=True).start()
for _ in range(300):
    child = os.fork()
    if not child:
        signal.alarm(5)
        tell()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
"""
    head = "import os, signal, sys\n"
    command = [sys.executable, "-c", head + body, str(plugin_library)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_process_that_exits_says_goodbye(plugin_library: Path, tmp_path: Path) -> None:
    done = process(plugin_library, tmp_path, "nccl.runs(context, nccl.coll(context))")
    assert done.returncode == 0, done.stderr
    reader = only_ring(tmp_path)
    assert reader.closed_by_writer
    assert not reader.writer_alive()
    assert len(reader.poll().records) == 1
    reader.close()


def test_killed_process_leaves_what_was_pending(plugin_library: Path, tmp_path: Path) -> None:
    done = process(
        plugin_library,
        tmp_path,
        "nccl.runs(context, nccl.coll(context))\nnccl.coll(context)\n"
        "os.kill(os.getpid(), signal.SIGKILL)",
    )
    assert done.returncode == -9
    reader = only_ring(tmp_path)
    assert not reader.closed_by_writer
    assert not reader.writer_alive()
    assert [record.seq for record in reader.poll().records] == [0]
    assert [entry.seq for entry in reader.inflight()] == [1]
    reader.close()


def test_many_threads_lose_nothing(nccl: Nccl) -> None:
    contexts = [nccl.comm(id=n) for n in range(8)]
    failures: list[BaseException] = []

    def train(context: int | None) -> None:
        try:
            for _ in range(300):
                nccl.runs(context, nccl.coll(context))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=train, args=(context,)) for context in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    records = nccl.records()
    assert len(records) == 2400
    for group in range(8):
        own = [record for record in records if record.group == group]
        assert sorted(record.seq for record in own) == list(range(300))
    assert {record.flags for record in records} == {Flag.GPU_TIME}


def test_heartbeat_and_anchor_come_with_the_events(nccl: Nccl) -> None:
    context = nccl.comm()
    nccl.runs(context, nccl.coll(context))
    before = nccl.word(at.HEARTBEAT_OFFSET)
    time.sleep(0.06)
    nccl.coll(context)
    assert nccl.word(at.HEARTBEAT_OFFSET) > before
    assert nccl.word(at.ANCHOR_COUNT_OFFSET) == 1
    assert nccl.word(at.STEP_OFFSET) == 0


def test_losses_are_counted_in_the_ring_too(nccl: Nccl) -> None:
    context = nccl.comm()
    nccl.runs(context, nccl.coll(context))
    assert nccl.channel_starts(context, 0x1000_0001, 0) is None
    names = ("stale", "foreign")
    seen = [nccl.word(at.PLUGIN_COUNTERS_OFFSET + 8 * n) for n in range(len(at.PLUGIN_COUNTERS))]
    assert seen == [nccl.counter(name) for name in at.PLUGIN_COUNTERS]
    assert sum(nccl.counter(name) for name in names) == 1


def test_library_stays_when_nccl_unloads_it(plugin_library: Path, tmp_path: Path) -> None:
    done = process(
        plugin_library,
        tmp_path,
        """
import ctypes
handle = nccl.coll(context)
ctypes.CDLL(None).dlclose(ctypes.c_void_p(nccl.library._handle))
nccl.runs(context, handle)
assert len(nccl.records()) == 1
""",
    )
    assert done.returncode == 0, done.stderr


def test_sources_compile_without_a_warning(tmp_path: Path) -> None:
    from paceline.plugin.compile import command, compiler

    compile_with = compiler(os.environ)
    if compile_with is None:
        pytest.skip("no C compiler: install gcc or clang, or set CC")
    strict = ("-Werror", "-Wshadow", "-Wconversion", "-Wno-sign-conversion", "-Wvla")
    done = subprocess.run(
        command(compile_with, tmp_path / "x.so", strict), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_library_needs_nothing_but_the_c_library(plugin_library: Path) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf: install binutils")
    done = subprocess.run(
        ["readelf", "-dW", str(plugin_library)], capture_output=True, text=True, check=True
    )
    needed = {
        line.split("[")[1].split("]")[0] for line in done.stdout.splitlines() if "NEEDED" in line
    }
    assert {name.split(".so")[0] for name in needed} <= {
        "libc",
        "libdl",
        "libpthread",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
    }
    assert "NODELETE" in done.stdout
    assert plugin_library.stat().st_size < 100_000
