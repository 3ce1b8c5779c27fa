"""Who follows a setting, from what the ranks told last."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.ranks import format_ranks
from paceline_service.control.pace import RankPace
from paceline_service.control.schemas import Followers, JobSettingsView
from paceline_service.control.settings import Agreement, JobSettings
from paceline_service.store.frames import AttemptRef


def settings_view(
    attempt: AttemptRef,
    settings: JobSettings | None,
    agreement: Agreement | None,
    ranks: Sequence[RankPace],
) -> JobSettingsView:
    """Return what the API shows of the settings of a job and one of its attempts."""
    if settings is None or (agreement and agreement.generation != settings.generation):
        agreement = None
    return JobSettingsView(
        job=attempt.job,
        attempt=attempt.ordinal,
        generation=settings.generation if settings else 0,
        level=(settings.level or None) if settings else None,  # type: ignore[arg-type]
        stride=settings.stride if settings else None,
        relief_stride=settings.relief_stride if settings else 1,
        enabled=settings.enabled if settings else None,
        telemetry_interval_s=settings.telemetry_interval_s if settings else None,
        updated_wall_ns=settings.updated_wall_ns if settings else None,
        updated_by=settings.updated_by if settings else None,
        effective_step=agreement.effective_step if agreement else None,
        agreed_wall_ns=agreement.agreed_wall_ns if agreement else None,
        ranks=followers(agreement, ranks),
    )


def followers(agreement: Agreement | None, ranks: Sequence[RankPace]) -> Followers:
    """Sort ranks by what they do about ``agreement``."""
    follows: list[int] = []
    waits: list[int] = []
    silent: list[int] = []
    missed: dict[int, int] = {}
    for one in ranks:
        if agreement is None:
            break
        if one.generation != agreement.generation:
            (silent if one.step > agreement.effective_step else waits).append(one.rank)
        elif one.applied_step > agreement.effective_step and not one.restarted:
            missed[one.rank] = one.applied_step
        else:
            follows.append(one.rank)
    return Followers(
        follows=_text(follows), waits=_text(waits), missed=missed, silent=_text(silent)
    )


def _text(ranks: list[int]) -> str:
    return format_ranks(ranks) if ranks else ""
