"""The stream of frames: made where there is none, its limits brought up to date."""

from __future__ import annotations

from dataclasses import replace

from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from paceline_service.bus.subjects import PARTITIONS, SUBJECTS

_PARTITIONS_KEY = "paceline_partitions"
_LIMITS = ("max_bytes", "max_age", "duplicate_window", "num_replicas")
STREAM_NOT_FOUND = 10059
_STREAM_NAME_IN_USE = 10058
_NO_JETSTREAM = frozenset({10039, 10076})
"""JetStream's error codes for: not for this account, not on this server."""


async def ensure_stream(js: JetStreamContext, name: str, limits: api.StreamConfig) -> str:
    """Make the stream, or bring its limits up to date; return what is wrong with it.

    Raises:
        nats.errors.Error: NATS does not answer, or refuses it.
    """
    wanted = replace(
        limits, name=name, subjects=[SUBJECTS],
        retention=api.RetentionPolicy.WORK_QUEUE, storage=api.StorageType.FILE,
        discard=api.DiscardPolicy.NEW, metadata={_PARTITIONS_KEY: str(PARTITIONS)},
    )  # fmt: skip
    try:
        present = (await js.stream_info(name)).config
    except NotFoundError:
        try:
            await js.add_stream(wanted)
        except APIError as error:
            if error.err_code != _STREAM_NAME_IN_USE:
                raise
            present = (await js.stream_info(name)).config
        else:
            return ""
    except APIError as error:
        nobody = isinstance(error, ServiceUnavailableError) and not error.err_code
        if nobody or error.err_code in _NO_JETSTREAM:
            return (
                f"no stream {name}: {error.description or error}; enable JetStream on the server, "
                "and for the account of these credentials"
            )
        raise
    there = (present.metadata or {}).get(_PARTITIONS_KEY, "unknown")
    if there != str(PARTITIONS) or present.retention != api.RetentionPolicy.WORK_QUEUE:
        return (
            f"stream {name} has {there} partitions and retention {present.retention}; "
            f"this version needs {PARTITIONS} and workqueue: give another "
            "PACELINE_SERVE_BUS_STREAM, or delete the stream once it is empty"
        )
    if any(getattr(present, one) != getattr(wanted, one) for one in _LIMITS):
        await js.update_stream(wanted)
    return ""
