"""The object graph of an attempt's analysis as bytes, and back, with nothing else in it.

It is written by pickle and read by an unpickler that knows a list of classes and calls nothing
that is not on it. A checkpoint is read only by the program that wrote it: its fingerprint is over
the sources of everything that a checkpoint holds objects of.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import io
import pickle
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import paceline
import paceline_service
from paceline.errors import PacelineError

FORMAT = 1
MAX_BYTES = 2 << 30
"""A checkpoint that unpacks to more is refused: it is damaged."""
_LEVEL = 1
_ANALYSIS = "paceline_service.analysis."
_PLAIN = frozenset(
    {
        ("builtins", "bytearray"), ("builtins", "complex"), ("builtins", "dict"),
        ("builtins", "float"), ("builtins", "frozenset"), ("builtins", "int"),
        ("builtins", "list"), ("builtins", "object"), ("builtins", "range"), ("builtins", "set"),
        ("builtins", "slice"), ("builtins", "str"), ("builtins", "tuple"),
        ("collections", "Counter"), ("collections", "OrderedDict"), ("collections", "defaultdict"),
        ("collections", "deque"),
        ("numpy", "dtype"), ("numpy", "ndarray"),
        ("numpy.core.multiarray", "_reconstruct"), ("numpy.core.multiarray", "scalar"),
        ("numpy.core.numeric", "_frombuffer"),
        ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
    }
)  # fmt: skip
_MODULES = frozenset(
    {
        "paceline.telemetry", "paceline.vocabulary", "paceline.wire.bundles",
        "paceline.wire.columns", "paceline.wire.frames", "paceline_service.jobs.bundle_stream",
        "paceline_service.jobs.details", "paceline_service.jobs.feed",
        "paceline_service.jobs.feed_state",
        "paceline_service.jobs.lanes", "paceline_service.jobs.newest",
        "paceline_service.jobs.reorder", "paceline_service.jobs.stream",
        "paceline_service.jobs.walltime", "paceline_service.jobs.windows",
        "paceline_service.store.frames",
    }
)  # fmt: skip
"""Beside those of the analysis: modules whose classes (and nothing else) may be met."""
_SOURCES = (
    "analysis", "jobs/bundle_stream.py", "jobs/checkpoint_codec.py", "jobs/columns.py",
    "jobs/details.py", "jobs/feed.py", "jobs/feed_state.py",
    "jobs/imported.py", "jobs/lanes.py", "jobs/live.py", "jobs/windows.py",
    "jobs/newest.py", "jobs/reorder.py", "jobs/sanitize.py", "jobs/stream.py", "jobs/walltime.py",
    "store/frames.py",
)  # fmt: skip
_AGENT_SOURCES = ("ranks.py", "telemetry.py", "vocabulary.py", "wire")


class CheckpointError(PacelineError):
    """A checkpoint cannot be made or used; everything is analysed from the frames instead."""


def dump(state: object) -> bytes:
    """Return ``state`` as bytes, not compressed.

    Raises:
        CheckpointError: something in it cannot be written.
    """
    try:
        with _no_collection():
            return pickle.dumps(state, 5)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"the analysis cannot be written down: {error}") from error


def load(raw: bytes) -> Any:
    """Return what ``dump`` was given.

    Raises:
        CheckpointError: it is damaged, or holds what no checkpoint holds.
    """
    try:
        with _no_collection():
            return _Unpickler(io.BytesIO(raw)).load()
    except CheckpointError:
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise CheckpointError(f"damaged: {type(error).__name__}: {error}") from error


def pack(raw: bytes) -> bytes:
    """Return ``raw`` compressed."""
    return zlib.compress(raw, _LEVEL)


def unpack(body: bytes, sha256: str) -> bytes:
    """Return what was packed.

    Raises:
        CheckpointError: it is damaged.
    """
    if hashlib.sha256(body).hexdigest() != sha256:
        raise CheckpointError(f"damaged: {len(body)} bytes with another SHA-256 than was noted")
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(body, MAX_BYTES)
    except zlib.error as error:
        raise CheckpointError(f"damaged: {error}") from error
    if not inflater.eof:
        raise CheckpointError(f"damaged: it does not end, or unpacks to more than {MAX_BYTES}")
    return raw


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Return what tells this program's checkpoints from those of another version."""
    digest = hashlib.sha256()
    facts = (FORMAT, paceline_service.__version__, np.__version__, *sys.version_info[:2])
    digest.update(repr(facts).encode())
    service, agent = (
        Path(str(package.__file__)).parent for package in (paceline_service, paceline)
    )
    for path in (*_sources(service, _SOURCES), *_sources(agent, _AGENT_SOURCES)):
        digest.update(path.name.encode() + b"\0")
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources(root: Path, names: Iterable[str]) -> list[Path]:
    found = []
    for name in names:
        path = root / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [path for path in found if path.is_file()]


class _Unpickler(pickle.Unpickler):
    """Makes only objects of known classes."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that may be met in a checkpoint."""
        if (module, name) in _PLAIN:
            return getattr(importlib.import_module(module), name)
        if module in _MODULES or module.startswith(_ANALYSIS):
            found = getattr(importlib.import_module(module), name, None)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise CheckpointError(f"it names {module}.{name}, which no checkpoint holds")

    def persistent_load(self, pid: Any) -> Any:
        """Refuse: a checkpoint refers to nothing outside."""
        raise CheckpointError(f"it refers to {pid!r} outside of itself, which no checkpoint does")


@contextmanager
def _no_collection() -> Iterator[None]:
    """No cyclic garbage collection: it would look at the growing graph again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
