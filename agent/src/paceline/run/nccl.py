"""Which NCCL profiler plugin a job gets: Paceline's, unless the job brings its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.settings import PLUGIN_ENV

SWITCH_ENV = "PACELINE_NCCL_PLUGIN"
MAX_PATH_CHARS = 254
"""NCCL cuts what is longer."""
_NVIDIA = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginChoice:
    """``path`` is put into the job's environment, unless it is empty; ``said`` is told the user."""

    path: str = ""
    said: str = ""


def choose_plugin(
    env: Mapping[str, str], library: Path | None, *, has_gpu: bool | None = None
) -> PluginChoice:
    """Decide which plugin NCCL is to load, and what is worth saying about it.

    Args:
        env: the environment of ``paceline run``.
        library: Paceline's plugin; None where it was not built.
        has_gpu: whether this node has an NVIDIA GPU; None: look.
    """
    own = env.get(PLUGIN_ENV, "")
    gpu_here = _NVIDIA.exists() if has_gpu is None else has_gpu
    if own and own != str(library or ""):
        return PluginChoice(
            said=f"{PLUGIN_ENV}={own} is the job's own and stays; times on the GPU come from "
            "CUDA events instead"
        )
    if env.get(SWITCH_ENV, "").strip().lower() in ("0", "off", "false", "no"):
        return PluginChoice(said=_if(gpu_here, f"{SWITCH_ENV} turns the NCCL plugin off"))
    if library is None:
        text = "the NCCL plugin is not built here: `paceline doctor --build` builds it"
        return PluginChoice(said=_if(gpu_here, text))
    if len(str(library)) > MAX_PATH_CHARS:
        return PluginChoice(
            said=f"the path of the NCCL plugin has {len(str(library))} characters and NCCL takes "
            f"{MAX_PATH_CHARS}; install Paceline at a shorter path"
        )
    return PluginChoice(path=str(library), said=_if(gpu_here, f"{PLUGIN_ENV}={library}"))


def _if(condition: bool, text: str) -> str:
    return text if condition else ""
