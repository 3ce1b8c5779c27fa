"""The SQL of settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.control.settings import Agreement, JobSettings
from paceline_service.store.frames import AttemptRef
from paceline_service.store.models import Job, JobAttempt, JobSetting, SettingAgreement


async def all_settings(connection: AsyncConnection) -> dict[str, JobSettings]:
    """Return the settings of every job that has some, by its name."""
    query = select(
        Job.name, JobSetting.generation, JobSetting.level, JobSetting.stride, JobSetting.enabled,
        JobSetting.telemetry_interval_s, JobSetting.updated_wall_ns, JobSetting.updated_by,
        JobSetting.relief_stride,
    ).join(Job, Job.id == JobSetting.job_id)  # fmt: skip
    return {
        row.name: JobSettings(
            generation=row.generation, level=row.level, stride=row.stride, enabled=row.enabled,
            telemetry_interval_s=row.telemetry_interval_s, updated_wall_ns=row.updated_wall_ns,
            updated_by=row.updated_by, relief_stride=row.relief_stride,
        )
        for row in (await connection.execute(query)).all()
    }  # fmt: skip


async def open_agreements(connection: AsyncConnection) -> list[tuple[AttemptRef, Agreement]]:
    """Return what was agreed with the attempts that have not ended."""
    query = (
        select(
            Job.name, JobAttempt.id, JobAttempt.ordinal, JobAttempt.run_id,
            JobAttempt.launch_attempt, JobAttempt.world_size, JobAttempt.first_seen_wall_ns,
            SettingAgreement.generation, SettingAgreement.effective_step,
            SettingAgreement.agreed_wall_ns, SettingAgreement.level,
        )
        .join(JobAttempt, JobAttempt.id == SettingAgreement.attempt_id)
        .join(Job, Job.id == JobAttempt.job_id)
        .where(~JobAttempt.ended)
    )  # fmt: skip
    return [
        (
            AttemptRef(
                id=row.id, job=row.name, ordinal=row.ordinal, run_id=row.run_id,
                launch_attempt=row.launch_attempt, world_size=row.world_size,
                first_seen_wall_ns=row.first_seen_wall_ns,
            ),
            _agreement(row),
        )
        for row in (await connection.execute(query)).all()
    ]  # fmt: skip


async def agreement_of(connection: AsyncConnection, attempt_id: int) -> Agreement | None:
    """Return what was agreed with an attempt last."""
    query = select(
        SettingAgreement.generation, SettingAgreement.effective_step,
        SettingAgreement.agreed_wall_ns, SettingAgreement.level,
    ).where(SettingAgreement.attempt_id == attempt_id)  # fmt: skip
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _agreement(row)


async def save_settings(connection: AsyncConnection, job: str, settings: JobSettings) -> None:
    """Store the settings of a job that is known."""
    job_id = (await connection.execute(select(Job.id).where(Job.name == job))).scalar_one()
    values = asdict(settings)
    change = update(JobSetting).where(JobSetting.job_id == job_id).values(values)
    if not (await connection.execute(change)).rowcount:
        await connection.execute(insert(JobSetting).values(job_id=job_id, **values))


async def save_agreement(
    connection: AsyncConnection, attempt_id: int, agreement: Agreement
) -> None:
    """Store what was agreed with an attempt."""
    values = asdict(agreement)
    change = (
        update(SettingAgreement).where(SettingAgreement.attempt_id == attempt_id).values(values)
    )
    if not (await connection.execute(change)).rowcount:
        await connection.execute(insert(SettingAgreement).values(attempt_id=attempt_id, **values))


def _agreement(row: Any) -> Agreement:
    return Agreement(
        generation=row.generation,
        effective_step=row.effective_step,
        agreed_wall_ns=row.agreed_wall_ns,
        level=row.level,
    )
