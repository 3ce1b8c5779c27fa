from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from paceline.wire.codec import encode_frame, encode_rows
from paceline.wire.frames import Frame
from paceline_service.client import Client, ProblemError
from tests.integration.collector.kit import bodies, is_ready, senders, wait_until
from tests.integration.scaleout.conftest import without_name
from tests.integration.scaleout.credentials import Authority
from tests.integration.scaleout.kit import Cluster, ended_report, metric, send
from tests.simulator.job import Simulated


def test_a_gateway_answers_what_analyzers_found(cluster: Cluster, slow: Simulated) -> None:
    client = cluster.gateways[1].client()
    send(cluster.gateways[0].client(), bodies(slow, senders(slow, job="asked.about-it")))
    report = ended_report(client, "asked.about-it")
    jobs = {row["job"]: row for row in client.get_json("/v1/jobs")["jobs"]}
    assert jobs["asked.about-it"]["verdict"] == "straggler"
    assert jobs["asked.about-it"]["state"] == "ended"
    steps = client.get_json("/v1/jobs/asked.about-it/steps", **{"from": 0, "limit": 500})
    assert len(steps["steps"]) == report["job"]["steps"] > 150
    ranks = client.get_json("/v1/jobs/asked.about-it/ranks")["ranks"]
    assert [row["rank"] for row in ranks] == [0, 1, 2, 3]
    incidents = client.get_json("/v1/jobs/asked.about-it/incidents")["incidents"]
    assert incidents[0]["ranks"] == [2]
    what_if = client.get_json("/v1/jobs/asked.about-it/what-if", without="rank:2")
    assert what_if["steps"] > 150


def test_a_stream_of_events_of_a_gateway_follows_a_running_job(
    cluster: Cluster, slow: Simulated
) -> None:
    client = cluster.gateways[0].client()
    sent = list(bodies(slow, senders(slow, job="watched")))
    send(client, sent[:4])
    wait_until(lambda: "watched" in {row["job"] for row in client.get_json("/v1/jobs")["jobs"]}, 30)
    seen: list[int] = []
    verdicts: list[str] = []

    def watch() -> None:
        for event in cluster.gateways[1].client().stream_events("watched"):
            if event.name == "steps":
                seen.extend(event.data["steps"])
            elif event.name == "report":
                verdicts.append(event.data["verdict"])
                if event.data["job"]["state"] == "ended":
                    return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    send(client, sent[4:], pause_s=0.1)
    watcher.join(90)
    assert not watcher.is_alive()
    assert verdicts[-1] == "straggler"
    assert seen == sorted(set(seen))


def test_settings_asked_of_one_gateway_are_told_to_ranks_by_the_other(cluster: Cluster) -> None:
    first, second = (one.client() for one in cluster.gateways)
    began_s = time.time() - 60
    sequence = itertools.count()

    def heartbeat(client: Client) -> Any:
        frame = Frame(
            job="steered", run_id="run", attempt=0, rank=0, world_size=1, incarnation="5" * 32,
            frame_seq=next(sequence), node="n", producer="hooks", count=0, columns=encode_rows([]),
            step=int((time.time() - began_s) * 10), sent_wall_ns=time.time_ns(),
        )  # fmt: skip
        time.sleep(0.2)
        return client.post_frames(encode_frame(frame))["settings"]

    heartbeat(first)
    wait_until(lambda: cluster.frames("steered") >= 1, 30)
    first.put_json("/v1/jobs/steered/settings", {"level": "steps"})
    told = wait_until(lambda: heartbeat(second), 60)
    assert told[0]["level"] == "steps"
    assert told[0]["effective_step"] > (time.time() - began_s) * 10
    shown = first.get_json("/v1/jobs/steered/settings")
    assert shown["effective_step"] == told[0]["effective_step"]


def test_every_role_says_what_it_does(cluster: Cluster) -> None:
    gateway, analyzer = cluster.gateways[0].client(), cluster.analyzers[0].client()
    assert gateway.get_json("/readyz")["checks"] == {"bus": True}
    checks = wait_until(lambda: is_ready(analyzer), 30) and analyzer.get_json("/readyz")["checks"]
    assert {"bus", "leases", "partitions", "database", "rebuilt"} <= set(checks)
    assert metric(analyzer, "paceline_bus_leases") == 32
    assert metric(gateway, "paceline_bus_published_total") > 0
    assert metric(gateway, "paceline_ingest_frames_total") > 0


def test_a_gateway_with_wrong_credentials_says_so_and_takes_right_ones_without_a_restart(
    cluster: Cluster, slow: Simulated, tmp_path: Path
) -> None:
    path = Authority().user(tmp_path / "of-a-stranger.creds")
    secrets = [part for part in path.read_text().split() if len(part) > 50]
    gateway = cluster.process("refused", "gateway")
    gateway.environment["PACELINE_SERVE_BUS_CREDENTIALS"] = str(path)
    try:
        client = gateway.start().client()

        def reason() -> str:
            with pytest.raises(ProblemError) as unready:
                client.get_json("/readyz")
            assert unready.value.status == 503
            return str(unready.value.problem["reasons"]["bus"])

        words = f"NATS refuses the credentials {path}"
        wait_until(lambda: words in reason())
        assert "nsc generate creds" in reason()
        sender = senders(slow, job="unheard")[0]
        with pytest.raises(ProblemError, match="NATS refuses the credentials"):
            client.post_frames(sender.frame([]))
        told = gateway.log.read_text() + reason()
        assert len(secrets) == 2
        assert not [one for one in secrets if one in told]
        path.write_text(cluster.credentials["gateway"].read_text())
        wait_until(lambda: is_ready(client))
        assert client.post_frames(sender.frame([]))["accepted"] == 1
    finally:
        assert gateway.stop() == 0


@pytest.mark.slow
def test_one_process_does_both(cluster: Cluster, slow: Simulated, expected: dict[str, Any]) -> None:
    """A stream of its own is not possible on one server: it takes its share of the cluster."""
    both = cluster.process("both", "all").start()
    try:
        client = both.client()
        wait_until(lambda: cluster.owned() == [21, 21, 22], 60)
        wait_until(lambda: is_ready(client), 30)
        job = next(name for name in "abcdefgh" if cluster.owner_pid(name) == both.process.pid)
        send(client, bodies(slow, senders(slow, job=job)))
        assert without_name(ended_report(client, job)) == expected
    finally:
        assert both.stop() == 0
