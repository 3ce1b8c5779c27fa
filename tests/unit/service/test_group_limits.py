from __future__ import annotations

from typing import Any

import pytest

from paceline.wire.codec import encode_rows
from paceline.wire.frames import Frame, GroupDef
from paceline_service.jobs import feed_state as feed_module
from paceline_service.jobs.feed import FrameFeed
from paceline_service.store.frames import AttemptRef, CommittedFrame

ATTEMPT = AttemptRef(
    id=1, job="train", ordinal=1, run_id="run", launch_attempt=0, world_size=4,
    first_seen_wall_ns=1,
)  # fmt: skip


class Sink:
    """Counts the groups that reach the analysis."""

    def __init__(self) -> None:
        self.groups = 0

    def declare_group(self, group: Any) -> int:
        self.groups += 1
        return self.groups - 1

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def pushed(feed: FrameFeed, seq: int, definitions: list[GroupDef]) -> None:
    frame = Frame(
        job="train", run_id="run", attempt=0, rank=0, world_size=4, incarnation="0" * 32,
        frame_seq=seq, node="n", producer="hooks", count=0, columns=encode_rows([]),
        groups=definitions,
    )  # fmt: skip
    feed.push(
        CommittedFrame(
            id=seq + 1, attempt=ATTEMPT, frame=frame, received_wall_ns=1, packed_bytes=1,
            first_seq=0,
        )
    )  # fmt: skip
    feed.settle()


def definition(number: int) -> GroupDef:
    return GroupDef(index=number, name=f"g{number}", ranks="0-3", backend="gloo")


@pytest.mark.parametrize(("name", "limit"), [("MAX_GROUPS", 5), ("MAX_MEMBERS", 20)])
def test_a_sender_that_defines_groups_without_end_is_not_followed(
    name: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, name, limit)
    sink = Sink()
    feed = FrameFeed(ATTEMPT, sink, wait_ns=0)  # type: ignore[arg-type]
    for seq in range(10):
        pushed(feed, seq, [definition(seq)])
    assert sink.groups == 5
    assert feed.dropped(0)["bad_group"] == 5
    assert any("not followed" in note for note in feed.notes)
