"""CUDA through torch, and through its driver where torch would hold the interpreter's lock.

``torch.cuda.Event.query`` keeps the lock while it waits for CUDA's own, which another thread
holds for as long as it synchronizes: every Python thread of the job would stand still. The
driver's calls are made without it. They also leave no error behind in CUDA's runtime.
"""

from __future__ import annotations

import ctypes
from typing import Any

DRIVER = "libcuda.so.1"
_NOT_READY = 600
_RELAXED = 2
_UUID_BYTES = 16
_PCI_BYTES = 32
MAX_STREAMS = 64


class TorchCuda:
    """The device API of a process whose torch has CUDA. It never initialises CUDA.

    Args:
        torch: the imported torch.
        env: usually ``os.environ``.
    """

    def __init__(self, torch: Any, env: Any) -> None:
        self._torch = torch
        self._visible = [name.strip() for name in env.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        self._driver: Any = None
        self._event: Any = torch.cuda.Event
        self._record: Any = torch._C._CudaEventBase.record
        self._raw_stream: Any = torch._C._cuda_getCurrentRawStream
        self._streams: dict[tuple[int, int], Any] = {}
        self._aside: dict[int, Any] = {}
        self.is_capturing = torch.cuda.is_current_stream_capturing

    def new_event(self) -> Any:
        """See ``DeviceApi``; torch makes CUDA's event when it is first recorded."""
        return self._event(enable_timing=True)

    def record(self, event: Any, device: int) -> int:
        """See ``DeviceApi``."""
        handle: int = self._raw_stream(device)
        key = (device, handle)
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                self._streams.clear()
            stream = self._streams[key] = self._torch.cuda.current_stream(device)
        self._record(event, stream)
        return handle

    def record_aside(self, event: Any, device: int) -> None:
        """See ``DeviceApi``."""
        stream = self._aside.get(device)
        if stream is None:
            stream = self._aside[device] = self._torch.cuda.Stream(device)
        self._record(event, stream)

    def query(self, event: Any) -> bool:
        """See ``DeviceApi``."""
        status: int = self._driver.cuEventQuery(event.cuda_event)
        if status == _NOT_READY:
            return False
        _check("cuEventQuery", status)
        return True

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """See ``DeviceApi``."""
        elapsed_ms = ctypes.c_float()
        status = self._driver.cuEventElapsedTime(
            ctypes.byref(elapsed_ms), start.cuda_event, end.cuda_event
        )
        _check("cuEventElapsedTime", status)
        return elapsed_ms.value

    def enter_polling_thread(self, device: int) -> bool:
        """See ``DeviceApi``.

        A query from any thread ends a capture in CUDA's default mode, unless the asking thread
        has said that it knows what it does.
        """
        if self._torch.version.cuda is None:
            return False  # HIP's queries end captures whatever the mode (ROCm before 7.3)
        try:
            self._driver = _driver()
            mode = ctypes.c_int(_RELAXED)
            status: int = self._driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        except (OSError, AttributeError):
            return False
        if status != 0:
            return False
        # Else the thread would be one of device 0, and could make a context there.
        self._torch.cuda.set_device(device)
        return True

    def facts(self, device: int) -> dict[str, str]:
        """See ``DeviceApi``; ``gpu_uuid`` and ``gpu_pci`` are written as nvidia-smi does."""
        torch = self._torch
        properties = torch.cuda.get_device_properties(device)
        facts = {
            "gpu_uuid": self._uuid(device, properties),
            "gpu_name": str(properties.name),
            "gpu_pci": self._pci(device, properties),
            "cuda": str(torch.version.cuda or ""),
        }
        if torch.distributed.is_nccl_available():
            facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()[:3]))
        return {name: value for name, value in facts.items() if value}

    def _uuid(self, device: int, properties: Any) -> str:
        visible = self._visible[device] if device < len(self._visible) else ""
        if visible.startswith("MIG-"):
            return visible
        known = str(getattr(properties, "uuid", "")) or _driver_uuid(device)
        return f"GPU-{known}" if known else ""

    def _pci(self, device: int, properties: Any) -> str:
        if hasattr(properties, "pci_bus_id"):
            domain, bus = properties.pci_domain_id, properties.pci_bus_id
            return f"{domain:08X}:{bus:02X}:{properties.pci_device_id:02X}.0"
        return _driver_pci(device)


def _driver() -> Any:
    driver = ctypes.CDLL(DRIVER)
    driver.cuEventQuery.argtypes = [ctypes.c_void_p]
    driver.cuEventElapsedTime.argtypes = [
        ctypes.POINTER(ctypes.c_float),
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    return driver


def _check(call: str, status: int) -> None:
    if status != 0:
        raise RuntimeError(f"{call} returned {status}")


def _driver_uuid(device: int) -> str:
    """Return what torch before 2.5 does not tell; empty where the driver does not either."""
    raw = ctypes.create_string_buffer(_UUID_BYTES)
    try:
        driver = ctypes.CDLL(DRIVER)
        if driver.cuDeviceGetUuid(raw, ctypes.c_int(device)) != 0:
            return ""
    except (OSError, AttributeError):
        return ""
    text = raw.raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _driver_pci(device: int) -> str:
    text = ctypes.create_string_buffer(_PCI_BYTES)
    try:
        driver = ctypes.CDLL(DRIVER)
        if driver.cuDeviceGetPCIBusId(text, _PCI_BYTES, ctypes.c_int(device)) != 0:
            return ""
    except (OSError, AttributeError):
        return ""
    domain, _, rest = text.value.decode().upper().partition(":")
    return f"{domain:>08}:{rest}"
