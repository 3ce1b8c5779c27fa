from __future__ import annotations

from collections import defaultdict

import pytest

from paceline import metrics, telemetry
from paceline_service.export.rows import Values
from paceline_service.export.telemetry_series import (
    MAX_DEVICES,
    MAX_REASONS,
    OF_HARDWARE,
    node_telemetry,
    rank_telemetry,
)


def of_rank(told: dict[str, object]) -> Values:
    values: Values = defaultdict(dict)
    rank_telemetry(values, "train", "0", told)
    return values


def of_node(told: dict[str, object]) -> Values:
    values: Values = defaultdict(dict)
    node_telemetry(values, "train", "node-a", told)
    return values


def test_a_node_invents_no_more_devices_than_the_limit() -> None:
    told: dict[str, object] = {f"nic_rx_bytes_total/eth{n}": 1 for n in range(500)}
    told |= {f"ib_up/mlx5_{n}:1": 1 for n in range(500)}
    values = of_node(told)
    assert len(values[metrics.NODE_NIC_BYTES]) == len(values[metrics.NODE_IB_UP]) == MAX_DEVICES


def test_a_rank_invents_no_more_reasons_than_the_limit() -> None:
    told: dict[str, object] = {telemetry.THROTTLE: [f"reason_{n}" for n in range(500)]}
    assert len(of_rank(told)[metrics.RANK_THROTTLED]) == MAX_REASONS


def test_names_and_values_that_make_no_sense_are_left_out() -> None:
    told: dict[str, object] = {
        "sm_clock_hz": "fast", "throttle_reasons": "none", "nic_rx_bytes_total": 5,
        "nic_rx_bytes_total/": 5, "ib_up/x": "1", "unknown_total/eth0": 1,
    }  # fmt: skip
    assert not any(of_rank(told).values())
    assert not any(of_node(told).values())


def test_congestion_of_a_port_is_no_error_of_it() -> None:
    values = of_node({"ib_cnp_sent_total/a:1": 9, "ib_xmit_wait_total/a:1": 7})
    assert not values[metrics.NODE_IB_ERRORS]
    assert values[metrics.NODE_IB_XMIT_WAIT] == {("train", "node-a", "a:1"): 7.0}


@pytest.mark.parametrize("name", [*telemetry.IB_COUNTERS.values(),
                                  *telemetry.IB_HW_COUNTERS.values()])  # fmt: skip
def test_the_errors_of_infiniband_that_the_sidecar_knows_are_shown(name: str) -> None:
    congestion = ("ib_xmit_wait_total", "ib_cnp_sent_total", "ib_cnp_handled_total",
                  "ib_ecn_marked_total")  # fmt: skip
    kinds = {labels[3] for labels in of_node({f"{name}/a:1": 1})[metrics.NODE_IB_ERRORS]}
    wanted = name.removeprefix("ib_").removesuffix("_total")
    assert kinds == (set() if name in congestion else {wanted})


def test_every_counter_of_telemetry_may_begin_again() -> None:
    shown = {m for m in metrics.ALL if m.kind == "counter"} & (
        set(of_rank(dict.fromkeys(telemetry.CATALOGUE, 1)))
        | set(of_node({f"{name}/a:1": 1 for name in telemetry.CATALOGUE}))
        | set(of_node(dict.fromkeys(telemetry.CATALOGUE, 1)))
    )
    assert shown == OF_HARDWARE
