"""A synchronous, typed client of the collector; the standard library only (docs/api.md)."""

from paceline_service.client import types
from paceline_service.client.client import Client
from paceline_service.client.connection import DEFAULT_URL
from paceline_service.client.events import Event
from paceline_service.client.problem import ProblemError
from paceline_service.client.token import find_token
from paceline_service.client.types import FRAMES_CONTENT_TYPE, FramesAnswer

__all__ = [
    "DEFAULT_URL",
    "FRAMES_CONTENT_TYPE",
    "Client",
    "Event",
    "FramesAnswer",
    "ProblemError",
    "find_token",
    "types",
]
