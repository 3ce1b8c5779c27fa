"""Reads a pickle that holds plain values only, with a machine that can make nothing else.

It is the pickle machine of Python's library written in Python, with every instruction taken out
that could import, call or rebuild something. The one in C would do for that too, but a few bytes
make it reserve 64 GB for its memo.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, NoReturn

from paceline.errors import InputError

_PLAIN = frozenset(
    {
        "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "NONE", "NEWTRUE", "NEWFALSE",
        "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
        "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING",
        "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "EMPTY_LIST", "LIST", "APPEND",
        "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT",
        "SETITEM", "SETITEMS", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET",
        "LONG_BINGET",
    }
)  # fmt: skip
"""Instructions of plain values; none of them reaches outside of the machine."""
_GLOBALS = frozenset({"GLOBAL", "STACK_GLOBAL"})
"""They do nothing but ask ``find_class``, which refuses and says what was asked for."""


MAX_OBJECTS = 16_000_000
"""Lists, mappings and texts that a pickle may make: 20,000 entries with their stacks make under
two million, and a few bytes of a hostile file are enough for one."""
_MAKING = frozenset(
    {
        "EMPTY_LIST", "LIST", "EMPTY_DICT", "DICT", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
        "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING",
        "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "LONG", "LONG1", "LONG4",
    }
)  # fmt: skip


class _Refused(Exception):
    """The pickle wants more than plain values."""


class _TooMany(Exception):
    """The pickle makes more than a dump can hold."""


def load_plain(data: bytes) -> object:
    """Return the value that ``data`` holds.

    Raises:
        InputError: it asks for a global or a call, is truncated, or is no pickle.
    """
    try:
        return _Machine(io.BytesIO(data)).load()
    except _TooMany as error:
        raise InputError(f"its pickle makes over {MAX_OBJECTS:,} objects; no dump does") from error
    except _Refused as error:
        raise InputError(f"its pickle asks for {error}; only plain values are read") from error
    except EOFError as error:
        raise InputError("its pickle is truncated") from error
    except Exception as error:
        # The machine trips over nonsense in many ways; whatever it was, nothing was run.
        truncated = "truncated" in str(error) or "exhausted" in str(error)
        why = "truncated" if truncated else f"corrupt ({type(error).__name__}: {error})"
        raise InputError(f"its pickle is {why[:200]}") from error


class _Machine(pickle._Unpickler):
    objects_left = MAX_OBJECTS

    def find_class(self, module: str, name: str) -> NoReturn:
        raise _Refused(f"the global {module}.{name}"[:120])

    def persistent_load(self, pid: object) -> NoReturn:
        raise _Refused("a persistent object")


def _refusing(name: str) -> Callable[..., None]:
    def refuse(machine: Any) -> None:
        raise _Refused(f"the instruction {name}")

    return refuse


def _counting(load: Callable[..., None]) -> Callable[..., None]:
    def count(machine: Any) -> None:
        machine.objects_left -= 1
        if machine.objects_left < 0:
            raise _TooMany
        load(machine)

    return count


def _dispatch() -> dict[int, Callable[..., None]]:
    known: dict[int, Callable[..., None]] = pickle._Unpickler.dispatch
    names = {
        getattr(pickle, name)[0]: name
        for name in dir(pickle)
        if name.isupper() and isinstance(getattr(pickle, name), bytes)
    }
    table = {}
    for code, load in known.items():
        name = names.get(code, hex(code))
        table[code] = load if name in _PLAIN | _GLOBALS else _refusing(name)
        if name in _MAKING:
            table[code] = _counting(load)
    return table


_Machine.dispatch = _dispatch()
