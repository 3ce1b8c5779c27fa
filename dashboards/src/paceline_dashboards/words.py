"""What numbers stand for in panels: verdicts, lanes, colours.

Colour never speaks alone: every state is written in words beside it.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

NEUTRAL, GOOD, WARNING, BAD = "text", "green", "orange", "red"
QUIET = "#8ab8ff"
"""Of ranks that nobody names."""
NAMED = "#ff780a"
"""Of ranks that a finding names; they are drawn thicker, too."""
COMPUTE, STANDS, TRANSFER = "#3274d9", "#ffb357", "#9fa7b3"
"""Dark, bright and grey: told apart without seeing red or green."""

VERDICTS: tuple[tuple[str, str], ...] = (
    ("healthy", GOOD),
    ("insufficient_evidence", "#9fa7b3"),
    ("uniform_slowdown", "#ffcb7d"),
    ("imbalance", "#ffb357"),
    ("stage_imbalance", "#ff9830"),
    ("communication_bound", "#b877d9"),
    ("communication", "#8f3bb8"),
    ("straggler", "#ff780a"),
    ("desync", "#e02f44"),
    ("hang", "#c4162a"),
)
"""Every verdict, the number it has in panels (its place), and its colour."""
GAP_PARTS: tuple[tuple[str, str], ...] = (
    ("straggler", "#ff780a"),
    ("imbalance", "#ffb357"),
    ("slowdown", "#ffcb7d"),
    ("network", "#8f3bb8"),
    ("host", COMPUTE),
    ("unexplained", "#9fa7b3"),
)
"""What the observed step is longer by, in the colours of the verdicts."""
LANES: tuple[tuple[str, str], ...] = (
    ("works", COMPUTE),
    ("stands", STANDS),
    ("transfers", TRANSFER),
)
"""What a rank does in a lane; the number is the place."""


def value_mappings(names: tuple[tuple[str, str], ...]) -> list[Json]:
    """Return mappings from numbers to words with their colours."""
    options = {
        str(code): {"text": name.replace("_", " "), "color": colour, "index": code}
        for code, (name, colour) in enumerate(names)
    }
    return [{"type": "value", "options": options}]


def goes_on(colour: str) -> list[Json]:
    """Return the mapping of a gauge that is 1 while something goes on."""
    options = {
        "1": {"text": "yes", "color": colour, "index": 0},
        "0": {"text": "no", "color": "transparent", "index": 1},
    }
    return [{"type": "value", "options": options}]
