"""The Python side of the native hook: what the C++ asks of us, and what it replaces here."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from paceline.hooks.collectives import CollectiveHooks
from paceline.hooks.groups import GroupState
from paceline.hooks.operators import Operator
from paceline.hooks.pending import COLLECTIVE, Entry, Pending
from paceline.hooks.recorder import Recorder
from paceline.hooks.steps import StepClock
from paceline.ring.layout import FIELDS
from paceline.ring.writer import RingWriter, pack_fields
from paceline.vocabulary import Flag, Op

_NO_PAYLOAD = (Op.BARRIER, Op.UNKNOWN)


def native_recorder(native: Any) -> type[Recorder]:
    """Return a recorder whose switches, clock and table lie where the C++ sees them.

    Args:
        native: the loaded library.
    """

    class NativeClock(native.Clock, StepClock):  # type: ignore[misc]
        """A step clock whose numbers the kernels read."""

    class NativePending(Pending):
        """Collectives of the kernels, and beside them those that Python hooks keep."""

        def __len__(self) -> int:
            return int(native.pending_count()) + super().__len__()

        @property
        def newest_start_ns(self) -> int:
            return max(int(native.newest_start_ns()), super().newest_start_ns)

        def sweep(
            self,
            now_ns: int,
            step: int,
            *,
            older_than_ns: int = 0,
            joined_since_ns: int = 0,
            spare_newest: bool = False,
        ) -> None:
            native.sweep(now_ns, step, older_than_ns, joined_since_ns, spare_newest)
            super().sweep(
                now_ns,
                step,
                older_than_ns=older_than_ns,
                joined_since_ns=joined_since_ns,
                spare_newest=spare_newest,
            )

        def close(self) -> None:
            native.let_all_go()
            super().close()

    class NativeRecorder(native.Switches, Recorder):  # type: ignore[misc]
        """A recorder all of whose records go through the native writer."""

        clock_type = NativeClock
        pending_type = NativePending

        def __init__(self, writer: RingWriter, groups: Any, level: str) -> None:
            _adopt(native, writer)
            super().__init__(writer, groups, level)

        def renew(self, writer: RingWriter) -> None:
            self.guarded(self.pending.close)
            self.guarded(self.writer.close)
            _adopt(native, writer)
            super().renew(writer)

    return NativeRecorder


class NativeHooks(CollectiveHooks):
    """Installs the C++ kernels and the C++ ``Work.wait``, and takes them out again.

    Args:
        torch: the imported torch.
        c10d: the imported ``torch.distributed.distributed_c10d``.
        recorder: made by ``native_recorder``.
        native: the loaded library.
    """

    def __init__(self, torch: Any, c10d: Any, recorder: Recorder, native: Any) -> None:
        super().__init__(torch, c10d, recorder)
        self._native = native
        self._watched: dict[int, Any] = {}

    def install(self) -> None:
        """Register a kernel for every operator that this torch has, and replace ``Work.wait``."""
        self._recorder.groups.registered = self._add_group
        self._recorder.groups.forgotten = lambda: self._native.forget_group(None)
        specs = [_numbers(spec, handle._schema) for spec, handle in self._operators()]
        self._native.install(
            self._recorder,
            self._recorder.clock,
            self._resolve,
            self._recorder.before_collective,
            self._recorder.failed,
            *self._device_part(),
            specs,
            self._has_wait_tensor(),
        )
        for owner in (self._c10d.Work, *_with_own_wait(self._c10d.Work)):
            self._replace_wait(owner)

    def uninstall(self) -> None:
        """Put ``Work.wait`` back; the kernels stay and only pass calls through."""
        self._recorder.groups.registered = self._recorder.groups.forgotten = None
        self._native.silence()
        self._native.forget_group(None)
        self._watched.clear()
        super().uninstall()

    def remove(self) -> None:
        """Take the kernels out too, so that others can be put there."""
        self.uninstall()
        self._native.uninstall()

    def leave(self) -> None:
        """The interpreter ends: the kernels stay, for they do not need it."""
        self.uninstall()

    def _device_part(self) -> tuple[Any, Any, Any]:
        """What the kernels ask for tensors on a device; None where torch has none."""
        recorder = self._recorder
        if self._torch.version.cuda is None:
            return None, None, None

        def arrived(
            op: int, group: int, seq: int, step: int, peer: int, payload_bytes: int,
            start_ns: int, flags: int, output: int, device: int,
        ) -> Entry | None:  # fmt: skip
            fields = pack_fields(payload_bytes, seq, step, peer, group, COLLECTIVE, op)
            entry = Entry(fields, start_ns, flags, -1, output, False, None)
            if recorder.device is not None:
                recorder.device.arrived(entry, device)
            return entry if entry.timed is not None else None

        def returned(entry: Entry, failed: bool, has_work: bool, tells_async: bool) -> None:
            if failed or recorder.device is None:
                self._ended(entry, int(Flag.FAILED) if failed else 0)
            else:
                recorder.device.returned(entry, has_work, tells_async)

        def waited(address: int) -> None:
            if recorder.device is not None:
                recorder.device.output_waited(address)

        return arrived, returned, waited

    def _resolve(self, address: int) -> None:
        """A kernel met a group that it does not know; it asks again when we return."""
        boxed = self._torch.ops.paceline_native_hook.met_group()
        self._recorder.groups.get(self._c10d.ProcessGroup.unbox(boxed))

    def _add_group(self, pg: Any, state: GroupState) -> None:
        """Python registered a group: from now on the native counters are the group's."""
        native = self._native
        # Bound here: a group may die when the module is taken down already.
        forget = native.forget_group
        address = self._torch.ops.paceline_native_hook.group_address(pg.boxed())
        group = native.add_group(address, state.index, state.rank, state.ranks)
        state.next_seq = group.next_seq
        state.next_directed_seq = group.next_directed_seq
        # Its address may become another group's as soon as it is gone.
        self._watched[address] = weakref.ref(pg, lambda _: forget(address))

    def _replace_wait(self, owner: type) -> None:
        original = owner.__dict__["wait"]
        call = getattr(original, "__func__", original)
        wait = self._native.wait_method(call, self._work_address)
        wait.__doc__ = getattr(original, "__doc__", None)
        wait._torchdynamo_disable = True
        owner.wait = wait  # type: ignore[attr-defined]
        self._waits.append((owner, original, wait))

    def _work_address(self, work: Any) -> int:
        return int(self._torch.ops.paceline_native_hook.work_address(work.boxed()))


def _adopt(native: Any, writer: RingWriter) -> None:
    """From now on what is written into this ring goes through the native writer."""
    native.open_ring(*writer.mapping())
    close = writer.close

    def close_both() -> None:
        native.close_ring()
        close()

    def append(
        start_ns: int, end_ns: int, join_ns: int, issue_ns: int, fields: bytes, flags: int
    ) -> None:
        payload_bytes, seq, step, peer, group, kind, code = FIELDS.unpack(fields)
        native.record(
            kind, code, group, seq, step, peer, payload_bytes, start_ns, end_ns, join_ns, issue_ns,
            flags,
        )  # fmt: skip

    def enter(op: int, fields: bytes, start_ns: int, flags: int) -> int:
        payload_bytes, seq, step, peer, group, _, _ = FIELDS.unpack(fields)
        slot: int = native.begin(op, group, seq, step, peer, payload_bytes, start_ns, flags)
        return slot

    def complete(
        slot: int, start_ns: int, end_ns: int, join_ns: int, fields: bytes, flags: int
    ) -> None:
        try:
            append(start_ns, end_ns, join_ns, start_ns, fields, flags)
        finally:
            native.finish(slot)

    replaced: Any = writer
    replaced.record, replaced.append, replaced.complete = native.record, append, complete
    replaced.begin, replaced.enter, replaced.finish = native.begin, enter, native.finish
    replaced.count, replaced.close = native.count, close_both


def _numbers(spec: Operator, schema: Any) -> tuple[object, ...]:
    return (
        spec.name, int(spec.op), len(schema.arguments), spec.group_at, spec.tensor_at,
        spec.output_at, spec.root_at, spec.async_at, spec.times_size,
        spec.op not in _NO_PAYLOAD, bool(schema.returns),
    )  # fmt: skip


def _with_own_wait(work: type) -> Iterator[type]:
    kinds: list[type] = work.__subclasses__()
    for kind in kinds:
        if "wait" in vars(kind):
            yield kind
        yield from _with_own_wait(kind)
