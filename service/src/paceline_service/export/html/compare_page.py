"""The comparison of two runs as one HTML file, of the same kind as a report."""

from __future__ import annotations

from paceline.counted import counted
from paceline_service.export import compare_words
from paceline_service.export.html.document import bullets, document, facts, footer, section
from paceline_service.export.html.markup import Markup, h, join
from paceline_service.export.html.run_charts import (
    MOST_RANKS,
    compared_ranks,
    legend,
    part_table,
    step_time_lines,
)
from paceline_service.export.step_table import StepTable
from paceline_service.export.units import format_gpu_s, format_ratio, precise_ns
from paceline_service.export.words import Json, clean

_LABELS = {
    "slower": ("Slower", "bad"), "faster": ("Faster", "good"),
    "no_difference": ("No difference", "good"),
    "insufficient_evidence": ("Not enough evidence", "none"),
}  # fmt: skip
_NONE = "\u2013"


def compare_page(
    answer: Json,
    before: StepTable | None,
    after: StepTable | None,
    asked: str,
    made_wall_ns: int,
) -> str:
    """Return a ``paceline.compare/1`` object as an HTML document.

    Args:
        answer: the object.
        before: step times of the one run.
        after: of the other.
        asked: the command that makes the file again.
        made_wall_ns: when it was made.
    """
    parts = [
        _top(answer),
        _verdict(answer),
        _facts(answer),
        _times(before, after),
        section("A mean step of all ranks", part_table(answer)),
        *_findings(answer),
        _ranks(answer),
        section("What this stands on", bullets(_data(answer))),
        footer(made_wall_ns, asked),
    ]
    return document(f"Paceline compare: {compare_words.headline(answer)}", parts)


def _top(answer: Json) -> Markup:
    names = [h("b", "Paceline compare")]
    names += [h("span", f"{side}: {clean(answer[side]['name'])}") for side in ("before", "after")]
    return h("div", *names, class_="top")


def _verdict(answer: Json) -> Markup:
    label, tone = _LABELS[answer["verdict"]]
    told = [compare_words.certainty(answer), compare_words.where(answer)]
    body = [h("h1", compare_words.headline(answer)), h("p", " ".join(told).strip())]
    who = compare_words.who(answer)
    if who:
        body += [h("h2", "Who changed", class_="minor"), bullets(who)]
    return h("header", h("span", label, class_="label"), *body, class_=f"card tone-{tone}")


def _facts(answer: Json) -> Markup:
    step, one, two = answer["step"], answer["before"], answer["after"]
    ratio = compare_words.signed_ratio(step["change_ratio"])
    smallest = step["smallest_ratio"]
    return facts(
        [
            ("step before", precise_ns(step["before_ns"]), counted(one["steps_compared"], "step")),
            ("step after", precise_ns(step["after_ns"]), counted(two["steps_compared"], "step")),
            ("change", ratio, "of the step time"),
            ("would have shown", format_ratio(smallest) if smallest is not None else _NONE,
             "or more"),
            ("waiting", f"{_ratio(one)} \u2192 {_ratio(two)}", "of all ranks' time"),
            ("wasted", f"{_wasted(one)} \u2192 {_wasted(two)}", "ranks stood still"),
        ]
    )  # fmt: skip


def _ratio(side: Json) -> str:
    return format_ratio(side["idle_ratio"]) if side["idle_ratio"] is not None else _NONE


def _wasted(side: Json) -> str:
    return format_gpu_s(side["wasted_gpu_s"]) if side["wasted_gpu_s"] is not None else _NONE


def _times(before: StepTable | None, after: StepTable | None) -> Markup | None:
    if before is None or after is None or min(len(before), len(after)) < 2:
        return None
    drawn = h("div", step_time_lines(before, after), class_="scroll")
    return h("section", h("h2", "Step time"), drawn, legend())


def _findings(answer: Json) -> list[Markup | None]:
    titles = (("came", "Findings that came"), ("went", "Findings that went"),
              ("stayed", "Findings that stayed"))  # fmt: skip
    sections = []
    for key, title in titles:
        lines = compare_words.finding_lines(answer, key)
        sections.append(section(title, bullets(lines)) if lines else None)
    return sections


def _ranks(answer: Json) -> Markup | None:
    table = compared_ranks(answer)
    if table is None:
        return None
    count = len(answer["ranks"])
    parts = [h("p", "Own work a step; waiting for others is not in it.", class_="quiet"), table]
    if count > MOST_RANKS:
        told = f"{MOST_RANKS} of {count:,} ranks, those that changed most."
        parts.append(h("p", told, class_="quiet"))
    return section("Ranks", join(parts), long=True)


def _data(answer: Json) -> list[str]:
    items = []
    for side in ("before", "after"):
        told = answer[side]
        job = told["job"]
        items.append(
            f"{side}: {told['name']} ({told['format']}), {counted(job['steps'], 'step')}, "
            f"{job['ranks_observed']:,} of {counted(job['world_size'], 'rank')}; alone it is "
            f"{told['verdict'].replace('_', ' ')}"
        )
    items.append(
        f"Of two runs that do not differ {format_ratio(answer['false_rate'])} are said to; what is "
        f"under {format_ratio(answer['tolerance_ratio'])} does not count"
    )
    return [*items, *answer["notes"]]
