"""The episodes that are open, as columns: thousands of ranks may be slow at once."""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import EXCLUSIVE_PHASES
from paceline_service.analysis.evidence.episode import MAX_LAGS, Episode, StepNote
from paceline_service.analysis.evidence.places import PeerPlan
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.sets import distinct

RECOVERY_LOG_ODDS = 20.0
"""Log-likelihood ratio for 'as fast as before' that closes an episode."""
_RECOVERY_CLIP = 1.0
"""What one step may add to it: a calm spell of a noisy machine is no recovery."""
_PHASES = len(EXCLUSIVE_PHASES)
_SCALARS = (
    "steps", "duration_ns", "recoverable_ns", "alone_ns", "blamed_ns", "last_arrivals",
    "contested", "self_ns", "peer_self_ns", "felt_ns", "saved_ns", "raised_ns", "slow_blamed_ns",
)  # fmt: skip
_WIDTH = len(_SCALARS) + 2 * _PHASES


class OpenEpisodes:
    """E episodes side by side; every array has E rows.

    Steps that look recovered are added up apart (``_tentative``) until it is decided whether
    the rank recovered at the first of them, or only had a calm spell.
    """

    def __init__(self) -> None:
        self.rank: Int64Array = np.zeros(0, dtype=np.int64)
        self.first_step = self.rank.copy()
        self.last_step = self.rank.copy()
        self.seen_step = self.rank.copy()
        self.shift = np.zeros(0)
        self.offset = np.zeros(0)
        self.evidence = np.zeros(0)
        self.confidence = np.zeros(0)
        self.from_start: BoolArray = np.zeros(0, dtype=np.bool_)
        self.on_device: BoolArray = np.zeros(0, dtype=np.bool_)
        self._recovery = np.zeros(0)
        self._sure = np.zeros((0, _WIDTH))
        self._tentative = np.zeros((0, _WIDTH))
        self._tentative_step = self.rank.copy()
        self._lags = np.zeros((0, MAX_LAGS))
        self._lag_count = self.rank.copy()
        self._usual_phase = np.zeros((0, _PHASES))
        self._usual_wait = np.zeros(0)

    def __len__(self) -> int:
        return len(self.rank)

    def begin(
        self,
        rank: Int64Array,
        *,
        first_step: Int64Array,
        shift: FloatArray,
        offset: FloatArray,
        evidence: FloatArray,
        confidence: FloatArray,
        from_start: BoolArray,
        usual_phase_ns: FloatArray,
        usual_wait_ns: FloatArray,
    ) -> Int64Array:
        """Open episodes of n ranks; returns their rows.

        ``usual_phase_ns`` (n, phases) is what each rank took before, ``usual_wait_ns`` (n,) what
        ranks were charged with in a step before, all together; NaN is unknown.
        """
        count = len(rank)
        begun: dict[str, np.ndarray] = {
            "rank": rank, "first_step": first_step, "last_step": first_step,
            "seen_step": first_step, "shift": shift, "offset": offset, "evidence": evidence,
            "confidence": confidence, "from_start": from_start, "_usual_phase": usual_phase_ns,
            "_usual_wait": usual_wait_ns,
        }  # fmt: skip
        for name in self.__dict__:
            old = getattr(self, name)
            new = begun.get(name)
            if new is None:
                new = np.zeros((count, *old.shape[1:]), dtype=old.dtype)
            setattr(self, name, np.concatenate([old, new.astype(old.dtype)]))
        return np.arange(len(self.rank) - count, len(self.rank))

    def add(
        self, note: StepNote, rows: Int64Array, plan: PeerPlan, slow: BoolArray,
        looks_well: BoolArray | None = None,
    ) -> None:  # fmt: skip
        """Add a step to the totals of ``rows`` (n,).

        Args:
            note: the step.
            rows: episodes whose rank has a score in it.
            plan: who may be compared with whom.
            slow: (R,) all ranks that are slow at present, whose slowness may hide another's.
            looks_well: (n,) steps that may be after a recovery already.
        """
        values = self._values(note, rows, plan, slow)
        if looks_well is None:
            looks_well = np.zeros(len(rows), dtype=np.bool_)
        self._tentative[rows] += values
        sure = rows[~looks_well]
        self._sure[sure] += self._tentative[sure]
        self._tentative[sure] = 0.0
        self.last_step[sure] = note.step
        ranks = self.rank[rows]
        self.on_device[rows] = note.on_device[ranks]
        lag_ns = note.launch_lag_ns[ranks]
        known = rows[lag_ns >= 0]
        if len(known):
            self._lags[known, self._lag_count[known] % MAX_LAGS] = lag_ns[lag_ns >= 0]
            self._lag_count[known] += 1

    def follow(
        self, note: StepNote, plan: PeerPlan, slow: BoolArray, jitter: float
    ) -> list[Episode]:
        """Take the next step; returns the episodes that it closed, and forgets them."""
        scores = note.scores[self.rank]
        rows = np.flatnonzero(~np.isnan(scores))
        if not len(rows):
            return []
        scores = scores[rows]
        self.seen_step[rows] = note.step
        shift = self.shift[rows]
        scale = np.maximum(np.maximum(jitter, shift / 2), 1e-9)
        half = self.offset[rows] + shift / 2
        odds = np.clip(shift * (half - scores) / scale**2, -_RECOVERY_CLIP, _RECOVERY_CLIP)
        recovery = np.maximum(0.0, self._recovery[rows] + odds)
        self._recovery[rows] = recovery
        self.add(note, rows, plan, slow, looks_well=recovery > 0)
        over = rows[recovery >= RECOVERY_LOG_ODDS]
        if not len(over):
            return []
        closed = [self.episode(int(row), is_open=False) for row in over]
        keep = np.ones(len(self.rank), dtype=np.bool_)
        keep[over] = False
        for name, column in self.__dict__.items():
            setattr(self, name, column[keep])
        return closed

    def episode(self, row: int, *, is_open: bool = True) -> Episode:
        """Return the episode of one row, with what is known of it so far."""
        total = self._sure[row]
        figures = dict(zip(_SCALARS, total[: len(_SCALARS)].tolist(), strict=True))
        whole = ("steps", "duration_ns", "recoverable_ns", "alone_ns", "last_arrivals", "contested")
        wasted_ns = _wasted_ns(
            figures["blamed_ns"],
            saved_ns=figures.pop("saved_ns"),
            raised_ns=figures.pop("raised_ns"),
            slow_blamed_ns=figures.pop("slow_blamed_ns"),
        )
        lags = int(self._lag_count[row])
        newest = [self._lags[row, at % MAX_LAGS] for at in range(max(0, lags - MAX_LAGS), lags)]
        return Episode(
            rank=int(self.rank[row]),
            first_step=int(self.first_step[row]),
            last_step=int(self.last_step[row]),
            seen_step=int(self.seen_step[row]),
            shift=float(self.shift[row]),
            offset=float(self.offset[row]),
            evidence=float(self.evidence[row]),
            confidence=float(self.confidence[row]),
            from_start=bool(self.from_start[row]),
            open=is_open,
            wasted_ns=wasted_ns,
            **{name: round(v) if name in whole else v for name, v in figures.items()},
            phase_excess_ns=total[len(_SCALARS) : len(_SCALARS) + _PHASES].copy(),
            phase_peer_ns=total[len(_SCALARS) + _PHASES :].copy(),
            launch_lags_ns=list(map(float, newest)),
            on_device=bool(self.on_device[row]),
        )

    def _values(
        self, note: StepNote, rows: Int64Array, plan: PeerPlan, slow: BoolArray
    ) -> FloatArray:
        ranks = self.rank[rows]
        own_ns = note.self_ns[ranks].astype(float)
        phase_ns = note.phase_self_ns[ranks]
        usual_ns, usual_blame_ns = self._peers(note, rows, plan, slow)
        top = int(note.self_ns.argmax())
        without_top = np.delete(note.self_ns, top).max(initial=0)
        fit_ns = int(note.self_ns[~slow].max(initial=0))
        values = np.empty((len(rows), _WIDTH))
        values[:, 0] = 1
        values[:, 1] = note.duration_ns
        values[:, 2] = np.where(ranks == top, own_ns - without_top, 0.0)
        values[:, 3] = np.maximum(own_ns - fit_ns, 0.0)
        values[:, 4] = note.blamed_ns[ranks]
        values[:, 5] = note.last_count[ranks]
        values[:, 6] = note.last_count.sum()
        values[:, 7] = own_ns
        values[:, 8] = own_ns * np.exp(-note.scores[ranks])
        values[:, 9] = (note.blamed_ns[ranks] - usual_blame_ns) / len(note.self_ns)
        fit = np.count_nonzero(~slow & (note.self_ns >= 0))
        values[:, 10] = np.minimum(values[:, 4], values[:, 3] * fit)
        values[:, 11] = note.blamed_ns.sum() - self._usual_wait[rows]
        values[:, 12] = note.blamed_ns[slow].sum()
        values[:, len(_SCALARS) : len(_SCALARS) + _PHASES] = phase_ns - usual_ns
        values[:, len(_SCALARS) + _PHASES :] = usual_ns
        return values

    def _peers(
        self, note: StepNote, rows: Int64Array, plan: PeerPlan, slow: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return phases (n, phases) and blame (n,) of the peers that are not slow.

        Of strays the phases are their own usual ones, and nobody's blame is taken off.
        """
        usual_ns, blamed_ns = self._usual_phase[rows].copy(), np.zeros(len(rows))
        group = plan.group[self.rank[rows]]
        present = note.self_ns >= 0
        for index in distinct(group[group >= 0]):
            peers = (plan.group == index) & present
            fit = peers & ~slow
            here = fit if fit.any() else peers
            usual_ns[group == index] = median_of(note.phase_self_ns[here], axis=0)
            blamed_ns[group == index] = median_of(note.blamed_ns[here])
        return usual_ns, blamed_ns


def _wasted_ns(
    blamed_ns: float, *, saved_ns: float, raised_ns: float, slow_blamed_ns: float
) -> float:
    """Return what others would not have waited had the rank been as fast as they (episodes.md).

    Args:
        blamed_ns: what they waited for it.
        saved_ns: what they would not have, had nothing but the ends of steps held them together.
        raised_ns: by how much all waits grew since before, NaN where there is no before.
        slow_blamed_ns: what was waited for all slow ranks, which made them grow together.
    """
    if slow_blamed_ns > 0 and not np.isnan(raised_ns):
        saved_ns = max(saved_ns, raised_ns * blamed_ns / slow_blamed_ns)
    return min(blamed_ns, saved_ns)
