"""What a build adds to the package: ``paceline_inject.pth``, and the compiled NCCL plugin.

Without a C compiler there is no plugin, and the installation succeeds all the same: hooks serve
without it, and `paceline doctor --build` can make it later.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PTH = "paceline_inject.pth"
PLUGIN = Path("paceline", "plugin")


class InjectionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the file that lets ``paceline run`` instrument a job, and the plugin."""

    _scratch = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add both to the wheel; its root becomes site-packages."""
        key = "force_include_editable" if version == "editable" else "force_include"
        build_data.setdefault(key, {})[PTH] = PTH
        package = Path(self.root, "src") / PLUGIN
        compiling = _load(package / "compile.py")
        if version == "editable":
            self._compile(compiling, package / compiling.LIBRARY)
            return
        # Not into the sources, where an older one of an editable installation may lie.
        self._scratch = tempfile.mkdtemp(prefix="paceline-build-")
        library = Path(self._scratch, compiling.LIBRARY)
        if self._compile(compiling, library):
            build_data[key][str(library)] = str(PLUGIN / compiling.LIBRARY)
            build_data["pure_python"] = False
            # Of one platform, but of no Python: nothing in it is linked to one.
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled: the wheel has it."""
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _compile(self, compiling: ModuleType, library: Path) -> bool:
        if not compiling.is_supported():
            return False
        compile_with = compiling.compiler(os.environ)
        problem = "no C compiler is found"
        if compile_with is not None:
            problem = compiling.compile_library(compile_with, library)
        if problem:
            self.app.display_warning(f"The NCCL plugin is left out: {problem}")
        return not problem


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("paceline_plugin_compile", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
