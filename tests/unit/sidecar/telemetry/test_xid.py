from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from paceline import telemetry as names
from paceline.sidecar.telemetry.xid import KernelLog, parse_message, parse_record
from tests.fakes.captures import shared_data

S = 1_000_000_000


@pytest.mark.parametrize(
    ("message", "number", "pci", "rest"),
    [
        ("NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the "
         "bus.", 79, "0000:65:00", {names.XID_TEXT: "GPU has fallen off the bus."}),
        ("NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s",
         119, "0000:9b:00", {names.XID_PID: 2024380, names.XID_PROCESS: "nvidia-smi",
                             names.XID_TEXT: "Timeout after 6s"}),
        ("NVRM: Xid (PCI:0000:03:00): 14, Channel 00000001", 14, "0000:03:00",
         {names.XID_TEXT: "Channel 00000001"}),
        ("NVRM: Xid (0000:03:00): 6, PE0001", 6, "0000:03:00", {names.XID_TEXT: "PE0001"}),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 137, pid=7, name=a b, x", 137, "0000:01:00",
         {names.XID_PID: 7, names.XID_PROCESS: "a b", names.XID_TEXT: "x"}),
        ("[  9.1] NVRM: Xid (PCI:0001:00:00): 48", 48, "0001:00:00", {}),
    ],
)  # fmt: skip
def test_the_forms_of_an_xid_are_understood(
    message: str, number: int, pci: str, rest: dict[str, object]
) -> None:
    assert parse_message(message) == (pci, {names.XID: number, names.XID_PCI: pci, **rest})


def test_an_sxid_is_of_a_switch() -> None:
    message = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC"
    assert parse_message(message) == (
        "0000:c1:00",
        {
            names.SXID: 28006,
            names.SXID_PCI: "0000:c1:00",
            names.SXID_TEXT: "Non-fatal, Link 46 MC",
        },
    )


@pytest.mark.parametrize(
    "line",
    ["", ";", "6,1,x,-;NVRM: Xid (PCI:0000:65:00): 79", "NVRM: Xid (PCI:0000:65:00): 79", "6,1,2,-",
     "6,1,2,-;Xid (", "6,1,2,-;NVRM: Xid (PCI:0000:65:00): none", "6,1,2,-;NVRM: Xid (): "],
)  # fmt: skip
def test_other_lines_are_no_event(line: str) -> None:
    assert parse_record(line) is None


def test_a_pci_address_that_is_none_is_empty_and_the_event_stays() -> None:
    event = parse_record("6,1,2,-;NVRM: Xid (PCI:garbage): 79, x")
    assert event is not None
    assert event.pci == ""
    assert event.values[names.XID] == 79


def test_xids_of_a_real_kernel_log_are_all_found() -> None:
    text = shared_data("gpu_telemetry/gpud/dmesg-with-xid-119.log").read_text()
    messages = [line.partition("] ")[2] for line in text.splitlines()]
    found = [got for message in messages if (got := parse_message(message)) is not None]
    assert len(found) == text.count("Xid (") > 0
    assert {pci for pci, _ in found} == {"0000:9b:00"}
    assert {values[names.XID] for _, values in found} == {119}
    assert {values[names.XID_PROCESS] for _, values in found} == {
        "nvidia-smi",
        "gpud",
        "cache_mgr_main",
    }


def record(time_us: int, number: int = 79) -> bytes:
    return b"4,1,%d,-;NVRM: Xid (PCI:0000:65:00): %d, x\n SUBSYSTEM=pci\n" % (time_us, number)


def test_only_new_records_are_told_and_old_history_is_not(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    now_ns = 5000 * S
    path.write_bytes(record(1, 1) + record(4_990_000_000, 2))
    log = KernelLog(path, now_ns)
    [event] = log.read(now_ns)
    assert event.values[names.XID] == 2
    assert event.time_ns == 4990 * S
    with open(path, "ab") as more:
        more.write(record(5_000_500_000, 3))
    [event] = log.read(now_ns + S)
    assert event.values[names.XID] == 3
    assert event.time_ns == now_ns + S // 2
    assert log.read(now_ns + 2 * S) == []


def test_the_time_of_an_event_is_never_outside_the_two_reads_around_it(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_bytes(b"")
    log = KernelLog(path, 100 * S)
    log.read(100 * S)
    with open(path, "ab") as more:  # the kernel's clock is behind, then ahead
        more.write(record(99_000_000) + record(200_000_000))
    assert [event.time_ns for event in log.read(101 * S)] == [100 * S, 101 * S]


def test_a_record_that_comes_in_two_pieces_is_one_event() -> None:
    read_fd, write_fd = os.pipe()
    log = KernelLog(Path(f"/proc/self/fd/{read_fd}"), S)
    whole = record(1_000_000)
    os.write(write_fd, whole[:30])
    assert log.read(2 * S) == []
    os.write(write_fd, whole[30:])
    assert len(log.read(3 * S)) == 1
    log.close()
    os.close(read_fd)
    os.close(write_fd)


def test_a_log_that_may_not_be_read_is_said_once_and_gives_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kmsg"
    path.mkdir()  # not even root reads a directory as a file
    with caplog.at_level(logging.WARNING, logger="paceline.sidecar"):
        log = KernelLog(path, S)
        assert [log.read(number * S) for number in range(5)] == [[]] * 5
    assert len(caplog.records) == 1
    assert log.problem


def test_no_kernel_log_at_all_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="paceline.sidecar"):
        log = KernelLog(tmp_path / "none", S)
        assert log.read(S) == []
    assert not caplog.records
    assert log.problem


def test_garbage_does_not_grow_and_does_not_hide_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_bytes(bytes(range(256)) * 1000 + b"\n" + record(1_000_000))
    assert len(KernelLog(path, 2 * S).read(2 * S)) == 1
