"""What a source of telemetry gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from paceline.telemetry import Scope, Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, as far as it is needed to find the rank that uses it."""

    index: int
    uuid: str
    pci: str
    """``domain:bus:device`` in lower case, as ``pci_address`` gives it."""
    mig_uuids: tuple[str, ...] = ()

    def is_called(self, uuid: str) -> bool:
        """Whether ``uuid`` is its own or that of an instance of it."""
        return plain_uuid(uuid) in {plain_uuid(one) for one in (self.uuid, *self.mig_uuids)}


class Reading(NamedTuple):
    """Values of one moment, on this process's monotonic clock."""

    time_ns: int
    scope: Scope
    values: Values
    gpu: Gpu | None = None
    """Of which GPU; None of the scope GPU: no such GPU is known here."""
    incarnation: str = ""
    """Of the scope PROCESS: of which ring's writer."""


def plain_uuid(uuid: str) -> str:
    """Return a UUID without its kind, so that two ways to write it are equal."""
    text = uuid.strip().lower()
    for prefix in ("gpu-", "mig-"):
        text = text.removeprefix(prefix)
    return text


def pci_address(text: str) -> str:
    """Return ``domain:bus:device`` of any of the ways to write a PCI address.

    NVML writes eight digits of domain and a function behind the device, the kernel four and
    sometimes none: both end up alike.
    """
    parts = text.strip().lower().removeprefix("pci:").split(".")[0].split(":")
    if len(parts) == 2:
        parts = ["0", *parts]
    try:
        domain, bus, device = (int(part, 16) for part in parts)
    except ValueError:
        return ""
    return f"{domain:04x}:{bus:02x}:{device:02x}"
