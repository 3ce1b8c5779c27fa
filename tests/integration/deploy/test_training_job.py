"""The job of deploy/kubernetes as processes: its sidecar and two pods, with one rank each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.deploy.dockerfile import read_image
from tests.integration.deploy.stack import ROOT, Stack
from tests.integration.deploy.test_stack import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
STEPS = 60


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path, hosts=("paceline.paceline.svc", "llama-0.llama"))
    try:
        made.services["collector"].environment["PACELINE_SERVE_ALLOWED_HOSTS"] = json.dumps(
            ["paceline.paceline.svc", "collector"]
        )
        made.up("postgres", "collector")
        made.wait_until_healthy("collector")
        yield made
    finally:
        made.close()


def environment(container: dict[str, Any], known: dict[str, str]) -> dict[str, str]:
    """What Kubernetes would set; ``known`` stands for what it looks up."""
    return {
        one["name"]: one["value"] if "value" in one else known[one["name"]]
        for one in container["env"]
    }


def test_pods_of_the_example_train_and_their_sidecar_sends(stack: Stack, tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/training-job.yaml").read_text()))
    pod = next(one for one in documents if one["kind"] == "Job")["spec"]["template"]["spec"]
    (sidecar,), (train,) = pod["initContainers"], pod["containers"]
    user = pod["securityContext"]["runAsUser"]
    image = read_image(ROOT / "deploy/images/agent.Dockerfile")
    _, base, _ = stack.process(stack.services["demo"])
    known = {
        "PACELINE_TOKEN": stack.variables["PACELINE_INGEST_TOKEN"], "LAUNCH": "7f3a",
        "NODE_NAME": "gpu-1",
    }  # fmt: skip
    own = {**image.environment, "PATH": base["PATH"], "HOME": "/tmp"}
    env = {**own, **environment(sidecar, known)}
    sends = [*image.entrypoint, *image.command]
    stack.processes["pod"] = stack.box.start(sends, env, user, tmp_path / "pod.log")
    probe = sidecar["startupProbe"]["exec"]["command"]
    until(lambda: stack.box.run(probe, env, user).returncode == 0)
    pods = []
    for index in range(2):
        command = [word.replace("$(JOB_COMPLETION_INDEX)", str(index)) for word in train["command"]]
        command = [word.replace("$(LAUNCH)", known["LAUNCH"]) for word in command]
        command = [word.replace("nproc-per-node=8", "nproc-per-node=1") for word in command]
        assert command.pop() == "train.py"
        command += ["-m", "paceline_service.demo.train", "--steps", str(STEPS)]
        mine = {
            "PATH": base["PATH"], "HOME": "/tmp", "OMP_NUM_THREADS": "1", "FAULT": "none",
            "DEMO_SLOW_RANK": "0",
            "KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": str(index),
            **environment(train, {**known, "NODE_NAME": f"gpu-{index}"}),
        }  # fmt: skip
        assert not {name for name in mine if "TOKEN" in name}
        pods.append(stack.box.start(command, mine, user, tmp_path / f"pod-{index}.log"))
    assert [one.wait(200) for one in pods] == [0, 0], (tmp_path / "pod-0.log").read_text()
    url = "http://paceline.paceline.svc:8750/v1/jobs/training.llama"
    told = until(lambda: (job := json.loads(stack.get(url)))["state"] == "ended" and job)
    assert told["world_size"] == 2
    report = json.loads(stack.get(f"{url}/report"))
    assert report["job"]["ranks_observed"] == 2
    assert report["job"]["steps"] >= STEPS - 5
