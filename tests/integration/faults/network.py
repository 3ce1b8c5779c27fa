"""Two hosts and a cable between them: network namespaces, veth, and what tc can do to a link."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.collector.kit import CollectorProcess

_numbers = itertools.count()


class Cable:
    """Hosts ``a`` (the collector's) and ``b`` (the node's), connected.

    Skips the test where the system does not allow that or has no ``ip`` and ``tc``.
    """

    def __init__(self) -> None:
        number = next(_numbers)
        stem = f"pl{os.getpid() % 100_000}{number}"
        self.a, self.b = f"{stem}a", f"{stem}b"
        self.address = "10.213.7.1"
        for tool in ("ip", "tc"):
            if shutil.which(tool) is None:
                pytest.skip(f"{tool} is missing: apt-get install iproute2")
        made = self._try("ip", "netns", "add", self.a)
        if made:
            pytest.skip(f"network namespaces are not allowed here (run as root): {made}")
        try:
            self._run("ip", "netns", "add", self.b)
            ends = (("a", self.a, self.address), ("b", self.b, "10.213.7.2"))
            self._run(
                "ip", "-n", self.a, "link", "add", "cable", "type", "veth",
                "peer", "name", "cable", "netns", self.b,
            )  # fmt: skip
            for _, name, address in ends:
                self._run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "cable")
                self._run("ip", "-n", name, "link", "set", "lo", "up")
                self._run("ip", "-n", name, "link", "set", "cable", "up")
        except subprocess.CalledProcessError as error:
            self.close()
            pytest.skip(f"two hosts cannot be connected here: {error.stderr}")

    def cut(self) -> None:
        """Pull the plug: packets are lost, nobody is told."""
        self._run("ip", "-n", self.b, "link", "set", "cable", "down")

    def mend(self) -> None:
        """Put the plug in again."""
        self._run("ip", "-n", self.b, "link", "set", "cable", "up")

    def slow(self, rate: str) -> None:
        """Let both directions carry ``rate`` ("256kbit") at most."""
        shape = ("tbf", "rate", rate, "burst", "8kb", "latency", "400ms")
        for name in (self.a, self.b):
            failed = self._try("tc", "-n", name, "qdisc", "replace", "dev", "cable", "root", *shape)
            if failed:
                pytest.skip(f"this kernel's tc has no tbf: {failed}")

    def lossy(self, delay_ms: int, loss_percent: float) -> None:
        """Delay packets and lose some of them; without netem, those that a tiny queue loses."""
        netem = ("netem", "delay", f"{delay_ms}ms", "loss", f"{loss_percent}%")
        full = ("tbf", "rate", "1mbit", "burst", "3kb", "latency", "8ms")
        for name in (self.a, self.b):
            change = ("tc", "-n", name, "qdisc", "replace", "dev", "cable", "root")
            if self._try(*change, *netem) and (failed := self._try(*change, *full)):
                pytest.skip(f"this kernel's tc has neither netem nor tbf: {failed}")

    def lost_packets(self) -> int:
        """Return how many packets the link lost."""
        lost = 0
        for name in (self.a, self.b):
            told = subprocess.run(
                ("tc", "-n", name, "-s", "-j", "qdisc", "show", "dev", "cable"),
                capture_output=True, text=True, timeout=20, check=True,
            ).stdout  # fmt: skip
            lost += sum(one.get("drops", 0) for one in json.loads(told))
        return lost

    def fast(self) -> None:
        """Take away what ``slow`` and ``lossy`` did."""
        for name in (self.a, self.b):
            self._try("tc", "-n", name, "qdisc", "del", "dev", "cable", "root")

    def close(self) -> None:
        """Remove both hosts."""
        for name in (self.a, self.b):
            self._try("ip", "netns", "del", name)

    def sidecar(self, runtime_dir: Path, url: str, log: Path, token: str) -> subprocess.Popen[str]:
        """Start a sidecar on host ``b``."""
        command = [
            "ip", "netns", "exec", self.b, sys.executable, "-m", "paceline.sidecar",
            "--runtime-dir", str(runtime_dir), "--interval-s", "0.05", "--url", url,
        ]  # fmt: skip
        with log.open("a") as file:
            return subprocess.Popen(
                command, stderr=file, text=True, env={**os.environ, "PACELINE_TOKEN": token}
            )

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)

    @staticmethod
    def _try(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        return done.stderr.strip() or str(done.returncode) if done.returncode else ""


class RemoteCollector(CollectorProcess):
    """A collector on host ``a`` of a cable."""

    def __init__(self, directory: Path, cable: Cable, **environment: str) -> None:
        super().__init__(directory, **environment)
        self._cable = cable

    def command(self, *arguments: str) -> list[str]:
        """Return the command line."""
        inner = super().command("--host", self._cable.address, *arguments)
        return ["ip", "netns", "exec", self._cable.a, *inner]
