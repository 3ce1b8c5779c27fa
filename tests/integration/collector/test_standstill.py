from __future__ import annotations

from pathlib import Path

from paceline.ranks import format_ranks
from paceline.vocabulary import Op, RecordKind
from paceline.wire.codec import encode_frame, encode_rows
from paceline.wire.frames import Frame, GroupDef, Pending, Sample
from paceline_service.importers.sources import analyze_paths
from tests.integration.collector.kit import (
    CollectorProcess,
    RankSender,
    bodies,
    post_all,
    senders,
    wait_until,
)
from tests.simulator.job import Simulated

S = 10**9
CULPRIT = 1


def heartbeat(sender: RankSender, job: Simulated, after_s: float, *, saving: bool = False) -> bytes:
    """A frame without records: all but the culprit wait in the collective after the last."""
    mine = [row for row in job.rows[sender.rank] if row[0] == RecordKind.COLLECTIVE]
    last_ns = max(row[8] for row in mine)
    now_ns = last_ns + int(after_s * S)
    step = 1 + max(row[4] for row in job.rows[sender.rank])
    seq = 1 + max(row[3] for row in mine)
    waits = sender.rank != CULPRIT
    frame = Frame(
        job=sender.job, run_id=sender.run_id, attempt=0, rank=sender.rank,
        world_size=sender.world_size, incarnation=sender.incarnation, frame_seq=sender.next_seq,
        node=sender.node, producer="python", count=0, columns=encode_rows([]), step=step,
        groups=[GroupDef(index=0, name=sender.groups[0][0], ranks=format_ranks(sender.groups[0][1]),
                         backend="gloo")],
        clock_domain=sender.clock_domain, anchor_mono_ns=sender.anchor[0],
        anchor_wall_ns=sender.anchor[1], read_mono_ns=now_ns,
        pending=[Pending(int(Op.ALL_REDUCE), 0, seq, step, -1, 64, last_ns + S)] if waits else [],
        checkpoint_mono_ns=last_ns + S if saving and not waits else 0,
        telemetry=[] if waits else [Sample(now_ns, {"stack": ["read (loader.py:3)"]})],
    )  # fmt: skip
    sender.next_seq += 1
    return encode_frame(frame)


def test_a_hung_job_is_named_by_its_heartbeats_and_so_is_its_export(
    shared: CollectorProcess, healthy: Simulated, tmp_path: Path
) -> None:
    client, ranks = shared.client(), senders(healthy, job="hung")
    post_all(client, bodies(healthy, ranks, end=False))
    post_all(client, [heartbeat(sender, healthy, 20) for sender in ranks])
    wait_until(lambda: client.report("hung")["job"]["steps"] > 50)
    assert client.report("hung")["verdict"] != "hang"
    post_all(client, [heartbeat(sender, healthy, 95) for sender in ranks])
    report = wait_until(lambda: (found := client.report("hung"))["verdict"] == "hang" and found)
    finding = next(one for one in report["findings"] if one["kind"] == "hang")
    assert (finding["ranks"], finding["collective"]["age_s"]) == ([CULPRIT], 94.0)
    assert any("stands in read (loader.py:3)" in line for line in finding["evidence"])
    pending = {
        row["rank"]: row["pending_s"] for row in client.get_json("/v1/jobs/hung/ranks")["ranks"]
    }
    assert pending == {0: 94.0, 1: None, 2: 94.0, 3: 94.0}
    path = tmp_path / "hung.ndjson"
    path.write_bytes(b"".join(client.stream("/v1/jobs/hung/event-log")))
    exported = analyze_paths([path]).report
    of_log = next(one for one in exported["findings"] if one["kind"] == "hang")
    assert (of_log["ranks"], of_log["collective"]) == (finding["ranks"], finding["collective"])
    assert of_log["evidence"] == finding["evidence"]


def test_a_rank_that_saves_a_checkpoint_is_excused_over_the_wire(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    client, ranks = shared.client(), senders(healthy, job="saving")
    post_all(client, bodies(healthy, ranks, end=False))
    post_all(client, [heartbeat(sender, healthy, 20, saving=True) for sender in ranks])
    post_all(client, [heartbeat(sender, healthy, 95, saving=True) for sender in ranks])
    wait_until(
        lambda: any("saving a checkpoint" in n for n in client.report("saving")["data"]["notes"])
    )
    assert client.report("saving")["verdict"] != "hang"
