"""The comparison of two runs for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from paceline.counted import counted
from paceline_service.export import compare_words
from paceline_service.export.units import in_unit, time_unit
from paceline_service.export.words import Json, clean

WIDTH = 80
_MOST_RANKS = 8
_MOST_LINES = 8
_FINE = 10
"""The unit of a column is such that its largest number has two digits before the point."""


def compare_text(answer: Json) -> str:
    """Return a ``paceline.compare/1`` object as plain text that ends with a newline."""
    names = [clean(answer[side]["name"]) for side in ("before", "after")]
    lines = [f"Paceline compare: {names[0]} (before), {names[1]} (after)", ""]
    told = [compare_words.headline(answer) + ".", compare_words.certainty(answer)]
    lines += _paragraph(" ".join([*told, compare_words.where(answer)]).strip())
    lines += _section("Who changed", compare_words.who(answer))
    for key, title in (("came", "Findings that came"), ("went", "Findings that went"),
                       ("stayed", "Findings that stayed")):  # fmt: skip
        lines += _section(title, compare_words.finding_lines(answer, key))
    lines += _parts(answer) + _ranks(answer)
    return "\n".join([*lines, "", *_data(answer)]) + "\n"


def _parts(answer: Json) -> list[str]:
    rows: Sequence[Json] = answer["parts"]
    if not rows:
        return []
    name, unit_ns = time_unit(max(max(one["before_ns"], one["after_ns"]) for one in rows) // _FINE)
    lines = ["", f"A mean step of all ranks, {name}"]
    lines.append(f"  {'':<20}{'before':>10}{'after':>10}{'change':>10}")
    for one in rows:
        lines.append(
            f"  {compare_words.part_name(one, answer):<20}{in_unit(one['before_ns'], unit_ns):>10}"
            f"{in_unit(one['after_ns'], unit_ns):>10}{_signed(one['change_ns'], unit_ns):>10}"
            f"{'  *' if one['significant'] else ''}"
        )
    if any(one["significant"] for one in rows):
        lines.append("  * more than chance explains")
    return lines


def _ranks(answer: Json) -> list[str]:
    named = {*answer["slower_ranks"], *answer["faster_ranks"]}
    rows = sorted(answer["ranks"], key=lambda row: (row["rank"] not in named,
                                                    -abs(row["change_ratio"])))  # fmt: skip
    if not rows:
        return []
    shown = sorted(rows[:_MOST_RANKS], key=lambda row: int(row["rank"]))
    name, unit_ns = time_unit(max(max(row["before_ns"], row["after_ns"]) for row in shown) // _FINE)
    some = f" ({len(shown)} of {len(rows):,}, those that changed most)"
    lines = ["", f"Own work a step by rank, {name}{some if len(shown) < len(rows) else ''}"]
    lines.append(f"  {'rank':<20}{'before':>10}{'after':>10}{'change':>10}")
    for row in shown:
        lines.append(
            f"  {row['rank']:<20,}{in_unit(row['before_ns'], unit_ns):>10}"
            f"{in_unit(row['after_ns'], unit_ns):>10}"
            f"{compare_words.signed_ratio(row['change_ratio']):>10}"
            f"{'  ' + row['verdict'] if row['verdict'] else ''}"
        )
    return lines


def _data(answer: Json) -> list[str]:
    told = [
        f"{side}: {counted(answer[side]['steps_compared'], 'step')} compared, "
        f"{answer[side]['job']['ranks_observed']:,} of "
        f"{counted(answer[side]['job']['world_size'], 'rank')}, alone "
        f"{answer[side]['verdict'].replace('_', ' ')}"
        for side in ("before", "after")
    ]
    return _paragraph("Data: " + "; ".join(told) + ".") + _bullets(answer["notes"])


def _signed(time_ns: int, unit_ns: int) -> str:
    told = in_unit(abs(time_ns), unit_ns)
    if not told.strip("0.,"):
        return told
    return f"{'+' if time_ns > 0 else '-'}{told}"


def _section(title: str, items: Sequence[str]) -> list[str]:
    return ["", title, *_bullets(items)] if items else []


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def _bullets(items: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for item in items[:_MOST_LINES]:
        text = clean(item)
        text = text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
        lines += textwrap.wrap(
            text, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
        )
    if len(items) > _MOST_LINES:
        lines.append(f"  - {len(items) - _MOST_LINES} more; --format json has all.")
    return lines
