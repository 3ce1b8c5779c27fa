"""The NCCL profiler plugin: a C library that NCCL loads, and where to find it (docs/plugin.md)."""

from paceline.plugin.compile import command, sources
from paceline.plugin.library import BuildError, build, identify, library_path, load

__all__ = ["BuildError", "build", "command", "identify", "library_path", "load", "sources"]
