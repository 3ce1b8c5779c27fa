"""A rank with a simulated GPU: a real recorder and ring, and what the hooks would call."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from paceline.hooks.device_times import DeviceTimes
from paceline.hooks.groups import Groups
from paceline.hooks.pending import COLLECTIVE, Entry
from paceline.hooks.recorder import Recorder
from paceline.ring import InFlight, Record, RingReader
from paceline.ring.layout import HOOK_ERRORS_OFFSET
from paceline.ring.writer import RingWriter, new_identity, pack_fields
from paceline.vocabulary import Flag, Op, RecordKind
from tests.simulator.gpu import MS, Gpu, HostClock, Stream


def ring_writer(directory: Path, job: str = "device") -> RingWriter:
    identity = new_identity(
        job=job, run_id="run", attempt=0, rank=0, local_rank=0, world_size=2, node="n",
        boot_id="b", time_namespace=1, producer="hooks",
    )  # fmt: skip
    return RingWriter(directory, identity)


@dataclass
class Call:
    """What one collective did on the device, by the device's own clock."""

    entry: Entry
    begin_ns: int
    end_ns: int


class Rank:
    """Issues collectives as torch's process group for NCCL does."""

    def __init__(
        self,
        directory: Path,
        *,
        drift_ppm: float = 0.0,
        choice: str = "auto",
        env: dict[str, str] | None = None,
        level: str = "full",
        now_ns: int = 1_000_000 * MS,
    ) -> None:
        self.host = HostClock(now_ns)
        self.gpu = Gpu(self.host, drift_ppm=drift_ppm)
        self.nccl = self.gpu.stream()
        self.plugin_active = False
        self.coalescing = False
        self.watched_waits = 0
        self.writer = ring_writer(directory)
        self.reader = RingReader(self.writer.path)
        groups = Groups(SimpleNamespace(), self.writer.meta)  # type: ignore[arg-type]
        self.recorder = Recorder(self.writer, groups, level)
        self.device = DeviceTimes(
            self.gpu,
            self.recorder,
            choice=choice,
            env=env or {},
            plugin_times=lambda: self.plugin_active,
            coalescing=lambda: self.coalescing,
            watch_waits=self._watch,
            now_ns=self.host,
        )
        self.recorder.device = self.device
        self.clock = self.recorder.clock
        self.clock.observer = self.device.phases
        self._seq = 0
        self._seen: list[Record] = []
        self._info: dict[str, Any] = {}

    def close(self) -> None:
        self.recorder.close()
        self.reader.close()

    def renew(self, directory: Path) -> None:
        """Go on in another ring, as after a change of the world."""
        writer = ring_writer(directory, "again")
        self.recorder.renew(writer)
        self.reader.close()
        self.reader = RingReader(writer.path)
        self._seen, self._info = [], {}

    def _watch(self) -> None:
        self.watched_waits += 1

    def sync(self, ns: int) -> Call:
        """A synchronous call of newer torch: on the current stream, without a Work."""
        return self._call(ns, self.gpu.current, flags=0, has_work=False, tells_async=True)

    def asynchronous(self, ns: int, *, output: int = 0, op: Op = Op.ALL_REDUCE) -> Call:
        """On NCCL's own stream; the caller has a Work."""
        return self._call(
            ns, self.nccl, flags=int(Flag.ASYNC), has_work=True, tells_async=True,
            output=output, op=op,
        )  # fmt: skip

    def old_torch(self, ns: int) -> Call:
        """As torch before 2.8 makes every call: on NCCL's own stream, silent about async_op."""
        return self._call(ns, self.nccl, flags=0, has_work=True, tells_async=False)

    def wait(self) -> None:
        """``Work.wait``: the current stream waits for NCCL's."""
        self.gpu.wait_for(self.nccl)

    def poll(self, after_ns: int = 100 * MS) -> None:
        self.host.advance(after_ns)
        self.device.poll()

    def records(self, kind: RecordKind = RecordKind.COLLECTIVE) -> list[Record]:
        self._seen += self.reader.poll().records
        return [record for record in self._seen if record.kind == kind]

    def only(self) -> Record:
        (record,) = self.records()
        return record

    def inflight(self) -> list[InFlight]:
        return self.reader.inflight()

    def info(self) -> dict[str, Any]:
        for entry in self.reader.meta()[0]:
            self._info.update(entry.get("info", {}))
        return self._info

    def errors(self) -> int:
        return self.reader.word(HOOK_ERRORS_OFFSET)

    def _call(
        self, ns: int, stream: Stream, *, flags: int, has_work: bool, tells_async: bool,
        output: int = 0, op: Op = Op.ALL_REDUCE,
    ) -> Call:  # fmt: skip
        fields = pack_fields(64, self._seq, self.clock.step, -1, 0, COLLECTIVE, int(op))
        entry = Entry(fields, self.host(), flags, -1, output, False, None)
        self._seq += 1
        self.device.arrived(entry, 0)
        self.host.advance(2_000)
        self.gpu.wait_for(self.gpu.current, stream)
        begin_ns, end_ns = self.gpu.work(ns, stream)
        self.host.advance(10_000)
        if entry.timed is not None:
            self.device.returned(entry, has_work, tells_async)
        return Call(entry, begin_ns, end_ns)
