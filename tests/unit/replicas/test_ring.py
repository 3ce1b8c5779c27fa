from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline import telemetry as names
from paceline.hooks.replica_sets import FSDP_MODULES
from paceline.ring import RingReader, RingWriter, new_identity
from paceline.ring.replicas import DIGEST_BYTES, DIGEST_SLOTS, DIGESTS_OFFSET, ReplicaDigest
from paceline.sidecar.group_facts import GroupFacts
from paceline.sidecar.replicas import Replicas
from paceline.sidecar.telemetry.buffer import TelemetryBuffer

GROUP = GroupFacts(index=3, name="dp", ranks="0-7", epoch=1, mesh_dim="", backend="gloo")


def digest(step: int) -> ReplicaDigest:
    return ReplicaDigest(
        time_ns=1000 + step, step=step, seq=3 * step, digest=(1 << 64) - 1 - step, layout=0xABCD,
        group=3, module=0, part=1, parts=2,
    )  # fmt: skip


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[RingWriter]:
    writer = RingWriter(
        tmp_path,
        new_identity(
            job="j", run_id="r", attempt=0, rank=2, local_rank=2, world_size=8, node="n",
            boot_id="b", time_namespace=1, producer="hooks",
        ),
    )  # fmt: skip
    yield writer
    writer.close()


@pytest.fixture
def reader(ring: RingWriter) -> Iterator[RingReader]:
    reading = RingReader(ring.path)
    yield reading
    reading.close()


def test_digests_are_read_once_in_their_order(ring: RingWriter, reader: RingReader) -> None:
    assert reader.digests(0) == ([], 0, 0)
    for step in range(5):
        ring.digest(digest(step))
    found, behind, lost = reader.digests(0)
    assert found == [digest(step) for step in range(5)]
    assert (behind, lost) == (5, 0)
    assert reader.digests(behind) == ([], 5, 0)


def test_what_was_overwritten_is_counted_and_what_is_torn_waits(
    ring: RingWriter, reader: RingReader
) -> None:
    for step in range(DIGEST_SLOTS + 7):
        ring.digest(digest(step))
    found, behind, lost = reader.digests(0)
    assert [one.step for one in found] == list(range(7, DIGEST_SLOTS + 7))
    assert (behind, lost) == (DIGEST_SLOTS + 7, 7)
    ring.digest(digest(100))
    offset = DIGESTS_OFFSET + 7 * DIGEST_BYTES
    ring._map[offset + 20] ^= 1  # as if it were half written
    assert reader.digests(behind) == ([], behind, 0)
    ring._map[offset + 20] ^= 1
    assert [one.step for one in reader.digests(behind)[0]] == [100]


def test_a_digest_becomes_a_sample_that_names_whom_it_must_agree_with(
    ring: RingWriter, reader: RingReader
) -> None:
    ring.digest(digest(40))
    ring.digest(digest(41)._replace(group=9))  # nobody has described it
    out = TelemetryBuffer()
    replicas = Replicas(reader)
    replicas.look({3: GROUP}, out)
    replicas.look({3: GROUP}, out)
    (sample,) = out.give()
    assert sample.time_ns == 1040
    assert sample.values[names.REPLICA_DIGEST] == "ffffffffffffffd7"
    assert sample.values[names.REPLICA_COUNT] == 8
    assert sample.values[names.REPLICA_STEP] == 40
    assert sample.values[names.REPLICA_PART] == "1/2"
    name = str(sample.values[names.REPLICA_SET])
    assert name.startswith("dp#")
    assert name.endswith("/1:0:0000abcd")
    assert replicas.lost == 1


def test_what_a_rank_says_of_its_check_is_telemetry_and_said_again_only_when_it_changed(
    reader: RingReader,
) -> None:
    out = TelemetryBuffer()
    replicas = Replicas(reader)
    facts = {"torch": "2.13", names.REPLICA_CHECK: "every 5 steps"}
    replicas.tell({"torch": "2.13"}, 10, out)
    replicas.tell(facts, 20, out)
    replicas.tell(facts, 30, out)
    replicas.tell({**facts, names.REPLICA_LEFT_OUT: "why"}, 40, out)
    assert [(one.time_ns, dict(one.values)) for one in out.give()] == [
        (20, {names.REPLICA_CHECK: "every 5 steps"}),
        (40, {names.REPLICA_LEFT_OUT: "why"}),
    ]


def test_a_module_number_may_be_larger_than_a_byte(ring: RingWriter, reader: RingReader) -> None:
    ring.digest(digest(1)._replace(module=FSDP_MODULES + 255))
    assert reader.digests(0)[0][0].module == FSDP_MODULES + 255
