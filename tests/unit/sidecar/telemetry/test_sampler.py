from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import pytest

from paceline import telemetry as names
from paceline.clock import boot_id, mono_ns, time_namespace
from paceline.ring import RingIdentity, new_identity
from paceline.sidecar.telemetry import sampler
from paceline.sidecar.telemetry.buffer import TelemetryBuffer
from paceline.sidecar.telemetry.host_source import Roots
from paceline.sidecar.telemetry.reading import Reading
from paceline.sidecar.telemetry.sampler import Telemetry
from paceline.sidecar.telemetry.worker import MAX_WAITING, Worker
from paceline.telemetry import Scope
from tests.fakes.loading import a_gpu, fake_nvml
from tests.fakes.trees import procfs, sysfs


@dataclass
class Ring:
    """What telemetry sees of a ring that is followed."""

    identity: RingIdentity
    path: Path
    info: dict[str, str] = field(default_factory=dict)
    telemetry: TelemetryBuffer = field(default_factory=TelemetryBuffer)

    def seen(self) -> dict[str, object]:
        """Everything that came, the newest of each name."""
        return {n: v for sample in self.telemetry.give() for n, v in sample.values.items()}


def ring(path: Path, rank: int = 0, job: str = "a", **changed: object) -> Ring:
    identity = new_identity(
        job=job, run_id="r", attempt=0, rank=rank, local_rank=rank, world_size=8, node="n",
        boot_id=boot_id(), time_namespace=time_namespace(), producer="hooks",
    )  # fmt: skip
    return Ring(replace(identity, **changed), path / f"{job}-{rank}-{changed.get('producer')}")


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    (tmp_path / "kmsg").write_bytes(b"")
    return Roots(
        sysfs=sysfs(tmp_path / "sys"), procfs=procfs(tmp_path / "proc"), kmsg=tmp_path / "kmsg"
    )


Start = Callable[..., Telemetry]


@pytest.fixture
def start(roots: Roots) -> Iterator[Start]:
    begun = []

    def begin(module: ModuleType | None, interval_s: float = 0.1) -> Telemetry:
        begun.append(Telemetry(roots, interval_s, lambda: module))
        return begun[-1]

    yield begin
    for telemetry in begun:
        telemetry.close()


def collect_until(
    telemetry: Telemetry, rings: list[Ring], condition: Callable[[], bool], timeout_s: float = 40
) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, [ring.seen() for ring in rings]
        telemetry.collect(rings, mono_ns())
        time.sleep(0.02)


def test_each_rank_gets_its_gpu_and_the_lowest_local_rank_the_host(
    start: Start, tmp_path: Path
) -> None:
    rings = [ring(tmp_path, rank) for rank in (1, 0, 2)]
    telemetry = start(fake_nvml(*map(a_gpu, range(4))))
    collect_until(
        telemetry, rings, lambda: all(names.SM_CLOCK in r.seen() for r in rings)
        and names.CPU_USER not in rings[1].seen() and names.LOAD in rings[1].seen()
    )  # fmt: skip
    for one in rings:
        seen = one.seen()
        assert seen[names.GPU_INDEX] == one.identity.local_rank
        assert seen[names.GPU_BY] == "local_rank"
        assert (names.LOAD in seen) == (one.identity.rank == 0)


def test_a_uuid_that_the_rank_told_decides_over_its_local_rank(
    start: Start, tmp_path: Path
) -> None:
    first, second = rings = [ring(tmp_path, 0), ring(tmp_path, 1)]
    first.info["gpu_uuid"] = a_gpu(3)["uuid"].removeprefix("GPU-").upper()
    second.info["gpu_uuid"] = "GPU-of-another-node"
    telemetry = start(fake_nvml(*map(a_gpu, range(4))))
    collect_until(telemetry, rings, lambda: names.GPU_INDEX in first.seen())
    assert first.seen()[names.GPU_INDEX] == 3
    assert first.seen()[names.GPU_BY] == "uuid"
    assert names.GPU_INDEX not in second.seen()


def test_a_rank_on_a_mig_instance_gets_its_memory_and_the_clocks_of_the_whole(
    start: Start, tmp_path: Path
) -> None:
    instances = [
        {"uuid": "MIG-a", "memory_bytes": [1, 10]},
        {"uuid": "MIG-b", "memory_bytes": [2, 9]},
    ]
    known, unknown = rings = [ring(tmp_path, 0, "known"), ring(tmp_path, 0, "unknown")]
    known.info["gpu_uuid"] = "MIG-b"
    telemetry = start(fake_nvml(a_gpu(0, mig=1, mig_instances=instances)))
    collect_until(telemetry, rings, lambda: names.MIG_UUID in known.seen())
    seen = known.seen()
    assert seen[names.MIG_UUID] == "MIG-b"
    assert seen[names.MEM_TOTAL] == 9
    assert seen[names.SM_CLOCK]
    assert seen[names.MIG] == 1
    assert names.SM_CLOCK not in unknown.seen(), "its local rank does not tell which instance"


def test_each_job_of_a_node_gets_the_host_and_another_rank_takes_over(
    start: Start, tmp_path: Path
) -> None:
    low, high, other = rings = [ring(tmp_path, 4), ring(tmp_path, 5), ring(tmp_path, 7, "b")]
    telemetry = start(None)
    collect_until(telemetry, rings, lambda: names.LOAD in low.seen() and names.LOAD in other.seen())
    assert names.LOAD not in high.seen()
    collect_until(telemetry, [high, other], lambda: names.LOAD in high.seen())
    assert names.NIC_UP + "/eth0" in high.seen(), "facts are told anew"


def test_the_ring_of_the_plugin_gets_nothing_while_the_hooks_have_one(
    start: Start, tmp_path: Path
) -> None:
    hooks, plugin = rings = [ring(tmp_path), ring(tmp_path, producer="nccl")]
    telemetry = start(fake_nvml(a_gpu()))
    collect_until(telemetry, rings, lambda: names.SM_CLOCK in hooks.seen())
    assert not plugin.seen()


def test_times_are_on_the_clock_of_the_ring_or_the_sample_is_counted_as_dropped(
    start: Start, tmp_path: Path
) -> None:
    here = ring(tmp_path, 0)
    other_boot = ring(tmp_path, 1, boot_id="another")
    other_clock = ring(tmp_path, 2, time_namespace=1)  # of a process that cannot be seen
    rings = [here, other_boot, other_clock]
    before_ns = mono_ns()
    telemetry = start(fake_nvml(*map(a_gpu, range(3))))
    collect_until(telemetry, rings, lambda: all(r.telemetry.dropped for r in rings[1:]))
    assert all(before_ns <= sample.time_ns <= mono_ns() for sample in here.telemetry.give())
    assert not other_boot.seen()
    assert not other_clock.seen()


def test_an_xid_goes_to_the_rank_of_its_gpu_and_one_of_nobody_to_the_host_values(
    start: Start, tmp_path: Path, roots: Roots
) -> None:
    rings = [ring(tmp_path, 0), ring(tmp_path, 1)]
    telemetry = start(fake_nvml(a_gpu(0), a_gpu(1)))
    collect_until(telemetry, rings, lambda: all(names.SM_CLOCK in r.seen() for r in rings))
    now_us = mono_ns() // 1000
    with open(roots.kmsg, "ab") as kmsg:
        kmsg.write(b"4,1,%d,-;NVRM: Xid (PCI:0000:11:00): 79, gone\n" % now_us)
        kmsg.write(b"4,1,%d,-;NVRM: Xid (PCI:0000:77:00): 13, other\n" % now_us)
    collect_until(telemetry, rings, lambda: all(names.XID in r.seen() for r in rings))
    late = ring(tmp_path, 2)
    collect_until(telemetry, [*rings, late], lambda: bool(late.telemetry.give()) or True)
    assert [r.seen()[names.XID] for r in rings] == [13, 79]
    for one in rings:
        assert sum(names.XID in sample.values for sample in one.telemetry.give()) == 1


def test_an_xid_shortly_before_the_ring_was_found_is_still_told(
    start: Start, tmp_path: Path, roots: Roots
) -> None:
    roots.kmsg.write_bytes(
        b"4,1,%d,-;NVRM: Xid (PCI:0000:10:00): 79, gone\n" % (mono_ns() // 1000 - 1_000_000)
    )
    one = ring(tmp_path, 0)
    collect_until(start(fake_nvml(a_gpu(0))), [one], lambda: names.XID in one.seen())


def test_without_an_nvml_an_xid_finds_the_rank_that_told_its_gpu(
    start: Start, tmp_path: Path, roots: Roots
) -> None:
    first, second = rings = [ring(tmp_path, 0), ring(tmp_path, 1)]
    second.info["gpu_pci"] = "00000000:65:00.0"
    roots.kmsg.write_bytes(b"4,1,%d,-;NVRM: Xid (PCI:0000:65:00): 79, gone\n" % (mono_ns() // 1000))
    collect_until(start(None), rings, lambda: names.XID in second.seen())
    assert names.XID not in first.seen()


def test_a_ring_that_breaks_something_costs_samples_and_never_a_round(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = ring(tmp_path)
    del broken.info
    telemetry = start(fake_nvml(a_gpu()))
    deadline_s = time.monotonic() + 10
    while telemetry.failures < 3:
        telemetry.collect([broken], mono_ns())
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    assert len(caplog.records) == 1


def test_a_gpu_that_is_lost_in_the_middle_is_told_and_the_others_go_on(
    start: Start, tmp_path: Path
) -> None:
    module = fake_nvml(a_gpu(0), a_gpu(1))
    rings = [ring(tmp_path, 0), ring(tmp_path, 1)]
    telemetry = start(module)
    collect_until(telemetry, rings, lambda: names.SM_CLOCK in rings[1].seen())
    module.state["gpus"][1]["error"] = 15
    collect_until(telemetry, rings, lambda: names.GPU_LOST in rings[1].seen())
    count = len(rings[0].telemetry.give())
    collect_until(telemetry, rings, lambda: len(rings[0].telemetry.give()) > count + 2)
    assert names.GPU_LOST not in rings[0].seen()


def test_a_call_that_never_returns_holds_up_nothing_and_is_told(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "STUCK_NS", 200_000_000)
    monkeypatch.setattr(sampler, "_TELL_STUCK_NS", 50_000_000)
    module, blocked = fake_nvml(a_gpu(0), a_gpu(1)), threading.Event()
    free = threading.Event()

    def before(name: str) -> None:
        if name == "nvmlDeviceGetPowerUsage" and blocked.is_set():
            free.wait(30)

    module.before = before
    rings = [ring(tmp_path, 0), ring(tmp_path, 1)]
    telemetry = start(module)
    collect_until(telemetry, rings, lambda: names.SM_CLOCK in rings[1].seen())
    blocked.set()
    collect_until(telemetry, rings, lambda: names.NVML_STUCK in rings[0].seen())
    assert rings[0].seen()[names.NVML_STUCK] >= 0.2
    assert names.NVML_STUCK not in rings[1].seen(), "only the GPU that was asked"
    began_s = time.monotonic()
    telemetry.collect(rings, mono_ns())
    telemetry.close()
    assert time.monotonic() - began_s < 20  # the call hangs for 30
    free.set()


def test_nothing_runs_without_rings_or_with_an_interval_of_0(start: Start, tmp_path: Path) -> None:
    module = fake_nvml(a_gpu())
    threads = threading.active_count()
    idle, off = start(module), start(module, 0.0)
    for _ in range(3):
        idle.collect([], mono_ns())
        off.collect([ring(tmp_path)], mono_ns())
    assert threading.active_count() == threads
    assert not module.calls


def test_the_pace_can_be_changed_and_stopped_while_running(start: Start, tmp_path: Path) -> None:
    one = ring(tmp_path)
    telemetry = start(fake_nvml(a_gpu()), 60.0)
    telemetry.collect([one], mono_ns())
    telemetry.set_interval_s(0.001)
    assert telemetry.interval_s == 0.1, "no faster than that"
    collect_until(telemetry, [one], lambda: len(one.telemetry.give()) > 6)
    telemetry.set_interval_s(0)
    telemetry.collect([one], mono_ns())
    time.sleep(0.3)
    telemetry.collect([one], mono_ns())
    count = len(one.telemetry.give())
    time.sleep(0.3)
    telemetry.collect([one], mono_ns())
    assert len(one.telemetry.give()) == count
    telemetry.set_interval_s(1e9)
    assert telemetry.interval_s == 60
    telemetry.set_interval_s(float("nan"))
    assert telemetry.interval_s == 0


def test_a_source_that_fails_is_counted_and_tried_again() -> None:
    worker = Worker("bad", lambda now_ns: [][now_ns], 0.05)
    worker.start()
    time.sleep(0.3)
    assert worker.stop()
    assert worker.failures > 2


def test_readings_that_nobody_takes_are_bounded_and_counted() -> None:
    many = [Reading(1, Scope.NODE, {names.LOAD: 1.0})] * (MAX_WAITING // 2)
    worker = Worker("many", lambda now_ns: list(many), 0.05)
    worker.start()
    time.sleep(0.5)
    assert worker.stop()
    assert len(worker.take()) == MAX_WAITING
    assert worker.lost >= MAX_WAITING // 2
