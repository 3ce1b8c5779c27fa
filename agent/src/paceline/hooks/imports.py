"""Calls back when a module has been imported, without importing it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]


class PostImportFinder:
    """A meta-path finder that finds nothing itself and watches the loading of a few modules."""

    def __init__(self) -> None:
        self._wanted: dict[str, list[Callback]] = {}
        self._asking = threading.local()

    def when_imported(self, name: str, callback: Callback) -> None:
        """Call ``callback(module)`` now if ``name`` is imported, else right after it will be."""
        module = sys.modules.get(name)
        if module is not None and not _still_loading(module):
            callback(module)
            return
        self._wanted.setdefault(name, []).append(callback)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def forget(self) -> None:
        """Stop watching."""
        self._wanted.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> Any:
        """Give the spec that the other finders give, its loader wrapped; None for all others."""
        # Another finder that asks all the others, of ours or not, asks this one too.
        if name not in self._wanted or getattr(self._asking, "name", None) == name:
            return None
        self._asking.name, before = name, getattr(self._asking, "name", None)
        try:
            for finder in sys.meta_path:
                if finder is self or not hasattr(finder, "find_spec"):
                    continue
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _NotifyingLoader(spec.loader, self._loaded)  # type: ignore[assignment]
                    return spec
            return None
        finally:
            self._asking.name = before

    def _loaded(self, module: ModuleType) -> None:
        for callback in self._wanted.pop(module.__name__, ()):
            callback(module)


class _NotifyingLoader:
    """The loader it wraps, and a call after the module ran."""

    def __init__(self, loader: Any, notify: Callback) -> None:
        self._loader = loader
        self._notify = notify

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps no trace of us.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        try:
            self._notify(module)
        except Exception:  # the import of torch must not fail for our sake
            import logging

            logging.getLogger("paceline").warning(
                "cannot instrument %s; the job runs on without", module.__name__, exc_info=True
            )


def _still_loading(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
