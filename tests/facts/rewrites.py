"""Meaning-preserving rewrites of program texts: other names, other orders, other cuts, other words.

Each takes a `Spelling` and a source of chance, and gives another `Spelling` of the same program, or None
where it finds nothing to do. `rewrite` composes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from tests.facts import trees
from tests.facts.cuts import abbreviate, enclose, extract, inline
from tests.facts.forms import move_scale, softmax_by_hand
from tests.facts.spelling import (
    Spelling,
    also,
    bare,
    claimed,
    coordinates_in,
    guards_inside,
    homes,
    inputs_in,
    lets_in,
    mapped,
    single,
    swap,
)
from tests.facts.trees import binary, compare, number, paren
from tests.facts.wrapping import wrap, wrap_all

from indexical.syntax import tree
from indexical.syntax.vocabulary import NORMALISERS

LETTERS = ("p", "q", "s", "t", "u", "v", "w", "x", "y", "z", "a", "c", "l", "n", "row", "column", "token", "part")
WORDS = ("Alpha", "Beta", "Gamma", "Delta", "Eps", "Zeta", "Eta", "Theta", "Iota", "Kappa", "Mu", "Nu", "Xi", "Rho")

Rewrite = Callable[[Spelling, Random], Spelling | None]


def rewrite(spelling: Spelling, chance: Random, count: int, among: Iterable[Rewrite] | None = None) -> Spelling:
    """A composition of rewrites, each applied to the text of the one before."""
    chosen = list(among or REWRITES)
    for _ in range(count):
        step = chance.choice(chosen)
        found = step(spelling, chance)
        if found is not None:
            again = trees.read(found.text)
            spelling = replace(found, statements=again, done=(*spelling.done, step.__name__))
    return spelling


# ----------------------------------------------------------------------------- names


def rename_coordinates(spelling: Spelling, chance: Random) -> Spelling | None:
    """Other names for all coordinates: new ones, or each other's."""
    old = coordinates_in(spelling.statements)
    if chance.random() < 0.5:
        new = chance.sample(old, len(old))
    else:
        words = trees.fresh(chance.sample(LETTERS, len(LETTERS)), spelling.taken())
        new = [next(words) for _ in old]
    return _renamed(spelling, dict(zip(old, new, strict=True)))


def rename_tensors(spelling: Spelling, chance: Random) -> Spelling | None:
    """Other names for all inputs, definitions, functions and spaces."""
    old = [item.name for item in inputs_in(spelling.statements)] + list(lets_in(spelling.statements))
    old += [statement.name for statement in spelling.statements if isinstance(statement, tree.Fn)]
    words = trees.fresh(chance.sample(WORDS, len(WORDS)), spelling.taken())
    new = chance.sample(old, len(old)) if chance.random() < 0.3 else [next(words) for _ in old]
    spaces = [
        item.name for statement in spelling.statements if isinstance(statement, tree.Space) for item in statement.items
    ]
    return _renamed(spelling, {**dict(zip(old, new, strict=True)), **{space: next(words) for space in spaces}})


def _renamed(spelling: Spelling, words: Mapping[str, str]) -> Spelling:
    return replace(
        spelling,
        statements=tuple(trees.rename(statement, words) for statement in spelling.statements),
        tensors=mapped(spelling.tensors, words),
        coordinates=mapped(spelling.coordinates, words),
        inputs={word: (words.get(now, now), order) for word, (now, order) in spelling.inputs.items()},
        kept=frozenset(words.get(word, word) for word in spelling.kept),
    )


def rename_bound(spelling: Spelling, chance: Random) -> Spelling | None:
    """Another name for what one reduction binds; what a contract names must stay in sight."""
    fixed = claimed(spelling.statements)
    found = [
        (statement, part)
        for statement in single(spelling)
        for part in tree.walk(statement.body)
        if isinstance(part, tree.Reduction) and part.operator not in NORMALISERS and not statement.where
        if not any(own.range is not None and own.name in fixed for own in part.binders)
    ]
    if not found:
        return None
    statement, part = chance.choice(found)
    new = trees.apart(part, {*spelling.taken()})
    pairs = zip(part.binders, new.binders, strict=True)
    coordinates = spelling.coordinates
    for before, after in pairs:
        coordinates = also(coordinates, after.name, (before.name,))
    return replace(swap(spelling, statement, trees.put(statement, part, new)), coordinates=coordinates)


# ----------------------------------------------------------------------------- orders


def permute_axes(spelling: Spelling, chance: Random) -> Spelling | None:
    """Another order of axes for every tensor that is never passed on whole, where it is declared and read."""
    whole = bare(spelling.statements)
    whole |= {word for word, clauses in lets_in(spelling.statements).items() if clauses[0].slots is None}
    orders: dict[str, tuple[int, ...]] = {}
    for word, slots in homes(spelling.statements).items():
        rest = any(isinstance(slot, tree.Binder) and slot.rest for slot in slots)
        if len(slots) > 1 and word not in whole and not rest and chance.random() < 0.8:
            orders[word] = tuple(chance.sample(range(len(slots)), len(slots)))

    def visit(part: Any) -> Any:
        match part:
            case tree.InputItem(name=word, slots=slots) | tree.Let(name=word, slots=slots) if word in orders:
                return replace(part, slots=tuple(slots[n] for n in orders[word]))
            case tree.Index(tree.Name(word), indices) if word in orders:
                return replace(part, indices=tuple(indices[n] for n in orders[word]))
            case _:
                return part

    def order(now: str, before: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        return now, tuple(before[n] for n in orders[now]) if now in orders else before

    # A function's parameters have names of their own, and are left as they are.
    statements = tuple(s if isinstance(s, tree.Fn) else trees.change(s, visit) for s in spelling.statements)
    inputs = {word: order(*now) for word, now in spelling.inputs.items()}
    return replace(spelling, statements=statements, inputs=inputs)


def shuffle_statements(spelling: Spelling, chance: Random) -> Spelling | None:
    return replace(spelling, statements=tuple(chance.sample(spelling.statements, len(spelling.statements))))


def swap_operands(spelling: Spelling, chance: Random) -> Spelling | None:
    """Factors and terms the other way round, each with an even chance."""

    def visit(part: Any) -> Any:
        if isinstance(part, tree.Binary) and part.operator in "*+" and chance.random() < 0.5:
            return replace(part, left=part.right, right=part.left)
        return part

    return replace(spelling, statements=tuple(trees.change(s, visit) for s in spelling.statements))


def nest_sums(spelling: Spelling, chance: Random) -> Spelling | None:
    """`sum[h, e](…)` as `sum[e](sum[h](…))`, or only in another order."""

    def visit(part: Any) -> Any:
        if not (isinstance(part, tree.Reduction) and part.operator == "sum" and len(part.binders) > 1):
            return part
        first, *rest = chance.sample(part.binders, len(part.binders))
        if any(own.range is not None for own in part.binders) or chance.random() < 0.3:
            return part
        if chance.random() < 0.3:
            return replace(part, binders=(first, *rest))
        return replace(part, binders=(first,), body=replace(part, binders=tuple(rest)), where=())

    return replace(spelling, statements=tuple(trees.change(s, visit) for s in spelling.statements))


# ----------------------------------------------------------------------------- guards


def move_guards(spelling: Spelling, chance: Random) -> Spelling | None:
    """Guards behind a right-hand side go into their brackets; one in the outermost bracket comes out."""
    found = [statement for statement in single(spelling) if statement.slots is not None]
    if not found:
        return None
    statement = chance.choice(found)
    if statement.where:
        return swap(spelling, statement, guards_inside(statement))
    body = statement.body
    if not isinstance(body, tree.Reduction) or not body.where:
        return None
    own = {b.name for b in body.binders}
    if not all(isinstance(clause, tree.Guard) and trees.spoken(clause) & own for clause in body.where):
        return None
    return swap(spelling, statement, replace(statement, body=replace(body, where=()), where=body.where))


def respell_guards(spelling: Spelling, chance: Random) -> Spelling | None:
    """`j <= i` as `i >= j`, `!(j > i)`, `i - j >= 0` or `j < i + 1`; a chain as a conjunction."""
    opposite = {"<=": ">", "<": ">=", ">=": "<", ">": "<="}
    turned = {"<=": ">=", "<": ">", ">=": "<=", ">": "<"}

    def visit(part: Any) -> Any:
        if not isinstance(part, tree.Comparison) or any(op not in turned for op in part.operators):
            return part
        pairs = list(zip(part.operands, part.operators, part.operands[1:], strict=False))
        result: tree.Expr | None = None
        for left, op, right in pairs:
            one = _comparison(left, op, right, opposite[op], turned[op], chance)
            result = one if result is None else binary("&&", result, one)
        assert result is not None
        return paren(result) if len(pairs) > 1 else result

    return replace(spelling, statements=tuple(trees.change(s, visit) for s in spelling.statements))


def _comparison(left: tree.Expr, op: str, right: tree.Expr, opposite: str, turned: str, chance: Random) -> tree.Expr:
    match chance.randrange(6):
        case 0:
            return compare(right, turned, left)
        case 1:
            return tree.Unary("!", paren(compare(left, opposite, right)), trees.NOWHERE)
        case 2:
            return compare(binary("-", right, paren(left)), turned, number("0"))
        case 3 if op in ("<=", ">"):
            return compare(left, "<" if op == "<=" else ">=", binary("+", right, number("1")))
        case 4:
            return compare(number("0"), op, binary("-", right, paren(left)))
        case _:
            return compare(left, op, right)


REWRITES: tuple[Rewrite, ...] = (
    rename_coordinates,
    rename_tensors,
    rename_bound,
    permute_axes,
    shuffle_statements,
    swap_operands,
    nest_sums,
    move_guards,
    respell_guards,
    move_scale,
    softmax_by_hand,
    abbreviate,
    enclose,
    extract,
    extract,
    extract,
    inline,
    inline,
    inline,
    wrap,
    wrap_all,
)
