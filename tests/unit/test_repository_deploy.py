from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def services_of(repository: Path) -> dict[str, Any]:
    document = yaml.safe_load((repository / "docker-compose.yml").read_text())
    services: dict[str, Any] = document["services"]
    return services


def images_of(repository: Path) -> list[Path]:
    found = sorted((repository / "deploy/images").glob("*.Dockerfile"))
    assert found
    return found


def test_every_host_path_of_the_compose_file_exists(repository: Path) -> None:
    for name, service in services_of(repository).items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (repository / source).exists(), f"{name}: {source}"
        if "build" in service:
            assert (repository / service["build"]["dockerfile"]).is_file(), name


def test_compose_services_are_hardened_and_reachable_from_this_machine_only(
    repository: Path,
) -> None:
    for name, service in services_of(repository).items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} publishes {port}"


def test_every_lasting_service_has_a_health_check(repository: Path) -> None:
    for name, service in services_of(repository).items():
        if "build" not in service:
            assert service["healthcheck"]["test"][0] == "CMD", name
        elif service["restart"] != "no":
            dockerfile = (repository / service["build"]["dockerfile"]).read_text()
            assert "\nHEALTHCHECK " in dockerfile, name


def test_secrets_of_the_compose_file_come_from_outside_and_are_demanded(repository: Path) -> None:
    text = (repository / "docker-compose.yml").read_text()
    secret = re.findall(r"\$\{(\w*(?:TOKEN|PASSWORD))([^}]*)\}", text)
    assert {name for name, _ in secret} >= {"PACELINE_TOKEN", "PACELINE_DB_PASSWORD"}
    assert all(rest.startswith(":?") for _, rest in secret)
    # Compose copies secrets of variables into the container, which read-only ones refuse.
    secrets = yaml.safe_load(text)["secrets"]
    assert all("file" in one for one in secrets.values())


def test_script_for_secrets_makes_what_the_compose_file_demands_once(
    repository: Path, tmp_path: Path
) -> None:
    script = tmp_path / "deploy/compose/secrets.sh"
    script.parent.mkdir(parents=True)
    shutil.copy(repository / "deploy/compose/secrets.sh", script)
    subprocess.run([script], check=True, capture_output=True)
    lines = (tmp_path / ".env").read_text().split()
    made = dict(line.split("=") for line in lines)
    assert len(set(made.values())) == len(made), "no secret is used twice"
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in made.values())
    text = (repository / "docker-compose.yml").read_text()
    assert set(re.findall(r"\$\{(\w+):\?", text)) == set(made)
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0
    assert (tmp_path / ".secrets").stat().st_mode & 0o077 == 0
    assert (tmp_path / ".secrets/paceline_token").read_text() == made["PACELINE_READ_TOKEN"]
    subprocess.run([script], check=True, capture_output=True)
    assert (tmp_path / ".env").read_text().split() == lines
    ignored = (repository / ".gitignore").read_text().split()
    assert {".env", ".secrets/"} <= set(ignored)


def test_images_run_as_a_user_that_is_told_by_its_number(repository: Path) -> None:
    for image in images_of(repository):
        users = re.findall(r"^USER (\S+)", image.read_text(), re.MULTILINE)
        assert users, image.name
        assert users[-1].isdecimal(), f"{image.name}: Kubernetes cannot tell a name from root"
        assert int(users[-1]) >= 1000, image.name


def test_base_images_are_pinned_to_a_patch_release(repository: Path) -> None:
    used = [service["image"] for service in services_of(repository).values()
            if "build" not in service]  # fmt: skip
    for image in images_of(repository):
        text = image.read_text()
        used += re.findall(r"^ARG PYTHON_IMAGE=(\S+)", text, re.MULTILINE)
        assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    for name in used:
        assert re.search(r":v?\d+\.\d+(\.\d+)?[\w.-]*$", name), f"{name} is not pinned"


def test_images_copy_only_what_the_build_context_holds(repository: Path) -> None:
    kept = {
        line[1:] for line in (repository / ".dockerignore").read_text().split() if line[0] == "!"
    }
    copied = set()
    for image in images_of(repository):
        for source in re.findall(r"^COPY (?!--)(\S+)", image.read_text(), re.MULTILINE):
            assert (repository / source).exists()
            copied.add(source)
    assert copied == kept


def test_shell_scripts_pass_shellcheck(repository: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is missing: apt-get install shellcheck")
    scripts = [*(repository / "deploy").rglob("*.sh"), *(repository / "deploy").rglob("*.sbatch")]
    done = subprocess.run(
        ["shellcheck", "--severity=style", *scripts], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


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


def data_sources(repository: Path) -> list[dict[str, Any]]:
    files = sorted((repository / "deploy/grafana/provisioning/datasources").glob("*.yml"))
    return [one for file in files for one in yaml.safe_load(file.read_text())["datasources"]]


def test_grafana_is_provisioned_with_the_committed_dashboards(repository: Path) -> None:
    provisioning = repository / "deploy/grafana/provisioning"
    provider = yaml.safe_load((provisioning / "dashboards/paceline.yml").read_text())
    path = provider["providers"][0]["options"]["path"]
    grafana = services_of(repository)["grafana"]
    assert f"./dashboards/dist:{path}:ro" in grafana["volumes"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (repository / "dashboards/dist" / home.removeprefix(f"{path}/")).is_file()
    for committed in (repository / "dashboards/dist").glob("*.json"):
        assert json.loads(committed.read_text())["uid"].startswith("paceline-")


def asked_sources(dashboard: dict[str, Any], first: dict[str, str]) -> set[tuple[str, str]]:
    """Type and uid of every data source in it; a variable begins with the first of its type."""
    chosen = {
        f"${{{one['name']}}}": one.get("current", {}).get("value") or first.get(one["query"])
        for one in dashboard["templating"]["list"]
        if one["type"] == "datasource"
    }
    found = set()
    todo: list[Any] = [dashboard]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            source = value.get("datasource")
            if isinstance(source, dict) and "grafana" not in source["uid"]:
                found.add((source["type"], chosen.get(source["uid"], source["uid"])))
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
    return found


def test_dashboards_ask_only_data_sources_that_are_provisioned(repository: Path) -> None:
    provisioned = {(one["type"], one["uid"]) for one in data_sources(repository)}
    dashboards = sorted((repository / "dashboards/dist").glob("*.json"))
    asked: set[tuple[str, str]] = set()
    for one in dashboards:
        asked |= asked_sources(json.loads(one.read_text()), dict(provisioned))
    assert asked
    assert asked <= provisioned


def test_variables_of_grafanas_provisioning_are_given_by_the_compose_file(
    repository: Path,
) -> None:
    wanted = set(re.findall(r"\$\{(\w+)\}", json.dumps(data_sources(repository))))
    assert wanted
    assert wanted <= set(services_of(repository)["grafana"]["environment"])


def test_hosts_in_provisioned_files_are_services_of_the_compose_file(repository: Path) -> None:
    services = set(services_of(repository))
    prometheus = (repository / "deploy/prometheus/prometheus.yml").read_text()
    hosts = re.findall(r"targets: \[\"([a-z]+):\d+\"\]", prometheus)
    urls = [one["url"] for one in data_sources(repository) if one["type"] == "prometheus"]
    hosts += [url.split("/")[2].partition(":")[0] for url in urls]
    assert hosts
    assert set(hosts) <= services
