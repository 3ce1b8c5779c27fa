"""Device times for the records of one rank, from the ring of the NCCL plugin beside its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.errors import InputError, RingError
from paceline.ranks import parse_ranks
from paceline.ring import InFlight, RingIdentity, RingReader
from paceline.ring import layout as at
from paceline.ring.rows import pack_record
from paceline.sidecar.ended import EndWatch
from paceline.sidecar.group_facts import GroupFacts
from paceline.sidecar.join.facts import event_of
from paceline.sidecar.join.foreign import record_of
from paceline.sidecar.join.joiner import Joiner
from paceline.sidecar.join.rows import FIELDS, has_calls, without_return
from paceline.sidecar.progress import Progress

_log = logging.getLogger("paceline.sidecar")
FIRST_WAIT_S = 3.0
"""How long the first calls of a rank wait for a ring of the plugin to appear."""
COUNTERS = (("hook_errors", at.HOOK_ERRORS_OFFSET), ("meta_full", at.DROPPED_META_OFFSET))
"""What a writer counts in its ring's header."""
_PLUGIN_BATCH = 16384
_LOST_RECORDS = "nccl_lost_records"
_MAX_FACTS = 64


class Joined:
    """The ring of the hooks, with that of the plugin once it is there.

    Args:
        identity: of the hooks' ring.
        progress: of the hooks' ring.
        known: the groups that the hooks described so far; it grows.
    """

    def __init__(
        self, identity: RingIdentity, progress: Progress, known: Mapping[int, GroupFacts]
    ) -> None:
        self.more = False
        self.ended = True
        self._identity = identity
        self._progress = progress
        self._known = known
        self._joiner = Joiner(identity.rank, identity.world_size)
        self._plugin: RingReader | None = None
        self._watch: EndWatch | None = None
        self._waiting_since_s = float("-inf")
        self._waited = False
        self._lost = False
        self._facts: dict[str, str] = {}
        self._corrupt = 0
        self._unjoined = 0
        if progress.ring_tail:
            self._joiner.resume()

    @property
    def has_plugin(self) -> bool:
        """Whether the plugin's ring was found."""
        return self._plugin is not None

    def attach(self, plugin: RingReader) -> None:
        """Take the ring of the plugin of the same process."""
        plugin.seek(self._progress.also.get(plugin.identity.incarnation.hex(), 0))
        self._plugin, self._watch = plugin, EndWatch(plugin)
        self.ended = False

    def lost(self) -> None:
        """Say that records of the hooks' ring are missing before those that come next."""
        self._lost = True

    def learn(self, entry: Mapping[str, Any]) -> bool:
        """Refuse it: the hooks describe no communicators."""
        return False

    def rows(self, raw: bytes, room: int, now_s: float, *, last: bool) -> bytes:
        """Return what is ready, in the order of the ring."""
        if self._plugin is None or self._watch is None:
            return self._rows_alone(raw, room, now_s, last=last)
        self._learn_groups()
        self._joiner.add_calls(raw, now_s)
        gone = self._watch.look(now_s)
        try:
            batch = self._plugin.poll(_PLUGIN_BATCH)
        except RingError as error:
            _log.warning("giving up the ring of a plugin: %s", error)
            self._plugin.close()
            self._plugin, self.ended = None, True
            return self._rows_alone(b"", room, now_s, last=True)
        entries, corrupt = self._plugin.meta()
        self._corrupt += corrupt
        for entry in entries:
            if "comm" in entry:
                self._corrupt += not self._joiner.learn_comm(entry)
            else:
                self._facts = dict(list((self._facts | facts_of(entry)).items())[:_MAX_FACTS])
        if batch.overwritten or batch.torn:
            self._progress.count("ring_overwritten", batch.overwritten)
            self._progress.count("ring_torn", batch.torn)
        self._joiner.add_events(batch.rows.raw, now_s)
        if self._lost or batch.overwritten or batch.torn:
            self._joiner.lost()
            self._lost = False
        final = last and bool(gone) and len(batch.rows) < _PLUGIN_BATCH
        ready = self._joiner.release(now_s, self._plugin.inflight, room=room, final=final)
        self.more = self._joiner.more
        self.ended = final and not self.more
        lost = sum(self._joiner.strays.unjoined.values())
        self._progress.count("nccl_unjoined", lost - self._unjoined)
        self._unjoined = lost
        return ready

    def pending(self, own: list[InFlight]) -> list[InFlight]:
        """Return what is in a call, and what came back and still runs on the device."""
        if self._plugin is None:
            return own
        return self._joiner.pending(own, self._plugin.inflight())

    def tail(self, own: int) -> int:
        """Return the index of the oldest record that is held back, else the ring's."""
        held = self._joiner.calls_tail
        return own if held is None else held

    def groups(self) -> dict[int, GroupFacts]:
        """Return the groups made for communicators that torch knows nothing of."""
        made = self._joiner.foreign.groups
        return {index: whole_group(index, name, self._identity) for index, name in made.items()}

    def info(self) -> dict[str, str]:
        """Return counts of what is no loss."""
        joiner = self._joiner
        counts = {
            "nccl_calls_unmeasured": joiner.unmeasured_calls,
            "nccl_outside_calls": joiner.strays.outside_calls,
            "nccl_foreign_events": joiner.foreign.events,
            "nccl_contradictions": joiner.book.contradictions,
        }
        by_comm = {f"nccl_unjoined:{label}": n for label, n in joiner.strays.unjoined.items()}
        if self._plugin is not None:
            counts |= plugin_counters(self._plugin)
        return self._facts | {key: str(n) for key, n in (counts | by_comm).items() if n}

    def dropped(self) -> dict[str, int]:
        """Return what the plugin counted in its ring."""
        if self._plugin is None:
            return {}
        found = counters_of(self._plugin)
        if lost := plugin_counters(self._plugin)[_LOST_RECORDS]:
            found[_LOST_RECORDS] = lost
        return found | ({"meta_corrupt": self._corrupt} if self._corrupt else {})

    def also(self) -> dict[str, int]:
        """Return how far the plugin's ring has been used up."""
        if self._plugin is None:
            return {}
        needed = self._joiner.events_tail
        tail = self._plugin.tail if needed is None else needed
        return {self._plugin.identity.incarnation.hex(): tail}

    def paths(self) -> list[tuple[Path, str]]:
        """Return the plugin's ring."""
        if self._plugin is None:
            return []
        return [(self._plugin.path, self._plugin.identity.incarnation.hex())]

    def close(self) -> None:
        """Unmap the plugin's ring."""
        if self._plugin is not None:
            self._plugin.close()

    def _rows_alone(self, raw: bytes, room: int, now_s: float, *, last: bool) -> bytes:
        holding = self._joiner.calls_tail is not None
        if not holding and not has_calls(raw):
            return raw
        if self._waited:
            return without_return(raw)
        if not holding:
            self._waiting_since_s = now_s
        self._learn_groups()
        self._joiner.add_calls(raw, now_s)
        over = last or now_s - self._waiting_since_s >= FIRST_WAIT_S
        ready = self._joiner.release(now_s, list, room=room, final=over)
        self.more = over and self._joiner.more
        self._waited = over and not self.more
        return ready

    def _learn_groups(self) -> None:
        learned = self._joiner.book.groups
        for index in self._known.keys() - learned.keys():
            try:
                ranks = parse_ranks(self._known[index].ranks)
            except InputError:
                ranks = ()
            self._joiner.book.learn_group(index, tuple(ranks))


class Alone:
    """The ring of a plugin in a process without hooks: groups of all ranks, and nothing else.

    Args:
        identity: of the plugin's ring.
    """

    def __init__(self, identity: RingIdentity) -> None:
        self.more = False
        self.ended = True
        self._identity = identity
        self._names: dict[int, str] = {}
        self._foreign = 0

    def lost(self) -> None:
        """Do nothing: nothing is joined."""

    def learn(self, entry: Mapping[str, Any]) -> bool:
        """Take a communicator, which is a group if it has all ranks in order."""
        index = entry.get("comm")
        if type(index) is not int:
            return False
        if entry.get("nranks") == self._identity.world_size:
            name = str(entry.get("name") or entry.get("hash") or index)
            if entry.get("rank") == self._identity.rank:
                self._names[index] = f"nccl:{name}"[:256]
        return True

    def rows(self, raw: bytes, room: int, now_s: float, *, last: bool) -> bytes:
        """Return the records of communicators of all ranks."""
        events = [event_of(fields, now_s) for fields in FIELDS.iter_unpack(raw)]
        kept = [event for event in events if event.comm in self._names]
        self._foreign += len(events) - len(kept)
        return b"".join(pack_record(record_of(event, event.comm, 0)) for event in kept)

    def pending(self, own: list[InFlight]) -> list[InFlight]:
        """Return what is in flight in communicators of all ranks."""
        return [one for one in own if one.group in self._names]

    def tail(self, own: int) -> int:
        """Return the ring's."""
        return own

    def groups(self) -> dict[int, GroupFacts]:
        """Return a group for each communicator of all ranks."""
        return {
            index: whole_group(index, name, self._identity) for index, name in self._names.items()
        }

    def info(self) -> dict[str, str]:
        """Return how many events were of other communicators."""
        return {"nccl_foreign_events": str(self._foreign)} if self._foreign else {}

    def dropped(self) -> dict[str, int]:
        """Return nothing: there is no second writer."""
        return {}

    def also(self) -> dict[str, int]:
        """Return nothing: there is no second ring."""
        return {}

    def paths(self) -> list[tuple[Path, str]]:
        """Return nothing: there is no second ring."""
        return []

    def close(self) -> None:
        """Do nothing."""


def counters_of(reader: RingReader) -> dict[str, int]:
    """Return what the writer of a ring counted in its header, by reason."""
    counts = {reason: reader.word(offset) for reason, offset in COUNTERS}
    return {reason: count for reason, count in counts.items() if count}


def plugin_counters(reader: RingReader) -> dict[str, int]:
    """Return what a plugin counted in its ring, by name."""
    offset = at.PLUGIN_COUNTERS_OFFSET
    return {
        f"nccl_{name}": reader.word(offset + 8 * number)
        for number, name in enumerate(at.PLUGIN_COUNTERS)
    }


def facts_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts about a process in an entry of a ring's metadata."""
    facts = entry.get("info")
    plain = facts if isinstance(facts, dict) else entry
    return {
        str(key)[:64]: str(value)[:256]
        for key, value in plain.items()
        if isinstance(value, (str, int, float))
    }


def whole_group(index: int, name: str, identity: RingIdentity) -> GroupFacts:
    """Return a group of all ranks."""
    last = identity.world_size - 1
    ranks = f"0-{last}" if last else "0"
    return GroupFacts(index=index, name=name, ranks=ranks, epoch=0, mesh_dim="", backend="nccl")
