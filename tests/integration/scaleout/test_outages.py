from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from paceline_service.bus.subjects import subject_of
from paceline_service.client import ProblemError
from tests.integration.collector.kit import TOKEN, bodies, senders, wait_until
from tests.integration.postgres import PostgresServer, rows
from tests.integration.scaleout.conftest import without_name
from tests.integration.scaleout.credentials import connect
from tests.integration.scaleout.kit import Cluster, ended_report, metric, send, send_one
from tests.integration.sidecar_kit import Processes
from tests.simulator.job import Simulated


def given_up(cluster: Cluster, reason: str) -> float:
    """Return how many messages were taken out of the stream for ``reason`` so far."""
    name = f'paceline_bus_terminated_total{{reason="{reason}"}}'
    return sum(metric(one.client(), name) for one in cluster.analyzers)


def test_what_the_stream_has_acknowledged_survives_a_crash_of_nats_before_it_was_analysed(
    cluster: Cluster, slow: Simulated, expected: dict[str, Any]
) -> None:
    sent = list(bodies(slow, senders(slow, job="stored")))
    gateway = cluster.gateways[0].client()
    for analyzer in cluster.analyzers:
        analyzer.process.send_signal(signal.SIGSTOP)
    send(gateway, sent[:8])
    cluster.nats.kill()
    for analyzer in cluster.analyzers:
        analyzer.process.send_signal(signal.SIGCONT)
    with pytest.raises(ProblemError) as refused:
        gateway.post_frames(sent[8])
    assert refused.value.status == 503
    assert refused.value.problem["type"] == "urn:paceline:problem:bus-unavailable"
    assert refused.value.retry_after_s == 5
    cluster.nats.start()
    send(gateway, sent[8:])
    assert without_name(ended_report(gateway, "stored")) == expected
    assert cluster.frames("stored") == 64


def test_a_sidecar_spools_while_the_bus_is_away(cluster: Cluster, tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    gateway = cluster.gateways[1]
    try:
        sidecar = processes.sidecar("--url", gateway.url, "--exit-when-idle", PACELINE_TOKEN=TOKEN)
        cluster.nats.kill()
        writer = processes.writer(total=500, job="spooled")
        assert writer.wait(60) == 0
        wait_until(lambda: "kept in the spool" in processes.log.read_text(), 60)
        cluster.nats.start()
        assert sidecar.wait(90) == 0
    finally:
        processes.stop()
    cluster.wait_ready()
    query = (
        "SELECT sum(f.records) FROM frames f JOIN job_attempts a ON a.id = f.attempt_id "
        "JOIN jobs j ON j.id = a.job_id WHERE j.name = ?"
    )
    wait_until(lambda: rows(cluster.database_url, query, "spooled") == [(500,)], 60)


def test_frames_are_taken_while_the_database_is_away_and_stored_when_it_is_back(
    cluster: Cluster, postgres: PostgresServer, slow: Simulated, expected: dict[str, Any]
) -> None:
    sent = list(bodies(slow, senders(slow, job="later")))
    gateway = cluster.gateways[0].client()
    send(gateway, sent[:4])
    postgres.stop()
    try:
        for body in sent[4:]:
            assert gateway.post_frames(body)["accepted"] == 4
    finally:
        postgres.start()
    assert without_name(ended_report(gateway, "later")) == expected
    assert cluster.frames("later") == 64
    cluster.wait_ready()


def test_a_gateway_is_killed_and_its_senders_go_to_the_other(
    cluster: Cluster, slow: Simulated, expected: dict[str, Any]
) -> None:
    sent = list(bodies(slow, senders(slow, job="moved")))
    first, second = cluster.gateways
    send(first.client(), sent[:6])
    first.kill()
    # The last answer may have been lost with it: it is sent again.
    assert send_one(second.client(), sent[5])["duplicate"] == 4
    send(second.client(), sent[6:])
    assert without_name(ended_report(second.client(), "moved")) == expected
    assert cluster.frames("moved") == 64
    cluster.start()


def test_an_analyzer_that_stood_still_and_lost_its_lease_cannot_write_any_more(
    cluster: Cluster, slow: Simulated, expected: dict[str, Any]
) -> None:
    sent = list(bodies(slow, senders(slow, job="zombie")))
    gateway = cluster.gateways[0].client()
    send(gateway, sent[:8])
    wait_until(lambda: cluster.frames("zombie") > 0, 30)
    still = cluster.owner_of("zombie")
    still.process.send_signal(signal.SIGSTOP)
    send(gateway, sent[8:12])
    wait_until(lambda: cluster.frames("zombie") == 48, 60)
    still.process.send_signal(signal.SIGCONT)
    send(gateway, sent[12:])
    assert without_name(ended_report(gateway, "zombie")) == expected
    assert cluster.frames("zombie") == 64
    wait_until(lambda: cluster.owned() == [32, 32], 60)


def test_a_message_that_is_no_frame_is_counted_and_taken_out_and_others_pass(
    cluster: Cluster, slow: Simulated, expected: dict[str, Any]
) -> None:
    async def publish(subject: str, data: bytes) -> None:
        connection = await connect(cluster.nats.url, cluster.anything)
        await connection.jetstream().publish(subject, data)
        await connection.close()

    sent = list(bodies(slow, senders(slow, job="poisoned")))
    gateway = cluster.gateways[0].client()
    before = given_up(cluster, "undecodable")
    send(gateway, sent[:8])
    asyncio.run(publish(subject_of("poisoned"), b"this is no frame"))
    send(gateway, sent[8:])
    assert without_name(ended_report(gateway, "poisoned")) == expected
    assert given_up(cluster, "undecodable") > before


def test_a_frame_that_the_database_refuses_is_given_up_and_others_pass(
    cluster: Cluster, postgres: PostgresServer, slow: Simulated, expected: dict[str, Any]
) -> None:
    database = cluster.database_url.rsplit("/", 1)[1]
    check = "ALTER TABLE rank_incarnations ADD CONSTRAINT c CHECK (node <> 'refused')"
    postgres.psql(check, database)
    try:
        gateway = cluster.gateways[0].client()
        before = given_up(cluster, "refused")
        sent = list(bodies(slow, senders(slow, job="beside")))
        refused = senders(slow, job="refused", node="refused")[0]
        send(gateway, sent[:8])
        assert gateway.post_frames(refused.frame([]))["accepted"] == 1
        send(gateway, sent[8:])
        assert without_name(ended_report(gateway, "beside")) == expected
        # More often where the word to NATS that it is given up was lost on its way.
        wait_until(lambda: given_up(cluster, "refused") > before, 60)
    finally:
        postgres.psql("ALTER TABLE rank_incarnations DROP CONSTRAINT c", database)
    cluster.wait_ready()
