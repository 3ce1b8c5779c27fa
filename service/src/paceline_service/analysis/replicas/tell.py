"""Replicas that differ as findings: who, since when, what to do; and what was compared as notes."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.ranks import format_ranks
from paceline_service.analysis.channel import JobFacts
from paceline_service.analysis.replicas.course import CONFIRM_CHECKS, Course, Stretch
from paceline_service.analysis.replicas.digest import Place
from paceline_service.analysis.replicas.votes import ranks_of
from paceline_service.analysis.report import Finding

MAX_FINDINGS = 8
MAX_NOTES = 4
MAX_NODES = 4
_TEST = "nvidia-smi -q -d ECC,ROW_REMAPPER; dcgmi diag -r 3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that came, when somebody asks."""

    courses: Mapping[Place, Course]
    compared: int
    """Checks in which all ranks of a set were heard."""
    incomplete: int
    newest_step: int
    """Of the checks that were compared."""
    job_step: int
    """The newest that was analysed: what is wrong in memory is wrong until then."""
    members: Mapping[str, int]
    """By name of the set, the ranks that were heard of it, as bits."""
    began: Mapping[str, int]
    """By name of the set, the first step of which anybody told."""
    checking: Mapping[str, int]
    """By how often they check, the ranks that do, as bits."""
    left_out: Mapping[str, int]
    """By what is compared with nobody, and why, the ranks that say so, as bits."""


def findings_of(told: Told, facts: JobFacts) -> list[Finding]:
    """Return what stays wrong: ranks against a majority, and sets without one."""
    found: dict[tuple[int, ...], tuple[Place, Stretch]] = {}
    for places in _by_set(told).values():
        named: dict[int, tuple[Place, Stretch]] = {}
        for place in places:
            for one in told.courses[place].stretches():
                if _lasts(one, places, told) and one.rank not in named:
                    named[one.rank] = (place, one)
        split = named.pop(-1, None)
        if named:
            first = min(named.values(), key=lambda pair: pair[1].first_step)
            ranks = tuple(sorted(named))
            if ranks not in found or first[1].first_step < found[ranks][1].first_step:
                found[ranks] = first
        elif split is not None:
            found.setdefault((), split)
    in_order = sorted(found.items(), key=lambda item: (item[1][1].first_step, item[0]))
    return [
        _finding(list(ranks), place, one, told, facts)
        for ranks, (place, one) in in_order[:MAX_FINDINGS]
    ]


def notes_of(told: Told, facts: JobFacts) -> list[str]:
    """Return what was compared, what differed without staying so, and what was left out."""
    return _compared(told, facts) + [
        f"replica check: not compared on {_named(ranks_of(ranks))}: {why}"
        for why, ranks in sorted(told.left_out.items())[:MAX_NOTES]
    ]


def _compared(told: Told, facts: JobFacts) -> list[str]:
    if not told.courses:
        return [
            f"replica check: {_named(ranks_of(ranks))} would check {how}, and nothing came that "
            "could be compared"
            for how, ranks in sorted(told.checking.items())[:1]
        ]
    if not told.compared:
        return [
            "replica check: digests came, and no check has come from all ranks of a set yet "
            f"({told.incomplete} are incomplete)"
        ]
    sets = len(_by_set(told))
    out = []
    once: list[Stretch] = []
    never = 0
    for places in _by_set(told).values():
        stretches = [one for place in places for one in told.courses[place].stretches()]
        once += [one for one in stretches if one.rank >= 0 and not _lasts(one, places, told)]
        apart = [one for one in stretches if one.rank < 0]
        never += bool(apart) and not any(_lasts(one, places, told) for one in apart)
    differ = bool(findings_of(told, facts))
    how = "" if differ or once or never else "; all were equal"
    out.append(
        f"replica check: {counted(told.compared, 'check')} of {counted(sets, 'set')} of "
        f"replicas, the newest at step {told.newest_step}{how}"
    )
    if never:
        out.append(
            f"replica check: {counted(never, 'set')} of replicas differed without a majority, and "
            "never agreed or agree now and then: they may be trained apart by design"
        )
    for one in once[:MAX_NOTES]:
        then = f" and agreed at step {one.again_step}" if one.again_step >= 0 else ""
        out.append(
            f"replica check: rank {one.rank} differed at step {one.first_step}{then}; one check "
            "alone names nobody"
        )
    return out


def _lasts(one: Stretch, places: list[Place], told: Told) -> bool:
    """Whether a difference stays.

    Without a majority they must have agreed before, and must not have found together again: that is
    what replicas do that are averaged now and then.
    """
    if one.checks < CONFIRM_CHECKS:
        return False
    if one.rank >= 0:
        return True
    healed = any(
        other.rank < 0 and other.again_step >= 0
        for place in places
        for other in told.courses[place].stretches()
    )
    return not healed and _agreed_before(places, told, one.first_step) >= 0


def _agreed_before(places: list[Place], told: Told, step: int) -> int:
    """Return the newest step before ``step`` at which all parts looked at then agreed; -1: none."""
    return max(
        (
            stop.at[0]
            for place in places
            for stop in told.courses[place].stops
            if stop.outcome.agreed and stop.at[0] < step
        ),
        default=-1,
    )


def _by_set(told: Told) -> dict[str, list[Place]]:
    out: dict[str, list[Place]] = {}
    for place in told.courses:
        out.setdefault(place.name, []).append(place)
    return out


def _finding(ranks: list[int], place: Place, one: Stretch, told: Told, facts: JobFacts) -> Finding:
    nodes = _nodes(ranks, facts)
    members = ranks_of(told.members[place.name])
    at_once = one.agreed_step < 0 and told.began[place.name] >= one.first_step
    return Finding(
        kind="desync",
        ranks=ranks,
        nodes=nodes,
        cause="unknown",
        phase=None,
        first_step=one.first_step,
        last_step=one.last_step if one.again_step >= 0 else max(one.last_step, told.job_step),
        slowdown=None,
        recoverable_ratio=None,
        wasted_gpu_s=None,
        confidence=None,
        evidence=_evidence(ranks, place, one, members, at_once=at_once),
        action=_action(ranks, nodes or _nodes(members, facts), one, at_once=at_once),
    )


def _nodes(ranks: list[int], facts: JobFacts) -> list[str]:
    return sorted({facts.nodes[rank] for rank in ranks if facts.nodes.get(rank)})


def _evidence(
    ranks: list[int], place: Place, one: Stretch, members: list[int], *, at_once: bool
) -> list[str]:
    group = f"{place.name.rpartition('#')[0] or place.name} ({_named(members)})"
    part = f"part {place.part + 1} of {place.parts} of the" if place.parts > 1 else "the"
    since = (
        f"all agreed at step {one.agreed_step}"
        if one.agreed_step >= 0
        else "that was the first check"
        if at_once
        else "no earlier check heard all of them"
    )
    if ranks:
        others = place.replicas - len(ranks)
        said = (
            f"{_named(ranks)} {'holds' if len(ranks) == 1 else 'hold'} other parameters "
            f"than {others} of the {place.replicas} replicas in group {group}: {part} parameters "
            f"differed first at step {one.first_step}, and {since}"
        )
        why = (
            "every all-reduce gives all replicas the same bits and optimizers make the same of "
            "them, so something was computed, stored or received wrongly there, and it stays"
        )
    else:
        said = (
            f"the {place.replicas} replicas in group {group} do not hold the same parameters: "
            f"{part} parameters differed first at step {one.first_step}, and {since}"
        )
        why = "no digest is held by more than half of them, so nobody can say who is right"
    again = f"; at step {one.again_step} it agreed again" if one.again_step >= 0 else ""
    row = f"{one.checks} checks in a row said so, the newest at step {one.last_step}{again}"
    return [said, row, why]


def _action(ranks: list[int], nodes: list[str], one: Stretch, *, at_once: bool) -> str:
    if at_once:
        return (
            "compare seeds and checkpoints of all ranks: they differed at the first check already, "
            "so the program may make them different"
        )
    where = ", ".join(nodes[:MAX_NODES]) or (_named(ranks) if ranks else "each of their nodes")
    where += f" and {len(nodes) - MAX_NODES} more" if len(nodes) > MAX_NODES else ""
    without = ", without it" if ranks and len(nodes) == 1 else ""
    good = f"of step {one.agreed_step} or earlier"
    if one.agreed_step < 0:
        good = f"well before step {one.first_step}"
    return (
        f"{_TEST}  # on {where}, when the job is stopped; start again from a checkpoint {good}"
        f"{without}"
    )


def _named(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"
