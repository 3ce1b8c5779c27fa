"""Settings on their way from the collector's answers to the rings of this node."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from paceline.errors import RingError
from paceline.ring import RingIdentity
from paceline.ring.control import Setting, write_control
from paceline.sidecar.pack import job_name
from paceline.wire.settings import MAX_SETTINGS, LaunchSettings

_log = logging.getLogger("paceline.sidecar")
_MAX_RANKS = 65_536

Launch = tuple[str, str, int]
"""Job, run id and attempt, as frames name them."""


class Ring(Protocol):
    """A ring as this needs it; ``Follower`` is one."""

    @property
    def path(self) -> Path:
        """The ring file."""

    @property
    def identity(self) -> RingIdentity:
        """Whose ring it is."""

    @property
    def control_generation(self) -> int:
        """The setting that its writer was asked to follow last; 0: none."""


class Pace(Protocol):
    """What samples telemetry; ``Telemetry`` does."""

    @property
    def interval_s(self) -> float:
        """How often is sampled; 0: not at all."""

    def set_interval_s(self, interval_s: float) -> None:
        """Sample at another pace from now on."""


class Control:
    """Remembers what each launch was told, and writes it into its rings, also new ones.

    ``take`` is called by the thread that sends, all else by the one that reads rings.

    Args:
        pace: of the telemetry; None where nothing is sampled.
    """

    def __init__(self, pace: Pace | None = None) -> None:
        self._told: dict[Launch, tuple[Setting, float | None]] = {}
        self._pace = pace
        self._own_interval_s = pace.interval_s if pace is not None else 0.0
        self._asked: dict[bytes, tuple[int, int]] = {}
        """By incarnation: generation and step that were written into its ring, or could not be."""
        self._first: dict[tuple[Launch, int, str], bytes] = {}
        """The first incarnation of each rank that was seen here."""

    def take(self, told: Iterable[LaunchSettings]) -> None:
        """Remember what an answer said; what is out of range is left out."""
        for one in told:
            setting = Setting(
                generation=one.generation,
                effective_step=one.effective_step,
                level=one.level,
                stride=one.stride,
            )
            if not setting.is_sound:
                continue
            launch = (one.job, one.run_id, one.attempt)
            known = self._told.get(launch)
            if known is None or known[0] != setting:
                _log.info(
                    "%s: level %s, stride %d, from step %d on",
                    one.job, one.level, one.stride, one.effective_step,
                )  # fmt: skip
            self._told[launch] = (setting, one.telemetry_interval_s)
            if len(self._told) > MAX_SETTINGS:
                del self._told[next(iter(self._told))]

    def apply(self, rings: Sequence[Ring]) -> None:
        """Ask the writers of ``rings``, which are all of this node, to follow."""
        for ring in sorted(rings, key=lambda ring: ring.identity.created_mono_ns):
            self._note_first(ring.identity)
            told = self._told.get(_launch_of(ring.identity))
            if told is not None:
                self._ask(ring, told[0])
        if self._pace is not None:
            self._set_pace(self._pace, {_launch_of(ring.identity) for ring in rings})
        present = {ring.identity.incarnation for ring in rings}
        for incarnation in self._asked.keys() - present:
            del self._asked[incarnation]

    def _ask(self, ring: Ring, setting: Setting) -> None:
        incarnation = ring.identity.incarnation
        wanted = (setting.generation, setting.effective_step)
        if self._asked.get(incarnation) == wanted:
            return
        self._asked[incarnation] = wanted
        if ring.control_generation == setting.generation:
            return  # asked by the sidecar before this one
        if self._first.get(_rank_of(ring.identity)) != incarnation:
            # A rank that was restarted counts its steps from 0 again: it follows at once.
            setting = Setting(
                generation=setting.generation,
                effective_step=0,
                level=setting.level,
                stride=setting.stride,
            )
        try:
            write_control(ring.path, incarnation, setting)
        except RingError as error:
            _log.warning("rank %d cannot be told a setting: %s", ring.identity.rank, error)

    def _note_first(self, identity: RingIdentity) -> None:
        self._first.setdefault(_rank_of(identity), identity.incarnation)
        if len(self._first) > _MAX_RANKS:
            del self._first[next(iter(self._first))]

    def _set_pace(self, pace: Pace, launches: set[Launch]) -> None:
        asked = [
            self._own_interval_s if interval_s is None else interval_s
            for interval_s in map(self._interval_of, launches)
        ]
        # One clock serves all jobs of a node: the one that wants most decides.
        on = [interval_s for interval_s in asked if interval_s > 0]
        interval_s = min(on) if on else 0.0 if asked else self._own_interval_s
        if interval_s != pace.interval_s:
            pace.set_interval_s(interval_s)

    def _interval_of(self, launch: Launch) -> float | None:
        told = self._told.get(launch)
        return told[1] if told is not None else None


def _launch_of(identity: RingIdentity) -> Launch:
    return (job_name(identity.job), identity.run_id, identity.attempt)


def _rank_of(identity: RingIdentity) -> tuple[Launch, int, str]:
    return (_launch_of(identity), identity.rank, identity.producer)
