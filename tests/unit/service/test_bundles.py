"""Bundles give the analysis what the frames of their members would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from paceline.wire.bundle_codec import decode_any, frames_of
from paceline.wire.bundles import Bundle
from paceline.wire.codec import decode_frame, encode_frame, encode_rows
from paceline.wire.frames import Frame, GroupDef, Pending, Sample
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import COLUMNS, Group
from paceline_service.jobs.columns import decode_bundles, decode_frames
from paceline_service.jobs.feed import FrameFeed
from paceline_service.store.frames import AttemptRef, CommittedFrame
from tests.fakes.bundles import STREAM, bundle_of

WORLD = 4
WAIT_NS = 10**10
ATTEMPT = AttemptRef(
    id=1, job="j", ordinal=1, run_id="r", launch_attempt=0, world_size=WORLD, first_seen_wall_ns=1
)
ALL = GroupDef(index=0, name="dp", ranks=f"0-{WORLD - 1}", backend="nccl")
TELLING = {
    1: {"pending": [Pending(1, 0, 7, 2, -1, 64, 5 << 20)], "dropped": {"ring_torn": 3},
        "checkpoint_mono_ns": 4 << 20},
    2: {"info": {"torch": "2.9"}, "telemetry": [Sample(9, {"gpu_util": 50})],
        "control_generation": 2, "control_step": 5},
}  # fmt: skip


def frame(rank: int, seq: int, **values: Any) -> Frame:
    """A frame with one step: two collectives, one of them not waited for, and the step."""
    began = ((seq + 1) << 30) + (rank << 12)
    rows = [
        (1, 1, 0, 2 * seq + i, seq, -1, 1 << 24, began + (i << 20), began + (i << 20) + (3 << 14),
         began + (i << 20) + 512 * i, began + (i << 20) if i else 0, rank)
        for i in range(2)
    ]  # fmt: skip
    rows.append((3, 0, 0, 0, seq, -1, 0, began, began + (1 << 29), 0, 0, 0))
    rows = rows[: values.pop("rows", 3)]
    whole = {
        "job": "j", "run_id": "r", "attempt": 0, "rank": rank, "world_size": WORLD,
        "local_rank": rank % 2, "incarnation": f"{rank:032x}", "frame_seq": seq, "node": "n",
        "producer": "hooks", "count": len(rows), "columns": encode_rows(rows), "groups": [ALL],
        "clock_domain": "boot", "anchor_mono_ns": 1000 + rank, "anchor_wall_ns": 10**9 + rank,
        "sent_wall_ns": 10**12 + seq, "step": seq + 1, "read_mono_ns": began + (1 << 29),
        **values,
    }  # fmt: skip
    return decode_frame(encode_frame(Frame(**whole)))


class Log:
    """A sink that keeps every call, the records of each rank apart."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.rows: dict[int, list[tuple[int, ...]]] = {}
        self.calls: dict[tuple[str, int], list[Any]] = {}

    def declare_rank(self, rank: int, **where: str) -> None:
        self._note("declare", rank, where)

    def declare_group(self, group: Group) -> int:
        self.groups.append(group)
        return len(self.groups) - 1

    def add_table(self, table: Table) -> None:
        values = zip(*(getattr(table, name).tolist() for name in COLUMNS), strict=True)
        for rank, row in zip(table.rank.tolist(), values, strict=True):
            self.rows.setdefault(rank, []).append(row)

    def rank_ended(self, rank: int, how: str) -> None:
        self._note("ended", rank, how)

    def note_dropped(self, rank: int, dropped: dict[str, int]) -> None:
        self._note("dropped", rank, dict(dropped))

    def note_pending(self, rank: int, pending: np.ndarray, **values: int) -> None:
        del values["heard_wall_ns"]
        self._note("pending", rank, (pending.tolist(), values))

    def telemetry(self, rank: int, samples: list[Sample]) -> None:
        self._note("telemetry", rank, samples)

    def heard(self, *_args: object) -> None: ...

    def more_to_come(self, rank: int, *, more: bool) -> None:
        self._note("more", rank, more)

    def _note(self, name: str, rank: int, value: object) -> None:
        self.calls.setdefault((name, rank), []).append(value)


class Fed:
    """A feed and the sink behind it."""

    def __init__(self, **of_replay: Any) -> None:
        self.log = Log()
        self.feed = FrameFeed(
            ATTEMPT, self.log, wait_ns=WAIT_NS, arrivals=self.log, on_telemetry=self.log.telemetry,
            **of_replay,
        )  # fmt: skip
        self._number = 0

    def take(self, frame: Frame | Bundle, at_ns: int = 0, first_seq: int = 0) -> None:
        self._number += 1
        self.feed.push(
            CommittedFrame(
                id=self._number, attempt=ATTEMPT, frame=frame, packed_bytes=1,
                received_wall_ns=at_ns or self._number, first_seq=first_seq,
            )
        )  # fmt: skip

    def steps(self, rank: int) -> list[int]:
        self.feed.settle()
        return sorted({row[COLUMNS.index("step")] for row in self.log.rows.get(rank, [])})


def bundle(frames: Sequence[Frame], seq: int, stream: str = STREAM) -> Bundle:
    made = decode_any(bundle_of(frames, seq, stream))
    assert isinstance(made, Bundle)
    return made


def of_step(seq: int, ranks: Sequence[int] = range(WORLD), **values: Any) -> list[Frame]:
    return [frame(rank, seq, **values) for rank in ranks]


def test_a_bundle_holds_the_frames_of_its_members() -> None:
    frames = [frame(rank, 3, rows=rank + 1, **TELLING.get(rank, {})) for rank in range(WORLD)]
    made = bundle(frames, 7)
    assert (made.frame_seq, made.incarnation, made.count) == (7, STREAM, 1 + 2 + 3 + 3)
    assert frames_of(made) == frames


def test_bundles_decoded_together_hold_the_rows_of_each() -> None:
    frames = [of_step(0), of_step(1, rows=1), of_step(2, rows=0), of_step(3)]
    table, counts = decode_bundles([bundle(some, seq) for seq, some in enumerate(frames)])
    each = [one for some in frames for one in some]
    assert counts.tolist() == [one.count for one in each]
    expected = decode_frames(each)
    for name in ("rank", *COLUMNS):
        assert getattr(table, name).tolist() == getattr(expected, name).tolist(), name


def test_bundles_give_a_feed_what_their_frames_give_it() -> None:
    singly, together = Fed(), Fed()
    for seq in range(6):
        telling = TELLING if seq in (1, 4) else {}
        frames = [frame(rank, seq, **telling.get(rank, {})) for rank in range(WORLD)]
        if seq == 5:
            frames = [msgspec.structs.replace(one, ended="closed") for one in frames]
        for one in frames:
            singly.take(one, at_ns=seq + 1)
        together.take(bundle(frames, seq), at_ns=seq + 1)
    assert singly.steps(0) == together.steps(0) == list(range(6))
    assert together.log.rows == singly.log.rows
    assert together.log.calls == singly.log.calls
    assert together.log.groups == singly.log.groups
    assert together.feed.notes == singly.feed.notes
    for rank in range(WORLD):
        one, other = singly.feed.newest(rank), together.feed.newest(rank)
        assert one is not None
        assert other is not None
        assert (other.step, other.ended, other.reported, other.versions, other.node) == (
            one.step, one.ended, one.reported, one.versions, one.node,
        )  # fmt: skip
        assert other.clock.to_wall_ns(5000) == one.clock.to_wall_ns(5000)


def test_bundles_that_come_out_of_order_are_put_into_it() -> None:
    fed = Fed()
    for seq in (0, 2, 3, 1):
        fed.take(bundle(of_step(seq), seq))
    order = [row[COLUMNS.index("step")] for row in fed.log.rows.get(1, [])]
    assert fed.steps(1) == [0, 1, 2, 3]
    assert order == sorted(order)
    assert fed.feed.dropped(1) == {}


def test_a_bundle_that_never_comes_is_a_missing_frame_of_each_member() -> None:
    fed = Fed()
    fed.take(bundle(of_step(0), 0), at_ns=1)
    fed.take(bundle(of_step(2), 2), at_ns=2)
    assert fed.steps(0) == [0]
    assert fed.feed.held_frames == 1
    assert fed.feed.expire(WAIT_NS + 10)
    assert fed.steps(0) == [0, 2]
    assert [fed.feed.dropped(rank) for rank in range(WORLD)] == [{"frames_missing": 1}] * WORLD
    fed.take(bundle(of_step(1), 1))
    assert fed.steps(0) == [0, 2]
    assert fed.feed.dropped(3) == {"frames_missing": 1, "frames_late": 1}


def test_a_sidecar_that_is_started_again_goes_on_in_a_stream_of_its_own() -> None:
    fed = Fed()
    fed.take(bundle(of_step(0), 0))
    fed.take(bundle(of_step(1), 0, stream="ab" * 16))
    assert fed.steps(2) == [0, 1]
    assert fed.feed.dropped(2) == {}
    assert fed.feed.notes == []


def test_a_rank_that_restarts_counts_its_steps_on_while_the_others_go_on() -> None:
    fed = Fed()
    fed.take(bundle(of_step(0), 0))
    again = [frame(0, 0, incarnation="cd" * 16), *of_step(1, range(1, WORLD))]
    fed.feed.settle()
    fed.take(bundle(again, 1))
    assert fed.steps(0) == [0, 1]
    assert fed.steps(1) == [0, 1]
    assert "rank 0 restarted within the attempt" in fed.feed.notes[0]


def test_bundles_follow_the_frames_that_an_older_sidecar_sent_of_the_same_process() -> None:
    fed = Fed()
    for one in of_step(0):
        fed.take(one)
    fed.take(bundle(of_step(1), 0))
    assert fed.steps(3) == [0, 1]
    assert fed.feed.dropped(3) == {}


def test_a_member_that_was_told_before_is_left_out_and_the_others_are_taken() -> None:
    fed = Fed()
    fed.take(bundle(of_step(0), 0))
    fed.take(bundle([frame(0, 0), *of_step(1, range(1, WORLD))], 1))
    assert fed.steps(0) == [0]
    assert fed.steps(1) == [0, 1]
    assert fed.feed.dropped(0) == {"frames_late": 1}
    assert fed.feed.dropped(1) == {}


def test_a_process_that_is_said_to_be_another_rank_is_left_out_and_counted() -> None:
    fed = Fed()
    fed.take(bundle(of_step(0), 0))
    swapped = msgspec.structs.replace(frame(1, 1), incarnation=f"{0:032x}")
    fed.take(bundle([swapped, frame(2, 1)], 1))
    assert fed.steps(0) == fed.steps(1) == [0]
    assert fed.steps(2) == [0, 1]
    assert fed.feed.dropped(0) == {"rank_mismatch": 1}


def test_what_retention_deleted_of_a_stream_is_no_missing_frame() -> None:
    fed = Fed()
    fed.take(bundle(of_step(5), 3), first_seq=3)
    assert fed.steps(0) == [5]
    assert fed.feed.dropped(0) == {"frames_deleted": 5}


def test_a_replay_waits_for_members_until_the_last_stored_bundle_that_can_hold_them() -> None:
    fed = Fed(missing={}, ends={STREAM: 3})
    for seq in (0, 1):
        fed.take(bundle(of_step(seq), seq))
    assert [fed.log.calls["more", rank][-1] for rank in range(WORLD)] == [True] * WORLD
    fed.take(bundle(of_step(2, range(1, WORLD)), 2))  # rank 0 has gone, or was not due
    assert [fed.log.calls["more", rank][-1] for rank in range(WORLD)] == [False, True, True, True]
    fed.take(bundle(of_step(3, range(1, WORLD)), 3))
    fed.feed.settle()
    assert [fed.log.calls["more", rank][-1] for rank in range(WORLD)] == [False] * WORLD


def test_after_a_replay_nobody_is_known_to_come() -> None:
    fed = Fed(missing={}, ends={STREAM: 9})
    fed.take(bundle(of_step(0), 0))
    assert fed.log.calls["more", 2][-1]
    fed.feed.settle()
    fed.feed.replayed()
    assert [fed.log.calls["more", rank][-1] for rank in range(WORLD)] == [False] * WORLD


@pytest.mark.parametrize("seqs", [[0, 1, 2], [2, 1, 0]])
def test_a_number_that_comes_to_mean_another_group_does_so_from_its_bundle_on(
    seqs: list[int],
) -> None:
    fed = Fed()
    other = msgspec.structs.replace(ALL, name="tp")
    made = {seq: bundle(of_step(seq, groups=[other if seq == 1 else ALL]), seq) for seq in seqs}
    for seq in seqs:
        fed.take(made[seq])
    fed.feed.settle()
    group, step = COLUMNS.index("group"), COLUMNS.index("step")
    kind = COLUMNS.index("kind")
    named = {
        row[step]: fed.log.groups[row[group]].name for row in fed.log.rows[0] if row[kind] == 1
    }
    assert named == {0: "dp", 1: "tp", 2: "dp"}
