"""The sections of `make gpu-check` as tests (docs/gpu.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tools.gpu_check.sections import SECTIONS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="no NVIDIA GPU; on a machine with one: make test-gpu"
    ),
]


@pytest.mark.parametrize("section", [one.name for one in SECTIONS])
def test_the_section_is_as_expected(tmp_path: Path, section: str) -> None:
    out = tmp_path / "gpu.json"
    done = subprocess.run(
        [sys.executable, "-m", "tools.gpu_check", "--only", section, "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + json.dumps(json.loads(out.read_text()), indent=1)
