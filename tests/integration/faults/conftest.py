from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.collector.kit import CollectorProcess
from tests.integration.sidecar_kit import Processes


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[CollectorProcess]:
    """A collector of this test alone."""
    process = CollectorProcess(tmp_path / "state").start()
    yield process
    process.stop()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Writers and sidecars; none is left behind."""
    started = Processes(tmp_path)
    yield started
    started.stop()
