"""Event logs and manifests of jobs that were never run: what happened in them is known."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.vocabulary import Flag
from paceline_service.lab.plans import Bucket, Call, Manifest, Plan, Stretch, fsdp_calls

MS = 1_000_000
STEP_NS = 100 * MS
BYTES = 1 << 20


def buckets(count: int) -> list[Bucket]:
    return [
        Bucket(bucket=n, names=[f"blocks.{n}.weight"], parameters=BYTES // 4, payload_bytes=BYTES)
        for n in range(count)
    ]


def stretch(name: str, strategy: str, first: int, steps: int, units: int = 3) -> Stretch:
    if strategy == "ddp":
        calls = [Call(op="all_reduce", phase="backward", bucket=n) for n in range(units)]
    else:
        calls = fsdp_calls(units, strategy)
    return Stretch(
        name=name, strategy=strategy, bucket_bytes=BYTES, first_step=first,
        last_step=first + steps - 1,
        plans=[Plan(buckets=buckets(units), calls=calls, first_step=first)],
        losses=[1.4 - 0.1 * n for n in range(steps)], step_s=[0.1] * steps, accuracy=0.9,
        held_bytes={"parameters": 4, "gradients": 4, "optimizer": 8}, peak_bytes=0,
    )  # fmt: skip


def manifest(*stretches: Stretch, device: str = "cpu") -> Manifest:
    return Manifest(
        backend="gloo", device=device, ranks=2, parameters=3 * BYTES // 4, probe_group="1",
        stretches=list(stretches),
    )  # fmt: skip


class Log:
    """Writes an event log of two ranks on one clock."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = [
            {
                "schema": "paceline.events/1",
                "world_size": 2,
                "groups": {"1": [0, 1], "0": [0, 1]},
                "clock": "shared",
            }
        ]
        self._seq = {"0": 0, "1": 0}

    def step(self, step: int) -> None:
        """Both ranks do a step of 100 ms, with backward from 30 to 90 ms."""
        zero = (step + 1) * STEP_NS
        for rank in (0, 1):
            self.lines.append({"rank": rank, "step": step, "step_start_ns": zero,
                               "step_end_ns": zero + STEP_NS})  # fmt: skip
            self.lines.append({"rank": rank, "step": step, "phase": "backward",
                               "start_ns": zero + 30 * MS, "end_ns": zero + 90 * MS})  # fmt: skip

    def sync(
        self,
        step: int,
        op: str,
        arrive_ms: tuple[float, float],
        transfer_ms: float,
        *,
        size: int = BYTES,
        join_ms: float | None = None,
        group: str = "0",
        polled: bool = False,
    ) -> None:
        """Both ranks take part in a collective; it ends ``transfer_ms`` after the last came."""
        zero = (step + 1) * STEP_NS
        end = zero + round((max(arrive_ms) + transfer_ms) * MS)
        for rank, arrive in enumerate(arrive_ms):
            line: dict[str, Any] = {
                "rank": rank, "step": step, "group": group, "op": op, "seq": self._seq[group],
                "bytes": size, "start_ns": zero + round(arrive * MS), "end_ns": end,
            }  # fmt: skip
            if join_ms is not None:
                line["join_ns"] = zero + round(max(join_ms, arrive) * MS)
            line["flags"] = int(Flag.ASYNC | (Flag.RELEASE_POLLED if polled else 0))
            self.lines.append(line)
        self._seq[group] += 1

    def write(self, path: Path) -> Path:
        """Write the lines, those of a rank in the order of their times."""
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines), encoding="utf-8")
        return path


def write_manifest(path: Path, told: Manifest) -> Path:
    path.write_text(json.dumps(asdict(told)), encoding="utf-8")
    return path
