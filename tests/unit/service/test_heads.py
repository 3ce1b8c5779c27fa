"""What bundles of a stream begin with alike is found, and put back to the byte."""

from __future__ import annotations

import random

from paceline.wire.bundle_codec import decode_bundle
from paceline.wire.frames import GroupDef
from paceline_service.ingest.heads import (
    LEAST_BYTES,
    MOST_BYTES,
    MOST_HEADS,
    Beginnings,
    Head,
)
from paceline_service.store.frames import with_head, without_head
from tests.fakes.bundles import DP, node_bundle


def test_the_second_bundle_of_a_node_tells_what_all_others_leave_out() -> None:
    beginnings = Beginnings()
    assert beginnings.find(node_bundle(0), 1) is None
    head = beginnings.find(node_bundle(1), 2)
    assert head is not None
    assert head.frame_id == 2
    assert len(head.content) > LEAST_BYTES
    members = len(decode_bundle(node_bundle(0)).body.origin)
    assert len(head.content) < members, "they are compressed"
    for seq in range(50):
        packed = node_bundle(seq)
        assert head.begins(packed)
        body = without_head(packed, head.content)
        assert len(body) == len(packed) - len(head.content)
        assert with_head(body, head.content) == packed


def test_other_members_or_groups_make_another_head() -> None:
    beginnings = Beginnings()
    beginnings.find(node_bundle(0), 1)
    before = beginnings.find(node_bundle(1), 2)
    more = [DP, GroupDef(index=1, name="tp", ranks="0-3", backend="nccl")]
    assert before is not None
    assert not before.begins(node_bundle(2, groups=more))
    assert beginnings.find(node_bundle(2, groups=more), 3) is None
    after = beginnings.find(node_bundle(3, groups=more), 4)
    assert after is not None
    assert after.begins(node_bundle(4, groups=more))


def test_bundles_that_do_not_begin_alike_have_no_head() -> None:
    beginnings = Beginnings()
    rng = random.Random(1)
    for number in range(100):
        assert beginnings.find(node_bundle(0)[:20] + rng.randbytes(900), number) is None
    assert beginnings.find(b"", 100) is None


def test_few_records_share_a_block_with_their_members_and_are_stored_whole() -> None:
    beginnings = Beginnings()
    assert [beginnings.find(node_bundle(seq, collectives=1), seq) for seq in range(4)] == [None] * 4


def test_a_head_is_bounded_and_so_is_how_many_a_stream_may_have() -> None:
    beginnings = Beginnings()
    alike = node_bundle(0)[:20] + random.Random(2).randbytes(3 * MOST_BYTES)
    assert beginnings.find(alike, 1) is None
    found = beginnings.find(alike, 2)
    assert found is not None
    assert len(found.content) < MOST_BYTES
    heads = [beginnings.find(alike, number) for number in range(3, 3 + 2 * MOST_HEADS)]
    assert sum(isinstance(head, Head) for head in heads) == MOST_HEADS - 1
    assert heads[-1] is None
