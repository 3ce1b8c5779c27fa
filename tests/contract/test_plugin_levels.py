"""What NCCL is asked for by a job that begins below level full."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.nccl_driver import Nccl


@pytest.mark.parametrize(("level", "asked"), [("off", False), ("steps", False), ("full", True)])
def test_a_job_that_begins_at_a_low_level_does_not_pay_for_reports_of_kernels(
    plugin_library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    asked: bool,
) -> None:
    monkeypatch.setenv("PACELINE_RUNTIME_DIR", str(tmp_path / "rings"))
    monkeypatch.setenv("PACELINE_LEVEL", level)
    monkeypatch.delenv("PACELINE_NCCL_KERNELS", raising=False)
    nccl = Nccl(plugin_library, tmp_path, 5)
    nccl.comm()
    assert bool(nccl.mask.value & 0x40) == asked
