"""How a file begins, unpacked: enough to tell its format, and why there may be none."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from pathlib import Path

from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline_service.importers.nsys.recognize import SQLITE_MAGIC, how_to_export
from paceline_service.importers.opening import open_binary

HEAD_BYTES = 64 << 10
"""Of each file, unpacked, by which it is recognised; eight GPUs' properties take 6 KB of it."""
_UTF8_MARK = b"\xef\xbb\xbf"
_ENCODINGS = (
    (b"\xff\xfe\x00\x00", "UTF-32", "utf-32-le"), (b"\x00\x00\xfe\xff", "UTF-32", "utf-32-be"),
    (b"\xff\xfe", "UTF-16", "utf-16-le"), (b"\xfe\xff", "UTF-16", "utf-16-be"),
)  # fmt: skip
_PACKINGS = (
    (b"\x1f\x8b", "packed by gzip twice", "gunzip"),
    (b"PK\x03\x04", "a zip archive", "unzip"), (b"PK\x05\x06", "a zip archive", "unzip"),
    (b"\x28\xb5\x2f\xfd", "packed by zstd", "zstd -d"),
    (b"\xfd7zXZ\x00", "packed by xz", "xz -d"),
    (b"BZh", "packed by bzip2", "bzip2 -d"),
    (b"\x04\x22\x4d\x18", "packed by lz4", "lz4 -d"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x"),
)  # fmt: skip
_TAR_MAGIC_AT = 257
_REPORT_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of a file.

    Attributes:
        data: up to ``HEAD_BYTES`` of it as UTF-8, without its mark; empty where nothing is known.
        problem: why it cannot be read, whatever its format; empty when it can.
        packed: whether it was unpacked to be seen.
        readable: whether it is sound in itself, so that an unknown format is really another one.
    """

    data: bytes
    problem: str = ""
    packed: bool = False
    readable: bool = True


def read_head(path: Path) -> Head:
    """Return how the file at ``path`` begins; never more of it is read."""
    data = b""
    torn = ""
    try:
        with open_binary(path) as file:
            while len(data) < HEAD_BYTES and (more := file.read1(HEAD_BYTES - len(data))):  # type: ignore[attr-defined]
                data += more
    except InputError as error:
        return _lost(str(error).removeprefix(f"{path} "))
    except (gzip.BadGzipFile, zlib.error) as error:
        torn = f"a gzip file that is damaged ({error})"
    except EOFError:
        torn = "a gzip file that breaks off"
    except OSError as error:
        torn = f"cannot be read ({error.strerror})"
    if data and not data.startswith(SQLITE_MAGIC) and (remedy := how_to_export(path)):
        return Head(data=b"", problem=remedy)
    return replace(_told(data), packed=_is_gzip(path)) if data else _lost(torn or "empty")


def _is_gzip(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"\x1f\x8b"
    except OSError:
        return False


def _lost(problem: str) -> Head:
    return Head(data=b"", problem=problem, readable=False)


def _told(data: bytes) -> Head:
    for mark, name, codec in _ENCODINGS:
        if data.startswith(mark):
            problem = f"{name}; convert it first: iconv -f {name} -t UTF-8"
            text = data[len(mark) :].decode(codec, errors="replace").encode(errors="replace")
            return Head(data=text, problem=problem, readable=False)
    for magic, name, command in _PACKINGS:
        if data.startswith(magic):
            return Head(data=b"", problem=f"{name}; unpack it first ({command})")
    if data[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        return Head(data=b"", problem="a tar archive; unpack it first (tar -xf)")
    if b'"paceline.report/' in data[:_REPORT_BYTES]:
        return Head(data=b"", problem="a report of Paceline; give what it was made from")
    return Head(data=data.removeprefix(_UTF8_MARK))
