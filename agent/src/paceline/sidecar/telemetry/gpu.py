"""One GPU: what it answers, what it cannot, and whether it is still there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paceline import telemetry as names
from paceline.sidecar.telemetry import gpu_queries
from paceline.sidecar.telemetry.gpu_queries import FAST, INSTEAD, SLOW, Query
from paceline.sidecar.telemetry.reading import Gpu, Reading, pci_address
from paceline.telemetry import Scope, Values, clean

# Values of nvmlReturn_t.
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION = 1, 2, 3, 4
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 9, 12, 13
GPU_IS_LOST, LIB_RM_VERSION_MISMATCH, GPU_NOT_FOUND, UNKNOWN = 15, 18, 28, 999
_NEVER = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND})
_LOST = frozenset({GPU_IS_LOST, GPU_NOT_FOUND})
_SESSION_OVER = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})
ASK_AGAIN_NS = 60_000_000_000
"""A query that failed for a reason that may pass is tried again after so long."""
LOOK_AGAIN_NS = 10_000_000_000
"""A GPU that is lost is looked for this often."""
_MAX_INSTANCES = 16


class SessionOverError(Exception):
    """NVML has to be initialised again: the driver was unloaded or replaced."""


class GpuLostError(Exception):
    """The GPU does not answer any more."""


class Device:
    """One GPU of a session of NVML.

    Args:
        nvml: the NVML module.
        index: the GPU's index.
        asking: told the name of every query before it is made.
    """

    def __init__(self, nvml: Any, index: int, asking: Callable[[Gpu, str], None]) -> None:
        self._nvml = nvml
        self._asking = asking
        self._handle: Any = None
        self._unsupported: set[Query] = set()
        self._not_before_ns: dict[Query, int] = {}
        self._facts: Values = {}
        self._instances: list[tuple[str, Any]] = []
        self._look_again_ns = 0
        self.lost = False
        self.gpu = Gpu(index=index, uuid="", pci="")
        self._find()

    def read(self, now_ns: int, *, slow: bool) -> list[Reading]:
        """Return the values of now: one reading, and one more for each MIG instance.

        Raises:
            SessionOverError: nothing will be answered before NVML is initialised again.
        """
        if self.lost and now_ns >= self._look_again_ns:
            self._look_again_ns = now_ns + LOOK_AGAIN_NS
            self._find()
        if self.lost:
            return [Reading(now_ns, Scope.GPU, {names.GPU_LOST: 1}, self.gpu)]
        try:
            values = self._values(now_ns, slow=slow)
            if slow:
                self._look_for_instances()
        except GpuLostError:
            self.lost = True
            self._look_again_ns = now_ns + LOOK_AGAIN_NS
            return [Reading(now_ns, Scope.GPU, {names.GPU_LOST: 1}, self.gpu)]
        values |= self._facts
        if self._instances:  # used and whole memory are of all instances together
            for name in (names.MEM_USED, names.MEM_TOTAL):
                values.pop(name, None)
        parent = Reading(now_ns, Scope.GPU, clean(values), self.gpu)
        return [parent, *self._instance_readings(now_ns)]

    def _values(self, now_ns: int, *, slow: bool) -> Values:
        values: Values = {}
        asked = unknown = 0
        for query in (*FAST, *SLOW) if slow else FAST:
            query = INSTEAD.get(query, query) if query in self._unsupported else query
            if query in self._unsupported or self._not_before_ns.get(query, 0) > now_ns:
                continue
            asked += 1
            try:
                values |= self._ask(query, self._handle)
            except self._nvml.NVMLError as error:
                code = error.value
                if code in _LOST:
                    raise GpuLostError from error
                if code in _SESSION_OVER:
                    raise SessionOverError(str(error)) from error
                if code in _NEVER:
                    self._unsupported.add(query)
                else:
                    unknown += code == UNKNOWN
                    self._not_before_ns[query] = now_ns + ASK_AGAIN_NS
            except Exception:  # an older module lacks the function, or a driver answers nonsense
                self._unsupported.add(query)
        # One unknown error is a quirk of a query; nothing but unknown errors is a GPU that fell
        # off the bus: some drivers say it like that.
        if unknown and unknown == asked:
            self._not_before_ns.clear()
            raise GpuLostError
        return values

    def _ask(self, query: Query, handle: Any) -> Values:
        self._asking(self.gpu, query.__name__)
        return query(self._nvml, handle)

    def _find(self) -> None:
        nvml, index = self._nvml, self.gpu.index
        self._asking(self.gpu, "handle")
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
            pci = pci_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
        except nvml.NVMLError as error:
            if error.value in _SESSION_OVER:
                raise SessionOverError(str(error)) from error
            self.lost = True
            return
        if self.gpu.uuid and uuid != self.gpu.uuid:
            return  # another GPU came to its index
        self._handle = handle
        self.lost = False
        self.gpu = Gpu(index=index, uuid=uuid, pci=pci, mig_uuids=self.gpu.mig_uuids)
        self._facts = {names.GPU_UUID: uuid, names.GPU_PCI: pci, names.GPU_INDEX: index}
        with contextlib.suppress(nvml.NVMLError):
            self._facts[names.GPU_NAME] = _text(nvml.nvmlDeviceGetName(handle))

    def _look_for_instances(self) -> None:
        """Find the MIG instances; they come and go while nothing runs on them."""
        nvml, found = self._nvml, []
        self._asking(self.gpu, "mig")
        try:
            on = bool(nvml.nvmlDeviceGetMigMode(self._handle)[0])
            for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(self._handle) if on else 0):
                try:
                    handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(self._handle, number)
                    found.append((_text(nvml.nvmlDeviceGetUUID(handle)), handle))
                except nvml.NVMLError:
                    continue
        except Exception:  # most GPUs have no MIG
            on = False
        if on:
            self._facts[names.MIG] = 1
        else:
            self._facts.pop(names.MIG, None)
        self._instances = found[:_MAX_INSTANCES]
        self.gpu = replace(self.gpu, mig_uuids=tuple(uuid for uuid, _ in self._instances))

    def _instance_readings(self, now_ns: int) -> list[Reading]:
        readings = []
        for uuid, handle in self._instances:
            values: Values = {names.MIG_UUID: uuid}
            with contextlib.suppress(self._nvml.NVMLError):
                values |= self._ask(gpu_queries.memory, handle)
            gpu = Gpu(index=-1, uuid=uuid, pci=self.gpu.pci)
            readings.append(Reading(now_ns, Scope.GPU, clean(values), gpu))
        return readings


def _text(value: Any) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
