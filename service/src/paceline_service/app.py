"""The HTTP application: routes, middleware and the lifespan of its collector."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

import paceline_service
from paceline_service.access.endpoints import audit_router, tokens_router
from paceline_service.access.middleware import (
    LOOPBACK_NAMES,
    HostCheckMiddleware,
    SecurityHeadersMiddleware,
)
from paceline_service.access.oidc.endpoints import auth_router
from paceline_service.collector import Collector
from paceline_service.control.endpoints import control_router
from paceline_service.errors import install_error_handlers
from paceline_service.incidents.changes import changes_router, silences_router
from paceline_service.incidents.endpoints import incidents_router, offenders_router
from paceline_service.ingest.columns import decode_records
from paceline_service.ingest.endpoints import FRAMES_PATH, FramesEndpoint
from paceline_service.jobs.endpoints import jobs_router
from paceline_service.notify.endpoints import notifications_router
from paceline_service.openapi import openapi_document
from paceline_service.operations import operations_router
from paceline_service.request_ids import RequestIdMiddleware
from paceline_service.settings import CollectorSettings
from paceline_service.store.frames import AttemptRef
from paceline_service.unforeseen import UnforeseenMiddleware

WEB = Path(paceline_service.__file__).parent / "web"


def create_app(settings: CollectorSettings) -> FastAPI:
    """Return the application; its collector starts and stops with its lifespan."""
    collector = Collector.build(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await collector.start()
        yield
        await collector.stop()

    app = _Application(
        title="Paceline collector",
        version=paceline_service.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # its redirects name whatever host the request named
        lifespan=lifespan,
    )
    app.state.collector = collector
    if collector.sink is not None:
        frames = FramesEndpoint(collector.guard, collector.sink, settings, collector.control.told)
        # The route answers other methods and is documented; POSTs do not come as far as to it.
        app.router.routes.append(Route(FRAMES_PATH, frames.post, methods=["POST"], name="frames"))
        app.frames = frames

    async def attempt_id(job: str, ordinal: int | None) -> int:
        return (await collector.jobs.resolve(job, ordinal)).ref.id

    async def attempt_ref(job: str, ordinal: int | None) -> AttemptRef:
        return (await collector.jobs.resolve(job, ordinal)).ref

    app.include_router(
        jobs_router(collector.jobs, collector.guard, collector.source, decode_records)
    )
    database, guard, silences = collector.database, collector.guard, collector.silences
    app.include_router(incidents_router(database, guard, attempt_id, silences))
    app.include_router(changes_router(database, guard, silences))
    app.include_router(silences_router(database, guard, silences))
    app.include_router(offenders_router(database, guard))
    app.include_router(notifications_router(database, guard, collector.notifier))
    app.include_router(control_router(collector.control, collector.guard, attempt_ref))
    app.include_router(tokens_router(collector.database, collector.guard))
    app.include_router(auth_router(collector.access.people))
    app.include_router(audit_router(collector.database, collector.guard))
    app.include_router(operations_router(collector, lambda: openapi_document(app), WEB))
    app.mount("/static", StaticFiles(directory=WEB / "static", check_dir=False), name="static")
    install_error_handlers(app)
    app.add_middleware(UnforeseenMiddleware)  # the first one is the innermost
    if settings.loopback or settings.allowed_hosts:
        names = [*LOOPBACK_NAMES, settings.host, *settings.allowed_hosts]
        if public := urlsplit(settings.public_url).hostname:
            names.append(public)
        app.wrap(HostCheckMiddleware, names=names)
    app.wrap(SecurityHeadersMiddleware)  # the last one is the outermost
    app.wrap(RequestIdMiddleware)
    return app


class _Application(FastAPI):
    """FastAPI for everything but POSTs of frames.

    Frames are nearly all requests; what a framework does around each of them, for the sake of other
    routes, costs more than they do.
    """

    frames: ASGIApp | None = None

    def wrap(self, middleware: Callable[..., ASGIApp], **arguments: object) -> None:
        """Put a middleware around every route and around frames."""
        self.add_middleware(middleware, **arguments)
        if self.frames is not None:
            self.frames = middleware(self.frames, **arguments)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the lifespan."""
        posted = (
            scope["type"] == "http" and scope["path"] == FRAMES_PATH and scope["method"] == "POST"
        )
        if posted and self.frames is not None:
            await self.frames(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)
