from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml


def test_compose_file_follows_the_compose_specification(repository: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "check_jsonschema"),
            *("--builtin-schema", "vendor.compose-spec"),
            str(repository / "docker-compose.yml"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_host_path_of_the_compose_file_exists(repository: Path) -> None:
    services = yaml.safe_load((repository / "docker-compose.yml").read_text())["services"]
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (repository / source).exists(), f"{name}: {source}"
        if "build" in service:
            assert (repository / service["build"]["dockerfile"]).is_file(), name


def test_compose_services_are_hardened_and_reachable_from_this_machine_only(
    repository: Path,
) -> None:
    services = yaml.safe_load((repository / "docker-compose.yml").read_text())["services"]
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} publishes {port}"


def test_compose_file_takes_its_token_from_the_environment_and_demands_it(
    repository: Path,
) -> None:
    text = (repository / "docker-compose.yml").read_text()
    assert "${PACELINE_TOKEN:?" in text
    tokens = re.findall(r"PACELINE_TOKEN: (.*)", text)
    assert all(value.startswith("${PACELINE_TOKEN:?") for value in tokens)


def test_images_do_not_run_as_root(repository: Path) -> None:
    images = sorted((repository / "deploy" / "images").glob("*.Dockerfile"))
    assert images
    for image in images:
        users = re.findall(r"^USER (\S+)", image.read_text(), re.MULTILINE)
        assert users, image.name
        assert users[-1] not in ("root", "0"), image.name


def test_images_copy_only_what_the_build_context_holds(repository: Path) -> None:
    kept = {
        line[1:] for line in (repository / ".dockerignore").read_text().split() if line[0] == "!"
    }
    for image in (repository / "deploy" / "images").glob("*.Dockerfile"):
        for source in re.findall(r"^COPY (?!--)(\S+)", image.read_text(), re.MULTILINE):
            assert source in kept, f"{image.name} copies {source}"
            assert (repository / source).exists()


def test_prometheus_accepts_its_configuration(repository: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    done = subprocess.run(
        # The token's file exists in the container only.
        [promtool, "check", "config", "--syntax-only", "deploy/prometheus/prometheus.yml"],
        cwd=repository,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_keeps_the_collectors_own_job_label(repository: Path) -> None:
    config = yaml.safe_load((repository / "deploy/prometheus/prometheus.yml").read_text())
    assert all(scrape["honor_labels"] is True for scrape in config["scrape_configs"])


def test_grafana_is_provisioned_with_the_committed_dashboards(repository: Path) -> None:
    provisioning = repository / "deploy/grafana/provisioning"
    provider = yaml.safe_load((provisioning / "dashboards/paceline.yml").read_text())
    path = provider["providers"][0]["options"]["path"]
    compose = yaml.safe_load((repository / "docker-compose.yml").read_text())
    assert f"./dashboards/dist:{path}:ro" in compose["services"]["grafana"]["volumes"]
    for committed in (repository / "dashboards/dist").glob("*.json"):
        assert json.loads(committed.read_text())["uid"].startswith("paceline-")
