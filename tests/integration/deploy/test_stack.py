"""docker-compose.yml without Docker: its services as processes, with their own files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.integration.deploy.stack import Stack, require

PATIENCE_S = 180.0
"""Four ranks and six services on two cores that may have other things to do."""
pytestmark = pytest.mark.timeout(400)
SERVICES = ("postgres", "collector", "prometheus", "alertmanager", "sidecar", "demo")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything but Grafana, which is not to be had here; the demo's fault comes early."""
    require(["prometheus", "prometheus-alertmanager"])
    made = Stack(tmp_path_factory.mktemp("stack"), {"DEMO_FAULT_STEP": "60", "DEMO_FAULT_MS": "40"})
    try:
        made.up(*SERVICES)
        yield made
    finally:
        made.close()


def until(found: Callable[[], Any]) -> Any:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            if value := found():
                return value
        except AssertionError:
            if time.monotonic() > deadline_s:
                raise
        assert time.monotonic() < deadline_s, "what was waited for did not come"
        time.sleep(0.3)


def query(stack: Stack, text: str) -> list[dict[str, Any]]:
    answer = json.loads(stack.get(f"http://prometheus:9090/api/v1/query?query={quote(text)}"))
    result: list[dict[str, Any]] = answer["data"]["result"]
    return result


def test_straggler_of_the_demo_is_seen_in_prometheus_on_the_node_of_the_compose_file(
    stack: Stack,
) -> None:
    until(lambda: query(stack, 'paceline_rank_flagged{job="demo", rank="2"} == 1'))
    assert query(stack, 'paceline_rank_wasted_gpu_seconds_total{job="demo", rank="2"} > 0')
    assert {one["metric"]["node"] for one in query(stack, "paceline_rank_info")} == {"node-7"}


def test_prometheus_scrapes_with_the_reading_token_knows_alertmanager_and_raises_the_alert(
    stack: Stack,
) -> None:
    targets = json.loads(stack.get("http://prometheus:9090/api/v1/targets"))["data"]
    assert {one["health"] for one in targets["activeTargets"]} == {"up"}
    found = until(
        lambda: json.loads(stack.get("http://prometheus:9090/api/v1/alertmanagers"))["data"][
            "activeAlertmanagers"
        ]
    )
    assert [one["url"] for one in found] == ["http://alertmanager:9093/api/v2/alerts"]
    rules = json.loads(stack.get("http://prometheus:9090/api/v1/rules"))["data"]["groups"]
    assert rules, "the rules of deploy/prometheus are loaded"
    assert all(rule["health"] != "err" for group in rules for rule in group["rules"])
    # Pending: it is told of when it has lasted for some minutes.
    until(lambda: query(stack, 'ALERTS{alertname="PacelineStragglerRank", job="demo", rank="2"}'))


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_healthy_by_its_own_health_check(stack: Stack, name: str) -> None:
    if name != "demo":  # a job is no service
        stack.wait_until_healthy(name)
    assert stack.processes[name].poll() is None


def test_grafanas_role_reads_steps_and_lanes_and_no_tokens(stack: Stack) -> None:
    def ask(statement: str) -> str:
        # With what the compose file gives Grafana, and nothing else.
        grafana = stack.services["grafana"].environment
        user, database = grafana["PACELINE_GRAFANA_DB_USER"], grafana["PACELINE_GRAFANA_DB_NAME"]
        url = f"postgresql://{user}@{grafana['PACELINE_GRAFANA_DB_HOST']}/{database}"
        _, env, _ = stack.process(stack.services["grafana"])
        env["PGPASSWORD"] = grafana["PACELINE_GRAFANA_DB_PASSWORD"]
        done = stack.box.run(["psql", url, "-XAtqc", statement], env, 472)
        return done.stdout.strip() or done.stderr.strip()

    until(lambda: ask("SELECT 1 FROM lanes LIMIT 1") == "1")
    assert int(ask("SELECT count(*) FROM step_summaries")) > 0
    assert "permission denied" in ask("SELECT count(*) FROM tokens")
    assert "read-only transaction" in ask("CREATE TEMPORARY TABLE mine (id int)")


def test_training_job_has_no_token_and_nothing_is_written_but_to_volumes(stack: Stack) -> None:
    command, env, user = stack.process(stack.services["demo"])
    assert command[:3] == ["paceline", "run", "--job"]
    assert not {name for name in env if "TOKEN" in name or name == "PACELINE_URL"}
    refused = stack.box.run(["sh", "-c", "touch /opt/x /etc/x /var/lib/x /x; ls /x"], env, user)
    assert refused.returncode != 0
    assert refused.stderr.count("Read-only file system") >= 3


def test_log_of_no_service_holds_a_secret(stack: Stack) -> None:
    for name in stack.processes:
        said = stack.log(name)
        assert not [
            key for key, value in stack.variables.items() if len(value) == 64 and value in said
        ]


def test_page_is_served_to_a_browser_on_this_machine(stack: Stack) -> None:
    assert "<title>Paceline" in stack.get("http://127.0.0.1:8750/")


def test_files_of_the_stack_are_those_of_the_repository(stack: Stack, repository: Path) -> None:
    done = stack.box.run(["cat", "/etc/prometheus/prometheus.yml"], {}, 65534)
    assert done.stdout == (repository / "deploy/prometheus/prometheus.yml").read_text()
