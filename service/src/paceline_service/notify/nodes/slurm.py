"""Draining a node of Slurm with ``scontrol``: as a list of arguments, never through a shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from paceline.errors import ConfigError
from paceline_service.notify.message import Facts
from paceline_service.notify.nodes.outcome import Outcome
from paceline_service.notify.nodes.proposals import is_node_name, reason_of

TIMEOUT_S = 20.0
MAX_WORDS = 300
_KEPT = ("PATH", "SLURM_CONF", "LD_LIBRARY_PATH", "HOME", "USER", "KRB5CCNAME")
"""Of the environment; the secrets of the collector are not among it."""
_STATE = re.compile(r"\bState=(\S+)")
_OUT_OF_SERVICE = re.compile(r"DRAIN|DOWN|FAIL|MAINT")


class Slurm:
    """Runs ``scontrol``; it blocks.

    Args:
        program: its name or path.

    Raises:
        ConfigError: there is no such program.
    """

    def __init__(self, program: str) -> None:
        found = shutil.which(program)
        if found is None:
            raise ConfigError(
                f"PACELINE_SERVE_ACTIONS_SCONTROL: there is no program {program!r}; give its path, "
                "or leave slurm-drain out of PACELINE_SERVE_ACTIONS_ALLOW"
            )
        self._program = found

    def drain(self, request: dict[str, Any]) -> Outcome:
        """Drain the node of a request, unless it is out of service already."""
        node, arguments = request["node"], request["arguments"]
        shown = self._run(["show", "node", node, "--oneliner"])
        if shown is None or shown.returncode:
            return _failed("scontrol show node", shown)
        state = _STATE.search(shown.stdout)
        if state is not None and _OUT_OF_SERVICE.search(state.group(1)):
            return Outcome(done=True, words=f"nothing to do: its state is {state.group(1)[:80]}")
        done = self._run(arguments)
        if done is None or done.returncode:
            return _failed("scontrol update", done)
        return Outcome(done=True, words="drained")

    def _run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            return subprocess.run(
                [self._program, *arguments], env=environment, stdin=subprocess.DEVNULL,
                capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT_S,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None


def drain_request(facts: Facts, node: str) -> dict[str, Any]:
    """Return what is run to drain a node; it is what is written down, too."""
    assert is_node_name(node), "the policy lets no other name through"
    reason = reason_of(facts.id, facts.cause)
    arguments = ["update", f"nodename={node}", "state=drain", f"reason={reason}"]
    return {"program": "scontrol", "node": node, "arguments": arguments}


def _failed(what: str, done: subprocess.CompletedProcess[str] | None) -> Outcome:
    if done is None:
        return Outcome(done=False, words=f"{what} cannot be run, or takes too long", again=True)
    said = " ".join((done.stderr or done.stdout).split())[:MAX_WORDS]
    return Outcome(done=False, words=f"{what} ends with {done.returncode}: {said}", again=True)
