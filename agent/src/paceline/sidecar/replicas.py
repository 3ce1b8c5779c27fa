"""Replica digests of one ring as telemetry: a sample each, which names whom it is to agree with."""

from __future__ import annotations

from collections.abc import Mapping

from paceline import telemetry as names
from paceline.errors import InputError
from paceline.ranks import parse_ranks, ranks_hash
from paceline.ring import RingReader
from paceline.ring.replicas import ReplicaDigest
from paceline.sidecar.group_facts import GroupFacts
from paceline.sidecar.telemetry.buffer import TelemetryBuffer

_MAX_NAME_CHARS = 64
_FACTS = (names.REPLICA_CHECK, names.REPLICA_LEFT_OUT)


class Replicas:
    """Reads the digests of one ring."""

    def __init__(self, reader: RingReader) -> None:
        self.lost = 0
        """Digests that were overwritten before they were read, or whose group is not known."""
        self._reader = reader
        self._next = 0
        self._sets: dict[tuple[GroupFacts, int, int], tuple[str, int]] = {}

    def look(self, groups: Mapping[int, GroupFacts], out: TelemetryBuffer) -> None:
        """Put into ``out`` what is new; a sidecar that was restarted gives the newest few again."""
        digests, self._next, lost = self._reader.digests(self._next)
        self.lost += lost
        for one in digests:
            group = groups.get(one.group)
            if group is None:
                self.lost += 1
                continue
            name, count = self._set_of(group, one)
            values: names.Values = {
                names.REPLICA_DIGEST: f"{one.digest:016x}",
                names.REPLICA_SET: name,
                names.REPLICA_COUNT: count,
                names.REPLICA_STEP: one.step,
                names.REPLICA_SEQ: one.seq,
                names.REPLICA_PART: f"{one.part}/{one.parts}",
            }
            out.add(one.time_ns, values)

    def tell(self, facts: Mapping[str, str], time_ns: int, out: TelemetryBuffer) -> None:
        """Put into ``out`` what the rank says of its check."""
        if names.REPLICA_CHECK in facts and time_ns:
            out.add(time_ns, {name: facts[name] for name in _FACTS if name in facts})

    def _set_of(self, group: GroupFacts, one: ReplicaDigest) -> tuple[str, int]:
        """Return what names the set of replicas, the same on all its ranks, and its size."""
        key = (group, one.module, one.layout)
        known = self._sets.get(key)
        if known is None:
            try:
                ranks = parse_ranks(group.ranks)
            except InputError:
                ranks = ()
            name = (
                f"{group.name[:_MAX_NAME_CHARS]}#{ranks_hash(ranks)[:8]}/{group.epoch}"
                f":{one.module}:{one.layout:08x}"
            )
            known = self._sets[key] = (name, len(ranks))
        return known
