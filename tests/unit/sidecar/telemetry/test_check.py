from __future__ import annotations

import threading
from pathlib import Path

from paceline.doctor.telemetry import judge, telemetry
from paceline.sidecar.telemetry.check import telemetry_facts
from paceline.sidecar.telemetry.host_source import Roots
from tests.fakes.loading import a_gpu, fake_nvml
from tests.fakes.trees import procfs, sysfs, write


def roots(path: Path) -> Roots:
    (path / "kmsg").write_bytes(b"")
    return Roots(sysfs=sysfs(path / "sys"), procfs=procfs(path / "proc"), kmsg=path / "kmsg")


def test_a_healthy_node_is_counted_up(tmp_path: Path) -> None:
    facts = telemetry_facts(roots(tmp_path), lambda: fake_nvml(a_gpu(0), a_gpu(1)))
    check = judge(facts)
    assert check.status == "ok"
    assert check.found == "2 GPU(s), pressure, 1 network card(s), 1 InfiniBand port(s)"


def test_a_node_without_gpus_lacks_nothing(tmp_path: Path) -> None:
    places = Roots(sysfs=tmp_path, procfs=tmp_path, kmsg=tmp_path / "none")
    facts = telemetry_facts(places, lambda: None)
    check = judge(facts)
    assert check.status == "ok"
    assert check.found.startswith("no GPU (nvidia-ml-py is not installed), no kernel log, ")


def test_a_driver_without_an_nvml_is_a_warning(tmp_path: Path) -> None:
    places = roots(tmp_path)
    write(tmp_path / "proc", {"driver/nvidia/version": "NVRM"})
    missing = judge(telemetry_facts(places, lambda: None))
    assert (missing.status, missing.remedy) == ("warn", "pip install nvidia-ml-py")
    broken = judge(telemetry_facts(places, lambda: fake_nvml(init_error=18)))
    assert broken.status == "warn"
    assert "nvidia-smi" in broken.remedy


def test_a_lost_gpu_and_an_unreadable_kernel_log_are_warnings(tmp_path: Path) -> None:
    places = roots(tmp_path)
    (tmp_path / "kmsg").unlink()
    check = judge(telemetry_facts(places, lambda: fake_nvml(a_gpu(0), a_gpu(1, error=15))))
    assert check.status == "warn"
    assert "1 lost" in check.found
    assert "CAP_SYSLOG" in check.remedy


def test_an_nvml_that_never_answers_is_given_up(tmp_path: Path) -> None:
    module, free = fake_nvml(a_gpu()), threading.Event()
    module.before = lambda name: free.wait(20)
    facts = telemetry_facts(roots(tmp_path), lambda: module, timeout_s=0.2)
    assert facts.nvml == "no answer within 0.2 s"
    free.set()


def test_this_node_can_be_judged() -> None:
    assert telemetry({}).name == "telemetry"
