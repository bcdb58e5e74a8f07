"""Our dataclasses against the standard ones."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field, fields, replace
from typing import Any

import pytest

from indexical import records
from indexical.ir import build
from indexical.source import Source, Span


def classes(dataclass: Any) -> list[Any]:
    @dataclass(frozen=True, slots=True)
    class Point:
        """Two numbers, and where they stand."""

        x: int
        y: int = field(default=2, hash=False)
        place: str = field(default="", compare=False, repr=False)
        found: int | None = field(default=None, init=False, compare=False, repr=False)

    @dataclass
    class Bag:
        items: list[int] = field(default_factory=list)
        total: int = field(init=False)
        name: str = field(kw_only=True, default="bag")

        def __post_init__(self) -> None:
            self.total = sum(self.items)

    @dataclass(frozen=True, slots=True)
    class Named(Point):
        name: str = "n"

        def __repr__(self) -> str:
            return self.name

    @dataclass(frozen=True, eq=False)
    class Alone:
        key: int

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    return [Point, Bag, Named, Alone, Empty]


OURS, THEIRS = classes(records.dataclass), classes(dataclasses.dataclass)
MADE = [
    lambda Point, Bag, Named, Alone, Empty: Point(1),
    lambda Point, Bag, Named, Alone, Empty: Point(1, y=3, place="here"),
    lambda Point, Bag, Named, Alone, Empty: replace(Point(1), x=2, place="there"),
    lambda Point, Bag, Named, Alone, Empty: Bag(),
    lambda Point, Bag, Named, Alone, Empty: Bag([1, 2], name="full"),
    lambda Point, Bag, Named, Alone, Empty: replace(Bag([1, 2]), items=[3]),
    lambda Point, Bag, Named, Alone, Empty: Named(1, 2, "p", "q"),
    lambda Point, Bag, Named, Alone, Empty: Empty(),
]


@pytest.mark.parametrize("make", MADE)
def test_what_is_made_shows_and_holds_the_same(make: Any) -> None:
    ours, theirs = make(*OURS), make(*THEIRS)
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert ours.__match_args__ == theirs.__match_args__
    assert [f.name for f in fields(ours)] == [f.name for f in fields(theirs)]
    assert hasattr(ours, "__dict__") == hasattr(theirs, "__dict__")


@pytest.mark.parametrize("kinds", [OURS, THEIRS], ids=["ours", "theirs"])
def test_equality_and_hash(kinds: list[Any]) -> None:
    Point, Bag, Named, Alone, Empty = kinds
    assert Point(1, 2, "a") == Point(1, 2, "b") != Point(1, 3, "a")
    assert hash(Point(1, 2, "a")) == hash(Point(1, 3, "b")) != hash(Point(2))
    assert Point(1) != Named(1)
    assert Point(1) != (1, 2)
    assert Bag([1]) == Bag([1])
    assert Bag.__hash__ is None
    assert Alone(1) != Alone(1)
    assert len({Alone(1), Alone(1)}) == 2
    assert Empty() == Empty()
    assert len({Empty(), Empty()}) == 1


@pytest.mark.parametrize("kinds", [OURS, THEIRS], ids=["ours", "theirs"])
def test_wrong_arguments_are_named(kinds: list[Any]) -> None:
    Point, Bag, *_ = kinds
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) got an unexpected keyword argument 'z'"):
        Point(1, z=3)
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
        Bag([], "name")


def test_records_are_copied_and_pickled() -> None:
    span = Span(Source("a.ix", "text"), 0, 1)
    expr = build.apply("+", (build.whole(1, span), build.whole(2, span)), "whole", span)
    for again in (copy.copy(expr), copy.deepcopy(expr), pickle.loads(pickle.dumps(expr))):
        assert again == expr
        assert again is not expr
        assert hash(again) == hash(expr)


def test_a_standard_record_is_replaced_too() -> None:
    Point = THEIRS[0]
    assert records.replace(Point(1), x=2, place="there") == Point(2, place="there")


def test_a_list_that_holds_itself_is_shown() -> None:
    bag = OURS[1]()
    bag.items.append(bag)
    assert "..." in repr(bag)
