"""A what-if trace as columns: read from Parquet, checked, and cleaned of unusable rows.

The format is that of the traces published with Lin et al., OSDI'25 (ByteDance-Seed,
StragglerAnalysis): one row per operation, ``start_ts`` and ``duration`` in seconds, the clocks of
the ranks aligned by the authors and counted from the start of each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.importers.faults import Faults
from paceline_service.importers.limits import MAX_RANKS

MAX_ROWS = 20_000_000
"""Operations of one trace: 2 GB as columns; a week of a large job is to be cut into windows."""
MAX_SECONDS = 1e6
"""A time within a step; longer steps are not seconds but another unit."""
MAX_STEP = (1 << 31) - 1
REQUIRED = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")
_OPTIONAL = ("mc", "gmc")
_INSTALL = "pip install 'paceline-service[parquet]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceColumns:
    """N operations, in order of step, rank and start; (N,) each, times in ns within the step."""

    rank: Int64Array
    dp_rank: Int64Array
    stage: Int64Array
    step: Int64Array
    optype: NDArray[np.intp]
    """Index into ``names``."""
    seq_id: Int64Array
    chunk: Int64Array
    """Model chunk (virtual stage) within the whole model, -1 where it is not told."""
    start_ns: Int64Array
    end_ns: Int64Array
    names: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of operations."""
        return len(self.rank)

    def take(self, index: NDArray[np.intp] | BoolArray) -> TraceColumns:
        """Return the operations that ``index`` selects."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        names = columns.pop("names")
        return TraceColumns(names=names, **{k: v[index] for k, v in columns.items()})

    def is_a(self, *names: str) -> BoolArray:
        """Return which operations are of one of the types ``names``."""
        wanted = [index for index, name in enumerate(self.names) if name in names]
        return np.isin(self.optype, wanted)


def read_columns(path: Path, faults: Faults) -> TraceColumns:
    """Read the operations of ``path``; unusable rows are counted in ``faults``.

    Raises:
        InputError: it is no readable Parquet file, or no trace of this kind, or is too large.
    """
    columns = _read_parquet(path)
    try:
        numbers = {
            name: columns[name].astype(np.float64)
            for name in REQUIRED + _OPTIONAL
            if name != "optype" and name in columns
        }
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: a column that should hold numbers does not: {error}") from error
    usable = _usable(numbers)
    lost = int((~usable).sum())
    if lost:
        message = (
            "a time is missing, negative or over 10^6 s, or a rank or step is out of range; "
            "start_ts and duration are seconds"
        )
        row = int(np.flatnonzero(~usable)[0])
        faults.add("invalid", path, row + 1, message)
        faults.counts["invalid"] += lost - 1
    if lost > len(usable) / 10:
        raise InputError(
            f"{path}: {lost:,} of {len(usable):,} operations are unusable, too many for an "
            f"honest answer; first: {faults.notes()[0]}"
        )
    if not usable.any():
        raise InputError(f"{path} holds no operation")
    names, optype = np.unique(columns["optype"].astype(str), return_inverse=True)
    chosen = {name: values[usable] for name, values in numbers.items()}
    whole = {n: np.rint(v).astype(np.int64) for n, v in chosen.items() if n not in _TIMES}
    start_ns = np.rint(chosen["start_ts"] * 1e9).astype(np.int64)
    end_ns = start_ns + np.rint(chosen["duration"] * 1e9).astype(np.int64)
    order = np.lexsort((end_ns, start_ns, whole["rank"], whole["step"]))
    trace = TraceColumns(
        rank=whole["rank"],
        dp_rank=whole["dp_rank"],
        stage=whole["stage"],
        step=whole["step"],
        optype=optype[usable],
        seq_id=whole["seq_id"],
        chunk=whole.get("gmc", np.full(len(start_ns), -1, dtype=np.int64)),
        start_ns=start_ns,
        end_ns=end_ns,
        names=tuple(map(str, names)),
    )
    return trace.take(order)


_TIMES = ("start_ts", "duration")


def _usable(numbers: dict[str, FloatArray]) -> BoolArray:
    keep = np.ones(len(numbers["rank"]), dtype=np.bool_)
    for values in numbers.values():
        keep &= np.isfinite(values) & (np.abs(values) <= MAX_STEP)
    with np.errstate(invalid="ignore"):
        for name in _TIMES:
            keep &= (numbers[name] >= 0) & (numbers[name] <= MAX_SECONDS)
        for name, most in (
            ("rank", MAX_RANKS - 1), ("dp_rank", MAX_RANKS), ("stage", MAX_RANKS),
            ("step", MAX_STEP), ("seq_id", MAX_STEP),
        ):  # fmt: skip
            keep &= (numbers[name] >= 0) & (numbers[name] <= most)
    return keep


def _read_parquet(path: Path) -> dict[str, NDArray[Any]]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise InputError(f"{path} is a Parquet file, which needs pyarrow: {_INSTALL}") from error
    try:
        with parquet.ParquetFile(path) as file:
            there = set(file.schema_arrow.names)
            missing = [name for name in REQUIRED if name not in there]
            if missing:
                raise InputError(
                    f"{path} is a Parquet file without the columns {', '.join(missing)}; a what-if "
                    f"trace has {', '.join(REQUIRED)}"
                )
            if file.metadata.num_rows > MAX_ROWS:
                raise InputError(
                    f"{path} holds {file.metadata.num_rows:,} operations; at most {MAX_ROWS:,} "
                    "are read: cut it into windows of fewer steps"
                )
            wanted = [name for name in REQUIRED + _OPTIONAL if name in there]
            table = file.read(columns=wanted, use_threads=False)
        if any(kind(table.field("optype").type) for kind in _binary_kinds(arrow.types)):
            at = table.schema.get_field_index("optype")
            table = table.set_column(at, "optype", table.column("optype").cast(arrow.string()))
        return {name: _as_array(table.column(name)) for name in wanted}
    except (arrow.ArrowException, ValueError, OverflowError) as error:
        raise InputError(
            f"{path} begins as a Parquet file and cannot be read as one ({_first_line(error)}); "
            "if it was copied, copy it again"
        ) from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {_first_line(error)}; if it was copied, copy it again"
        ) from error


def _as_array(column: Any) -> NDArray[Any]:
    """Return a column as numpy; what is null becomes NaN or the word None."""
    values: NDArray[Any] = column.to_numpy()
    return values


def _binary_kinds(types: Any) -> tuple[Callable[[Any], bool], ...]:
    return types.is_binary, types.is_large_binary, types.is_fixed_size_binary


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
