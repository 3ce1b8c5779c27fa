"""How far the ranks of one attempt have come, how fast, and which setting they follow."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.settings import LEVELS
from paceline.wire.bundles import Bundle, Extra
from paceline.wire.frames import Frame

HEARTBEAT_S = 5.0
"""A sidecar sends at least this often, and every answer to it brings the settings."""
DELIVERY_S = HEARTBEAT_S + 3.0
"""From now until a setting has reached every ring: a heartbeat, and three seconds for the frame
that is under way, its commit, and the sidecar's next look at its rings."""
MARGIN_STEPS = 2
"""Beyond that: a rank looks only when a step ends."""
GATHER_S = 40.0
"""How long a rank that is silent is waited for: a sidecar pauses up to 30 s when it was refused."""
LONGEST_HELD_S = 600.0
"""What a frame may say that it was held up for; beyond that a wall clock was set."""
_SET_BACK_NS = 1_000_000_000
"""Frames of one process do not come in another order by as much: its clock was set."""
_WINDOW_NS = 4_000_000_000
_NOTHING = Extra()
_FORGETTING = 0.98
"""Of the fastest pace, each window: half of it is gone after two minutes."""


@dataclass(slots=True, kw_only=True)
class RankPace:
    """One process of a rank. Mutable: frames change it on the hot route."""

    rank: int
    step: int
    generation: int
    applied_step: int
    heard_mono_s: float
    restarted: bool
    window_step: int
    window_began_ns: int
    sent_wall_ns: int
    least_delay_s: float
    """Smallest difference of our clock and the sender's wall clock that any frame showed."""
    held_s: float = 0.0
    """How much longer than that one the newest frame took: in a spool, or refused (429)."""
    fastest: float = -1.0
    """Steps a second; below 0: not known yet."""


class Pace:
    """What the frames of an attempt told since this collector runs.

    Args:
        world_size: ranks of the attempt.
        now_mono_s: when its first frame came.
        slack_s: how much longer frames and settings take where a bus lies between.
    """

    def __init__(self, world_size: int, now_mono_s: float, slack_s: float = 0.0) -> None:
        self._delivery_s = DELIVERY_S + slack_s
        self.heard_mono_s = now_mono_s
        self._world_size = world_size
        self._began_mono_s = now_mono_s
        self._of: dict[str, RankPace] = {}
        self._of_rank: dict[int, str] = {}
        self._levels: set[str] = set()
        self.records = 0
        """Records in the frames that were taken."""

    def note(self, frame: Frame | Bundle, now_mono_s: float) -> None:
        """Take one frame; those of one process come in about the order in which it sent them."""
        self.heard_mono_s = now_mono_s
        self.records += frame.count
        if not isinstance(frame, Bundle):
            self._note(
                frame.incarnation, frame.rank, frame.step, frame.sent_wall_ns, frame, now_mono_s
            )
            return
        origin, body = frame.origin, frame.body
        for place, (incarnation, rank, step) in enumerate(
            zip(origin.incarnations, origin.ranks, body.steps, strict=True)
        ):
            told = body.extras.get(place, _NOTHING)
            self._note(incarnation, rank, step, body.sent_wall_ns, told, now_mono_s)

    def _note(
        self,
        incarnation: str,
        rank: int,
        step: int,
        sent_wall_ns: int,
        told: Frame | Extra,
        now_mono_s: float,
    ) -> None:
        if told.info and told.info.get("level") in LEVELS:
            self._levels.add(told.info["level"])
        known = self._of.get(incarnation)
        if known is None:
            known = self._add(incarnation, rank, step, sent_wall_ns, now_mono_s)
        elif step >= known.step:
            known.step = step
        known.heard_mono_s = now_mono_s
        delay_s = now_mono_s - sent_wall_ns / 1e9
        if sent_wall_ns < known.sent_wall_ns - _SET_BACK_NS:
            known.least_delay_s = delay_s
        known.sent_wall_ns = sent_wall_ns
        known.least_delay_s = min(known.least_delay_s, delay_s)
        known.held_s = min(delay_s - known.least_delay_s, LONGEST_HELD_S)
        known.generation, known.applied_step = told.control_generation, told.control_step
        elapsed_ns = sent_wall_ns - known.window_began_ns
        if not 0 <= elapsed_ns < _WINDOW_NS:
            if elapsed_ns > 0:
                steps_per_s = (known.step - known.window_step) * 1e9 / elapsed_ns
                known.fastest = max(steps_per_s, known.fastest * _FORGETTING)
            known.window_step, known.window_began_ns = known.step, sent_wall_ns
        if told.ended:
            del self._of[incarnation]

    @property
    def launch_level(self) -> str:
        """The level that all ranks which tell it were launched with; empty where none does."""
        return next(iter(self._levels)) if len(self._levels) == 1 else ""

    def ranks(self) -> list[RankPace]:
        """Return the newest running process of each rank that was heard of, by rank."""
        newest = (self._of.get(incarnation) for incarnation in self._of_rank.values())
        return sorted((one for one in newest if one is not None), key=lambda one: one.rank)

    def is_known(self, now_mono_s: float) -> bool:
        """Whether the steps of all ranks are known: nobody is silent who may be heard of again."""
        ranks = self.ranks()
        if any(self._delivery_s < now_mono_s - one.heard_mono_s < GATHER_S for one in ranks):
            return False
        if now_mono_s - self._began_mono_s >= GATHER_S:
            return any(now_mono_s - one.heard_mono_s < GATHER_S for one in ranks)
        fast_enough = all(one.fastest >= 0 for one in ranks)
        return fast_enough and len(ranks) >= self._world_size

    def newest_step(self, now_mono_s: float) -> int:
        """Return the step that the farthest rank is in by now, as far as can be told."""
        return max(
            (
                one.step
                + math.ceil(max(one.fastest, 0.0) * (now_mono_s - one.heard_mono_s + one.held_s))
                for one in self.ranks()
                if now_mono_s - one.heard_mono_s < GATHER_S
            ),
            default=0,
        )

    def margin_steps(self) -> int:
        """Return how many steps ahead a setting must lie to reach every rank in time.

        Where frames are held up because the collector refused them, its answers are as late.
        """
        fastest = max((one.fastest for one in self.ranks()), default=0.0)
        held_s = min(max((one.held_s for one in self.ranks()), default=0.0), GATHER_S)
        return math.ceil(max(fastest, 0.0) * (self._delivery_s + held_s)) + MARGIN_STEPS

    def _add(
        self, incarnation: str, rank: int, step: int, sent_wall_ns: int, now_mono_s: float
    ) -> RankPace:
        before = self._of_rank.get(rank)
        one = RankPace(
            rank=rank,
            step=step,
            generation=0,
            applied_step=0,
            heard_mono_s=now_mono_s,
            restarted=before is not None,
            window_step=step,
            window_began_ns=sent_wall_ns,
            sent_wall_ns=sent_wall_ns,
            least_delay_s=now_mono_s - sent_wall_ns / 1e9,
        )
        if before is not None:
            self._of.pop(before, None)
        self._of[incarnation] = one
        self._of_rank[rank] = incarnation
        return one
