"""docker-compose.yml as compose reads it: variables put in, what others need first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_VARIABLE = re.compile(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}|\$\$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service: what of it decides how its process is started."""

    name: str
    image: str
    dockerfile: Path | None
    user: str
    environment: dict[str, str]
    command: list[str] | None
    healthcheck: list[str] | None
    """The command that says whether it is healthy; None: the image's."""
    volumes: list[tuple[str, str]]
    """Source and target: a path (``./x``), or the name of a volume."""
    tmpfs: list[str]
    secrets: dict[str, Path]
    needs: dict[str, str]
    """Service -> condition."""
    profiles: list[str]


def read_compose(repository: Path, variables: Mapping[str, str]) -> dict[str, Service]:
    """Return the services of the file, those that others need first."""
    text = (repository / "docker-compose.yml").read_text(encoding="utf-8")
    document = _interpolate(yaml.safe_load(text), variables)
    found = {
        name: _service(name, one, document["secrets"], repository)
        for name, one in document["services"].items()
    }
    ordered: dict[str, Service] = {}
    while len(ordered) < len(found):
        ready = [
            s for s in found.values() if s.name not in ordered and set(s.needs) <= set(ordered)
        ]
        assert ready, "services need each other in a circle"
        ordered.update({service.name: service for service in ready})
    return ordered


def _service(name: str, one: dict[str, Any], secrets: Any, repository: Path) -> Service:
    needs = one.get("depends_on", {})
    build = one.get("build")
    return Service(
        name=name,
        image=one["image"],
        dockerfile=repository / build["dockerfile"] if build else None,
        user=str(one.get("user", "")),
        environment={key: str(value) for key, value in one.get("environment", {}).items()},
        command=one.get("command"),
        healthcheck=one["healthcheck"]["test"][1:] if "healthcheck" in one else None,
        volumes=[tuple(volume.split(":")[:2]) for volume in one.get("volumes", [])],
        tmpfs=one.get("tmpfs", []),
        secrets={key: repository / secrets[key]["file"] for key in one.get("secrets", [])},
        needs=needs
        if isinstance(needs, list) and not needs
        else dict.fromkeys(needs, "service_started")
        if isinstance(needs, list)
        else {key: value["condition"] for key, value in needs.items()},
        profiles=one.get("profiles", []),
    )


def _interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolate(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_interpolate(item, variables) for item in value]
    if not isinstance(value, str):
        return value

    def put_in(found: re.Match[str]) -> str:
        name, operator, word = found.groups()
        if name is None:
            return "$"
        if variables.get(name):
            return variables[name]
        assert operator == ":-", f"{name} is not set: {word or found[0]}"
        return word or ""

    return _VARIABLE.sub(put_in, value)
