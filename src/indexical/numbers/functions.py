"""The language's functions of exact numbers, and the number type that the evaluator computes with.

`exp`, `sigmoid`, `tanh` and `silu` of algebraic numbers stay exact, as do square roots of rationals. What leaves the
field becomes a named term; what is a symbol stays one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from ..ir.formulas import evaluated
from ..ir.functions import registered
from . import deferred, exponentials, terms
from .deferred import Deferred
from .exponentials import Quotient
from .surds import Surd, root
from .terms import Polynomial, Term
from .tower import INFINITY, UNDEFINED, Number, Special, TooManyTerms, compare, divide, floor, put_off, sign

HALF = Fraction(1, 2)
PI = terms.name("pi")
# In bits: a power that is longer is not computed.
_LONGEST_POWER = 1 << 23


def exp(x: Any) -> Any:
    if isinstance(x, Special):
        return 0 if x.side < 0 else x
    if not isinstance(x, Number) or x.level == 1:
        return exponentials.exp(x)
    if isinstance(x, Polynomial):
        return _exp_of_logarithms(x)
    if isinstance(x, Quotient) and not x.factors and (plain := x.top.terms.get(0)) is not None:
        # So that `exp(u + 1)` is seen to be `e·exp(u)`.
        return exponentials.exp(plain) * exp(x - plain)
    return named("exp", x)


# A function of terms that stand deeper in each other is not computed at once.
_DEEPEST = 24


def named(function: str, *arguments: Any) -> Any:
    """A function at these arguments as a named term; where they are long or nested, as a number that is put off."""
    symbolic = any(isinstance(x, Polynomial) and x.symbols for x in arguments)
    if symbolic:
        return terms.name(function, *(x.expanded(True) if isinstance(x, Deferred) else x for x in arguments))
    deep = any(isinstance(x, Number) and (x.depth > _DEEPEST or x.level > 3) for x in arguments)
    if deep:
        return deferred.make(function, arguments)
    later = put_off(sum(terms.size_of(x) for x in arguments), function, *arguments)
    return terms.name(function, *arguments) if later is None else later


def _exp_of_logarithms(x: Polynomial) -> Any:
    """`exp(n·log(u) + rest)` is `u^n · exp(rest)`, for whole `n` and halves."""
    result: Any = 1
    rest = dict(x.terms)
    for monomial, coefficient in x.terms.items():
        match list(monomial):
            case [] if isinstance(coefficient, int | Fraction | Surd):
                del rest[monomial]
                result = result * exponentials.exp(coefficient)
            case [(Term(function="log", arguments=(inside,)), 1)] if isinstance(coefficient, int | Fraction):
                most = 12 if isinstance(inside, int) else 2
                if Fraction(coefficient).denominator <= most:
                    del rest[monomial]
                    result = result * power(inside, Fraction(coefficient))
    if len(rest) == len(x.terms):
        return named("exp", x)
    return result * exp(terms.total([Polynomial(rest)]))


def log(x: Any) -> Any:
    """Products come apart into sums of logarithms, so that equal logarithms are seen to be equal."""
    if isinstance(x, Special):
        return UNDEFINED if x.side < 0 else x
    if isinstance(x, Polynomial) and x.symbols:
        return terms.name("log", x)
    side = sign(x)
    if side <= 0:
        return UNDEFINED if side else -INFINITY
    if isinstance(x, int | Fraction):
        return _log_of_rational(Fraction(x))
    if isinstance(x, Quotient):
        unit, shift, rest = x.top.split()
        powers = {**x.factors}
        if len(rest) > 1:
            powers[rest] = powers.get(rest, 0) + 1
        # The product is positive, so it is that of the magnitudes.
        parts = [(abs(Quotient(part, {})), times) for part, times in powers.items() if times]
        if parts or shift or not isinstance(unit, Number):
            return sum((terms.name("log", part) * times for part, times in parts), log(abs(unit)) + shift)
    if isinstance(x, Polynomial) and len(x.terms) == 1:
        ((monomial, _),) = x.terms.items()
        for atom, power in monomial:
            if isinstance(atom, Term) and atom.function == "exp":
                return log(divide(x, terms.name("exp", *atom.arguments) ** power)) + atom.arguments[0] * power
    return named("log", x)


def _log_of_rational(x: Fraction) -> Any:
    """By the small primes in it; what is left is one logarithm."""
    result: Any = 0
    rest = x
    for prime in (2, 3, 5, 7, 11, 13):
        times = 0
        while rest.numerator % prime == 0:
            rest, times = rest / prime, times + 1
        while rest.denominator % prime == 0:
            rest, times = rest * prime, times - 1
        if times:
            result = result + terms.name("log", prime) * times
    if rest.denominator > 1:
        result = result - terms.name("log", rest.denominator)
    return result + terms.name("log", rest.numerator) if rest.numerator > 1 else result


def sqrt(x: Any) -> Any:
    """Rational factors and exponentials come out of it, so that equal roots are seen to be equal."""
    if isinstance(x, Special):
        return UNDEFINED if x.side < 0 else x
    if isinstance(x, Polynomial) and x.symbols:
        return terms.name("sqrt", x)
    side = sign(x)
    if side <= 0:
        return UNDEFINED if side else 0
    if isinstance(x, int | Fraction):
        return root(x)
    if isinstance(x, Quotient):
        unit, shift, rest = x.top.split()
        if not isinstance(unit, Number):
            inside = abs(Quotient(rest, x.factors)) if x.factors or len(rest) > 1 else None
            outside = root(abs(unit)) * exponentials.exp(divide(shift, 2))
            return outside if inside is None else outside * named("sqrt", inside)
    return named("sqrt", x)


def tanh(x: Any) -> Any:
    if isinstance(x, Special):
        return x.side if x.side else x
    if isinstance(x, Deferred):
        return deferred.make("tanh", (x,))
    twice = exp(x * 2)
    return divide(twice - 1, twice + 1)


def sigmoid(x: Any) -> Any:
    if isinstance(x, Special):
        return (UNDEFINED, 1, 0)[x.side]
    if isinstance(x, Deferred):
        return deferred.make("sigmoid", (x,))
    raised = exp(x)
    return divide(raised, raised + 1)


def silu(x: Any) -> Any:
    """At negative infinity it is undefined, as the product that it is."""
    return x * sigmoid(x)


def gelu(x: Any) -> Any:
    if isinstance(x, Deferred):
        return deferred.make("gelu", (x,))
    return x * HALF * (erf(x * root(HALF)) + 1)


# From here on `erf` is written as what it lacks to 1, which has digits where `erf` is 1 to all of them.
_ERF_NEAR_ONE = 4


def erf(x: Any) -> Any:
    if isinstance(x, Special):
        return x.side or x
    if (isinstance(x, Polynomial) and x.symbols) or isinstance(x, Deferred):
        return _odd("erf", x)
    size = abs(x)
    if compare(size, _ERF_NEAR_ONE) == -1:
        return _odd("erf", x)
    return (1 - named("erfc", size)) * sign(x)


def sin(x: Any) -> Any:
    if isinstance(x, Special):
        return UNDEFINED
    turn = half_turns(x)
    return _odd("sin", x) if turn is None else cos_of_turn(HALF - turn)


# The cosines of 0, 15, 30, …, 90 degrees.
_COSINES = (
    1,
    (root(6) + root(2)) * Fraction(1, 4),
    root(Fraction(3, 4)),
    root(HALF),
    HALF,
    (root(6) - root(2)) * Fraction(1, 4),
    0,
)


def half_turns(x: Any) -> Fraction | None:
    """The rational `q` of `q·pi`; None where a number is not seen to be one."""
    if isinstance(x, Polynomial) and len(x.terms) == 1:
        ((monomial, coefficient),) = x.terms.items()
        if monomial in PI.terms and isinstance(coefficient, int | Fraction):
            return Fraction(coefficient)
    return None


def cos_of_turn(turn: Fraction) -> Any:
    """`cos(turn·pi)`, by the angle between 0 and a right one that has its size."""
    turn = abs((turn + 1) % 2 - 1)
    side, turn = (-1, 1 - turn) if turn > HALF else (1, turn)
    if 12 % turn.denominator == 0:
        return _COSINES[int(12 * turn)] * side
    return terms.name("cos", PI * turn) * side


def cos(x: Any) -> Any:
    if isinstance(x, Special):
        return UNDEFINED
    turn = half_turns(x)
    if turn is not None:
        return cos_of_turn(turn)
    if isinstance(x, Polynomial) and x.symbols:
        return terms.name("cos", x)
    return named("cos", abs(x)) if x != 0 else 1


def _odd(function: str, x: Any) -> Any:
    """`f(-x)` is `-f(x)`, and `f(0)` is 0."""
    if isinstance(x, Polynomial) and x.symbols:
        return terms.name(function, x)
    side = sign(x)
    return named(function, abs(x)) * side if side else 0


def power(a: Any, b: Any) -> Any:
    """A power, as for floats: anything to the 0 is 1, a negative number has whole powers alone."""
    if (not isinstance(b, Number) and b == 0) or (not isinstance(a, Number) and a == 1):
        return 1
    if isinstance(a, Special) or isinstance(b, Special):
        return _power_unbounded(a, b)
    if isinstance(b, int | Fraction):
        if Fraction(b).denominator == 1:
            return _whole_power(a, int(b))
        if Fraction(b).denominator == 2:
            return power(sqrt(a), 2 * b)
        if isinstance(a, int | Fraction) and a > 0:
            return _rational_power(Fraction(a), Fraction(b))
    if (isinstance(a, Polynomial) and a.symbols) or (isinstance(b, Polynomial) and b.symbols):
        return terms.name("power", a, b)
    side = sign(a)
    if side <= 0:
        return _power_of_negative(a, b) if side else 0 if sign(b) > 0 else INFINITY
    if isinstance(a, Quotient):
        single = a.single()
        if single is not None and single[0] == 1:
            return exp(b * single[1])
    return named("power", a, b)


def _rational_power(a: Fraction, b: Fraction) -> Any:
    """A positive rational to a fraction: `8^(1/3)` is 2, `4^(1/4)` is the root of 2, and whole powers come out."""
    for prime in (2, 3, 5, 7, 11, 13):
        while b.denominator % prime == 0 and (found := _whole_root(a, prime)) is not None:
            a, b = found, b * prime
    if b.denominator <= 2:
        return power(a, b)
    whole = math.floor(b)
    return named("power", _plain(a), b - whole) * (_whole_power(a, whole) if whole else 1)


def _plain(a: Fraction) -> Any:
    return a.numerator if a.denominator == 1 else a


def _whole_root(a: Fraction, index: int) -> Fraction | None:
    """The root of a fraction where that is one too."""
    found = []
    for part in (a.numerator, a.denominator):
        low, high = 0, 1 << -(-part.bit_length() // index)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**index <= part else (low, middle - 1)
        if low**index != part:
            return None
        found.append(low)
    return Fraction(found[0], found[1])


def _whole_power(a: Any, b: int) -> Any:
    if b < 0:
        return divide(1, _whole_power(a, -b))
    if isinstance(a, Quotient) and (single := a.single()) is not None:
        return power(single[0], b) * exponentials.exp(single[1] * b)
    if b * _length(a) > _LONGEST_POWER and a not in (0, 1, -1):
        raise TooManyTerms(f"a power of about {b * _length(a):,} bits")
    if isinstance(a, Polynomial) and not a.is_formal and b > 2:
        from .identities import shortened

        a = shortened(a)
        if not isinstance(a, Polynomial):
            return power(a, b)
    return a**b


def _length(a: Any) -> int:
    """In bits, of the longest coefficient of an algebraic number, with its root; of what has other terms 0."""
    parts = a.terms if isinstance(a, Surd) else {} if isinstance(a, Number) else {1: a}
    lengths = [(c.numerator.bit_length() + c.denominator.bit_length()) + key.bit_length() for key, c in parts.items()]
    return max(lengths, default=0)


def _power_of_negative(a: Any, b: Any) -> Any:
    """A negative number to a power that may be whole, though its form does not show it."""
    nearest = round_even(b)
    return _whole_power(a, nearest) if compare(b, nearest) == 0 else UNDEFINED


def _power_unbounded(a: Any, b: Any) -> Any:
    if a is UNDEFINED or b is UNDEFINED:
        return UNDEFINED
    if isinstance(b, Special):
        size = compare(abs(a), 1)
        return 1 if size == 0 else INFINITY if size == b.side else 0
    if sign(b) < 0:
        return 0
    odd = not isinstance(b, Number) and Fraction(b).denominator == 1 and int(b) % 2 == 1
    return a if a.side > 0 or odd else INFINITY


def largest(*values: Any) -> Any:
    """The largest; what is undefined where something is."""
    best = values[0]
    for value in values[1:]:
        if best is UNDEFINED or value is UNDEFINED:
            return UNDEFINED
        best = value if compare(value, best) == 1 else best
    return best


def smallest(*values: Any) -> Any:
    return -largest(*(-value for value in values))


def _kept(function: Callable[[Any], int]) -> Callable[[Any], Any]:
    """To a whole number; an infinity stays one."""
    return lambda x: x if isinstance(x, Special) else function(x)


def ceil(x: Any) -> int:
    return -floor(-x)


def round_even(x: Any) -> int:
    """To the nearest whole number; from the middle to the even one."""
    below = floor(x)
    side = compare(x - below, HALF)
    return below + (below % 2 if side == 0 else int(side == 1))


def _by_formula(formula: str) -> Callable[[Any], Any]:
    return lambda x: evaluated(formula, x, _FUNCTIONS, divide=divide)


_FUNCTIONS: dict[str, Callable[..., Any]] = registered(
    "exact numbers",
    {
        "exp": exp,
        "log": log,
        "sqrt": sqrt,
        "rsqrt": lambda x: divide(1, sqrt(x)),
        "tanh": tanh,
        "sigmoid": sigmoid,
        "relu": lambda x: largest(0, x),
        "gelu": gelu,
        "silu": silu,
        "abs": abs,
        "sin": sin,
        "cos": cos,
        "erf": erf,
        "floor": _kept(floor),
        "ceil": _kept(ceil),
        "round": _kept(round_even),
        "clamp": lambda x, low, high: smallest(largest(x, low), high),
        "max": largest,
        "min": smallest,
    },
    _by_formula,
)


class ExactNumbers:
    """Exact numbers, for the evaluator. A real is rational, a `Number` of the tower, or `Special`."""

    infinity = INFINITY
    nan = UNDEFINED
    pi = PI

    functions: Mapping[str, Callable[..., Any]] = _FUNCTIONS

    def number(self, value: Any) -> Any:
        return value

    def divide(self, a: Any, b: Any) -> Any:
        return divide(a, b)

    def remainder(self, a: Any, b: Any) -> Any:
        """With the sign of `a`, as truncated division leaves it."""
        quotient = divide(a, b)
        if isinstance(a, Special) or isinstance(quotient, Special):
            return UNDEFINED
        return a if isinstance(b, Special) else a - b * int(quotient)

    def power(self, a: Any, b: Any) -> Any:
        return power(a, b)

    def cast(self, value: Any, dtype: str) -> Any:
        """A dtype says how a number is stored; the exact one is not rounded to it."""
        return value

    def total(self, values: list[Any]) -> Any:
        return total(values)

    def softmax(self, scores: list[Any]) -> list[Any]:
        """Over one point it is 1."""
        if _is_unbounded(scores):
            return [UNDEFINED] * len(scores)
        if len(scores) == 1:
            return [1]
        raised = [exp(score) for score in scores]
        whole = divide(1, total(raised))
        return [part * whole for part in raised]

    def log_softmax(self, scores: list[Any]) -> list[Any]:
        if _is_unbounded(scores):
            return [UNDEFINED] * len(scores)
        if len(scores) == 1:
            return [0]
        shift = log(total([exp(score) for score in scores]))
        return [score - shift for score in scores]


def _is_unbounded(scores: list[Any]) -> bool:
    """Whether the largest of some scores is no number."""
    found = [score for score in scores if isinstance(score, Special)]
    return bool(found) and (len(found) == len(scores) or any(score.side >= 0 for score in found))


def total(values: list[Any]) -> Any:
    """The sum, storey by storey: many numbers of one storey are added at once."""
    rationals: list[Any] = []
    others: dict[type[Number], list[Any]] = {}
    for value in values:
        if isinstance(value, Number):
            others.setdefault(type(value), []).append(value)
        else:
            rationals.append(value)
    result = _total_of_rationals(rationals)
    for kind in sorted(others, key=_level):
        found = others[kind]
        if kind is Quotient:
            result = exponentials.total(found) + result
        elif kind is Polynomial:
            result = terms.total(found) + result
        elif kind is Deferred:
            result = deferred.total([*found, result])
        else:
            result = sum(found, result)
    return result


def _level(kind: type[Number]) -> int:
    return kind.level


def _total_of_rationals(values: list[Any]) -> Any:
    """Fractions of one denominator are added by their numerators: most sums have few denominators."""
    by_denominator: dict[int, int] = {}
    for value in values:
        below = value.denominator
        by_denominator[below] = by_denominator.get(below, 0) + value.numerator
    whole = by_denominator.pop(1, 0)
    common = math.lcm(*by_denominator)
    above = sum(part * (common // below) for below, part in by_denominator.items())
    result = Fraction(above, common) + whole if above else whole
    return result.numerator if result.denominator == 1 else result
