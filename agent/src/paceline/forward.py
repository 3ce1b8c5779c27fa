"""The wrappers round a model's forward, which torch.compile must be able to trace through.

They are alone, outside of ``hooks``: all in there is hidden from the compiler (``hooks/agent.py``),
and a hidden function within a model that is compiled with ``fullgraph=True`` would be an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def wrap_forward(
    original: Callable[..., Any],
    is_compiling: Callable[[], bool],
    begin: Callable[[], object],
    end: Callable[[], object],
) -> Callable[..., Any]:
    """Return ``original`` with ``begin`` and ``end`` round it, and as it was when traced."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        begin()
        try:
            return original(*args, **kwargs)
        finally:
            end()

    return forward


def wrap_look(
    original: Callable[..., Any],
    is_compiling: Callable[[], bool],
    before: Callable[[Any], bool],
    after: Callable[[Any, bool], object],
) -> Callable[..., Any]:
    """Return ``original``, after which ``after`` is told what ``before`` said of its module."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        said = before(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            after(self, said)

    return forward
