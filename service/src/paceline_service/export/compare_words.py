"""The answer about two runs in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from paceline_service.export.units import format_ratio, precise_ns
from paceline_service.export.words import Json, clean, costs, ranks_in_words, statement

_NAMED_RANKS = 8
_NAMED_PARTS = 3
_NAMES = {"host": "other own work", "waiting": "waiting for others"}


def headline(answer: Json) -> str:
    """Return the verdict as one sentence without its stop."""
    step, verdict = answer["step"], answer["verdict"]
    before, after = precise_ns(step["before_ns"]), precise_ns(step["after_ns"])
    if verdict in ("slower", "faster"):
        word = "longer" if verdict == "slower" else "less"
        return f"Steps take {format_ratio(abs(step['change_ratio']))} {word}: {before} before, " + (
            f"{after} after"
        )
    if verdict == "no_difference":
        return f"No difference that this data could show: {before} a step before, {after} after"
    return f"Not enough steps to tell a difference from chance: {before} a step before, " + (
        f"{after} after"
    )


def certainty(answer: Json) -> str:
    """Return interval and the smallest difference that would have shown, or an empty string."""
    step = answer["step"]
    if step["low_ratio"] is None:
        return ""
    sure = format_ratio(1 - answer["false_rate"])
    between = f"{signed_ratio(step['low_ratio'])} and {signed_ratio(step['high_ratio'])}"
    smallest = format_ratio(step["smallest_ratio"])
    told = f"The difference lies between {between} ({sure} interval)."
    if answer["verdict_by"] == "findings":
        word = "came" if answer["verdict"] == "slower" else "went"
        return f"{told} The step times alone do not prove it, the finding that {word} does."
    if answer["verdict"] == "no_difference":
        return f"{told} The smallest one that it could have shown is {smallest}."
    return f"{told} From {smallest} on one would have shown."


def where(answer: Json) -> str:
    """Return in which parts of a step the difference lies, or an empty string."""
    if answer["verdict"] not in ("slower", "faster") or answer["verdict_by"] != "steps":
        return ""
    held = [one for one in answer["parts"] if one["significant"]]
    held.sort(key=lambda one: -abs(one["change_ns"]))
    if not held:
        return "No single part of the step stands out."
    told = [
        f"{part_name(one, answer)} {signed_ns(one['change_ns'])}" for one in held[:_NAMED_PARTS]
    ]
    return f"In a mean step of all ranks: {', '.join(told)}."


def who(answer: Json) -> list[str]:
    """Return which ranks changed by themselves, and whether all did together."""
    sentences = []
    rows = {row["rank"]: row for row in answer["ranks"]}
    for key, word in (("slower_ranks", "more"), ("faster_ranks", "less")):
        ranks: Sequence[int] = answer[key]
        for rank in ranks[:_NAMED_RANKS] if len(ranks) <= _NAMED_RANKS else ():
            row = rows[rank]
            before, after = precise_ns(row["before_ns"]), precise_ns(row["after_ns"])
            on = f" on {clean(row['node_after'])}" if row["node_after"] else ""
            sentences.append(
                f"Rank {rank}{on} takes {format_ratio(abs(row['change_ratio']))} {word} time for "
                f"its own work than before ({before}, now {after}); the median rank changes by "
                f"{signed_ratio(_of_median(row))}."
            )
        if len(ranks) > _NAMED_RANKS:
            told = ranks_in_words(ranks)
            sentences.append(
                f"{told[0].upper()}{told[1:]} take {word} time for their own work than before, "
                "against the median rank."
            )
    alone = {*answer["slower_ranks"], *answer["faster_ranks"]}
    together = [row for row in answer["ranks"] if row["changed"] and row["rank"] not in alone]
    if len(together) * 2 > len(rows) > 0:
        ratios = sorted(row["change_ratio"] for row in together)
        middle = ratios[len(ratios) // 2]
        word = "longer" if middle > 0 else "less"
        sentences.append(
            f"Own work takes {format_ratio(abs(middle))} {word} on {len(together):,} of "
            f"{len(rows):,} ranks alike: rather the program or its input than a rank."
        )
    return sentences


def finding_lines(answer: Json, key: str) -> list[str]:
    """Return the findings that ``came``, ``went`` or ``stayed``, each in a sentence."""
    if key == "stayed":
        return [
            f"{statement(pair['after'], answer['after'])}. Before it cost "
            f"{_cost(pair['before'])}, after {_cost(pair['after'])}"
            for pair in answer["findings"]["stayed"]
        ]
    side = answer["after" if key == "came" else "before"]
    lines = []
    for finding in answer["findings"][key]:
        cost = costs(finding, side)
        told = statement(finding, side)
        lines.append(f"{told}: {cost}" if cost else told)
    return lines


def part_name(one: Json, answer: Json) -> str:
    """Return what a part is called; without phases all own work is one part."""
    phases = {part["part"] for part in answer["parts"]} - {"communication", "waiting"}
    if one["part"] == "host" and phases == {"host"}:
        return "own work"
    return _NAMES.get(one["part"], str(one["part"]))


def signed_ns(time_ns: int) -> str:
    """Return a difference with its sign."""
    return f"{'+' if time_ns > 0 else '-' if time_ns < 0 else ''}{precise_ns(abs(time_ns))}"


def signed_ratio(ratio: float) -> str:
    """Return a difference as per cent with its sign."""
    return f"{'+' if ratio > 0 else '-' if ratio < 0 else ''}{format_ratio(abs(ratio))}"


def _of_median(row: Json) -> float:
    """Return by how much the rank changed that the others are measured against."""
    ratio: float = (1 + row["change_ratio"]) / (1 + row["against_peers_ratio"]) - 1
    return ratio


def _cost(finding: Json) -> str:
    ratio = finding.get("recoverable_ratio")
    return f"{format_ratio(ratio)} of the time" if ratio is not None else "an unknown share"
