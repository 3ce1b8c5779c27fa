"""``paceline database``: by hand, on both databases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline_service.commands.database import main
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.integration.postgres import rows
from tests.simulator.job import Fault, Phase, Scenario, simulate


def test_a_stopped_collector_moves_from_sqlite_to_postgresql_with_all_that_it_knew(
    tmp_path: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=15, first=60)
    job = simulate(Scenario(steps=120, faults=(fault,), seed=3))
    process = CollectorProcess(tmp_path / "state").start()
    client = process.client()
    sending = senders(job)
    posted = list(bodies(job, sending))
    post_all(client, posted)
    wait_for_state(client, "train", "ended", 60)
    wait_until(lambda: client.get_json("/v1/jobs/train/incidents")["incidents"])
    told = client.report("train")
    source = f"sqlite:///{process.database}"
    assert main(["copy", "--database", source, "--to", postgres_url]) == 2
    assert "stop it" in capsys.readouterr().err
    assert process.stop() == 0
    assert main(["copy", "--database", source, "--to", postgres_url]) == 0
    assert "frames" in capsys.readouterr().out
    moved = CollectorProcess(tmp_path / "moved", database_url=postgres_url).start()
    try:
        client = moved.client()
        assert client.report("train") == told
        assert client.post_frames(posted[0])["duplicate"] == 4
        assert client.get_json("/v1/jobs/train/incidents")["incidents"]
        second = senders(job, run_id="run-2")
        assert post_all(client, list(bodies(job, second))[:1]) == 4
        assert rows(postgres_url, "SELECT MIN(id), COUNT(*) FROM frames") == [(1, 52)]
        assert rows(postgres_url, "SELECT COUNT(*) FROM job_attempts") == [(2,)]
    finally:
        assert moved.stop() == 0
    assert main(["copy", "--database", source, "--to", postgres_url]) == 2
    assert "give an empty one" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_schema_is_shown_taken_back_and_brought_forward(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'paceline.db'}"
    if kind == "postgresql":
        url = request.getfixturevalue("postgres_url")
    else:
        assert main(["status", "--database", url]) == 2
        assert "there is no database" in capsys.readouterr().err
    assert main(["upgrade", "--database", url]) == 0
    capsys.readouterr()
    assert main(["status", "--database", url, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == told["newest"]
    assert told["rows"]["frames"] == 0
    assert main(["downgrade", "--database", url, "--to", "0003"]) == 0
    assert main(["status", "--database", url]) == 0
    assert "schema 0003" in capsys.readouterr().out
    assert main(["downgrade", "--database", url, "--to", "0007"]) == 2
    assert "0001, 0002" in capsys.readouterr().err
    assert main(["upgrade", "--database", url]) == 0
    assert "0003 -> " in capsys.readouterr().out
