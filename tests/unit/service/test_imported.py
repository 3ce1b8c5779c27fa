from __future__ import annotations

import json
from typing import Any

import numpy as np

from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.records import Group
from paceline_service.jobs.imported import (
    INFO_KEY,
    MAX_TEXT_BYTES,
    Imported,
    Told,
    apply,
    as_info,
    begin,
    imported_of,
    take,
    told_of,
)

Report = dict[str, Any]


def report(**changes: Any) -> Report:
    finding = {
        "kind": "straggler", "ranks": [3], "cause": "unknown", "evidence": ["one"],
        "slowdown": 1.2, "recoverable_ratio": 0.1, "wasted_gpu_s": 4.0, "confidence": 0.99,
    }  # fmt: skip
    return {
        "verdict": "straggler", "slowdown": 1.1, "idle_ratio": 0.1, "gamma": 0.3,
        "wasted_gpu_s": 4.0, "wasted_gpu_s_by_cause": {"unknown": 4.0}, "findings": [finding],
        "data": {"complete": True, "dropped": {}, "notes": ["a"]}, "what_if": {"s": 1.1},
    } | changes  # fmt: skip


def test_a_report_becomes_that_on_the_files() -> None:
    alone, files = report(), report(gamma=None)
    files["findings"][0] |= {"cause": "host", "evidence": ["one", "two"], "slowdown": None}
    files["wasted_gpu_s_by_cause"] = {"host": 4.0}
    files["data"] = {**files["data"], "notes": ["a", "b"], "trace": {"ranks": [1]}, "sources": []}
    del files["what_if"]
    alone["findings"].append(alone["findings"][0] | {"kind": "communication_bound", "ranks": []})
    brought = imported_of(as_info(Imported(told=told_of(alone, files))))
    assert brought is not None
    assert brought.told is not None
    apply(brought.told, alone)
    del files["data"]["sources"]
    assert alone == files


def test_a_report_that_says_nothing_more_needs_nothing() -> None:
    assert as_info(Imported(told=told_of(report(), report()))) == as_info(Imported(told=Told()))
    assert as_info(Imported()) == {}


def test_what_is_out_of_bounds_is_not_believed() -> None:
    assert imported_of({}) is None
    for text in ("[", "[]", '{"told":3}', '{"noise_ns":{"x":1}}', "{" * 100_000):
        assert imported_of({INFO_KEY: text}) is None
    assert imported_of({INFO_KEY: '{"x":"' + "x" * MAX_TEXT_BYTES + '"}'}) is None
    far = imported_of({INFO_KEY: '{"settling_steps":-3,"noise_ns":{"0":-1,"1":5}}'})
    assert far is not None
    assert (far.settling_steps, far.noise_ns) == (0, {1: 5})
    told = {
        "verdict": "guilty", "figures": {"world_size": 3.0}, "data": {"complete": False},
        "findings": [{"kind": "straggler", "ranks": [3], "cause": "<script>",
                      "evidence": ["x" * 9000] * 900, "figures": {"ranks": 1.0}}],
    }  # fmt: skip
    brought = imported_of({INFO_KEY: json.dumps({"told": told})[:MAX_TEXT_BYTES]})
    assert brought is None  # cut short, it is no JSON
    told["findings"][0]["evidence"] = ["x" * 9000] * 3  # type: ignore[index]
    brought = imported_of({INFO_KEY: json.dumps({"told": told})})
    assert brought is not None
    assert brought.told is not None
    changed = report()
    apply(brought.told, changed)
    assert [len(text) for text in changed["findings"][0].pop("evidence")] == [1000] * 3
    untouched = report()
    del untouched["findings"][0]["evidence"]
    assert changed == untouched


def test_tables_that_are_too_large_are_left_out_before_sentences() -> None:
    told = Told(notes=["kept"], data={"trace": ["x" * 1000] * 1000})
    brought = imported_of(as_info(Imported(told=told)))
    assert brought is not None
    assert brought.told is not None
    assert (brought.told.notes, brought.told.data) == (["kept"], {})


def test_settling_and_noise_reach_the_analysis_before_its_first_step() -> None:
    analysis = JobAnalysis(2)
    begin(as_info(Imported(settling_steps=0)), analysis)
    assert analysis.options.settling_steps == 0
    analysis.declare_rank(0)
    begin(as_info(Imported(settling_steps=3)), analysis)
    assert analysis.options.settling_steps == 0  # it is too late
    analysis.declare_group(Group(name="g", ranks=(0, 1)))
    groups = np.array([-1, 0], dtype=np.int64)
    assert take(as_info(Imported(noise_ns={0: 1, 1: 7_000, 9: 1})), groups, analysis) == ""
    told = as_info(Imported(told=Told(notes=["n"])))
    assert take(told, groups, analysis) == told[INFO_KEY]
