"""Paceline: names the rank that slows a distributed training job, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.hooks.handle import Handle

__version__ = "0.1.0"
__all__ = ["__version__", "init"]


def init(job: str | None = None) -> Handle:
    """Instrument this process; call it once, before or after ``init_process_group``.

    Args:
        job: name of the job; the default is ``PACELINE_JOB``, then the launcher's id.

    Returns:
        A handle with ``close()``, ``step()`` and ``phase(name)``, all optional. It never
        raises: where nothing can be captured its methods do nothing.
    """
    from paceline.hooks.handle import start

    return start(job=job)
