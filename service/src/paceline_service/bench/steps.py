"""What the agent adds to the steps of a job: DDP and FSDP2, each hook against none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from paceline.errors import InputError
from paceline_service.bench.launch import RANKS, refuse_failures, sidecar, train
from paceline_service.bench.pairs import against

MODELS = ("ddp", "fsdp2")


def measure(*, quick: bool, native: bool) -> dict[str, object]:
    """Return the ratios of step times for both models, with a null condition beside them.

    Args:
        quick: few rounds.
        native: whether the native hook is built here and can be measured.
    """
    conditions = ("off", "null", "python", *(("native",) if native else ()))
    return {model: _measure(model, conditions, quick=quick) for model in MODELS}


def ratios(
    blocks_s: Mapping[str, Sequence[Sequence[float]]], conditions: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return each condition against ``off``: of block means and of block medians."""
    means = {name: [fmean(block) for block in blocks] for name, blocks in blocks_s.items()}
    medians = {name: [median(block) for block in blocks] for name, blocks in blocks_s.items()}
    return {
        name: {
            "of_means": against(means, name, "off")["ratio"],
            "of_medians": against(medians, name, "off")["ratio"],
        }
        for name in conditions
        if name != "off"
    }


def _measure(model: str, conditions: Sequence[str], *, quick: bool) -> dict[str, Any]:
    rounds, steps = (6, 6) if quick else (40, 12)
    with sidecar() as (environment, sink, _):
        measured = train(environment, conditions, rounds, steps, model=model)
        refuse_failures(sink.hook_errors)
        sent = sink.records
    if not sent:
        raise InputError("the sidecar sent nothing, so an agent that works was not measured")
    return {
        "ranks": RANKS,
        "rounds": rounds,
        "steps_per_block": steps,
        "step_ms": {
            name: round(median(median(block) for block in blocks) * 1e3, 2)
            for name, blocks in measured["seconds"].items()
        },
        "to_off": ratios(measured["seconds"], conditions),
    }
