"""``dataclass`` for programs that must start fast; use it like the one of ``dataclasses``.

That one compiles up to eight functions for every class, 0.4 ms, and an answer of a quarter of a
second declares a hundred classes. Here all classes share functions that go by the list of their
fields, and only ``__init__`` is compiled, when the first object is made. ``field``, ``replace``,
``fields`` and ``asdict`` of ``dataclasses`` work as usual. Without annotations as text
(``from __future__ import annotations``), or with an option that is not known here, a class gets the
original (docs/adr/0078).
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass

_FIELD = getattr(dataclasses, "_FIELD", None)
"""The mark of a plain field, private to the original; without it the original does everything."""
_KNOWN = frozenset({"frozen", "slots", "kw_only", "eq"})
_DEFAULT, _FACTORY = "_default_", "_factory_"


def _dataclass(cls: type | None = None, /, **options: bool) -> Any:
    if cls is None:
        return lambda cls: _dataclass(cls, **options)
    own = _own_fields(cls, kw_only=options.get("kw_only", False))
    if own is None or not options.get("slots") or not options.keys() <= _KNOWN:
        return dataclasses.dataclass(**options)(cls)
    return _made(cls, own, frozen=options.get("frozen", False), eq=options.get("eq", True))


if not TYPE_CHECKING:
    dataclass = _dataclass


class _Params:
    """What ``dataclasses`` asks of a class that one of its own inherits from."""

    def __init__(self, *, frozen: bool) -> None:
        self.frozen = frozen


def _own_fields(cls: type, *, kw_only: bool) -> dict[str, dataclasses.Field[Any]] | None:
    """Return the fields that a class declares; None where that is not understood here."""
    if _FIELD is None:
        return None
    found: dict[str, dataclasses.Field[Any]] = {}
    for name, kind in cls.__annotations__.items():
        if not isinstance(kind, str) or "InitVar" in kind or "KW_ONLY" in kind:
            return None
        if kind.startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = cls.__dict__.get(name, dataclasses.MISSING)
        one = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
        if one.default.__class__.__hash__ is None:
            return None  # the original tells what is wrong with it
        one.name, one.type = name, kind
        one._field_type = _FIELD  # type: ignore[union-attr]
        if one.kw_only is dataclasses.MISSING:
            one.kw_only = kw_only
        found[name] = one
    return found


def _made(cls: type, own: dict[str, dataclasses.Field[Any]], *, frozen: bool, eq: bool) -> type:
    """Return the class with slots and methods; it is made anew, as slots ask for."""
    fields: dict[str, dataclasses.Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        fields |= getattr(base, "__dataclass_fields__", {})
    written = cls.__dict__
    content = {name: value for name, value in written.items() if name not in own}
    content["__slots__"] = tuple(name for name in own if name not in fields)
    fields |= own
    content["__dataclass_fields__"] = fields
    content["__dataclass_params__"] = _Params(frozen=frozen)
    compared = [name for name, one in fields.items() if one.compare]
    content["_compared"] = attrgetter(*compared) if compared else _Nothing()
    content["__match_args__"] = tuple(n for n, f in fields.items() if f.init and not f.kw_only)
    methods: dict[str, Any] = {"__repr__": _repr}
    if eq:
        methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
    if frozen:
        methods |= {"__setattr__": _no_setattr, "__delattr__": _no_delattr,
                    "__getstate__": _state, "__setstate__": _set_state}  # fmt: skip
    for name, method in methods.items():
        # A class with an ``__eq__`` of its own got ``__hash__ = None`` from Python.
        if name not in written or (name == "__hash__" and written[name] is None):
            content[name] = method
    for name in ("__dict__", "__weakref__"):
        content.pop(name, None)
    made = type(cls)(cls.__name__, cls.__bases__, content)
    made.__qualname__ = cls.__qualname__
    if "__init__" not in written:
        _init_when_needed(made, frozen=frozen)
    return made


def _init_when_needed(cls: Any, *, frozen: bool) -> None:
    """Give a class an ``__init__`` that puts a compiled one in its place when it is called."""

    def first_init(self: Any, /, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _compiled_init(cls, frozen=frozen)
        cls.__init__(self, *args, **kwargs)

    cls.__init__ = first_init


def _compiled_init(cls: Any, *, frozen: bool) -> Any:
    places: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    plain: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for name, one in cls.__dataclass_fields__.items():
        has_factory = one.default_factory is not dataclasses.MISSING
        has_default = one.default is not dataclasses.MISSING
        places[_DEFAULT + name], places[_FACTORY + name] = one.default, one.default_factory
        value = name
        if one.init:
            default = f"={_DEFAULT}{name}" if has_default else "=_missing" if has_factory else ""
            (by_name if one.kw_only else plain).append(name + default)
            if has_factory:
                value = f"{_FACTORY}{name}() if {name} is _missing else {name}"
        elif has_factory:
            value = f"{_FACTORY}{name}()"
        elif has_default:
            value = _DEFAULT + name
        else:
            continue
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    words = ", ".join(["self", *plain, *(["*", *by_name] if by_name else [])])
    code = f"def __init__({words}):\n " + "\n ".join(body or ["pass"])
    exec(code, places)
    made = places["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    return made


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = self.__class__._compared
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(self.__class__._compared(self))


class _Nothing:
    """Takes the place of an ``attrgetter`` of no attribute."""

    def __call__(self, of: object) -> tuple[()]:
        return ()


def _repr(self: Any) -> str:
    shown = (
        f"{n}={getattr(self, n)!r}" for n, one in self.__dataclass_fields__.items() if one.repr
    )
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _no_setattr(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)
