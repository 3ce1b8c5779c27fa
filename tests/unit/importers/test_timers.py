from __future__ import annotations

import pytest

from paceline_service.importers.timing_logs.timers import leaves, less_parts, phase_of

MEGATRON_2021 = (
    "forward-compute", "backward-compute", "backward-params-all-reduce",
    "backward-layernorm-all-reduce", "backward-embedding-all-reduce",
    "backward-reduce-model-grads", "backward-gather-model-params", "optimizer-copy-to-main-grad",
    "optimizer-unscale-and-check-inf", "optimizer-inner-step", "optimizer", "batch-generator",
)  # fmt: skip


@pytest.mark.parametrize(
    ("timer", "phase"),
    [
        ("forward-compute", "forward"), ("fwd", "forward"), ("bwd_inner", "backward"),
        ("backward-compute", "backward"), ("batch-generator", "input"),
        ("batch generator", "input"), ("optimizer-inner-step", "optimizer"),
        ("step", "optimizer"), ("all-grads-sync", "communication"),
        ("forward-recv", "communication"), ("backward-send-forward-recv", "communication"),
        ("bwd_allreduce", "communication"), ("pipe_recv_grad", "communication"),
        ("params-all-gather", "communication"), ("backward-reduce-model-grads", "communication"),
        ("optimizer-clip-main-grad", "communication"), ("something-new", None),
    ],
)  # fmt: skip
def test_a_timer_is_of_the_phase_that_its_name_says(timer: str, phase: str | None) -> None:
    assert phase_of(timer) == phase


def test_time_that_several_timers_hold_counts_once() -> None:
    kept = leaves(MEGATRON_2021)
    assert "optimizer" not in kept
    assert "backward-reduce-model-grads" not in kept
    assert leaves(["forward-backward", "optimizer"]) == ["forward-backward", "optimizer"]
    assert leaves(["interval-time", "fwd_microstep", "save-checkpoint"]) == []
    assert less_parts("forward-compute", {"forward-compute": 20.0, "batch-generator": 3.0}) == 17.0
