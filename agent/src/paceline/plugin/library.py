"""Where the compiled plugin lies, and a handle on the one that NCCL loads into this process."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from paceline.errors import PacelineError
from paceline.hooks.native.cache import cache_dir, make_cache, why_not_safe
from paceline.plugin import compile as compiling
from paceline.ring.layout import RingIdentity
from paceline.settings import PLUGIN_ENV

log = logging.getLogger(__name__)
_LIBC = "CS_GNU_LIBC_VERSION"


class BuildError(PacelineError):
    """The plugin cannot be compiled here."""


def library_path() -> Path | None:
    """Return the compiled plugin: beside the package, or in the user's cache; None: not built.

    One that was compiled from other sources than those of this package does not count.
    """
    installed = Path(__file__).parent / compiling.LIBRARY
    cached = _cached(os.environ)
    if compiling.is_built_from_these(installed):
        return installed
    if compiling.is_built_from_these(cached) and not why_not_safe(cached):
        return cached
    return None


def load() -> ctypes.CDLL | None:
    """Return the plugin that NCCL has loaded or will load into this process; None: not ours.

    The functions are described in docs/plugin.md. Loading it again gives the same library.
    """
    if not os.environ.get(PLUGIN_ENV):
        return None  # the usual case, without a look at any file
    path = library_path()
    if path is None or not is_chosen(path, os.environ):
        return None
    return declare(ctypes.CDLL(str(path)))


def identify(identity: RingIdentity, runtime_dir: Path) -> None:
    """Tell the plugin of this process, where there is one, whose ring it is to write.

    The hooks know the rank from torch and the job from its code; the plugin alone would have to
    believe the environment, and the sidecar joins only rings of one identity.
    """
    try:
        library = load()
    except OSError as error:
        log.warning("the NCCL plugin cannot be told who this is: %s", error)
        return
    if library is not None:
        library.paceline_identify(
            identity.job.encode(errors="replace"),
            identity.run_id.encode(errors="replace"),
            identity.attempt,
            identity.rank,
            identity.local_rank,
            identity.world_size,
            identity.node.encode(errors="replace"),
            os.fsencode(runtime_dir),
        )


def is_chosen(path: Path, env: Mapping[str, str]) -> bool:
    """Whether the environment makes NCCL load the library at ``path``."""
    chosen = env.get(PLUGIN_ENV, "")
    try:
        return bool(chosen) and Path(chosen).samefile(path)
    except OSError:
        return False


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Tell ctypes the types of what hooks call."""
    text, i32, u32, u64 = ctypes.c_char_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64
    library.paceline_identify.argtypes = [text, text, u32, i32, i32, u32, text, text]
    library.paceline_capture.argtypes = [ctypes.c_int]
    library.paceline_capture.restype = None
    library.paceline_counter.argtypes = [ctypes.c_int]
    for name in ("paceline_errors", "paceline_seen", "paceline_counter"):
        getattr(library, name).restype = u64
    return library


def build() -> Path:
    """Compile the plugin into the user's cache, unless it is there.

    Raises:
        BuildError: this system has no NCCL or no compiler, the compiler failed, or the cache
            cannot be used.
    """
    if not compiling.is_supported():
        raise BuildError("the NCCL plugin needs 64-bit Linux, as NCCL does; hooks serve without")
    path = library_path()
    if path is not None:
        return path
    compile_with = compiling.compiler(os.environ)
    if compile_with is None:
        raise BuildError(
            "no C compiler (cc, gcc or clang) is found; install one, or set CC; "
            "hooks serve without the plugin"
        )
    target = _cached(os.environ)
    try:
        make_cache(target.parent)
        problem = compiling.compile_library(compile_with, target) or why_not_safe(target)
    except OSError as error:
        raise BuildError(
            f"the plugin cannot be put into {target.parent}: {error}; set XDG_CACHE_HOME"
        ) from error
    if problem:
        raise BuildError(f"the plugin cannot be compiled into {target}: {problem}")
    return target


def _cached(env: Mapping[str, str]) -> Path:
    # A home may be shared by machines that cannot load each other's libraries.
    known = _LIBC in os.confstr_names
    libc = ((known and os.confstr(_LIBC)) or "libc").replace(" ", "-")
    key = f"{compiling.source_hash()}-{os.uname().machine}-{libc}"
    return cache_dir(env) / "plugin" / key / compiling.LIBRARY
