from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROCESS_MARKERS = ("integration", "e2e")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and every process of a test would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that start processes."""
    directory = item.path.relative_to(ROOT / "tests").parts[0]
    if directory in PROCESS_MARKERS:
        item.add_marker(directory)


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
