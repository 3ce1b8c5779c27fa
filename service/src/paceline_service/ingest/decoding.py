"""A request body to frames: what is good goes on, what is not is named with its place."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from paceline.errors import WireError
from paceline.wire.bundle_codec import decode_any
from paceline.wire.bundles import Bundle
from paceline.wire.codec import HEADER, Rejected, split_frames
from paceline.wire.frames import Frame
from paceline_service.access.cardinality import Cardinality
from paceline_service.access.tokens import Grant
from paceline_service.errors import BodyTooLargeError

_TEXT_LIMITS = (("run_id", 256), ("node", 256), ("producer", 64), ("clock_domain", 128))
"""Most characters of what a frame says about its sender."""
MAX_GROUP_TEXT_CHARS = 1 << 20
MAX_DROPPED_REASONS = 64
ENDINGS = ("", "closed", "killed")
_INT63 = (1 << 63) - 1


class IncomingFrame(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A decoded frame or bundle with the bytes it came as."""

    frame: Frame | Bundle
    packed: bytes
    offset: int


@dataclass(slots=True, kw_only=True)
class DecodedBody:
    """Everything that was found in one body."""

    frames: list[IncomingFrame] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """Per rejection its short name, for counting."""
    forbidden: set[int] = field(default_factory=set)
    """The offsets of those that were refused because the token does not cover their job."""

    def reject(self, offset: int, reason: str, name: str) -> None:
        """Note one rejection."""
        self.rejected.append(Rejected(offset=offset, reason=reason))
        self.reasons.append(name)


def decode_body(
    body: bytes, grant: Grant, *, max_unpacked_bytes: int, max_world_size: int
) -> DecodedBody:
    """Return the frames in ``body`` that ``grant`` may send.

    Raises:
        BodyTooLargeError: the frames promise to unpack to more than ``max_unpacked_bytes``;
            checked on the headers, before anything is decompressed.
    """
    out = DecodedBody()
    packed_frames: list[tuple[int, bytes]] = []
    offset = promised = 0
    for part in split_frames(body):
        if isinstance(part, Rejected):
            out.reject(part.offset, part.reason, "header")
            offset = part.offset + _frame_bytes(body, part.offset)
            continue
        promised += HEADER.unpack_from(part)[5]
        packed_frames.append((offset, part))
        offset += len(part)
    if promised > max_unpacked_bytes:
        raise BodyTooLargeError(
            f"the frames of this body promise {promised} bytes; the limit is "
            f"{max_unpacked_bytes}: send fewer frames in one request"
        )
    for at, packed in packed_frames:
        try:
            frame = decode_any(packed)
        except WireError as error:
            out.reject(at, str(error), "corrupt")
            continue
        fault = _fault(frame, max_world_size)
        if fault:
            out.reject(at, fault, "limit")
        elif not grant.covers(frame.job):
            reason = f"job {frame.job!r} is outside {grant.job_prefix!r}, the prefix of the token"
            out.reject(at, reason, "forbidden")
            out.forbidden.add(at)
        else:
            out.frames.append(IncomingFrame(frame=frame, packed=packed, offset=at))
    return out


def sort_out(decoded: DecodedBody, grant: Grant, cardinality: Cardinality) -> None:
    """Refuse, as what the token does not cover, the frames that begin more than they may."""
    over = {}
    for item in decoded.frames:
        if fault := cardinality.fault(item.frame, grant):
            over[item.offset] = fault
    if over:
        decoded.frames = [item for item in decoded.frames if item.offset not in over]
        for offset, fault in over.items():
            decoded.reject(offset, fault, "cardinality")
            decoded.forbidden.add(offset)


def decode_message(packed: bytes, *, max_world_size: int) -> IncomingFrame | str:
    """Return the frame that a message of the bus holds, or in a word why it holds none."""
    try:
        frame = decode_any(packed)
    except Exception:  # it was checked before it was published: whatever this is, it stays so
        return "undecodable"
    if _fault(frame, max_world_size):
        return "limit"
    return IncomingFrame(frame=frame, packed=packed, offset=0)


def _frame_bytes(body: bytes, offset: int) -> int:
    if len(body) - offset < HEADER.size:
        return len(body) - offset
    return HEADER.size + int(HEADER.unpack_from(body, offset)[4])


def _fault(frame: Frame | Bundle, max_world_size: int) -> str:
    """Return why ``frame`` cannot be stored, or an empty string."""
    if isinstance(frame, Bundle):
        return _fault_of_bundle(frame, max_world_size)
    if frame.world_size > max_world_size:
        return f"world size {frame.world_size}; this collector takes up to {max_world_size}"
    for name, limit in _TEXT_LIMITS:
        if len(getattr(frame, name)) > limit:
            return f"{name} has {len(getattr(frame, name))} characters; the limit is {limit}"
    if fault := _unstorable(frame):
        return fault
    if frame.frame_seq >= _INT63 or frame.attempt >= 1 << 31:
        return f"frame_seq {frame.frame_seq} or attempt {frame.attempt} is out of range"
    for group in frame.groups:
        if len(group.ranks) > MAX_GROUP_TEXT_CHARS or len(group.name) > MAX_GROUP_TEXT_CHARS:
            return f"a group's name or ranks have more than {MAX_GROUP_TEXT_CHARS} characters"
    if len(frame.dropped) > MAX_DROPPED_REASONS:
        return f"{len(frame.dropped)} reasons for drops; the limit is {MAX_DROPPED_REASONS}"
    if frame.ended not in ENDINGS:
        return f"ended is {frame.ended[:40]!r}, not closed or killed"
    return ""


def _fault_of_bundle(bundle: Bundle, max_world_size: int) -> str:
    origin, body = bundle.origin, bundle.body
    if origin.world_size > max_world_size:
        return f"world size {origin.world_size}; this collector takes up to {max_world_size}"
    longest = origin.longest
    for name, limit in _TEXT_LIMITS:
        if longest[name] > limit:
            return f"{name} has {longest[name]} characters; the limit is {limit}"
    if fault := _unstorable(bundle):
        return fault
    if longest["group"] > MAX_GROUP_TEXT_CHARS:
        return f"a group's name or ranks have more than {MAX_GROUP_TEXT_CHARS} characters"
    if max(body.seq, *body.frame_seqs) >= _INT63 or origin.attempt >= 1 << 31:
        return f"a number of bundle {body.seq}, or attempt {origin.attempt}, is out of range"
    for extra in body.extras.values():
        if len(extra.dropped) > MAX_DROPPED_REASONS:
            return f"{len(extra.dropped)} reasons for drops; the limit is {MAX_DROPPED_REASONS}"
        if extra.ended not in ENDINGS:
            return f"ended is {extra.ended[:40]!r}, not closed or killed"
    return ""


def _unstorable(frame: Frame | Bundle) -> str:
    """PostgreSQL has no text with this character: the whole transaction would fail, every time."""
    for name, _ in _TEXT_LIMITS:
        if "\0" in getattr(frame, name):
            return f"{name} has a NUL character, which no text in a database can hold"
    return ""
