"""InfiniBand and RoCE ports: counters, state and rate."""

from __future__ import annotations

from pathlib import Path

from paceline import telemetry as names
from paceline.sidecar.telemetry.files import names_in, read_int, read_text
from paceline.telemetry import Values, instance

MAX_PORTS = 32
_WORD_BYTES = 4
"""The kernel counts port data in words, as the specification does."""
_DATA = {"port_rcv_data": names.IB_RX_BYTES, "port_xmit_data": names.IB_TX_BYTES}


class Ports:
    """Reads ``sysfs/class/infiniband``."""

    def __init__(self, sysfs: Path) -> None:
        self._directory = sysfs / "class/infiniband"
        self._best_rate: dict[str, int] = {}

    def read(self, *, slow: bool) -> Values:
        """Return what can be known now.

        Args:
            slow: also what the card has to be asked for: error counters, state and rate.
        """
        values: Values = {}
        for port, directory in self._ports()[:MAX_PORTS]:
            for file, name in _DATA.items():
                if (words := read_int(directory / "counters" / file)) is not None:
                    values[instance(name, port)] = words * _WORD_BYTES
            if slow:
                values |= self._errors(port, directory)
                values |= self._link(port, directory)
        return values

    def _ports(self) -> list[tuple[str, Path]]:
        found = []
        for device in names_in(self._directory):
            ports = self._directory / device / "ports"
            found += [(f"{device}:{port}", ports / port) for port in names_in(ports)]
        return found

    def _errors(self, port: str, directory: Path) -> Values:
        values: Values = {}
        for group, table in (
            ("counters", names.IB_COUNTERS),
            ("hw_counters", names.IB_HW_COUNTERS),
        ):
            for file, name in table.items():
                if (count := read_int(directory / group / file)) is not None:
                    values[instance(name, port)] = count
        return values

    def _link(self, port: str, directory: Path) -> Values:
        values: Values = {}
        # "4: ACTIVE" and "5: LinkUp"
        state = read_text(directory / "state", 64).strip()
        physical = read_text(directory / "phys_state", 64).strip()
        if state:
            words = [text.rpartition(":")[2].strip() for text in (state, physical) if text]
            up = words[0] == "ACTIVE" and words[1:] in ([], ["LinkUp"])
            values[instance(names.IB_STATE, port)] = int(up)
            values[instance(names.IB_STATE_TEXT, port)] = ", ".join(words)
        if rate := _rate_bits_per_s(read_text(directory / "rate", 64)):
            best = self._best_rate[port] = max(self._best_rate.get(port, 0), rate)
            values[instance(names.IB_RATE, port)] = rate
            values[instance(names.IB_RATE_LOWERED, port)] = int(rate < best)
        return values


def _rate_bits_per_s(text: str) -> int:
    """Return the rate in ``400 Gb/sec (4X NDR)``, 0 where there is none."""
    number, _, unit = text.strip().partition(" ")
    try:
        rate = float(number)
    except ValueError:
        return 0
    return int(rate * 1e9) if unit.startswith("Gb/sec") and 0 < rate < 1e5 else 0
