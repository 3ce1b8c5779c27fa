"""Primus' dump of pipeline times: what is in ``config.json`` and the ``pp_rank_N.json``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline_service.importers.faults import Faults
from paceline_service.importers.opening import open_binary

MAX_FILE_BYTES = 64 << 20
"""Unpacked; 10,000 iterations of 64 micro-batches take 50 MB. They are held in memory."""
MAX_MS = 1e9
"""Of a time within an iteration: 11 days."""
MAX_STAGES = 4096
MAX_BATCH = (1 << 16) - 1
MAX_CHUNK = 63
_RANK = re.compile(r"pp_rank_(\d{1,6})(?!\d)")


class Iteration(msgspec.Struct):
    """One iteration of one pipeline rank, ms since its schedule began on its own GPU."""

    total: float
    fwd_start: list[float] = []
    fwd_end: list[float] = []
    bwd_start: list[float] = []
    bwd_end: list[float] = []
    wgrad_start: list[float] = []
    wgrad_end: list[float] = []
    fwd_minibatch: list[int] = []
    fwd_chunk: list[int] = []
    bwd_minibatch: list[int] = []
    bwd_chunk: list[int] = []

    def problem(self) -> str:
        """Return why it cannot be used, or nothing."""
        for kind in ("fwd", "bwd", "wgrad"):
            start, end = getattr(self, f"{kind}_start"), getattr(self, f"{kind}_end")
            if len(start) != len(end):
                return f"{len(start)} values of {kind}_start and {len(end)} of {kind}_end"
            if any(not 0 <= a <= b <= MAX_MS for a, b in zip(start, end, strict=True)):
                return f"a value of {kind}_start or {kind}_end is negative, or it ends too early"
            if any(not 0 <= batch <= MAX_BATCH for batch in getattr(self, f"{kind}_minibatch", ())):
                return f"a value of {kind}_minibatch is not within 0 to {MAX_BATCH}"
            if any(not 0 <= chunk <= MAX_CHUNK for chunk in getattr(self, f"{kind}_chunk", ())):
                return f"a value of {kind}_chunk is not within 0 to {MAX_CHUNK}"
        if not 0 < self.total <= MAX_MS:
            return f"total is {self.total:g} ms"
        return "" if self.fwd_start else "no forward pass"


class Config(msgspec.Struct):
    """What the run says of itself; names of both kinds of dump (run and simulation)."""

    world_size: int = 0
    pp_size: int = 0
    vp_size: int = 0
    vpp_size: int = 0
    num_mbs: int = 0
    micro_batches: int = 0

    @property
    def chunks(self) -> int:
        """Model chunks on a rank, 0 where it is not told."""
        return self.vp_size or self.vpp_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """A whole dump: iterations by number, by pipeline rank."""

    ranks: dict[int, dict[int, Iteration]]
    config: Config
    stages: int
    """Pipeline ranks that the job has, as far as told."""


def read_dump(paths: Sequence[Path], faults: Faults) -> Dump:
    """Read the files of one dump.

    Raises:
        InputError: no rank is usable, or two files are of one rank.
    """
    config = Config()
    ranks: dict[int, dict[int, Iteration]] = {}
    files: dict[int, Path] = {}
    for path in paths:
        faults.reading(path)
        raw = _content(path, faults)
        if raw is None:
            continue
        if b'"fwd_start"' not in raw:
            config = _config(raw, path, faults) or config
            continue
        found = _RANK.search(path.name)
        if found is None:
            message = "the name pp_rank_N.json alone tells the rank; name it as Primus does"
            faults.add("unusable_file", path, None, message)
            continue
        rank = int(found[1])
        if rank in ranks:
            raise InputError(
                f"{path} and {files[rank]} are both of pipeline rank {rank}; each dump is a run of "
                "its own: give one directory at a time"
            )
        iterations = _iterations(raw, path, rank, faults)
        if iterations:
            ranks[rank], files[rank] = iterations, path
    if not ranks:
        told = f"; first: {faults.notes()[0]}" if faults.counts else ""
        raise InputError(f"{paths[0]}: no pp_rank_N.json of a pipeline rank is usable{told}")
    stages = max(config.pp_size, max(ranks) + 1)
    if stages > MAX_STAGES:
        raise InputError(f"{paths[0]}: a pipeline of {stages} ranks; at most {MAX_STAGES} are read")
    return Dump(ranks=ranks, config=config, stages=stages)


def _content(path: Path, faults: Faults) -> bytes | None:
    try:
        with open_binary(path, faults.advanced) as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except (EOFError, OSError) as error:
        faults.add("truncated_file", path, None, f"it cannot be read to its end ({error})")
        return None
    if len(raw) > MAX_FILE_BYTES:
        faults.add("too_long", path, None, f"over {MAX_FILE_BYTES} bytes; left out")
        return None
    return raw


def _config(raw: bytes, path: Path, faults: Faults) -> Config | None:
    try:
        return msgspec.json.decode(raw, type=Config)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        faults.add("invalid", path, None, f"no configuration of a run: {error}")
        return None


def _iterations(raw: bytes, path: Path, rank: int, faults: Faults) -> dict[int, Iteration]:
    try:
        told = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        faults.add("unusable_file", path, None, f"no JSON of iterations: {error}", rank=rank)
        return {}
    iterations = {}
    for name, content in told.items():
        try:
            iteration = msgspec.json.decode(content, type=Iteration)
            problem = iteration.problem()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = str(error)
        if not problem and not (name.isdecimal() and len(name) < 10):
            problem = "iterations are numbered"
        if problem:
            message = f"iteration {name[:20]!r}: {problem}"
            faults.add("invalid", path, None, message, rank=rank)
        else:
            iterations[int(name)] = iteration
    return iterations
