"""Frames: a request body through decoding, sanitising and the analysis of a live job."""

from __future__ import annotations

import contextlib
import math
import random
import zlib
from typing import Any

import msgspec

from paceline.errors import WireError
from paceline.vocabulary import Phase
from paceline.wire import columns
from paceline.wire.bundles import Bundle
from paceline.wire.codec import (
    BUNDLE_VERSION,
    HEADER,
    MAGIC,
    VERSION,
    ZLIB,
    ZLIB_DICTIONARY,
)
from paceline.wire.dictionary import DICTIONARY
from paceline.wire.frames import COLUMN_NAMES, DELTA_COLUMNS
from paceline_service.access.tokens import Grant
from paceline_service.analysis.job import JobAnalysis
from paceline_service.errors import BodyTooLargeError
from paceline_service.ingest.decoding import decode_body
from paceline_service.jobs.live import LiveAttempt
from paceline_service.jobs.snapshot import Update
from paceline_service.store.frames import AttemptRef, CommittedFrame
from tests.fakes.bundles import bundled
from tests.fuzz.mutate import INTEGERS, mutate_bytes, mutate_value
from tests.integration.collector.kit import bodies, senders
from tests.simulator.job import Fault, Scenario, simulate

MAX_WORLD_SIZE = 64
GRANT = Grant(name="fuzz", scopes=frozenset({"ingest"}))
_WALL_NS = 1_700_000_000 * 10**9


def seeds() -> dict[str, bytes]:
    """Return bodies as sidecars would send them."""
    fault = Fault(rank=1, phase=Phase.BACKWARD, extra_ms=30, first=4)
    whole = simulate(Scenario(data_parallel=3, steps=8, faults=(fault,), seed=3, buckets=1))
    parallel = simulate(Scenario(data_parallel=2, tensor_parallel=2, steps=3, seed=4, buckets=1))
    out_of_order = list(bodies(whole, senders(whole), steps_per_frame=2))
    return {
        "whole": b"".join(bodies(whole, senders(whole), steps_per_frame=4)),
        "tensor-parallel": b"".join(bodies(parallel, senders(parallel))),
        "out-of-order": b"".join(reversed(out_of_order)),
        "bundles": b"".join(bundled(bodies(whole, senders(whole), steps_per_frame=4))),
        "bundles-out-of-order": b"".join(
            reversed(list(bundled(bodies(parallel, senders(parallel)))))
        ),
        "empty-frame": senders(whole)[0].frame([]),
    }


def check(data: bytes) -> None:
    """Raise for anything that a sender could do to the collector that it must not."""
    try:
        decoded = decode_body(
            data, GRANT, max_unpacked_bytes=64 << 20, max_world_size=MAX_WORLD_SIZE
        )
    except BodyTooLargeError:
        return
    attempts: dict[tuple[str, str, int], LiveAttempt] = {}
    for number, item in enumerate(decoded.frames, 1):
        frame = item.frame
        key = (frame.job, frame.run_id, frame.attempt)
        live = attempts.get(key)
        if live is None:
            if len(attempts) > 4:
                continue
            live = attempts[key] = _live(len(attempts), frame)
        highest = max(frame.origin.ranks) if isinstance(frame, Bundle) else frame.rank
        if highest >= live.attempt.world_size:
            continue  # as the group commit rejects it
        live.push(_committed(number, live.attempt, item), now_mono_s=float(number))
    for live in attempts.values():
        for now_s in (1e3, 1e5):
            update = live.tick(now_s, _WALL_NS + int(now_s * 1e9))
            if update is not None:
                assert_tellable(update.snapshot.report)
                assert_tellable(update.snapshot.ranks)
                assert_storable(update)


def _live(number: int, frame: Any) -> LiveAttempt:
    attempt = AttemptRef(
        id=number + 1, job=frame.job, ordinal=1, run_id=frame.run_id,
        launch_attempt=frame.attempt, world_size=frame.world_size, first_seen_wall_ns=_WALL_NS,
    )  # fmt: skip
    return LiveAttempt(
        attempt, JobAnalysis(frame.world_size),
        reorder_wait_ns=10**10, recent_bytes=1 << 20,
    )  # fmt: skip


def _committed(number: int, attempt: AttemptRef, item: Any) -> CommittedFrame:
    return CommittedFrame(
        id=number, attempt=attempt, frame=item.frame, received_wall_ns=_WALL_NS + number,
        packed_bytes=len(item.packed),
    )  # fmt: skip


def assert_storable(update: Update) -> None:
    """Assert that every number that goes into a column of a database fits 64 bits."""
    numbers = [update.snapshot.last_step, update.snapshot.frame_id]
    for step in update.steps:
        numbers += [step.step, step.start_wall_ns, step.duration_ns, step.slowest_rank]
    for row in (*update.details.lanes, *update.details.windows):
        numbers += [one for one in row if isinstance(one, int)]
    assert all(-(1 << 63) <= number < 1 << 63 for number in numbers), numbers


def assert_tellable(value: Any, path: str = "") -> None:
    """Assert that a report holds no NaN, no infinity, and no number that JSON readers lose."""
    if isinstance(value, float):
        assert math.isfinite(value), f"{path} is {value}"
    elif isinstance(value, dict):
        for key, one in value.items():
            assert_tellable(one, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            assert_tellable(one, f"{path}[{number}]")


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` with one of its frames changed and sealed again, or its bytes changed."""
    parts = _cut(data)
    if not parts or rng.random() < 0.1:
        return mutate_bytes(data, rng)
    at = rng.randrange(len(parts))
    what = rng.random()
    if what < 0.05:
        del parts[at]
    elif what < 0.1:
        parts.insert(rng.randrange(len(parts) + 1), parts[at])
    else:
        with contextlib.suppress(msgspec.MsgspecError, zlib.error, ValueError, OverflowError):
            parts[at] = _changed(parts[at], rng)
    return b"".join(parts)


def _cut(data: bytes) -> list[bytes]:
    parts = []
    offset = 0
    while len(data) - offset >= HEADER.size and data[offset : offset + 4] == MAGIC:
        end = offset + HEADER.size + HEADER.unpack_from(data, offset)[4]
        parts.append(data[offset:end])
        offset = end
    return parts


def _changed(part: bytes, rng: random.Random) -> bytes:
    raw = zlib.decompressobj(zdict=DICTIONARY).decompress(part[HEADER.size :], 4 << 20)
    version = part[4]
    if rng.random() < 0.1:
        return seal(mutate_bytes(raw, rng), dictionary=rng.random() < 0.5, version=version)
    frame = msgspec.msgpack.decode(raw)
    for _ in range(1 << rng.randrange(3)):
        if version == BUNDLE_VERSION:
            frame = _changed_bundle(frame, rng)
        elif rng.random() < 0.5:
            _change_cell(frame, rng)
        else:
            frame = mutate_value(frame, rng)
    return seal(msgspec.msgpack.encode(frame), dictionary=rng.random() < 0.5, version=version)


def _changed_bundle(body: Any, rng: random.Random) -> Any:
    """Return the content of a bundle with something changed: in it, or in its origin."""
    if rng.random() < 0.3 and isinstance(body, list) and body and isinstance(body[0], bytes):
        origin = mutate_value(msgspec.msgpack.decode(body[0]), rng)
        return [msgspec.msgpack.encode(origin), *body[1:]]
    return mutate_value(body, rng)


def _change_cell(frame: Any, rng: random.Random) -> None:
    """Change one value of one column, which stays a column."""
    name = rng.choice(COLUMN_NAMES)
    try:
        count = int(frame["count"])
        column = columns.Column(*frame["columns"][name])
        if not 0 < count <= 16384:
            return
        values = columns.decode(column, count)
        row = rng.randrange(count)
        near = values[row] + rng.choice((-1, 1, 10**6, -(10**6), 10**12))
        values[row] = rng.choice((rng.choice(INTEGERS), near, values[rng.randrange(count)]))
        new = columns.encode(values, delta=name in DELTA_COLUMNS)
    except (KeyError, TypeError, ValueError, WireError):
        return
    frame["columns"][name] = [new.width, new.delta, new.data]


def seal(raw: bytes, *, dictionary: bool = False, version: int = VERSION) -> bytes:
    """Return ``raw`` as the content of a frame with a header that fits."""
    deflater = zlib.compressobj(1, zdict=DICTIONARY) if dictionary else zlib.compressobj(1)
    packed = deflater.compress(raw) + deflater.flush()
    kind = ZLIB_DICTIONARY if dictionary else ZLIB
    return HEADER.pack(MAGIC, version, kind, 0, len(packed), len(raw), zlib.crc32(packed)) + packed
