"""Every synchronization as a line of JSON: ``paceline.lab-syncs/1`` (docs/lab.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline_service.commands.output import replacing
from paceline_service.lab.links import Wire, modelled_s
from paceline_service.lab.plans import Manifest
from paceline_service.lab.syncs import Measured, Sync

SCHEMA = "paceline.lab-syncs/1"


def write_log(path: Path, manifest: Manifest, measured: Measured, wires: dict[str, Wire]) -> int:
    """Write the log and return how many synchronizations it has.

    Raises:
        InputError: the file cannot be written.
    """
    count = -1
    with replacing(path) as file:
        for line in _lines(manifest, measured, wires):
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            count += 1
    return count


def _lines(
    manifest: Manifest, measured: Measured, wires: dict[str, Wire]
) -> Iterator[dict[str, Any]]:
    yield {
        "schema": SCHEMA,
        "ranks": manifest.ranks,
        "backend": manifest.backend,
        "device": manifest.device,
        "parameters": manifest.parameters,
    }
    for sync in measured.syncs:
        yield _line(sync, wires)


def _line(sync: Sync, wires: dict[str, Wire]) -> dict[str, Any]:
    alone_s = modelled_s(wires, sync.op, sync.payload_bytes)
    return {
        "step": sync.step,
        "stretch": sync.stretch,
        "kind": sync.op.replace("_", "-"),
        "pass": sync.call.phase if sync.call is not None else None,
        "bucket": sync.bucket.bucket if sync.bucket is not None else None,
        "parameters": sync.bucket.parameters if sync.bucket is not None else None,
        "bytes": sync.payload_bytes,
        "arrival_ns": list(sync.arrival_ns),
        "last_rank": sync.last_rank if sync.last_rank >= 0 else None,
        "wait_ns": list(sync.wait_ns),
        "still_ns": list(sync.still_ns),
        "transfer_ns": sync.transfer_ns if sync.transfer_ns >= 0 else None,
        "transfer_at_most": sync.bound,
        "modelled_ns": round(alone_s * 1e9) if alone_s is not None else None,
        "names": sync.bucket.names if sync.bucket is not None else [],
    }
