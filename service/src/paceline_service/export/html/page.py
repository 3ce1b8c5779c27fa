"""The HTML report as a whole: one file, nothing loaded from elsewhere, nothing run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.counted import counted
from paceline_service.export import missing, words
from paceline_service.export.device_time import device_times, device_word
from paceline_service.export.html.charts import heat_rows, heatmap, step_times
from paceline_service.export.html.devices import device_section
from paceline_service.export.html.document import bullets, document, facts, footer, section
from paceline_service.export.html.expected import expected_section
from paceline_service.export.html.markup import Markup, h, join
from paceline_service.export.html.sawtooth import legend, sawtooth, words_of
from paceline_service.export.html.story import Story
from paceline_service.export.html.tables import (
    incident_table,
    node_table,
    rank_table,
    utc,
    what_if_table,
)
from paceline_service.export.telling import named_ranks
from paceline_service.export.units import (
    format_confidence,
    format_gpu_s,
    format_ratio,
    format_times,
)

Json = Mapping[str, Any]
MOST_FINDINGS = 24
_NONE = "\u2013"
_LABELS = {
    "straggler": ("Straggler", "bad"), "communication": ("Slow communication", "bad"),
    "communication_bound": ("Communication-bound", "note"), "imbalance": ("Imbalance", "note"),
    "stage_imbalance": ("Stage imbalance", "note"),
    "uniform_slowdown": ("Uniform slowdown", "bad"), "hang": ("Hang", "bad"),
    "desync": ("Desync", "bad"), "healthy": ("Healthy", "good"),
    "insufficient_evidence": ("Not enough evidence", "none"),
}  # fmt: skip


def html_report(report: Json, story: Story | None = None) -> str:
    """Return a ``paceline.report/1`` object, and what is known beside it, as an HTML document."""
    story = story or Story()
    main = words.main_finding(report)
    first_step = main.get("first_step") if main is not None else None
    parts = [
        _top(report, story),
        _verdict(report, main),
        _facts(report),
        *_scenes(story, first_step),
        _history(report, story),
        _waits(report, story, first_step),
        _devices(report),
        _findings(report, main),
        expected_section(report),
        _what_if(report, story),
        section("Incidents", incident_table(story.incidents, report)),
        section("Nodes", node_table(report, story.nodes), long=True),
        section("Ranks", rank_table(report, story.nodes), long=True),
        _data(report, story),
        footer(story.made_wall_ns, story.asked, story.url),
    ]
    return document(f"{_name(report)}: {words.headline(report)}", parts)


def _name(report: Json) -> str:
    return str((report.get("job") or {}).get("name") or "Paceline report")


def _top(report: Json, story: Story) -> Markup:
    job: Json = report.get("job") or {}
    parts = [h("b", _name(report))]
    if job.get("attempt") is not None:
        parts.append(h("span", f"attempt {job['attempt']}"))
    if job.get("state"):
        parts.append(h("span", job["state"]))
    sources: Sequence[Json] = (report.get("data") or {}).get("sources") or ()
    if sources:
        parts.append(h("span", ", ".join(str(source.get("format")) for source in sources)))
    nodes = len(set(story.nodes.values()))
    on = f" on {nodes:,} nodes" if nodes > 1 else ""
    parts.append(h("span", f"{counted(job.get('world_size') or 0, 'rank')}{on}"))
    first, last = story.detail.get("first_seen_wall_ns"), story.detail.get("last_seen_wall_ns")
    if first and last:
        began, ended = utc(first), utc(last)
        parts.append(h("span", began if began == ended else f"{began} to {ended}"))
    return h("div", *parts, class_="top")


def _verdict(report: Json, main: Json | None) -> Markup:
    kind = str(report.get("verdict"))
    label, tone = _LABELS.get(kind, (words.clean(kind), "note"))
    badge = h("span", label, class_="label")
    if main is None:
        notes = _notes(report)
        if kind == "insufficient_evidence":
            notes = notes or missing.what_is_missing(report)
        body = [h("h1", words.headline(report)), bullets(notes)]
        if kind == "insufficient_evidence":
            body += [h("h2", "What to do", class_="minor"), bullets(missing.what_to_do(report))]
    else:
        body = [h("h1", words.statement(main, report)), *_finding(main, report, "h2")]
    return h("header", badge, *body, class_=f"card tone-{tone}")


def _finding(finding: Json, report: Json, heading: str) -> list[Markup]:
    """Return what a finding costs, why it is one, and what to do, under such headings."""
    cost = words.costs(finding, report)
    sentences = [cost[0].upper() + cost[1:] + "." if cost else "", words.gain(finding)]
    sentences += [words.against_peers(finding), words.because(finding)]
    parts = [h("p", " ".join(sentence for sentence in sentences if sentence))]
    evidence = [str(one) for one in finding.get("evidence") or ()]
    if finding.get("confidence") is not None:
        evidence.append(f"Confidence: {format_confidence(finding['confidence'])}.")
    if evidence:
        parts += [h(heading, "Why", class_="minor"), bullets(evidence)]
    if finding.get("action"):
        parts += [h(heading, "What to do next", class_="minor"), h("pre", finding["action"])]
    return parts


def _facts(report: Json) -> Markup:
    job: Json = report.get("job") or {}
    data: Json = report.get("data") or {}
    complete = "complete" if data.get("complete") else "incomplete"
    stands = report.get("verdict") in ("hang", "desync")  # its own cost is told above
    items = [
        ("slowdown", _told(report.get("slowdown"), format_times), "of what steps could take"),
        ("waiting", _told(report.get("idle_ratio"), format_ratio), "of all ranks' time"),
        ("wasted", _told(report.get("wasted_gpu_s"), format_gpu_s),
         "in the steps before" if stands else "ranks stood still"),
        ("gamma", _told(report.get("gamma"), "{:.2f}".format), "communication over own work"),
        ("steps", f"{job.get('steps') or 0:,}", counted(job.get("collectives") or 0, "collective")),
        ("ranks seen", f"{job.get('ranks_observed') or 0:,}",
         f"of {job.get('world_size') or 0:,}; data {complete}"),
    ]  # fmt: skip
    return facts(items)


def _told(value: Any, say: Any) -> str:
    return _NONE if value is None else str(say(value))


def _scenes(story: Story, first_step: int | None) -> list[Markup]:
    parts = []
    for scene in story.scenes:
        if not len(scene.table) or not scene.lanes:
            continue
        told = words_of(scene)
        parts.append(
            h(
                "section", h("h2", scene.title),
                h("div", sawtooth(scene, first_step), class_="scroll"),
                legend(scene), h("p", told[0].upper() + told[1:], class_="quiet"),
            )
        )  # fmt: skip
    return parts


def _history(report: Json, story: Story) -> Markup | None:
    table = story.history
    if table is None or len(table) < 2:
        return None
    marks = [
        (finding["first_step"], f"{finding['kind'].replace('_', ' ')} begins")
        for finding in (report.get("findings") or ())[:3]
        if finding.get("first_step")
    ]
    drawn = h("div", step_times(table, marks), class_="scroll")
    told = "The line is the median, the band reaches from the shortest to the longest step."
    return h("section", h("h2", "Step time"), drawn, h("p", told, class_="quiet"))


def _waits(report: Json, story: Story, first_step: int | None) -> Markup | None:
    table = story.waits
    if table is None or len(table) < 2:
        return None
    rows = heat_rows(int(report["job"]["world_size"]), story.nodes)
    drawn, top = heatmap(table, rows, named_ranks(report.get("findings") or ()), first_step)
    told = (
        f"{rows.what[0].upper()}{rows.what[1:]}. The strongest colour is {format_ratio(top)} of a "
        "step. Who is slow is the row that does not wait."
    )
    return h(
        "section", h("h2", "Who waits"), h("div", drawn, class_="scroll"),
        h("p", told, class_="quiet"),
    )  # fmt: skip


def _devices(report: Json) -> Markup | None:
    named = named_ranks(report.get("findings") or ())
    times = device_times(report)
    drawn = device_section(times, named)
    head = h("h2", f"What the {device_word(times)} did")
    return h("section", head, drawn, class_="long") if drawn else None


def _findings(report: Json, main: Json | None) -> Markup | None:
    others = [one for one in report.get("findings") or () if one is not main]
    if not others:
        return None
    parts = [h("h2", "Further findings")]
    for finding in others[:MOST_FINDINGS]:
        parts += [h("h3", words.statement(finding, report)), *_finding(finding, report, "h4")]
    if len(others) > MOST_FINDINGS:
        parts.append(h("p", f"{len(others) - MOST_FINDINGS} more; the JSON report has all."))
    return h("section", *parts, class_="long")


def _what_if(report: Json, story: Story) -> Markup | None:
    world_size = int((report.get("job") or {}).get("world_size") or 0)
    parts: list[Markup] = []
    if story.what_if is not None and (table := what_if_table(story.what_if, world_size)):
        parts.append(table)
    if told := words.replayed(report):
        parts.append(h("p", told, class_="quiet"))
    return section("What leaving them out gives back", join(parts) if parts else None)


def _data(report: Json, story: Story) -> Markup:
    data: Json = report.get("data") or {}
    items = ["The data are complete." if data.get("complete") else "The data are incomplete."]
    dropped: Json = data.get("dropped") or {}
    items += [
        f"Dropped ({reason}): {count:,}." for reason, count in sorted(dropped.items()) if count
    ]
    # A healthy answer has told its notes at the top.
    if report.get("verdict") not in ("healthy", "insufficient_evidence"):
        items += _notes(report)
    if story.detail.get("run_id"):
        items.append(f"run {story.detail['run_id']}")
    return h("section", h("h2", "What this stands on"), bullets(items))


def _notes(report: Json) -> list[str]:
    return [str(note) for note in (report.get("data") or {}).get("notes") or ()]
