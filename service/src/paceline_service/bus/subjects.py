"""Names on the bus: which partition a job belongs to, its subject, and the id of a message."""

from __future__ import annotations

import zlib
from functools import lru_cache
from urllib.parse import quote

from paceline.wire.bundles import Bundle
from paceline.wire.frames import Frame

PARTITIONS = 64
"""Jobs are spread over so many; the stream notes the number, and no process may use another."""
PREFIX = "paceline.frames"
SUBJECTS = f"{PREFIX}.*.*"


@lru_cache(maxsize=65536)
def partition_of(job: str) -> int:
    """Return the partition of ``job``, the same in every process and version."""
    return zlib.crc32(job.encode()) % PARTITIONS


@lru_cache(maxsize=65536)
def subject_of(job: str) -> str:
    """Return the subject of ``job``; a dot in its name would begin a new token."""
    return f"{PREFIX}.{partition_of(job)}.{_token(job)}"


def filter_of(partition: int) -> str:
    """Return what the subjects of one partition have in common."""
    return f"{PREFIX}.{partition}.*"


def message_id(frame: Frame | Bundle) -> str:
    """Return the id by which the stream knows that a frame came before."""
    return f"{_launch(frame.job, frame.run_id, frame.attempt, frame.incarnation)}{frame.frame_seq}"


@lru_cache(maxsize=65536)
def _launch(job: str, run_id: str, attempt: int, incarnation: str) -> str:
    # A run id may hold anything; a line break in it would begin another header.
    return f"{job}/{_token(run_id)}/{attempt}/{incarnation}/"


def _token(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E")
