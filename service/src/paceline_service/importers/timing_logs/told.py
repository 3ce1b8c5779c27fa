"""What a log tells, in sentences for the report."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.counted import counted
from paceline_service.importers.timing_logs.detector import Named, healthy_ratio
from paceline_service.importers.timing_logs.facts import (
    MATERIAL_RATIO,
    Change,
    Facts,
    Growth,
    Spread,
)
from paceline_service.importers.timing_logs.places import Places
from paceline_service.importers.timing_logs.series import Table
from paceline_service.importers.timing_logs.timers import phase_of

_SHOWN = 4
LEAST_SPREAD = 1.05
LEAST_COST = 0.005
"""Of an iteration."""
OWN_PHASES = ("input", "forward", "backward", "optimizer")


def about_steps(facts: Facts, attempts: int) -> list[str]:
    """Return what was read: iterations, how long they take, what the numbers are averages of."""
    what = (
        f"{facts.reports:,} reports of iterations {facts.first:,} to {facts.last:,}"
        if facts.each > 1
        else f"{facts.reports:,} iterations, {facts.first:,} to {facts.last:,}"
    )
    each = f", each the average over {facts.each} iterations" if facts.each > 1 else ""
    took = (
        "their throughput alone is told"
        if facts.relative
        else f"an iteration takes {_ms(facts.median_ms)} (median)"
    )
    rate = f", {facts.tflops:,.1f} TFLOP/s per GPU" if facts.tflops is not None else ""
    notes = [f"{what}{each}; {took}{rate}"]
    if attempts > 1:
        notes.append(
            f"the iterations count anew {_times(attempts - 1)}: the job was restarted, and its "
            f"latest attempt is judged"
        )
    return notes


def about_changes(facts: Facts) -> list[str]:
    """Return where iterations become slower or faster for good, and which timer grew."""
    return [sentence for change in facts.changes for sentence in about_change(change, facts)]


def about_change(change: Change, facts: Facts) -> list[str]:
    """Return one change of level in words."""
    word = "longer" if change.ratio > 1 else "shorter"
    by = abs(change.ratio - 1)
    near = f"about iteration {change.iteration:,}" if facts.each > 1 else (
        f"iteration {change.iteration:,}"
    )  # fmt: skip
    sentence = f"from {near} on iterations take {by:.1%} {word}"
    if not facts.relative:
        sentence += f": {_ms(change.after_ms)} against {_ms(change.before_ms)} before"
    if change.work is not None:
        words, before, after = change.work
        return [f"{sentence}; the {words} went from {before:g} to {after:g} there"]
    if change.ratio < 1:
        return [sentence]
    return [f"{sentence}{_where(change, facts)}"]


def _where(change: Change, facts: Facts) -> str:
    """Return in which timers the time went, and of whom."""
    if change.least and change.most:
        fast, slow = _top(change.least), _top(change.most)
        if all_grew(change):
            grown = _top([one for one in change.least if phase_of(one.timer) in OWN_PHASES])
            return (
                f"; even on the fastest rank {_grown(grown)}: all ranks became slower together"
                if grown is not None
                else ""
            )
        own = _top([one for one in change.most if phase_of(one.timer) in OWN_PHASES])
        if own is not None and own.grown_ms >= change.grown_ms / 2:
            return (
                f"; on the slowest rank {_grown(own)}, on the fastest not: some ranks became "
                "slower, and the log does not tell which"
            )
        grown = fast or slow
        return f"; {_grown(grown)}, and no rank's own work did" if grown is not None else ""
    grown = _top(change.single)
    if grown is None and (slowest := _top(change.most)) is not None:
        return f"; on the slowest rank {_grown(slowest)}; of the others the log has no times"
    if grown is None:
        return "" if facts.resolved else "; the log has no timers of the phases"
    who = _writer(facts)
    if phase_of(grown.timer) == "communication":
        return (
            f"; on {who}, {_grown(grown)}: it waits there, for another rank or for the network, "
            "and its own work did not grow as much"
        )
    return f"; on {who}, {_grown(grown)}; of the others the log has no times"


def all_grew(change: Change) -> bool:
    """Whether the fastest rank's own work grew as the job did: then that of all did."""
    pairs = [(one.before_ms, one.after_ms) for one in change.least
             if phase_of(one.timer) in OWN_PHASES]  # fmt: skip
    before, after = (sum(pair[i] for pair in pairs) for i in (0, 1))
    return bool(
        pairs
        and before > 0
        and after / before >= MATERIAL_RATIO
        and after - before >= change.grown_ms / 2
    )


def about_outliers(facts: Facts) -> list[str]:
    """Return single slow iterations; they say nothing about a rank."""
    notes = []
    if facts.outliers:
        shown = ", ".join(
            f"{one.iteration:,} ({_ms(one.step_ms)}{', after ' + one.why if one.why else ''})"
            for one in facts.outliers[:_SHOWN]
        )
        more = f" and {len(facts.outliers) - _SHOWN} more" if len(facts.outliers) > _SHOWN else ""
        notes.append(f"single slow iterations, which do not count as slowness: {shown}{more}")
    if facts.skipped:
        notes.append(
            f"{facts.skipped:,} iteration{'s' if facts.skipped > 1 else ''} skipped because the "
            "loss scale was too high"
        )
    return notes


def about_spreads(facts: Facts, places: Places) -> list[str]:
    """Return how far ranks are apart where the log has the least and the largest of a timer."""
    notes = []
    telling = [one for one in facts.spreads if one.phase in OWN_PHASES and _matters(one, facts)]
    for one in telling[:_SHOWN]:
        late_ms = one.most_ms - one.least_ms
        notes.append(
            f"some rank's {one.timer} takes {_ms(one.most_ms)} against {_ms(one.least_ms)} on the "
            f"fastest: {late_ms / one.least_ms:.0%} more, up to {_ms(late_ms)} of "
            f"{_ms(facts.median_ms)} per iteration"
            if one.least_ms > 0
            else f"some rank's {one.timer} takes {_ms(one.most_ms)}, another's nothing"
        )
    if telling and places.stages != 1:
        notes.append(
            "the ranks of different pipeline stages hold different layers: part of the spread is "
            "of the stages, and the log does not tell how much"
        )
    if facts.spreads and not telling:
        notes.append(
            "the own work of the slowest and the fastest rank differs by less than "
            f"{LEAST_SPREAD - 1:.0%}, or by less than {LEAST_COST:.1%} of an iteration"
        )
    waits = [one for one in facts.spreads if one.phase == "communication" and _matters(one, facts)]
    for one in waits[:1]:
        notes.append(
            f"in {one.timer} some rank spends {_ms(one.most_ms)}, another {_ms(one.least_ms)}: "
            "what lies between is waiting for whoever comes last, unless a barrier stands before"
        )
    return notes


def _matters(one: Spread, facts: Facts) -> bool:
    late_ms = one.most_ms - one.least_ms
    return one.most_ms >= LEAST_SPREAD * one.least_ms and late_ms >= LEAST_COST * facts.median_ms


def about_named(named: Named, places: Places) -> list[str]:
    """Return whom the straggler detector named."""
    sentence = (
        f"the straggler detector found rank {named.rank} slowest in {named.times:,} of "
        f"{named.reports:,} reports: {_ms(named.slowest_ms)} in the forward pass against "
        f"{_ms(named.fastest_ms)} on the fastest rank ({named.ratio - 1:.1%} more)"
    )
    if named.excess is not None:
        sentence += f", {named.excess:.1%} more than the next slowest"
    notes = [sentence]
    if named.facts:
        notes.append(f"rank {named.rank} mostly had {', '.join(named.facts)} as well")
    if not named.convicts(places):
        notes.append(_doubt(named, places))
    return notes


def _doubt(named: Named, places: Places) -> str:
    if named.times < named.reports / 2:
        return "another rank was slowest most of the time: nobody is slow for good in the forward"
    if named.chance > 1e-6:
        return f"{named.reports} reports are too few to tell that from chance"
    if named.excess is not None:
        return "it is hardly slower than the next slowest: nobody stands out"
    if places.stages is None:
        return (
            "whether the job has pipeline stages, whose ranks differ by design, the log does not "
            "say; --straggler-minmax-count 8 would name the next slowest too"
        )
    if places.stages > 1:
        return (
            "it may be that its pipeline stage holds more; --straggler-minmax-count 8 would name "
            "the next slowest too"
        )
    limit = healthy_ratio(places.world_size)
    return (
        f"of {places.world_size} healthy ranks the slowest may well be {limit - 1:.1%} slower than "
        "the fastest; --straggler-minmax-count 8 would name the next slowest too"
    )


def about_tables(tables: Sequence[Table]) -> list[str]:
    """Return what DeepSpeed's summary of communication says at its latest."""
    notes = []
    for straggler in (False, True):
        table = next((t for t in reversed(tables) if t.straggler == straggler and t.rows), None)
        if table is None:
            continue
        transfer_ms = sum(row[3] for row in table.rows)
        if not straggler:
            top = max(table.rows, key=lambda row: row[3])
            notes.append(
                f"the rank that wrote the summary of communication spent {_ms(transfer_ms)} in "
                f"{counted(sum(row[2] for row in table.rows), 'collective')}, most in {top[0]} of "
                f"{top[1]} ({_ms(top[3])}, {top[6]:,.1f} Gbit/s of bus bandwidth)"
            )
            continue
        waited_ms = sum(max(row[4], 0.0) for row in table.rows)
        if waited_ms + transfer_ms <= 0:
            continue
        top = max(table.rows, key=lambda row: row[4])
        notes.append(
            f"that rank waited {_ms(waited_ms)} for others beside {_ms(transfer_ms)} of transfers "
            f"({waited_ms / (waited_ms + transfer_ms):.0%} of its communication), most in {top[0]} "
            f"of {top[1]} ({_ms(top[4])}); for whom the summary does not tell"
        )
    return notes


def remedy(facts: Facts | None) -> str:
    """Return what to run to learn which rank it is."""
    if facts is not None and facts.kind == "megatron":
        return (
            "Run with --timing-log-level 2 --timing-log-option all, or with `paceline run`: both "
            "have the times of each rank."
        )
    return "Run with `paceline run`: it has the times of each rank."


def about_phases(facts: Facts) -> list[str]:
    """Return in which timers an iteration of the one rank goes whose timers the log has."""
    ms = facts.single
    if not ms:
        return []
    who = _writer(facts)
    top = sorted(ms.items(), key=lambda item: -item[1])[:_SHOWN]
    shown = ", ".join(f"{timer} {_ms(took)}" for timer, took in top)
    together = sum(took for timer, took in ms.items() if phase_of(timer) == "communication")
    share = min(together / facts.median_ms, 1.0) if facts.median_ms else 0.0
    return [
        f"the only timers are of {who}: {shown}; communication and waiting take {share:.0%} of its "
        "iterations, and whether it waits for a slow rank they do not tell"
    ]


def _writer(facts: Facts) -> str:
    if facts.single_rank is not None and facts.single_rank >= 0:
        return f"rank {facts.single_rank}"
    return "the last rank, which writes the log" if facts.kind == "megatron" else "one rank"


def _grown(growth: Growth) -> str:
    return f"{growth.timer} went from {_ms(growth.before_ms)} to {_ms(growth.after_ms)}"


def _top(growths: Sequence[Growth]) -> Growth | None:
    grown = [one for one in growths if one.grown_ms > 0]
    return max(grown, key=lambda one: one.grown_ms, default=None)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _ms(ms: float) -> str:
    return f"{ms:,.1f} ms" if ms < 10_000 else f"{ms / 1e3:,.1f} s"
