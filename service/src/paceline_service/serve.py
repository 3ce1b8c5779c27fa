"""``paceline serve``: the collector as a process."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError
from pydantic_settings import SettingsError

from paceline.errors import ConfigError, PacelineError
from paceline_service.access.connections import (
    ConnectionLimits,
    connection_class,
    raise_file_limit,
    watch,
)
from paceline_service.access.local import make_local_token
from paceline_service.access.service import make_grant
from paceline_service.access.tls import ServerTls, server_tls
from paceline_service.app import create_app
from paceline_service.logs import configure_logging
from paceline_service.settings import CollectorSettings

SHUTDOWN_S = 3
GC_THRESHOLDS = (50_000, 20, 20)
"""Python looks for garbage in circles after 700 new objects by default. Frames come by thousands a
second and are in no circle: looking through them took a quarter of the collector's time."""
_log = structlog.get_logger("paceline.serve")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the collector until it is told to stop; return the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        settings = read_settings(arguments)
        configure_logging(settings.log_level, settings.log_format)
        if arguments.new_token:
            grant = make_grant(scopes=arguments.new_token, job_prefix=arguments.job_prefix)
            print(asyncio.run(make_local_token(settings.database_url, grant))["token"])
            return 0
        return _serve(settings)
    except PacelineError as error:
        print(f"paceline serve: {error}", file=sys.stderr)
        return error.exit_code


def read_settings(arguments: argparse.Namespace) -> CollectorSettings:
    """Return the settings: arguments go before the environment.

    Raises:
        ConfigError: one of them makes no sense.
    """
    names = (
        "host", "port", "database", "state_dir", "ready_file", "log_level", "tls_cert", "tls_key",
        "tls_client_ca",
    )  # fmt: skip
    given = {name: getattr(arguments, name) for name in (*names, "role", "bus")}
    try:
        return CollectorSettings(**{name: v for name, v in given.items() if v is not None})
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors(include_input=False)
        )
        raise ConfigError(f"settings: {faults} (docs/configuration.md)") from error
    except SettingsError as error:
        raise ConfigError(
            f"settings: {error}; write lists as JSON, for example '[\"a\"]'"
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paceline serve",
        description="Run the collector: frames in, the page and the API out.",
        epilog="Every option also has a variable: docs/configuration.md.",
    )
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="TCP port (default 8750; 0 picks a free one)")
    parser.add_argument("--database", metavar="URL", help="database (default: a SQLite file)")
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help="database and token file")
    parser.add_argument("--ready-file", type=Path, metavar="FILE", help="written when it listens")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain, PEM")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its key, PEM")
    parser.add_argument(
        "--tls-client-ca", type=Path, metavar="FILE", help="clients need a certificate by one of it"
    )
    parser.add_argument(
        "--role", choices=("all", "gateway", "analyzer"), help="with --bus: what this one does"
    )
    parser.add_argument("--bus", metavar="URLS", help="NATS servers that several share the jobs by")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"))
    parser.add_argument(
        "--new-token",
        metavar="SCOPES",
        help="make a token with these scopes (ingest,read,admin), print it once, and exit",
    )
    parser.add_argument(
        "--job-prefix", default="", metavar="P", help="with --new-token: only jobs P, P-x, P.x"
    )
    return parser


def _serve(settings: CollectorSettings) -> int:
    gc.set_threshold(*GC_THRESHOLDS)
    tls = server_tls(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    listener = _listen(settings)
    url = _url(listener, "http" if tls is None else "https")
    app = create_app(settings)
    limits = ConnectionLimits(
        most=raise_file_limit(settings.max_connections),
        timeout_s=settings.request_timeout_s,
        refused=app.state.collector.guard.refused,
    )
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=connection_class(limits),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        timeout_keep_alive=75,
        backlog=2048,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
    )
    config.load()
    if tls is not None:
        config.ssl = tls.context
    server = _Server(config, app, url, settings.ready_file, limits, tls)

    def on_signal(number: int, _frame: object) -> None:
        # uvicorn raises the signal again when it has stopped; by then there is nothing to do.
        if not server.started:
            raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    try:
        server.run(sockets=[listener])
    finally:
        listener.close()
        if settings.ready_file is not None:
            settings.ready_file.unlink(missing_ok=True)
    if server.error is not None:
        raise server.error
    return 0 if server.started else 2


def _listen(settings: CollectorSettings) -> socket.socket:
    """Return a socket bound to the address, listening not yet.

    Raises:
        ConfigError: the address cannot be had.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}; "
            "another collector may be running: stop it, or give another --port"
        ) from error
    return listener


def _url(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class _Server(uvicorn.Server):
    """Says when it listens, and lets streams end when it is told to stop."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: FastAPI,
        url: str,
        ready_file: Path | None,
        limits: ConnectionLimits,
        tls: ServerTls | None,
    ) -> None:
        super().__init__(config)
        self._limits = limits
        self._tls = tls
        self._watch: asyncio.Task[None] | None = None
        self._app = app
        self._url = url
        self._ready_file = ready_file
        self.error: PacelineError | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        collector = self._app.state.collector
        try:
            # Before the lifespan does it: uvicorn would show a traceback where a sentence will do.
            await collector.start()
        except PacelineError as error:
            self.error = error
            self.should_exit = True
            await collector.database.close()
            return
        await super().startup(sockets)
        if not self.started:
            return
        gc.collect()
        gc.freeze()  # what is here now stays
        self._watch = asyncio.create_task(
            watch(lambda: self.server_state.connections, self._limits), name="paceline-connections"
        )
        if self._tls is not None:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, self._reload_tls, self._tls)
        if self._ready_file is not None:
            write_ready_file(self._ready_file, self._url)
        token = collector.token_file
        _log.info("listening", url=self._url, token_file=str(token) if token else "PACELINE_TOKEN")
        if token is not None:
            print(f"paceline serve: {self._url} (token in {token})", file=sys.stderr, flush=True)

    @staticmethod
    def _reload_tls(tls: ServerTls) -> None:
        try:
            tls.reload()
        except PacelineError as error:
            _log.error("TLS files were not reloaded; the old ones stay", error=str(error))
        else:
            _log.info("TLS files reloaded")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Streams of events would keep their connections open for ever otherwise.
        self._app.state.collector.board.close()
        if self._watch is not None:
            self._watch.cancel()
        await super().shutdown(sockets)


def write_ready_file(path: Path, url: str) -> None:
    """Write url and pid in one step: who sees the file sees all of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    partial.write_text(json.dumps({"url": url, "pid": os.getpid()}) + "\n", encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
