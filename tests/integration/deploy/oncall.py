"""One incident from the message to its end, and the pictures of docs/oncall.md.

    sudo .venv/bin/python -m tests.integration.deploy.oncall docs/img/oncall

The stack of docker-compose.yml, as processes; a training job of two "nodes" (four ranks of this
machine that call themselves so); one rank becomes slow; the message comes; the node is drained (its
command is printed: there is no Slurm here) and the job begins again without it. Six minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.deploy.oncall_dashboard import draw, keep
from tests.integration.deploy.oncall_drawing import message_page, runbook, terminal
from tests.integration.deploy.stack import ROOT, Stack

JOB = "nightly-lm"
SLOW_NODE, SPARE_NODE = "gpu-node-7", "gpu-node-9"
NODES = ("gpu-node-3", SLOW_NODE)
FAULT = {"DEMO_FAULT_STEP": "200", "DEMO_FAULT_MS": "60"}
PICTURES = "/tmp/pictures"
PAGE = "http://127.0.0.1:8750"
RUNBOOK = ROOT / "docs/runbooks/PacelineStragglerRank.md"
RECEIVER = "http://127.0.0.1:9099"
WEBHOOK_SECRET = "not-a-secret-of-anybody"
INTERVAL_S = 5.0
PATIENCE_S = 240.0
COLLECTOR = {
    "PACELINE_SERVE_NOTIFY_SLACK_URL": f"{RECEIVER}/slack",
    "PACELINE_SERVE_NOTIFY_SLACK_MIN_SEVERITY": "info",
    "PACELINE_SERVE_NOTIFY_RUNBOOKS_URL": "https://wiki.example/paceline",
    "PACELINE_SERVE_NOTIFY_WEBHOOK_URL": f"{RECEIVER}/webhook",
    "PACELINE_SERVE_NOTIFY_WEBHOOK_SECRET": WEBHOOK_SECRET,
}
_RECEIVE = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print(json.dumps({"path": self.path, "body": json.loads(body)}), flush=True)
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 9099), Handler).serve_forever()
"""


class Night:
    """The stack, the job and what they said."""

    def __init__(self, directory: Path, pictures: Path) -> None:
        self.stack = Stack(directory, collector=COLLECTOR)
        self.directory = directory
        self.pictures = pictures
        self.job: list[subprocess.Popen[bytes]] = []
        self.began_s = time.time()
        self.metrics: list[tuple[float, str]] = []

    def up(self) -> None:
        """Start the services, and who receives the messages."""
        receiver = [sys.executable, "-u", "-c", _RECEIVE]
        self.stack.box.start(receiver, {}, 65534, self.directory / "receiver.log")
        self.stack.up("postgres", "collector", "prometheus", "alertmanager", "sidecar")
        self.stack.wait_until_healthy("sidecar")

    def train(self, nodes: tuple[str, ...], fault: str) -> None:
        """Launch the job, two ranks a node."""
        _, env, user = self.stack.process(self.stack.services["demo"])
        launch = secrets.token_hex(6)
        port = 29500 + secrets.randbelow(400)
        for index, node in enumerate(nodes):
            command = [
                "paceline", "run", "--job", JOB, "--", "torchrun", "--nnodes", str(len(nodes)),
                "--nproc-per-node", "2", "--node-rank", str(index), "--rdzv-id", launch,
                "--master-addr", "127.0.0.1", "--master-port", str(port),
                "-m", "paceline_service.demo.train", "--steps", "100000",
            ]  # fmt: skip
            own = {**env, "NODE_NAME": node, "FAULT": fault, **FAULT}
            log = self.directory / f"train-{node}.log"
            self.job.append(self.stack.box.start(command, own, user, log))

    def stop_training(self) -> None:
        """End the job as a requeue does: SIGTERM to all of it."""
        pattern = "paceline_service.demo.train"
        self.stack.box.build(f"pkill -TERM -f 'torchrun.*{pattern}' || true", os.environ, "/", 30)
        for process in self.job:
            process.wait(60)
        self.job.clear()

    def until(self, what: str, found: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
        """Wait for something, and sample the metrics meanwhile."""
        started_s = time.time()
        while not (value := found()):
            assert time.time() - started_s < patience_s, f"{what} did not come"
            if not self.metrics or time.time() - self.metrics[-1][0] >= INTERVAL_S:
                self.metrics.append((time.time(), self.ask("/metrics")))
            time.sleep(0.5)
        print(f"{time.time() - self.began_s:5.0f} s  {what}", flush=True)
        return value

    def live(self, seconds: float) -> None:
        """Let the job train on."""
        end_s = time.time() + seconds
        self.until(f"{seconds:.0f} s more", lambda: time.time() >= end_s)

    def ask(self, path: str) -> str:
        """Ask the collector."""
        return self.stack.get(f"http://127.0.0.1:8750{path}")

    def report(self) -> dict[str, Any]:
        """Return the report on the job, empty while there is none."""
        try:
            told: dict[str, Any] = json.loads(self.ask(f"/v1/jobs/{JOB}/report"))
        except AssertionError:
            return {}
        return told

    def messages(self, path: str) -> list[dict[str, Any]]:
        """Return what was received there so far."""
        lines = (self.directory / "receiver.log").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [one["body"] for one in found if one["path"] == path]

    def database(self) -> str:
        """Return the URL of the database, by its socket in the sandbox."""
        return f"postgresql://postgres@/paceline?host={self.stack.box.outside('/run/postgresql')}"

    def run(self, *command: str, picture: str, show: str = "") -> str:
        """Run a command as the one on call would, and draw what the terminal shows."""
        env = {
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}", "HOME": "/tmp", "COLUMNS": "100",
            "PACELINE_URL": "http://127.0.0.1:8750", "LANG": "C.UTF-8",
            "PACELINE_TOKEN": self.stack.variables["PACELINE_TOKEN"],
        }  # fmt: skip
        done = self.stack.box.run(command, env, 10001)
        said = done.stdout + done.stderr
        terminal(f"$ {show or ' '.join(command)}\n{said}", self.pictures / f"{picture}.svg")
        return said

    def photograph(self, *wanted: dict[str, Any]) -> None:
        """Take pictures with a browser that is where the services are."""
        task = {"token": self.stack.variables["PACELINE_TOKEN"], "pictures": wanted}
        script = ROOT / "tests/integration/deploy/oncall_browser.py"
        env = {"HOME": "/tmp", "PATH": os.defpath, "LANG": "C.UTF-8"}
        self.stack.box.build(f"mkdir -p -m 0777 {PICTURES}", env, "/", 10)
        # The browser must not be what slows the job.
        command = ["nice", "-n", "19", sys.executable, str(script), json.dumps(task)]
        done = self.stack.box.run(command, env, 10001, timeout_s=180)
        assert done.returncode == 0, done.stderr
        for one in wanted:
            source = self.stack.box.outside(f"{PICTURES}/{one['name']}.png")
            (self.pictures / source.name).write_bytes(source.read_bytes())


def walk(night: Night) -> None:
    """Live through it."""
    page = f"{PAGE}/#/jobs/{JOB}"
    night.up()
    night.train(NODES, "backward")
    night.until("the job trains", lambda: night.report().get("job", {}).get("steps", 0) > 50)
    night.until("a finding", lambda: night.report().get("findings"))
    first = night.until("the message", lambda: night.messages("/slack"))[0]
    night.live(30)
    # A machine that has other things to do makes other incidents: then there is no picture.
    told = night.report()
    assert told["verdict"] == "straggler", f"too busy a machine: {told['findings']}"
    keep(night.directory, JOB, night.metrics, night.database())
    (found,) = json.loads(night.ask(f"/v1/jobs/{JOB}/incidents"))["incidents"]
    incident = found["id"]
    night.run("paceline", "report", JOB, picture="report")
    night.photograph(
        {"name": "message", "html": message_page(first), "width": 760, "selector": "main"},
        {"name": "page", "url": page, "height": 1180, "steps": [["click", "Follow live"]]},
        {"name": "incident", "url": f"{PAGE}/#/incidents/{incident}", "height": 620,
         "steps": [["click", "Acknowledge"], ["fill", "Your name", "Ada, on call"],
                   ["fill", "Note", f"draining {SLOW_NODE}"],
                   ["click", "Acknowledge", "in the form"]]},
    )  # fmt: skip
    runbook(RUNBOOK.read_text(), night.pictures / "runbook.svg")
    drain = str(ROOT / "deploy/slurm/drain.sh")
    night.run(
        "bash", drain, SLOW_NODE, str(incident), "--dry-run", picture="drain",
        show=f"deploy/slurm/drain.sh {SLOW_NODE} {incident} --dry-run",
    )  # fmt: skip
    night.stop_training()
    night.train((NODES[0], SPARE_NODE), "none")

    def recovered() -> bool:
        told = night.report()
        return told.get("verdict") == "healthy" and told["job"]["steps"] > 400

    night.until("the job is healthy", recovered)
    night.until("the last message", lambda: "Resolved" in str(night.messages("/slack")[-1]))
    (night.directory / "messages.json").write_text(json.dumps(night.messages("/webhook"), indent=1))
    last = night.messages("/slack")[-1]
    night.photograph(
        {"name": "recovered", "url": page, "height": 760, "steps": [["click", "Follow live"]]},
        {"name": "resolved", "html": message_page(last), "width": 760, "selector": "main"},
        {"name": "offenders", "url": f"{PAGE}/#/offenders", "height": 420},
    )
    if (verdict := night.report()["verdict"]) != "healthy":
        print(f"look at recovered.png: the verdict became {verdict}; the machine is too busy")


def main() -> None:
    """Live through it, and keep what was said."""
    parser = argparse.ArgumentParser(description="Make the pictures of docs/oncall.md.")
    parser.add_argument("pictures", type=Path, help="directory to write into")
    parser.add_argument("--keep", type=Path, help="keep logs, messages and metrics there")
    parser.add_argument(
        "--site", type=Path, default=ROOT / "build/pixels/web/dist",
        help="what `make dashboards-pixels` built; without it the dashboard is not drawn",
    )  # fmt: skip
    options = parser.parse_args()
    directory = options.keep or Path(tempfile.mkdtemp(prefix=""))
    directory.mkdir(parents=True, exist_ok=True)
    options.pictures.mkdir(parents=True, exist_ok=True)
    night = Night(directory, options.pictures)
    try:
        walk(night)
    finally:
        night.stack.close()
    if (options.site / "index.html").exists():
        draw(directory, options.site, options.pictures / "dashboard.png")
    else:
        print(f"no dashboard: {options.site} is missing; make dashboards-pixels", file=sys.stderr)


if __name__ == "__main__":
    main()
