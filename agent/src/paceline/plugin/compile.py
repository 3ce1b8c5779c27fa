"""Compiles the plugin: its sources, its flags, and the command.

The standard library only and nothing of Paceline: the build of the wheel loads this file by its
path, before the package is there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

LIBRARY = "libnccl-profiler-paceline.so"
"""NCCL would also find it by the name `paceline`, on the loader's path."""
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")
LINK_FLAGS = ("-shared", "-pthread", "-Wl,-z,nodelete", "-Wl,-z,defs")
"""nodelete: NCCL unloads a plugin while its own threads may still call it."""
LIBRARIES = ("-ldl",)
MARK = b"paceline-sources:"
"""Stands before the hash of the sources in a library."""
TIMEOUT_S = 120


def sources() -> list[Path]:
    """Return every C file of the plugin, sorted."""
    return sorted(Path(__file__).parent.glob("*.c"))


def source_hash() -> str:
    """Return a hash of all that decides what the library does."""
    digest = hashlib.sha256(repr((FLAGS, LINK_FLAGS, LIBRARIES)).encode())
    for path in sorted((*sources(), *Path(__file__).parent.glob("*.h"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def is_built_from_these(library: Path) -> bool:
    """Whether ``library`` was compiled from the sources that lie here now."""
    try:
        return MARK + source_hash().encode() in library.read_bytes()
    except OSError:
        return False


def compiler(env: Mapping[str, str]) -> str | None:
    """Return the C compiler: ``CC`` (its first word), or the first that is found."""
    given = env.get("CC", "").split()
    for name in (given[0],) if given else COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    return None


def is_supported() -> bool:
    """Whether this system can have NCCL: Linux, 64 bits, little-endian."""
    return sys.platform == "linux" and sys.maxsize > 1 << 32 and sys.byteorder == "little"


def command(compile_with: str, output: Path, more_flags: Sequence[str] = ()) -> list[str]:
    """Return the command that compiles the library into ``output``."""
    mark = f'-DPLUGIN_SOURCES="{source_hash()}"'
    files = [str(path) for path in sources()]
    flags = [*FLAGS, mark, *more_flags, *LINK_FLAGS]
    return [compile_with, *flags, *files, "-o", str(output), *LIBRARIES]


def compile_library(compile_with: str, target: Path) -> str:
    """Compile into ``target``, which appears whole or not at all.

    Returns:
        What went wrong, for people; empty if nothing did.
    """
    # Several processes may do this at once: each has a name of its own, and one rename wins.
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        return str(error)
    os.close(handle)
    unfinished = Path(name)
    try:
        done = subprocess.run(
            command(compile_with, unfinished),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
        if done.returncode != 0:
            return done.stderr.strip()[-2000:] or f"{compile_with} ended with {done.returncode}"
        unfinished.chmod(0o755)
        unfinished.replace(target)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        unfinished.unlink(missing_ok=True)
    return ""
