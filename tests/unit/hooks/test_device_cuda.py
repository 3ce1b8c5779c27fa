"""The adapter on torch's CUDA, against a driver library made for the test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.hooks import device_cuda
from paceline.hooks.device_cuda import TorchCuda

# Events are pointers beyond 32 bits: how long they are is what a wrong signature gets wrong.
DRIVER = r"""
#include <string.h>
static int mode = 0;
int cuEventQuery(void *event) {
  if (event == (void *)0x7f0000000010) return 0;
  return event == (void *)0x7f0000000020 ? 600 : 700;
}
int cuEventElapsedTime(float *ms, void *start, void *end) {
  *ms = (float)((char *)end - (char *)start) / 64;
  return start == (void *)0x7f0000000010 ? 0 : 400;
}
int cuThreadExchangeStreamCaptureMode(int *asked) {
  int former = mode; mode = *asked; *asked = former; return mode == 2 ? 0 : 1;
}
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, 0xa0 + device, 16); return 0; }
int cuDeviceGetPCIBusId(char *text, int size, int device) {
  strncpy(text, "0000:3b:00.0", size); return 0;
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler; install gcc")
    directory = tmp_path_factory.mktemp("driver")
    source, library = directory / "driver.c", directory / "libcuda.so.1"
    source.write_text(DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def fake_torch(**properties: Any) -> Any:
    """What the adapter takes of torch, as torch 2.15 has it; ``properties`` are the device's."""
    stream = SimpleNamespace()
    recorded: list[Any] = []
    return SimpleNamespace(
        recorded=recorded,
        stream=stream,
        version=SimpleNamespace(cuda="12.8"),
        distributed=SimpleNamespace(is_nccl_available=lambda: True),
        cuda=SimpleNamespace(
            Event=lambda enable_timing: SimpleNamespace(timing=enable_timing),
            is_current_stream_capturing=lambda: False,
            current_stream=lambda device: stream,
            set_device=lambda device: None,
            get_device_properties=lambda device: SimpleNamespace(name="H200", **properties),
            nccl=SimpleNamespace(version=lambda: (2, 28, 9)),
        ),
        _C=SimpleNamespace(
            _CudaEventBase=SimpleNamespace(
                record=lambda event, stream: recorded.append((event, stream))
            ),
            _cuda_getCurrentRawStream=lambda device: 0x7F00_0000_0000 + device,
        ),
    )


def event(address: int) -> Any:
    return SimpleNamespace(cuda_event=address)


def test_queries_and_times_go_to_the_driver(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_cuda, "DRIVER", str(driver))
    api = TorchCuda(fake_torch(), {})
    assert api.enter_polling_thread(0)
    first, second = event(0x7F00_0000_0010), event(0x7F00_0000_0020)
    assert api.query(first)
    assert not api.query(second)
    assert api.elapsed_ms(first, second) == 0.25
    with pytest.raises(RuntimeError, match="cuEventElapsedTime returned 400"):
        api.elapsed_ms(second, first)
    with pytest.raises(RuntimeError, match="cuEventQuery returned 700"):
        api.query(event(0x7F00_0000_0030))


def test_without_a_driver_nobody_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_cuda, "DRIVER", "libnone-of-this-name.so.1")
    assert not TorchCuda(fake_torch(), {}).enter_polling_thread(0)


def test_on_hip_nobody_polls() -> None:
    torch = fake_torch()
    torch.version.cuda = None
    assert not TorchCuda(torch, {}).enter_polling_thread(0)


def test_events_keep_the_time_and_go_to_the_current_stream() -> None:
    torch = fake_torch()
    api = TorchCuda(torch, {})
    made = api.new_event()
    assert made.timing
    assert api.record(made, 3) == 0x7F00_0000_0003
    assert torch.recorded == [(made, torch.stream)]


def test_a_device_is_named_as_nvidia_smi_names_it() -> None:
    torch = fake_torch(
        uuid="6f9a1d40-aaaa-bbbb-cccc-000011112222", pci_domain_id=0, pci_bus_id=59, pci_device_id=0
    )
    assert TorchCuda(torch, {"CUDA_VISIBLE_DEVICES": "4,5"}).facts(0) == {
        "gpu_uuid": "GPU-6f9a1d40-aaaa-bbbb-cccc-000011112222",
        "gpu_name": "H200",
        "gpu_pci": "00000000:3B:00.0",
        "cuda": "12.8",
        "nccl": "2.28.9",
    }


def test_a_slice_of_a_gpu_is_named_by_its_own_identity() -> None:
    torch = fake_torch(uuid="6f9a1d40-aaaa-bbbb-cccc-000011112222")
    api = TorchCuda(torch, {"CUDA_VISIBLE_DEVICES": "MIG-1234, MIG-5678"})
    assert api.facts(1)["gpu_uuid"] == "MIG-5678"


def test_older_torch_gets_the_names_from_the_driver(
    driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_cuda, "DRIVER", str(driver))
    facts = TorchCuda(fake_torch(), {}).facts(1)
    assert facts["gpu_uuid"] == "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1"
    assert facts["gpu_pci"] == "00000000:3B:00.0"


def test_what_nobody_knows_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_cuda, "DRIVER", "libnone-of-this-name.so.1")
    torch = fake_torch()
    torch.distributed.is_nccl_available = lambda: False
    assert TorchCuda(torch, {}).facts(0) == {"gpu_name": "H200", "cuda": "12.8"}
