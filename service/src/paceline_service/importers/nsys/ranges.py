"""NVTX ranges of all processes of a file: steps, phases, and the calls of NCCL."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import field, replace
from functools import lru_cache

from paceline.dataclass import dataclass
from paceline_service.importers.kineto import names
from paceline_service.importers.kineto.trace import Columns
from paceline_service.importers.nsys.database import Database
from paceline_service.importers.nsys.payloads import Payload, Payloads
from paceline_service.importers.nsys.strings import Strings

PROCESS_MASK = ~0xFFFFFF
"""A thread's number is the process's (machine, virtual machine, process) with the thread added."""
_RANGES = frozenset({59, 60, 70, 71, -1})
"""Event types that have an end: push and pop, start and end; plain and of a payload."""
MAX_NCCL_CALLS = 20_000_000
_STEP = re.compile(
    r"\W*(?:profiler ?step|(?:train(?:ing)?[ _-]?)?(?:step|iteration|iter))"
    r"(?:[\s_#:=.-]*(\d{1,9}))?\W*",
    re.IGNORECASE,
)
_ENGINE = names.BACKWARD_OP
_CALLS = ("nccl:", "c10d::", "gloo:")


@dataclass(slots=True)
class Ranges:
    """Those of one process; times in ns since the session began, threads as the file has them.

    Attributes:
        steps: number, start, end; ``unnumbered``: start, end of steps that have no number.
        phases: code, start, end.
        backward: start, end of what the autograd engine ran.
        nccl: start, end, thread; ``nccl_names`` and ``payloads`` beside them.
        calls: of c10d, as torch's own ranges tell: start, end, thread; ``call_names`` beside them.
    """

    steps: Columns = field(default_factory=lambda: Columns(3))
    unnumbered: Columns = field(default_factory=lambda: Columns(2))
    phases: Columns = field(default_factory=lambda: Columns(3))
    backward: Columns = field(default_factory=lambda: Columns(2))
    nccl: Columns = field(default_factory=lambda: Columns(3))
    nccl_names: list[str] = field(default_factory=list)
    payloads: list[Payload] = field(default_factory=list)
    calls: Columns = field(default_factory=lambda: Columns(3))
    call_names: list[str] = field(default_factory=list)

    def of_device(self, device: int) -> Ranges:
        """Return what of a process with several GPUs is one GPU's: its places in communicators."""
        others = {
            payload: replace(payload, position=-1, size=-1)
            for payload in set(self.payloads)
            if payload.device not in (-1, device)
        }
        return replace(self, payloads=[others.get(one, one) for one in self.payloads])


def read_ranges(database: Database, strings: Strings) -> dict[int, Ranges]:
    """Return the ranges by process (its ``globalPid``).

    Raises:
        InputError: the file is damaged.
    """
    found: dict[int, Ranges] = defaultdict(Ranges)
    payloads = Payloads.of(database)
    columns = ["start", "end", "eventType", "globalTid", "text", "textId", "jsonText",
               "jsonTextId", "binaryData"]  # fmt: skip
    for rows in database.rows("NVTX_EVENTS", columns):
        for start, end, kind, thread, text, text_id, json, json_id, data in rows:
            if type(start) is not int or type(end) is not int or not 0 <= start <= end < 1 << 60:
                continue
            if kind is not None and kind not in _RANGES:
                continue
            name = text if isinstance(text, str) and text else strings.of(text_id)
            meaning = _meaning(name)
            if meaning is None:
                continue
            thread = thread if type(thread) is int else 0
            own = found[thread & PROCESS_MASK]
            if meaning == "nccl":
                if len(own.nccl_names) < MAX_NCCL_CALLS:
                    told = json if isinstance(json, str) else strings.of(json_id)
                    payload = payloads.read(told, data)
                    own.nccl.add(start, end, thread)
                    own.nccl_names.append(name)
                    own.payloads.append(payload)
            else:
                _take(own, meaning, name, start, end, thread)
    return dict(found)


def _take(own: Ranges, meaning: str, name: str, start: int, end: int, thread: int) -> None:
    if meaning == "step":
        number = step_of(name)
        if number is not None and number >= 0:
            own.steps.add(number, start, end)
        else:
            own.unnumbered.add(start, end)
    elif meaning == "phase":
        phase = names.phase_of(name)
        assert phase is not None
        own.phases.add(int(phase), start, end)
    elif meaning == "backward":
        own.backward.add(start, end)
    else:
        own.calls.add(start, end, thread)
        own.call_names.append(name[:200])


def step_of(name: str) -> int | None:
    """Return the number in the name of a step, -1 where it has none; None where it is no step."""
    match = _STEP.fullmatch(name) if len(name) < 64 else None
    if match is None:
        return None
    return int(match[1]) if match[1] else -1


@lru_cache(maxsize=1 << 16)
def _meaning(name: str) -> str | None:
    if name.startswith(_CALLS):
        return "call"
    if name.startswith("nccl"):
        return "nccl"
    if name.startswith(_ENGINE):
        return "backward"
    if len(name) > 200:
        return None
    if step_of(name) is not None:
        return "step"
    return "phase" if names.phase_of(name) is not None else None
