from __future__ import annotations

import inspect
import time
from types import ModuleType

import pytest

from paceline import telemetry as names
from paceline.sidecar.telemetry.nvml import Nvml, load_module
from paceline.sidecar.telemetry.reading import Reading
from paceline.telemetry import Scope
from tests.fakes.captures import fake_gpu, query_trees, shared_data
from tests.fakes.loading import a_gpu, fake_nvml

S = 1_000_000_000
QUERY_4090 = "gpu_telemetry/gpud/nvidia-smi-query.535.154.05.out.1.valid"
CAPTURE = "gpu_telemetry/nvidia_gpu_exporter/linux-x86_64__nvidia-{}__590.48.01.txt"


def session(module: ModuleType | None) -> Nvml:
    return Nvml(lambda: module)


def gpu_values(readings: list[Reading]) -> list[dict]:
    return [reading.values for reading in readings if reading.scope is Scope.GPU]


def test_everything_a_gpu_tells_is_read_in_the_units_of_the_names() -> None:
    [values] = gpu_values(session(fake_nvml(a_gpu(3, reasons=0x44))).read(S))
    assert values[names.SM_CLOCK] == 1_980_000_000
    assert values[names.SM_CLOCK_MAX] == 1_980_000_000
    assert values[names.THROTTLE] == ["sw_power_cap", "hw_thermal_slowdown"]
    assert values[names.THROTTLE_SW_POWER] == 1000
    assert values[names.POWER] == 650.5
    assert values[names.UTILIZATION] == 0.97
    assert values[names.MEM_TEMPERATURE] == 60
    assert values[names.ECC_CORRECTED] == 3
    assert values[names.REMAPPED_CORRECTABLE] == 1
    assert values[names.NVLINK_ACTIVE] == 18
    assert values[names.NVLINK_CRC] == 18 * 3
    assert values[names.GPU_PCI] == "0000:13:00"
    assert names.GPU_LOST not in values


def test_values_of_a_real_capture_come_through() -> None:
    trees = query_trees(shared_data(QUERY_4090).read_text())
    assert len(trees) == 8
    readings = session(fake_nvml(*map(fake_gpu, trees))).read(S)
    idle, busy = gpu_values(readings)[:2]
    assert idle[names.THROTTLE] == ["gpu_idle"]
    assert busy[names.THROTTLE] == ["sw_power_cap"], "the power cap of this capture is active"
    assert busy[names.PCIE_GEN] == 4
    assert idle[names.PCIE_GEN] == 1
    assert idle[names.POWER] == 18.9
    assert idle[names.POWER_LIMIT] == 450
    assert idle[names.SM_CLOCK] == 210_000_000
    assert idle[names.SM_CLOCK_MAX] == 3_105_000_000
    assert names.MEM_TEMPERATURE not in idle, "N/A there"
    assert names.ECC_CORRECTED not in idle, "N/A there"
    assert idle[names.REMAPPED_CORRECTABLE] == 0


@pytest.mark.parametrize("model", ["h200", "h100-80gb-hbm3"])
def test_an_idle_and_a_loaded_data_centre_gpu_differ_as_captured(model: str) -> None:
    trees = query_trees(shared_data(CAPTURE.format(model)).read_text())
    idle, load = gpu_values(session(fake_nvml(*map(fake_gpu, trees))).read(S))
    assert idle[names.THROTTLE] == ["gpu_idle"]
    assert idle[names.UTILIZATION] < load[names.UTILIZATION] <= 1
    assert idle[names.POWER] < load[names.POWER]
    assert idle[names.SM_CLOCK] < load[names.SM_CLOCK] <= load[names.SM_CLOCK_MAX]
    assert load[names.ECC_UNCORRECTED] == 0
    assert load[names.PCIE_WIDTH] == 16
    assert 0 < idle[names.MEM_TEMPERATURE] < 100


def test_what_is_not_supported_is_absent_and_not_asked_again() -> None:
    gpu = a_gpu()
    for key in ("ecc", "busy_percent", "nvlinks", "remapped_rows"):
        del gpu[key]
    module = fake_nvml(gpu)
    nvml = session(module)
    for second in range(60):
        [values] = gpu_values(nvml.read(second * S))
    assert names.ECC_CORRECTED not in values
    assert names.UTILIZATION not in values
    assert values[names.SM_CLOCK] == 1_980_000_000
    assert module.calls["nvmlDeviceGetUtilizationRates"] == 1
    assert module.calls["nvmlDeviceGetTotalEccErrors"] == 1
    assert module.calls["nvmlDeviceGetNvLinkState"] == 2, "once for states, once for errors"
    assert module.calls["nvmlDeviceGetClockInfo"] == 2 * 60


def test_an_older_driver_tells_its_throttle_reasons_by_the_older_call() -> None:
    gpu = a_gpu(old_reasons=0x8)
    del gpu["reasons"]
    nvml = session(fake_nvml(gpu))
    nvml.read(S)
    [values] = gpu_values(nvml.read(2 * S))
    assert values[names.THROTTLE] == ["hw_slowdown"]


def test_a_module_without_a_function_gives_everything_else() -> None:
    module = fake_nvml(a_gpu())
    del module.nvmlDeviceGetFieldValues
    [values] = gpu_values(session(module).read(S))
    assert names.MEM_TEMPERATURE not in values
    assert values[names.POWER] == 650.5


def test_a_query_with_a_passing_error_is_tried_again_a_minute_later() -> None:
    module = fake_nvml(a_gpu(power_mw={"error": 999}))
    nvml = session(module)
    [values] = gpu_values(nvml.read(S))
    assert names.POWER not in values
    assert names.GPU_LOST not in values
    module.state["gpus"][0]["power_mw"] = 1000
    [values] = gpu_values(nvml.read(30 * S))
    assert names.POWER not in values
    [values] = gpu_values(nvml.read(62 * S))
    assert values[names.POWER] == 1


@pytest.mark.parametrize("code", [15, 28, 999])
def test_a_gpu_that_falls_off_the_bus_is_a_fact_and_may_come_back(code: int) -> None:
    module = fake_nvml(a_gpu(0), a_gpu(1))
    nvml = session(module)
    nvml.read(S)
    module.state["gpus"][1]["error"] = code
    for second in (2, 3, 4):
        healthy, lost = gpu_values(nvml.read(second * S))
        assert healthy[names.SM_CLOCK]
        assert names.GPU_LOST not in healthy
        assert lost == {names.GPU_LOST: 1}
    lost_reading = nvml.read(5 * S)[1]
    assert lost_reading.gpu is not None
    assert lost_reading.gpu.uuid == a_gpu(1)["uuid"]
    del module.state["gpus"][1]["error"]
    _, back = gpu_values(nvml.read(30 * S))
    assert back[names.SM_CLOCK] == 1_980_000_000
    assert names.GPU_LOST not in back


def test_a_gpu_that_is_lost_from_the_start_does_not_hide_the_others() -> None:
    lost, healthy = gpu_values(session(fake_nvml(a_gpu(0, error=15), a_gpu(1))).read(S))
    assert lost == {names.GPU_LOST: 1}
    assert healthy[names.GPU_INDEX] == 1


@pytest.mark.parametrize("code", [9, 12, 18, 4, 999])
def test_a_node_whose_driver_does_not_answer_is_quiet_and_tried_ever_less_often(code: int) -> None:
    module = fake_nvml(init_error=code)
    nvml = session(module)
    assert [nvml.read(second * S) for second in range(600)] == [[]] * 600
    assert nvml.problem
    assert module.calls["nvmlInit"] < 20
    del module.state["init_error"]
    module.state["gpus"] = [a_gpu()]
    assert gpu_values(nvml.read(700 * S))


def test_without_the_library_nothing_is_read_and_nothing_is_tried_again() -> None:
    asked = []
    nvml = Nvml(lambda: asked.append(1))
    assert [nvml.read(second * S) for second in range(100)] == [[]] * 100
    assert len(asked) == 1
    assert nvml.problem == "nvidia-ml-py is not installed"


def test_a_reloaded_driver_is_found_again_and_the_gap_is_told() -> None:
    module = fake_nvml(a_gpu())
    nvml = session(module)
    nvml.read(S)
    module.state["error"] = 9
    node = [r.values for r in nvml.read(2 * S) if r.scope is Scope.NODE]
    assert node == [{names.NVML_ERROR: "Driver Not Loaded"}]
    module.state["error"] = 0
    assert not gpu_values(nvml.read(2 * S + 1)), "a pause comes first"
    readings = nvml.read(5 * S)
    assert gpu_values(readings)
    assert [r.values for r in readings if r.scope is Scope.NODE] == [{names.NVML_ERROR: ""}]
    assert module.calls["nvmlShutdown"] == 1


def test_mig_instances_tell_their_own_memory_and_the_gpu_the_rest() -> None:
    instances = [
        {"uuid": "MIG-aaaa", "memory_bytes": [1, 10]},
        {"uuid": "MIG-bbbb", "memory_bytes": [2, 20]},
    ]
    gpu = a_gpu(0, mig=1, mig_instances=instances)
    del gpu["busy_percent"]  # NVML does not tell it in this mode
    whole, first, second = session(fake_nvml(gpu)).read(S)[:3]
    assert whole.values[names.MIG] == 1
    assert names.MEM_USED not in whole.values
    assert names.UTILIZATION not in whole.values
    assert whole.gpu is not None
    assert whole.gpu.is_called("mig-BBBB")
    assert first.values == {names.MIG_UUID: "MIG-aaaa", names.MEM_USED: 1, names.MEM_TOTAL: 10}
    assert second.gpu is not None
    assert not second.gpu.is_called("MIG-aaaa")


def test_links_that_are_down_are_named() -> None:
    [values] = gpu_values(session(fake_nvml(a_gpu(nvlinks=[1, 0, 1, 0]))).read(S))
    assert values[names.NVLINK_ACTIVE] == 2
    assert values[names.NVLINK_DOWN] == ["1", "3"]


def test_the_fake_has_the_functions_of_the_real_library_with_their_arguments() -> None:
    real = load_module()
    if real is None:
        pytest.skip("nvidia-ml-py is missing: pip install nvidia-ml-py")
    fake = fake_nvml()
    offered = [name for name in vars(fake) if name.startswith("nvml")]
    assert offered
    for name in offered:
        theirs = inspect.signature(getattr(real, name)).parameters
        assert list(inspect.signature(getattr(fake, name)).parameters) == list(theirs), name


def test_the_real_library_is_absent_or_answers_here_without_an_exception() -> None:
    began_s = time.monotonic()
    nvml = Nvml()
    readings = nvml.read(S)
    nvml.close()
    assert readings or nvml.problem
    assert time.monotonic() - began_s < 30
