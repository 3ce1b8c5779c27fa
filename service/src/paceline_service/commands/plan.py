"""``paceline plan``: what a step should cost, from the machine's numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

from paceline_service.commands.sub_commands import SubCommand, run_sub_command

_ABOUT = (
    "What a training step should cost, by the arithmetic alone: nothing is measured or started."
)
_HERE = "paceline_service.commands"
app: dict[str, SubCommand] = {
    "gamma": SubCommand(
        f"{_HERE}.plan_gamma", "plan_gamma", "Communication over compute: would more ranks help?"
    ),
    "collectives": SubCommand(
        f"{_HERE}.plan_collectives", "plan_collectives", "Which algorithm is cheapest at which size"
    ),
    "step": SubCommand(
        f"{_HERE}.plan_step",
        "plan_step",
        "What a step takes: compute, exposed communication, bubble",
    ),
    "memory": SubCommand(
        f"{_HERE}.plan_memory",
        "plan_memory",
        "What a rank holds and sends by strategy; does it fit?",
    ),
    "overlap": SubCommand(
        f"{_HERE}.plan_overlap", "plan_overlap", "What buckets hide of an all-reduce"
    ),
}
"""The sub-commands; each line names a module that is imported when it is called."""


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_sub_command("plan", _ABOUT, app, argv)
