from __future__ import annotations

import importlib
import sys
from pathlib import Path

import paceline.forward
from paceline.hooks.agent import _leave_us_alone


def test_the_compiler_is_told_of_each_package_once_however_often_a_job_is_instrumented() -> None:
    rules = importlib.import_module("torch._dynamo.trace_rules")
    _leave_us_alone(rules)
    known = list(rules.SKIP_DIRS)
    _leave_us_alone(rules)
    assert known == rules.SKIP_DIRS
    # Each makes a list and an expression longer, and Python keeps every such expression.
    assert sum("paceline" in path for path in known) <= 3


def test_the_compiler_skips_every_module_of_the_hooks_and_none_that_it_must_trace_through() -> None:
    rules = importlib.import_module("torch._dynamo.trace_rules")
    _leave_us_alone(rules)
    hooks = Path(sys.modules[_leave_us_alone.__module__].__file__ or "").parent
    for path in (*hooks.glob("*.py"), *hooks.glob("native/*.py")):
        assert rules.check_file(str(path)).skipped, path
    assert not rules.check_file(paceline.forward.__file__).skipped
