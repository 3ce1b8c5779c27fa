"""Everything of the catalogue, from a real collector that is fed with jobs in trouble."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from paceline import metrics
from paceline.vocabulary import Op
from paceline.wire.frames import Sample
from paceline_service.client import ProblemError
from paceline_service.export.telemetry_series import OF_HARDWARE
from tests.integration.collector.kit import (
    TOKEN,
    CollectorProcess,
    RankSender,
    bodies,
    is_ready,
    post_all,
    senders,
    wait_until,
)
from tests.simulator.job import Simulated
from tests.simulator.network import Network, Slowness, Traffic, simulate_network
from tests.simulator.samples import HEALTHY

MB = 1 << 20
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
LAST_STEPS = {"hot": 158, "linked": 108}
"""Of a job that runs on, the last step waits for the next one."""
Told = dict[str, dict[tuple[str, ...], float]]
ELSEWHERE = {
    metrics.RELIEF_STRIDE: "a collector that cannot keep up: test_pressure.py",
    metrics.RELIEF_CHANGES: "the same",
    metrics.INGEST_REFUSED: "the same",
    metrics.NOTIFICATIONS: "channels to send to: the tests of messages",
    **{
        metric: "a NATS server: tests/integration/scaleout"
        for metric in metrics.ALL
        if metric.name.startswith("paceline_bus_")
    },
}
"""Metrics that this collector has no samples of, and what it would take."""
SICK = {
    **HEALTHY,
    "sm_clock_hz": 1.1e9, "max_sm_clock_hz": 1.98e9, "temperature_c": 91, "mem_temperature_c": 97,
    "power_limit_w": 700.0, "gpu_mem_used_bytes": 70 << 30, "gpu_lost": 1,
    "throttle_reasons": ["hw_thermal_slowdown"], "throttle_hw_thermal_slowdown_ns_total": 5 * 10**9,
    "pcie_replays_total": 7, "nvlink_crc_flit_errors_total": 3, "nvlink_replay_errors_total": 1,
    "ecc_corrected_total": 2, "ecc_uncorrected_total": 1, "rank_run_queue_ns_total": 10**9,
    "cgroup_cpu_throttled_ns_total": 2 * 10**9, "cpu_user_ratio": 0.5, "cpu_steal_ratio": 0.1,
    "load_tasks": 12.0, "io_stall_us_total": 4_000_000, "memory_available_bytes": 1 << 40,
    "oom_kills_total": 1, "nic_rx_bytes_total/eth0": 100, "nic_tx_bytes_total/eth0": 200,
    "nic_rx_errors_total/eth0": 1, "nic_tx_dropped_total/eth0": 2, "ib_rx_bytes_total/mlx5_0:1": 9,
    "ib_up/mlx5_0:1": 1, "ib_symbol_errors_total/mlx5_0:1": 5, "ib_xmit_wait_total/mlx5_0:1": 6,
    "ib_ecn_marked_total/mlx5_0:1": 8, "a_name_that_nobody_knows": 1,
}  # fmt: skip


def slow_link() -> Simulated:
    """Every rank sends to every other; from rank 2 to rank 0 that takes longer from step 60 on."""
    traffic = tuple(
        Traffic(group="pairs", ranks=(a, b), op=Op.SEND, sizes=(16 * MB, MB))
        for a in range(4) for b in range(4) if a != b
    )  # fmt: skip
    slow = Slowness(what="link", factor=1.6, where=(2, 0), first=60)
    return simulate_network(
        Network(ranks=4, ranks_per_node=1, traffic=traffic, steps=110, slow=(slow,))
    )


def post(collector: CollectorProcess, simulated: Simulated, job: str) -> list[RankSender]:
    """Send a job that runs on, two ranks a node; rank 2 is sick."""
    ranks = senders(simulated, job=job)
    for sender in ranks:
        sender.node = f"{job}-node-{sender.rank // 2}"
        values: dict[str, Any] = dict(SICK if sender.rank == 2 else HEALTHY)
        newest_ns = max(row[7] for row in simulated.rows[sender.rank])
        sender.telemetry = [Sample(time_ns=newest_ns, values=values)]
    post_all(collector.client(), bodies(simulated, ranks, steps_per_frame=50, end=False))
    return ranks


def incidents_of(collector: CollectorProcess, job: str) -> list[dict[str, Any]]:
    return list(collector.client().get_json(f"/v1/jobs/{job}/incidents")["incidents"])


def text_of(collector: CollectorProcess) -> str:
    """Return a scrape as Prometheus makes it."""
    request = urllib.request.Request(f"{collector.url}/metrics", headers={
        "Accept": f"{OPENMETRICS}, text/plain;version=0.0.4;q=0.5",
        "Authorization": f"Bearer {TOKEN}",
    })  # fmt: skip
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith(OPENMETRICS)
        return str(answer.read().decode())


def read(text: str) -> Told:
    """Return every sample of a scrape; the library's parser is slow and strict."""
    told: Told = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            told[one.name][tuple(one.labels.values())] = one.value
    return told


def both_in(text: str, name: str) -> bool:
    """Whether a metric has samples of both jobs."""
    return all(f'\n{name}{{job="{job}"' in text for job in ("hot", "linked"))


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """A collector with a slow rank whose GPU is hot, and a slow link."""
    process = CollectorProcess(tmp_path_factory.mktemp("metrics") / "state").start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module")
def told(collector: CollectorProcess, slow_backward: Simulated) -> Told:
    client = collector.client()
    ranks = [*post(collector, slow_backward, "hot"), *post(collector, slow_link(), "linked")]
    wait_until(lambda: incidents_of(collector, "hot") and incidents_of(collector, "linked"), 30)
    client.post_json("/v1/silences", {"job": "linked", "for_s": 600})
    for wrong in (lambda: client.post_frames(b"no frame"), collector.client("wrong").jobs):
        with pytest.raises(ProblemError):
            wrong()

    def running() -> str:
        client.post_frames(b"".join(sender.frame([]) for sender in ranks))  # they are alive
        text = text_of(collector)
        whole = all(
            f'{metrics.JOB_LAST_STEP.name}{{job="{job}"}} {step}.0\n' in text
            for job, step in LAST_STEPS.items()
        )
        offenders = f"\n{metrics.NODE_OFFENCES.name}{{" in text  # read from the database
        ready = whole and offenders and both_in(text, metrics.RANK_SM_CLOCK_HERTZ.name)
        return text if ready else ""

    return read(wait_until(running, 30))


@pytest.mark.parametrize("metric", metrics.ALL, ids=lambda metric: metric.name)
def test_every_metric_is_exported_with_its_labels(told: Told, metric: metrics.Metric) -> None:
    rows = told.get(f"{metric.name}_count" if metric.kind == "histogram" else metric.name, {})
    assert bool(rows) != (metric in ELSEWHERE), ELSEWHERE.get(metric)
    assert all(len(labels) == len(metric.labels) for labels in rows)


def test_the_slow_rank_its_node_and_its_gpu_are_told(told: Told) -> None:
    assert told["paceline_job_verdict"]["hot", "straggler"] == 1
    ((_, rank, kind, cause),) = [k for k in told["paceline_rank_flagged"] if k[0] == "hot"]
    assert (rank, kind) == ("2", "straggler")
    assert told["paceline_node_flagged"]["hot", "hot-node-1", kind, cause] == 1
    assert told["paceline_job_finding_wasted_gpu_seconds_total"]["hot", kind, cause] > 1
    assert told["paceline_node_recoverable_ratio"]["hot", "hot-node-1"] > 0.1
    assert told["paceline_job_recoverable_ratio"][("hot",)] > 0.1
    wasted = told["paceline_rank_wasted_gpu_seconds_total"]
    assert told["paceline_job_wasted_gpu_seconds_total"][("hot",)] == pytest.approx(
        sum(value for (job, _), value in wasted.items() if job == "hot")
    )
    assert wasted["hot", "2"] == max(value for (job, _), value in wasted.items() if job == "hot")
    assert told["paceline_rank_sm_clock_hertz"]["hot", "2"] == 1.1e9
    assert told["paceline_rank_throttled"]["hot", "2", "hw_thermal_slowdown"] == 1
    assert told["paceline_rank_throttle_seconds_total"]["hot", "2", "hw_thermal_slowdown"] == 5
    assert told["paceline_rank_nvlink_errors_total"]["hot", "2"] == 4
    assert told["paceline_rank_ecc_errors_total"]["hot", "2", "uncorrected"] == 1
    assert told["paceline_node_stall_seconds_total"]["hot", "hot-node-1", "io"] == 4
    assert told["paceline_node_nic_errors_total"]["hot", "hot-node-1", "eth0"] == 3
    assert told["paceline_node_ib_errors_total"] == {
        (job, f"{job}-node-1", "mlx5_0:1", "symbol_errors"): 5 for job in ("hot", "linked")
    }
    assert told["paceline_node_offences"]["hot-node-1",] == 1


def test_prometheus_finds_nothing_wrong_with_the_text(collector: CollectorProcess) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    text = b"".join(collector.client().stream("/metrics"))
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.usefixtures("told")
def test_a_scrape_is_compressed_for_who_takes_that(collector: CollectorProcess) -> None:
    request = urllib.request.Request(f"{collector.url}/metrics", headers={
        "Accept-Encoding": "gzip",
        "Authorization": f"Bearer {TOKEN}",
    })  # fmt: skip
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        packed = answer.read()
    text = gzip.decompress(packed)
    assert b"\npaceline_job_world_size{" in text
    assert len(packed) < len(text) / 4


def test_the_slow_link_shows_in_the_transfers_and_is_silenced(told: Told) -> None:
    assert told["paceline_link_flagged"] == {("linked", "2", "0"): 1}
    assert told["paceline_collective_residual_ratio"]["linked", "pairs", "send"] > 1.4
    assert told["paceline_collective_alpha_seconds"]["linked", "pairs", "send"] > 0
    assert told["paceline_collective_beta_bytes_per_second"]["linked", "pairs", "send"] > 1e9
    assert told["paceline_job_finding"]["linked", "communication", "network"] == 1
    silenced = told["paceline_job_finding_silenced"]
    assert silenced == {("linked", "communication", "network"): 1}
    assert {job for job, *_ in told["paceline_rank_silenced"]} == {"linked"}


def test_after_a_restart_the_counters_of_jobs_go_on_where_they_were(
    collector: CollectorProcess, told: Told, slow_backward: Simulated
) -> None:
    collector.kill()
    collector.start()

    def rebuilt() -> str:
        text = text_of(collector) if is_ready(collector.client()) else ""
        return text if both_in(text, metrics.JOB_WORLD_SIZE.name) else ""

    seen = read(wait_until(rebuilt, 30))
    for metric in metrics.ALL:
        of_analysis = metric.labels[:1] == ("job",) and metric not in OF_HARDWARE
        if metric.kind == "counter" and of_analysis:
            before = told[metric.name]
            assert set(before) <= set(seen[metric.name]), metric.name
            for labels, value in before.items():
                assert seen[metric.name][labels] == pytest.approx(value, rel=0.01), labels
    assert seen["paceline_dropped_total"]["agent", "ring_overwritten"] == 0
