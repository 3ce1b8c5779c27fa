"""Ring files: real ones, patched before and while they are read; the sidecar turns them to frames.

An input is a list of patches, because a ring is 140 KB of which little matters.
"""

from __future__ import annotations

import os
import random
import struct
import tempfile
import zlib
from functools import cache
from pathlib import Path

from paceline.clock import boot_id, time_namespace
from paceline.errors import RingError
from paceline.ring import RingIdentity, RingReader, RingWriter, new_identity
from paceline.ring import layout as at
from paceline.sidecar.follow import Follower
from paceline.sidecar.pack import pack
from paceline.sidecar.progress import Progress
from paceline.vocabulary import Op, Phase, RecordKind
from paceline.wire.codec import decode_frame
from tests.fuzz.mutate import INTEGERS, mutate_bytes

CAPACITY = 24
PATCH = struct.Struct("<BIQ")
"""What, where, value."""
MAX_PATCHES = 64
_WORDS = (
    at.HEAD_OFFSET, at.META_HEAD_OFFSET, at.STATE_OFFSET, at.HEARTBEAT_OFFSET, at.STEP_OFFSET,
    at.DROPPED_INFLIGHT_OFFSET, at.HOOK_ERRORS_OFFSET, at.DROPPED_META_OFFSET,
    at.ANCHOR_COUNT_OFFSET, at.ANCHOR_SLOTS_OFFSET, at.ANCHOR_SLOTS_OFFSET + 8, at.CONTROL_OFFSET,
    at.APPLIED_GENERATION_OFFSET, at.APPLIED_STEP_OFFSET, at.CONTROL_REFUSED_OFFSET,
    at.CHECKPOINT_OFFSET, at.PLUGIN_COUNTERS_OFFSET,
)  # fmt: skip
BASES = ("closed", "running", "wrapped", "plugin", "pair")
_POLLS = 6


@cache
def base(name: str) -> bytes:
    """Return the bytes of a ring that the real writer wrote."""
    with tempfile.TemporaryDirectory() as directory:
        return _write(name, Path(directory))


def _write(name: str, directory: Path) -> bytes:
    identity = new_identity(
        job="job", run_id="run", attempt=0, rank=1, local_rank=1, world_size=4, node="node",
        boot_id=boot_id(), time_namespace=time_namespace(),
        producer="plugin" if name == "plugin" else "python",
    )  # fmt: skip
    ring = RingWriter(directory, identity, CAPACITY)
    ring.meta({"group": 0, "name": "dp", "ranks": "0-3", "epoch": 0, "mesh_dim": "dp"})
    ring.meta({"torch": "2.9", "backend": "nccl"})
    ring.meta({"comm": 0, "hash": "1f", "ranks": 4, "rank": 1, "device": 0})
    for seq in range(60 if name == "wrapped" else 16):
        start_ns = 10**12 + seq * 10**7
        kind, code = (
            (RecordKind.COLLECTIVE, int(Op.ALL_REDUCE)), (RecordKind.PHASE, int(Phase.FORWARD)),
            (RecordKind.STEP, 0),
        )[seq % 3]  # fmt: skip
        ring.record(int(kind), code, 0, seq // 3, seq // 3, -1, 4096,
                    start_ns, start_ns + 10**6, start_ns + 1000, start_ns - 1000)  # fmt: skip
    ring.begin(int(Op.ALL_REDUCE), 0, 99, 20, -1, 4096, 2 * 10**12)
    ring.heartbeat(20)
    content = ring.path.read_bytes()
    if name not in ("running", "pair"):
        ring.close()
        content = ring.path.read_bytes()
    else:
        ring.close()
    return content


def seeds() -> dict[str, bytes]:
    """Return a few lists of patches for every kind of ring."""
    rng = random.Random(7)
    found = {}
    for number, name in enumerate(BASES):
        found[name] = bytes([number])
        found[f"{name}-words"] = bytes([number]) + b"".join(
            PATCH.pack(0, word, rng.choice(INTEGERS) % (1 << 64)) for word in range(len(_WORDS))
        )
        found[f"{name}-records"] = bytes([number]) + b"".join(
            PATCH.pack(1, rng.randrange(1 << 16), rng.choice(INTEGERS) % (1 << 64))
            for _ in range(12)
        )
    return found


def check(data: bytes) -> None:
    """Follow the patched ring: whole records and counts come of it, or a ``RingError``."""
    name = BASES[data[0] % len(BASES)] if data else BASES[0]
    patches = [
        PATCH.unpack_from(data, offset)
        for offset in range(1, len(data) - PATCH.size + 1, PATCH.size)
    ][:MAX_PATCHES]
    before = [one for one in patches if not one[0] & 0x80]
    while_read = [one for one in patches if one[0] & 0x80]
    content = bytearray(base(name))
    for patch in before:
        _apply(content, patch)
    descriptor, path = tempfile.mkstemp(suffix=at.SUFFIX, dir=_fast_directory())
    try:
        os.write(descriptor, content)
        _follow(Path(path), descriptor, content, while_read, second=name == "pair")
    finally:
        os.close(descriptor)
        os.unlink(path)


def _follow(
    path: Path, descriptor: int, content: bytearray, patches: list[tuple[int, int, int]],
    *, second: bool,
) -> None:  # fmt: skip
    try:
        reader = RingReader(path)
    except RingError as error:
        if str(path) not in str(error):
            raise AssertionError(f"{error} does not name the file") from error
        return
    follower = Follower(reader, Progress(), "node", alone=reader.identity.producer == "plugin")
    other = None
    if second:
        other = tempfile.NamedTemporaryFile(suffix=at.SUFFIX, dir=_fast_directory())  # noqa: SIM115
        other.write(base("plugin"))
        other.flush()
        follower.attach(RingReader(Path(other.name)))
    try:
        for number in range(_POLLS):
            for patch in patches[number::_POLLS]:
                _apply(content, patch)
                if len(content) == os.fstat(descriptor).st_size:
                    os.pwrite(descriptor, content, 0)
                else:
                    os.ftruncate(descriptor, len(content))
            follower.poll(float(number))
            chunk = follower.chunk()
            frame, _ = pack(chunk, number, with_info=True)
            if _is_sensible(chunk.identity):
                assert decode_frame(frame).rank == chunk.identity.rank
            follower.taken(float(number))
            if follower.ended:
                break
    except RingError:
        pass
    finally:
        follower.close()
        if other is not None:
            other.close()


def _is_sensible(identity: RingIdentity) -> bool:
    """Whether a frame of that rank is one that a collector takes."""
    return 0 <= identity.rank < identity.world_size <= 1_000_000 and identity.attempt >= 0


def _apply(content: bytearray, patch: tuple[int, int, int]) -> None:
    what, where, value = patch
    kind = what & 0x0F
    if kind == 0:
        at.U64.pack_into(content, _WORDS[where % len(_WORDS)], value)
    elif kind in (1, 2, 3):
        _change_record(content, where, value, kind)
    elif kind == 4:
        offset = where % at.STATIC_CRC_OFFSET
        content[offset : offset + 4] = (value % (1 << 32)).to_bytes(4, "little")
        crc = zlib.crc32(bytes(content[: at.STATIC_CRC_OFFSET]))
        at.U32.pack_into(content, at.STATIC_CRC_OFFSET, crc)
    elif kind == 5:
        offset = at.HEADER_BYTES + where % (at.INFLIGHT_BYTES * 3)
        content[offset : offset + 8] = value.to_bytes(8, "little")
    elif kind == 6:
        offset = at.META_OFFSET + where % 400
        content[offset : offset + 4] = (value % (1 << 32)).to_bytes(4, "little")
    elif kind == 7:
        _change_meta(content, where, value)
    elif kind == 8:
        del content[max(where % len(content), at.HEADER_BYTES) :]
    else:
        content[where % len(content)] = value & 0xFF
    if len(content) < at.RECORDS_OFFSET:
        content.extend(bytes(at.RECORDS_OFFSET - len(content)))


def _change_record(content: bytearray, where: int, value: int, kind: int) -> None:
    """Change a word of a record (1), and seal it (2), also as of another lap (3)."""
    capacity = (len(content) - at.RECORDS_OFFSET) // at.RECORD_BYTES
    if capacity < 1:
        return
    begin = at.RECORDS_OFFSET + where % capacity * at.RECORD_BYTES
    word = begin + (where >> 8) % (at.RECORD_BYTES // 8) * 8
    content[word : word + 8] = value.to_bytes(8, "little")
    if kind >= 2:
        crc = zlib.crc32(bytes(content[begin : begin + at.RECORD_CRC_OFFSET]))
        at.U32.pack_into(content, begin + at.RECORD_CRC_OFFSET, crc)
    if kind == 3:
        at.U64.pack_into(content, begin + at.RECORD_COMMIT_OFFSET, where % capacity + 1)


def _change_meta(content: bytearray, where: int, value: int) -> None:
    """Replace the first entry by one whose checksum fits."""
    texts = (
        b'{"group":0,"name":"dp","ranks":"0-9999999"}', b'{"group":-1}', b'{"group":1e999}',
        b'{"group":65535,"ranks":[1,2],"name":{"a":1}}', b"[1]", b'{"comm":0}', b'{"a":' * 2000,
        b'{"group":0,"epoch":%d}' % value, b'{"x":"' + b"y" * 60000 + b'"}', b'{"a":NaN}',
        b'{"group":0,"epoch":1%d}' % (value << 64), b'{"group":0,"ranks":"%s"}' % (b"0-3," * 9000),
        b'{"comm":%d,"hash":0,"ranks":"x","rank":-1}' % value, b'{"\\ud800":"\\udfff"}',
        b'{"group":0,"name":"\\ud800","ranks":"0-3"}', b'{"torch":{"deep":[1,2]}}',
    )  # fmt: skip
    text = texts[where % len(texts)]
    offset = at.META_OFFSET
    at.META_ENTRY.pack_into(content, offset, len(text), zlib.crc32(text))
    content[offset + at.META_ENTRY.size : offset + at.META_ENTRY.size + len(text)] = text
    at.U64.pack_into(content, at.META_HEAD_OFFSET, at.pad8(at.META_ENTRY.size + len(text)))


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` with patches more, less or other."""
    if not data or rng.random() < 0.1:
        return mutate_bytes(data, rng)
    head, body = data[:1], data[1:]
    patches = [body[i : i + PATCH.size] for i in range(0, len(body), PATCH.size)]
    for _ in range(1 << rng.randrange(3)):
        what = rng.randrange(12) | rng.choice((0, 0x80))
        word = rng.choice((rng.choice(INTEGERS) % (1 << 64), rng.randrange(1 << 64), 20, 17))
        new = PATCH.pack(what, rng.randrange(1 << 20), word)
        at_ = rng.randrange(len(patches) + 1)
        if patches and rng.random() < 0.4:
            patches[at_ % len(patches)] = new
        elif patches and rng.random() < 0.3:
            del patches[at_ % len(patches)]
        else:
            patches.insert(at_, new)
    if rng.random() < 0.1:
        head = bytes([rng.randrange(len(BASES))])
    return head + b"".join(patches[:MAX_PATCHES])


def _fast_directory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
