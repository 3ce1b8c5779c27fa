"""Network cards: counters and the state of their links."""

from __future__ import annotations

from pathlib import Path

from paceline import telemetry as names
from paceline.sidecar.telemetry.files import names_in, read_int, read_text
from paceline.telemetry import Values, instance

MAX_CARDS = 32
_STATISTICS = {
    "rx_bytes": names.NIC_RX_BYTES,
    "tx_bytes": names.NIC_TX_BYTES,
    "rx_errors": names.NIC_RX_ERRORS,
    "tx_errors": names.NIC_TX_ERRORS,
    "rx_dropped": names.NIC_RX_DROPPED,
    "tx_dropped": names.NIC_TX_DROPPED,
}
_MAX_MBITS = 10_000_000


class Cards:
    """Reads ``sysfs/class/net``: cards with a device behind them, not bridges and tunnels."""

    def __init__(self, sysfs: Path) -> None:
        self._directory = sysfs / "class/net"

    def read(self) -> Values:
        """Return what can be known now; a card that was pulled is simply absent."""
        values: Values = {}
        cards = [name for name in names_in(self._directory) if self._is_physical(name)]
        for card in cards[:MAX_CARDS]:
            directory = self._directory / card
            for file, name in _STATISTICS.items():
                if (count := read_int(directory / "statistics" / file)) is not None:
                    values[instance(name, card)] = count
            if (changes := read_int(directory / "carrier_changes")) is not None:
                values[instance(names.NIC_CARRIER_CHANGES, card)] = changes
            if state := read_text(directory / "operstate", 64).strip():
                values[instance(names.NIC_UP, card)] = int(state == "up")
            # The file cannot be read while the link is down, or says -1 or 2^32-1.
            mbits = read_int(directory / "speed")
            if mbits is not None and 0 < mbits <= _MAX_MBITS:
                values[instance(names.NIC_SPEED, card)] = mbits * 1_000_000
        return values

    def _is_physical(self, name: str) -> bool:
        return (self._directory / name / "device").exists()
