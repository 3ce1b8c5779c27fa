"""Rules as YAML that is read by people, too: one style, the same bytes every time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def to_yaml(value: Mapping[str, Any], heading: str) -> str:
    """Return ``value`` as YAML below a comment.

    Args:
        value: dictionaries, lists and texts only.
        heading: lines of the comment.
    """
    lines = [f"# {line}".rstrip() for line in heading.splitlines()]
    return "\n".join([*lines, *_mapping(value, 0)]) + "\n"


def _mapping(value: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, inner in value.items():
        yield from _entry(f"{'  ' * depth}{key}:", inner, depth)


def _entry(head: str, value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield head
        yield from _mapping(value, depth + 1)
    elif isinstance(value, str):
        yield from _text(head, value, depth + 1)
    else:
        yield head
        yield from _sequence(value, depth + 1)


def _sequence(values: Sequence[Any], depth: int) -> Iterator[str]:
    for value in values:
        if isinstance(value, Mapping):
            first, *rest = _mapping(value, depth + 1)
            yield f"{'  ' * depth}- {first.lstrip()}"
            yield from rest
        else:
            yield from _text(f"{'  ' * depth}-", str(value), depth + 1)


def _text(head: str, value: str, depth: int) -> Iterator[str]:
    if "\n" not in value:
        yield f"{head} {_quoted(value)}"
        return
    yield f"{head} |-"
    for line in value.splitlines():
        yield f"{'  ' * depth}{line}".rstrip()


def _quoted(value: str) -> str:
    # A JSON string is a YAML string; single quotes spare the backslashes that many quotes need.
    if '"' in value and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value, ensure_ascii=False)
