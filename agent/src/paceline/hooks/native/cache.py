"""Where the compiled library of this torch lies, and whether it may be loaded from there."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MODULE = "paceline_native_hook"
SOURCES = (
    "module.cpp", "ring_functions.h", "waits.h", "kernel.h", "state.h", "pending.h", "ring.h",
)  # fmt: skip
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_dir(env: Mapping[str, str]) -> Path:
    """Return ``$XDG_CACHE_HOME/paceline``, or ``~/.cache/paceline``."""
    base = env.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else _home() / ".cache") / "paceline"


def make_cache(directory: Path) -> None:
    """Make ``directory`` and what is missing above it, for this user alone.

    What Path.mkdir makes above it is as the umask has it: often writable by a group.
    """
    missing = [part for part in (directory, *directory.parents) if not part.exists()]
    for part in reversed(missing):
        part.mkdir(mode=0o700, exist_ok=True)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without a name, in a container
        return Path("/nonexistent")


def key(torch: Any) -> str:
    """Name what a library is good for: one torch, one Python, one state of our sources."""
    sources = hashlib.sha256()
    for name in SOURCES:
        sources.update((Path(__file__).parent / name).read_bytes())
    version = re.sub(r"[^A-Za-z0-9.+-]", "_", str(torch.__version__))
    commit = str(getattr(torch.version, "git_version", "") or "")[:10]
    abi = str(sysconfig.get_config_var("SOABI") or "python")
    return f"torch-{version}-{commit}-{abi}-{sources.hexdigest()[:12]}"


def library_file(torch: Any, env: Mapping[str, str]) -> Path:
    """Return where the library for ``torch`` lies once it is built."""
    return cache_dir(env) / "native" / key(torch) / f"{MODULE}.so"


def why_not_safe(path: Path) -> str:
    """Say why ``path`` must not be loaded: someone else could have written it; empty: it may.

    Every directory above it counts too, because who may rename in one can put another file
    there. Root and this user may write; others only where the sticky bit protects our entry.
    """
    path = path.resolve()
    for part in (path, *path.parents):
        info = os.lstat(part)
        if info.st_uid not in (0, os.getuid()):
            return f"{part} belongs to user {info.st_uid}"
        sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX
        if info.st_mode & _OTHERS_WRITE and not sticky:
            return f"{part} can be written by others (mode {stat.S_IMODE(info.st_mode):o})"
    return ""
