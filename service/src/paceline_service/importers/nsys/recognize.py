"""How an SQLite export of Nsight Systems begins, and the names of what still has to be one."""

from __future__ import annotations

import shlex
from pathlib import Path

SQLITE_MAGIC = b"SQLite format 3\x00"
_TABLES = (
    b"StringIds", b"CUPTI_ACTIVITY_KIND_", b"NVTX_EVENTS", b"TARGET_INFO_", b"META_DATA_",
    b"ENUM_NSYS_", b"ANALYSIS_DETAILS",
)  # fmt: skip
"""Tables whose definitions stand at the begin of an export, whatever its version."""
REPORT_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")


def begins_nsys(head: bytes) -> bool:
    """Whether a file with these first bytes is an SQLite export of Nsight Systems."""
    return head.startswith(SQLITE_MAGIC) and any(table in head for table in _TABLES)


def how_to_export(path: Path) -> str:
    """Return what to do with a report in Nsight Systems' own form; empty for other files."""
    if path.suffix.lower() not in REPORT_SUFFIXES:
        return ""
    if path.suffix.lower() == ".qdstrm":
        return "an unfinished capture of Nsight Systems; import it with QdstrmImporter first"
    target = shlex.quote(path.with_suffix(".sqlite").name)
    return (
        "a report of Nsight Systems in its own form; export it first (nsys export --type sqlite "
        f"-o {target} {shlex.quote(path.name)})"
    )
