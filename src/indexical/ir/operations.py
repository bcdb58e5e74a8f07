"""Elementwise operations: the columns of their table, and the rows of the operators. Functions have theirs in
`functions.py`.

A row has no empty cell: a column that is left out is an error when the table is loaded. `UNKNOWN` is an answer, and
whoever reads it takes the safe one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from ..records import dataclass, replace

# Some of the arguments of an operation, by their number.
NONE, FIRST, SECOND, EVERY = range(0), range(1), range(1, 2), range(1 << 30)

INF: Final = math.inf
REALS: Final = (-INF, INF)
UNKNOWN: Final = "unknown"

Interval: TypeAlias = tuple[float, float]
# The derivative of a function of `x` whose value is `y`: a formula, or several, each with the condition under which
# it counts; elsewhere it is 0. None: it has several arguments, and `transform/slopes.py` writes it out.
Slope: TypeAlias = str | tuple[tuple[str, str], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An elementwise operation: an operator, a cast or a function."""

    name: str
    keeps_whole: bool  # It is whole where its arguments are.
    exact: bool  # Nothing is rounded: the result has no more digits than the arguments.
    domain: Interval | Literal["unknown"]  # The arguments of which it has a value.
    values: Interval
    finite: bool  # Of finite arguments it is finite. That a sum or a product overflows does not count.
    nonfinite_at: tuple[float, ...]  # The infinities at which it is infinite or NaN, or may be.
    trend: Literal["rising", "falling", "unknown"]
    present: range  # The arguments that may not be absent: with 0 in place of one, it need not be 0.
    undefined: range  # The arguments at which it may have no finite value for 0.
    steep: range  # The arguments by which its slope has no bound near some finite point.
    unsettled_at: tuple[float, ...]  # The infinities at which it has no finite slope.

    @property
    def total(self) -> bool:
        """Whether it has a value wherever its arguments have one."""
        return self.domain == REALS

    @property
    def never_negative(self) -> bool:
        return self.values[0] >= 0


@dataclass(frozen=True, slots=True)
class Spelling:
    """The spelling of a function in a library: the name that is called, or a template around `{0}`. `helper` is a
    definition that stands above; `in_place` tells that the same name with `_` overwrites its argument, and that no
    derivative reads it; `fast` is a form of the hardware's own, as exact as 16 bits are, and `binary` tells that this
    takes its argument times log2(e); `once` tells that of arrays of 16 bits it is computed in 32 and rounded once, and
    so is its slope."""

    call: str
    helper: str = ""
    in_place: bool = False
    fast: str = ""
    binary: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Function(Operation):
    """An elementwise function that a program calls by its name."""

    arity: int | None  # None: two or more.
    value: Callable[..., Any]  # The reference evaluator's, of floats; of wholes too, where these are kept.
    definition: str | None  # A formula in `x` by which other numbers have it; None: each number type has its own.
    slope: Slope
    # Formulas in `x` with this function in them that lose digits, or overflow, and what is computed in their place.
    unstable: tuple[tuple[str, str], ...]
    parity: Literal["even", "odd", "neither"]
    numpy: Spelling
    torch: Spelling
    jax: Spelling
    triton: Spelling | Literal["unknown"]
    javascript: str  # A function, for the page that evaluates in the browser.

    @property
    def flat(self) -> bool:
        """Whether its slope is 0 wherever it has one."""
        return self.slope == "0"

    @property
    def by_value(self) -> bool:
        """Whether its slope is said in terms of its own value alone."""
        from .formulas import variables  # Only derivatives ask.

        return isinstance(self.slope, str) and variables(self.slope) == {"y"}


# ------------------------------------------------------------------------ operators

_SUM = Operation(
    name="+",
    keeps_whole=True,
    exact=False,
    domain=REALS,
    values=REALS,
    finite=True,
    nonfinite_at=REALS,
    trend=UNKNOWN,
    present=NONE,
    undefined=NONE,
    steep=NONE,
    unsettled_at=(),
)
_QUOTIENT = replace(_SUM, name="/", domain=UNKNOWN, finite=False, present=SECOND, undefined=SECOND, steep=SECOND)
_POWER = replace(_QUOTIENT, name="**", present=EVERY, undefined=EVERY, steep=FIRST, unsettled_at=REALS)
_CONDITION = replace(_SUM, name="&&", keeps_whole=False, exact=True, values=(0, 1), nonfinite_at=())
CAST: Final = replace(_SUM, name="as", keeps_whole=False, domain=UNKNOWN, trend="rising")

OPERATORS: Final[Mapping[str, Operation]] = {
    row.name: row
    for row in (
        replace(_SUM, trend="rising"),
        replace(_SUM, name="-"),
        replace(_SUM, name="*"),
        replace(_SUM, name="neg", exact=True, trend="falling"),
        _QUOTIENT,
        replace(_QUOTIENT, name="//", finite=True, nonfinite_at=(), steep=NONE),
        replace(_QUOTIENT, name="%", steep=NONE, unsettled_at=REALS),
        _POWER,
        # A constant: an operation of no arguments, whose digits each number type has its own way.
        replace(_SUM, name="pi", keeps_whole=False, values=(3, 4), nonfinite_at=()),
        *(replace(_CONDITION, name=sign) for sign in ("&&", "||", "!")),
        *(replace(_CONDITION, name=sign, present=EVERY) for sign in ("==", "!=", "<", "<=", ">", ">=")),
    )
}
