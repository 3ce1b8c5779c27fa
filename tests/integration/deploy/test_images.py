"""The steps of the Dockerfiles, run one by one on what a clean checkout holds."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.deploy.dockerfile import instructions, read_image
from tests.integration.deploy.sandbox import Sandbox

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
IMAGES = ("collector", "agent")
"""Not the demo's: it installs torch, and into the image's own Python."""
STEP_S = 600.0


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    # The Python is this machine's, without what is installed into the repository's environment.
    made = Sandbox(tmp_path / "box", [], [Path(sys.base_prefix)], users={"root": 0}, network=True)
    yield made
    made.close()


def context(repository: Path, directory: Path) -> Path:
    """What the engine is sent: the committed files that .dockerignore lets through."""
    kept = [
        line[1:] for line in (repository / ".dockerignore").read_text().split() if line[0] == "!"
    ]
    archive = subprocess.run(
        ["git", "archive", "HEAD", *kept], cwd=repository, capture_output=True, check=True
    ).stdout
    directory.mkdir()
    subprocess.run(["tar", "-x", "-C", directory], input=archive, check=True)
    return directory


@pytest.mark.parametrize("name", IMAGES)
def test_image_is_built_from_a_clean_checkout_and_its_command_runs(
    box: Sandbox, repository: Path, tmp_path: Path, name: str
) -> None:
    dockerfile = repository / f"deploy/images/{name}.Dockerfile"
    box.bind(context(repository, tmp_path / "context"), "/context")
    # A Python without packages, as in the base image; where pip finds packages is this machine's.
    path = f"{sys.base_prefix}/bin:/usr/sbin:{os.defpath}"
    env = {key: value for key, value in os.environ.items() if not key.startswith("PACELINE_")}
    env |= {"PATH": path}
    place = "/"
    for word, rest in instructions(dockerfile):
        if word == "WORKDIR":
            place = rest
        elif word == "ENV":
            env |= dict(part.partition("=")[::2] for part in shlex.split(rest))
            env["PATH"] = env["PATH"].replace("$PATH", path)
        elif word in ("COPY", "RUN") and not rest.startswith("--") and "apt-get" not in rest:
            script = rest
            if word == "COPY":
                source, target = rest.split()
                script = f"cp -a /context/{source} {target}"
            box.build(f"mkdir -p {place}", env, "/", 60)
            done = box.build(script, env, place, STEP_S)
            assert done.returncode == 0, f"{rest}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    image = read_image(dockerfile)
    box.seal()
    started = box.run([*image.entrypoint, *image.command, "--help"], env, int(image.user))
    assert started.returncode == 0, started.stderr
    assert f"paceline {image.command[0]}" in started.stdout
    assert box.run(["ls", "/opt/paceline/bin/pip"], env, 0).returncode != 0
    if name == "agent":
        held = box.build("python -m zipfile -l /opt/paceline/wheels/*.whl", env, "/", 60).stdout
        assert "paceline_inject.pth" in held
        assert ".so" in held, "the NCCL plugin is compiled into the wheel"
