"""``paceline doctor``: what works here, what does not, and what to do about it."""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import os
import shutil
import sys
import sysconfig
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paceline.run.plan import sidecar_runs
from paceline.settings import AgentSettings, is_disabled

OK, WARN, FAIL = "ok", "warn", "fail"
RING_BYTES = 4 << 20
"""The most that the ring of one rank takes."""
MIN_FREE_BYTES = 16 * RING_BYTES
TIMEOUT_S = 3.0
PTH = "paceline_inject.pth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at. ``remedy`` is empty where nothing needs doing."""

    name: str
    status: str
    found: str
    remedy: str = ""


def main(argv: Sequence[str]) -> int:
    """Print what was found; 1 if something fails, else 0."""
    parser = argparse.ArgumentParser(prog="paceline doctor", description=__doc__)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    checks = examine(os.environ)
    if options.format == "json":
        print(json.dumps({"checks": [asdict(check) for check in checks]}, indent=2))
    else:
        for check in checks:
            print(f"{check.status:4}  {check.name:12} {check.found}")
            if check.remedy:
                print(f"      {'':12} -> {check.remedy}")
    return 1 if any(check.status == FAIL for check in checks) else 0


def examine(env: Mapping[str, str]) -> list[Check]:
    """Look at everything; what cannot even be looked at fails, and the rest goes on."""
    settings = AgentSettings.from_env(env)
    parts: tuple[Callable[[], list[Check]], ...] = (
        lambda: [_settings(settings, env)],
        _torch,
        lambda: [_plugin()],
        lambda: [_injection()],
        lambda: [_runtime_dir(settings.runtime_dir)],
        lambda: [_sidecar(settings)],
        lambda: _collector(settings.url, env.get("PACELINE_TOKEN", "")),
    )
    checks: list[Check] = []
    for part in parts:
        try:
            checks += part()
        except Exception as error:
            checks.append(Check(name="doctor", status=FAIL, found=f"a check failed: {error!r}"))
    return checks


def _settings(settings: AgentSettings, env: Mapping[str, str]) -> Check:
    if is_disabled(env):
        return Check(
            name="settings",
            status=WARN,
            found="PACELINE_DISABLE is set: nothing is recorded",
            remedy="unset PACELINE_DISABLE",
        )
    if settings.problems:
        return Check(name="settings", status=WARN, found="; ".join(settings.problems))
    return Check(name="settings", status=OK, found=f"level {settings.level}, node {settings.node}")


def _torch() -> list[Check]:
    if importlib.util.find_spec("torch") is None:
        remedy = "pip install torch into this environment, or run the doctor of the job's one"
        return [Check(name="torch", status=FAIL, found="not installed", remedy=remedy)]
    import torch

    checks = [Check(name="torch", status=OK, found=f"{torch.__version__} in {sys.prefix}")]
    if not torch.distributed.is_available():
        remedy = "install a torch that was built with USE_DISTRIBUTED=1"
        return [*checks, Check(name="distributed", status=FAIL, found="missing", remedy=remedy)]
    backends = [
        name
        for name in ("gloo", "nccl", "mpi", "ucc", "xccl")
        if getattr(torch.distributed, f"is_{name}_available", bool)()
    ]
    checks.append(Check(name="backends", status=OK, found=", ".join(backends) or "none"))
    checks.append(_nccl(torch, "nccl" in backends))
    return checks


def _nccl(torch: Any, built_in: bool) -> Check:
    if not built_in:
        return Check(name="nccl", status=OK, found="not in this torch (a CPU build)")
    version = ".".join(str(part) for part in torch.cuda.nccl.version())
    gpus = torch.cuda.device_count()
    if not gpus:
        remedy = "run the doctor on a node with GPUs to see more"
        return Check(name="nccl", status=WARN, found=f"{version}, but no GPU here", remedy=remedy)
    return Check(name="nccl", status=OK, found=f"{version}, {gpus} GPU(s)")


def _plugin() -> Check:
    directory = Path(__file__).parent / "plugin"
    built = sorted(directory.glob("*.so")) if directory.is_dir() else []
    if built:
        return Check(name="plugin", status=OK, found=str(built[0]))
    return Check(
        name="plugin",
        status=OK,
        found="the NCCL profiler plugin is not part of this version; arrivals come from the hooks",
    )


def _injection() -> Check:
    places = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
    for place in places:
        if (place / PTH).is_file():
            return Check(name="injection", status=OK, found=str(place / PTH))
    return Check(
        name="injection",
        status=FAIL,
        found=f"{PTH} is not in {places[0]}: `paceline run` cannot instrument a job",
        remedy="reinstall paceline with pip in this environment, or call paceline.init()",
    )


def _runtime_dir(directory: Path) -> Check:
    place = directory
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return Check(
            name="rings",
            status=FAIL,
            found=f"{directory} cannot be written",
            remedy="set PACELINE_RUNTIME_DIR to a directory that this user can write",
        )
    free_bytes = shutil.disk_usage(place).free
    found = f"{directory}, {free_bytes >> 20} MiB free"
    if free_bytes < RING_BYTES:
        remedy = "free space there, or set PACELINE_RUNTIME_DIR"
        return Check(name="rings", status=FAIL, found=found, remedy=remedy)
    if free_bytes < MIN_FREE_BYTES:
        remedy = "a ring takes up to 4 MiB a rank; enlarge it, or set PACELINE_RUNTIME_DIR"
        return Check(name="rings", status=WARN, found=found, remedy=remedy)
    return Check(name="rings", status=OK, found=found)


def _sidecar(settings: AgentSettings) -> Check:
    if importlib.util.find_spec("msgspec") is None:
        return Check(
            name="sidecar",
            status=FAIL,
            found="msgspec is missing: no sidecar can run in this environment",
            remedy="pip install 'paceline[sidecar]'",
        )
    running = sidecar_runs(settings.runtime_dir)
    found = "runs on this node" if running else "none runs; `paceline run` starts one for a job"
    return Check(name="sidecar", status=OK, found=found)


def _collector(url: str, token: str) -> list[Check]:
    if not url:
        return [
            Check(
                name="collector",
                status=OK,
                found="PACELINE_URL is not set: `paceline run` brings its own, or keeps event logs",
            )
        ]
    try:
        health, _ = _ask(url, "GET", "/healthz", "")
    except (OSError, http.client.HTTPException, ValueError) as error:
        remedy = "start it with `paceline serve`, or correct PACELINE_URL; jobs spool meanwhile"
        found = f"{url} does not answer: {error}"
        return [Check(name="collector", status=FAIL, found=found, remedy=remedy)]
    if health != 200:
        found = f"{url}/healthz answers {health}"
        remedy = "see that PACELINE_URL names a Paceline collector"
        return [Check(name="collector", status=FAIL, found=found, remedy=remedy)]
    return [Check(name="collector", status=OK, found=f"{url} answers"), _token(url, token)]


def _token(url: str, token: str) -> Check:
    # No frame at all: the collector looks at the token first, and stores nothing.
    status, _ = _ask(url, "POST", "/v1/frames", token)
    if status in (401, 403):
        what = "no token is given" if not token else "the token is not accepted for sending"
        return Check(
            name="token",
            status=FAIL,
            found=f"{what} ({status})",
            remedy="set PACELINE_TOKEN to a token with scope ingest for this job",
        )
    return Check(name="token", status=OK, found="accepted")


def _ask(url: str, method: str, path: str, token: str) -> tuple[int, bytes]:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no http or https URL")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        body = b"" if method == "POST" else None
        connection.request(method, parts.path.rstrip("/") + path, body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(65536)
    finally:
        connection.close()
