"""Which group a rank's own number of it means (the method: docs/math/standstill.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline_service.importers.flight_recorder.dump import Dump

GroupKey = tuple[str, str, tuple[int, ...]]
"""Name, description and ranks; the ranks are empty where the backend does not tell them."""


@dataclass(slots=True, kw_only=True)
class Layouts:
    """The groups of a job, and of each dump which of its numbers means which of them."""

    groups: list[GroupKey] = field(default_factory=list)
    members: list[tuple[int, ...]] = field(default_factory=list)
    of_dump: dict[int, dict[int, int]] = field(default_factory=dict)
    """By rank: its number of a group to the index into ``groups``."""


def find_layouts(dumps: Sequence[Dump]) -> Layouts:
    """Return the groups of all dumps.

    A rank numbers its groups by itself, and ``pg_status`` names nothing but that number. An entry
    tells number and name together. Ranks with the same numbers have the same layout, so what an
    entry of one tells holds for the others: number to description, and that to the one group of
    this description in the rank's own configuration. A number that no entry names is left out:
    nothing is pending there.

    Raises:
        InputError: dumps contradict each other.
    """
    _check_one_job(dumps)
    descriptions: dict[tuple[int, ...], dict[int, str]] = defaultdict(dict)
    contradicted: set[tuple[tuple[int, ...], int]] = set()
    for dump in dumps:
        known = descriptions[_numbers(dump)]
        for entry in dump.entries:
            if known.setdefault(entry.pg_id, entry.group_desc) != entry.group_desc:
                contradicted.add((_numbers(dump), entry.pg_id))
    layouts = Layouts()
    index: dict[GroupKey, int] = {}
    present: dict[int, set[int]] = defaultdict(set)
    for dump in sorted(dumps, key=lambda one: one.rank):
        own = {entry.pg_id: entry.group_name for entry in dump.entries}
        own_desc = {entry.pg_id: entry.group_desc for entry in dump.entries}
        by_desc: dict[str, list[str]] = defaultdict(list)
        for name, (desc, _) in dump.groups.items():
            by_desc[desc].append(name)
        mine = layouts.of_dump[dump.rank] = {}
        for number, desc in descriptions[_numbers(dump)].items():
            named = own.get(number)
            if (_numbers(dump), number) in contradicted:
                desc = own_desc.get(number, desc)  # nobody else's entry tells
            elif named is None and len(by_desc[desc]) == 1:
                named = by_desc[desc][0]
            if named is None and desc == "default_pg" and number == 0:
                named = "0"
            if named is None or (number not in dump.counters and number not in own):
                continue
            ranks = dump.groups[named][1] if named in dump.groups else ()
            if ranks and dump.rank not in ranks:
                continue
            key = (named, desc, ranks)
            at = index.setdefault(key, len(layouts.groups))
            if at == len(layouts.groups):
                layouts.groups.append(key)
            mine[number] = at
            present[at].add(dump.rank)
    everyone = tuple(range(1 + max((dump.rank for dump in dumps), default=-1)))
    layouts.members = [
        # Gloo tells no members: of its first group they are all ranks, of others those seen in it.
        key[2] or (everyone if key[1] == "default_pg" else tuple(sorted(present[at])))
        for at, key in enumerate(layouts.groups)
    ]
    return layouts


def name_of(key: GroupKey) -> str:
    """Return how a group is called for a reader: torch writes ``undefined`` where nobody said."""
    name, desc, _ = key
    return desc if desc and desc != "undefined" else name or "unnamed"


def _check_one_job(dumps: Sequence[Dump]) -> None:
    """Refuse dumps whose group of all ranks is not the same."""
    first: tuple[Dump, tuple[int, ...]] | None = None
    for dump in dumps:
        for desc, ranks in dump.groups.values():
            if desc != "default_pg":
                continue
            if first is None:
                first = dump, ranks
            elif first[1] != ranks:
                raise InputError(
                    f"{dump.path} is of a job of {counted(len(ranks), 'rank')} and {first[0].path} "
                    f"of one of {len(first[1])}; give the dumps of one job"
                )


def _numbers(dump: Dump) -> tuple[int, ...]:
    return tuple(sorted(dump.counters))
