"""The usual mistakes in a program: each is the program, changed in one way, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import combinations

from ...ir import build
from ...ir import nodes as ir
from ...ir.functions import FUNCTIONS
from ...ir.walk import children, rebuild, walk
from ...records import dataclass, replace
from .example import Changes
from .variants import (
    FREQUENT,
    USUAL,
    Place,
    Variant,
    as_real,
    exchanged,
    is_scale,
    other_guards,
    said,
    shares,
    variants,
)

# In bits: what is rounded on the way, where that is not printed.
ROUNDED = 1
E = Fraction("2.718281828459045")
OF_E = "exp log".split()
Find = Callable[[ir.Expr], Iterator[Variant]]


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in a program. `words` go on after "holds if"."""

    kind: str
    words: str
    prior: float
    changes: Changes


@dataclass(frozen=True, slots=True)
class Site:
    """A definition, or the left side of a claim, in which mistakes are looked for."""

    name: str
    hidden: bool
    clauses: tuple[ir.Clause, ...]
    place: Place
    changed: Callable[[tuple[ir.Clause, ...]], Changes]

    def mistake(self, variant: Variant, clauses: tuple[ir.Clause, ...]) -> Mistake:
        inside = "" if self.hidden or f"`{self.name}`" in variant.words else f", in `{self.name}`,"
        return Mistake(variant.kind, f"{inside} {variant.words}", variant.prior, self.changed(clauses))


def mistakes(sites: list[Site]) -> Iterator[Mistake]:
    """Every usual mistake, one at a time; then those that are made in several places alike."""
    for site in sites:
        yield from _in_one(site)
    for site in sites:
        yield from _exchanges(site)
    yield from _given_exchanged(sites)
    yield from _alike(sites)


def _in_one(site: Site) -> Iterator[Mistake]:
    """Every usual mistake in one place of a definition, or in all places of it that are alike."""
    for number, clause in enumerate(site.clauses):
        for variant in _everywhere(clause.body, partial(variants, place=_around(site, clause))):
            yield site.mistake(variant, _with(site, number, replace(clause, body=variant.expr)))
        yield from _masked_after(site, number, clause)
        if clause.guard is not None:
            words = f"the mask of `{site.name}` is left out"
            free = Variant("mask", words, FREQUENT, clause.guard)
            yield site.mistake(free, _with(site, number, replace(clause, guard=None)))
            for variant in other_guards(clause.guard):
                yield site.mistake(variant, _with(site, number, replace(clause, guard=variant.expr)))


def _masked_after(site: Site, number: int, clause: ir.Clause) -> Iterator[Mistake]:
    """A softmax over all points, of which the masked ones are left out afterwards."""
    body = clause.body
    if isinstance(body, ir.Normalize) and body.op == "softmax" and body.guard is not None and clause.guard is None:
        free = build.normalize(body.op, body.coordinate, body.body, None, "real", body.span)
        words = "the mask is applied after softmax, and the rows are not normalised again"
        changed = replace(clause, body=free, guard=body.guard)
        yield site.mistake(Variant("mask", words, USUAL, body), _with(site, number, changed))


def _alike(sites: list[Site]) -> Iterator[Mistake]:
    """One mistake, made wherever it can be: in one definition, in all of them, in all calls of a function."""
    for find in (variants, exchanged):
        found: dict[object, dict[int, list[Variant]]] = {}
        for at, site in enumerate(sites):
            for clause in site.clauses:
                for variant in _everywhere(clause.body, partial(find, place=_around(site, clause))):
                    for key in variant.keys:
                        found.setdefault(key, {}).setdefault(at, []).append(variant)
        for key, places in found.items():
            first = next(iter(places.values()))[0]
            ruled = isinstance(key, str)
            for at, here in places.items() if ruled else ():
                if len(here) > 1:
                    yield sites[at].mistake(replace(first, words=f"{key} throughout"), _all(sites[at], key, find))
            if len(places) > 1 or (not ruled and len(next(iter(places.values()))) > 1):
                changes = merged(sites[at].changed(_all(sites[at], key, find)) for at in places)
                words = f" {key} everywhere" if ruled else f" {first.words}"
                yield Mistake(first.kind, words, first.prior, changes)


def merged(several: Iterable[Changes]) -> Changes:
    """Changes in different places, as one."""
    lets: dict[str, ir.Let] = {}
    bodies: dict[int, ir.Expr] = {}
    printed: dict[str, Mapping[int, Decimal | int]] = {}
    for changes in several:
        lets.update(changes.lets)
        bodies.update(changes.bodies)
        printed.update(changes.printed)
    return Changes(lets, bodies, printed)


def _all(site: Site, key: object, find: Callable[..., Iterator[Variant]]) -> tuple[ir.Clause, ...]:
    """The clauses of a definition with a mistake made in all places."""

    def changed(part: ir.Expr, place: Place) -> ir.Expr:
        inner = part
        for child in _values_in(part):
            inner = _replaced(inner, child, changed(child, place))
        same = (one for one in find(inner, place=place) if key in replace(one, span=part.span).keys)
        return next((one.expr for one in same), inner)

    return tuple(replace(clause, body=changed(clause.body, _around(site, clause))) for clause in site.clauses)


def _exchanges(site: Site) -> Iterator[Mistake]:
    """Two tensors of one shape, or two constants, that are taken for each other."""
    shapes, kinds = site.place.shapes, site.place.kinds
    parts = [part for clause in site.clauses for part in walk(clause.body)]
    names = dict.fromkeys(part.tensor for part in parts if isinstance(part, ir.Read) and part.tensor in shapes)
    for one, other in combinations(names, 2):
        if shapes[one] == shapes[other] and kinds[one] == kinds[other]:
            names_of = {one: other, other: one}
            yield _exchanged(site, f"`{one}` and `{other}` are exchanged", partial(_renamed, names=names_of))
    numbers = dict.fromkeys(part for part in parts if isinstance(part, ir.Const) and part.type.kind == "real")
    for first, second in combinations(numbers, 2):
        values = {first: second, second: first}
        words = f"{first.span.text} and {second.span.text} are exchanged"
        yield _exchanged(site, words, lambda part, values=values: values.get(part, part))  # type: ignore[misc]


def _given_exchanged(sites: list[Site]) -> Iterator[Mistake]:
    """Two definitions that are given as numbers, of one shape, and taken for each other everywhere."""
    given = [site for site in sites if isinstance(site.clauses[0].body, ir.Const | ir.Array) and not site.hidden]
    for one, other in combinations(given, 2):
        mine, theirs = one.clauses[0].body, other.clauses[0].body
        shapes = [body.shape if isinstance(body, ir.Array) else () for body in (mine, theirs)]
        if shapes[0] == shapes[1] and mine.type.kind == theirs.type.kind and mine != theirs:
            indices = [body.indices if isinstance(body, ir.Array) else () for body in (mine, theirs)]
            bodies = [
                replace(body, indices=own) if isinstance(body, ir.Array) else body
                for body, own in ((theirs, indices[0]), (mine, indices[1]))
            ]
            first, second = (
                site.changed((replace(site.clauses[0], body=body),))
                for site, body in zip((one, other), bodies, strict=True)
            )
            words = f" `{one.name}` and `{other.name}` are exchanged"
            yield Mistake("exchanged", words, USUAL, merged((first, second)))


def _renamed(part: ir.Expr, names: Mapping[str, str]) -> ir.Expr:
    return replace(part, tensor=names.get(part.tensor, part.tensor)) if isinstance(part, ir.Read) else part


def _exchanged(site: Site, words: str, change: Callable[[ir.Expr], ir.Expr]) -> Mistake:
    def deep(part: ir.Expr) -> ir.Expr:
        return change(rebuild(part, deep))

    clauses = tuple(replace(clause, body=deep(clause.body)) for clause in site.clauses)
    return site.mistake(Variant("exchanged", words, USUAL, site.clauses[0].body), clauses)


# -------------------------------------------------------------------- one place


def _around(site: Site, clause: ir.Clause) -> Place:
    return replace(site.place, ranges=clause.ranges)


def _with(site: Site, number: int, clause: ir.Clause) -> tuple[ir.Clause, ...]:
    return (*site.clauses[:number], clause, *site.clauses[number + 1 :])


def _everywhere(expr: ir.Expr, find: Find) -> Iterator[Variant]:
    """The expression with one part replaced. What is an index, a bound or a guard is left as it is."""
    yield from (replace(variant, span=expr.span) for variant in find(expr))
    for child in _values_in(expr):
        for variant in _everywhere(child, find):
            yield replace(variant, expr=_replaced(expr, child, variant.expr))


def _values_in(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    match expr:
        case ir.Reduce(_, _, body) | ir.Normalize(_, _, body):
            return (body,)
        case ir.Select(_, then, otherwise):
            return (then, otherwise)
        case ir.Map():
            return children(expr)
        case _:
            return ()


def values_within(expr: ir.Expr) -> Iterator[ir.Expr]:
    """An expression and its parts; not what is an index, a bound, a guard or an exponent."""
    yield expr
    inner = _values_in(expr)
    for child in inner[:1] if isinstance(expr, ir.Map) and expr.op == "**" else inner:
        yield from values_within(child)


def _replaced(expr: ir.Expr, child: ir.Expr, new: ir.Expr) -> ir.Expr:
    return rebuild(expr, lambda part: new if part is child else part)


# ------------------------------------------------------------ rounding on the way


def rounded(sites: list[Site], places: int) -> Iterator[Mistake]:
    """Values of definitions, or terms, exponentials and constants in them, that are rounded to so many places before
    they are used; last, all steps alike."""
    names = [site.name for site in sites if not site.hidden and not isinstance(site.clauses[0].body, ir.Array)]
    for name in names:
        words = f" `{name}` is rounded to {_places(places)} before it is used"
        changes = merged(_read_rounded(site, {name}, places) for site in sites)
        if changes.lets or changes.bodies:
            yield Mistake("rounded early", words, ROUNDED, changes)
    for site in sites:
        for number, clause in enumerate(site.clauses):
            find = partial(_roundings, ranges=clause.ranges, places=places)
            for variant in _everywhere(clause.body, find):
                yield site.mistake(variant, _with(site, number, replace(clause, body=variant.expr)))
    if len(names) > 1:
        words = f" every step is rounded to {_places(places)} before it is used"
        changes = merged(_read_rounded(site, set(names), places) for site in sites)
        yield Mistake("rounded early", words, ROUNDED, changes)


def _read_rounded(site: Site, names: set[str], places: int) -> Changes:
    """A definition that reads others as rounded. They are as they are where they are printed themselves."""

    def deep(part: ir.Expr) -> ir.Expr:
        inner = rebuild(part, deep)
        is_one = isinstance(part, ir.Read) and part.tensor in names and part.type.kind == "real"
        return _to_places(inner, places) if is_one else inner

    clauses = tuple(replace(clause, body=deep(clause.body)) for clause in site.clauses)
    return site.changed(clauses) if clauses != site.clauses else Changes()


def _roundings(expr: ir.Expr, ranges: tuple[ir.Range, ...], places: int) -> Iterator[Variant]:
    """Terms of a sum, exponentials of a softmax, constants: each rounded before they are used."""
    match expr:
        case ir.Reduce(op="sum") if expr.type.kind == "real":
            body = _to_places(expr.body, places)
            yield Variant(
                "terms", f"its terms are added as rounded to {_places(places)}", ROUNDED, replace(expr, body=body)
            )
        case ir.Normalize(op="softmax"):
            own = next((range for range in ranges if range.coordinate == expr.coordinate), None)
            if own is not None:
                parts = _to_places(build.apply("exp", (as_real(expr.body),), "real", expr.span), places)
                words = f"the exponentials are rounded to {_places(places)} before they are divided"
                yield Variant("terms", words, ROUNDED, shares(expr, parts, own))
                base = build.real(round(E, places), expr.span)
                raised = build.apply("**", (base, as_real(expr.body)), "real", expr.span)
                yield Variant("constant", f"`e` is taken as {float(base.value)}", ROUNDED, shares(expr, raised, own))
                body = _to_places(as_real(expr.body), places)
                words = f"`{said(expr.body)}` is rounded to {_places(places)} before softmax"
                yield Variant("rounded early", words, ROUNDED, replace(expr, body=body))
        case ir.Map(op, (inside,)) if op in OF_E and not is_scale(inside):
            yield from _of_base(expr, inside, places)
        case ir.Map(op) if is_scale(expr) and (op == "pi" or (op in FUNCTIONS and not FUNCTIONS[op].exact)):
            words = f"`{said(expr)}` is rounded to {_places(places)}"
            yield Variant("constant", words, ROUNDED, _to_places(expr, places))
            if len(expr.arguments) == 1:
                yield from _of_base(expr, expr.arguments[0], places)


def _of_base(expr: ir.Map, inside: ir.Expr, places: int) -> Iterator[Variant]:
    """A power or a logarithm whose base is e, rounded."""
    base = build.real(round(E, places), expr.span)
    words = f"`e` is taken as {float(base.value)}"
    if expr.op == "exp":
        yield Variant("constant", words, ROUNDED, build.apply("**", (base, as_real(inside)), "real", expr.span))
    elif expr.op == "log":
        below = build.apply("log", (base,), "real", expr.span)
        yield Variant("constant", words, ROUNDED, build.apply("/", (expr, below), "real", expr.span))


def _to_places(expr: ir.Expr, places: int) -> ir.Expr:
    """An expression, rounded to so many places."""
    span = expr.span
    power = build.real(Fraction(10) ** places, span)
    scaled = build.apply("*", (as_real(expr), power), "real", span)
    return build.apply("/", (build.apply("round", (scaled,), "real", span), power), "real", span)


def _places(places: int) -> str:
    return "a whole number" if places == 0 else "1 place" if places == 1 else f"{places} places"
