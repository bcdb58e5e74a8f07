"""Structural forms: a number as its definition builds it, beside its value.

A clause is evaluated once more at its point, with forms for numbers. What is algebraic folds into its value; an
exponential stays as it was written, so that `e^1/(e^1+e^1+e^2)` shows the three keys that were heard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from .functions import ExactNumbers, half_turns, largest
from .notation import ONE, Call, E, Name, Node, Plain, Power, added, canonical, over, times, write
from .surds import Surd
from .terms import Symbol
from .tower import Special, sign

_EXACT = ExactNumbers()


class Form:
    """A number, and how it was built. The number itself is computed only where something depends on it."""

    __slots__ = ("_later", "_value", "node")

    def __init__(self, later: Callable[[], Any], node: Node) -> None:
        self._later: Callable[[], Any] | None = later
        self._value: Any = None
        self.node = node

    @property
    def value(self) -> Any:
        if self._later is not None:
            self._value, self._later = self._later(), None
        return self._value

    @property
    def length(self) -> int:
        """Of its text."""
        return len(write(self.node))

    def __add__(self, other: Form) -> Form:
        if _is_special(self) or _is_special(other):
            return plain(self.value + other.value)
        return Form(lambda: self.value + other.value, added([self.node, other.node]))

    def __sub__(self, other: Form) -> Form:
        return self + -other

    def __mul__(self, other: Form) -> Form:
        if _is_special(self) or _is_special(other):
            return plain(self.value * other.value)
        return Form(lambda: self.value * other.value, times([self.node, other.node]))

    def __neg__(self) -> Form:
        return Form(lambda: -self.value, times([Plain(-1), self.node]))

    def __eq__(self, other: object) -> bool:
        return bool(self.value == _value(other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < _value(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= _value(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > _value(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= _value(other))

    def __int__(self) -> int:
        return int(self.value)


def _value(number: Any) -> Any:
    """The value of a form; a whole number is its own."""
    return number.value if isinstance(number, Form) else number


def is_algebraic(value: Any) -> bool:
    """Whether a number is written as its value wherever it stands."""
    return isinstance(value, int | Fraction | Surd | Special)


def plain(value: Any) -> Form:
    """A number in its canonical form."""
    return Form(lambda: value, canonical(value))


def named(value: Any, symbol: Symbol) -> Form:
    """An element that goes by its name."""
    return Form(lambda: value, Name(symbol))


def _raised(x: Form) -> Node:
    return Power(E, x.node)


def _exp(x: Form) -> Form:
    return _applied("exp", x, _raised(x))


def _sigmoid(x: Form) -> Form:
    return _applied("sigmoid", x, over(ONE, added([ONE, _raised(-x)])))


def _tanh(x: Form) -> Form:
    twice = Power(E, times([Plain(2), x.node]))
    return _applied("tanh", x, over(added([twice, Plain(-1)]), added([twice, ONE])))


def _applied(function: str, x: Form, node: Node) -> Form:
    """A function that stays in the field, in its own form; of an infinity it is a plain number."""
    if isinstance(x.node, Plain) and isinstance(x.node.value, Special):
        return plain(_EXACT.functions[function](x.value))
    return Form(lambda: _EXACT.functions[function](x.value), node)


def _of_angle(function: str) -> Callable[[Form], Form]:
    """`sin` and `cos`: of a multiple of `pi` that has an algebraic value, that value."""
    named = _by_name(function)

    def apply(x: Form) -> Form:
        if half_turns(x.value) is not None and is_algebraic(found := _EXACT.functions[function](x.value)):
            return plain(found)
        return named(x)

    return apply


def _chosen(*forms: Any) -> Any:
    """The largest of some, in its own form."""
    best = forms[0]
    for form in forms[1:]:
        if largest(_value(best), _value(form)) is not _value(best):
            best = form
    return best


def _least(*forms: Any) -> Any:
    return -_chosen(*(-form for form in forms))


def _by_name(function: str) -> Callable[..., Form]:
    def apply(*arguments: Form) -> Form:
        def value() -> Any:
            return _EXACT.functions[function](*(argument.value for argument in arguments))

        if all(isinstance(argument.node, Plain) for argument in arguments) and is_algebraic(found := value()):
            return plain(found)
        shown = "√" if function == "sqrt" else function
        return Form(value, Call(shown, tuple(argument.node for argument in arguments)))

    return apply


class FormNumbers:
    """Numbers with their forms, for the evaluator."""

    infinity = plain(_EXACT.infinity)
    nan = plain(_EXACT.nan)
    pi = plain(_EXACT.pi)

    functions: Mapping[str, Callable[..., Any]] = {
        **{function: _by_name(function) for function in _EXACT.functions},
        "exp": _exp,
        "sin": _of_angle("sin"),
        "cos": _of_angle("cos"),
        "sigmoid": _sigmoid,
        "tanh": _tanh,
        "silu": lambda x: x * _sigmoid(x),
        "relu": lambda x: _chosen(plain(0), x),
        "abs": lambda x: _chosen(x, -x),
        "max": _chosen,
        "min": _least,
        "clamp": lambda x, low, high: _least(_chosen(x, low), high),
    }

    def number(self, value: Any) -> Any:
        return value if isinstance(value, Form) else plain(value)

    def divide(self, a: Form, b: Form) -> Form:
        if isinstance(a.node, Plain) and isinstance(b.node, Plain):
            return plain(_EXACT.divide(a.value, b.value))
        if isinstance(b.node, Plain):
            return a * plain(_EXACT.divide(1, b.value)) if sign(b.value) else plain(_EXACT.divide(a.value, b.value))
        if _is_special(a):
            return plain(_EXACT.divide(a.value, b.value))
        return Form(lambda: _EXACT.divide(a.value, b.value), over(a.node, b.node))

    def remainder(self, a: Form, b: Form) -> Form:
        value = _EXACT.remainder(a.value, b.value)
        return plain(value) if is_algebraic(value) else Form(lambda: value, Call("remainder", (a.node, b.node)))

    def power(self, a: Form, b: Form) -> Form:
        if isinstance(a.node, Plain) and is_algebraic(found := _EXACT.power(a.value, b.value)):
            return plain(found)
        return Form(lambda: _EXACT.power(a.value, b.value), Power(a.node, b.node))

    def cast(self, value: Form, dtype: str) -> Form:
        return value

    def total(self, values: list[Form]) -> Form:
        return Form(lambda: _EXACT.total([form.value for form in values]), added([form.node for form in values]))

    def softmax(self, scores: list[Form]) -> list[Form]:
        """Over one point it is 1."""
        if len(scores) == 1 or any(_is_special(score) for score in scores):
            return list(map(plain, _EXACT.softmax([score.value for score in scores])))
        whole = added([_raised(score) for score in scores])
        found = _row(_EXACT.softmax, scores)
        return [Form(partial(found, at), over(_raised(score), whole)) for at, score in enumerate(scores)]

    def log_softmax(self, scores: list[Form]) -> list[Form]:
        if len(scores) == 1 or any(_is_special(score) for score in scores):
            return list(map(plain, _EXACT.log_softmax([score.value for score in scores])))
        shift = times([Plain(-1), Call("log", (added([_raised(score) for score in scores]),))])
        found = _row(_EXACT.log_softmax, scores)
        return [Form(partial(found, at), added([score.node, shift])) for at, score in enumerate(scores)]


def _row(normalize: Callable[[list[Any]], list[Any]], scores: list[Form]) -> Callable[[int], Any]:
    """A normalised row, by place."""
    return lambda at: normalize([score.value for score in scores])[at]


def _is_special(score: Form) -> bool:
    return isinstance(score.node, Plain) and isinstance(score.node.value, Special)
