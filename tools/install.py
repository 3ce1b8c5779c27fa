"""Make `.venv` at the repository's root and install Paceline into it; quick when nothing changed.

Standard library only: it runs before anything is installed. Start it through
tools/bootstrap.py, which checks the machine first.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "paceline-setup"
LOG = VENV / "setup.log"
PYTHON = VENV / "bin" / "python"

TORCH = "torch==2.13.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INPUTS = (
    "agent/pyproject.toml",
    "agent/hatch_build.py",
    "agent/paceline_inject.pth",
    "agent/src/paceline/plugin/compile.py",
    "service/pyproject.toml",
    "dashboards/pyproject.toml",
    "constraints.txt",
    "requirements-dev.txt",
    "tools/install.py",
)
OFFLINE_SIGNS = (
    "Temporary failure in name resolution",
    "Name or service not known",
    "Failed to establish a new connection",
    "Network is unreachable",
    "Connection refused",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
)


class SetupError(Exception):
    """A step of the set-up failed; the message says what to do."""


def fingerprint() -> str:
    """Return a hash of all that decides what `.venv` holds, its place and its Python included."""
    digest = hashlib.sha256(f"{ROOT}\n{venv_home()}\n".encode())
    # What the installation compiles decides too: an older library would not be used.
    compiled = sorted((ROOT / "agent/src/paceline/plugin").glob("*.[ch]"))
    for name in (*INPUTS, *(str(path.relative_to(ROOT)) for path in compiled)):
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return digest.hexdigest()


def venv_home() -> str:
    """Return the directory and version of the Python that `.venv` was made from, or ''."""
    try:
        lines = (VENV / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    facts = dict(line.split(" = ", 1) for line in lines if " = " in line)
    return f"{facts.get('home', '')} {facts.get('version', '')}"


def is_up_to_date() -> bool:
    """Say whether the last set-up ended well and nothing that it depends on changed since."""
    try:
        return PYTHON.exists() and STAMP.read_text(encoding="utf-8") == fingerprint()
    except OSError:
        return False


def run_logged(command: Sequence[str]) -> bool:
    """Run ``command`` with its output appended to the log; return whether it succeeded."""
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"\n$ {' '.join(command)}\n")
        log.flush()
        return (
            subprocess.run(command, stdout=log, stderr=log, cwd=ROOT, check=False).returncode == 0
        )


def pip_install(*arguments: str) -> bool:
    """Run `pip install` in `.venv`, quietly; return whether it succeeded."""
    flags = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off")
    return run_logged((str(PYTHON), "-m", "pip", "install", *flags, *arguments))


def installed_torch() -> bool:
    """Say whether `.venv` already holds the torch that is wanted, of whatever build."""
    version = TORCH.split("==")[1]
    found = VENV.glob(f"lib/python3.*/site-packages/torch-{version}*.dist-info")
    return any(re.match(rf"torch-{re.escape(version)}[.+]", path.name) for path in found)


def make_venv(chosen: bool) -> None:
    """Create `.venv`, or keep a usable one.

    Args:
        chosen: the caller named the Python; a `.venv` of another version is then made anew.
    """
    version = ".".join(map(str, sys.version_info[:2]))
    usable = PYTHON.exists() and run_quietly((str(PYTHON), "-c", "import pip"))
    moved = usable and not _is_here()
    if usable and not moved and not (chosen and _venv_version() != version):
        return
    say(f"making .venv with Python {sys.version.split()[0]}")
    command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(
            f"python -m venv failed: {_last_line(done.stdout + done.stderr)}\n"
            "Debian, Ubuntu: apt-get install python3-venv"
        )


def _is_here() -> bool:
    """Say whether `.venv` was made in this place: its scripts do not survive a move."""
    try:
        return str(VENV) in (VENV / "bin" / "activate").read_text(encoding="utf-8")
    except OSError:
        return False


def _venv_version() -> str:
    found = sorted((VENV / "lib").glob("python3.*"))
    return found[0].name[len("python") :] if found else ""


def run_quietly(command: Sequence[str]) -> bool:
    """Run ``command`` and return whether it succeeded; its output is dropped."""
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    return done.returncode == 0


def install_torch() -> None:
    """Install torch first and alone, from the first of three places that has it.

    A plain install on Linux brings 2.7 GB of CUDA libraries, so a wheel that pip is configured
    to find locally comes first, then PyTorch's index of CPU builds, then the default index.
    """
    if installed_torch():
        return
    say(f"installing {TORCH.replace('==', ' ')} (CPU)")
    if pip_install("--no-index", "--no-deps", TORCH):
        return
    cpu_index = ("--index-url", TORCH_CPU_INDEX, "--retries", "0", "--timeout", "15")
    if pip_install("--no-deps", *cpu_index, TORCH):
        return
    say("PyTorch's CPU index cannot be reached; trying pip's own index (up to 2.7 GB on Linux)")
    if not pip_install("--retries", "1", TORCH):
        raise SetupError(failure_advice(TORCH))


def install_paceline() -> None:
    """Install the three distributions, editable, with everything that builds and tests them."""
    say("installing Paceline and its tools")
    distributions = ("agent", "service[nats,oidc,postgresql]", "dashboards")
    editable = [part for name in distributions for part in ("-e", f"./{name}")]
    arguments = ["-c", "constraints.txt", "-r", "requirements-dev.txt", *editable, TORCH]
    if not pip_install(*arguments):
        raise SetupError(failure_advice("Paceline's requirements"))


def failure_advice(what: str) -> str:
    """Return what went wrong while ``what`` was installed, and what to do about it."""
    text = LOG.read_text(encoding="utf-8", errors="replace").rpartition("\n$ ")[2]
    where = f"The whole output is in {LOG.relative_to(ROOT)}."
    if any(sign in text for sign in OFFLINE_SIGNS):
        return (
            f"{what} could not be installed: no package index can be reached.\n"
            "Connect this machine to the network (or set HTTPS_PROXY), or point pip at a mirror or "
            f"at a directory of wheels: pip config set global.find-links DIRECTORY. {where}"
        )
    if "No space left on device" in text:
        return f"{what} could not be installed: the disk is full. {where}"
    return f"{what} could not be installed: {_last_error(text)} {where}"


def _last_error(log: str) -> str:
    errors = [line for line in log.splitlines() if line.startswith("ERROR:") and "://" not in line]
    message = errors[-1][len("ERROR:") :].strip() if errors else "pip failed"
    if message.startswith("No matching distribution"):
        message += ": pip's index has no build of it for this Python and system"
    return message.rstrip(".") + "."


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"


_started_s = time.monotonic()


def say(text: str) -> None:
    """Print one line of progress, with the seconds since the start."""
    print(f"[{time.monotonic() - _started_s:4.0f} s] {text}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Set up `.venv`; return 0, or 2 after saying what failed."""
    parser = argparse.ArgumentParser(prog="make setup", description=__doc__)
    parser.add_argument("--chosen", action="store_true", help="this Python was named by the user")
    options = parser.parse_args(arguments)
    wrong_python = options.chosen and _venv_version() != ".".join(map(str, sys.version_info[:2]))
    if is_up_to_date() and not wrong_python:
        return 0
    try:
        make_venv(options.chosen)
        STAMP.unlink(missing_ok=True)
        LOG.write_text("", encoding="utf-8")
        install_torch()
        install_paceline()
        STAMP.write_text(fingerprint(), encoding="utf-8")
    except SetupError as error:
        print(f"\nPaceline could not be set up.\n{error}", file=sys.stderr)
        return 2
    say("ready: .venv/bin/paceline")
    return 0
