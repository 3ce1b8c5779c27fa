"""``/what-if``: what leaving out ranks or nodes would have given back (docs/math/whatif.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.errors import InputError
from paceline.ranks import format_ranks, parse_ranks
from paceline_service.analysis.whatif.drain import Drain, Gain
from paceline_service.export.what_if import candidates
from paceline_service.jobs.snapshot import Snapshot

Json = dict[str, Any]
MAX_WITHOUT = 64


def what_if(snapshot: Snapshot, without: Sequence[str]) -> Json:
    """Return what the job would gain without ``without``: ``rank:3``, ``rank:0-3``, ``node:NAME``.

    One rank and one node are answered over all steps, other sets over the newest ones that are
    in memory. Without any it tells what single ranks and nodes would give back.

    Raises:
        InputError: one of them names nothing of this job, or all ranks of it are left out, or the
            steps that a set needs are not in memory any more.
    """
    drain = snapshot.drain or Drain(
        steps=0, first_step=-1, last_step=-1, duration_ns=0, ranks={}, nodes={}
    )
    names = _names(without)
    ranks = sorted({rank for name in names for rank in _ranks(name, snapshot)})
    size = snapshot.attempt.world_size
    if ranks and len(ranks) >= size:
        raise InputError(f"without all {size} ranks there is no job; leave some in")
    figures: Json = {
        "job": snapshot.attempt.job,
        "attempt": snapshot.attempt.ordinal,
        "without": names,
        "ranks": format_ranks(ranks),
    }
    figures |= _gain_json(_gain(drain, names, ranks))
    figures["replay"] = snapshot.report.get("what_if")
    figures["candidates"] = candidates(drain)
    return figures


def _gain(drain: Drain, names: list[str], ranks: list[int]) -> Gain:
    if not ranks:
        return drain.of(0)
    if len(ranks) == 1:
        return drain.of(drain.ranks.get(ranks[0], 0))
    kind, _, name = names[0].partition(":")
    if len(names) == 1 and kind == "node":
        return drain.of(drain.nodes.get(name, 0))
    if drain.history is None:
        if not drain.steps:
            return drain.of(0)
        raise InputError(
            f"{len(ranks)} ranks together: the steps that this needs are not in memory any more; "
            "ask for one rank or one node, or replay the job"
        )
    return drain.history.without(ranks)


def _gain_json(gain: Gain) -> Json:
    return {
        "steps": gain.steps,
        "first_step": gain.first_step if gain.steps else None,
        "last_step": gain.last_step if gain.steps else None,
        "duration_ns": gain.duration_ns,
        "recoverable_ns": gain.recoverable_ns,
        "recoverable_ratio": gain.ratio if gain.steps else None,
        "at_least": gain.at_least,
    }


def _names(without: Sequence[str]) -> list[str]:
    if len(without) > MAX_WITHOUT:
        raise InputError(
            f"without is given {len(without)} times; at most {MAX_WITHOUT}: write ranks as a list, "
            "for example rank:0-7"
        )
    return list(dict.fromkeys(without))


def _ranks(name: str, snapshot: Snapshot) -> list[int]:
    """Return the ranks that one ``without`` names."""
    kind, colon, value = name.partition(":")
    size = snapshot.attempt.world_size
    if kind == "rank" and colon:
        ranks = parse_ranks(value)
        if ranks and max(ranks) < size and len(ranks) <= size:
            return list(ranks)
        raise InputError(f"without={name[:80]!r}: the job has ranks 0 to {size - 1}")
    if kind == "node" and colon:
        found = [int(rank) for rank, node in snapshot.nodes.items() if node == value]
        if found:
            return found
        raise InputError(
            f"without={name[:80]!r}: no rank of the job told that it is on that node; its nodes "
            "are in GET /v1/jobs/{job}"
        )
    raise InputError(f"without={name[:80]!r} is neither rank:LIST (rank:3, rank:0-3) nor node:NAME")
