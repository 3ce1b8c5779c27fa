"""Kernels for every ``c10d::`` operator at BackendSelect, redispatching below it.

Why there: docs/adr/0010-hooks-at-backend-select.md. The code between two stamps is
on the path of every collective of the job, so it is written flat, not pretty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from paceline.clock import mono_ns
from paceline.hooks.device_times import DeviceTimes
from paceline.hooks.operators import Operator, first_tensor, operator, payload_bytes, payload_reader
from paceline.hooks.pending import COLLECTIVE, COUNTED_ONLY, Entry
from paceline.hooks.recorder import Recorder
from paceline.ring.writer import pack_fields
from paceline.vocabulary import P2P_OPS, Flag, Op

_ASYNC = int(Flag.ASYNC)
_FAILED = int(Flag.FAILED)
_HOST_RETURN = int(Flag.HOST_RETURN)


class Installed:
    """The kernels of this process, which stay when the hooks that they serve are closed.

    torch is not safe against taking out a kernel, or putting one in its place, while another
    thread is in it: the call of the job fails, or worse.
    """

    def __init__(self) -> None:
        self.libraries: list[Any] = []
        self.arrivals: dict[str, list[Any]] = {}
        """By operator, in a list of one: recorder, what to do when a call arrives and when it
        came back, and when it has failed; None while nobody listens."""
        self.hooks: CollectiveHooks | None = None
        """Whom the kernel of ``wait_tensor`` serves."""


_installed = Installed()


class CollectiveHooks:
    """Makes the kernels serve a recorder.

    Args:
        torch: the imported torch.
        c10d: the imported ``torch.distributed.distributed_c10d``.
        recorder: where arrivals and releases go.
    """

    def __init__(self, torch: Any, c10d: Any, recorder: Recorder) -> None:
        self._torch = torch
        self._c10d = c10d
        self._recorder = recorder
        self._waits: list[tuple[type, Any, Any]] = []
        self._mask = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        self._below: dict[int, Any] = {}
        """By the number of a set of dispatch keys what is left of it below our kernels."""

    def install(self) -> None:
        """Let the kernels serve this recorder, and patch ``Work.wait``.

        The first time a kernel is registered for every operator that this torch has.
        """
        installed = _installed
        if not installed.libraries:
            self._register(installed)
        issued = self._issued()
        for spec, _ in self._operators():
            installed.arrivals[spec.name][0] = self._serving(spec, issued)
        installed.hooks = self
        self._patch_wait(self._c10d.Work)

    def uninstall(self) -> None:
        """Put ``Work.wait`` back; the kernels stay and only pass calls through."""
        for owner, original, wait in self._waits:
            if owner.__dict__.get("wait") is wait:
                owner.wait = original  # type: ignore[attr-defined]
        self._waits.clear()
        if _installed.hooks is self:
            _installed.hooks = None
            for now in _installed.arrivals.values():
                now[0] = None

    def leave(self) -> None:
        """Take the kernels out too, which need the interpreter: it is about to end."""
        self.uninstall()
        for library in _installed.libraries:
            library._destroy()
        _installed.libraries.clear()
        _installed.arrivals.clear()

    def _serving(self, spec: Operator, issued: Callable[..., None]) -> tuple[Any, ...]:
        return self._recorder, self._arrive(spec), issued, self._ended

    def _register(self, installed: Installed) -> None:
        torch = self._torch
        library = torch.library.Library("c10d", "IMPL")
        installed.libraries.append(library)
        for spec, handle in self._operators():
            now = installed.arrivals[spec.name] = [None]
            kernel = self._kernel(spec, handle._handle.redispatch_boxed, now)
            library.impl(spec.name, kernel, "BackendSelect", with_keyset=True)
        if self._has_wait_tensor():
            functional = torch.library.Library("_c10d_functional", "IMPL")
            installed.libraries.append(functional)
            call = torch.ops._c10d_functional.wait_tensor.default._handle.redispatch_boxed
            functional.impl(
                "wait_tensor", self._wait_tensor_kernel(call), "BackendSelect", with_keyset=True
            )

    def _operators(self) -> Iterator[tuple[Operator, Any]]:
        """Yield what this torch has in ``c10d::``, with torch's own handle of each."""
        for full_name in sorted(self._torch._C._dispatch_get_all_op_names()):
            if not full_name.startswith("c10d::"):
                continue
            name, _, overload = full_name.removeprefix("c10d::").partition(".")
            if overload:
                continue
            handle = getattr(self._torch.ops.c10d, name).default
            spec = operator(name, [argument.name for argument in handle._schema.arguments])
            if spec is not None:
                yield spec, handle

    def _has_wait_tensor(self) -> bool:
        names = self._torch._C._dispatch_get_all_op_names()
        return "_c10d_functional::wait_tensor" in names

    def _kernel(
        self, spec: Operator, call: Callable[..., Any], serves: list[Any]
    ) -> Callable[..., Any]:
        mask, below, tells_async = self._mask, self._below, spec.async_at >= 0
        number = self._torch._C.DispatchKeySet.raw_repr

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            rest = below.get(number(keyset))
            if rest is None:
                rest = below[number(keyset)] = keyset & mask
            now = serves[0]
            if now is None or not now[0].on:
                return call(rest, *args, **kwargs)
            recorder, arrive, issued, ended = now
            start_ns = mono_ns()
            entry: Entry | None = None
            try:
                entry = arrive(args, start_ns)
            except Exception as error:
                recorder.failed(error)
            try:
                out = call(rest, *args, **kwargs)
            except BaseException:
                if entry is not None:
                    recorder.guarded(partial(ended, entry, _FAILED))
                raise
            if entry is not None:
                try:
                    issued(entry, out, tells_async)
                except Exception as error:
                    recorder.failed(error)
            return out

        return kernel

    def _arrive(self, spec: Operator) -> Callable[[tuple[Any, ...], int], Entry | None]:
        """Return what is done when a call of this operator arrives."""
        recorder, groups = self._recorder, self._recorder.groups
        clock = recorder.clock
        unbox = self._c10d.ProcessGroup.unbox
        plain = (self._torch.Tensor, self._torch.nn.Parameter)
        read_payload = payload_reader(spec)
        op, directed = int(spec.op), spec.op in P2P_OPS
        sends, any_source = spec.op is Op.SEND, directed and spec.root_at < 0
        group_at, tensor_at, output_at = spec.group_at, spec.tensor_at, spec.output_at
        root_at, async_at, times_size = spec.root_at, spec.async_at, spec.times_size
        has_payload = read_payload is payload_bytes

        def arrive(args: tuple[Any, ...], start_ns: int) -> Entry | None:
            tensors = args[tensor_at]
            tensor = tensors[0] if type(tensors) is list and len(tensors) == 1 else tensors
            alone = type(tensor) in plain
            if not alone:
                tensor = first_tensor(tensor)
                if "Fake" in type(tensor).__name__:
                    return None
            on_cpu = tensor is None or tensor.is_cpu
            if not on_cpu and tensor.is_meta:
                return None
            group = groups.get(unbox(args[group_at]))
            if group is None:
                return None
            peer = group.ranks[args[root_at]] if root_at >= 0 else -1
            if not directed:
                seq = group.next_seq()
            elif any_source:
                seq = 0
            else:
                me = group.ranks[group.rank]
                seq = group.next_directed_seq(*((me, peer) if sends else (peer, me)))
            # First, because the step that begins here may be one that is recorded, or no more.
            if clock.boundary_ns or not clock.step_start_ns:
                recorder.before_collective(start_ns)
            if not recorder.full:
                if any_source and on_cpu:  # only its completion tells what it is to be counted for
                    fields = pack_fields(0, 0, clock.step, -1, 0, COLLECTIVE, op)
                    return Entry(fields, start_ns, 0, COUNTED_ONLY, 0, True, group)
                return None
            try:
                payload = tensor.nbytes if alone and has_payload else read_payload(tensors)
            except RuntimeError:  # sparse tensors have no such size
                payload = read_payload(tensors)
            if times_size:
                payload *= group.size
            # The dispatcher drops trailing arguments that have their default: async_op=True.
            flags = _ASYNC if async_at >= 0 and (len(args) <= async_at or args[async_at]) else 0
            fields = pack_fields(payload, seq, clock.step, peer, group.index, COLLECTIVE, op)
            address, slot, device = 0, -1, None
            if on_cpu:
                slot = recorder.writer.enter(op, fields, start_ns, flags)
            else:
                device = recorder.device
            # Only functional collectives are waited for by the address of an output; where torch
            # tells what is asynchronous, they are.
            if (flags or async_at < 0) and (on_cpu or device is not None):
                output = tensor if output_at == tensor_at else first_tensor(args[output_at])
                try:
                    address = output.data_ptr()
                except (RuntimeError, AttributeError):  # sparse, or none off the root
                    address = 0
            source = group if any_source else None
            entry = Entry(fields, start_ns, flags, slot, address, on_cpu, source)
            if device is not None and tensor.is_cuda:
                device.arrived(entry, tensor.get_device())
            return entry

        return arrive

    def _issued(self) -> Callable[[Entry, Any, bool], None]:
        """Return what is done when a call came back: keep its Work until the release is seen."""
        recorder, unbox = self._recorder, self._c10d.Work.unbox
        known_works, add = recorder.known_works, recorder.pending.add

        def issued(entry: Entry, out: Any, tells_async: bool) -> None:
            boxed = out[-1] if type(out) is tuple and out else out
            if boxed is None or type(boxed) is tuple or not entry.on_cpu:
                device = recorder.device
                if entry.timed is None or device is None:
                    self._ended(entry, 0)
                else:
                    none = boxed is None or type(boxed) is tuple
                    device.returned(entry, not none and unbox(boxed) is not None, tells_async)
                return
            work = unbox(boxed)
            if work is None:
                self._ended(entry, 0)
                return
            if type(work) not in known_works:
                self._know(type(work))
            if not tells_async:
                entry.returned_ns = mono_ns()
            entry.work = work
            add(entry)

        return issued

    def _ended(self, entry: Entry, flags: int) -> None:
        """No Work is kept: on a CPU the call itself was the wait, on a device we know no more.

        Holding a Work of NCCL would pin its tensors, and waiting for it is not ours to do.
        """
        end_ns = mono_ns()
        if entry.on_cpu or flags:
            self._recorder.pending.write(entry, end_ns, entry.start_ns, entry.flags | flags)
        else:
            self._recorder.pending.write(entry, end_ns, 0, entry.flags | _HOST_RETURN)

    def _know(self, kind: type) -> None:
        self._recorder.known_works.add(kind)
        if kind is not self._c10d.Work and "wait" in kind.__dict__:
            self._patch_wait(kind)

    def _patch_wait(self, owner: type) -> None:
        """Stamp the waits of Python callers. C++ callers are seen by sweeps."""
        original = owner.__dict__["wait"]
        # What pybind puts into a class binds itself on access; its function is called directly.
        call = getattr(original, "__func__", original)
        recorder = self._recorder
        take, waited = recorder.pending.by_work.pop, recorder.pending.waited

        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            entry = take(id(self), None)
            if entry is None:
                return call(self, *args, **kwargs)
            join_ns = mono_ns()
            try:
                result = call(self, *args, **kwargs)
            except BaseException:
                recorder.guarded(partial(waited, entry, join_ns, mono_ns(), failed=True))
                raise
            end_ns = mono_ns()
            try:
                waited(entry, join_ns, end_ns)
            except Exception as error:
                recorder.failed(error)
            return result

        wait.__doc__ = getattr(original, "__doc__", None)
        wait._torchdynamo_disable = True  # type: ignore[attr-defined]
        owner.wait = wait  # type: ignore[attr-defined]
        self._waits.append((owner, original, wait))

    def _wait_tensor_kernel(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Stamp the waits of functional collectives, which find their Work by the tensor."""
        mask = self._mask

        def kernel(keyset: Any, tensor: Any) -> Any:
            hooks = _installed.hooks
            if hooks is None or not hooks._recorder.on:
                return call(keyset & mask, tensor)
            recorder, entry = hooks._recorder, None
            if len(recorder.pending):
                try:
                    entry = recorder.pending.take_output(tensor.data_ptr())
                except Exception:  # a tensor without storage is no result of ours
                    entry = None
            if entry is None:
                out = call(keyset & mask, tensor)
                device = recorder.device
                if recorder.on and device is not None and tensor.is_cuda:
                    recorder.guarded(partial(_output_waited, device, tensor))
                return out
            join_ns = mono_ns()
            waited = recorder.pending.waited
            try:
                out = call(keyset & mask, tensor)
            except BaseException:
                recorder.guarded(partial(waited, entry, join_ns, mono_ns(), failed=True))
                raise
            recorder.guarded(partial(waited, entry, join_ns, mono_ns()))
            return out

        return kernel


def _output_waited(device: DeviceTimes, tensor: Any) -> None:
    device.output_waited(tensor.data_ptr())
