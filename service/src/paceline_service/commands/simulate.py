"""``paceline simulate``: how ranks that are not equally fast wait for each other, by the model."""

from __future__ import annotations

from collections.abc import Sequence

from paceline_service.commands.sub_commands import SubCommand, run_sub_command

_HERE = "paceline_service.commands"
_ABOUT = "How ranks wait for each other, by the model alone: nothing is measured or started."
app: dict[str, SubCommand] = {
    "bsp": SubCommand(
        f"{_HERE}.simulate_bsp", "simulate_bsp", "every rank waits for the last one in each step"
    ),
    "ssp": SubCommand(
        f"{_HERE}.simulate_ssp", "simulate_ssp", "stale-synchronous, asynchronous, local steps"
    ),
    "tax": SubCommand(
        f"{_HERE}.simulate_tax", "simulate_tax", "what one slow rank, and mere chance, cost"
    ),
    "overlap": SubCommand(
        f"{_HERE}.simulate_overlap", "simulate_overlap", "one backward pass, bucket by bucket"
    ),
    "exact": SubCommand(
        f"{_HERE}.simulate_exact", "simulate_exact", "that K ranks train as one machine does"
    ),
}
"""The sub-commands; each line names a module that is imported when it is called."""


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_sub_command("simulate", _ABOUT, app, argv)
