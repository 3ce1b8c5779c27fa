"""Trees of files that look like sysfs and procfs."""

from __future__ import annotations

from pathlib import Path


def write(root: Path, files: dict[str, object]) -> Path:
    """Write ``files`` (by path below ``root``) and return ``root``."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def procfs(root: Path, **changed: str) -> Path:
    """Make a procfs of a host; ``changed`` replaces files, ``_`` for ``/`` in their names."""
    files: dict[str, object] = {
        "stat": "cpu  1000 0 500 8000 100 0 0 400 0 0\ncpu0 1000 0 500 8000 100 0 0 400 0 0",
        "loadavg": "3.50 2.00 1.00 2/300 12345",
        "meminfo": "MemTotal:       16000 kB\nMemFree: 100 kB\nMemAvailable:    9000 kB",
        "vmstat": "nr_free_pages 12\npswpin 3\npswpout 4\npgmajfault 9\noom_kill 2",
        "pressure/cpu": "some avg10=1.00 avg60=0 avg300=0 total=111\nfull avg10=0 total=0",
        "pressure/memory": "some avg10=0 total=222\nfull avg10=0 total=333",
        "pressure/io": "some avg10=0 total=444\nfull avg10=0 total=555",
    }
    files |= {name.replace("_", "/"): content for name, content in changed.items()}
    return write(root, files)


def sysfs(root: Path, *, cards: tuple[str, ...] = ("eth0",), ports: int = 1) -> Path:
    """Make a sysfs with network cards, InfiniBand ports, and two CPUs of one package."""
    files: dict[str, object] = {"class/net/lo/statistics/rx_bytes": 5}
    for card in cards:
        base = f"class/net/{card}"
        files |= {
            f"{base}/device/vendor": "0x15b3",
            f"{base}/operstate": "up",
            f"{base}/speed": 100000,
            f"{base}/carrier_changes": 2,
        }
        for name, count in (("rx_bytes", 1000), ("tx_bytes", 2000), ("rx_errors", 1),
                            ("tx_errors", 0), ("rx_dropped", 3), ("tx_dropped", 0)):  # fmt: skip
            files[f"{base}/statistics/{name}"] = count
    for number in range(ports):
        base = f"class/infiniband/mlx5_{number}/ports/1"
        files |= {
            f"{base}/counters/port_xmit_data": 250,
            f"{base}/counters/port_rcv_data": 500,
            f"{base}/counters/port_xmit_wait": 7,
            f"{base}/counters/symbol_error": 0,
            f"{base}/counters/link_downed": 1,
            f"{base}/hw_counters/out_of_sequence": 9,
            f"{base}/hw_counters/local_ack_timeout_err": 4,
            f"{base}/state": "4: ACTIVE",
            f"{base}/phys_state": "5: LinkUp",
            f"{base}/rate": "400 Gb/sec (4X NDR)",
        }
    for cpu, mhz in ((0, 2000), (1, 3000)):
        base = f"devices/system/cpu/cpu{cpu}"
        files |= {
            f"{base}/cpufreq/scaling_cur_freq": mhz * 1000,
            f"{base}/thermal_throttle/core_throttle_count": cpu + 1,
            f"{base}/thermal_throttle/package_throttle_count": 6,
            f"{base}/topology/physical_package_id": 0,
        }
    return write(root, files)
