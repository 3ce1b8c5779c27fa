"""``GET /v1/jobs/{job}/expected``: the step that healthy ranks would take (docs/api.md)."""

from __future__ import annotations

from paceline.errors import InputError
from paceline_service.analysis.costs.calibrate_flops import flops_of_model, with_flops
from paceline_service.jobs.snapshot import Json, Snapshot


def expected_answer(
    snapshot: Snapshot,
    *,
    flops_per_step: float | None = None,
    parameters: float | None = None,
    tokens_per_step: float | None = None,
) -> Json:
    """Return expected and observed step with the calibration, and R where FLOP are told.

    Raises:
        InputError: FLOP are told twice, or parameters without tokens.
        ConfigError: a number is not positive.
    """
    if (parameters is None) != (tokens_per_step is None):
        raise InputError("parameters and tokens_per_step are given together, or neither")
    if parameters is not None and tokens_per_step is not None:
        if flops_per_step is not None:
            raise InputError("give flops_per_step, or parameters and tokens_per_step, not both")
        flops_per_step = flops_of_model(parameters, tokens_per_step)
    report = snapshot.report
    calibration = report.get("calibration")
    if calibration is not None and flops_per_step is not None:
        calibration = with_flops(calibration, report["job"]["world_size"], flops_per_step)
    return {
        "job": snapshot.attempt.job,
        "attempt": snapshot.attempt.ordinal,
        "expected": report.get("expected"),
        "calibration": calibration,
    }
