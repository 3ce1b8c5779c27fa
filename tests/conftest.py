from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SERIAL_MARKERS = ("integration", "e2e")
PATIENT = ("collector", "faults", "scaleout", "store")
"""Directories of integration tests that wait for what happens and measure no time."""
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and every process of a test would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that start processes last and on one xdist worker: they measure time."""
    for item in items:
        directory, below = item.path.relative_to(ROOT / "tests").parts[:2]
        if directory in SERIAL_MARKERS:
            item.add_marker(directory)
        if directory == "integration" and below in PATIENT:
            # One file shares its servers.
            item.add_marker(pytest.mark.xdist_group(f"{below}/{item.path.stem}"))
        elif any(item.get_closest_marker(marker) for marker in SERIAL_MARKERS):
            item.add_marker(pytest.mark.xdist_group("serial"))
    items.sort(key=_is_serial)


def _is_serial(item: pytest.Item) -> bool:
    group = item.get_closest_marker("xdist_group")
    return group is not None and group.args[0] == "serial"


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
