"""What the device timers need of CUDA, and nothing more: the one place a fake device plugs in."""

from __future__ import annotations

from typing import Any, Protocol


class DeviceApi(Protocol):
    """Events on the streams of a device. No call waits for the device.

    A call that fails raises; a ``RuntimeError`` out of ``elapsed_ms`` on events that are not
    complete is torch's own habit, and no caller lets it come to that.
    """

    def is_capturing(self) -> bool:
        """Whether the current stream is being captured into a CUDA graph."""

    def new_event(self) -> Any:
        """Make an event that keeps the time; the device hears of it when it is first recorded."""

    def record(self, event: Any, device: int) -> int:
        """Record ``event`` on the stream of ``device`` that is current here; returns its handle."""

    def record_aside(self, event: Any, device: int) -> None:
        """Record ``event`` on a stream that nobody else puts work on."""

    def query(self, event: Any) -> bool:
        """Whether the device has come to ``event``."""

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Return the device's time between two complete events; negative if ``end`` is earlier."""

    def enter_polling_thread(self, device: int) -> bool:
        """Make this thread one of ``device``, whose queries leave alone what others capture.

        Returns:
            False where that cannot be had: then nobody may query from here.
        """

    def facts(self, device: int) -> dict[str, str]:
        """Return what names the device and its software."""
