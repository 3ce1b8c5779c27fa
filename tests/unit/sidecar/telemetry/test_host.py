from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paceline import telemetry as names
from paceline.sidecar.telemetry.cpus import Cpus
from paceline.sidecar.telemetry.host import Host
from paceline.sidecar.telemetry.infiniband import Ports
from paceline.sidecar.telemetry.network import Cards
from paceline.sidecar.telemetry.process import Process, clock_offset_ns, writer_pid
from paceline.telemetry import instance
from tests.fakes.trees import procfs, sysfs, write


def test_the_host_tells_pressure_memory_load_and_what_became_of_cpu_time(tmp_path: Path) -> None:
    host = Host(procfs(tmp_path))
    first = host.read()
    assert names.CPU_STEAL not in first, "a share needs two reads"
    assert first[names.STALL_MEMORY_FULL] == 333
    assert first[names.MEMORY_AVAILABLE] == 9000 * 1024
    assert first[names.OOM_KILLS] == 2
    assert first[names.LOAD] == 3.5
    procfs(tmp_path, stat="cpu  1050 0 510 8020 110 0 0 410 0 0")
    second = host.read()
    assert second[names.CPU_USER] == 0.5
    assert second[names.CPU_SYSTEM] == 0.1
    assert second[names.CPU_IOWAIT] == 0.1
    assert second[names.CPU_STEAL] == 0.1


@pytest.mark.parametrize(
    "text", ["", "cpu", "cpu a b c d e f g h", "\0\xff", "cpu -1 2 3 4 5 6 7 8"]
)
def test_garbage_in_files_is_left_out(tmp_path: Path, text: str) -> None:
    procfs(tmp_path, stat=text, loadavg=text, meminfo=text, vmstat=text, pressure_io=text)
    host = Host(tmp_path)
    host.read()
    values = host.read()
    assert names.CPU_STEAL not in values
    assert names.MEMORY not in values
    assert names.LOAD not in values
    assert names.STALL_IO not in values
    assert values[names.STALL_CPU] == 111


def test_a_host_without_anything_gives_nothing(tmp_path: Path) -> None:
    assert Host(tmp_path).read() == {}
    assert Cards(tmp_path).read() == {}
    assert Ports(tmp_path).read(slow=True) == {}
    assert Cpus(tmp_path).read() == {}


def test_this_machine_can_be_read() -> None:
    host = Host(Path("/proc"))
    host.read()
    assert host.read()[names.MEMORY] > 0
    Cards(Path("/sys")).read()
    Cpus(Path("/sys")).read()


def test_only_cards_with_a_device_are_told(tmp_path: Path) -> None:
    values = Cards(sysfs(tmp_path, cards=("eth0", "eth1"))).read()
    assert values[instance(names.NIC_RX_BYTES, "eth1")] == 1000
    assert values[instance(names.NIC_UP, "eth0")] == 1
    assert values[instance(names.NIC_SPEED, "eth0")] == 100_000_000_000
    assert not any(name.endswith("/lo") for name in values)


def test_a_card_that_goes_down_or_is_pulled_is_told_so(tmp_path: Path) -> None:
    cards = Cards(sysfs(tmp_path, cards=("eth0", "eth1")))
    write(tmp_path, {"class/net/eth0/operstate": "down", "class/net/eth0/speed": -1})
    values = cards.read()
    assert values[instance(names.NIC_UP, "eth0")] == 0
    assert instance(names.NIC_SPEED, "eth0") not in values
    shutil.rmtree(tmp_path / "class/net/eth0")
    values = cards.read()
    assert not any(name.endswith("/eth0") for name in values)
    assert values[instance(names.NIC_UP, "eth1")] == 1


def test_infiniband_data_is_in_bytes_and_errors_have_names(tmp_path: Path) -> None:
    values = Ports(sysfs(tmp_path)).read(slow=True)
    port = "mlx5_0:1"
    assert values[instance(names.IB_TX_BYTES, port)] == 1000
    assert values[instance("ib_link_downed_total", port)] == 1
    assert values[instance("ib_out_of_sequence_total", port)] == 9
    assert values[instance(names.IB_STATE, port)] == 1
    assert values[instance(names.IB_RATE, port)] == 400_000_000_000
    assert values[instance(names.IB_RATE_LOWERED, port)] == 0


def test_error_counters_are_read_less_often_than_traffic(tmp_path: Path) -> None:
    assert set(Ports(sysfs(tmp_path)).read(slow=False)) == {
        instance(names.IB_RX_BYTES, "mlx5_0:1"),
        instance(names.IB_TX_BYTES, "mlx5_0:1"),
    }


def test_a_port_that_fell_to_a_lower_rate_or_down_is_told(tmp_path: Path) -> None:
    ports = Ports(sysfs(tmp_path))
    ports.read(slow=True)
    base = "class/infiniband/mlx5_0/ports/1"
    write(tmp_path, {f"{base}/rate": "100 Gb/sec (4X EDR)", f"{base}/state": "1: DOWN",
                     f"{base}/phys_state": "2: Polling"})  # fmt: skip
    values = ports.read(slow=True)
    assert values[instance(names.IB_RATE_LOWERED, "mlx5_0:1")] == 1
    assert values[instance(names.IB_STATE, "mlx5_0:1")] == 0
    assert values[instance(names.IB_STATE_TEXT, "mlx5_0:1")] == "DOWN, Polling"


def test_cpu_clocks_and_throttling_are_summed_up(tmp_path: Path) -> None:
    assert Cpus(sysfs(tmp_path)).read() == {
        names.CPU_CLOCK_MIN: 2_000_000_000,
        names.CPU_CLOCK_MEAN: 2_500_000_000,
        names.CPU_CORE_THROTTLE: 3,
        names.CPU_PACKAGE_THROTTLE: 6,
    }


def test_a_cpu_limit_is_found_on_the_way_up_from_the_cgroup_of_the_rank(tmp_path: Path) -> None:
    proc = write(
        tmp_path / "proc",
        {
            "7/cgroup": "0::/pods/one/box",
            "7/schedstat": "100 200 3",
            "7/stat": "7 (a) b (c) S 1 2 3 4 5 6 7 8 99 10 11",
        },
    )
    write(
        tmp_path / "sys/fs/cgroup",
        {
            "pods/one/box/cpu.stat": "usage_usec 5\nnr_throttled 4\nthrottled_usec 70",
            "pods/one/box/cpu.max": "400000 100000",
            "pods/one/cpu.stat": "nr_throttled 1\nthrottled_usec 30",
            "pods/one/cpu.max": "max 100000",
            "cpu.stat": "usage_usec 5",
        },
    )
    assert Process(7, tmp_path / "sys", proc).read() == {
        names.RANK_ON_CPU: 100,
        names.RANK_RUN_QUEUE: 200,
        names.RANK_MAJOR_FAULTS: 99,
        names.CGROUP_PERIODS: 5,
        names.CGROUP_THROTTLED: 100_000,
        names.CGROUP_LIMIT: 4.0,
    }


def test_a_cpu_limit_of_cgroup_version_1_is_found(tmp_path: Path) -> None:
    proc = write(tmp_path / "proc", {"7/cgroup": "9:memory:/x\n3:cpu,cpuacct:/box\n0::/",
                                     "7/schedstat": "1 2 3"})  # fmt: skip
    write(
        tmp_path / "sys/fs/cgroup/cpu,cpuacct/box",
        {"cpu.stat": "nr_throttled 2\nthrottled_time 500", "cpu.cfs_quota_us": "50000",
         "cpu.cfs_period_us": "100000"},
    )  # fmt: skip
    values = Process(7, tmp_path / "sys", proc).read()
    assert values[names.CGROUP_THROTTLED] == 500
    assert values[names.CGROUP_LIMIT] == 0.5


@pytest.mark.parametrize("cgroup", ["", "0::/../other", "0::/none", "garbage", "1:name=systemd:/"])
def test_a_cgroup_that_cannot_be_seen_is_left_out(tmp_path: Path, cgroup: str) -> None:
    proc = write(tmp_path / "proc", {"7/cgroup": cgroup, "7/schedstat": "1 2 3"})
    assert names.CGROUP_THROTTLED not in Process(7, tmp_path / "sys", proc).read()


def test_a_real_process_tells_how_long_it_ran_and_nothing_once_it_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = Process(child.pid, Path("/sys"))
    assert process.read()[names.RANK_MAJOR_FAULTS] >= 0
    child.communicate(b"\n")
    assert process.read() == {}


def test_the_writer_of_a_ring_is_known_by_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    path.write_bytes(b"x")
    assert writer_pid(path) == 0
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX)\n"
        "print(1, flush=True); input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline()
    assert writer_pid(path) == child.pid
    child.communicate(b"\n")
    assert writer_pid(path) == 0
    assert writer_pid(tmp_path / "none") == 0


def test_the_offset_of_a_time_namespace_is_read(tmp_path: Path) -> None:
    write(tmp_path, {"7/timens_offsets": "monotonic  -5   250000000\nboottime 1 2",
                     "8/timens_offsets": "monotonic x y", "9/none": ""})  # fmt: skip
    assert clock_offset_ns(7, tmp_path) == -4_750_000_000
    assert clock_offset_ns(8, tmp_path) is None
    assert clock_offset_ns(9, tmp_path) is None
    assert clock_offset_ns(os.getpid()) in (0, None)
