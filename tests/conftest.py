from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROCESS_MARKERS = ("integration", "e2e")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and every process of a test would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")

LONG = (
    "e2e/test_",
    "integration/scaleout/",
    "integration/hooks/",
    "integration/collector/",
    "plugin/",
)
"""Begun first: what is long must not be what one worker still does when the others are done."""
TOGETHER = ("integration/scaleout/", "integration/dashboards/")
"""Their files share servers that take long to start: one worker runs them all."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that start processes."""
    directory = item.path.relative_to(ROOT / "tests").parts[0]
    if directory in PROCESS_MARKERS:
        item.add_marker(directory)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first; within a file, and among the others, nothing changes."""
    items.sort(key=lambda item: not _path(item.nodeid).startswith(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one worker (``--dist loadfile``), in this order; some files together."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = _path(nodeid)
            return next((one for one in TOGETHER if path.startswith(one)), path)

    config.option.loadscopereorder = False  # by how many tests they have, not how long they are
    return Files(config, log)


def _path(nodeid: str) -> str:
    return nodeid.split("::", 1)[0].removeprefix("tests/")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's environment out of the tests."""
    for name in list(os.environ):
        if name.startswith("PACELINE_") or name in LAUNCHER_VARIABLES:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _log_of_this_test() -> Iterator[None]:
    """Leave no log behind that writes to the captured output of a test that is over."""
    yield
    if "structlog" in sys.modules:
        sys.modules["structlog"].reset_defaults()


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the repository."""
    return ROOT
