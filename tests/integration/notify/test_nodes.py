"""What is done to nodes: a fake kube-apiserver behind TLS, and a fake scontrol that is executed."""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from paceline.errors import ConfigError
from paceline_service.notify.nodes.build import build_actions
from paceline_service.settings import CollectorSettings
from tests.integration.collector.kit import CollectorProcess, wait_until
from tests.integration.notify.conftest import AT_ONCE
from tests.integration.notify.kit import Answer, Incidents, Receiver, Request

pytestmark = pytest.mark.integration
BAD: dict[str, Any] = {"recoverable_ratio": 0.2, "cause": "gpu_fault"}
"""Of 64 GPUs 12.8 stand idle: a page."""
TOKEN = "service-account-token"
SCONTROL = """#!{python}
import json, os, sys
with open({calls!r}, "a") as file:
    file.write(json.dumps([sys.argv[1:], sorted(os.environ)]) + "\\n")
if os.path.exists({broken!r}):
    sys.exit("slurm_load_node error: Unable to contact slurm controller")
state = "IDLE+DRAIN" if sys.argv[3] == "node-drained" else "ALLOCATED"
if sys.argv[1] == "show":
    print(f"NodeName={{sys.argv[3]}} Arch=x86_64 State={{state}} Reason=somebody")
"""


@dataclass
class Cluster:
    """What of a kube-apiserver the collector uses; it keeps nodes, and refuses what it would."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    conflicts: int = 0
    forbidden: bool = False

    def add(self, name: str, *taints: dict[str, str]) -> None:
        self.nodes[name] = {
            "metadata": {"name": name, "resourceVersion": "1"},
            "spec": {"taints": list(taints)} if taints else {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }

    def __call__(self, request: Request) -> Answer:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return self._status(401, "Unauthorized")
        if self.forbidden:
            return self._status(403, "nodes is forbidden: User cannot patch resource nodes")
        path, _, query = request.path.partition("?")
        parts = path.split("/")[3:]
        if parts[0] == "pods":
            return self._pods(query)
        if parts[0] == "namespaces":
            return self._event(parts[1], request)
        node = self.nodes.get(parts[1])
        if node is None:
            return self._status(404, f'nodes "{parts[1]}" not found')
        if request.method == "GET":
            return 200, {}, json.dumps(node).encode()
        kind = request.headers["content-type"]
        if parts[2:] == ["status"]:
            assert kind == "application/strategic-merge-patch+json"
            for one in request.json["status"]["conditions"]:  # merged by type
                kept = [c for c in node["status"]["conditions"] if c["type"] != one["type"]]
                node["status"]["conditions"] = [*kept, one]
            return 200, {}, json.dumps(node).encode()
        assert kind == "application/merge-patch+json"
        if self.conflicts:
            self.conflicts -= 1
            node["metadata"]["resourceVersion"] = "2"
        if request.json["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"]:
            return self._status(409, "the object has been modified")
        node["spec"]["taints"] = request.json["spec"]["taints"]  # a list is replaced whole
        return 200, {}, json.dumps(node).encode()

    def _event(self, namespace: str, request: Request) -> Answer:
        event = request.json
        assert event["metadata"]["namespace"] == namespace
        key = (namespace, event["metadata"]["name"])
        if key in self.events:
            return self._status(409, "already exists")
        self.events[key] = event
        return 201, {}, request.body

    def _pods(self, query: str) -> Answer:
        pods = []
        if "spec.nodeName%3Dnode-k" in query and "paceline.dev%2Fjob%3Dk8s" in query:
            pods = [{"metadata": {"name": "llm-0", "namespace": "team", "uid": "u-1"}}]
        return 200, {}, json.dumps({"items": pods}).encode()

    @staticmethod
    def _status(code: int, message: str) -> Answer:
        return code, {}, json.dumps({"kind": "Status", "code": code, "message": message}).encode()


@dataclass
class Site:
    """A collector with a cluster and a Slurm around it."""

    directory: Path
    cluster: Cluster
    api: Receiver
    authority: trustme.CA
    process: CollectorProcess | None = None
    incidents: Incidents | None = None

    @property
    def calls(self) -> Path:
        return self.directory / "calls"

    def start(self, **settings: object) -> Site:
        """Start a collector; lists are given as JSON."""
        self.authority.cert_pem.write_to_path(self.directory / "ca.crt")
        (self.directory / "token").write_text(TOKEN)
        program = self.directory / "scontrol"
        program.write_text(
            SCONTROL.format(
                python=sys.executable, calls=str(self.calls), broken=str(self.directory / "broken")
            )
        )
        program.chmod(0o755)
        given = {
            "mode": "execute",
            "allow": ["kubernetes-event", "kubernetes-condition", "kubernetes-taint",
                      "slurm-drain"],
            "nodes": ["node-*", "ALL", "a*"],
            "scontrol": str(program),
            "kubernetes_url": self.api.url,
            "kubernetes_token_file": str(self.directory / "token"),
            "kubernetes_ca_file": str(self.directory / "ca.crt"),
            **settings,
        }  # fmt: skip
        self.process = CollectorProcess(
            self.directory / "state",
            **AT_ONCE,
            **{
                f"PACELINE_SERVE_ACTIONS_{name.upper()}": value
                if isinstance(value, str)
                else json.dumps(value)
                for name, value in given.items()
            },
        ).start()
        self.incidents = Incidents(f"sqlite:///{self.process.database}")
        return self

    def open(self, job: str, node: str, **finding: Any) -> int:
        assert self.incidents is not None
        return self.incidents.open(job, **{**BAD, "nodes": [node], **finding})

    def actions(self, incident: int) -> dict[str, dict[str, Any]]:
        """Return what was done because of an incident, by action."""
        assert self.process is not None
        path = f"/v1/incidents/{incident}/notifications"
        return {one["action"]: one for one in self.process.client().get_json(path)["actions"]}

    def wait(self, incident: int, *names: str, state: str = "done") -> dict[str, dict[str, Any]]:
        """Return them once those named are in that state."""

        def found() -> dict[str, dict[str, Any]] | None:
            done = self.actions(incident)
            there = all(name in done and done[name]["state"] == state for name in names)
            return done if there else None

        try:
            return dict(wait_until(found, 20))
        except AssertionError as error:
            raise AssertionError(self.actions(incident)) from error

    def commands(self) -> list[list[str]]:
        """Return what scontrol was called with."""
        if not self.calls.exists():
            return []
        return [json.loads(line)[0] for line in self.calls.read_text().splitlines()]

    def audited(self) -> list[dict[str, Any]]:
        assert self.process is not None
        found = self.process.client().get_json("/v1/audit", limit=200)["entries"]
        return [one for one in found if one["action"].startswith("node.")]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    cluster = Cluster()
    api = Receiver(respond=cluster, tls=context).start()
    made = Site(tmp_path, cluster, api, authority)
    yield made.start
    api.stop()
    if made.incidents is not None:
        made.incidents.end()
    if made.process is not None:
        assert made.process.stop() == 0
        assert TOKEN not in made.process.log.read_text()


def test_a_bad_node_is_marked_tainted_and_drained_once_within_the_limit(
    site: Callable[..., Site],
) -> None:
    here = site()
    cluster = here.cluster
    cluster.add("node-k", {"key": "gpu", "value": "yes", "effect": "NoSchedule"})
    cluster.add("node-2")
    cluster.conflicts = 1
    number = here.open("k8s", "node-k")
    done = here.wait(
        number, "kubernetes-event", "kubernetes-condition", "kubernetes-taint", "slurm-drain"
    )
    node = cluster.nodes["node-k"]
    assert [one["key"] for one in node["spec"]["taints"]] == ["gpu", "paceline.dev/straggler"]
    assert node["spec"]["taints"][1]["effect"] == "NoSchedule"
    kept = {one["type"]: one for one in node["status"]["conditions"]}
    assert kept["Ready"]["status"] == "True"
    assert (kept["PacelineStraggler"]["status"], kept["PacelineStraggler"]["reason"]) == (
        "True", "GpuFault"
    )  # fmt: skip
    assert {(space, one["involvedObject"]["kind"]) for (space, _), one in cluster.events.items()} \
        == {("default", "Node"), ("team", "Pod")}  # fmt: skip
    assert done["kubernetes-event"]["result"] == "done for the node and 1 pods"
    reason = f"reason=paceline-incident-{number}-gpu-fault"
    assert here.commands() == [
        ["show", "node", "node-k", "--oneliner"],
        ["update", "nodename=node-k", "state=drain", reason],
    ]
    environment = json.loads(here.calls.read_text().splitlines()[0])[1]
    assert not [name for name in environment if name.startswith("PACELINE")]
    # The limit is one node an hour, of all jobs.
    second = here.open("second", "node-2")
    refused = here.wait(second, "kubernetes-taint", "slurm-drain", state="refused")
    assert "the limit is 1: a person has to decide" in refused["slurm-drain"]["result"]
    assert "taints" not in cluster.nodes["node-2"]["spec"]
    here.wait(second, "kubernetes-event", "kubernetes-condition")
    # What is over is taken back where that takes nothing from anybody; the drain stays.
    assert here.incidents is not None
    here.incidents.close(number)
    here.wait(number, "kubernetes-condition-clear")
    kept = {one["type"]: one for one in node["status"]["conditions"]}
    assert kept["PacelineStraggler"]["status"] == "False"
    assert len(here.commands()) == 2
    told = here.audited()
    began = [one for one in told if one["action"] == "node.slurm-drain"]
    assert {one["actor"] for one in told} == {"paceline serve"}
    assert began[-1]["new"]["request"]["arguments"][1] == "nodename=node-k"
    assert [one["new"]["state"] for one in began[::-1]] == ["begun", "refused"]


def test_a_dry_run_writes_down_what_would_be_done_and_does_nothing(
    site: Callable[..., Site],
) -> None:
    here = site(mode="dry-run")
    number = here.open("dry", "node-k")
    done = here.wait(
        number, "kubernetes-event", "kubernetes-condition", "kubernetes-taint", "slurm-drain"
    )
    assert {one["mode"] for one in done.values()} == {"dry-run"}
    assert {one["result"] for one in done.values()} == {"dry run: nothing was done"}
    drain = done["slurm-drain"]["request"]
    assert drain["arguments"][:3] == ["update", "nodename=node-k", "state=drain"]
    assert done["kubernetes-taint"]["request"]["adds_taint"] == {
        "key": "paceline.dev/straggler", "value": "gpu_fault", "effect": "NoSchedule"
    }  # fmt: skip
    refused = here.wait(here.open("dry-2", "node-2"), "slurm-drain", state="refused")
    assert "the limit is 1" in refused["slurm-drain"]["result"], "it shows what the limit does"
    assert here.commands() == []
    assert here.api.requests == []
    assert here.process is not None
    assert "nodename=node-k" in here.process.log.read_text()
    assert len(here.audited()) == 8


def test_hostile_names_and_known_incidents_are_left_to_people(site: Callable[..., Site]) -> None:
    here = site(allow=["slurm-drain"], max_nodes=100)
    names = ["ALL", "a[1-99]", "a,b", "a;id", "$(id)", "a b", "-a", "node-\n", "other-1"]
    for number, name in enumerate(names):
        here.open(f"hostile-{number}", name)
    here.open("many", "node-x", nodes=[f"node-{n}" for n in range(101)])
    here.open("data", "node-y", cause="input")
    here.open("small", "node-z", recoverable_ratio=0.01)
    assert here.process is not None
    drained = here.open("drained", "node-drained")
    done = here.wait(drained, "slurm-drain")
    assert done["slurm-drain"]["result"] == "nothing to do: its state is IDLE+DRAIN"
    assert here.commands() == [["show", "node", "node-drained", "--oneliner"]]
    assert [one["target"].split()[1] for one in here.audited()] == ["node-drained"] * 2


def test_what_was_begun_when_the_collector_was_killed_is_ended_by_the_next(
    site: Callable[..., Site],
) -> None:
    here = site(allow=["slurm-drain", "kubernetes-taint"])
    here.cluster.forbidden = True
    (here.directory / "broken").touch()
    number = here.open("cut-short", "node-k")

    def tried() -> bool:
        done = here.actions(number)
        return len(done) == 2 and all(one["result"] for one in done.values())

    wait_until(tried)
    failed = here.actions(number)
    assert {one["state"] for one in failed.values()} == {"begun"}, "it is tried again"
    assert "Unable to contact slurm controller" in failed["slurm-drain"]["result"]
    assert "node-actions.yaml has the role" in failed["kubernetes-taint"]["result"]
    assert here.process is not None
    here.process.kill()
    here.cluster.forbidden = False
    here.cluster.add("node-k")
    (here.directory / "broken").unlink()
    here.process.start()
    here.wait(number, "slurm-drain", "kubernetes-taint")
    assert here.commands()[-1][1] == "nodename=node-k"
    assert here.cluster.nodes["node-k"]["spec"]["taints"][0]["key"] == "paceline.dev/straggler"
    assert here.incidents is not None
    assert len(here.incidents.rows("SELECT id FROM node_actions")) == 2


def test_actions_that_could_not_work_keep_the_collector_from_starting() -> None:
    for settings, words in (
        ({"MODE": "execute"}, "nothing that is allowed"),
        ({"MODE": "dry-run", "NODES": '["*"]'}, "nothing that is allowed"),
        ({"MODE": "execute", "NODES": '["*"]', "ALLOW": '["slurm-drain"]',
          "SCONTROL": "/nonexistent/scontrol"}, "there is no program"),
        ({"MODE": "execute", "NODES": '["*"]', "ALLOW": '["kubernetes-event"]'}, "no cluster"),
    ):  # fmt: skip
        given = {f"PACELINE_SERVE_ACTIONS_{name}": value for name, value in settings.items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
            for name, value in given.items():
                patch.setenv(name, value)
            with pytest.raises(ConfigError, match=words):
                build_actions(CollectorSettings(), None, None, None)  # type: ignore[arg-type]
