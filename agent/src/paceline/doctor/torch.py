"""torch, its backends and NCCL."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from paceline.doctor.check import FAIL, OK, WARN, Check


def torch_checks() -> list[Check]:
    """Look for torch, its backends and NCCL."""
    if importlib.util.find_spec("torch") is None:
        remedy = "pip install torch into this environment, or run the doctor of the job's one"
        return [Check(name="torch", status=FAIL, found="not installed", remedy=remedy)]
    import torch

    checks = [Check(name="torch", status=OK, found=f"{torch.__version__} in {sys.prefix}")]
    if not torch.distributed.is_available():
        remedy = "install a torch that was built with USE_DISTRIBUTED=1"
        return [*checks, Check(name="distributed", status=FAIL, found="missing", remedy=remedy)]
    backends = [
        name
        for name in ("gloo", "nccl", "mpi", "ucc", "xccl")
        if getattr(torch.distributed, f"is_{name}_available", bool)()
    ]
    checks.append(Check(name="backends", status=OK, found=", ".join(backends) or "none"))
    checks.append(_nccl(torch, "nccl" in backends))
    return checks


def _nccl(torch: Any, built_in: bool) -> Check:
    if not built_in:
        return Check(name="nccl", status=OK, found="not in this torch (a CPU build)")
    version = ".".join(str(part) for part in torch.cuda.nccl.version())
    gpus = torch.cuda.device_count()
    if not gpus:
        remedy = "run the doctor on a node with GPUs to see more"
        return Check(name="nccl", status=WARN, found=f"{version}, but no GPU here", remedy=remedy)
    return Check(name="nccl", status=OK, found=f"{version}, {gpus} GPU(s)")
