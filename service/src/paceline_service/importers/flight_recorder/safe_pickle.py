"""Reads a pickle that holds plain values only, with a machine that can make nothing else.

The machines of Python's library import and call by design. The one in C also reserves 64 GB for a
memo that a few bytes name, and both crash on a key made of a million tuples. This one knows the
instructions of plain values, and every other is refused by its name.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable

from paceline.errors import InputError

MAX_OBJECTS = 16_000_000
"""Lists, mappings and texts that a pickle may make: 20,000 entries with their stacks make under
two million, and a few bytes of a hostile file are enough for one."""
_KEYS = frozenset({str, int, bytes, float, bool, type(None)})

_NAMES = {
    getattr(pickle, name)[0]: name
    for name in dir(pickle)
    if name.isupper()
    and isinstance(getattr(pickle, name), bytes)
    and len(getattr(pickle, name)) == 1
}


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
        return _Machine(data).load()
    except _TooMany as error:
        raise InputError(f"its pickle makes over {MAX_OBJECTS:,} objects; no dump does") from error
    except _Refused as error:
        raise InputError(f"its pickle asks for {error}; only plain values are read") from error
    except (IndexError, struct.error) as error:
        raise InputError("its pickle is truncated or corrupt") from error
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        why = f"{type(error).__name__}: {error}"
        raise InputError(f"its pickle is corrupt ({why[:160]})") from error


class _Machine:
    """A stack of values, the places of marks on it, and a memo."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._stack: list[object] = []
        self._marks: list[int] = []
        self._memo: dict[int, object] = {}
        self._left = MAX_OBJECTS

    def load(self) -> object:
        """Return the value on top when the pickle ends."""
        data, stack, memo, marks = self._data, self._stack, self._memo, self._marks
        push, word = stack.append, struct.Struct("<I").unpack_from
        at = 0
        while True:
            code = data[at]
            at += 1
            # The commonest first; they are most of any dump.
            if code == 0x68:  # BINGET
                push(memo[data[at]])
                at += 1
            elif code == 0x6A:  # LONG_BINGET
                push(memo[word(data, at)[0]])
                at += 4
            elif code == 0x4B:  # BININT1
                push(data[at])
                at += 1
            elif code == 0x72:  # LONG_BINPUT
                memo[word(data, at)[0]] = stack[-1]
                at += 4
            elif code == 0x71:  # BINPUT
                memo[data[at]] = stack[-1]
                at += 1
            elif code == 0x28:  # MARK
                marks.append(len(stack))
            elif code == 0x75:  # SETITEMS
                self._fill(self._since_mark())
            elif code == 0x7D:  # EMPTY_DICT
                self._make({})
            elif code == 0x2E:  # STOP
                return stack.pop()
            else:
                self._at = at
                handler = _HANDLERS.get(code)
                if handler is None:
                    self._refuse(code)
                else:
                    handler(self)
                at = self._at

    def _refuse(self, code: int) -> None:
        name = _NAMES.get(code)
        if name is None:
            raise ValueError(f"no instruction {code:#x}")
        if name == "GLOBAL" or name == "INST":
            module, called = self._line(), self._line()
            raise _Refused(f"the global {module}.{called}"[:120])
        if name == "STACK_GLOBAL":
            module, called = (str(v) if type(v) is str else "?" for v in self._stack[-2:])
            raise _Refused(f"the global {module}.{called}"[:120])
        raise _Refused(f"the instruction {name}")

    def _number(self, form: str, size: int) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        assert isinstance(value, int)
        return value

    def _bytes(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if size < 0 or len(found) < size:
            raise IndexError
        self._at += size
        return found

    def _line(self) -> str:
        return self._raw_line().decode("ascii", errors="replace")

    def _raw_line(self) -> bytes:
        end = self._data.index(b"\n", self._at)
        line = self._data[self._at : end]
        self._at = end + 1
        return line

    def _make(self, value: object) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooMany
        self._stack.append(value)

    def _since_mark(self) -> list[object]:
        begin = self._marks.pop()
        items = self._stack[begin:]
        del self._stack[begin:]
        return items

    def _fill(self, items: list[object]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise TypeError("values are set in what is no mapping")
        # A key is hashed: of tuples within tuples that would take the whole stack of C.
        keys = items[::2]
        if not set(map(type, keys)) <= _KEYS:
            raise TypeError("a key that is no plain value")
        target.update(zip(keys, items[1::2], strict=True))

    def _extend(self, items: list[object]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise TypeError("values are appended to what is no list")
        target += items

    def _text(self, size: int) -> None:
        self._make(self._bytes(size).decode("utf-8", "surrogatepass"))

    def _raw(self, size: int) -> None:
        self._make(self._bytes(size))

    def _latin(self, size: int) -> None:
        self._make(self._bytes(size).decode("latin-1"))

    def _long(self, size: int) -> None:
        self._make(int.from_bytes(self._bytes(size), "little", signed=True))

    def _integer(self) -> None:
        text = self._line()
        self._stack.append(text == "01" if text in ("00", "01") else int(text))

    def _tuple(self, size: int) -> None:
        if len(self._stack) < size:
            raise IndexError
        items = tuple(self._stack[-size:])
        del self._stack[-size:]
        self._make(items)

    def _float(self) -> None:
        (value,) = struct.unpack_from(">d", self._data, self._at)
        self._at += 8
        self._stack.append(value)

    def _mapping(self) -> None:
        items = self._since_mark()
        self._make({})
        self._fill(items)

    def _skip(self, size: int) -> None:
        self._bytes(size)

    def _pop(self) -> None:
        # On a mark it takes the mark away.
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._stack.pop()


_Do = Callable[[_Machine], object]
_BY_NAME: dict[str, _Do] = {
    "PROTO": lambda m: m._skip(1), "FRAME": lambda m: m._skip(8),
    "POP": lambda m: m._pop(), "POP_MARK": lambda m: m._since_mark(),
    "NONE": lambda m: m._stack.append(None),
    "NEWTRUE": lambda m: m._stack.append(True), "NEWFALSE": lambda m: m._stack.append(False),
    "INT": lambda m: m._integer(),
    "BININT": lambda m: m._stack.append(m._number("<i", 4)),
    "BININT2": lambda m: m._stack.append(m._number("<H", 2)),
    "LONG": lambda m: m._make(int(m._line().rstrip("L"))),
    "LONG1": lambda m: m._long(m._number("<B", 1)),
    "LONG4": lambda m: m._long(m._number("<i", 4)),
    "FLOAT": lambda m: m._stack.append(float(m._line())), "BINFLOAT": lambda m: m._float(),
    "UNICODE": lambda m: m._make(m._raw_line().decode("raw-unicode-escape")),
    "BINUNICODE": lambda m: m._text(m._number("<I", 4)),
    "SHORT_BINUNICODE": lambda m: m._text(m._number("<B", 1)),
    "BINUNICODE8": lambda m: m._text(m._number("<Q", 8)),
    "BINSTRING": lambda m: m._latin(m._number("<i", 4)),
    "SHORT_BINSTRING": lambda m: m._latin(m._number("<B", 1)),
    "BINBYTES": lambda m: m._raw(m._number("<I", 4)),
    "SHORT_BINBYTES": lambda m: m._raw(m._number("<B", 1)),
    "EMPTY_LIST": lambda m: m._make([]), "LIST": lambda m: m._make(m._since_mark()),
    "APPEND": lambda m: m._extend([m._stack.pop()]),
    "APPENDS": lambda m: m._extend(m._since_mark()),
    "EMPTY_TUPLE": lambda m: m._stack.append(()),
    "TUPLE": lambda m: m._make(tuple(m._since_mark())),
    "TUPLE1": lambda m: m._tuple(1), "TUPLE2": lambda m: m._tuple(2),
    "TUPLE3": lambda m: m._tuple(3),
    "DICT": lambda m: m._mapping(),
    "SETITEM": lambda m: m._fill([m._stack.pop(-2), m._stack.pop()]),
    "PUT": lambda m: m._memo.__setitem__(int(m._line()), m._stack[-1]),
    "MEMOIZE": lambda m: m._memo.__setitem__(len(m._memo), m._stack[-1]),
    "GET": lambda m: m._stack.append(m._memo[int(m._line())]),
}  # fmt: skip
_HANDLERS = {code: _BY_NAME[name] for code, name in _NAMES.items() if name in _BY_NAME}
