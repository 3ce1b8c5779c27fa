"""Compiles the native hook for the torch that is installed; never in a training process itself."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError
from paceline.hooks.native.cache import library_file, make_cache, why_not_safe

COMPILERS = ("c++", "g++", "clang++")
TIMEOUT_S = 600
_CPP20 = (2, 10)
"""The first torch whose headers want C++20."""


class BuildError(PacelineError):
    """The native hook cannot be compiled here."""


def compiler(env: Mapping[str, str]) -> str | None:
    """Return the C++ compiler: ``CXX``, or the first that is found."""
    given = env.get("CXX", "")
    for name in (given,) if given else COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    return None


def command(torch: Any, compile_with: str, output: Path) -> list[str]:
    """Return the command that compiles the library."""
    root = Path(torch.__file__).parent
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    includes = (root / "include", root / "include/torch/csrc/api/include")
    python = sysconfig.get_path("include")
    return [
        compile_with,
        "-std=c++20" if version >= _CPP20 else "-std=c++17",
        "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *(part for path in (*includes, python) for part in ("-isystem", str(path))),
        str(Path(__file__).parent / "module.cpp"),
        "-o", str(output),
        f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu",
    ]  # fmt: skip


def build(torch: Any, env: Mapping[str, str]) -> Path:
    """Compile the library for ``torch`` unless it is there; several processes compile it once.

    Raises:
        BuildError: there is no compiler, or it failed, or the cache cannot be used.
    """
    target = library_file(torch, env)
    compile_with = compiler(env)
    if compile_with is None:
        raise BuildError(
            "no C++ compiler (c++, g++ or clang++) is found; install one, or set CXX; "
            "the Python hooks serve without"
        )
    try:
        make_cache(target.parent)
        with _locked(target.with_suffix(".lock")):
            if not (target.is_file() and not why_not_safe(target)):
                _compile(command(torch, compile_with, target.with_suffix(".tmp")), target)
        problem = why_not_safe(target)
    except OSError as error:
        raise BuildError(f"the cache {target.parent} cannot be used: {error}") from error
    if problem:
        raise BuildError(f"the library would not be loaded: {problem}; set XDG_CACHE_HOME")
    return target


def build_in_background(env: Mapping[str, str]) -> None:
    """Start a process of low priority that builds, on one rank of a node."""
    if env.get("LOCAL_RANK", "0") != "0":
        return
    nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "paceline.hooks.native.build"],
        {**env, "PACELINE_DISABLE": "1", "PACELINE_INJECT": "0"},
        file_actions=nothing,
        setsid=True,
    )


def _compile(arguments: list[str], target: Path) -> None:
    unfinished = target.with_suffix(".tmp")
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"the compiler took more than {TIMEOUT_S} s") from error
    if done.returncode:
        told = "\n".join(line for line in done.stderr.splitlines() if "error" in line)[:2000]
        raise BuildError(f"the compiler failed ({done.returncode}):\n{told or done.stderr[:2000]}")
    unfinished.chmod(0o700)
    os.replace(unfinished, target)


@contextlib.contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def main() -> None:
    """Build in a process of its own, started by a training process that wants it next time."""
    import torch

    os.nice(19)
    with contextlib.suppress(BuildError, BlockingIOError):
        target = library_file(torch, os.environ)
        make_cache(target.parent)
        with _locked(target.with_suffix(".asked"), wait=False):
            build(torch, os.environ)


if __name__ == "__main__":
    main()
