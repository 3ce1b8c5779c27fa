"""NCCL Inspector: what the profiler plugin of NCCL writes (docs/formats/nccl-inspector.md)."""

from __future__ import annotations

from paceline_service.importers.nccl_inspector.recognize import begins_inspector

__all__ = ["begins_inspector"]
