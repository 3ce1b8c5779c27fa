"""Who is told, and what hides what: the committed configuration in a real Alertmanager."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from paceline_dashboards import alerts
from tests.integration.alerts.kit import (
    DEPLOY,
    SEVERITIES,
    Server,
    alertmanager,
    program,
    webhook,
)
from tests.integration.collector.kit import wait_until

CONFIG = str(DEPLOY / "alertmanager/alertmanager.yml")
Labels = dict[str, str]


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with webhook() as hook, alertmanager(tmp_path_factory.mktemp("manager"), hook) as server:
        yield server


def amtool(*arguments: str) -> str:
    command = [program("amtool", package="prometheus-alertmanager"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def hides(manager: Server, source: Labels, *targets: Labels, spares: tuple[Labels, ...]) -> None:
    """Post alerts, and wait until those that shall be hidden are, and the others are shown."""
    manager.post("/api/v2/alerts", [{"labels": one} for one in (source, *targets, *spares)])
    wanted = {_key(one): "suppressed" for one in targets}
    wanted |= {_key(one): "active" for one in (source, *spares)}

    def settled() -> bool:
        shown = {
            _key(row["labels"]): row["status"]["state"] for row in manager.get("/api/v2/alerts")
        }
        return all(shown.get(key) == state for key, state in wanted.items())

    wait_until(settled, 15)


def _key(labels: Labels) -> str:
    return json.dumps(labels, sort_keys=True)


def alert(name: str, severity: str = "page", **labels: str) -> Labels:
    return {"alertname": name, "severity": severity, **labels}


@pytest.mark.parametrize("severity", SEVERITIES)
def test_each_severity_has_a_receiver_of_its_own(severity: str) -> None:
    assert amtool(
        "config", "routes", "test", f"--config.file={CONFIG}", f"severity={severity}"
    ) == (severity)


def test_the_watchdog_has_a_receiver_that_nothing_else_reaches() -> None:
    route = ("config", "routes", "test", f"--config.file={CONFIG}")
    assert amtool(*route, "alertname=PacelineWatchdog", "severity=none") == "watchdog"
    assert amtool(*route, "alertname=PacelineCollectorDown", "severity=none") == "info"


def test_amtool_accepts_the_committed_configuration() -> None:
    assert "SUCCESS" in amtool("check-config", CONFIG)


def test_amtool_accepts_the_receivers_that_are_given_as_examples(tmp_path: Path) -> None:
    text = Path(CONFIG).read_text()
    examples = re.sub(r"^    # (?=  |\w+_configs:)", "    ", text, flags=re.MULTILINE)
    assert examples.count("_configs:") == text.count("# webhook_configs:") + 2
    config = tmp_path / "alertmanager.yml"
    config.write_text(examples.replace("templates/*", f"{DEPLOY}/alertmanager/templates/*"))
    receivers = yaml.safe_load(examples)["receivers"]
    assert all(len(receiver) == 2 for receiver in receivers)
    assert receivers[-1]["webhook_configs"][0]["send_resolved"] is False
    assert f"{len(receivers)} receivers" in amtool("check-config", str(config))


def test_a_node_hides_its_ranks_and_no_others(manager: Server) -> None:
    node = alert("PacelineStragglerNode", job="j1", node="node-7")
    mine = alert("PacelineStragglerRank", job="j1", node="node-7", rank="13", cause="compute")
    heat = alert("PacelineThermalThrottling", "info", job="j1", node="node-7", rank="12")
    other = alert("PacelineStragglerRank", job="j1", node="node-8", rank="20", cause="compute")
    elsewhere = alert("PacelineStragglerRank", job="j2", node="node-7", rank="13", cause="compute")
    hides(manager, node, mine, heat, spares=(other, elsewhere))


def test_a_hang_hides_the_slowdowns_of_its_job(manager: Server) -> None:
    hang = alert("PacelineHang", job="j3", node="node-1", kind="hang", cause="host")
    slow = [
        alert("PacelineStragglerRank", job="j3", node="node-2", rank="1"),
        alert("PacelineStragglerNode", job="j3", node="node-2"),
        alert("PacelineUniformSlowdown", job="j3"),
        alert("PacelineCommunicationDegraded", job="j3"),
        alert("PacelineImbalance", "ticket", job="j3"),
        alert("PacelineAgentsSilent", "ticket", job="j3"),
    ]
    other = alert("PacelineUniformSlowdown", job="j4")
    hides(manager, hang, *slow, spares=(other,))


def test_heat_is_told_once_where_it_is_why_a_rank_is_slow(manager: Server) -> None:
    rank = alert("PacelineStragglerRank", job="j5", node="n", rank="3", cause="gpu_throttle")
    heat = alert("PacelineThermalThrottling", "ticket", job="j5", node="n", rank="3")
    else_hot = alert("PacelineThermalThrottling", "ticket", job="j5", node="n", rank="4")
    hides(manager, rank, heat, spares=(else_hot,))


def test_only_the_worst_severity_of_an_alert_is_shown(manager: Server) -> None:
    rank = {"job": "j6", "node": "n", "rank": "3", "kind": "straggler", "cause": "gc"}
    page, ticket, info = (alert("PacelineStragglerRank", level, **rank) for level in SEVERITIES)
    alone = alert("PacelineStragglerRank", "info", **{**rank, "rank": "4"})
    drops = [alert("PacelineDrops", level, stage="agent", reason="a") for level in SEVERITIES[1:]]
    others = alert("PacelineDrops", "info", stage="agent", reason="b")
    hides(manager, page, ticket, info, spares=(alone,))
    hides(manager, *drops, spares=(others,))


def test_what_follows_from_a_full_disk_is_hidden_behind_it(manager: Server) -> None:
    full = alert("PacelineDiskFull", instance="c1")
    mine = alert("PacelineCommitFailures", "ticket", instance="c1")
    other = alert("PacelineCommitFailures", "ticket", instance="c2")
    hides(manager, full, mine, spares=(other,))


def test_rules_that_hide_name_alerts_that_exist() -> None:
    names = {one.name for one in alerts.all_alerts()}
    text = Path(CONFIG).read_text()
    told = set()
    for word in (
        text.replace("Straggler(Rank|Node)", "StragglerRank|PacelineStragglerNode")
        .replace(
            "Communication(Degraded|Bound)", "CommunicationDegraded|PacelineCommunicationBound"
        )
        .replace('"', "|")
        .split("|")
    ):
        if word.startswith("Paceline"):
            told.add(word)
    assert len(told) > 10
    assert told <= names


def test_the_text_for_people_has_the_sentences_and_where_to_go_on(tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    texts = {
        "summary": "Rank 13 on node-7 slows job llama",
        "description": "It waits. Next: scontrol ...",
        "runbook_url": "https://git.example/PacelineStragglerRank.md",
        "dashboard_url": "https://grafana.example/d/paceline-job",
    }
    row = {"status": "firing", "labels": {"severity": "page"}, "annotations": texts}
    message = {
        "status": "firing", "alerts": [row, row], "commonLabels": {"severity": "page"},
        "receiver": "page", "groupLabels": {}, "commonAnnotations": {}, "externalURL": "http://a",
    }  # fmt: skip
    data.write_text(json.dumps(message))
    glob = str(DEPLOY / "alertmanager/templates/*.tmpl")

    def rendered(name: str) -> str:
        text = f'--template.text={{{{ template "{name}" . }}}}'
        return amtool(
            "template", "render", f"--template.glob={glob}", text, f"--template.data={data}"
        )

    assert rendered("paceline.title") == "[FIRING page] Rank 13 on node-7 slows job llama (+1 more)"
    text = rendered("paceline.text")
    for part in (texts["description"], texts["runbook_url"], texts["dashboard_url"]):
        assert text.count(part) == 2
    assert "Page:" not in text
