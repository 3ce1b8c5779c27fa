"""Dumps of the Flight Recorder, as pickle and as JSON; nothing in them may be run."""

from __future__ import annotations

import json
import pickle
import random
import sys
from typing import Any

from tests.fuzz.mutate import mutate_bytes, mutate_value
from tests.fuzz.targets.files import check_files, join, mutate_files
from tests.fuzz.targets.kineto import change_json
from tests.unit.importers.flight_dumps import dumps_of, entry

_FORBIDDEN = ("os.", "subprocess.", "socket.", "shutil.", "ctypes.", "exec", "pty.", "urllib.")
_HARMLESS = ("os.listdir", "os.scandir", "os.mkdir", "os.rmdir", "os.remove", "os.fwalk", "shutil.")
_watching = False
_ran: list[str] = []


class Call:
    """A pickle of it calls something."""

    def __reduce__(self) -> Any:
        return (print, ("this must never be seen",))


def seeds() -> dict[str, bytes]:
    """Return dumps of whole jobs, and pickles that ask for more than plain values."""
    dumps = dumps_of(3)
    for dump in dumps[:2]:
        send = entry(3, profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=3)
        frames = [{"name": "forward", "filename": "/home/me/train.py", "line": 12}]
        dump["entries"] += [send, entry(7, state="completed", retired=True, frames=frames)]
    return {
        "pickle": join([pickle.dumps(dump, protocol=2) for dump in dumps]),
        "pickle-4": join([pickle.dumps(dump, protocol=4) for dump in dumps]),
        "json": join([json.dumps(dump).encode() for dump in dumps]),
        "call": pickle.dumps({"entries": [Call()], "pg_status": {}}, protocol=4),
        "global": pickle.dumps({"entries": [print, pickle.loads], "pg_status": {}}, protocol=2),
    }


def check(data: bytes) -> None:
    """See ``check_files``; and no import, call or process comes of it."""
    global _watching
    if not _ran:
        _ran.append("watched")
        for seed in seeds().values():  # what is imported at first use is imported before
            check_files(seed, lambda number: f"dump_{number}")
        sys.addaudithook(_audit)
    _watching = True
    try:
        check_files(data, lambda number: f"dump_{number}")
    finally:
        _watching = False


def _audit(event: str, values: tuple[Any, ...]) -> None:
    if event == "exec" and getattr(values[0], "co_name", "") == "<module>":
        return  # a library imports a part of itself late; imports by pickles are seen below
    if _watching and event.startswith(_FORBIDDEN) and not event.startswith(_HARMLESS):
        raise AssertionError(f"a dump made the reader do {event}")
    if _watching and event == "pickle.find_class":
        raise AssertionError("a dump was read with a pickle machine that can import")


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` with something in a dump changed as a value."""
    return mutate_files(data, rng, _change)


def _change(content: bytes, rng: random.Random) -> bytes:
    if content[:1] != b"\x80":
        return change_json(content, rng)
    if b"c" in content and rng.random() < 0.4:
        return mutate_bytes(content, rng)
    try:
        value = _Plain(content).value
        for _ in range(1 << rng.randrange(4)):
            value = mutate_value(value, rng)
        if rng.random() < 0.03:
            value = {"entries": [value, rng.choice((Call(), print, int, bytearray(b"x")))]}
        return pickle.dumps(value, protocol=rng.choice((2, 3, 4, 5)))
    except Exception:
        return mutate_bytes(content, rng)


class _Plain:
    """Reads a pickle for mutation with the reader that is under test."""

    def __init__(self, content: bytes) -> None:
        from paceline_service.importers.flight_recorder.safe_pickle import load_plain

        self.value = load_plain(content)
