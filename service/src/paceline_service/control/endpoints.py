"""``/v1/jobs/{job}/settings``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request
from sqlalchemy.exc import SQLAlchemyError

from paceline.errors import InputError
from paceline_service.access.audit import actor_of
from paceline_service.access.guard import Guard
from paceline_service.answers import ApiRoute
from paceline_service.control.schemas import JobSettingsView, SettingsChange
from paceline_service.control.service import ControlService
from paceline_service.control.view import settings_view
from paceline_service.errors import CHANGE_PROBLEMS, READ_PROBLEMS, StoreUnavailableError
from paceline_service.parameters import Attempt, JobName
from paceline_service.store.frames import AttemptRef

ResolveAttempt = Callable[[str, int | None], Awaitable[AttemptRef]]


def control_router(control: ControlService, guard: Guard, resolve: ResolveAttempt) -> APIRouter:
    """Return the routes of settings."""
    router = APIRouter(
        prefix="/v1/jobs", tags=["settings"], responses=READ_PROBLEMS, route_class=ApiRoute
    )

    async def shown(attempt: AttemptRef) -> JobSettingsView:
        pace = control.pace(attempt.id)
        return settings_view(
            attempt,
            control.settings(attempt.job),
            await control.agreement(attempt.id),
            pace.ranks() if pace is not None else (),
        )

    @router.get("/{job}/settings")
    async def show_settings(
        request: Request,
        job: JobName,
        attempt: Attempt = None,
    ) -> JobSettingsView:
        """Show what is recorded of a job, since which step, and which ranks follow."""
        await guard.require_job(request, "read", job)
        return await shown(await resolve(job, attempt))

    @router.put("/{job}/settings", responses=CHANGE_PROBLEMS)
    async def change_settings(
        request: Request, job: JobName, change: SettingsChange
    ) -> JobSettingsView:
        """Change what is recorded of a job, from a step on that all its ranks agree on.

        It needs the scope `admin`, and stays for later launches of the job.
        """
        grant = await guard.require_job(request, "admin", job)
        attempt = await resolve(job, None)
        if not change:
            raise InputError(
                "nothing is to change: give level, stride, enabled or telemetry_interval_s"
            )
        try:
            await control.change(job, change, actor_of(request, grant))
        except (SQLAlchemyError, OSError) as error:
            raise StoreUnavailableError(
                "the database does not take the settings; nothing was changed"
            ) from error
        return await shown(attempt)

    return router
