"""What every channel has: a name, whom it is for, and how it sends one message."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import msgspec
import structlog

from paceline.errors import ConfigError
from paceline_service.notify.http import Answer, NotSentError, Outgoing, UnansweredError
from paceline_service.notify.message import Message
from paceline_service.notify.result import Result
from paceline_service.notify_settings import Severity

_log = structlog.get_logger("paceline.notify")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Which incidents a channel is told of."""

    min_severity: Severity
    jobs: Sequence[str] = ("*",)
    """Patterns of job names."""

    def covers(self, job: str) -> bool:
        """Whether incidents of ``job`` are told there."""
        return any(fnmatchcase(job, pattern) for pattern in self.jobs)


class Channel(ABC):
    """Sends messages to one receiver; ``send`` blocks, in one thread at a time."""

    kind: ClassVar[str]
    tells_past: ClassVar[bool] = True
    """Whether it is told of what was over before it could be told of."""
    refresh_s: ClassVar[float] = 0.0
    """What is open is told again after so long; 0: it is not."""

    def __init__(self, name: str, audience: Audience, http: Outgoing) -> None:
        self.name = name
        self.audience = audience
        self.http = http

    @property
    @abstractmethod
    def where(self) -> str:
        """The receiver, as logs and people may see it."""

    @abstractmethod
    def check(self) -> None:
        """Raise where the settings make no sense; nothing is sent.

        Raises:
            ConfigError: they do not.
        """

    def send(self, message: Message, thread: str) -> Result:
        """Deliver a message, or say why not.

        Args:
            message: what to say.
            thread: what the receiver called an earlier message about the incident.
        """
        try:
            return self.deliver(message, thread)
        except NotSentError as error:
            return Result(verdict="again", reason=str(error))
        except UnansweredError as error:
            return Result(verdict="again", reason=str(error), uncertain=True)
        except ConfigError as error:  # somebody may mend a file meanwhile
            return Result(verdict="again", reason=str(error))
        except Exception as error:  # of our own: one message must not keep the others
            _log.error("a message cannot be sent", channel=self.name, exc_info=error)
            reason = f"an error of the collector: {type(error).__name__}; its log has the details"
            return Result(verdict="again", reason=reason, uncertain=True)

    @abstractmethod
    def deliver(self, message: Message, thread: str) -> Result:
        """Deliver a message; errors of the transport are raised."""

    def post(self, url: str, content: Any, headers: Mapping[str, str] = {}) -> Answer:
        """Post JSON."""
        body = msgspec.json.encode(content)
        return self.http.send("POST", url, body, {"Content-Type": "application/json", **headers})
