"""What the transfers of a job should take by their own alpha and beta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.vocabulary import Op, op_name
from paceline_service.analysis.costs.calibrate_line import line_intervals
from paceline_service.analysis.network.fit import TransferFit, busbw_factor
from paceline_service.analysis.network.levels import fits_of, sizes_of
from paceline_service.analysis.network.watch import NetworkWatch
from paceline_service.analysis.records import FloatArray, Group
from paceline_service.analysis.sets import among

MODELLED_CLASSES = 64
"""The costliest stand for all of them: a large job has thousands alike."""
MAX_ROWS = 16
"""Groups and operations whose fit is told, those with the most exposed time first."""
LOOKED_AT = 256
"""Classes, the costliest first, among which these groups are looked for."""
OFF_LINE = 0.1
"""A size that takes this much more or less than the line says is expected as it was measured: a
library changes its algorithm with the size."""
_RING_MESSAGES = {
    Op.ALL_REDUCE: 2, Op.ALL_GATHER: 1, Op.REDUCE_SCATTER: 1, Op.ALL_TO_ALL: 1,
}  # fmt: skip
"""Messages that follow one another, over K - 1 (docs/math/costs.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """Exposed transfers of all ranks together, ns.

    Attributes:
        seen_ns: exposed time of all transfers whose size is known.
        found_ns: what of it slow places are to blame for.
        expected_ns: what it would be by the model, with those places in good health.
        error_ns: standard error of that.
        modelled_ns: exposed time that the model could be compared with.
    """

    seen_ns: float
    found_ns: float
    expected_ns: float
    error_ns: float
    modelled_ns: float


def transferred(network: NetworkWatch) -> Transferred:
    """Return the exposed transfers of a job as they were and as they should have been."""
    exposed = network.exposed_ns
    found = np.minimum(network.excess_by_class(), exposed)
    seen_ns, found_ns = float(exposed.sum()), float(found.sum())
    chosen = costliest(network)
    level, error = network.evidence.level(chosen)
    state = network.evidence.state
    # Classes that were hardly ever timed exactly say nothing about what is normal.
    usable = ~np.isnan(level) & (state["observed"][chosen] > 0)
    all_ns = float((exposed[chosen] - found[chosen]).sum())
    chosen, level, error = chosen[usable], level[usable], error[usable]
    model_ns = _model_ns(network, chosen, level)
    took_ns = network.took_ns[chosen] / np.maximum(state["observed"][chosen], 1)
    named = found[chosen] > 0
    took_ns = np.where(named, np.exp(level), took_ns)
    weight = exposed[chosen] - found[chosen]
    modelled_ns = float(weight.sum())
    if modelled_ns <= 0:
        return Transferred(
            seen_ns=seen_ns, found_ns=found_ns, expected_ns=seen_ns - found_ns, error_ns=0.0,
            modelled_ns=0.0,
        )  # fmt: skip
    ratio = model_ns / np.maximum(took_ns, 1.0)
    mean = float((weight * ratio).sum()) / modelled_ns
    doubt = float(np.sqrt(((weight * ratio * error) ** 2).sum())) / modelled_ns
    healthy_ns = seen_ns - found_ns
    return Transferred(
        seen_ns=seen_ns,
        found_ns=found_ns,
        expected_ns=healthy_ns * mean,
        error_ns=healthy_ns * doubt,
        modelled_ns=healthy_ns * modelled_ns / all_ns,
    )


def costliest(network: NetworkWatch) -> NDArray[np.intp]:
    """Return the classes with the most exposed time, the costliest first."""
    exposed = network.exposed_ns
    order = np.argsort(-exposed, kind="stable")[:MODELLED_CLASSES]
    return order[exposed[order] > 0]


def _model_ns(network: NetworkWatch, classes: NDArray[np.intp], level: FloatArray) -> FloatArray:
    """Return what each class takes by its line, or as it did in good health where none fits."""
    lines = {
        _key(fit): (fit.alpha_ns, fit.beta_ns_per_byte)
        for fit in fits_of(network.table, network.evidence, classes)
    }
    size = sizes_of(network.table)[classes]
    healthy_ns = np.exp(level)
    out = healthy_ns.copy()
    for place, key in enumerate(map(tuple, network.table.columns[classes, :4].tolist())):
        alpha, beta = lines.get(key, (None, None))
        if alpha is None or beta is None:
            continue
        line_ns = alpha + beta * float(size[place])
        if abs(line_ns / healthy_ns[place] - 1) <= OFF_LINE:
            out[place] = line_ns
    return out


def transfer_rows(network: NetworkWatch, groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return alpha and beta with their intervals, a row per process group and operation.

    Those that expose the most come first; of transfers that are all hidden the largest.
    """
    table = network.table
    if not len(table):
        return []
    size = sizes_of(table)
    cost = network.exposed_ns + 1e-9 * size * table.members
    shown: dict[int, list[int]] = {}
    for number in np.argsort(-cost, kind="stable")[:LOOKED_AT].tolist():
        mine = shown.setdefault(int(table.series[number]), [])
        mine.append(number)
    first = [classes[0] for classes in shown.values()][:MAX_ROWS]
    fits = fits_of(table, network.evidence, np.array(first, dtype=np.intp))
    of_series = {_key(fit): fit for fit in fits}
    chosen = np.flatnonzero(among(table.series, table.series[first]))
    level, error = network.evidence.level(chosen)
    rows = []
    for number in first:
        fit = of_series.get(tuple(table.columns[number, :4].tolist()))
        if fit is None:
            continue
        mine = (table.series[chosen] == table.series[number]) & ~np.isnan(level)
        took_ns = np.exp(level[mine])
        row = _row(fit, groups)
        if fit.alpha_ns is not None:
            intervals = line_intervals(size[chosen[mine]], took_ns, took_ns * error[mine])
            _tell_line(row, fit, *intervals)
        rows.append(row)
    return rows


def _key(fit: TransferFit) -> tuple[int, int, int, int]:
    return fit.group, fit.op, fit.source, fit.destination


def _row(fit: TransferFit, groups: Sequence[Group]) -> dict[str, Any]:
    pair = fit.source >= 0
    reason = None
    if fit.alpha_ns is None:
        reason = (
            "all transfers had one size: start-up time cannot be told from the price of a byte"
            if fit.sizes < 2
            else "the sizes lie too close together, or the noise hides what they differ by"
        )
    return {
        "group": groups[fit.group].name,
        "op": op_name(Op(fit.op)),
        "links": [[fit.source, fit.destination]] if pair else [],
        "members": 2 if pair else fit.members,
        "sizes": fit.sizes,
        "largest_bytes": fit.largest_bytes,
        "alpha_s": None, "alpha_interval_s": None,
        "beta_s_per_byte": None, "beta_interval_s_per_byte": None,
        "latency_s": None, "bandwidth_bytes_per_s": None,
        "bandwidth_interval_bytes_per_s": None,
        "reason": reason,
    }  # fmt: skip


def _tell_line(
    row: dict[str, Any], fit: TransferFit, alphas: tuple[float, float], betas: tuple[float, float]
) -> None:
    assert fit.alpha_ns is not None, "a line was fitted"
    assert fit.beta_ns_per_byte is not None, "a line was fitted"
    row["alpha_s"], row["alpha_interval_s"] = _s(fit.alpha_ns), [_s(end) for end in alphas]
    row["beta_s_per_byte"] = _s(fit.beta_ns_per_byte)
    row["beta_interval_s_per_byte"] = [_s(end) for end in betas]
    pair = fit.source >= 0
    messages = 1 if pair else _RING_MESSAGES.get(Op(fit.op), 0) * (fit.members - 1)
    if messages:
        sent = 1.0 if pair else busbw_factor(fit.op, fit.members)
        row["latency_s"] = _s(fit.alpha_ns / messages)
        row["bandwidth_bytes_per_s"] = _digits(sent * 1e9 / fit.beta_ns_per_byte)
        row["bandwidth_interval_bytes_per_s"] = [
            _digits(sent * 1e9 / betas[1]),
            _digits(sent * 1e9 / betas[0]) if betas[0] > 0 else None,
        ]


def _s(time_ns: float) -> float:
    return _digits(time_ns / 1e9)


def _digits(value: float) -> float:
    """Return a figure as it is told: sums depend in their last digits on what arrived first."""
    return float(f"{value:.6g}")
