"""Dumps read by several processes: a pickle is read by a machine in Python, and there are many.

A dump that ends the process that reads it, because it takes all memory, is one that cannot be
read; the others are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from paceline.errors import InputError
from paceline_service.importers.faults import Faults
from paceline_service.importers.flight_recorder.dump import Dump, read_dump

WORTH_BYTES = 4 << 20
"""Of all dumps, packed or not, from where on processes gain more time than they take to start."""
MAX_WORKERS = 16
_LENGTH = 8
_START = (
    "import sys; sys.path[:] = sys.argv[1:]\n"
    "from paceline_service.importers.flight_recorder.reading import main; main()"
)

Read = Dump | InputError


class _Result(msgspec.Struct):
    """What a process sends of one file: the dump, or why it is refused."""

    dump: Dump | None = None
    refusal: str = ""


def read_all(
    paths: Sequence[Path], faults: Faults, workers: int | None = None
) -> Iterator[tuple[Path, Read]]:
    """Yield each path with its dump, or with why it cannot be used.

    Args:
        paths: of dumps.
        faults: told how far the reading has come.
        workers: how many processes read; 0 reads in this one, None decides.
    """
    count = _workers_for(paths) if workers is None else workers
    processes: list[subprocess.Popen[bytes] | None] = []
    try:
        processes += [_started(paths[first::count]) for first in range(count)]
        for index, path in enumerate(paths):
            faults.reading(path)
            process = processes[index % count] if count else None
            read = _received(process, path) if process is not None else _read(path)
            faults.advanced(_size(path))
            if read is None and process is not None:
                _end(process)
                processes[index % count] = None
                read = InputError(f"{path}: the process that read it ended; it takes all memory")
            assert read is not None
            yield path, read
    finally:
        for process in processes:
            if process is not None:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            assert pipe is not None
            pipe.close()


def main() -> None:
    """Read the dumps whose paths come in, and send each out; runs in a process of its own."""
    paths = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[bytes])
    for raw in paths:
        read = _read(Path(os.fsdecode(raw)))
        result = _Result(refusal=str(read)) if isinstance(read, InputError) else _Result(dump=read)
        content = msgspec.msgpack.encode(result, enc_hook=str)
        sys.stdout.buffer.write(len(content).to_bytes(_LENGTH, "little") + content)
        sys.stdout.buffer.flush()


def _read(path: Path) -> Read:
    try:
        return read_dump(path)
    except InputError as error:
        return error


def _workers_for(paths: Sequence[Path]) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if (cores or 1) < 2 or len(paths) < 2 or not sys.executable:
        return 0
    if sum(map(_size, paths)) < WORTH_BYTES:
        return 0
    return min(cores or 1, len(paths), MAX_WORKERS)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _started(paths: Sequence[Path]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _START, *sys.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with suppress(BrokenPipeError):
        assert process.stdin is not None
        process.stdin.write(msgspec.msgpack.encode([os.fsencode(path) for path in paths]))
        process.stdin.close()
    return process


def _received(process: subprocess.Popen[bytes], path: Path) -> Read | None:
    """Return what a process sends next; None where it ended instead."""
    assert process.stdout is not None
    head = process.stdout.read(_LENGTH)
    content = process.stdout.read(int.from_bytes(head, "little")) if len(head) == _LENGTH else b""
    if len(head) < _LENGTH or len(content) < int.from_bytes(head, "little"):
        return None
    result = msgspec.msgpack.decode(content, type=_Result, dec_hook=_path)
    return result.dump if result.dump is not None else InputError(result.refusal)


def _path(kind: type, value: object) -> object:
    return Path(str(value)) if kind is Path else value
