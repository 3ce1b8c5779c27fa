"""Real Prometheus and Alertmanager with the committed files, in seconds rather than minutes."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.integration.collector.kit import wait_until

DEPLOY = ROOT / "deploy"
SEVERITIES = ("page", "ticket", "info")
Json = dict[str, Any]


def program(*names: str, package: str) -> str:
    """Return the path of a program, or skip the test and say how to get it."""
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"{names[0]} is missing: apt-get install {package}")


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass(kw_only=True)
class Webhook:
    """What Alertmanager has sent, by receiver."""

    url: str = ""
    messages: list[tuple[str, Json]] = field(default_factory=list)

    def alerts(self, name: str, status: str = "firing") -> list[tuple[str, Json]]:
        """Return (receiver, alert) of every alert of that name and status that came."""
        return [
            (receiver, alert)
            for receiver, message in list(self.messages)
            for alert in message["alerts"]
            if alert["labels"]["alertname"] == name and alert["status"] == status
        ]


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Serve a receiver."""
    received = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.messages.append((self.path.strip("/"), json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    received.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True, kw_only=True)
class Server:
    """One of the two, and where it listens."""

    url: str

    def get(self, path: str) -> Any:
        """Return the JSON of an answer."""
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def post(self, path: str, body: Any) -> None:
        """Send JSON."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=10).close()


@contextmanager
def running(command: list[str], url: str, log: Path) -> Iterator[Server]:
    """Run a server until the block ends."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent)
    try:
        wait_until(lambda: process.poll() is not None or _is_ready(url), 30)
        assert process.poll() is None, log.read_text()
        yield Server(url=url)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def alertmanager(directory: Path, hook: Webhook) -> Iterator[Server]:
    """Run an Alertmanager with the committed configuration, which tells ``hook`` at once."""
    binary = program(
        "prometheus-alertmanager", "alertmanager", package="prometheus-alertmanager"
    )  # fmt: skip
    config = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text())
    config["route"].update(group_wait="1s", group_interval="1s")
    for route in config["route"]["routes"]:
        if "group_interval" in route:  # the watchdog, which is sent every minute
            assert route["repeat_interval"] == "50s"
            route.update(group_interval="1s", repeat_interval="900ms")
    for receiver in config["receivers"]:
        receiver["webhook_configs"] = [
            {"url": f"{hook.url}/{receiver['name']}", "send_resolved": True}
        ]
    config["templates"] = [str(DEPLOY / "alertmanager/templates/*.tmpl")]
    path = directory / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        binary,
        f"--config.file={path}",
        f"--storage.path={directory / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    url = f"http://127.0.0.1:{port}"
    with running(command, url, directory / "alertmanager.log") as server:
        yield server


def hurried(rules: str) -> str:
    """Return rules that wait for seconds, and take a twentieth of a GPU for eight."""
    rules = re.sub(r'for: "\d+m"', 'for: "1s"', rules)
    rules = rules.replace("[2m]", "[10s]").replace("[5m]", "[12s]")
    return re.sub(r"\) >= 8\b", ") >= 0.02", re.sub(r"\) >= 1\b", ") >= 0.01", rules))


@contextmanager
def prometheus(directory: Path, collector_url: str, token: str, to: Server) -> Iterator[Server]:
    """Run a Prometheus with the committed configuration, which looks every other second."""
    binary = program("prometheus", package="prometheus")
    rules = directory / "rules"
    rules.mkdir()
    for path in (DEPLOY / "prometheus/rules").glob("*.yml"):
        (rules / path.name).write_text(hurried(path.read_text()))
    secret = directory / "token"
    secret.write_text(token)
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    config["global"].update(scrape_interval="2s", evaluation_interval="1s")
    (receiver,) = config["alerting"]["alertmanagers"]
    receiver["static_configs"] = [{"targets": [to.url.removeprefix("http://")]}]
    (scrape,) = config["scrape_configs"]
    scrape["authorization"]["credentials_file"] = str(secret)
    scrape["static_configs"] = [{"targets": [collector_url.removeprefix("http://")]}]
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        binary,
        f"--config.file={path}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        # The first time Alertmanager is not known yet.
        "--rules.alert.resend-delay=1s",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    url = f"http://127.0.0.1:{port}"
    with running(command, url, directory / "prometheus.log") as server:
        yield server


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
