"""Rings: one fixed-size memory-mapped file per rank, written in the job, read by the sidecar."""

from paceline.ring.layout import InFlight, Record, RingIdentity
from paceline.ring.reader import Batch, RingReader
from paceline.ring.writer import RingWriter, new_identity

__all__ = [
    "Batch",
    "InFlight",
    "Record",
    "RingIdentity",
    "RingReader",
    "RingWriter",
    "new_identity",
]
