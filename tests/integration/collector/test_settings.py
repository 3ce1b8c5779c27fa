from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from paceline.wire.codec import encode_frame, encode_rows
from paceline.wire.frames import Frame
from paceline_service.client import ProblemError
from paceline_service.control.pace import GATHER_S
from tests.integration.collector.kit import CollectorProcess, wait_until

PATH = "/v1/jobs/{}/settings"
RANKS = 2


class Ranks:
    """Two ranks of a job that send heartbeats, ten steps a second."""

    def __init__(self, collector: CollectorProcess, job: str) -> None:
        self.client = collector.client()
        self.job = job
        self.began_s = time.time() - 60
        self.sent = 0
        self.told: list[dict[str, Any]] = []

    @property
    def step(self) -> int:
        return int((time.time() - self.began_s) * 10)

    def send(self, follows: tuple[tuple[int, int], ...] = ((0, 0),) * RANKS) -> None:
        body = b""
        for rank, (generation, step) in enumerate(follows):
            frame = Frame(
                job=self.job, run_id="run", attempt=0, rank=rank, world_size=RANKS,
                incarnation=f"{hash(self.job) & 0xFFFFFFFF:024x}{rank:08x}", frame_seq=self.sent,
                node="n", producer="hooks", count=0, columns=encode_rows([]), step=self.step,
                sent_wall_ns=time.time_ns(), control_generation=generation, control_step=step,
            )  # fmt: skip
            body += encode_frame(frame)
        self.sent += 1
        self.told = self.client.post_frames(body)["settings"]


def put(collector: CollectorProcess, job: str, **change: Any) -> dict[str, Any]:
    return collector.client().put_json(PATH.format(job), change)


def test_a_change_is_agreed_once_the_pace_of_all_ranks_is_known_and_told_from_then_on(
    shared: CollectorProcess,
) -> None:
    ranks = Ranks(shared, "paced")
    ranks.send()
    shown = put(shared, "paced", level="collectives", stride=5)
    assert (shown["level"], shown["stride"], shown["enabled"]) == ("collectives", 5, True)
    assert shown["effective_step"] is None
    assert shown["updated_by"] == "PACELINE_TOKEN"
    assert ranks.told == []

    def told() -> list[dict[str, Any]]:
        ranks.send()
        time.sleep(0.5)
        return ranks.told

    (one,) = wait_until(told, GATHER_S)
    assert one == {
        "job": "paced", "run_id": "run", "attempt": 0, "generation": shown["generation"],
        "effective_step": one["effective_step"], "level": "collectives", "stride": 5,
        "telemetry_interval_s": None,
    }  # fmt: skip
    assert ranks.step + 20 < one["effective_step"] < ranks.step + 250
    other = Ranks(shared, "other")
    other.send()
    assert other.told == []

    agreed = one["effective_step"]
    ranks.send(((one["generation"], agreed), (one["generation"], agreed + 3)))
    now = shared.client().get_json(PATH.format("paced"))
    assert now["ranks"] == {
        "follows": "0", "waits": "", "missed": {"1": agreed + 3}, "silent": "",
    }  # fmt: skip

    def noted() -> bool:
        notes = shared.client().report("paced")["data"]["notes"]
        return any(note.startswith("rank 1 changed what it records") for note in notes)

    wait_until(noted)
    text = command(shared, "paced").stdout
    assert f"level collectives, one step in 5\nfrom step {agreed} on\n  ranks 0 follow" in text
    assert f"rank 1 heard of it too late and follows from step {agreed + 3} on" in text


@pytest.mark.parametrize(
    "change",
    [{"level": "everything"}, {"stride": 0}, {"stride": 10_001}, {"stride": 1.5}, {"level": None},
     {"telemetry_interval_s": 0.01}, {"telemetry_interval_s": 61}, {"colour": "red"}],
)  # fmt: skip
def test_what_is_out_of_range_is_refused_and_nothing_changes(
    shared: CollectorProcess, change: dict[str, Any]
) -> None:
    Ranks(shared, "strict").send()
    with pytest.raises(ProblemError) as refused:
        put(shared, "strict", **change)
    assert refused.value.status == 422
    assert shared.client().get_json(PATH.format("strict"))["generation"] == 0


def test_an_empty_change_and_a_job_that_is_not_known_are_refused(shared: CollectorProcess) -> None:
    Ranks(shared, "strict").send()
    with pytest.raises(ProblemError, match="nothing is to change"):
        put(shared, "strict")
    with pytest.raises(ProblemError) as unknown:
        put(shared, "nobody", level="off")
    assert unknown.value.status == 404


def test_only_admin_tokens_that_cover_the_job_may_change_it(shared: CollectorProcess) -> None:
    Ranks(shared, "team-a.llm").send()
    Ranks(shared, "team-b.llm").send()

    def token(*arguments: str) -> str:
        done = subprocess.run(
            shared.command("--new-token", *arguments), env=shared.environ(), check=True,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return next(word for word in done.stdout.split() if word.startswith("plt_"))

    for scope in ("ingest", "read"):
        client = shared.client(token(scope))
        with pytest.raises(ProblemError) as refused:
            client.put_json(PATH.format("team-a.llm"), {"level": "off"})
        assert refused.value.status == 403
    own = shared.client(token("admin", "--job-prefix", "team-a"))
    assert own.put_json(PATH.format("team-a.llm"), {"level": "off"})["level"] == "off"
    with pytest.raises(ProblemError) as foreign:
        own.put_json(PATH.format("team-b.llm"), {"level": "off"})
    assert foreign.value.status == 403
    with pytest.raises(ProblemError) as nobody:
        shared.client("").put_json(PATH.format("team-a.llm"), {"level": "off"})
    assert nobody.value.status == 401


def test_off_and_on_keep_the_level_and_null_goes_back_to_the_sidecars_interval(
    shared: CollectorProcess,
) -> None:
    Ranks(shared, "kept").send()
    put(shared, "kept", level="collectives", telemetry_interval_s=0.1)
    first = put(shared, "kept", enabled=False)
    assert (first["level"], first["enabled"], first["telemetry_interval_s"]) == (
        "collectives", False, 0.1,
    )  # fmt: skip
    second = put(shared, "kept", enabled=True, telemetry_interval_s=None)
    assert (second["level"], second["telemetry_interval_s"]) == ("collectives", None)
    assert second["generation"] > first["generation"]


def command(
    collector: CollectorProcess, job: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PACELINE_")}
    environment |= {"PACELINE_STATE_DIR": str(collector.directory), **collector.environment}
    return subprocess.run(
        [sys.executable, "-m", "paceline", "settings", job, "--url", collector.url, *arguments],
        capture_output=True, text=True, timeout=60, env=environment, check=False,
    )  # fmt: skip


def test_the_command_shows_and_changes(shared: CollectorProcess) -> None:
    Ranks(shared, "by-hand").send()
    assert "nobody asked" in command(shared, "by-hand").stdout
    changed = command(shared, "by-hand", "--off", "--telemetry-interval-s", "0")
    assert changed.returncode == 0
    assert "off (level full when it is on again)\nno telemetry\nno step is agreed" in changed.stdout
    again = command(shared, "by-hand", "--on", "--telemetry-interval-s", "-1", "--format", "json")
    assert json.loads(again.stdout)["telemetry_interval_s"] is None
    refused = command(shared, "by-hand", "--stride", "0")
    assert refused.returncode == 2
    assert "422" in refused.stderr
    assert command(shared, "nobody").returncode == 2
