"""The plugin, called as NCCL calls it, over every version of the profiler interface."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import pytest

from paceline.ring import layout as at
from paceline.vocabulary import Flag, Op
from tests.contract.nccl_driver import (
    CE_COLL,
    PROXY_OP,
    Body,
    Nccl,
    ProxyOp,
    gpu_at,
    gpu_now,
)

ALL_ABIS = (4, 5, 6, 7)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PACELINE_RUNTIME_DIR", str(tmp_path / "rings"))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("PACELINE_NCCL_KERNELS", "on")


@pytest.fixture(params=ALL_ABIS)
def nccl(request: pytest.FixtureRequest, plugin_library: Path, tmp_path: Path) -> Nccl:
    return Nccl(plugin_library, tmp_path, request.param)


@pytest.fixture
def nccl5(plugin_library: Path, tmp_path: Path) -> Nccl:
    return Nccl(plugin_library, tmp_path, 5)


def test_collective_is_recorded_with_its_times_on_the_gpu(nccl: Nccl) -> None:
    context = nccl.comm(b"dp", id=0xFEED)
    before = time.monotonic_ns()
    handle = nccl.coll(context, b"AllReduce", 1000, b"ncclFloat32", channels=2)
    enqueued = time.monotonic_ns()
    start = gpu_now()
    first = nccl.channel_starts(context, handle, 0, start)
    second = nccl.channel_starts(context, handle, 1, start + 1000)
    nccl.stop(handle)
    time.sleep(0.002)
    end = gpu_now()
    nccl.channel_stops(second, end - 2000)
    assert nccl.records() == []
    nccl.channel_stops(first, end)
    after = time.monotonic_ns()
    (record,) = nccl.records()
    assert (record.code, record.group, record.seq, record.peer) == (Op.ALL_REDUCE, 0, 0, -1)
    assert record.payload_bytes == 4000
    assert record.flags == Flag.GPU_TIME
    assert before <= record.issue_ns <= enqueued
    assert record.end_ns - record.start_ns == end - start  # a difference of stamps, exactly
    assert enqueued <= record.start_ns <= record.end_ns <= after
    assert nccl.inflight() == []
    info, comm = nccl.meta()
    assert info["info"]["plugin_abi"] == nccl.abi
    assert info["info"]["kernels"] == "on"
    assert comm == {
        "comm": 0, "hash": "000000000000feed", "name": "dp", "rank": 1, "nranks": 4, "nnodes": 1
    }  # fmt: skip


def test_subscription_is_ored_into_the_mask(nccl: Nccl) -> None:
    nccl.mask.value = 1 << 20
    nccl.comm()
    wanted = 0x46 | (1 << 12 if nccl.abi >= 6 else 0)
    assert nccl.mask.value == 1 << 20 | wanted


@pytest.mark.parametrize("abi", ALL_ABIS)
@pytest.mark.parametrize(("choice", "level"), [("auto", "full"), ("", "collectives"), ("off", "")])
def test_kernels_are_subscribed_to_where_that_is_safe_and_wanted(
    plugin_library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    abi: int,
    choice: str,
    level: str,
) -> None:
    monkeypatch.setenv("PACELINE_NCCL_KERNELS", choice)
    monkeypatch.setenv("PACELINE_LEVEL", level)
    nccl = Nccl(plugin_library, tmp_path, abi)
    context = nccl.comm()
    kernels = choice == "auto" and abi >= 5
    assert bool(nccl.mask.value & 0x40) == kernels
    before = time.monotonic_ns()
    handle = nccl.coll(context)
    if not kernels:
        assert handle is None  # there will be nothing to see of it on the GPU
        (record,) = nccl.records()
        assert before <= record.start_ns == record.issue_ns
        assert (record.end_ns, record.flags) == (0, 0)
        assert nccl.meta()[0]["info"]["kernels"] == "off"


@pytest.mark.parametrize(
    ("func", "count", "datatype", "op", "payload", "peer"),
    [
        (b"AllReduce", 10, b"ncclBfloat16", Op.ALL_REDUCE, 20, -1),
        (b"AllGather", 64, b"ncclInt8", Op.ALL_GATHER, 256, -1),
        (b"ReduceScatter", 10, b"ncclFloat64", Op.REDUCE_SCATTER, 320, -1),
        (b"Broadcast", 100, b"ncclInt8", Op.BROADCAST, 100, 2),
        (b"Reduce", 10, b"ncclFloat8e4m3", Op.REDUCE, 10, 2),
        (b"AlltoAll", 10, b"ncclUint32", Op.ALL_TO_ALL, 160, -1),
        (b"Gather", 10, b"ncclInt64", Op.GATHER, 320, 2),
        (b"Scatter", 10, b"ncclFloat16", Op.SCATTER, 80, 2),
        (b"SomethingNew", 10, b"ncclFloat32", Op.UNKNOWN, 40, -1),
        (b"AllReduce", 10, b"Unknown", Op.ALL_REDUCE, 0, -1),
    ],
)
def test_payload_is_the_whole_buffer(
    nccl5: Nccl, func: bytes, count: int, datatype: bytes, op: Op, payload: int, peer: int
) -> None:
    context = nccl5.comm(ranks=4)
    nccl5.runs(context, nccl5.coll(context, func, count, datatype, root=2))
    (record,) = nccl5.records()
    assert (record.code, record.payload_bytes, record.peer) == (op, payload, peer)


def test_sequence_counts_per_communicator_and_per_peer_and_direction(nccl5: Nccl) -> None:
    world, pair = nccl5.comm(), nccl5.comm(b"pp", id=2, ranks=700)
    for context in (world, pair, world):
        nccl5.runs(context, nccl5.coll(context))
    for func, peer in ((b"Send", 2), (b"Recv", 2), (b"Send", 2), (b"Send", 600), (b"Send", 600)):
        nccl5.runs(pair, nccl5.p2p(pair, func, peer), 1)
    found = [(r.group, Op(r.code), r.peer, r.seq) for r in nccl5.records()]
    assert found == [
        (0, Op.ALL_REDUCE, -1, 0),
        (1, Op.ALL_REDUCE, -1, 0),
        (0, Op.ALL_REDUCE, -1, 1),
        (1, Op.SEND, 2, 0),
        (1, Op.RECV, 2, 0),
        (1, Op.SEND, 2, 1),
        (1, Op.SEND, 600, 0),
        (1, Op.SEND, 600, 1),
    ]
    assert nccl5.p2p(pair, b"Send", 700) is None
    assert nccl5.p2p(pair, b"Send", -1) is None


def test_send_to_oneself_is_counted_and_never_under_way(nccl5: Nccl) -> None:
    # NCCL makes an all-to-all of sends to every rank, its own too, and reports no channel of that.
    context = nccl5.comm(rank=1)
    handles = [nccl5.p2p(context, func, 1) for func in (b"Send", b"Recv")]
    nccl5.runs(context, nccl5.p2p(context, b"Send", 2), 1)
    assert handles == [None, None]
    assert [record.peer for record in nccl5.records()] == [2]
    assert (nccl5.inflight(), nccl5.library.paceline_seen()) == ([], 3)


def test_pending_collective_is_in_the_in_flight_table_until_it_is_released(nccl: Nccl) -> None:
    context = nccl.comm()
    handle = nccl.coll(context)
    nccl.stop(handle)
    (waiting,) = nccl.inflight()
    assert (waiting.op, waiting.seq, waiting.flags) == (Op.ALL_REDUCE, 0, 0)
    nccl.channel_starts(context, handle, 0)
    (running,) = nccl.inflight()
    assert running.flags == Flag.GPU_TIME
    assert running.start_ns > waiting.start_ns


def test_in_flight_table_holds_the_oldest_that_are_pending(nccl5: Nccl) -> None:
    context = nccl5.comm()
    handles = [nccl5.coll(context) for _ in range(100)]
    assert [entry.seq for entry in nccl5.inflight()] == list(range(64))
    assert nccl5.word(at.DROPPED_INFLIGHT_OFFSET) == 36
    for handle in handles[:10]:
        nccl5.runs(context, handle)
    assert sorted(entry.seq for entry in nccl5.inflight()) == list(range(10, 74))
    for handle in handles[10:]:
        nccl5.runs(context, handle)
    assert nccl5.inflight() == []
    assert [record.seq for record in nccl5.records()] == list(range(100))


def test_collective_whose_channels_are_missing_is_given_up_as_partial(nccl: Nccl) -> None:
    context = nccl.comm()
    lost = nccl.coll(context, channels=3)
    channels = [nccl.channel_starts(context, lost, n) for n in range(2)]
    nccl.channel_stops(channels[0])
    for _ in range(255):
        nccl.runs(context, nccl.coll(context))
    assert [record.seq for record in nccl.records()] == list(range(1, 256))
    nccl.coll(context)  # takes the place of the first
    record = nccl.records()[-1]
    assert (record.seq, record.flags) == (0, Flag.GPU_TIME | Flag.PARTIAL)
    assert record.issue_ns <= record.start_ns <= record.end_ns
    assert nccl.counter("partial") == 1
    nccl.channel_stops(channels[1])  # too late, and harmless
    assert nccl.counter("stale") == 2
    assert len(nccl.records()) == 256


def test_handles_of_what_is_over_are_ignored(nccl: Nccl) -> None:
    context = nccl.comm()
    old = nccl.coll(context)
    channels = [nccl.channel_starts(context, old, n) for n in range(2)]
    for channel in channels:
        nccl.channel_stops(channel)
    fresh = [nccl.coll(context) for _ in range(256)]  # the place of the first is taken again
    assert nccl.channel_starts(context, old, 0) is None
    nccl.channel_stops(channels[0])
    nccl.stop(old)
    assert nccl.counter("stale") == 3
    assert len(nccl.records()) == 1
    nccl.runs(context, fresh[-1])
    assert len(nccl.records()) == 2


@pytest.mark.parametrize("parent", [0x7F00_1234_5678, 1, 3, 0xFFFF_FFFF_FFFF_FFFF, 0xFFFF_FFFD])
def test_parents_that_are_not_ours_are_ignored(nccl: Nccl, parent: int) -> None:
    context = nccl.comm()
    nccl.coll(context)
    assert nccl.channel_starts(context, parent, 0) is None
    assert nccl.counter("foreign") + nccl.counter("stale") == 1
    assert nccl.channel_starts(context, None, 0) is None
    nccl.stop(parent)
    assert len(nccl.inflight()) == 1


def test_parent_of_another_communicator_is_ignored(nccl5: Nccl) -> None:
    first, second = nccl5.comm(), nccl5.comm(id=2)
    handle = nccl5.coll(first)
    assert nccl5.channel_starts(second, handle, 0) is None
    assert nccl5.counter("foreign") == 1


def test_events_that_were_not_asked_for_get_no_handle(nccl: Nccl) -> None:
    context = nccl.comm()
    for type_ in (PROXY_OP, 16, 32, 128, 256, 512, 1024, 2048, 1 << 13, 1 << 14, 1 << 15, 0):
        body = Body(proxy=ProxyOp(pid=1, channel=0, peer=3, steps=1))  # PXN: another process's
        assert nccl.start(context, type_, 0x99, body) is None
    # 2.27 reports collectives only where the group was accepted.
    assert (nccl.group(context) is None) == (nccl.abi != 4)
    nccl.stop(nccl.group(context))


def test_null_pointers_are_harmless(nccl: Nccl) -> None:
    context = nccl.comm(None)
    assert nccl.table.start(context, None, None) == 0
    handle = ctypes.c_void_p(7)
    assert nccl.table.start(context, ctypes.byref(handle), None) == 0
    assert handle.value is None
    assert nccl.table.start(None, ctypes.byref(handle), None) == 0
    assert nccl.table.stop(None) == 0
    assert nccl.table.state(None, 22, None) == 0
    assert nccl.table.finalize(None) == 0
    assert nccl.coll(context, b"", 1, b"") is not None


def test_stop_without_a_stamp_makes_the_times_bounds(nccl: Nccl) -> None:
    context = nccl.comm()
    handle = nccl.coll(context)
    first, second = (nccl.channel_starts(context, handle, n) for n in range(2))
    assert nccl.table.state(first, 22, None) == 0
    nccl.stop(first)
    nccl.channel_stops(second)
    (record,) = nccl.records()
    assert record.flags == Flag.GPU_TIME | Flag.PARTIAL
    assert record.start_ns < record.end_ns


def test_channel_that_stops_before_it_started_gives_no_release(nccl5: Nccl) -> None:
    context = nccl5.comm()
    handle = nccl5.coll(context, channels=1)
    channel = nccl5.channel_starts(context, handle, 0)
    nccl5.channel_stops(channel, gpu_now() - 50_000_000)
    (record,) = nccl5.records()
    assert record.flags == Flag.GPU_TIME | Flag.PARTIAL
    assert record.end_ns == 0


@pytest.mark.parametrize("wrong", [0, -3_600_000_000_000, -5_000_000, 3_600_000_000_000, 2**62])
def test_start_that_cannot_be_is_dropped_and_counted(nccl5: Nccl, wrong: int) -> None:
    context = nccl5.comm()
    nccl5.runs(context, nccl5.coll(context))
    handle = nccl5.coll(context, channels=1)
    stamp = 0 if wrong == 0 else gpu_now() + wrong
    channel = nccl5.channel_starts(context, handle, 0, stamp)
    nccl5.channel_stops(channel)
    nccl5.runs(context, nccl5.coll(context))
    records = nccl5.records()
    assert [record.seq for record in records] == [0, 1, 2]
    assert records[1].flags == Flag.PARTIAL
    assert records[1].start_ns == records[1].issue_ns
    assert records[1].end_ns == 0
    assert nccl5.counter("lost_times") == 1
    assert records[0].flags == records[2].flags == Flag.GPU_TIME  # the clock was not led astray


def test_stamp_of_64_works_ago_is_not_taken_for_a_start(nccl5: Nccl) -> None:
    context = nccl5.comm()
    stamps = []
    for _ in range(70):
        handle = nccl5.coll(context, channels=1)
        stamps.append(gpu_now())
        nccl5.channel_stops(nccl5.channel_starts(context, handle, 0, stamps[-1]))
    handle = nccl5.coll(context, channels=1)
    nccl5.channel_stops(nccl5.channel_starts(context, handle, 0, stamps[-64]))
    last = nccl5.records()[-1]
    assert last.flags == Flag.PARTIAL
    assert last.end_ns == 0


def test_gpu_clock_that_was_set_is_followed_again(nccl5: Nccl) -> None:
    context = nccl5.comm()
    nccl5.runs(context, nccl5.coll(context))
    for _ in range(100):
        handle = nccl5.coll(context, channels=1)
        channel = nccl5.channel_starts(context, handle, 0, gpu_now() - 7200 * 10**9)
        nccl5.channel_stops(channel, gpu_now() - 7200 * 10**9)
    last = nccl5.records()[-1]
    assert last.flags == Flag.GPU_TIME
    assert abs(last.start_ns - last.issue_ns) < 1_000_000_000


def test_mapping_takes_the_smallest_delay_that_was_seen(nccl5: Nccl) -> None:
    context = nccl5.comm()
    handle = nccl5.coll(context, channels=1)
    start = time.monotonic_ns()
    time.sleep(0.005)  # the callback of the start comes late
    channel = nccl5.channel_starts(context, handle, 0, gpu_at(start))
    nccl5.channel_stops(channel)
    (record,) = nccl5.records()
    assert abs(record.start_ns - start) < 2_000_000


def test_kernel_that_begins_while_nccl_still_reports_it_keeps_its_times(nccl5: Nccl) -> None:
    context = nccl5.comm()
    nccl5.runs(context, nccl5.coll(context))
    launched = gpu_now()
    handle = nccl5.coll(context, channels=1)
    nccl5.channel_stops(nccl5.channel_starts(context, handle, 0, launched))
    record = nccl5.records()[1]
    assert record.flags == Flag.GPU_TIME
    assert record.start_ns <= record.issue_ns  # what joins it with the hooks is the host's own time


def test_collective_of_the_copy_engines_has_no_time_on_the_gpu(nccl: Nccl) -> None:
    context = nccl.comm()
    handle = nccl.coll(context, b"AllGather", 64, b"ncclInt8", type_=CE_COLL)
    assert handle is None
    nccl.runs(context, nccl.coll(context))
    found = [(Op(r.code), r.seq, r.flags, r.end_ns > 0) for r in nccl.records()]
    if nccl.abi >= 6:
        assert found == [(Op.ALL_GATHER, 0, 0, False), (Op.ALL_REDUCE, 1, Flag.GPU_TIME, True)]
    else:
        assert found == [(Op.ALL_REDUCE, 0, Flag.GPU_TIME, True)]


@pytest.mark.parametrize("func", [b"Send", b"Recv"])
def test_unset_number_of_channels_is_not_believed(
    plugin_library: Path, tmp_path: Path, func: bytes
) -> None:
    nccl = Nccl(plugin_library, tmp_path, 4)
    context = nccl.comm()
    handle = nccl.p2p(context, func, 3, channels=1)  # garbage: it will be three
    channels = [nccl.channel_starts(context, handle, n) for n in range(3)]
    for channel in channels:
        nccl.channel_stops(channel)
    assert nccl.inflight() == []  # as far as can be seen it is released
    assert nccl.records() == []
    nccl.runs(context, nccl.coll(context))
    found = [(Op(r.code).name, r.flags) for r in nccl.records()]
    assert found == [(func.decode().upper(), Flag.GPU_TIME), ("ALL_REDUCE", Flag.GPU_TIME)]


def test_replays_of_a_graph_bring_stale_parents_and_are_recorded(nccl5: Nccl) -> None:
    context = nccl5.comm()
    for _ in range(3):
        nccl5.runs(context, nccl5.coll(context, parent=0xDEAD_BEEF))
    assert [record.seq for record in nccl5.records()] == [0, 1, 2]


def test_capture_that_is_off_counts_on_and_records_nothing(nccl5: Nccl) -> None:
    context = nccl5.comm()
    nccl5.runs(context, nccl5.coll(context))
    nccl5.library.paceline_capture(0)
    assert nccl5.coll(context) is None
    assert nccl5.p2p(context, b"Send", 2) is None
    nccl5.library.paceline_capture(1)
    nccl5.runs(context, nccl5.coll(context))
    nccl5.runs(context, nccl5.p2p(context, b"Send", 2), 1)
    assert [record.seq for record in nccl5.records()] == [0, 2, 1]
    assert nccl5.library.paceline_seen() == 5
