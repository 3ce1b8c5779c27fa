"""Several analyzers: the one that owns a job tells of its incidents, and whoever takes it over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from paceline_service.bus.ownership import Ownership
from paceline_service.incidents.silences import SilenceBook
from paceline_service.notify.message import Facts
from paceline_service.notify.nodes.executor import NodeActions
from paceline_service.notify.nodes.policy import Policy
from paceline_service.notify.nodes.repository import actions_of
from paceline_service.notify.notifier import Notifier
from paceline_service.settings import CollectorSettings
from paceline_service.store.database import Database
from paceline_service.store.migrate import migrate
from tests.integration.notify.kit import SECRET, Receiver, close_incident, store_incident
from tests.integration.scaleout.test_ownership import until
from tests.unit.service.test_notify_changes import facts


class Analyzer:
    """What of an analyzer has to do with messages: leases, and the notifier behind them."""

    def __init__(self, name: str, url: str, hooks: Receiver) -> None:
        settings: dict[str, Any] = {
            "database": url,
            "notify_webhook_url": f"{hooks.url}/{name}",
            "notify_webhook_secret": SECRET,
            "notify_after_s": 0,
            "notify_look_s": 0.1,
            "notify_rate_per_minute": 6000,
        }
        read = CollectorSettings(**settings)
        self.name = name
        self.stopped = False
        self.database = Database(read.database_url)

        async def nothing(_: object) -> None:
            pass

        self.ownership = Ownership(
            self.database, name, ttl_s=0.9, on_taken=nothing, on_lost=nothing, able=lambda: True
        )
        self.notifier = Notifier(
            read, self.database, SilenceBook(self.database), page_url="",
            owns=self.ownership.owns, fence=self.ownership.fence,
        )  # fmt: skip

    async def start(self) -> None:
        await self.ownership.start()
        await self.notifier.start()

    async def stop(self) -> None:
        if self.stopped:
            return
        self.stopped = True
        await self.notifier.stop()
        await self.ownership.stop()
        await self.ownership.leave()
        await self.database.close()


@pytest.fixture
async def analyzers(postgres_url: str, hooks: Receiver) -> AsyncIterator[list[Analyzer]]:
    made = [Analyzer(name, postgres_url, hooks) for name in ("first", "second")]
    await migrate(made[0].database)
    yield made
    for one in made:
        await one.stop()


@pytest.fixture
def hooks() -> Iterator[Receiver]:
    made = Receiver().start()
    yield made
    made.stop()


def told(hooks: Receiver) -> dict[str, list[tuple[str, str]]]:
    """Return by job who told what of it."""
    found: dict[str, list[tuple[str, str]]] = {}
    for one in hooks.requests:
        job = one.json["incident"]["job"]
        found.setdefault(job, []).append((one.path.strip("/"), one.json["event"]))
    return found


async def test_the_owner_of_a_job_tells_of_it_and_whoever_takes_it_over_goes_on(
    analyzers: list[Analyzer], hooks: Receiver
) -> None:
    first, second = analyzers
    for one in analyzers:
        await one.start()
    await until(lambda: len(first.ownership.epochs) == len(second.ownership.epochs) == 32)
    numbers = {}
    for job in (f"job-{n}" for n in range(6)):
        async with second.database.engine.begin() as connection:
            numbers[job] = await connection.run_sync(store_incident, job)
    await until(lambda: len(hooks.requests) >= 6)
    await asyncio.sleep(0.5)
    for job in numbers:
        owner = first if first.ownership.owns(job) else second
        assert told(hooks)[job] == [(owner.name, "opened")]
    assert {one[0][0] for one in told(hooks).values()} == {"first", "second"}
    await first.stop()
    await until(lambda: len(second.ownership.epochs) == 64)
    for number in numbers.values():
        async with second.database.engine.begin() as connection:
            await connection.run_sync(close_incident, number)
    await until(lambda: len(hooks.requests) >= 12)
    await asyncio.sleep(0.5)
    assert {tuple(one[1:]) for one in told(hooks).values()} == {(("second", "resolved"),)}


async def test_all_analyzers_together_take_no_more_nodes_than_the_limit(
    analyzers: list[Analyzer],
) -> None:
    policy = Policy(
        allow=["slurm-drain"], nodes=["*"], jobs=["*"], causes=["gpu_throttle"],
        min_severity="page", max_nodes=2,
    )  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        actions = [
            NodeActions(
                one.database, policy, mode="dry-run", after_s=0, window_s=3600, kubernetes=None,
                slurm=None, pool=pool, fence=None,
            )
            for one in analyzers
        ]  # fmt: skip
        await asyncio.gather(*(actions[n % 2].consider([bad(n, f"node-{n}")]) for n in range(8)))
    async with analyzers[0].database.read() as connection:
        states = [(await actions_of(connection, number))[0].state for number in range(1, 9)]
    assert sorted(states) == ["done"] * 2 + ["refused"] * 6


def bad(number: int, node: str) -> Facts:
    return facts(id=number + 1, severity="page", nodes=[node])
