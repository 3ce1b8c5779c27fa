from __future__ import annotations

import importlib

from paceline.hooks.agent import _leave_us_alone


def test_the_compiler_is_told_of_each_module_once_however_often_a_job_is_instrumented() -> None:
    rules = importlib.import_module("torch._dynamo.trace_rules")
    _leave_us_alone(rules)
    known = list(rules.SKIP_DIRS)
    _leave_us_alone(rules)
    assert known == rules.SKIP_DIRS
    assert any("paceline" in path for path in known)
