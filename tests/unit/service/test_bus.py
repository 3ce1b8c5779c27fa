from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from nats.js import api

from paceline.errors import ConfigError
from paceline.wire.codec import encode_frame, encode_rows
from paceline.wire.frames import Frame
from paceline_service.bus import analyzer, states
from paceline_service.bus.connection import Bus
from paceline_service.bus.ownership import share_of
from paceline_service.bus.publisher import Publisher
from paceline_service.bus.stats import BusStats
from paceline_service.bus.subjects import (
    PARTITIONS,
    filter_of,
    message_id,
    partition_of,
    subject_of,
)
from paceline_service.bus.wiring import bus_parts
from paceline_service.errors import BusUnavailableError, OverloadedError
from paceline_service.ingest.decoding import IncomingFrame, decode_message
from paceline_service.settings import CollectorSettings
from paceline_service.store.database import Database


def frame(**values: object) -> Frame:
    told = {
        "job": "j", "run_id": "r", "attempt": 0, "rank": 0, "world_size": 1,
        "incarnation": "a" * 32, "frame_seq": 7, "node": "n", "producer": "p", "count": 0,
        "columns": encode_rows([]),
    }  # fmt: skip
    return Frame(**{**told, **values})  # type: ignore[arg-type]


def test_a_job_has_one_partition_in_every_version() -> None:
    # A change of these would give jobs two owners while old and new processes run.
    assert PARTITIONS == 64
    assert [partition_of(job) for job in ("train", "llama-70b", "a.b")] == [35, 51, 29]


@pytest.mark.parametrize("job", ["a", "a.b", "a..b", ".", "A_b-c.9"])
def test_a_subject_has_four_tokens_whatever_the_job_is_called(job: str) -> None:
    tokens = subject_of(job).split(".")
    assert len(tokens) == 4
    assert subject_of(job).startswith(filter_of(partition_of(job)).removesuffix("*"))


def test_jobs_whose_names_differ_in_a_dot_have_different_subjects() -> None:
    names = ["a.b", "a%2Eb", "a-b", "a_b", "ab", "a..b"]
    assert len({subject_of(name) for name in names}) == len(names)


def test_the_id_of_a_message_is_one_line_whatever_the_run_id_holds() -> None:
    told = message_id(frame(run_id="a\r\nNats-Rollup: all/ ä"))
    assert not set(told) & set("\r\n :")
    assert told.count("/") == 4
    assert told.endswith("/7")
    assert told != message_id(frame(run_id="a\r\nNats-Rollup: all/ b"))


@pytest.mark.parametrize("analyzers", [1, 2, 3, 7, 64, 100])
def test_partitions_are_shared_fairly_and_completely(analyzers: int) -> None:
    names = [f"analyzer-{number:03}" for number in range(analyzers)]
    shares = [share_of(names, name) for name in names]
    assert sum(shares) == PARTITIONS
    assert max(shares) - min(shares) <= 1


def test_an_analyzer_that_is_not_seen_alive_is_due_nothing() -> None:
    assert share_of(["a", "b"], "c") == 0


def settings(tmp_path: Path, **values: object) -> CollectorSettings:
    return CollectorSettings(state_dir=tmp_path, **values)  # type: ignore[arg-type]


def test_a_role_without_a_bus_is_refused_with_the_remedy(tmp_path: Path) -> None:
    told = settings(tmp_path, role="gateway")
    with pytest.raises(ConfigError, match="--bus nats://"):
        bus_parts(told, Database(told.database_url))


def test_a_bus_with_sqlite_is_refused_with_the_remedy(tmp_path: Path) -> None:
    told = settings(tmp_path, bus="nats://127.0.0.1:1")
    with pytest.raises(ConfigError, match="--database postgresql://"):
        bus_parts(told, Database(told.database_url))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (None, "cannot be read: No such file"),
        ("SUAKQ3 is no key", "have no NATS USER JWT and no USER NKEY SEED in them: nsc generate"),
        (
            "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n"
            "-----BEGIN USER NKEY SEED-----\nSUAKQ3\n------END USER NKEY SEED------\n",
            "is not whole, or not that of a user",
        ),
    ],
)
def test_credentials_that_cannot_be_used_are_refused_at_the_start_without_their_secret(
    tmp_path: Path, text: str | None, part: str
) -> None:
    path = tmp_path / "user.creds"
    if text is not None:
        path.write_text(text)
    told = settings(
        tmp_path, bus="nats://127.0.0.1:1", bus_credentials=path, database="postgresql://a/b"
    )
    with pytest.raises(ConfigError) as refused:
        bus_parts(told, Database(told.database_url))
    assert part in str(refused.value)
    assert str(path) in str(refused.value)
    assert "SUAKQ3" not in str(refused.value)


def test_the_password_of_a_bus_is_not_shown(tmp_path: Path) -> None:
    told = settings(tmp_path, bus="nats://user:hunter2@a:4222,nats://b:4222")
    assert "hunter2" not in repr(told)
    assert told.bus_servers == ["nats://user:hunter2@a:4222", "nats://b:4222"]
    bus = Bus(told.bus_servers, stream="S", limits=api.StreamConfig())
    assert bus.shown == "a:4222,b:4222"
    assert Bus(["nats://a"], stream="S", limits=api.StreamConfig()).shown == "a:4222"


def test_without_a_bus_nats_is_not_imported() -> None:
    program = (
        "import sys; from paceline_service.app import create_app; "
        "from paceline_service.settings import CollectorSettings; "
        "create_app(CollectorSettings()); assert 'nats' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def test_without_a_connection_frames_are_refused_at_once() -> None:
    bus = Bus(["nats://127.0.0.1:1"], stream="S", limits=api.StreamConfig())
    publisher = Publisher(bus, queue_bytes=1000, stats=BusStats())
    with pytest.raises(BusUnavailableError, match=r"127\.0\.0\.1:1"):
        await publisher.submit([incoming(100)])
    assert publisher.waiting_bytes == 0


async def test_what_waits_for_the_bus_is_bounded() -> None:
    stats = BusStats(waiting_bytes=950)
    publisher = Publisher(SimpleNamespace(), queue_bytes=1000, stats=stats)  # type: ignore[arg-type]
    with pytest.raises(OverloadedError, match=r"950 bytes wait.*limit is 1000"):
        await publisher.submit([incoming(100)])
    assert publisher.stats.refused["publish_queue"] == 1


def incoming(size: int) -> IncomingFrame:
    return IncomingFrame(frame=frame(), packed=bytes(size), offset=0)


def test_a_message_that_holds_no_frame_says_why_in_a_word() -> None:
    good = encode_frame(frame())
    assert isinstance(decode_message(good, max_world_size=8), IncomingFrame)
    assert decode_message(good[:-1], max_world_size=8) == "undecodable"
    assert decode_message(b"", max_world_size=8) == "undecodable"
    large = encode_frame(frame(world_size=9))
    assert decode_message(large, max_world_size=8) == "limit"


def analyzer_of(database: object, stats: BusStats) -> analyzer.Analyzer:
    registry = SimpleNamespace(forget_jobs=lambda covers: None)
    return analyzer.Analyzer(
        SimpleNamespace(), database, SimpleNamespace(registry=registry), SimpleNamespace(),  # type: ignore[arg-type]
        lambda covers: None, owner="a", ttl_s=1, rebuild_window_s=1, max_world_size=8, stats=stats,
    )  # fmt: skip


async def test_the_lag_of_a_partition_that_was_lost_while_it_was_asked_for_is_not_told() -> None:
    stats, asked, answer = BusStats(), asyncio.Event(), asyncio.Event()

    async def lag() -> int:
        asked.set()
        await answer.wait()
        return 7

    owner = analyzer_of(None, stats)
    worker = SimpleNamespace(bound=True, lag=lag)
    owner._running[5] = SimpleNamespace(worker=worker, tasks=())  # type: ignore[assignment]
    watch = asyncio.create_task(owner._watch_lag())
    await asked.wait()
    await owner._lost({5})
    answer.set()
    await asyncio.sleep(0.01)
    assert stats.lag == {}
    watch.cancel()


class Unforeseen:
    """A database whose reads fail; a driver may raise what nobody listed."""

    def __init__(self) -> None:
        self.reads = 0
        self.again = asyncio.Event()

    def read(self) -> None:
        self.reads += 1
        if self.reads > 2:
            self.again.set()
        raise RuntimeError("what nobody foresaw")


async def test_what_runs_for_months_beside_the_bus_outlives_an_error_that_nobody_foresaw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states, "POLL_S", 0.001)
    monkeypatch.setattr(analyzer, "LOAD_RETRY_S", 0.001)
    watched, loaded = Unforeseen(), Unforeseen()
    stored = states.StoredStates(watched, SimpleNamespace(), bool, lambda _: None)  # type: ignore[arg-type, return-value]
    stored.start()
    taking = analyzer_of(loaded, BusStats())
    load = asyncio.create_task(taking._load(frozenset({1})))
    await asyncio.wait_for(asyncio.gather(watched.again.wait(), loaded.again.wait()), 40)
    load.cancel()
    await stored.stop()
