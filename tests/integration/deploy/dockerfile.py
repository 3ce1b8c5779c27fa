"""What an image of deploy/images starts, read from its Dockerfile."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True, kw_only=True)
class Image:
    """The last stage of a Dockerfile."""

    base: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    healthcheck: list[str] | None = None
    own_directories: list[str] = field(default_factory=list)
    """Made for its user with ``install -d -o``."""


def instructions(path: Path) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile: their word, and what follows it."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [
        (word, rest.strip())
        for line in joined.splitlines()
        if line.strip()
        for word, _, rest in [line.strip().partition(" ")]
    ]


def read_image(path: Path) -> Image:
    """Return what the image does when it is started."""
    arguments: dict[str, str] = {}
    image = Image()
    for word, rest in instructions(path):
        if word == "ARG":
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif word == "FROM":
            base = rest.split()[0]
            image = Image(base=arguments.get(base.strip("${}"), base))
        elif word == "ENV":
            for part in shlex.split(rest):
                name, _, value = part.partition("=")
                image.environment[name] = value
        elif word == "USER":
            image.user = rest
        elif word == "ENTRYPOINT":
            image.entrypoint = json.loads(rest)
        elif word == "CMD":
            image.command = json.loads(rest)
        elif word == "HEALTHCHECK":
            image.healthcheck = json.loads(rest[rest.index(" CMD ") + len(" CMD ") :])
        elif word == "RUN":
            for found in re.findall(r"install -d -o \d+ -m 0700((?: /\S+)+)", rest):
                image.own_directories += found.split()
    return image
