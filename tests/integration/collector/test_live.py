from __future__ import annotations

import itertools
import threading
import time

from paceline_service.client import Event
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    steps_of,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Simulated


def first_events(
    collector: CollectorProcess, job: str, count: int, last: str | None
) -> list[Event]:
    with collector.client() as client:
        return list(itertools.islice(client.stream_events(job, last_event_id=last), count))


def test_events_tell_the_report_and_the_new_steps_and_resume(
    shared: CollectorProcess, slow_backward: Simulated
) -> None:
    posted = list(bodies(slow_backward, senders(slow_backward, job="events")))
    client = shared.client()
    post_all(client, posted[:8])
    wait_until(lambda: client.report("events")["job"]["steps"] == 79)
    first = first_events(shared, "events", 2, None)
    assert [event.name for event in first] == ["steps", "report"]
    assert first[0].data["steps"] == list(range(19, 79))
    assert first[0].id == "1-78"
    assert first[1].data["job"]["name"] == "events"
    resumed = first_events(shared, "events", 1, "1-70")
    assert resumed[0].data["steps"] == list(range(71, 79))

    seen: list[Event] = []

    def follow() -> None:
        for event in shared.client().stream_events("events", last_event_id="1-78"):
            seen.append(event)
            if event.name == "report" and event.data["job"]["state"] == "ended":
                return

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    for body in posted[8:]:
        client.post_frames(body)
        time.sleep(0.1)
    reader.join(40)
    assert not reader.is_alive()
    told = [step for event in seen if event.name == "steps" for step in event.data["steps"]]
    assert told == list(range(79, 160))
    assert seen[-1].data["verdict"] == "straggler"


def test_an_id_from_beyond_the_job_begins_anew(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    post_all(shared.client(), bodies(healthy, senders(healthy, job="anew")))
    wait_for_state(shared.client(), "anew", "ended")
    told = first_events(shared, "anew", 2, "1-100000")
    assert told[0].name == "reload"
    assert "the newest step is 59" in told[0].data["reason"]
    assert told[1].data["steps"] == list(range(60))


def test_streams_end_when_the_collector_stops(
    collector: CollectorProcess, healthy: Simulated
) -> None:
    post_all(collector.client(), bodies(healthy, senders(healthy), end=False))
    ended = threading.Event()

    def follow() -> None:
        for _ in collector.client().stream_events("train"):
            pass
        ended.set()

    threading.Thread(target=follow, daemon=True).start()
    time.sleep(1)
    assert collector.stop() == 0
    assert ended.wait(30)
    assert "graceful shutdown exceeded" not in collector.log.read_text()


def test_a_clock_that_jumps_backwards_moves_no_step_and_no_verdict(
    shared: CollectorProcess, slow_backward: Simulated
) -> None:
    client = shared.client()
    ranks = senders(slow_backward, job="jump")
    hour_ns = 3600 * 10**9
    for number, body in enumerate(bodies(slow_backward, ranks)):
        client.post_frames(body)
        for sender in ranks:
            mono_ns, wall_ns = sender.anchor
            back_ns = hour_ns if number == 7 else 0
            sender.anchor = (mono_ns + 10**9, wall_ns + 10**9 - back_ns)
    wait_for_state(client, "jump", "ended")
    steps = client.get_json("/v1/jobs/jump/steps")
    starts = steps["start_wall_ns"]
    assert starts == sorted(starts)
    assert starts[-1] - starts[0] < 60 * 10**9
    report = client.report("jump")
    assert report["findings"][0]["ranks"] == [2]
    assert any("set back" in note for note in report["data"]["notes"])


def test_a_rank_that_joins_late_is_noted_and_does_not_stop_the_others(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    client = shared.client()
    ranks = senders(healthy, job="late")
    post_all(client, [s.frame(steps_of(healthy.rows[s.rank], 0, 40)) for s in ranks if s.rank != 3])
    wait_until(lambda: client.get_json("/v1/jobs/late")["ranks_seen"] == 3)
    post_all(client, [ranks[3].frame(steps_of(healthy.rows[3], 0, 40))])
    post_all(
        client, [s.frame(steps_of(healthy.rows[s.rank], 40, 60), ended="closed") for s in ranks]
    )
    wait_for_state(client, "late", "ended")
    report = client.report("late")
    assert report["job"]["ranks_observed"] == 4
    assert report["job"]["steps"] == 60
    assert any("rank 3 joined late" in note for note in report["data"]["notes"])


def test_a_killed_rank_is_told_and_the_job_ends(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    client = shared.client()
    ranks = senders(healthy, job="killed")
    for sender in ranks:
        how = "killed" if sender.rank == 1 else "closed"
        until = 30 if sender.rank == 1 else 31
        client.post_frames(sender.frame(steps_of(healthy.rows[sender.rank], 0, until), ended=how))
    wait_for_state(client, "killed", "ended")
    ended = [row["ended"] for row in client.get_json("/v1/jobs/killed/ranks")["ranks"]]
    assert ended == ["closed", "killed", "closed", "closed"]


def test_ranks_restarted_within_an_attempt_count_their_steps_on(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    client = shared.client()
    post_all(client, bodies(healthy, senders(healthy, job="again")))
    again = senders(healthy, job="again")
    for sender in again:
        sender.incarnation = f"{sender.rank + 64:032x}"
    post_all(client, bodies(healthy, again))
    wait_until(lambda: client.report("again")["job"]["steps"] == 120, 15)
    report = client.report("again")
    assert sum("restarted within the attempt" in n for n in report["data"]["notes"]) == 4
    steps = client.get_json("/v1/jobs/again/steps")["steps"]
    assert steps == list(range(120))


def test_frames_out_of_order_are_put_in_order_and_a_lost_one_is_counted(
    collector: CollectorProcess, healthy: Simulated
) -> None:
    collector.stop()
    collector.environment["PACELINE_SERVE_REORDER_WAIT_S"] = "1"
    collector.start()
    client = collector.client()
    posted = list(bodies(healthy, senders(healthy), steps_per_frame=10))
    for number in (1, 0, 3, 2):
        client.post_frames(posted[number])
    wait_until(lambda: client.report("train")["job"]["steps"] == 39)
    client.post_frames(posted[5])
    wait_for_state(client, "train", "ended")
    report = client.report("train")
    assert report["data"]["dropped"]["frames_missing"] == 4
    assert not report["data"]["complete"]
    ranks = client.get_json("/v1/jobs/train/ranks")["ranks"]
    assert [row["dropped"] for row in ranks] == [{"frames_missing": 1}] * 4
    collector.kill()
    collector.start()
    assert collector.client().report("train") == report
