"""Meaning-preserving rewrites of program texts: other names, other orders, other cuts, other words.

Each takes a `Spelling` and a source of chance, and gives another `Spelling` of the same program, or None
where it finds nothing to do. `rewrite` composes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from indexical.syntax import tree
from indexical.syntax.vocabulary import NORMALISERS

from . import trees
from .trees import Statements, at, binary, binder, call, compare, guard, let, name, number, paren

Names = Mapping[str, frozenset[str]]

LETTERS = ("p", "q", "s", "t", "u", "v", "w", "x", "y", "z", "a", "c", "l", "n", "row", "column", "token", "part")
WORDS = ("Alpha", "Beta", "Gamma", "Delta", "Eps", "Zeta", "Eta", "Theta", "Iota", "Kappa", "Mu", "Nu", "Xi", "Rho")


@dataclass(frozen=True)
class Spelling:
    """A program, and what has become of its names.

    `tensors` and `coordinates` say by which names something of the first text goes by, or what is made of it;
    `inputs` is the one name of each input and the order of its axes. `kept` are definitions to leave alone.
    """

    statements: Statements
    tensors: Names
    coordinates: Names
    inputs: Mapping[str, tuple[str, tuple[int, ...]]]
    kept: frozenset[str] = frozenset()
    done: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return trees.write(self.statements)

    @property
    def has_contract(self) -> bool:
        return any(isinstance(statement, tree.Contract) for statement in self.statements)

    def taken(self) -> set[str]:
        return set().union(*(trees.names_in(statement) for statement in self.statements))


def spell(text: str, kept: Iterable[str] = ()) -> Spelling:
    """A text as it stands."""
    statements = trees.read(text)
    found = _coordinates(statements)
    inputs = {item.name: (item.name, tuple(range(len(item.slots or ())))) for item in _inputs(statements)}
    tensors = {word: frozenset((word,)) for word in (*inputs, *_lets(statements))}
    sizes = {f"size({word})": frozenset((word,)) for word in found}
    coordinates = {word: frozenset((word,)) for word in found}
    return Spelling(statements, {**tensors, **sizes}, coordinates, inputs, frozenset(kept))


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


# --------------------------------------------------------------------- a program's parts


def _inputs(statements: Statements) -> list[tree.InputItem]:
    return [item for statement in statements if isinstance(statement, tree.Input) for item in statement.items]


def _lets(statements: Statements) -> dict[str, list[tree.Let]]:
    found: dict[str, list[tree.Let]] = {}
    for statement in statements:
        if isinstance(statement, tree.Let):
            found.setdefault(statement.name, []).append(statement)
    return found


def _single(spelling: Spelling) -> list[tree.Let]:
    """Definitions of one clause that do not refer to themselves."""
    return [
        clauses[0]
        for word, clauses in _lets(spelling.statements).items()
        if len(clauses) == 1 and word not in trees.names_in(clauses[0].body)
    ]


def _homes(statements: Statements) -> dict[str, tuple[tree.Slot, ...]]:
    homes = {item.name: item.slots or () for item in _inputs(statements)}
    homes.update({word: clauses[0].slots or () for word, clauses in _lets(statements).items()})
    return homes


def _coordinates(statements: Statements) -> list[str]:
    """Every coordinate's name, in the order of the text."""
    found = {}
    for statement in statements:
        for part in tree.walk(statement):
            if isinstance(part, tree.Binder) and not part.rest:
                found[part.name] = None
            if isinstance(part, tree.SpaceItem):
                found.update(dict.fromkeys(coordinate.name for coordinate in part.coordinates))
    return list(found)


def _bare(statements: Statements) -> set[str]:
    """Names that stand without a bracket: scalars, coordinates, and tensors that are passed on whole."""
    found = set()
    for statement in statements:
        bases = {id(part.base) for part in tree.walk(statement) if isinstance(part, tree.Index)}
        parts = (part for part in tree.walk(statement) if isinstance(part, tree.Name))
        if not isinstance(statement, tree.Output | tree.Contract | tree.Space):
            found |= {part.name for part in parts if id(part) not in bases}
    return found


def _named(statements: Statements) -> set[str]:
    """What outputs and contracts name."""
    found = set()
    for statement in statements:
        if isinstance(statement, tree.Output):
            found |= {word.name for word in statement.names}
        elif isinstance(statement, tree.Contract):
            found.add(statement.name.name)
    return found


def _with(spelling: Spelling, old: tree.Statement, *new: tree.Statement) -> Spelling:
    """The spelling with other statements in place of one."""
    result = []
    for statement in spelling.statements:
        result += list(new) if statement is old else [statement]
    return replace(spelling, statements=tuple(result))


def _also(names: Names, made: str, of: Iterable[str]) -> Names:
    """The names, with one more for whatever goes by one of these."""
    parts = set(of)
    return {word: found | {made} if found & parts else found for word, found in names.items()}


def _map(names: Names, words: Mapping[str, str]) -> Names:
    return {word: frozenset(words.get(one, one) for one in found) for word, found in names.items()}


# ----------------------------------------------------------------------------- names


def rename_coordinates(spelling: Spelling, chance: Random) -> Spelling | None:
    """Other names for all coordinates: new ones, or each other's."""
    old = _coordinates(spelling.statements)
    if chance.random() < 0.5:
        new = chance.sample(old, len(old))
    else:
        words = trees.fresh(chance.sample(LETTERS, len(LETTERS)), spelling.taken())
        new = [next(words) for _ in old]
    return _renamed(spelling, dict(zip(old, new, strict=True)))


def rename_tensors(spelling: Spelling, chance: Random) -> Spelling | None:
    """Other names for all inputs, definitions, functions and spaces."""
    old = [item.name for item in _inputs(spelling.statements)] + list(_lets(spelling.statements))
    for statement in spelling.statements:
        if isinstance(statement, tree.Fn):
            old.append(statement.name)
        if isinstance(statement, tree.Space):
            old += [item.name for item in statement.items]
    if chance.random() < 0.3:
        new = chance.sample(old, len(old))
    else:
        words = trees.fresh(chance.sample(WORDS, len(WORDS)), spelling.taken())
        new = [next(words) for _ in old]
    return _renamed(spelling, dict(zip(old, new, strict=True)))


def _renamed(spelling: Spelling, words: Mapping[str, str]) -> Spelling:
    return replace(
        spelling,
        statements=tuple(trees.rename(statement, words) for statement in spelling.statements),
        tensors=_map(spelling.tensors, words),
        coordinates=_map(spelling.coordinates, words),
        inputs={word: (words.get(now, now), order) for word, (now, order) in spelling.inputs.items()},
        kept=frozenset(words.get(word, word) for word in spelling.kept),
    )


def rename_bound(spelling: Spelling, chance: Random) -> Spelling | None:
    """Another name for what one reduction binds."""
    found = [
        (statement, part)
        for statement in _single(spelling)
        for part in tree.walk(statement.body)
        if isinstance(part, tree.Reduction) and part.operator not in NORMALISERS and not statement.where
    ]
    if not found:
        return None
    statement, part = chance.choice(found)
    new = trees.apart(part, {*spelling.taken()})
    pairs = zip(part.binders, new.binders, strict=True)
    coordinates = spelling.coordinates
    for before, after in pairs:
        coordinates = _also(coordinates, after.name, (before.name,))
    return replace(_with(spelling, statement, trees.put(statement, part, new)), coordinates=coordinates)


# ----------------------------------------------------------------------------- orders


def permute_axes(spelling: Spelling, chance: Random) -> Spelling | None:
    """Another order of axes for every tensor that is never passed on whole, where it is declared and read."""
    whole = _bare(spelling.statements)
    orders: dict[str, tuple[int, ...]] = {}
    for word, slots in _homes(spelling.statements).items():
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


def guards_inside(statement: tree.Let) -> tree.Let:
    """Abbreviations written out, and every guard in the bracket that it belongs to."""
    short = {c.name: c.value for c in statement.where if isinstance(c, tree.Abbreviation)}
    where = [c for c in statement.where if isinstance(c, tree.Guard)]
    body = statement.body
    for _ in short:
        values = {word: paren(value) for word, value in short.items()}
        body = trees.substitute(body, values)
        where = [trees.substitute(clause, values) for clause in where]
    own = []
    for clause in where:
        names = trees.spoken(clause)
        takers = [r for r in _at_this_depth(body) if names & {b.name for b in r.binders}]
        if takers:
            body = trees.put(body, takers[0], replace(takers[0], where=(*takers[0].where, clause)))
        else:
            own.append(clause)
    return replace(statement, body=body, where=tuple(own))


def _at_this_depth(expr: tree.Expr) -> Iterator[tree.Reduction]:
    match expr:
        case tree.Reduction():
            yield expr
        case tree.Unary() | tree.Cast() | tree.Binary() | tree.Comparison():
            for child in tree.children(expr):
                yield from _at_this_depth(child)  # type: ignore[arg-type]


def move_guards(spelling: Spelling, chance: Random) -> Spelling | None:
    """Guards behind a right-hand side go into their brackets; one in the outermost bracket comes out."""
    found = [statement for statement in _single(spelling) if statement.slots is not None]
    if not found:
        return None
    statement = chance.choice(found)
    if statement.where:
        return _with(spelling, statement, guards_inside(statement))
    body = statement.body
    if not isinstance(body, tree.Reduction) or not body.where:
        return None
    own = {b.name for b in body.binders}
    if not all(isinstance(clause, tree.Guard) and trees.spoken(clause) & own for clause in body.where):
        return None
    return _with(spelling, statement, replace(statement, body=replace(body, where=()), where=body.where))


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


def _comparison(
    left: tree.Expr, op: str, right: tree.Expr, opposite: str, turned: str, chance: Random
) -> tree.Expr:
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
