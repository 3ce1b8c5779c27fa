"""Lines of the log: one event each with its fields, as text or as JSON, and never a token."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.typing import Processor

_SECRET = frozenset({"token", "password", "secret", "authorization", "cookie"})


def configure_logging(level: str, form: str = "text") -> None:
    """Log to stderr.

    Args:
        level: debug, info, warning or error.
        form: ``text``, or ``json`` with one object a line.
    """
    number = getattr(logging, level.upper(), logging.INFO)
    last: Any = structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"])
    if form == "json":
        last = structlog.processors.JSONRenderer(default=str)
    begin: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    end = [structlog.processors.format_exc_info, hide_secrets, last]
    structlog.configure(
        processors=[*begin, *end],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    libraries = logging.StreamHandler(sys.stderr)
    meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=begin, processors=[meta, *end])
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[libraries])
    # It warns of each request that is no HTTP: anybody could fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def hide_secrets(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replace the values of fields whose names say that they are secret."""
    for name in event.keys() & _SECRET:
        event[name] = "***"
    return event
