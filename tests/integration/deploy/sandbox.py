"""A place that looks to processes as containers do, without a container engine.

Namespaces of its own for network, mounts and processes: the names of services lead to 127.0.0.1,
every path of the compose file is where it says, all else is read-only, and whatever runs in it
ends with it. The programs are this machine's. Needs root, ``unshare``, ``nsenter`` and ``setpriv``.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

TOOLS = ("unshare", "nsenter", "setpriv", "mount", "ip")
HIDDEN = ("etc", "opt", "run", "tmp", "var", "proc", "source", "prometheus", "alertmanager", "root")
"""Entries of the root directory that the sandbox has instead of the machine's."""
_OF_ETC = ("alternatives", "fonts", "ld.so.cache", "localtime", "nsswitch.conf", "protocols",
           "services", "ssl", "mime.types", "pip.conf", "login.defs", "chromium.d",
           "chromium")  # fmt: skip
USERS = {"root": 0, "postgres": 999, "paceline": 10001, "nobody": 65534, "grafana": 472}


class Sandbox:
    """Made when it is constructed; ``close`` ends every process in it."""

    def __init__(
        self,
        directory: Path,
        hosts: Sequence[str],
        keep: Sequence[Path],
        *,
        users: Mapping[str, int] = USERS,
        network: bool = False,
    ) -> None:
        """Make it.

        Args:
            directory: for its files, empty.
            hosts: names that are 127.0.0.1 in it.
            keep: directories of this machine that are in it wherever they are.
            users: that it knows.
            network: it has this machine's network, and not one of its own.
        """
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            pytest.skip(f"{', '.join(missing)} missing: apt-get install util-linux iproute2")
        self._keep = keep
        self.root = directory / "root"
        self.root.mkdir(parents=True)
        self._etc = {
            # Engines give a container its own name, too.
            "hosts": "".join(
                f"127.0.0.1 {name}\n" for name in ("localhost", socket.gethostname(), *hosts)
            ),
            "passwd": "".join(f"{n}:x:{u}:{u}::/tmp:/bin/sh\n" for n, u in users.items()),
            "group": "".join(f"{n}:x:{u}:\n" for n, u in users.items()),
        }
        self._spaces = ["--mount", "--pid"] if network else ["--mount", "--pid", "--net"]
        command = ["unshare", *self._spaces, "--fork", "--kill-child", "sh", "-c"]
        first = "true" if network else "ip link set lo up"
        # It reads until this process closes the pipe or is gone; then everything ends.
        self._init = subprocess.Popen(
            [*command, f"{first} && {self._mounts(keep, network)} && echo made && exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._init.stdout is not None
        if self._init.stdout.readline() != "made\n":
            assert self._init.stderr is not None
            said = self._init.stderr.read().strip()
            self.close()
            pytest.skip(f"namespaces and mounts are not allowed here (run as root): {said}")
        self._pid = psutil.Process(self._init.pid).children()[0].pid

    def _mounts(self, keep: Sequence[Path], network: bool) -> str:
        root = self.root
        steps = [f"mount -t tmpfs -o mode=0755 none {root}"]
        for entry in sorted(Path("/").iterdir()):
            if entry.name in HIDDEN:
                continue
            if entry.is_symlink():
                steps.append(f"ln -s {os.readlink(entry)} {root}/{entry.name}")
            elif entry.is_dir():
                steps.append(f"mkdir {root}/{entry.name} && mount --rbind {entry} {root}{entry}")
        steps.append(f"mkdir -m 0755 {root}/etc {root}/run {root}/var {root}/proc {root}/root")
        steps.append(f"mkdir -p -m 0755 {root}/var/lib {root}/var/spool {root}/run/secrets")
        # Images have their own things in /opt, beside what this machine has there.
        for entry in sorted(Path("/opt").glob("*")):
            steps.append(f"mkdir -p {root}{entry} && mount --rbind {entry} {root}{entry}")
        steps.append(
            f"mkdir -p {root}/opt && ln -s /run {root}/var/run && mount -t proc none {root}/proc"
        )
        for name in (*_OF_ETC, *(("hosts", "resolv.conf") if network else ())):
            if Path("/etc", name).exists():
                steps.append(f"cp -a /etc/{name} {root}/etc/")
        for name, text in self._etc.items():
            if network and name == "hosts":
                continue
            steps.append(f"printf %s '{text}' > {root}/etc/{name}")
        for path in keep:
            if path.parts[1] in HIDDEN:
                steps.append(f"mkdir -p {root}{path} && mount --rbind {path} {root}{path}")
        return " && ".join(steps)

    def volume(self, target: str, user: int, mode: str = "0755") -> None:
        """Make an empty place at ``target`` that ``user`` may write to."""
        place = f"{self.root}{target}"
        options = f"mode={mode},uid={user},gid={user}"
        # What is kept and lies there, in a checkout under /tmp, is shown again on top.
        again = [
            f"mkdir -p {self.root}{path} && mount --rbind {path} {self.root}{path}"
            for path in self._keep
            if path.is_relative_to(target)
        ]
        steps = [f"mkdir -p {place}", f"mount -t tmpfs -o {options} none {place}", *again]
        self._shell(" && ".join(steps))

    def bind(self, source: Path, target: str) -> None:
        """Show a file or directory of this machine at ``target``, read-only."""
        place = f"{self.root}{target}"
        make = f"mkdir -p {place}" if source.is_dir() else f"touch {place}"
        self._shell(
            f"mkdir -p {Path(place).parent} && {make} && mount --bind {source} {place} "
            f"&& mount -o remount,bind,ro {place}"
        )

    def seal(self) -> None:
        """From now on nothing can be written but to volumes."""
        self._shell(f"mount -o remount,ro {self.root}")

    def start(
        self, command: Sequence[str], env: Mapping[str, str], user: int, log: Path
    ) -> subprocess.Popen[bytes]:
        """Start a process as an unprivileged user, as a hardened container does."""
        with log.open("ab") as file:
            return subprocess.Popen(
                [*self._enter(), *_unprivileged(user), *command], env=dict(env),
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def run(
        self, command: Sequence[str], env: Mapping[str, str], user: int, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a process to its end."""
        return subprocess.run(
            [*self._enter(), *_unprivileged(user), *command], env=dict(env),
            capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip

    def outside(self, path: str) -> Path:
        """Return where a path of it is found from this machine."""
        return Path(f"/proc/{self._pid}/root{self.root}{path}")

    def build(
        self, script: str, env: Mapping[str, str], place: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a script as root in the directory ``place``, as an image is built."""
        return subprocess.run(
            [*self._enter(), "sh", "-ec", f"cd {place}\n{script}"], env=dict(env),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip

    def close(self) -> None:
        """End every process in it, and take its mounts away."""
        assert self._init.stdin is not None
        self._init.stdin.close()
        self._init.wait(30)
        for pipe in (self._init.stdout, self._init.stderr):
            assert pipe is not None
            pipe.close()

    def _shell(self, script: str) -> None:
        command = ["nsenter", "--target", str(self._pid), "--mount", "sh", "-ec", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"

    def _enter(self) -> list[str]:
        # By way of its first process: only in its namespace the directory is what it is there.
        root = f"/proc/{self._pid}/root{self.root}"
        place = [f"--root={root}", f"--wd={root}"]
        return ["nsenter", "--target", str(self._pid), *self._spaces, *place]


def _unprivileged(user: int) -> list[str]:
    ids = ["--reuid", str(user), "--regid", str(user), "--clear-groups"]
    return ["setpriv", *ids, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]


def interpreter_directories(repository: Path) -> list[Path]:
    """Return what a Python of the repository's virtual environment needs to run."""
    return sorted({repository, Path(sys.prefix), Path(sys.base_prefix)})
