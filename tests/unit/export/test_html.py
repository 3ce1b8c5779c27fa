"""The HTML report: one file that needs nothing, escapes everything, and stays small."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from paceline_service.export.html import Story, html_report
from paceline_service.export.html.story import Scene
from paceline_service.export.step_table import StepTable
from paceline_service.export.telling import all_lanes, telling_lanes
from tests.unit.export.reports import finding, healthy, report
from tests.unit.top.moments import nodes, table

EVIL = "</title></style><script>alert(1)</script><img src=x onerror=alert(2)>'\"&\x1b[2J\u202e"
MOST_BYTES = 500_000


class Reader(HTMLParser):
    """Collects elements, and checks that each that is opened is closed in its turn."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.said)


def story(ranks: int, steps: int = 60, **values: Any) -> Story:
    held = table(ranks, steps=steps, slow=(2,))
    names = {int(rank): node for rank, node in nodes(ranks).items()}
    lanes = all_lanes(ranks, names, {2: "slow"})
    if ranks > 12:
        lanes = telling_lanes(held.mean_self_ns(), names, {2: "slow"}, 12)
    scene = Scene(title="The newest steps", lanes=tuple(lanes), table=with_phases(held, 16))
    told: dict[str, Any] = {
        "made_wall_ns": 1_767_225_600_000_000_000, "url": "http://127.0.0.1:8750/#/jobs/llm",
        "detail": {"nodes": nodes(ranks), "run_id": "4711"}, "scenes": (scene, scene),
        "history": held, "waits": held, "asked": "paceline report llm --format html",
        "what_if": {"candidates": [
            {"without": "rank:2", "recoverable_ns": 5, "recoverable_ratio": 0.12}]},
    }  # fmt: skip
    return Story(**(told | values))


def with_phases(held: StepTable, steps: int) -> StepTable:
    held = held.take(slice(-steps, None))
    parts = np.stack([held.self_ns * share for share in (0.1, 0.3, 0.6)], axis=2)
    return StepTable(
        ranks=held.ranks, steps=held.steps, duration_ns=held.duration_ns,
        slowest_rank=held.slowest_rank, self_ns=held.self_ns, wait_ns=held.wait_ns,
        comm_ns=held.comm_ns, phases=("input", "forward", "backward"), phase_ns=parts,
        start_wall_ns=held.start_wall_ns,
    )  # fmt: skip


def test_the_page_says_the_verdict_its_evidence_its_cost_and_the_next_command() -> None:
    told = Reader(html_report(report(), story(4))).text
    assert "Rank 2 on node-a is slow in backward since step 210" in told
    assert "rank 2 arrived last in 289 of 290 steps".capitalize() in told
    assert "cost 91.7 GPU-s" in told
    assert "scontrol update nodename=node-a state=drain" in told
    assert "without rank 2" in told
    assert "12 % shorter" in told
    assert "11.5 GPU-h" in told  # 0.12 of the 96 GPU-hours that four ranks have a day


def test_it_stands_alone_and_its_policy_allows_its_own_style_and_nothing_else() -> None:
    document = html_report(report(), story(64))
    reader = Reader(document)
    names = {tag for tag, _ in reader.elements}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    for tag, attributes in reader.elements:
        assert not {name for name in attributes if name.startswith("on")}
        assert "style" not in attributes
        assert not {"src", "srcset", "xlink:href"} & set(attributes)
        assert "href" not in attributes or tag == "a"
    policy = next(a["content"] for _, a in reader.elements if "http-equiv" in a)
    style = re.search(r"<style>(.*?)</style>", document, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def evil(value: Any) -> Any:
    """Return a report whose every text is hostile."""
    if isinstance(value, dict):
        return {key: evil(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [evil(inner) for inner in value]
    return EVIL if isinstance(value, str) else value


@pytest.mark.parametrize("verdict", ["straggler", EVIL, "insufficient_evidence"])
def test_whatever_comes_from_outside_is_text_and_never_markup(verdict: str) -> None:
    hostile = evil(report()) | {"verdict": verdict}
    hostile["job"] |= {"name": EVIL, "state": EVIL, "attempt": EVIL}
    hostile["data"]["dropped"] = {EVIL: 3}
    hostile["data"]["notes"] = [EVIL]
    hostile["findings"].append(evil(finding(ranks=[1])))
    incident = hostile["findings"][0] | {
        "id": EVIL, "opened_wall_ns": 1, "closed_wall_ns": 2, "closed_reason": EVIL,
        "acknowledged": {"by": EVIL, "note": EVIL},
    }  # fmt: skip
    detail = {"nodes": {str(rank): EVIL + str(rank) for rank in range(4)}, "run_id": EVIL}
    candidates = {"candidates": [{"without": f"node:{EVIL}", "recoverable_ratio": 0.5}]}
    lanes = all_lanes(4, dict.fromkeys(range(4), EVIL), {2: EVIL})
    scene = Scene(title=EVIL, lanes=tuple(lanes), table=table(4))
    document = html_report(
        hostile,
        story(4, detail=detail, incidents=[incident], what_if=candidates, asked=EVIL,
              scenes=(scene,), url=f"https://x/{EVIL}"),
    )  # fmt: skip
    clean = html_report(report(), story(4))
    names = {tag for tag, _ in Reader(document).elements}
    assert names <= {tag for tag, _ in Reader(clean).elements} | {"br", "ul", "li", "h3", "h4"}
    assert "<script" not in document
    assert "\x1b" not in document
    assert "\u202e" not in document


def test_an_address_that_is_none_becomes_no_link() -> None:
    document = html_report(report(), story(4, url="javascript:alert(1)"))
    assert "javascript:" not in document
    assert 'href="http://127' in html_report(report(), story(4))


@pytest.mark.parametrize("ranks", [64, 1024, 8192])
def test_its_size_is_bounded_whatever_the_size_of_the_job(ranks: int) -> None:
    many = [
        finding(ranks=[rank], evidence=["x" * 5000] * 50, action="y" * 100_000)
        for rank in range(100)
    ]
    told = report(ranks=ranks, findings=many)
    told["data"]["notes"] = ["n" * 5000] * 500
    incidents = [
        many[0] | {"id": n, "opened_wall_ns": 1, "closed_wall_ns": None, "acknowledged": None}
        for n in range(500)
    ]
    document = html_report(told, story(ranks, steps=200, incidents=incidents))
    assert len(document.encode()) < 1_500_000
    plain = html_report(report(ranks=ranks), story(ranks, steps=200))
    assert len(plain.encode()) < MOST_BYTES
    assert f"{ranks:,}" in plain


def test_of_many_ranks_the_named_and_the_costliest_are_shown() -> None:
    told = report(ranks=1024)
    told["ranks"][700]["blamed_wait_ns"] = 10**12
    rows = re.findall(r"<tr[^>]*><td class=\"number\">([\d,]+)</td>", html_report(told))
    assert rows[:2] == ["2", "700"]
    assert len(rows) == 32


def test_a_report_without_a_collector_is_a_page_too() -> None:
    for told in (report(), healthy(), report(verdict="insufficient_evidence", findings=[])):
        reader = Reader(html_report(told))
        assert [tag for tag, _ in reader.elements].count("h1") == 1


def test_a_hang_without_steps_and_ranks_is_a_page_too() -> None:
    hang = finding(
        kind="hang", recoverable_ratio=None, wasted_gpu_s=None, slowdown=None, first_step=None,
        last_step=None, confidence=None, action=None, evidence=[],
        collective={"group": "dp0", "op": "all_reduce", "seq": 3},
    )  # fmt: skip
    told = report(
        verdict="hang", findings=[hang], ranks=0, slowdown=None, idle_ratio=None, gamma=None,
        wasted_gpu_s=None,
    )  # fmt: skip
    assert "never entered all_reduce number 3 of group dp0" in Reader(html_report(told)).text


def test_the_drawing_says_in_words_what_it_shows() -> None:
    reader = Reader(html_report(report(), story(4)))
    labels = [a["aria-label"] or "" for tag, a in reader.elements if a.get("role") == "img"]
    drawn = [label for label in labels if label.startswith("Sawtooth of steps 44 to 59")]
    assert len(drawn) == 2
    assert "rank 2 waits" in drawn[0]
    assert any(label.startswith("Waiting of steps 0 to 59, a row per rank") for label in labels)


def test_the_slow_rank_is_drawn_without_floor_and_the_others_with_one() -> None:
    document = html_report(report(), story(4))
    groups = re.findall(r"<g><title>(rank \d)[^<]*</title>(.*?)</g>", document)[:4]
    floors = {name: 'class="wait"' in drawn for name, drawn in groups}
    assert floors == {"rank 0": True, "rank 1": True, "rank 2": False, "rank 3": True}


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_few_steps_and_unknown_times_are_drawn_as_far_as_they_go(steps: int, known: bool) -> None:
    held = table(4, steps=40, slow=(2,)).take(slice(0, steps))
    if not known:
        for values in (held.self_ns, held.wait_ns, held.comm_ns, held.duration_ns):
            values[:] = float("nan")
    lanes = tuple(all_lanes(4, {}, {}))
    scene = Scene(title="Steps", lanes=lanes, table=held)
    document = html_report(
        report(ranks=4), story(4, scenes=(scene,), history=held, waits=held, detail={})
    )
    assert "nan" not in " ".join(re.findall(r' d="([^"]*)"', document))
    Reader(document)


def test_a_job_of_one_rank_is_a_page_too() -> None:
    held = table(1)
    lanes = tuple(all_lanes(1, {}, {}))
    scene = Scene(title="Steps", lanes=lanes, table=held)
    told = report(ranks=1, verdict="insufficient_evidence", findings=[])
    document = html_report(told, story(4, scenes=(scene,), history=held, waits=held, detail={}))
    assert "A job of one rank has nobody to wait for" in Reader(document).text
