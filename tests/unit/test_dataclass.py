"""A class of ``paceline.dataclass`` is one of ``dataclasses``, made faster."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import ClassVar

import pytest

from paceline.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """Has one of everything."""

    limit: ClassVar[int] = 3
    name: str
    count: int = 2
    found: list[int] = field(default_factory=list)
    aside: str = field(default="x", compare=False, repr=False)

    @property
    def doubled(self) -> int:
        return 2 * self.count


@dataclass(slots=True)
class Changing:
    """Has a field that is not given, and something to do at the end."""

    total: int
    factor: int = 3
    product: int = field(init=False)
    seen: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.product = self.total * self.factor


@dataclass(slots=True)
class Longer(Changing):
    """Has a field more."""

    unit: str = "s"


@dataclass(slots=True, eq=False)
class Itself:
    """Is equal to nothing else."""

    value: int = 0


def test_fields_have_values_and_defaults_of_their_own() -> None:
    one, other = Frozen(name="a"), Frozen(name="a")
    assert (one.name, one.count, one.found, one.doubled) == ("a", 2, [], 4)
    assert one.found is not other.found
    assert not hasattr(one, "__dict__")
    assert Frozen.limit == 3


@pytest.mark.parametrize("given", [{}, {"name": "a", "more": 1}])
def test_a_field_too_few_or_too_many_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        Frozen(**given)  # type: ignore[arg-type]


def test_fields_by_name_are_not_taken_by_position() -> None:
    with pytest.raises(TypeError):
        Frozen("a")  # type: ignore[misc]
    assert Changing(4, 5).product == 20


def test_what_is_frozen_cannot_be_changed() -> None:
    one = Frozen(name="a")
    with pytest.raises(FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del one.name
    changing = Changing(1)
    changing.total = 7
    assert changing.total == 7


def test_objects_are_equal_when_what_counts_is() -> None:
    assert Frozen(name="a", aside="y") == Frozen(name="a")
    assert Frozen(name="a") != Frozen(name="b")
    assert Frozen(name="a") != "a"
    assert Changing(1) == Changing(1)
    assert Itself() != Itself()


def test_what_is_frozen_has_a_hash_and_what_changes_has_none() -> None:
    one = Frozen(name="a", found=())  # type: ignore[arg-type]
    assert hash(one) == hash(replace(one, aside="y"))
    with pytest.raises(TypeError):
        hash(Changing(1))
    assert len({Itself(), Itself()}) == 2


def test_the_functions_of_dataclasses_know_it() -> None:
    one = replace(Frozen(name="a"), count=5)
    assert dataclasses.asdict(one) == {"name": "a", "count": 5, "found": [], "aside": "x"}
    assert [f.name for f in fields(Longer)] == ["total", "factor", "product", "seen", "unit"]
    assert dataclasses.is_dataclass(Longer)
    assert Longer.__match_args__ == ("total", "factor", "unit")


def test_a_class_inherits_fields_and_what_comes_after() -> None:
    one = Longer(2, unit="ms")
    assert (one.total, one.product, one.unit, one.seen) == (2, 6, "ms", {})


def test_the_original_inherits_from_it() -> None:
    @dataclasses.dataclass(frozen=True)
    class Child(Frozen):
        more: int = dataclasses.field(default=1, kw_only=True)

    assert (Child(name="a").more, Child(name="a").count) == (1, 2)


def test_it_is_shown_copied_and_pickled() -> None:
    one = Frozen(name="a")
    assert repr(one) == "Frozen(name='a', count=2, found=[])"
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
    assert pickle.loads(pickle.dumps(Changing(3))) == Changing(3)


def test_what_it_does_not_know_is_left_to_the_original() -> None:
    @dataclass(order=True)
    class Ordered:
        value: int

    assert Ordered(1) < Ordered(2)
    with pytest.raises(ValueError, match="mutable default"):

        @dataclass(slots=True)
        class Wrong:
            found: list[int] = []  # noqa: RUF012
