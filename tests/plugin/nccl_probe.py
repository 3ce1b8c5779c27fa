"""Run as a process of its own: lets a real libnccl load the plugin, without a GPU.

NCCL loads a profiler when it makes a communicator, which needs a GPU. The function that does it is
internal, but the wheels keep their symbol table: its address is looked up there and it is called
with a communicator of zeros. Prints one JSON object; what NCCL logs goes to standard output before.

usage: python nccl_probe.py LIBNCCL   (NCCL_PROFILER_PLUGIN, NCCL_DEBUG=INFO in the environment)
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from pathlib import Path

COMM_BYTES = 64 << 20
"""More than any version's communicator."""
INIT = "_Z22ncclProfilerPluginInitP8ncclComm"
FINALIZE = "_Z26ncclProfilerPluginFinalizeP8ncclComm"
START_GROUP = "_Z30ncclProfilerStartGroupApiEventP8ncclInfob"
START_COLL = "_Z29ncclProfilerStartCollApiEventP8ncclInfob"
STOP_COLL = "_Z28ncclProfilerStopCollApiEventv"
STOP_GROUP = "_Z29ncclProfilerStopGroupApiEventv"
MASK = "ncclProfilerEventMask"
STATUS = "_ZL20profilerPluginStatus"
VISIBLE = "ncclGetVersion"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2


def symbols(library: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Return the addresses, within the file, of those of ``names`` that its .symtab has."""
    found: dict[str, int] = {}
    wanted = {name.encode(): name for name in names}
    with library.open("rb") as file:
        header = file.read(64)
        (offset,) = struct.unpack_from("<Q", header, 0x28)
        size, count = struct.unpack_from("<HH", header, 0x3A)
        file.seek(offset)
        raw = file.read(size * count)
        sections = [_SECTION.unpack_from(raw, number * size) for number in range(count)]
        for section in sections:
            if section[1] != _SYMTAB:
                continue
            file.seek(section[4])
            table = file.read(section[5])
            strings = sections[section[6]]
            file.seek(strings[4])
            text = file.read(strings[5])
            for name_at, _, _, _, value, _ in _SYMBOL.iter_unpack(table):
                name = text[name_at : text.index(b"\0", name_at)]
                if name in wanted and value:
                    found[wanted[name]] = value
    return found


def probe(library: Path) -> dict[str, object]:
    """Load ``library``, let it load the plugin twice and drop it; return what happened."""
    table = symbols(
        library,
        (INIT, FINALIZE, START_GROUP, START_COLL, STOP_COLL, STOP_GROUP, MASK, STATUS, VISIBLE),
    )
    nccl = ctypes.CDLL(str(library))
    version = ctypes.c_int()
    nccl.ncclGetVersion(ctypes.byref(version))
    result: dict[str, object] = {"version": version.value, "symbols": len(table)}
    if INIT not in table or FINALIZE not in table:
        return result
    visible = ctypes.cast(nccl.ncclGetVersion, ctypes.c_void_p).value
    assert visible is not None
    base = visible - table[VISIBLE]
    one = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    init, finalize = one(base + table[INIT]), one(base + table[FINALIZE])
    mask = ctypes.c_int.from_address(base + table[MASK])
    status = ctypes.c_int.from_address(base + table[STATUS])

    comms = [ctypes.create_string_buffer(COMM_BYTES) for _ in range(2)]
    result["init"] = [init(ctypes.addressof(comm)) for comm in comms]
    result["loaded"] = status.value == 1
    result["mask"] = mask.value
    result["contexts"] = [bool(comm.raw.strip(b"\0")) for comm in comms]
    if result["loaded"] and START_GROUP in table:
        result["api_events"] = _api_events(base, table, comms[0])
    result["finalize"] = [finalize(ctypes.addressof(comm)) for comm in comms]
    result["unloaded"] = status.value != 1
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    result["still_mapped"] = "libnccl-profiler-paceline" in maps
    result["again"] = init(ctypes.addressof(comms[0])) | finalize(ctypes.addressof(comms[0]))
    return result


def _api_events(base: int, table: dict[str, int], comm: ctypes.Array[ctypes.c_char]) -> list[int]:
    """Let NCCL report a group and a collective; every word of its description is the comm."""
    words = (ctypes.c_uint64 * 64)(*[ctypes.addressof(comm)] * 64)
    start = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_bool)
    stop = ctypes.CFUNCTYPE(ctypes.c_int)
    return [
        start(base + table[START_GROUP])(ctypes.addressof(words), False),
        start(base + table[START_COLL])(ctypes.addressof(words), False),
        stop(base + table[STOP_COLL])(),
        stop(base + table[STOP_GROUP])(),
    ]


if __name__ == "__main__":
    answer = probe(Path(sys.argv[1]))
    sys.stdout.flush()
    print("\n" + json.dumps(answer), flush=True)
