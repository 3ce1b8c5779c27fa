"""The part of nvidia-ml-py that the sidecar calls, without a GPU: scripted by data.

``state`` is ``{"gpus": [{...}], "init_error": code}``. A GPU is a dictionary by the names below; a
key that is missing is not supported, ``{"error": code}`` raises. With ``FAKE_NVML_STATE`` in the
environment the state is read from that file, again whenever it changes. ``before(name)`` is called
before every answer: a test may block or fail there.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from types import SimpleNamespace

NOT_SUPPORTED, INVALID_ARGUMENT, UNINITIALIZED, NOT_FOUND = 3, 2, 1, 6
state: dict = {"gpus": []}
calls: Counter = Counter()
before = lambda name: None  # noqa: E731  a test replaces it
_initialised = False
_read_at = 0.0


class NVMLError(Exception):
    """As the real one: ``value`` is the nvmlReturn_t."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return {9: "Driver Not Loaded", 12: "NVML Shared Library Not Found", 15: "GPU is lost"}.get(
            self.value, f"NVML Error with code {self.value}"
        )


def _called(name: str) -> None:
    global _read_at, state
    calls[name] += 1
    before(name)
    path = os.environ.get("FAKE_NVML_STATE", "")
    if path and (changed := os.stat(path).st_mtime) != _read_at:
        _read_at = changed
        with open(path) as file:
            state = json.load(file)
    if error := state.get("error"):
        raise NVMLError(error)


def _value(name: str, handle, key: str):
    _called(name)
    if not _initialised:
        raise NVMLError(UNINITIALIZED)
    gpu = state["gpus"][handle["index"]] if "index" in handle else handle
    if error := gpu.get("error"):
        raise NVMLError(error)
    value = gpu.get(key)
    if value is None:
        raise NVMLError(NOT_SUPPORTED)
    if isinstance(value, dict) and "error" in value:
        raise NVMLError(value["error"])
    return value


def nvmlInit():
    global _initialised
    _called("nvmlInit")
    if error := state.get("init_error"):
        raise NVMLError(error)
    _initialised = True


def nvmlShutdown():
    global _initialised
    calls["nvmlShutdown"] += 1
    _initialised = False


def nvmlDeviceGetCount():
    _called("nvmlDeviceGetCount")
    return len(state["gpus"])


def nvmlDeviceGetHandleByIndex(index):
    _called("nvmlDeviceGetHandleByIndex")
    if not 0 <= index < len(state["gpus"]):
        raise NVMLError(INVALID_ARGUMENT)
    if error := state["gpus"][index].get("error"):
        raise NVMLError(error)
    return {"index": index}


def nvmlDeviceGetUUID(handle):
    return _value("nvmlDeviceGetUUID", handle, "uuid")


def nvmlDeviceGetName(handle):
    return _value("nvmlDeviceGetName", handle, "name")


def nvmlDeviceGetPciInfo(handle):
    return SimpleNamespace(busId=_value("nvmlDeviceGetPciInfo", handle, "pci").encode())


def nvmlDeviceGetClockInfo(handle, type):
    return _value("nvmlDeviceGetClockInfo", handle, {1: "sm_mhz", 2: "mem_mhz"}[type])


def nvmlDeviceGetMaxClockInfo(handle, type):
    return _value("nvmlDeviceGetMaxClockInfo", handle, {1: "max_sm_mhz", 2: "max_mem_mhz"}[type])


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    return _value("nvmlDeviceGetCurrentClocksEventReasons", handle, "reasons")


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    return _value("nvmlDeviceGetCurrentClocksThrottleReasons", handle, "old_reasons")


def nvmlDeviceGetFieldValues(handle, fieldIds):
    fields = _value("nvmlDeviceGetFieldValues", handle, "fields")
    return [
        SimpleNamespace(
            nvmlReturn=0 if str(one) in fields else NOT_SUPPORTED,
            valueType=3,
            value=SimpleNamespace(ullVal=fields.get(str(one), 0)),
        )
        for one in fieldIds
    ]


def nvmlDeviceGetTemperature(handle, sensor):
    return _value("nvmlDeviceGetTemperature", handle, "temperature_c")


def nvmlDeviceGetPowerUsage(handle):
    return _value("nvmlDeviceGetPowerUsage", handle, "power_mw")


def nvmlDeviceGetEnforcedPowerLimit(handle):
    return _value("nvmlDeviceGetEnforcedPowerLimit", handle, "power_limit_mw")


def nvmlDeviceGetUtilizationRates(handle):
    gpu, memory = _value("nvmlDeviceGetUtilizationRates", handle, "busy_percent")
    return SimpleNamespace(gpu=gpu, memory=memory)


def nvmlDeviceGetMemoryInfo(handle, version=None):
    used, total = _value("nvmlDeviceGetMemoryInfo", handle, "memory_bytes")
    return SimpleNamespace(used=used, total=total)


def nvmlDeviceGetTotalEccErrors(handle, errorType, counterType):
    return _value("nvmlDeviceGetTotalEccErrors", handle, "ecc")[errorType]


def nvmlDeviceGetRemappedRows(device):
    return tuple(_value("nvmlDeviceGetRemappedRows", device, "remapped_rows"))


def nvmlDeviceGetCurrPcieLinkGeneration(handle):
    return _value("nvmlDeviceGetCurrPcieLinkGeneration", handle, "pcie")[0]


def nvmlDeviceGetCurrPcieLinkWidth(handle):
    return _value("nvmlDeviceGetCurrPcieLinkWidth", handle, "pcie")[1]


def nvmlDeviceGetMaxPcieLinkGeneration(handle):
    return _value("nvmlDeviceGetMaxPcieLinkGeneration", handle, "max_pcie")[0]


def nvmlDeviceGetMaxPcieLinkWidth(handle):
    return _value("nvmlDeviceGetMaxPcieLinkWidth", handle, "max_pcie")[1]


def nvmlDeviceGetPcieReplayCounter(handle):
    return _value("nvmlDeviceGetPcieReplayCounter", handle, "pcie_replays")


def nvmlDeviceGetNvLinkState(device, link):
    links = _value("nvmlDeviceGetNvLinkState", device, "nvlinks")
    if link >= len(links):
        raise NVMLError(INVALID_ARGUMENT)
    return links[link]


def nvmlDeviceGetNvLinkErrorCounter(device, link, counter):
    return _value("nvmlDeviceGetNvLinkErrorCounter", device, "nvlink_errors")[counter]


def nvmlDeviceGetMigMode(device):
    return [_value("nvmlDeviceGetMigMode", device, "mig"), 0]


def nvmlDeviceGetMaxMigDeviceCount(device):
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(device, index):
    instances = _value("nvmlDeviceGetMigDeviceHandleByIndex", device, "mig_instances")
    if index >= len(instances):
        raise NVMLError(NOT_FOUND)
    return instances[index]
