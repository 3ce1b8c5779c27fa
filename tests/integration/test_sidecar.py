from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.wire.bundle_codec import decode_any
from paceline.wire.codec import split_frames
from tests.integration.sidecar_kit import TOKEN, FakeCollector, Processes, wait_until


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.stop()


def test_every_record_of_a_closed_ring_arrives_once_and_the_ring_is_removed(
    processes: Processes,
) -> None:
    with FakeCollector() as collector:
        sidecar = processes.sidecar("--url", collector.url, "--exit-when-idle")
        processes.writer(total=5000)
        assert sidecar.wait(60) == 0
    assert collector.got.sequences() == list(range(5000))
    assert collector.got.ended() == ["closed"]
    assert collector.got.dropped() == {}
    assert list(processes.runtime_dir.glob("*.ring")) == []
    frame = next(f for f in collector.got.frames.values() if f.count)
    assert [(g.name, g.ranks, g.mesh_dim) for g in frame.groups] == [("dp", "0", "dp")]
    assert (frame.job, frame.node, frame.info) == ("job-a", "node-a", {"torch": "9.9"})
    assert frame.anchor_wall_ns > 0
    assert frame.clock_domain


def test_token_is_sent_and_never_logged(processes: Processes) -> None:
    with FakeCollector() as collector:
        collector.answer = lambda body: (401, {}, {"detail": "unknown token"})
        processes.sidecar("--url", collector.url)
        processes.writer(total=10)
        wait_until(lambda: "HTTP 401" in processes.log.read_text())
        assert collector.got.tokens == {f"Bearer {TOKEN}"}
        time.sleep(0.3)
        assert collector.got.posts == 1  # and is not hammered with a token that it refused
    text = processes.log.read_text()
    assert TOKEN not in text
    assert text.count("HTTP 401") == 1


def test_token_that_no_header_can_carry_is_not_logged_either(processes: Processes) -> None:
    with FakeCollector() as collector:
        processes.sidecar("--url", collector.url, PACELINE_TOKEN="secret\nvalue")
        processes.writer(total=10)
        wait_until(lambda: "no HTTP header" in processes.log.read_text())
    assert "secret" not in processes.log.read_text()


def test_writer_killed_in_the_middle_of_a_collective_is_reported_with_what_was_pending(
    processes: Processes,
) -> None:
    with FakeCollector() as collector:
        sidecar = processes.sidecar("--url", collector.url, "--exit-when-idle")
        writer = processes.writer(total=100, end="pending")
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.kill()
        assert sidecar.wait(60) == 0
    assert collector.got.sequences() == list(range(99))
    assert collector.got.ended() == ["killed"]
    last = next(f for f in collector.got.frames.values() if f.ended)
    assert [(p.group, p.seq) for p in last.pending] == [(0, 99)]
    assert [g.index for g in last.groups] == [0]


def test_a_sidecar_killed_again_and_again_neither_loses_nor_repeats_a_record(
    processes: Processes,
) -> None:
    with FakeCollector() as collector:
        writers = [processes.writer(rank=rank, world=2, total=2400, per_s=600) for rank in range(2)]
        for _ in range(5):
            sidecar = processes.sidecar("--url", collector.url)
            time.sleep(0.55)
            sidecar.kill()
            sidecar.wait()
        sidecar = processes.sidecar("--url", collector.url, "--exit-when-idle")
        for writer in writers:
            assert writer.wait(60) == 0
        assert sidecar.wait(60) == 0
    for rank in range(2):
        assert collector.got.sequences(rank) == list(range(2400))
        numbers = sorted(s for (_, s), f in collector.got.frames.items() if f.rank == rank)
        assert numbers == list(range(len(numbers)))
    assert collector.got.ended() == ["closed", "closed"]


def test_rings_of_writers_that_died_before_the_sidecar_started_are_read(
    processes: Processes,
) -> None:
    closed = processes.writer(rank=0, world=2, total=700)
    assert closed.wait(60) == 0
    killed = processes.writer(rank=1, world=2, total=300, end="hang")
    assert killed.stdout is not None
    killed.stdout.readline()
    killed.kill()
    killed.wait()
    with FakeCollector() as collector:
        assert processes.sidecar("--url", collector.url, "--drain").wait(60) == 0
    assert collector.got.sequences(0) == list(range(700))
    assert collector.got.sequences(1) == list(range(300))
    assert sorted(collector.got.ended()) == ["closed", "killed"]


def test_collector_that_is_away_for_a_while_gets_everything_when_it_is_back(
    processes: Processes,
) -> None:
    with FakeCollector() as first:
        port = first.port
        sidecar = processes.sidecar("--url", first.url, "--exit-when-idle")
        writer = processes.writer(total=2000, per_s=500)
        wait_until(lambda: len(first.got.frames) >= 2)
    wait_until(lambda: "kept in the spool" in processes.log.read_text())
    assert writer.wait(60) == 0
    with FakeCollector(port) as second:
        assert sidecar.wait(25) == 0
    assert set(first.got.frames).isdisjoint(second.got.frames)
    second.got.frames.update(first.got.frames)
    assert second.got.sequences() == list(range(2000))
    assert "takes frames again" in processes.log.read_text()


def test_what_sigterm_could_not_send_is_sent_by_the_next_sidecar(processes: Processes) -> None:
    unreachable = FakeCollector()
    unreachable.close()
    sidecar = processes.sidecar("--url", unreachable.url, "--drain-s", "0.3")
    writer = processes.writer(total=900)
    assert writer.wait(60) == 0
    wait_until(lambda: not list(processes.runtime_dir.glob("*.ring")))
    sidecar.terminate()
    assert sidecar.wait(60) == 0
    with FakeCollector(unreachable.port) as collector:
        assert processes.sidecar("--url", collector.url, "--drain").wait(60) == 0
    assert collector.got.sequences() == list(range(900))
    assert list((processes.runtime_dir / "spool").glob("*.seg")) == []


def test_left_over_rings_do_not_end_a_sidecar_that_waits_for_its_job(
    processes: Processes,
) -> None:
    left_over = processes.writer(total=30)
    assert left_over.wait(60) == 0
    time.sleep(1.1)
    with FakeCollector() as collector:
        sidecar = processes.sidecar("--url", collector.url, "--exit-when-idle")
        wait_until(lambda: collector.got.ended() == ["closed"])
        time.sleep(1.3)
        assert sidecar.poll() is None
        processes.writer(total=40)
        assert sidecar.wait(60) == 0
    assert len(collector.got.ended()) == 2


def test_interrupt_ends_it_like_sigterm(processes: Processes) -> None:
    with FakeCollector() as collector:
        sidecar = processes.sidecar("--url", collector.url)
        writer = processes.writer(total=100, end="hang")
        assert writer.stdout is not None
        writer.stdout.readline()
        wait_until(lambda: len(collector.got.frames) > 0)
        sidecar.send_signal(signal.SIGINT)
        assert sidecar.wait(60) == 0
    assert collector.got.sequences() == list(range(100))


def test_busy_collector_is_left_alone_for_as_long_as_it_asks(processes: Processes) -> None:
    with FakeCollector() as collector:
        times: list[float] = []

        def busy_once(body: bytes) -> tuple[int, dict[str, str], object] | None:
            times.append(time.monotonic())
            return (503, {"Retry-After": "1"}, {}) if len(times) == 1 else None

        collector.answer = busy_once
        sidecar = processes.sidecar("--url", collector.url, "--exit-when-idle")
        processes.writer(total=50)
        assert sidecar.wait(60) == 0
    assert times[1] - times[0] >= 1.0
    assert collector.got.sequences() == list(range(50))


def test_refused_frames_are_dropped_and_counted_in_the_next_ones(processes: Processes) -> None:
    with FakeCollector() as collector:
        refused: list[bytes] = []

        def refuse_first_data(body: bytes) -> tuple[int, dict[str, str], object] | None:
            first = next(iter(split_frames(body)))
            if not refused and isinstance(first, bytes) and decode_any(first).count:
                refused.append(body)
                listed = [{"offset": 0, "reason": "not today"}]
                return 200, {}, {"accepted": 0, "duplicate": 0, "rejected": listed}
            return None

        collector.answer = refuse_first_data
        sidecar = processes.sidecar("--url", collector.url, "--exit-when-idle")
        processes.writer(total=1500, per_s=400)
        assert sidecar.wait(60) == 0
    arrived = collector.got.sequences()
    lost = collector.got.dropped()["collector_refused"]
    assert lost > 0
    assert len(arrived) + lost == 1500
    assert "not today" in processes.log.read_text()


def test_ring_that_is_overwritten_faster_than_it_is_read_is_counted(processes: Processes) -> None:
    with FakeCollector() as collector:
        writer = processes.writer(total=5000, capacity=256)
        assert writer.wait(60) == 0
        assert processes.sidecar("--url", collector.url, "--drain").wait(60) == 0
    arrived = collector.got.sequences()
    assert arrived == list(range(5000 - 255, 5000))
    assert collector.got.dropped() == {"ring_overwritten": 5000 - 255}


def test_files_that_are_no_rings_are_reported_once_and_left(processes: Processes) -> None:
    processes.runtime_dir.mkdir()
    bad = processes.runtime_dir / "bad.ring"
    bad.write_bytes(b"no ring at all" * 1000)
    with FakeCollector() as collector:
        sidecar = processes.sidecar("--url", collector.url, "--exit-when-idle")
        processes.writer(total=20)
        assert sidecar.wait(60) == 0
    assert collector.got.sequences() == list(range(20))
    assert processes.log.read_text().count("bad.ring") == 1
    assert bad.exists()


def test_second_sidecar_for_the_same_directory_leaves(processes: Processes) -> None:
    with FakeCollector() as collector:
        processes.sidecar("--url", collector.url)
        wait_until(lambda: "serving" in processes.log.read_text())
        assert processes.sidecar("--url", collector.url).wait(60) == 0
    assert "another sidecar serves" in processes.log.read_text()


def test_sidecar_without_a_goal_says_what_to_set(processes: Processes) -> None:
    assert processes.sidecar().wait(60) == 2
    assert "PACELINE_URL" in processes.log.read_text()


def test_sidecar_whose_starter_and_collector_are_gone_ends_and_leaves_its_spool(
    processes: Processes,
) -> None:
    unreachable = FakeCollector()
    unreachable.close()
    code = (
        "import sys, paceline.sidecar.main as m; m.ORPHAN_DRAIN_S = 0.5; sys.exit(m.main(["
        f"'--runtime-dir', {str(processes.runtime_dir)!r}, '--url', {unreachable.url!r},"
        "'--exit-when-idle', '--interval-s', '0.05']))"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys, time\n"
         f"child = subprocess.Popen([sys.executable, '-c', {code!r}], stderr=subprocess.DEVNULL)\n"
         "print(child.pid, flush=True)\ntime.sleep(60)"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert starter.stdout is not None
    sidecar = int(starter.stdout.readline())
    assert processes.writer(total=50).wait(60) == 0
    wait_until(lambda: not list(processes.runtime_dir.glob("*.ring")))
    starter.kill()
    starter.wait()
    starter.stdout.close()
    wait_until(lambda: not has_process(sidecar))
    assert list((processes.runtime_dir / "spool").glob("*.seg"))


def has_process(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
