"""Formulas that lose digits, computed in a form that does not: `log(sigmoid(x))` is `log_sigmoid(x)`.

The two are equal over the reals, so the relation stays what it is: only calls and derivatives take the other form. A
definition that stands between the parts is looked through, if it is there wherever it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import TypeAlias

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.context import constants_of
from ..ir.formulas import read
from ..ir.functions import FUNCTIONS, UNSTABLE
from ..ir.needs import read_in
from ..ir.walk import at, fresh_name, functions_of, is_bare, parts_in, rebuild, walk
from ..records import dataclass, field, replace
from ..source import Span

# A formula as a tree: `x`, a number, or an operation with its arguments. A difference is a sum with the opposite.
Pattern: TypeAlias = "str | Fraction | tuple[str, tuple[Pattern, ...]]"


@cache
def _patterns() -> tuple[tuple[Pattern, str], ...]:
    return tuple((_pattern(formula), form) for row in FUNCTIONS.values() for formula, form in row.unstable)


def _pattern(formula: str) -> Pattern:
    def apply(op: str, arguments: tuple[Pattern, ...]) -> Pattern:
        return ("+", (arguments[0], ("neg", arguments[1:]))) if op == "-" else (op, arguments)

    variable: Pattern = "x"
    return read(formula, {"x": variable}, lambda number: number, apply)


def stable_program(program: ir.Program) -> ir.Program:
    """The program with every formula that loses digits in its stable form; itself where there is none."""
    lets = stable_lets(program.lets, program.recurrent)
    if lets is program.lets:
        return program
    known = set(program.definitions)
    before: dict[str, list[ir.Order]] = {}
    new: list[ir.Order] = []
    for let in lets:
        if let.name in known:
            before[let.name], new = new, []
        else:
            new.append(ir.Once(let.name))
    order: list[ir.Order] = []
    for item in program.order:
        order += [*(before[item.name] if isinstance(item, ir.Once) else ()), item]
    return replace(program, lets=lets, order=tuple(order))


def stable_lets(
    lets: tuple[ir.Let, ...], recurrent: frozenset[str] = frozenset(), closed: frozenset[str] = frozenset()
) -> tuple[ir.Let, ...]:
    """The definitions in stable form; the same tuple where nothing changes. What is `closed` is not looked through."""
    if all(UNSTABLE.isdisjoint(functions_of(let)) for let in lets):
        return lets
    apart = _split(lets, recurrent | closed)
    known = {let.name: let for let in apart if let.name not in closed}
    raised = {read for let in apart for part in parts_in(let) for read in _raised(part)}
    result: list[ir.Let] = []
    for let in apart:
        # The step of a recurrence has no place for a definition beside it, and what is raised again is its own inverse.
        shifts = None if let.name in recurrent or let.name in raised else Shifts(let, set(known))
        found = _stable(let, known, shifts)
        result += [*(() if shifts is None else shifts.lets), found]
    return lets if all(one is other for one, other in zip(result, lets, strict=False)) else tuple(result)


def _raised(expr: ir.Expr) -> Iterator[str]:
    """Yield what is read under an exponential, or a quotient of exponentials: it may be the total of weights."""
    if isinstance(expr, ir.Map) and (expr.op == "exp" or expr.op == "sigmoid"):
        yield from read_in(expr)


def _stable(let: ir.Let, lets: Mapping[str, ir.Let], shifts: Shifts | None) -> ir.Let:
    clauses = tuple(_stable_clause(clause, lets, shifts) for clause in let.clauses)
    same = all(one is other for one, other in zip(clauses, let.clauses, strict=True))
    return let if same else replace(let, clauses=clauses)


def _stable_clause(clause: ir.Clause, lets: Mapping[str, ir.Let], shifts: Shifts | None) -> ir.Clause:
    seen = _Seen(clause, lets, shifts)
    body = seen.stable(clause.body)
    guard = None if clause.guard is None else seen.stable(clause.guard)
    return clause if body is clause.body and guard is clause.guard else replace(clause, body=body, guard=guard)


class _Seen:
    """A clause, and how far its reads may be looked through."""

    def __init__(self, clause: ir.Clause, lets: Mapping[str, ir.Let], shifts: Shifts | None) -> None:
        self.lets, self.shifts = lets, shifts
        self.constants = constants_of(lets)
        parts = [part for expr in (clause.body, clause.guard) if expr is not None for part in walk(expr)]
        inner = [range for part in parts if isinstance(part, ir.Reduce) for range in part.ranges]
        self.ranges = {range.coordinate: range for range in (*clause.ranges, *inner)}

    def stable(self, expr: ir.Expr) -> ir.Expr:
        """The expression with every formula in it that loses digits replaced; itself where there is none."""
        if isinstance(expr, ir.Map) and expr.type.kind == "real":
            for pattern, form in _patterns():
                found: dict[str, ir.Expr] = {}
                if self.matches(pattern, expr, found):
                    return _written(form, self.stable(found["x"]), expr.span)
            shifted = self.shifted(expr)
            if shifted is not None:
                return shifted
            if expr.op == "exp" and _is_heavy(expr):
                return expr
        children: list[bool] = []

        def changed(child: ir.Expr) -> ir.Expr:
            new = self.stable(child)
            children.append(new is not child)
            return new

        result = rebuild(expr, changed)
        return result if any(children) else expr

    def matches(self, pattern: Pattern, expr: ir.Expr, found: dict[str, ir.Expr]) -> bool:
        """Whether an expression is a formula, for some `x`."""
        if isinstance(pattern, str):
            return found.setdefault("x", expr) == expr
        if isinstance(pattern, Fraction):
            return isinstance(expr, ir.Const) and not isinstance(expr.value, bool) and expr.value == pattern
        opened = self.opened(expr)
        if opened is not None:
            return self.matches(pattern, opened, found)
        op, arguments = pattern
        if not isinstance(expr, ir.Map):
            return False
        given = expr.arguments
        if expr.op == "-" and op == "+":
            given = (given[0], build.apply("neg", (given[1],), given[1].type.kind, given[1].span))
        elif expr.op != op or len(given) != len(arguments):
            return False
        for turned in (given, given[::-1]) if op == "+" else (given,):
            trial = dict(found)
            if all(self.matches(part, value, trial) for part, value in zip(arguments, turned, strict=True)):
                found.update(trial)
                return True
        return False

    def shifted(self, expr: ir.Map) -> ir.Expr | None:
        """`log(sum[j](exp(s)))` as `m + log(sum[j](exp(s - m)))`, for a number `m` near the largest of all `s`; also of
        a mean, and with 1 or an exponential beside the sum."""
        if self.shifts is None:
            return None
        for argument, beside in _beside(expr):
            total = argument if isinstance(argument, ir.Reduce) else self.body_of(argument)
            if isinstance(total, ir.Reduce) and total.op in ("sum", "mean"):
                return self.shifted_total(expr, total, beside)
        return None

    def shifted_total(self, expr: ir.Map, total: ir.Reduce, beside: ir.Expr | None) -> ir.Expr | None:
        """The logarithm of a sum of exponentials, with a number near the largest taken off each and added again; None
        where it is none, or is shifted already."""
        assert self.shifts is not None
        found: dict[str, ir.Expr] = {}
        self.ranges |= {range.coordinate: range for range in total.ranges}
        if not self.matches(("exp", ("x",)), total.body, found) or _is_shifted(found["x"], total):
            return None
        home = [self.ranges.get(coordinate) for coordinate in sorted(expr.type.coordinates)]
        known = [range for range in home if range is not None and range.is_counted]
        parts = (total, found["x"], *(() if beside is None else (beside,)))
        if len(known) < len(home) or not all(map(is_bare, parts)):
            return None
        near = self.shifts.near(total, self.stable(found["x"]), beside, known)
        less: ir.Expr = build.apply("-", (found["x"], near), "real", expr.span)
        if total.guard is not None:
            # What is removed may be far above what is left, and must not overflow.
            less = build.select(total.guard, less, build.real(Fraction(0), expr.span), expr.span)
        raised = build.apply("exp", (less,), "real", expr.span)
        rest: ir.Expr = build.reduce(total.op, total.ranges, raised, total.guard, "real", total.span)
        if beside is None:
            return build.apply("+", (near, build.apply("log", (rest,), "real", expr.span)), "real", expr.span)
        # Beside 1 no digits are lost of a small total: the first is `log1p(total)` where `m` is 0.
        form = "log1p(expm1(x) + y)" if isinstance(beside, ir.Const) else "log(exp(x) + y)"
        less = build.apply("-", (beside, near), "real", expr.span)
        return build.apply("+", (near, _written(form, less, expr.span, rest)), "real", expr.span)

    def opened(self, expr: ir.Expr) -> ir.Expr | None:
        """The body of a definition between the parts of a formula; None for anything else."""
        let = self.lets.get(expr.tensor) if isinstance(expr, ir.Read) else None
        body = self.body_of(expr) if let is not None and isinstance(let.clauses[0].body, ir.Map) else None
        # What is summed is not to be summed again.
        return body if body is not None and not _is_heavy(body) else None

    def body_of(self, expr: ir.Expr) -> ir.Expr | None:
        """The body of a definition that is read at points that it surely has; None for anything else."""
        let = self.lets.get(expr.tensor) if isinstance(expr, ir.Read) else None
        if let is None or not isinstance(expr, ir.Read) or not _is_plain(let):
            return None
        for index, axis in zip(expr.indices, let.axes, strict=True):
            range = self.ranges.get(index.coordinate) if isinstance(index, ir.Coord) else None
            if range is None or not isinstance(range.lower, ir.Const) or range.lower.value < 0:
                return None
            if polynomial(range.upper, self.constants) != polynomial(axis.extent, self.constants):
                return None
        return at(let.clauses[0], let.clauses[0].body, expr.indices)


def _is_plain(let: ir.Let) -> bool:
    """Whether a definition is there at all its points, by one clause."""
    clause = let.clauses[0]
    return (
        len(let.clauses) == 1 and clause.guard is None and all(isinstance(slot, ir.Coord) for slot in clause.slots)
    )


def _is_heavy(expr: ir.Expr) -> bool:
    return any(isinstance(part, ir.Reduce | ir.Normalize) for part in walk(expr))


def _written(form: str, x: ir.Expr, span: Span, y: ir.Expr | None = None) -> ir.Expr:
    return read(
        form,
        {"x": x, "y": x if y is None else y},
        lambda number: build.real(number, span),
        lambda op, arguments: build.apply(op, arguments, "real", span),
    )


# ---------------------------------------------------------------------- shifted


def _beside(expr: ir.Map) -> Iterator[tuple[ir.Expr, ir.Expr | None]]:
    """Yield what a logarithm may be of: a total, and the exponent of what is added to it, None for nothing."""
    match expr:
        case ir.Map("log1p", (total,)):
            yield total, build.real(Fraction(0), expr.span)
        case ir.Map("log", (ir.Map("+", (left, right)),)):
            for total, other in ((left, right), (right, left)):
                match other:
                    case ir.Const(value) if value == 1:
                        yield total, build.real(Fraction(0), expr.span)
                    case ir.Map("exp", (exponent,)) if exponent.type.kind == "real":
                        yield total, exponent
        case ir.Map("log", (total,)):
            yield total, None


def _is_shifted(score: ir.Expr, total: ir.Reduce) -> bool:
    """Whether something is taken from every score already that all of them share."""
    return (
        isinstance(score, ir.Map) and score.op == "-" and not score.arguments[1].type.coordinates & total.coordinates
    )


@dataclass(slots=True)
class Shifts:
    """The numbers that are taken from exponents before these are raised, as definitions beside the one they serve."""

    owner: ir.Let
    taken: set[str]
    lets: list[ir.Let] = field(default_factory=list)

    def near(self, total: ir.Reduce, score: ir.Expr, beside: ir.Expr | None, home: list[ir.Range]) -> ir.Expr:
        """A number near the largest score, or what is `beside` them, and 0 where that is infinite. It is whole, so that
        nothing flows through it: what is computed with it does not depend on it."""
        span = total.span
        most: ir.Expr = build.reduce("max", total.ranges, score, total.guard, "real", span)
        if beside is not None:
            most = build.apply("max", (beside, most), "real", span)
        largest = self._define("largest", most, home)
        floor = build.apply("floor", (largest,), "real", span)
        gone = build.apply("-", (floor, floor), "real", span)
        is_finite = build.apply("==", (gone, build.real(Fraction(0), span)), "bool", span)
        return self._define("near", build.select(is_finite, floor, build.real(Fraction(0), span), span), home)

    def _define(self, word: str, body: ir.Expr, home: list[ir.Range]) -> ir.Expr:
        name = fresh_name(f"{self.owner.name}_{word}", self.taken)
        self.taken.add(name)
        slots = tuple(build.coord(range.coordinate, body.span) for range in home)
        axes = tuple(ir.Axis(range.coordinate, range.upper) for range in home)
        clause = ir.Clause(slots, tuple(home), body, None, body.span)
        self.lets.append(ir.Let(name, axes, "real", (clause,), True, self.owner.span))
        return build.read(name, slots, "real", body.span)


# ------------------------------------------------------------------------ apart

# The name of what stands inside a definition's own function: `p = sigmoid(sum[d](…))` is `p = sigmoid(p_inside)`.
_INSIDE = "_inside"


def _split(lets: tuple[ir.Let, ...], recurrent: frozenset[str]) -> tuple[ir.Let, ...]:
    """The definitions, those that are looked through with their sums named apart, so that none is computed twice."""
    known = {let.name: let for let in lets}
    names = _looked_through(lets, known)
    result: list[ir.Let] = []
    for let in lets:
        inside = f"{let.name}{_INSIDE}"
        splits = let.name in names and let.name not in recurrent and inside not in known and _is_plain(let)
        splits = splits and isinstance(let.clauses[0].body, ir.Map)
        parts = list(_sums_inside(let.clauses[0].body)) if splits else []
        if len(parts) == 1 and parts[0].type.kind == "real":
            clause = let.clauses[0]
            named = build.read(inside, clause.slots, "real", parts[0].span)
            body = _with(clause.body, parts[0], named)
            hidden = replace(clause, body=parts[0])
            result.append(replace(let, name=inside, clauses=(hidden,), hidden=True, kind="real"))
            let = replace(let, clauses=(replace(clause, body=body),))
        result.append(let)
    return tuple(result)


def _looked_through(lets: tuple[ir.Let, ...], known: Mapping[str, ir.Let]) -> set[str]:
    """The definitions that stand where a formula may go on: under a function that some formula begins with."""
    waiting = [name for let in lets for part in parts_in(let) for name in _begun(part)]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in known and name not in found:
            found.add(name)
            waiting += [inner for clause in known[name].clauses for inner in _along(clause.body)]
    return found


def _begun(expr: ir.Expr) -> Iterator[str]:
    first = {pattern[0] for pattern, _ in _patterns() if isinstance(pattern, tuple)} - {"+"}
    if isinstance(expr, ir.Map) and (expr.op in first or expr.op == "-"):
        for argument in expr.arguments:
            yield from _along(argument)


def _along(expr: ir.Expr) -> Iterator[str]:
    """Yield the names that a formula may go on in: past signs and numbers."""
    match expr:
        case ir.Read(tensor):
            yield tensor
        case ir.Map("+" | "-" | "neg" | "/", arguments):
            for argument in arguments:
                yield from _along(argument)


def _sums_inside(expr: ir.Expr) -> Iterator[ir.Expr]:
    """Yield the arguments of functions in which something is summed."""
    match expr:
        case ir.Map("+" | "-" | "neg" | "/", arguments):
            for argument in arguments:
                yield from _sums_inside(argument)
        case ir.Map(op, (argument,)) if op in FUNCTIONS and _is_heavy(argument):
            yield argument


def _with(expr: ir.Expr, old: ir.Expr, new: ir.Expr) -> ir.Expr:
    return new if expr is old else rebuild(expr, lambda child: _with(child, old, new))


