from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.plugin import compile as compiling


@pytest.fixture(scope="session")
def plugin_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the plugin, compiled from the sources as they are now."""
    compile_with = compiling.compiler(os.environ)
    if compile_with is None:
        pytest.skip("no C compiler: install gcc or clang, or set CC")
    library = tmp_path_factory.mktemp("plugin") / compiling.LIBRARY
    assert compiling.compile_library(compile_with, library) == ""
    return library
