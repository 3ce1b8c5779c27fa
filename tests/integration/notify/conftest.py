from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.collector.kit import CollectorProcess
from tests.integration.notify.kit import SECRET, Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything until it is told otherwise."""
    made = Receiver().start()
    yield made
    made.stop()


AT_ONCE = {
    "PACELINE_SERVE_NOTIFY_AFTER_S": "0",
    "PACELINE_SERVE_NOTIFY_LOOK_S": "0.2",
    "PACELINE_SERVE_NOTIFY_RATE_PER_MINUTE": "6000",
}


def with_webhook(directory: Path, receiver: Receiver, **environment: str) -> CollectorProcess:
    """Return a collector, not started yet, that sends webhooks at once."""
    given = {
        "PACELINE_SERVE_NOTIFY_WEBHOOK_URL": f"{receiver.url}/hook/path-secret",
        "PACELINE_SERVE_NOTIFY_WEBHOOK_SECRET": SECRET,
        **AT_ONCE,
        **environment,
    }
    return CollectorProcess(directory, **given)
