"""Calls the plugin as NCCL does, through ctypes, with the structures of profiler ABI 4 to 7."""

from __future__ import annotations

import ctypes as c
import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.plugin.library import declare
from paceline.ring import InFlight, Record, RingIdentity, RingReader
from paceline.ring.layout import PLUGIN_COUNTERS

GROUP, COLL, P2P, KERNEL_CHANNEL, CE_COLL = 1, 2, 4, 64, 1 << 12
PROXY_OP = 8
KERNEL_CHANNEL_STOP = 22
EPOCH_NS = 1_700_000_000_000_000_000
"""A GPU's timer is not CLOCK_MONOTONIC; here it differs by this."""


class Coll(c.Structure):
    _fields_ = [
        ("seq", c.c_uint64), ("func", c.c_char_p), ("send", c.c_void_p), ("recv", c.c_void_p),
        ("count", c.c_size_t), ("root", c.c_int), ("datatype", c.c_char_p),
        ("channels", c.c_uint8), ("warps", c.c_uint8), ("algo", c.c_char_p), ("proto", c.c_char_p),
        ("parent_group", c.c_void_p), ("variant", c.c_char_p), ("sym", c.c_bool),
        ("tag", c.c_uint64),
    ]  # fmt: skip


class P2p(c.Structure):
    _fields_ = [
        ("func", c.c_char_p), ("buffer", c.c_void_p), ("datatype", c.c_char_p),
        ("count", c.c_size_t), ("peer", c.c_int), ("channels", c.c_uint8),
        ("parent_group", c.c_void_p), ("tag", c.c_uint64),
    ]  # fmt: skip


class Channel(c.Structure):
    _fields_ = [("channel", c.c_uint8), ("stamp", c.c_uint64)]


class ProxyOp(c.Structure):
    _fields_ = [("pid", c.c_int), ("channel", c.c_uint8), ("peer", c.c_int), ("steps", c.c_int)]


class Body(c.Union):
    _fields_ = [("coll", Coll), ("p2p", P2p), ("channel", Channel), ("proxy", ProxyOp)]


class EventV4(c.Structure):
    _fields_ = [
        ("type", c.c_uint8), ("garbage", c.c_uint8 * 7), ("parent", c.c_void_p),
        ("rank", c.c_int), ("body", Body),
    ]  # fmt: skip


class Event(c.Structure):
    _fields_ = [("type", c.c_uint64), ("parent", c.c_void_p), ("rank", c.c_int), ("body", Body)]


class StateArgs(c.Union):
    _fields_ = [("stamp", c.c_uint64), ("other", c.c_uint64 * 2)]


POINTER = c.POINTER(c.c_void_p)
INIT_V4 = c.CFUNCTYPE(c.c_int, POINTER, c.POINTER(c.c_int), c.c_char_p, c.c_uint64, c.c_int,
                      c.c_int, c.c_int, c.c_void_p)  # fmt: skip
INIT_V5 = c.CFUNCTYPE(c.c_int, POINTER, c.c_uint64, c.POINTER(c.c_int), c.c_char_p, c.c_int,
                      c.c_int, c.c_int, c.c_void_p)  # fmt: skip
START = c.CFUNCTYPE(c.c_int, c.c_void_p, POINTER, c.c_void_p)
STOP = c.CFUNCTYPE(c.c_int, c.c_void_p)
STATE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int, c.c_void_p)


class Table(c.Structure):
    """ncclProfiler_vN."""

    _fields_ = [("name", c.c_char_p), ("init", c.c_void_p), ("start", START), ("stop", STOP),
                ("state", STATE), ("finalize", STOP)]  # fmt: skip


_copies = itertools.count()


class Nccl:
    """One process's NCCL of one ABI, with a copy of the plugin of its own: its state is fresh."""

    def __init__(self, library: Path, directory: Path, abi: int = 5, *, fresh: bool = True) -> None:
        copy = directory / f"plugin-{next(_copies)}.so" if fresh else library
        if fresh:
            shutil.copy(library, copy)
        self.abi = abi
        self.rings = directory / "rings"
        self.library = declare(c.CDLL(str(copy)))
        self.table = Table.in_dll(self.library, f"ncclProfiler_v{abi}")
        self.mask = c.c_int(0)

    def comm(
        self, name: bytes | None = b"world", *, id: int = 0xABC, rank: int = 1, ranks: int = 4
    ) -> int | None:
        context = c.c_void_p(0xDEAD)
        args = (1, ranks, rank, None)
        if self.abi == 4:
            init4 = INIT_V4(self.table.init)
            code = init4(c.byref(context), c.byref(self.mask), name, id, *args)
        else:
            init5 = INIT_V5(self.table.init)
            code = init5(c.byref(context), id, c.byref(self.mask), name, *args)
        assert code == 0
        return context.value

    def start(self, context: int | None, type_: int, parent: int | None, body: Body) -> int | None:
        handle = c.c_void_p(0xDEADBEEF)  # NCCL does not clear it before
        if self.abi == 4:
            event: EventV4 | Event = EventV4(
                type=type_ & 0xFF, garbage=(c.c_uint8 * 7)(*b"garbage"), parent=parent, body=body
            )
        else:
            event = Event(type=type_, parent=parent, body=body)
        assert self.table.start(context, c.byref(handle), c.addressof(event)) == 0
        return handle.value

    def group(self, context: int | None) -> int | None:
        return self.start(context, GROUP, None, Body())

    def coll(
        self,
        context: int | None,
        func: bytes = b"AllReduce",
        count: int = 1000,
        datatype: bytes = b"ncclFloat32",
        *,
        channels: int = 2,
        root: int = 0,
        parent: int | None = 0x1234,
        type_: int = COLL,
    ) -> int | None:
        body = Body(coll=Coll(func=func, count=count, datatype=datatype, channels=channels))
        body.coll.root = root
        return self.start(context, type_, parent, body)

    def p2p(
        self, context: int | None, func: bytes, peer: int, count: int = 100, *, channels: int = 1
    ) -> int | None:
        body = Body(p2p=P2p(func=func, count=count, datatype=b"ncclFloat16", peer=peer))
        body.p2p.channels = channels
        return self.start(context, P2P, None, body)

    def channel_starts(
        self, context: int | None, parent: int | None, channel: int, stamp: int | None = None
    ) -> int | None:
        body = Body(channel=Channel(channel=channel, stamp=gpu_now() if stamp is None else stamp))
        return self.start(context, KERNEL_CHANNEL, parent, body)

    def channel_stops(self, handle: int | None, stamp: int | None = None) -> None:
        args = StateArgs(stamp=gpu_now() if stamp is None else stamp)
        assert self.table.state(handle, KERNEL_CHANNEL_STOP, c.addressof(args)) == 0
        assert self.table.stop(handle) == 0

    def runs(self, context: int | None, parent: int | None, channels: int = 2) -> None:
        """Let the GPU run it: all channels start, then all stop."""
        handles = [self.channel_starts(context, parent, n) for n in range(channels)]
        for handle in handles:
            self.channel_stops(handle)

    def stop(self, handle: int | None) -> None:
        assert self.table.stop(handle) == 0

    def finalize(self, context: int | None) -> None:
        assert self.table.finalize(context) == 0

    def counter(self, name: str) -> int:
        return int(self.library.paceline_counter(PLUGIN_COUNTERS.index(name)))

    def readers(self) -> Iterator[RingReader]:
        for path in sorted(self.rings.glob("*.ring"), key=lambda path: path.stat().st_mtime_ns):
            yield RingReader(path)

    def reader(self) -> RingReader:
        (reader,) = self.readers()
        return reader

    def identity(self) -> RingIdentity:
        reader = self.reader()
        reader.close()
        return reader.identity

    def meta(self) -> list[dict[str, Any]]:
        reader = self.reader()
        entries, corrupt = reader.meta()
        assert corrupt == 0
        reader.close()
        return entries

    def inflight(self) -> list[InFlight]:
        reader = self.reader()
        found = sorted(reader.inflight(), key=lambda entry: entry.start_ns)
        reader.close()
        return found

    def word(self, offset: int) -> int:
        reader = self.reader()
        value = reader.word(offset)
        reader.close()
        return value

    def records(self) -> list[Record]:
        reader = self.reader()
        records: list[Record] = []
        while (batch := reader.poll()).records:
            records += batch.records
            assert (batch.overwritten, batch.torn) == (0, 0)
        reader.close()
        return records


def gpu_now() -> int:
    return time.monotonic_ns() + EPOCH_NS


def gpu_at(mono_ns: int) -> int:
    return mono_ns + EPOCH_NS
