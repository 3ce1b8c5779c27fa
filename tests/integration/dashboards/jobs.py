"""The jobs that dashboards are tried on: one of each kind of trouble, and their telemetry.

Steps take a second, so that a few minutes of them are few records. All began at the same moment.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paceline.vocabulary import Op, Phase
from paceline.wire.frames import Sample
from tests.integration.collector.kit import STEP_COLUMN, RankSender
from tests.simulator.job import Fault, Scenario, Simulated, simulate
from tests.simulator.network import Network, Slowness, Traffic, simulate_network

S = 1_000_000_000
MB = 1 << 20
START_COLUMN, END_COLUMN = 7, 8
SLOW_RANK = 5
PER_NODE = 4
SECOND_OF_STEPS = {
    Phase.HOST: 20.0, Phase.INPUT: 40.0, Phase.FORWARD: 250.0, Phase.BACKWARD: 500.0,
    Phase.OPTIMIZER: 90.0,
}  # fmt: skip


@dataclass(kw_only=True)
class Job:
    """A simulated job, cut into slices of time."""

    name: str
    simulated: Simulated
    senders: list[RankSender]
    sick_from_s: float = float("inf")
    """From then on the slow rank's GPU is hot."""

    def bodies(self, from_s: float, to_s: float) -> Iterator[bytes]:
        """Yield a body with the steps that begin in these seconds of the job."""
        first, last = self._step_at(from_s), self._step_at(to_s)
        frames = []
        for sender, rows in zip(self.senders, self.simulated.rows, strict=True):
            chosen = [row for row in rows if first <= row[STEP_COLUMN] < last]
            sender.telemetry = self._telemetry(sender, chosen, to_s)
            if chosen:
                frames.append(sender.frame(chosen))
        if frames:
            yield b"".join(frames)

    def _step_at(self, at_s: float) -> int:
        began = self.simulated.rows[0][0][START_COLUMN]
        over = [
            row[STEP_COLUMN]
            for row in self.simulated.rows[0]
            if row[END_COLUMN] - began <= at_s * S
        ]
        return max(over, default=-1) + 1

    def _telemetry(
        self, sender: RankSender, rows: list[tuple[int, ...]], at_s: float
    ) -> list[Sample]:
        if not rows:
            return []
        sick = sender.rank == SLOW_RANK and at_s >= self.sick_from_s
        values = gpu(sender.rank, at_s, hot_s=at_s - self.sick_from_s if sick else 0.0)
        if sender.rank % PER_NODE == 0:
            values |= host(at_s)
        return [Sample(rows[-1][START_COLUMN], values)]


def gpu(rank: int, at_s: float, *, hot_s: float) -> dict[str, Any]:
    """Return what a sidecar would tell of a rank's GPU and process."""
    hot = hot_s > 0
    wobble = ((rank * 7 + int(at_s)) % 5) / 5
    return {
        "sm_clock_hz": 1.12e9 if hot else 1.9e9 + wobble * 3e7,
        "max_sm_clock_hz": 1.98e9,
        "throttle_reasons": ["hw_thermal_slowdown"] if hot else [],
        "throttle_hw_thermal_slowdown_ns_total": int(hot_s * 0.9 * S),
        "temperature_c": 91 if hot else 61 + 2 * wobble,
        "mem_temperature_c": 96 if hot else 70 + 2 * wobble,
        "power_w": 430.0 if hot else 640.0 + 10 * wobble,
        "power_limit_w": 700.0,
        "gpu_busy_ratio": 0.97 + wobble / 50,
        "gpu_mem_used_bytes": int((58 + wobble) * 2**30),
        "ecc_corrected_total": 0,
        "ecc_uncorrected_total": 0,
        "pcie_replays_total": int(at_s) if hot else 0,
        "nvlink_crc_flit_errors_total": 0,
        "rank_run_queue_ns_total": int(at_s * 0.004 * S),
        "cgroup_cpu_throttled_ns_total": 0,
    }


def host(at_s: float) -> dict[str, Any]:
    """Return what a sidecar would tell of a node."""
    moved = int(at_s * 18e9)
    return {
        "cpu_user_ratio": 0.31, "cpu_system_ratio": 0.05, "cpu_iowait_ratio": 0.01,
        "cpu_steal_ratio": 0.0, "load_tasks": 34.0, "memory_available_bytes": 1.4e12,
        "cpu_stall_us_total": int(at_s * 9000), "memory_stall_us_total": 0,
        "io_stall_us_total": int(at_s * 4000), "oom_kills_total": 0,
        "nic_rx_bytes_total/eth0": int(at_s * 4e6), "nic_tx_bytes_total/eth0": int(at_s * 6e6),
        "nic_rx_errors_total/eth0": 0,
        "ib_rx_bytes_total/mlx5_0:1": moved, "ib_tx_bytes_total/mlx5_0:1": moved,
        "ib_state/mlx5_0:1": "ACTIVE LinkUp", "ib_up/mlx5_0:1": 1,
        "ib_xmit_wait_total/mlx5_0:1": int(at_s * 300), "ib_symbol_errors_total/mlx5_0:1": 0,
    }  # fmt: skip


def _senders(name: str, simulated: Simulated, began_wall_ns: int) -> list[RankSender]:
    return [
        RankSender(
            rank=rank, world_size=len(simulated.rows), groups=simulated.groups, job=name,
            node=f"{name.split('-')[0]}-node-{rank // PER_NODE}",
            clock_domain=simulated.clocks[rank],
            incarnation=f"{zlib.crc32(name.encode()):016x}{rank:016x}",
            anchor=(simulated.rows[0][0][START_COLUMN], began_wall_ns),
        )
        for rank in range(len(simulated.rows))
    ]  # fmt: skip


def hot_gpu(steps: int, began_wall_ns: int) -> Job:
    """Return 8 ranks on two nodes; rank 5 throttles from a third of the job on."""
    first = steps // 3
    fault = Fault(rank=SLOW_RANK, phase=Phase.BACKWARD, extra_ms=280, first=first)
    scenario = Scenario(
        data_parallel=8, steps=steps, seed=3, shared_clock=True, phase_ms=SECOND_OF_STEPS,
        transfer_ms=40, faults=(fault,),
    )  # fmt: skip
    simulated = simulate(scenario)
    name = "llm-7b"
    return Job(
        name=name, simulated=simulated, senders=_senders(name, simulated, began_wall_ns),
        sick_from_s=first * 1.0,
    )  # fmt: skip


def slow_link(steps: int, began_wall_ns: int) -> Job:
    """Return 4 ranks that send to each other; one link is slow, and there is a group of all."""
    traffic = [
        Traffic(group="pairs", ranks=(a, b), op=Op.SEND, sizes=(16 * MB,))
        for a in range(4) for b in range(4) if a != b
    ]  # fmt: skip
    all_ranks = tuple(range(4))
    for op, sizes in ((Op.ALL_REDUCE, (64 * MB, 4 * MB)), (Op.ALL_GATHER, (32 * MB, MB))):
        traffic.append(Traffic(group="dp", ranks=all_ranks, op=op, sizes=sizes))
    slow = Slowness(what="link", factor=3.0, where=(2, 1), first=steps // 3)
    net = Network(
        ranks=4, ranks_per_node=1, compute_ms=900.0, traffic=tuple(traffic), steps=steps,
        slow=(slow,), shared_clock=True, beta_ns_per_byte=0.4, seed=5,
    )  # fmt: skip
    simulated = simulate_network(net)
    name = "moe-16b"
    return Job(name=name, simulated=simulated, senders=_senders(name, simulated, began_wall_ns))


def healthy(steps: int, began_wall_ns: int) -> Job:
    """Return 4 ranks, all well."""
    scenario = Scenario(
        steps=steps, seed=9, shared_clock=True, phase_ms=SECOND_OF_STEPS, transfer_ms=60
    )
    simulated = simulate(scenario)
    name = "rlhf"
    return Job(name=name, simulated=simulated, senders=_senders(name, simulated, began_wall_ns))


def all_jobs(steps: int, began_wall_ns: int) -> list[Job]:
    """Return a job of each kind."""
    return [make(steps, began_wall_ns) for make in (hot_gpu, slow_link, healthy)]
