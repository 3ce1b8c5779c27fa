"""Which ring of a plugin belongs to which ring of hooks: both are of one process."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.ring import RingIdentity, RingReader
from paceline.sidecar.follow import Follower

PLUGIN = "nccl"
"""The producer of a plugin's rings."""
ALONE_S = 10.0
"""How long a plugin's ring waits for the hooks' ring of its process."""
_CREATED_SLACK_NS = 1_000_000_000
Process = tuple[str, str, int, int, int, str, str]


@dataclass(slots=True)
class _Waiting:
    reader: RingReader
    since_s: float


class Pairs:
    """Rings of plugins that wait for the hooks of their process."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._over: deque[RingIdentity] = deque(maxlen=1024)

    @property
    def waiting(self) -> int:
        """How many rings wait."""
        return len(self._waiting)

    def incarnations(self) -> set[str]:
        """Return the incarnations of the rings that wait."""
        return {one.reader.identity.incarnation.hex() for one in self._waiting}

    def add(self, reader: RingReader, now_s: float) -> None:
        """Take the ring of a plugin."""
        self._waiting.append(_Waiting(reader, now_s))

    def hooks_over(self, identity: RingIdentity) -> None:
        """Note that a ring of hooks was stored to its end; what its plugin left goes with it."""
        self._over.append(identity)

    def attach(self, followers: Sequence[Follower]) -> list[RingReader]:
        """Give each ring to the hooks of its process; return those whose hooks are over."""
        orphans = []
        for one in list(self._waiting):
            identity = one.reader.identity
            alive = one.reader.writer_alive()
            owner = max(
                (f for f in followers if _is_of(identity, f.identity, alive=alive)),
                key=lambda follower: follower.identity.created_mono_ns,
                default=None,
            )
            if owner is not None:
                self._waiting.remove(one)
                if not owner.attach(one.reader):
                    orphans.append(one.reader)
            elif any(_is_of(identity, hooks, alive=False) for hooks in self._over):
                self._waiting.remove(one)
                orphans.append(one.reader)
        return orphans

    def alone(self, now_s: float) -> list[RingReader]:
        """Return, and let go of, the rings whose process has no hooks."""
        alone = [
            one
            for one in self._waiting
            if now_s - one.since_s >= ALONE_S or not one.reader.writer_alive()
        ]
        self._waiting = [one for one in self._waiting if one not in alone]
        return [one.reader for one in alone]

    def close(self) -> None:
        """Unmap what waits; the next sidecar finds it again."""
        for one in self._waiting:
            one.reader.close()
        self._waiting = []


def _process(identity: RingIdentity) -> Process:
    return (
        identity.job, identity.run_id, identity.attempt, identity.rank, identity.pid,
        identity.node, identity.boot_id,
    )  # fmt: skip


def _is_of(plugin: RingIdentity, hooks: RingIdentity, *, alive: bool) -> bool:
    # A pid may come again: what a dead process left is older than the hooks of its successor.
    younger = plugin.created_mono_ns >= hooks.created_mono_ns - _CREATED_SLACK_NS
    same = hooks.producer != PLUGIN and _process(plugin) == _process(hooks)
    return same and (younger or alive)
