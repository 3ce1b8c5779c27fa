"""Draw the pictures of docs/models.md again: each by the command that stands above it.

``python -m tools.model_pictures [NAME...]``; without names all of them.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "models.md"
_COMMAND = re.compile(r"^    paceline ((?:plan|simulate) [^|>]+)$")
_PICTURE = re.compile(r"^!\[[^\]]*\]\((img/models/([a-z-]+)\.png)\)$")


def commands(page: str) -> Iterator[list[str]]:
    """Yield the arguments of every command of models that stands in a line of its own."""
    for line in page.splitlines():
        found = _COMMAND.match(line)
        if found:
            yield shlex.split(found[1])


def pictures(page: str) -> Iterator[tuple[str, Path, list[str]]]:
    """Yield each picture: its name, its file, and the arguments that draw it."""
    last: list[str] = []
    for line in page.splitlines():
        found = _COMMAND.match(line)
        if found:
            last = shlex.split(found[1])
        picture = _PICTURE.match(line)
        if picture:
            yield picture[2], DOCS / picture[1], last


def main(names: Sequence[str]) -> int:
    """Draw those of ``names``, or all."""
    for name, path, arguments in pictures(PAGE.read_text(encoding="utf-8")):
        if names and name not in names:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        paceline = Path(sys.executable).with_name("paceline")
        subprocess.run([paceline, *arguments, "--png", path], check=True, stdout=subprocess.DEVNULL)
        print(f"{path.relative_to(DOCS.parent)}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
