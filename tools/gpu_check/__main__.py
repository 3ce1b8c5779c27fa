"""The command: ``python -m tools.gpu_check [--only NAME] [--out FILE] [--budget-s SECONDS]``.

Exit status: 0 all sections are as they should be, 1 one is not, 2 there is no GPU or no torch.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.gpu_check.plan import BUDGET_S, FAILED, Outcome, run_all, run_in_process

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "gpu.json"
SCHEMA = "paceline.gpu-check/1"
_LOOK = """
import json, torch
if not torch.cuda.is_available():
    print(json.dumps({"missing": f"torch {torch.__version__} sees no NVIDIA GPU"}))
else:
    one = torch.cuda.get_device_properties(0)
    nccl = torch.cuda.nccl.version()
    print(json.dumps({"gpu": one.name, "gpus": torch.cuda.device_count(),
        "gpu_memory_gib": round(one.total_memory / 2**30), "compute": f"{one.major}.{one.minor}",
        "torch": torch.__version__, "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, nccl)) if isinstance(nccl, tuple) else str(nccl)}))
"""


def look() -> dict[str, Any]:
    """Return what there is, or ``missing``: asked of another process, for CUDA stays with one."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LOOK], capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        return {"missing": "torch did not answer within 120 s"}
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        return {"missing": f"torch cannot be used with {sys.executable}: {last[0]}"}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def driver() -> str:
    """Return the version of NVIDIA's driver."""
    path = Path("/sys/module/nvidia/version")
    if path.exists():
        return path.read_text().strip()
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else "unknown"


def tell(outcome: Outcome) -> None:
    """Print one line of the table."""
    print(f"{outcome.name:<18} {outcome.status:<8} {outcome.seconds:6.1f} s  {outcome.said}",
          flush=True)  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Run the check; returns the exit status."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    parser.add_argument("--only", action="append", help="a section's name; may be repeated")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--budget-s", type=float, default=BUDGET_S)
    options = parser.parse_args(argv)
    # Sections and ranks are processes of their own and find the sources like this one.
    paths = [str(ROOT), str(ROOT / "agent" / "src"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    sys.path[:0] = paths[:2]
    machine = look()
    if "missing" in machine:
        print(f"gpu-check: nothing to check here: {machine['missing']}", file=sys.stderr)
        return 2
    from tools.gpu_check.sections import SECTIONS

    machine |= {"driver": driver(), "cores": os.cpu_count(), "python": platform.python_version()}
    chosen = [one for one in SECTIONS if not options.only or one.name in options.only]
    if not chosen:
        names = ", ".join(one.name for one in SECTIONS)
        print(f"gpu-check: --only takes one of: {names}", file=sys.stderr)
        return 2
    print(", ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    outcomes = run_all(chosen, run_in_process, budget_s=options.budget_s, tell=tell)
    result = {
        "schema": SCHEMA,
        "machine": machine,
        "sections": {
            one.name: {
                "status": one.status, "said": one.said, "seconds": one.seconds, **one.figures,
            }
            for one in outcomes
        },
    }  # fmt: skip
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"written to {options.out}", flush=True)
    return 1 if any(one.status == FAILED for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
