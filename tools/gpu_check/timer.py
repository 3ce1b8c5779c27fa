"""The GPU's global timer, read by a kernel of ten lines of PTX through CUDA's driver alone."""

from __future__ import annotations

import ctypes
import time
from typing import Any

STAMPS = """
.visible .entry stamps(.param .u64 out, .param .u32 count) {
  .reg .u64 %at, %now; .reg .u32 %i, %n; .reg .pred %over;
  ld.param.u64 %at, [out];
  ld.param.u32 %n, [count];
  mov.u32 %i, 0;
NEXT:
  setp.ge.u32 %over, %i, %n;
  @%over bra DONE;
  mov.u64 %now, %globaltimer;
  st.volatile.global.u64 [%at], %now;
  add.u64 %at, %at, 8;
  add.u32 %i, %i, 1;
  bra NEXT;
DONE:
  ret;
}
"""
ANSWERS = """
.visible .entry answers(.param .u64 asked, .param .u64 out, .param .u32 count) {
  .reg .u64 %ask, %at, %now; .reg .u32 %i, %n, %seen, %spins; .reg .pred %over, %wait;
  ld.param.u64 %ask, [asked];
  ld.param.u64 %at, [out];
  ld.param.u32 %n, [count];
  mov.u32 %i, 0;
NEXT:
  setp.ge.u32 %over, %i, %n;
  @%over bra DONE;
  add.u32 %i, %i, 1;
  mov.u32 %spins, 0;
WAIT:
  add.u32 %spins, %spins, 1;
  setp.gt.u32 %over, %spins, 20000000;
  @%over bra DONE;
  ld.volatile.global.u32 %seen, [%ask];
  setp.lt.u32 %wait, %seen, %i;
  @%wait bra WAIT;
  mov.u64 %now, %globaltimer;
  st.volatile.global.u64 [%at], %now;
  membar.sys;
  add.u64 %at, %at, 8;
  bra NEXT;
DONE:
  ret;
}
"""
"""Waits until the host has asked for the next one (for seconds at most), and stamps."""
TARGETS = (("8.0", "sm_90"), ("7.0", "sm_80"), ("6.3", "sm_75"), ("6.0", "sm_60"))
_SPIN_S = 2.0


class DriverError(Exception):
    """A call of CUDA's driver failed."""


class Timer:
    """Kernels that read the timer, in the context that torch has made current.

    Args:
        torch: the imported torch, with CUDA initialised.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._functions = {
            name: self._load(name, source)
            for name, source in (("stamps", STAMPS), ("answers", ANSWERS))
        }

    def stamps(self, count: int) -> list[int]:
        """Return ``count`` readings, one after the other."""
        out = self._torch.zeros(count, dtype=self._torch.int64, device="cuda")
        self._launch("stamps", ctypes.c_uint64(out.data_ptr()), ctypes.c_uint32(count))
        self._torch.cuda.synchronize()
        return [int(value) for value in out.tolist()]

    def rounds(self, count: int) -> list[tuple[int, int, int]]:
        """Return (host before, GPU stamp, host after) of ``count`` questions, monotonic ns."""
        asked = self._torch.zeros(1, dtype=self._torch.int64).pin_memory()
        out = self._torch.zeros(count, dtype=self._torch.int64).pin_memory()
        question = ctypes.c_uint32.from_address(asked.data_ptr())
        answers = (ctypes.c_uint64 * count).from_address(out.data_ptr())
        self._launch(
            "answers", ctypes.c_uint64(asked.data_ptr()), ctypes.c_uint64(out.data_ptr()),
            ctypes.c_uint32(count),
        )  # fmt: skip
        found = []
        give_up = time.monotonic() + _SPIN_S
        for number in range(count):
            before = time.monotonic_ns()
            question.value = number + 1
            while not answers[number]:
                if time.monotonic() > give_up:
                    raise DriverError(f"the GPU did not answer question {number}")
            found.append((before, int(answers[number]), time.monotonic_ns()))
        self._torch.cuda.synchronize()
        return found

    def _launch(self, name: str, *arguments: Any) -> None:
        pointers = (ctypes.c_void_p * len(arguments))(
            *(ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in arguments)
        )
        self._check(
            "cuLaunchKernel",
            self._driver.cuLaunchKernel(
                self._functions[name], 1, 1, 1, 1, 1, 1, 0, None, pointers, None
            ),
        )

    def _load(self, name: str, source: str) -> ctypes.c_void_p:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        status = 0
        for version, target in TARGETS:
            ptx = f".version {version}\n.target {target}\n.address_size 64\n{source}"
            status = self._driver.cuModuleLoadData(ctypes.byref(module), ptx.encode() + b"\0")
            if status == 0:
                break
        self._check("cuModuleLoadData", status)
        self._check(
            "cuModuleGetFunction",
            self._driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()),
        )
        return function

    def _check(self, call: str, status: int) -> None:
        if status:
            raise DriverError(f"{call} failed with {status}")
