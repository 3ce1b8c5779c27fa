"""The Helm chart, rendered by Helm itself, and the manifests of deploy/kubernetes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

CHART = ROOT / "deploy/helm/paceline"
KUBERNETES = ("1.29", "1.34")
OPERATOR = ("ServiceMonitor", "PrometheusRule")
"""Kinds of the Prometheus operator, whose schemas are not Kubernetes' own."""
ACTIONS = ("kubernetes-event", "kubernetes-condition", "kubernetes-taint")
VALUES: dict[str, dict[str, Any]] = {
    "bundled": {"postgresql": {"enabled": True}},
    "everything": {
        "postgresql": {"enabled": True, "storageClass": "fast"},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True, "postgresql": {"enabled": True}},
        "nodeActions": {"mode": "execute", "allow": list(ACTIONS), "nodes": ["gpu-*"]},
        "env": {"PACELINE_SERVE_RANK_SERIES": 1024},
        "ingress": {"enabled": True, "host": "paceline.example", "tlsSecret": "tls"},
    },
    "scaled": {
        "mode": "scaled",
        "bus": {"url": "nats://nats:4222", "existingSecret": "nats"},
        "database": {"existingSecret": "database", "reader": "grafana"},
        "tokens": {"existingSecret": "tokens"},
        "tls": {"existingSecret": "tls"},
        "serviceMonitor": {"enabled": True},
        "dashboards": {"enabled": True},
    },
}
helm = pytest.importorskip(
    "helm_python", reason="Helm is missing: pip install helm-python-sdk (or: make setup)"
)


@cache
def rendered(name: str) -> tuple[dict[str, Any], ...]:
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(VALUES[name], name="paceline", namespace="monitoring")
    documents = [yaml.safe_load_all(t) for p, t in texts.items() if not p.endswith(".txt")]
    return tuple(one for each in documents for one in each if one)


def of_kind(name: str, *kinds: str) -> list[dict[str, Any]]:
    return [one for one in rendered(name) if one["kind"] in kinds]


def pods(name: str) -> Iterator[dict[str, Any]]:
    for one in of_kind(name, "Deployment", "StatefulSet"):
        yield one["spec"]["template"]


def manifests() -> list[Path]:
    return sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))


@pytest.mark.parametrize("name", VALUES)
def test_chart_passes_helms_strict_lint(name: str) -> None:
    report = helm.lint(CHART, VALUES[name], strict=True)
    assert not report["errors"]
    assert [m["error"] for m in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_follow_kubernetes_schemas(name: str, version: str) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate")
    for one in rendered(name):
        if one["kind"] not in OPERATOR:
            kubernetes.validate(one, version, strict=True)


def test_examples_for_jobs_follow_kubernetes_schemas() -> None:
    kubernetes = pytest.importorskip("kubernetes_validate")
    assert manifests()
    for path in manifests():
        for one in yaml.safe_load_all(path.read_text()):
            for version in KUBERNETES:
                kubernetes.validate(one, version, strict=True)


@pytest.mark.parametrize("name", VALUES)
def test_pods_are_hardened_and_their_images_pinned(name: str) -> None:
    for pod in pods(name):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert re.search(r":\d[\w.-]+$", container["image"])
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
            assert container["resources"]["requests"]
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            given = {volume["name"] for volume in spec["volumes"]} | {"data"}
            assert mounted <= given


@pytest.mark.parametrize("name", VALUES)
def test_what_selects_pods_finds_some(name: str) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods(name)]
    for one in of_kind(name, "Service", "NetworkPolicy", "PodDisruptionBudget"):
        spec = one["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= each.items() for each in labels), one["metadata"]["name"]
    services = of_kind(name, "Service")
    for monitor in of_kind(name, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        assert any(wanted.items() <= one["metadata"]["labels"].items() for one in services)


def test_secrets_that_the_chart_makes_have_the_keys_that_pods_ask_for() -> None:
    made = {one["metadata"]["name"]: one["stringData"] for one in of_kind("everything", "Secret")}
    asked = [
        entry["valueFrom"]["secretKeyRef"]
        for pod in pods("everything")
        for container in pod["spec"]["containers"]
        for entry in container["env"]
        if "secretKeyRef" in entry.get("valueFrom", {})
    ]
    assert len(asked) == 7
    for one in asked:
        assert len(made[one["name"]][one["key"]]) >= 32
    tokens = made["paceline-tokens"].values()
    assert len(set(tokens)) == len(tokens) == 3
    password = made["paceline-database"]["reader-password"]
    source = yaml.safe_load(made["paceline-datasource"]["paceline-postgresql.yaml"])
    assert source["datasources"][0]["secureJsonData"]["password"] == password
    assert made["paceline-database"]["owner-password"] in made["paceline-database"]["database-url"]


@pytest.mark.parametrize("name", VALUES)
def test_settings_of_the_collector_are_documented_ones(name: str) -> None:
    documented = (ROOT / "docs/configuration.md").read_text()
    for pod in pods(name):
        for entry in pod["spec"]["containers"][0]["env"]:
            if entry["name"].startswith("PACELINE_SERVE_"):
                assert f"`{entry['name']}`" in documented, entry["name"]


def test_each_role_has_its_own_credentials_of_the_bus_and_no_others() -> None:
    roles = set()
    for pod in pods("scaled"):
        (container,) = pod["spec"]["containers"]
        role = container["args"][-1]
        (path,) = (
            one["value"] for one in container["env"]
            if one["name"] == "PACELINE_SERVE_BUS_CREDENTIALS"
        )  # fmt: skip
        (volume,) = (one for one in pod["spec"]["volumes"] if one["name"] == "bus")
        assert volume["secret"]["secretName"] == "nats"
        assert [item["key"] for item in volume["secret"]["items"]] == [f"{role}.creds"]
        (mount,) = (one for one in container["volumeMounts"] if one["name"] == "bus")
        assert path == f"{mount['mountPath']}/{role}.creds"
        roles.add(role)
    assert roles == {"gateway", "analyzer"}


def test_prometheus_may_ask_pods_by_their_address_and_kubelet_by_loopback() -> None:
    (pod,) = (p for p in pods("bundled") if p["spec"]["containers"][0]["name"] == "collector")
    (container,) = pod["spec"]["containers"]
    names = [entry["name"] for entry in container["env"]]
    hosts = next(e for e in container["env"] if e["name"] == "PACELINE_SERVE_ALLOWED_HOSTS")
    assert {"$(POD_IP)", "paceline.monitoring.svc"} <= set(json.loads(hosts["value"]))
    assert names.index("POD_IP") < names.index("PACELINE_SERVE_ALLOWED_HOSTS")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["httpHeaders"] == [
            {"name": "Host", "value": "localhost"}
        ]


def test_nothing_is_done_to_nodes_until_somebody_says_so() -> None:
    assert not of_kind("bundled", "ClusterRole", "ClusterRoleBinding")
    assert all(not p["spec"]["automountServiceAccountToken"] for p in pods("bundled"))
    (role,) = of_kind("everything", "ClusterRole")
    allowed = {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert allowed == {
        ("events", "create"),
        ("pods", "list"),
        ("nodes", "get"),
        ("nodes", "patch"),
        ("nodes/status", "patch"),
    }


def dashboards_of(name: str) -> dict[str, str]:
    maps = [one for one in of_kind(name, "ConfigMap") if "dashboard" in one["metadata"]["name"]]
    return {key: text.strip() for one in maps for key, text in one["data"].items()}


def committed_dashboards(directory: str) -> dict[str, str]:
    files = (ROOT / "dashboards" / directory).glob("*.json")
    return {f"paceline-{path.name}": path.read_text().strip() for path in files}


def test_dashboards_do_without_postgresql_where_grafana_is_not_given_it() -> None:
    assert dashboards_of("everything") == committed_dashboards("dist")
    assert dashboards_of("scaled") == committed_dashboards("dist-prometheus")
    sizes = [len(text) for text in dashboards_of("everything").values()]
    assert max(sizes) < 900_000, "a ConfigMap holds 1 MiB"


def test_rules_are_the_committed_ones() -> None:
    groups = [one["spec"] for one in of_kind("everything", "PrometheusRule")]
    files = sorted((ROOT / "deploy/prometheus/rules").glob("*.yml"))
    assert groups == [yaml.safe_load(path.read_text()) for path in files]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "no database"),
        ({"postgresql": {"enabled": True}, "database": {"url": "postgresql://x"}}, "more than one"),
        ({"mode": "scaled", "postgresql": {"enabled": True}}, "needs bus.url"),
        ({"mode": "sharded", "postgresql": {"enabled": True}}, "single"),
        ({"postgresql": {"enabled": True}, "typo": 1}, "typo"),
        (
            {"postgresql": {"enabled": True}, "nodeActions": {"allow": ["slurm-drain"]}},
            "kubernetes-taint",
        ),
    ],
)
def test_values_that_cannot_work_are_refused_with_the_reason(
    values: dict[str, Any], words: str
) -> None:
    with helm.Chart.load(CHART) as chart, pytest.raises(Exception, match=words):
        chart.render(values, name="paceline", namespace="monitoring")
