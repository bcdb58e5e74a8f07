"""The language in which a rule says what it replaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...records import dataclass
from ..ops import Map, Read, Reduce, Value
from ..words import Names

# What a pattern found, by the names that it has there.
Found: TypeAlias = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Pattern:
    """An operation by its class and some of its fields: each a pattern, a set of which it is one, or what it equals.

    `args` are patterns of a map's arguments, which may be in either order where it `commutes`. What is found is bound
    to `name`; a name that occurs twice is one value. `when` is asked before the parts are looked at.
    """

    of: type | None = None
    name: str = ""
    fields: tuple[tuple[str, object], ...] = ()
    args: tuple[Pattern, ...] | None = None
    commutes: bool = False
    when: Callable[[Value], bool] | None = None

    def is_of(self, of: type, fn: str | None) -> bool:
        """Whether an operation of this class and function may be like it."""
        if self.of is not None and not issubclass(of, self.of):
            return False
        asked = dict(self.fields).get("fn", fn)
        return asked == fn or (isinstance(asked, frozenset) and fn in asked)

    def match(self, one: Value, found: Found) -> list[Found]:
        """Every way in which a value is like this, with what was found before."""
        if self.of is not None and not isinstance(one.op, self.of):
            return []
        if found.get(self.name, one) is not one or (self.when is not None and not self.when(one)):
            return []
        states = [{**found, self.name: one} if self.name else found]
        for name, wanted in self.fields:
            part = getattr(one.op, name)
            if isinstance(wanted, Pattern):
                states = [new for state in states if isinstance(part, Value) for new in wanted.match(part, state)]
            elif (part not in wanted) if isinstance(wanted, frozenset) else part != wanted:
                return []
        if self.args is not None and isinstance(one.op, Map):
            given = one.op.args
            orders = [given, given[::-1]] if self.commutes and len(given) == 2 else [given]
            states = [new for state in states for order in orders for new in _each(self.args, order, state)]
        return states


def _each(patterns: tuple[Pattern, ...], values: tuple[Value, ...], found: Found) -> list[Found]:
    if len(patterns) != len(values):
        return []
    states = [found]
    for pattern, one in zip(patterns, values, strict=True):
        states = [new for state in states for new in pattern.match(one, state)]
    return states


def anything(name: str = "", when: Callable[[Value], bool] | None = None) -> Pattern:
    return Pattern(None, name, when=when)


def mapped(fn: str | frozenset[str], *args: Pattern, name: str = "") -> Pattern:
    """An elementwise function, or one of several; of these arguments, where any are given."""
    return Pattern(Map, name, (("fn", fn),), args or None, fn in ("*", "+"))


def reduced(fn: str | frozenset[str], source: Pattern, name: str = "", **fields: object) -> Pattern:
    return Pattern(Reduce, name, (("fn", fn), ("source", source), *fields.items()))


def read_of(source: Pattern, name: str = "") -> Pattern:
    return Pattern(Read, name, (("source", source),))


@dataclass(frozen=True, slots=True)
class No:
    """The reason why a rule that matched was not applied. The plan prints it where there is a `way`, which is what it
    calls the rule: only of what can be written otherwise."""

    reason: str
    way: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """What is rewritten for: the library kernels that the dialect has, by name. `isolate`: inputs may be infinite or
    NaN, and such a number must not reach a result that a guard keeps it from. `rounds_once` are the functions, and
    perhaps `contract`, that the library computes of 16 bits in 32, and rounds once. Where it `learns`, folds have a way
    back."""

    kernels: frozenset[str] = frozenset()
    isolate: bool = False
    rounds_once: frozenset[str] = frozenset()
    learns: bool = False

    def is_finite(self, one: Value) -> bool:
        """Whether 0 times this is 0, at points that a guard removes too. A number of the host is taken to be finite,
        and is not where it divides by the size of an axis without points: whoever takes it out of a reduction asks."""
        return one.is_host or (one.known.finite and not self.isolate)


Apply: TypeAlias = Callable[[Value, Found, Target], Value | No | None]
# What the plan says of a rule that made one value of another, by the names that values have.
Words: TypeAlias = Callable[[Value, Value, Names], str]


def always(one: Value) -> float:
    """The cost of rules that are right to apply wherever their law holds: the two sides are not compared."""
    return 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A law read from left to right. `apply` makes the right side of what the pattern found; None where it is none of
    its matter. Unless its cost is `always`, it is applied only where the right side, as the rules leave it, costs no
    more than the left side as the later rules leave that: a rule may be dear in itself and enable others. `words` are
    what the plan says of it; without, it says nothing."""

    name: str
    pattern: Pattern
    apply: Apply
    law: str
    cost: Callable[[Value], float]
    words: Words | None = None
