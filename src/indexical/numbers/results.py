"""The results of an exact evaluation: numbers that compare, tensors of them, and where exactness ended."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from ..checker.names import suggest
from ..diagnostics import CallError, Diagnostic
from ..ir import nodes as ir
from ..source import Span
from . import notation
from .conditions import Condition, Conditional, conditions_at, for_positive, required
from .digits import decimal
from .evaluate import Evaluated, explained
from .inputs import rational
from .patience import MOST_DIGITS, most_digits
from .terms import Polynomial
from .tower import INFINITY, UNDEFINED, Number, Special, Undecidable, compare, divide, refined, sign


class Value:
    """An exact number. It prints as its definition builds it; `==` and `<` are decided, never approximated."""

    __slots__ = ("_conditions", "_evaluated", "_name", "_offset", "_rows", "masked", "number")

    def __init__(
        self,
        number: Any,
        evaluated: Evaluated | None = None,
        name: str = "",
        offset: int = 0,
        rows: Mapping[str, int] | None = None,
        conditions: frozenset[Condition] | None = None,
    ) -> None:
        self._evaluated, self._name, self._offset = evaluated, name, offset
        self._conditions = conditions
        self._rows = dict(rows or {})
        self.masked = evaluated is not None and evaluated.is_masked(name, offset)
        moved = number.at(self._rows) if self._rows and isinstance(number, Polynomial) else number
        self.number = 0 if moved is None else moved

    def __str__(self) -> str:
        return self._form(None)

    def __repr__(self) -> str:
        return f"<exact {self}>"

    @property
    def name(self) -> str:
        """`weights[2, 0]`, of an element; nothing for what was computed from elements."""
        return "" if self._evaluated is None else str(self._evaluated.symbol(self._name, self._offset).at(self._rows))

    def named(self) -> str:
        """As its definition builds it, with the elements that it reads by their names."""
        return self._form(False)

    def spelled(self) -> str:
        """As its definition builds it, with what it reads spelled out, as far as that is readable."""
        return self._form(True)

    def _form(self, spelled: bool | None) -> str:
        if self.masked:
            return "masked"
        if self._evaluated is None or isinstance(self.number, bool):
            return self.canonical()
        with explained():
            node = self._evaluated.form(self._name, self._offset, spelled)
            return notation.write(notation.placed(node, self._rows))

    def canonical(self) -> str:
        """By its value alone: terms collected, common factors `e^a` and rationals removed."""
        if isinstance(self.number, bool):
            return str(self.number).lower()
        with explained():
            return notation.text_of(self.number)

    def decimal(self, digits: int = 16) -> str:
        """So many significant digits, each of them proven; the last is rounded to the nearest."""
        if type(digits) is not int or not 1 <= digits <= MOST_DIGITS:
            raise _refusal(f"{digits!r} digits cannot be written", f"ask for 1 to {MOST_DIGITS:,}")
        most = most_digits(self.number)
        if digits > most:
            raise _refusal(f"{digits:,} digits of this number would take minutes", f"ask for at most {most:,}")
        with explained():
            return decimal(self.number, digits)

    @property
    def is_exact(self) -> bool:
        """Whether this is in the field: rationals, square roots and exponentials, or symbols with such factors."""
        return not (isinstance(self.number, Number) and self.number.outside)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols in it, which have no value."""
        return tuple(sorted(map(str, self.number.symbols))) if isinstance(self.number, Polynomial) else ()

    @property
    def conditions(self) -> frozenset[Condition]:
        """For which values of the symbols it has a value: what was divided by is not 0, and so on."""
        if self._conditions is None:
            found = self._evaluated and conditions_at(self._evaluated, self._name, self._offset)
            self._conditions = found or frozenset()
        return self._conditions

    def to_json(self, digits: int | None = None) -> dict[str, object]:
        """As text in every form; the decimal where the number has one."""
        if self.masked:
            return {"masked": True, "structural": "masked", "canonical": "0"}
        entry: dict[str, object] = {"structural": str(self), "canonical": self.canonical(), "exact": self.is_exact}
        if digits is not None and not self.symbols:
            entry["decimal"] = self.decimal(digits)
        return entry

    # ------------------------------------------------------------- arithmetic

    def __add__(self, other: Any) -> Any:
        return _combined(lambda a, b: a + b, self, other)

    def __sub__(self, other: Any) -> Any:
        return _combined(lambda a, b: a - b, self, other)

    def __mul__(self, other: Any) -> Any:
        return _combined(lambda a, b: a * b, self, other)

    def __truediv__(self, other: Any) -> Any:
        return _combined(divide, self, other, _number_of(other))

    def __radd__(self, other: Any) -> Any:
        return _combined(lambda a, b: b + a, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _combined(lambda a, b: b - a, self, other)

    __rmul__ = __mul__

    def __rtruediv__(self, other: Any) -> Any:
        return _combined(lambda a, b: divide(b, a), self, other, self.number)

    def __neg__(self) -> Value:
        return Value(-self.number, conditions=self.conditions)

    def __abs__(self) -> Value:
        with explained():
            return Value(abs(self.number), conditions=self.conditions)

    # ------------------------------------------------------------- comparison

    def __eq__(self, other: object) -> Any:
        """Whether two numbers are one. With symbols: whether they are for all values of them; where they are for some,
        the answer is `Conditional`, and tells for which."""
        found = _number_of(other)
        if found is None:
            return NotImplemented
        conditions = self.conditions | (other.conditions if isinstance(other, Value) else frozenset())
        with explained():
            if any(isinstance(number, Polynomial) and number.symbols for number in (self.number, found)):
                equal, more = _is_identical(self.number, found)
                conditions |= more
            else:
                equal = bool(self.number == found)
        return Conditional(conditions) if equal and conditions else equal

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> bool:
        return self._compared(other, (-1,))

    def __le__(self, other: Any) -> bool:
        return self._compared(other, (-1, 0))

    def __gt__(self, other: Any) -> bool:
        return self._compared(other, (1,))

    def __ge__(self, other: Any) -> bool:
        return self._compared(other, (0, 1))

    def _compared(self, other: Any, wanted: tuple[int, ...]) -> bool:
        found = _number_of(other)
        if found is None:
            raise TypeError(f"an exact number is compared with numbers, not with {type(other).__name__}")
        with explained():
            return compare(self.number, found) in wanted

    def __float__(self) -> float:
        """The nearest float, correctly rounded."""
        if isinstance(self.number, Special):
            return {1: float("inf"), -1: float("-inf")}.get(self.number.side, float("nan"))
        with explained():
            return nearest_float(self.number)

    def __bool__(self) -> bool:
        with explained():
            return bool(self.number)


def nearest_float(number: Any) -> float:
    """Correctly rounded; too large a number is an infinity, as floats have it."""
    try:
        for interval in refined(number, 1 << 12):
            low, high = (_float_of(end, interval.exponent) for end in (interval.low, interval.high))
            if low == high:
                return low
        middle = (Fraction(low) + Fraction(high)) / 2
        side = compare(number, middle)
        return float(middle) if side == 0 else low if side == -1 else high
    except OverflowError:
        return math.copysign(math.inf, sign(number))


def _float_of(mantissa: int, exponent: int) -> float:
    """The float nearest to `mantissa · 2^exponent`; beyond all of them 0 or an infinity."""
    length = mantissa.bit_length() + exponent
    if abs(length) > 2000:
        return math.copysign(math.inf if length > 0 else 0.0, mantissa)
    try:
        return float(Fraction(mantissa) * Fraction(2) ** exponent)
    except OverflowError:
        return math.copysign(math.inf, mantissa)


def _refusal(message: str, help: str) -> CallError:
    return CallError([Diagnostic("IX515", message, help=help)])


def _number_of(value: object) -> Any:
    """Anything that is a number; a float that is not finite stands for what is not."""
    if isinstance(value, Value):
        return value.number
    if isinstance(value, float) and not math.isfinite(value):
        return UNDEFINED if math.isnan(value) else INFINITY if value > 0 else -INFINITY
    return None if isinstance(value, str) else rational(value)


def _combined(operation: Any, one: Value, other: Any, divisor: Any = None) -> Any:
    found = _number_of(other)
    if found is None:
        return NotImplemented
    conditions = one.conditions | (other.conditions if isinstance(other, Value) else frozenset())
    with explained():
        return Value(operation(one.number, found), conditions=conditions | required(divisor, "!="))


def _is_identical(a: Any, b: Any) -> tuple[bool, frozenset[Condition]]:
    """Whether two numbers with symbols are equal for all values of them, or for those that are not negative;
    polynomials are, where their terms are."""
    difference = a - b
    zero = difference.is_zero() if isinstance(difference, Polynomial) else not difference
    if zero:
        return True, frozenset()
    apart, conditions = for_positive(difference)
    if apart.is_zero() if isinstance(apart, Polynomial) else not apart:
        return True, frozenset(conditions)
    if zero is None:
        raise Undecidable
    return False, frozenset()


class Tensor:
    """The exact values of a definition. Indexing gives a number, or the tensor of a part."""

    def __init__(self, evaluated: Evaluated, name: str, fixed: tuple[int, ...] = ()) -> None:
        self._evaluated, self._fixed = evaluated, fixed
        self.name = name

    @property
    def _let(self) -> ir.Let | ir.Input:
        return self._evaluated.program.tensors[self.name]

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the axes that are left."""
        return tuple(str(axis.coordinate) for axis in self._let.axes[len(self._fixed) :])

    @property
    def shape(self) -> tuple[int | str, ...]:
        """The size of each axis; the coordinate's name where nothing says how many points it has."""
        place = self._evaluated.marked(self.name, tuple(self._evaluated.table(self.name).shape))
        return place[len(self._fixed) :]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a number has no length")
        return 1 if isinstance(self.shape[0], str) else self.shape[0]

    def __getitem__(self, index: int | tuple[int, ...]) -> Any:
        given = index if isinstance(index, tuple) else (index,)
        full = (*self._fixed, *given)
        sizes = Tensor(self._evaluated, self.name).shape
        if len(full) > len(sizes):
            raise _refusal(f"`{self.name}` has {len(sizes)} axes, and {len(full)} indices were given", "leave some out")
        for number, (at, size) in enumerate(zip(full, sizes, strict=False)):
            if type(at) is not int:
                raise _refusal(f"`{self.name}` is indexed by whole numbers, and got {at!r}", "slices are not taken")
            if at < 0 or (isinstance(size, int) and at >= size):
                coordinate = self._let.axes[number].coordinate
                message = f"`{self.name}` has no point at `{coordinate} = {at}`"
                raise _refusal(message, f"`{coordinate}` runs over {size} points, from 0")
        if all(isinstance(size, str) for size in sizes[len(full) :]):
            return self._value(full)
        return type(self)(self._evaluated, self.name, full)

    def _value(self, place: tuple[int, ...]) -> Value:
        table = self._evaluated.table(self.name)
        sizes = Tensor(self._evaluated, self.name).shape
        rows = {size: at for at, size in zip(place, sizes, strict=False) if isinstance(size, str)}
        inside = tuple(
            0 if isinstance(size, str) else at for size, at in itertools.zip_longest(sizes, place, fillvalue=0)
        )
        offset = table.offset(inside)
        return Value(table.cells[offset], self._evaluated, self.name, offset, rows)

    def item(self) -> Value:
        """The number, of a tensor without axes."""
        return self._value(self._fixed)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def values(self) -> Iterator[Value]:
        """Every number, in row-major order."""
        if not self.shape or all(isinstance(size, str) for size in self.shape):
            yield self.item()
            return
        for part in self:
            if isinstance(part, Tensor):
                yield from part.values()
            else:
                yield part

    def to_json(self, digits: int | None = None) -> Any:
        """Nested lists of what each number says of itself."""
        if not self.shape or all(isinstance(size, str) for size in self.shape):
            return self.item().to_json(digits)
        return [part.to_json(digits) for part in self]


class Results(Mapping[str, Any]):
    """Exact values by the name of the definition; a scalar is a number, all else a tensor."""

    def __init__(self, evaluated: Evaluated) -> None:
        self.evaluated = evaluated

    def __getitem__(self, name: str) -> Any:
        if name not in self.evaluated.program.tensors:
            help, _ = suggest(str(name), list(self), Span(self.evaluated.program.source, 0, 0))
            known = help or f"it has {', '.join(self)}"
            raise CallError([Diagnostic("IX508", f"no definition is called `{name}`", help=known)])
        if name not in self.evaluated.evaluation.tensors:
            message = f"`{name}` was not computed: no output needs it"
            raise CallError([Diagnostic("IX508", message, help=f'ask for it: `outputs="{name}"`')])
        tensor = self.tensor(name)
        return tensor if tensor.shape and not all(isinstance(s, str) for s in tensor.shape) else tensor.item()

    def tensor(self, name: str) -> Tensor:
        return Tensor(self.evaluated, name)

    def __iter__(self) -> Iterator[str]:
        return iter(let.name for let in self.evaluated.computed() if not let.hidden)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def ended(self) -> tuple[str, ...]:
        """The definitions at which exactness ended: where a function left the field."""
        return tuple(let.name for let, _ in self.evaluated.ended())
