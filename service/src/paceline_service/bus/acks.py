"""Publishing with acknowledgement, many messages at once.

nats-py can do this too (``publish_async``), but version 2.16 loses the answer when it is an error:
a full stream would look like one that is away, after a time-out.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import Header, StatusCode


class Refusal(msgspec.Struct, frozen=True):
    """JetStream's error."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct, frozen=True):
    """What the stream says to one message."""

    duplicate: bool = False
    error: Refusal | None = None


NO_STREAM = Ack(error=Refusal(code=503, description="no stream takes this subject at present"))
LOST = Ack(error=Refusal(code=503, description="the connection was lost before the answer came"))
_decoder = msgspec.json.Decoder(Ack)


class Acks:
    """Waits for the answers to messages of one connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[Ack]] = {}
        self._numbers = itertools.count()

    async def start(self) -> None:
        """Begin to listen; the client does it anew after a reconnection."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def publish(
        self, messages: Iterable[tuple[str, bytes, str]], timeout_s: float
    ) -> list[Ack]:
        """Publish messages of (subject, payload, id); return what the stream says, in their order.

        Raises:
            asyncio.TimeoutError: not all were answered in time.
            nats.errors.Error: the connection does not take them.
        """
        answers: dict[str, asyncio.Future[Ack]] = {}
        loop = asyncio.get_running_loop()
        try:
            for subject, payload, identity in messages:
                token = str(next(self._numbers))
                answers[token] = self._waiting[token] = loop.create_future()
                headers = {Header.MSG_ID.value: identity}
                await self._client.publish(
                    subject, payload, reply=f"{self._inbox}.{token}", headers=headers
                )
            if answers:
                await asyncio.wait_for(asyncio.gather(*answers.values()), timeout_s)
        finally:
            for token in answers:
                self._waiting.pop(token, None)
        return [answer.result() for answer in answers.values()]

    def give_up(self, why: str = "") -> None:
        """The answers that are waited for will not come; without ``why`` the connection is lost."""
        answer = Ack(error=Refusal(code=503, description=why)) if why else LOST
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(answer)

    async def _on_answer(self, message: Msg) -> None:
        waiting = self._waiting.get(message.subject[len(self._inbox) + 1 :])
        if waiting is None or waiting.done():
            return
        status = (message.headers or {}).get(Header.STATUS.value)
        if status == StatusCode.SERVICE_UNAVAILABLE.value:
            waiting.set_result(NO_STREAM)
            return
        try:
            waiting.set_result(_decoder.decode(message.data))
        except msgspec.DecodeError as error:
            refusal = Refusal(description=f"an answer that is not JetStream's: {error}")
            waiting.set_result(Ack(error=refusal))
