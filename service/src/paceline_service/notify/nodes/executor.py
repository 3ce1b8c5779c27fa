"""Does what the policy wants, each action once, within the limit, and writes down what and how.

A row is stored before anything is done, so that a process that ends in the middle neither forgets
what it began nor takes more nodes than the limit allows.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.counted import counted
from paceline_service.access.audit import Actor, audit
from paceline_service.notify.message import Facts
from paceline_service.notify.nodes import repository
from paceline_service.notify.nodes.kubernetes import Kubernetes, request_of
from paceline_service.notify.nodes.outcome import Outcome
from paceline_service.notify.nodes.policy import CLEAR_CONDITION, CONDITION, DRAIN, Policy, Wanted
from paceline_service.notify.nodes.repository import BEGUN, DONE, FAILED, REFUSED, Action
from paceline_service.notify.nodes.slurm import Slurm, drain_request
from paceline_service.notify_settings import DRY_RUN
from paceline_service.store.advisory import NODE_ACTIONS
from paceline_service.store.database import Database
from paceline_service.store.steady_clock import SteadyClock

MAX_ATTEMPTS = 5
RETRY_S = 30.0
ABANDONED_NS = 180 * 10**9
"""What another process began and did not end for so long, it will not."""
KEEP_NS = 400 * 86_400 * 10**9
TIDY_S = 3600.0
OWN = Actor(name="paceline serve", address="")
_log = structlog.get_logger("paceline.actions")
Fence = Callable[[AsyncConnection, set[str]], Awaitable[set[str]]]


class NodeActions:
    """Considers the incidents after every look of the watch; on the event loop.

    Args:
        database: where it is written down.
        policy: what is allowed.
        mode: ``dry-run`` or ``execute``.
        after_s: an incident has to be open for so long.
        window_s: within which ``policy.max_nodes`` nodes are taken out of service at most.
        kubernetes: its API; None: no action needs it.
        slurm: its commands; None: no action needs them.
        pool: threads that wait for both.
        fence: where several processes act: asked before each action.
    """

    def __init__(
        self,
        database: Database,
        policy: Policy,
        *,
        mode: str,
        after_s: float,
        window_s: float,
        kubernetes: Kubernetes | None,
        slurm: Slurm | None,
        pool: Executor,
        fence: Fence | None,
    ) -> None:
        self._database = database
        self._policy = policy
        self.mode = mode
        self._after_ns = int(after_s * 1e9)
        self._window_ns = int(window_s * 1e9)
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._pool = pool
        self._fence = fence
        self._tried_mono_s: dict[int, float] = {}
        self._tidied_mono_s = float("-inf")
        self._clock = SteadyClock(quiet=True)
        self._started_ns = time.time_ns()

    async def consider(self, found: Sequence[Facts]) -> None:
        """Begin what the incidents call for, and go on with what was begun."""
        lasting_ns = time.time_ns() - self._after_ns
        wanted = [
            (facts, one)
            for facts in found
            if not facts.open or facts.opened_wall_ns <= lasting_ns
            for one in self._policy.wanted(facts)
        ]
        if wanted:
            async with self._database.read() as connection:
                numbers = sorted({facts.id for facts, _ in wanted})
                known = await repository.known(connection, numbers, self.mode)
            for facts, one in wanted:
                if (facts.id, one.node, one.action) in known:
                    continue
                if one.action == CLEAR_CONDITION and (facts.id, one.node, CONDITION) not in known:
                    continue
                await self._begin(facts, one)
        await self._go_on()
        if time.monotonic() - self._tidied_mono_s > TIDY_S:
            self._tidied_mono_s = time.monotonic()
            async with self._database.write() as connection:
                await repository.forget_before(connection, self._clock.now_ns() - KEEP_NS)

    async def _begin(self, facts: Facts, one: Wanted) -> None:
        """Write down what is going to be done, if it may be."""
        now_ns = time.time_ns()
        request = self._request(facts, one)
        async with self._database.write() as connection:
            if self._fence is not None and await self._fence(connection, {facts.job}):
                return
            refused = await self._over_limit(connection, one, now_ns)
            state = REFUSED if refused else DONE if self.mode == DRY_RUN else BEGUN
            result = refused or ("dry run: nothing was done" if state == DONE else "")
            values = {
                "incident_id": facts.id,
                "job": facts.job,
                "node": one.node,
                "action": one.action,
                "mode": self.mode,
                "state": state,
                "takes_capacity": one.takes_capacity,
                "request": json.dumps(request, sort_keys=True),
                "result": result,
                "attempts": 0,
                "begun_wall_ns": now_ns,
                "ended_wall_ns": None if state == BEGUN else now_ns,
            }
            await repository.add(connection, values)
            told = {"mode": self.mode, "state": state, "request": request, "result": result}
            target = _target(facts.id, facts.job, one.node)
            await audit(connection, OWN, f"node.{one.action}", target, new=told)

    def _request(self, facts: Facts, one: Wanted) -> dict[str, Any]:
        if one.action == DRAIN:
            return drain_request(facts, one.node)
        return request_of(one.action, facts, one.node, time.time())

    async def _over_limit(self, connection: AsyncConnection, one: Wanted, now_ns: int) -> str:
        """Return why a node is not taken out of service; empty: it may be."""
        if not one.takes_capacity:
            return ""
        if not self._database.is_sqlite:
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({NODE_ACTIONS})"))
        since_ns = now_ns - self._window_ns
        taken = await repository.nodes_taken(connection, self.mode, since_ns)
        limit = self._policy.max_nodes
        if one.node in taken or len(taken) < limit:
            return ""
        names = ", ".join(sorted(taken)[:5])
        return (
            f"{counted(len(taken), 'node was', 'nodes were')} taken out of service within "
            f"{self._window_ns / 1e9:.0f} s "
            f"({names}), the limit is {limit}: a person has to decide "
            "(PACELINE_SERVE_ACTIONS_MAX_NODES)"
        )

    async def _go_on(self) -> None:
        if self.mode == DRY_RUN:
            return
        async with self._database.read() as connection:
            rows = await repository.begun(connection)
        numbers = {row.id for row in rows}
        self._tried_mono_s = {n: s for n, s in self._tried_mono_s.items() if n in numbers}
        for row in rows:
            if self._is_due(row):
                self._tried_mono_s[row.id] = time.monotonic()
                await self._try(row)

    def _is_due(self, row: Action) -> bool:
        tried_s = self._tried_mono_s.get(row.id)
        if tried_s is not None:
            return time.monotonic() - tried_s >= RETRY_S
        # One of a process before this one, or of another that may still be at it.
        mine = self._fence is None or row.begun_wall_ns >= self._started_ns
        return mine or time.time_ns() - row.begun_wall_ns >= ABANDONED_NS

    async def _try(self, row: Action) -> None:
        if self._fence is not None:
            async with self._database.write() as connection:
                if await self._fence(connection, {row.job}):
                    return
        request = json.loads(row.request)
        loop = asyncio.get_running_loop()
        outcome = await loop.run_in_executor(self._pool, self._do, row.action, request)
        attempts = row.attempts + 1
        state = DONE if outcome.done else FAILED
        if not outcome.done and outcome.again and attempts < MAX_ATTEMPTS:
            state = BEGUN
        values = {
            "state": state,
            "result": outcome.words[:2000],
            "attempts": attempts,
            "ended_wall_ns": None if state == BEGUN else time.time_ns(),
        }
        async with self._database.write() as connection:
            await repository.end(connection, row.id, values)
            told = {"mode": row.mode, "state": state, "result": outcome.words, "attempt": attempts}
            target = _target(row.incident_id, row.job, row.node)
            await audit(connection, OWN, f"node.{row.action}.result", target, new=told)
        if state != DONE:
            _log.error("an action on a node failed", node=row.node, action=row.action,
                       again=state == BEGUN, error=outcome.words)  # fmt: skip

    def _do(self, action: str, request: dict[str, Any]) -> Outcome:
        try:
            return self._ask(action, request)
        except Exception as error:  # what an API answers may be anything
            _log.error("an action on a node failed", action=action, exc_info=error)
            words = f"an error of the collector: {type(error).__name__}; its log has the details"
            return Outcome(done=False, words=words, again=True)

    def _ask(self, action: str, request: dict[str, Any]) -> Outcome:
        if action == DRAIN:
            if self._slurm is None:
                return Outcome(done=False, words="slurm-drain is not configured any more")
            return self._slurm.drain(request)
        if self._kubernetes is None:
            return Outcome(done=False, words=f"{action} is not configured any more")
        return self._kubernetes.do(request)


def _target(incident: int, job: str, node: str) -> str:
    return f"node {node} for incident {incident} of {job}"
