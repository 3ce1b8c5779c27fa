"""Puts the device timers to work on the torch that is there."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from paceline.hooks.device_cuda import TorchCuda
from paceline.hooks.device_times import DeviceTimes
from paceline.hooks.patches import Patches
from paceline.hooks.recorder import Recorder

log = logging.getLogger("paceline")


def start_device_times(
    torch: Any, c10d: Any, recorder: Recorder, patches: Patches, choice: str
) -> None:
    """Let ``recorder`` take times on the device, if this torch can have one.

    Nothing touches CUDA before the job has put a collective on it.

    Args:
        torch: the imported torch.
        c10d: the imported ``torch.distributed.distributed_c10d``.
        recorder: gets its ``device``.
        patches: remembers what was replaced.
        choice: the setting ``PACELINE_DEVICE_TIMERS``.
    """
    if torch.version.cuda is None:
        return
    gathered = getattr(c10d, "_world", None)

    def watch_waits() -> None:
        patches.wrap(c10d.Work, "wait", lambda original: _told_wait(original, device, recorder))

    device = DeviceTimes(
        TorchCuda(torch, os.environ),
        recorder,
        choice=choice,
        env=os.environ,
        plugin_times=PluginWatch(),
        coalescing=lambda: bool(getattr(gathered, "pg_coalesce_state", None)),
        watch_waits=watch_waits,
    )
    recorder.device = device
    recorder.clock.observer = device.phases


class PluginWatch:
    """Tells whether NCCL has the plugin of this process take the times of collectives."""

    def __init__(self, load: Callable[[], Any] | None = None) -> None:
        self._library: Any = None
        try:
            self._library = (load or _load_plugin)()
        except Exception as error:
            log.info("the NCCL plugin cannot be asked: %s", error)

    def __call__(self) -> bool:
        """Ask again: communicators are made when they are first used."""
        library = self._library
        if library is None or library.paceline_active() <= 0:
            return False
        # Off where NCCL's report of its kernels is known to do harm (docs/plugin.md).
        return bool(library.paceline_times_kernels())


def _load_plugin() -> Any:
    try:
        plugin = importlib.import_module("paceline.plugin")
    except ImportError:
        return None
    return plugin.load()


def _told_wait(original: Any, device: DeviceTimes, recorder: Recorder) -> Any:
    # What pybind puts into a class binds itself on access; its function is called directly.
    call = getattr(original, "__func__", original)
    waited = device.collectives.waited

    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        result = call(work, *args, **kwargs)
        if recorder.on:
            try:
                caller = sys._getframe().f_back
                waited(caller.f_globals.get("__name__", "") if caller is not None else "")
            except Exception as error:
                recorder.failed(error)
        return result

    return wait
