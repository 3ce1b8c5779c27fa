"""The replica check: every n steps a rank adds up its parameters, for others to compare with.

It reads them where the training thread is about to update them: nobody else writes them then, and
what was enqueued on the stream before is done before. It sends nothing and waits for nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from paceline.clock import mono_ns
from paceline.hooks.replica_digest import MASK, combine, divide, layout_of, sums_of
from paceline.ring.replicas import DIGEST_SLOTS, ReplicaDigest
from paceline.settings import LEVELS

if TYPE_CHECKING:
    from paceline.hooks.groups import GroupState
    from paceline.hooks.recorder import Recorder
    from paceline.hooks.replica_sets import ReplicaSet, ReplicaSets

PART_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}
"""So much is read at a check, 3 to 10 ms on one core, under 1 ms on a GPU; more goes in turns."""
CHECKS_OF_A_PART = 2
"""Each part is read at two checks in a row: one alone names nobody (docs/replicas.md)."""
_AT_ONCE = frozenset({"cpu"})
"""Where a sum is there when it was asked for."""
MAX_AT_ONCE = DIGEST_SLOTS
"""Sets at a check: the ring keeps so many digests until the sidecar comes."""
MAX_WAITING = MAX_AT_ONCE
_MAX_STEP = (1 << 62) - 1


class _Waiting(NamedTuple):
    """Sums that a GPU is still to deliver."""

    event: Any
    sums: Any
    known: ReplicaDigest


class ReplicaCheck:
    """Takes digests in the training thread.

    Args:
        torch: the imported torch.
        recorder: whose ring takes them.
        every: how many steps lie between two checks.
        sets: says what must be equal.
    """

    def __init__(self, torch: Any, recorder: Recorder, every: int, sets: ReplicaSets) -> None:
        self._torch = torch
        self._recorder = recorder
        self._every = every
        self._sets = sets
        self._checked = -1
        self._waiting: deque[_Waiting] = deque()

    def optimizer_begins(self, optimizer: Any) -> None:
        """The training thread is about to let ``optimizer`` update parameters; never raises."""
        if not self._every or self._recorder.level == LEVELS[0]:
            return
        try:
            self._sets.updates(optimizer)
            if self._waiting:
                self._fetch()
            step = self._recorder.clock.step
            if step % self._every or step == self._checked or step > _MAX_STEP:
                return
            self._checked = step
            self._check(step)
        except Exception as error:
            self._every = 0  # rather no more checks than the same failure again and again
            self._waiting.clear()
            self._recorder.failed(error)

    def flush(self) -> None:
        """Write what the GPU has delivered by now, and forget the rest: the ring ends here."""
        try:
            if self._waiting:
                self._fetch()
        finally:
            self._waiting.clear()  # the groups of the next ring have other numbers

    def _check(self, step: int) -> None:
        torch = self._torch
        if getattr(torch._C, "_len_torch_dispatch_stack", int)():
            return  # somebody listens to every operation: ours would be taken for the job's
        with torch.no_grad(), torch._C.DisableTorchFunction():
            turn = step // self._every // CHECKS_OF_A_PART
            for number, one in enumerate(self._sets.now(turn)):
                if number >= MAX_AT_ONCE:
                    self._sets.tell(f"what is over {MAX_AT_ONCE} sets of replicas at a check")
                    break
                group = self._recorder.groups.get(one.group)
                if group is None or group.size < 2:
                    continue
                self._take(step, turn // one.turns, one, group)

    def _take(self, step: int, turn: int, one: ReplicaSet, group: GroupState) -> None:
        torch = self._torch
        tensors = [t.detach() for t in one.tensors if _is_plain(torch, t)]
        devices = {t.device for t in tensors}
        kind = next(iter(devices)).type if len(devices) == 1 else ""
        part_bytes = PART_BYTES.get(kind, 0)
        if not part_bytes:
            if tensors:
                self._sets.tell("a set of replicas: it is not all on one device, a CPU or a GPU")
            return
        if kind not in _AT_ONCE and (
            torch.cuda.is_current_stream_capturing() or len(self._waiting) >= MAX_WAITING
        ):
            return
        seq = _seq(one.group)
        if seq is None:
            # Nothing would say that two ranks are at the same place of the program.
            self._sets.tell("a set of replicas: its process group counts no collectives")
            return
        parts = divide(tensors, part_bytes)
        part = turn % len(parts)
        known = ReplicaDigest(
            time_ns=mono_ns(), step=step, seq=seq, digest=0,
            layout=layout_of(tensors, part_bytes), group=group.index, module=one.module,
            part=part, parts=len(parts),
        )  # fmt: skip
        sums = sums_of(torch, tensors, parts[part])
        if kind in _AT_ONCE:
            self._write(known, [int(value) for value in sums])
        elif sums:
            self._waiting.append(_begin_fetch(torch, sums, known))

    def _fetch(self) -> None:
        if self._torch.cuda.is_current_stream_capturing():
            return
        while self._waiting and self._waiting[0].event.query():
            _, sums, known = self._waiting.popleft()
            self._write(known, sums.tolist())

    def _write(self, known: ReplicaDigest, sums: list[int]) -> None:
        self._recorder.writer.digest(known._replace(digest=combine(sums)))


def _begin_fetch(torch: Any, sums: list[Any], known: ReplicaDigest) -> _Waiting:
    """Let the device copy ``sums`` to the host when it has come to them."""
    device = sums[0].device
    with torch.cuda.device(device):
        host = torch.empty(len(sums), dtype=torch.int64, device="cpu", pin_memory=True)
        host.copy_(torch.stack(sums), non_blocking=True)
        event = torch.cuda.Event()
        event.record()
    return _Waiting(event, host, known)


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Whether its bytes lie in memory as its type says: no subclass, no sparse tensor, no bits."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.element_size() in (1, 2, 4, 8)
        and not (tensor.is_complex() or tensor.is_quantized or tensor.is_neg())
        and tensor.device.type != "meta"
        and tensor.numel() > 0
        and tensor.untyped_storage().nbytes() > 0  # else its memory was given back for a while
    )


def _seq(group: Any) -> int | None:
    """Return how many collectives of the group torch has counted; None where it does not count."""
    try:
        return int(group._get_sequence_number_for_group()) & MASK >> 1
    except (RuntimeError, AttributeError):
        return None
