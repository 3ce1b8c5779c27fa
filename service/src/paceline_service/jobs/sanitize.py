"""Rows from the network that the analysis must not meet are taken out here, and counted."""

from __future__ import annotations

from collections import Counter

import numpy as np

from paceline.vocabulary import Op, Phase, RecordKind
from paceline_service.analysis.records import BoolArray, Int64Array, Records

MAX_STEP = 1 << 40
MAX_TIME_NS = 1 << 62


def sanitize(
    records: Records, group_of_local: Int64Array, step_base: int, world_size: int
) -> tuple[Records, Counter[str]]:
    """Return the usable rows with job-wide groups and steps, and counts of the others by reason.

    Args:
        records: N rows of one rank; ``group`` is the rank's own number.
        group_of_local: shape (G,), the job-wide group of each local number, -1 unknown.
        step_base: is added to every step.
        world_size: R; peers must be below it.
    """
    kind, code, group = records.kind, records.code, records.group
    collective = kind == RecordKind.COLLECTIVE
    phase = kind == RecordKind.PHASE
    known_kind = collective | phase | (kind == RecordKind.STEP)
    in_range = (
        (records.step >= 0) & (records.step < MAX_STEP)
        & (records.start_ns > 0) & (records.start_ns < MAX_TIME_NS)
        & (records.end_ns >= 0) & (records.end_ns < MAX_TIME_NS)
    )  # fmt: skip
    in_range &= ~phase | ((code >= 0) & (code < len(Phase)))
    in_range &= ~collective | ((records.seq >= 0) & (records.payload_bytes >= 0))
    in_range &= (records.peer >= -1) & (records.peer < world_size)
    local = (group >= 0) & (group < len(group_of_local))
    job_group = np.zeros(len(records), dtype=np.int64)
    job_group[collective] = -1
    mapped = collective & local
    job_group[mapped] = group_of_local[group[mapped]]
    known_group = job_group >= 0
    usable: BoolArray = known_kind & in_range & known_group
    dropped: Counter[str] = Counter()
    if not usable.all():
        dropped["unknown_kind"] = int((~known_kind).sum())
        dropped["out_of_range"] = int((known_kind & ~in_range).sum())
        dropped["unknown_group"] = int((known_kind & in_range & ~known_group).sum())
        dropped = +dropped
    named = np.where(collective & ((code < 0) | (code >= len(Op))), int(Op.UNKNOWN), code)
    clean = Records(
        rank=records.rank, kind=kind, code=named, group=job_group, seq=records.seq,
        step=records.step + step_base, peer=records.peer, payload_bytes=records.payload_bytes,
        start_ns=records.start_ns, end_ns=records.end_ns, join_ns=records.join_ns,
        issue_ns=records.issue_ns, flags=records.flags,
    )  # fmt: skip
    return (clean if usable.all() else clean.take(usable)), dropped
