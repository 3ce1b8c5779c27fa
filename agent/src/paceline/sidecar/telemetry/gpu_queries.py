"""What is asked of one GPU: each query is a function of the NVML module and a handle.

A query raises what the NVML module raises. It knows nothing of errors: ``gpu.py`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline import telemetry as names
from paceline.telemetry import Values

Query = Callable[[Any, Any], Values]
_SM, _MEM = 1, 2
_MHZ = 1_000_000
_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0
_MAX_LINKS = 36
_NS_FIELDS = {
    74: names.THROTTLE_SW_POWER,
    76: names.THROTTLE_SYNC_BOOST,
    269: names.THROTTLE_SW_THERMAL,
    270: names.THROTTLE_HW_THERMAL,
    271: names.THROTTLE_HW_BRAKE,
}
_FIELDS = {82: names.MEM_TEMPERATURE, **_NS_FIELDS}
_FIELD_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of the union by the type that NVML says."""
THROTTLE_REASONS = (
    "gpu_idle",
    "applications_clocks",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake",
    "display_clock",
    "board_limit",
    "reliability",
)
"""By bit; what is set beyond them is given as a number."""
_LINK_ERRORS = {0: names.NVLINK_REPLAY, 1: names.NVLINK_RECOVERY, 2: names.NVLINK_CRC}


def clocks(nvml: Any, gpu: Any) -> Values:
    """Return the clocks of SMs and memory."""
    return {
        names.SM_CLOCK: nvml.nvmlDeviceGetClockInfo(gpu, _SM) * _MHZ,
        names.MEM_CLOCK: nvml.nvmlDeviceGetClockInfo(gpu, _MEM) * _MHZ,
    }


def max_clocks(nvml: Any, gpu: Any) -> Values:
    """Return the highest clocks of SMs and memory."""
    return {
        names.SM_CLOCK_MAX: nvml.nvmlDeviceGetMaxClockInfo(gpu, _SM) * _MHZ,
        names.MEM_CLOCK_MAX: nvml.nvmlDeviceGetMaxClockInfo(gpu, _MEM) * _MHZ,
    }


def throttle(nvml: Any, gpu: Any) -> Values:
    """Return what holds the clocks down."""
    return {names.THROTTLE: reasons_of(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))}


def throttle_old(nvml: Any, gpu: Any) -> Values:
    """Return the same of a driver before 535, which has another name for it."""
    return {names.THROTTLE: reasons_of(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))}


def reasons_of(mask: int) -> list[str]:
    """Return the names of the bits of ``mask``."""
    reasons = [name for bit, name in enumerate(THROTTLE_REASONS) if mask >> bit & 1]
    if rest := mask >> len(THROTTLE_REASONS) << len(THROTTLE_REASONS):
        reasons.append(hex(rest))
    return reasons


def fields(nvml: Any, gpu: Any) -> Values:
    """Return memory temperature and how long each reason held the clocks down."""
    values: Values = {}
    wanted = list(_FIELDS)
    for asked, got in zip(wanted, nvml.nvmlDeviceGetFieldValues(gpu, wanted), strict=False):
        if got.nvmlReturn == 0 and 0 <= got.valueType < len(_FIELD_MEMBERS):
            values[_FIELDS[asked]] = getattr(got.value, _FIELD_MEMBERS[got.valueType])
    return values


def temperature(nvml: Any, gpu: Any) -> Values:
    """Return the temperature of the GPU."""
    return {names.TEMPERATURE: nvml.nvmlDeviceGetTemperature(gpu, 0)}


def power(nvml: Any, gpu: Any) -> Values:
    """Return the power draw."""
    return {names.POWER: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000}


def power_limit(nvml: Any, gpu: Any) -> Values:
    """Return the power limit in force."""
    return {names.POWER_LIMIT: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000}


def utilization(nvml: Any, gpu: Any) -> Values:
    """Return how busy kernels and memory were."""
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    return {
        names.UTILIZATION: rates.gpu / 100,
        names.MEM_UTILIZATION: rates.memory / 100,
    }


def memory(nvml: Any, gpu: Any) -> Values:
    """Return used and whole memory."""
    info = nvml.nvmlDeviceGetMemoryInfo(gpu)
    return {names.MEM_USED: info.used, names.MEM_TOTAL: info.total}


def ecc(nvml: Any, gpu: Any) -> Values:
    """Return ECC errors since the driver was loaded."""
    count = nvml.nvmlDeviceGetTotalEccErrors
    return {
        names.ECC_CORRECTED: count(gpu, _CORRECTED, _VOLATILE),
        names.ECC_UNCORRECTED: count(gpu, _UNCORRECTED, _VOLATILE),
    }


def remapped_rows(nvml: Any, gpu: Any) -> Values:
    """Return the rows of memory that were replaced, ever."""
    correctable, uncorrectable, pending, failure = nvml.nvmlDeviceGetRemappedRows(gpu)
    return {
        names.REMAPPED_CORRECTABLE: correctable,
        names.REMAPPED_UNCORRECTABLE: uncorrectable,
        names.REMAP_PENDING: int(bool(pending)),
        names.REMAP_FAILURE: int(bool(failure)),
    }


def pcie(nvml: Any, gpu: Any) -> Values:
    """Return generation and width of the PCIe link now."""
    return {
        names.PCIE_GEN: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
        names.PCIE_WIDTH: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    }


def max_pcie(nvml: Any, gpu: Any) -> Values:
    """Return the best generation and width that GPU and slot allow."""
    return {
        names.PCIE_GEN_MAX: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
        names.PCIE_WIDTH_MAX: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),
    }


def pcie_replays(nvml: Any, gpu: Any) -> Values:
    """Return how often a PCIe transfer was repeated."""
    return {names.PCIE_REPLAY: nvml.nvmlDeviceGetPcieReplayCounter(gpu)}


def nvlink_states(nvml: Any, gpu: Any) -> Values:
    """Return how many NVLinks are up, and which are down."""
    up, down = _links(nvml, gpu)
    return {names.NVLINK_ACTIVE: len(up), names.NVLINK_DOWN: [str(link) for link in down]}


def nvlink_errors(nvml: Any, gpu: Any) -> Values:
    """Return the errors of all NVLinks that are up."""
    up, _ = _links(nvml, gpu)
    values: Values = {}
    for counter, name in _LINK_ERRORS.items():
        values[name] = sum(nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, link, counter) for link in up)
    return values


def _links(nvml: Any, gpu: Any) -> tuple[list[int], list[int]]:
    up: list[int] = []
    down: list[int] = []
    for link in range(_MAX_LINKS):
        try:
            (up if nvml.nvmlDeviceGetNvLinkState(gpu, link) else down).append(link)
        except nvml.NVMLError:
            if not link:
                raise
            break  # a link that this GPU does not have
    return up, down


FAST: tuple[Query, ...] = (clocks, throttle, fields, temperature, power, utilization, memory, pcie)
"""With every sample."""
SLOW: tuple[Query, ...] = (
    max_clocks, power_limit, max_pcie, pcie_replays, ecc, remapped_rows, nvlink_states,
    nvlink_errors,
)  # fmt: skip
"""Every ten seconds: they change seldom, and the driver may have to ask the card."""
INSTEAD: dict[Query, Query] = {throttle: throttle_old}
"""What to try where a query is not supported."""
