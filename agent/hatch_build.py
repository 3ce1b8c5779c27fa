"""Puts ``paceline_inject.pth`` beside the package, in normal and in editable installs."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PTH = "paceline_inject.pth"


class InjectionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the file that lets ``paceline run`` instrument a job with no code change."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to the wheel's root, which becomes site-packages."""
        key = "force_include_editable" if version == "editable" else "force_include"
        build_data.setdefault(key, {})[PTH] = PTH
