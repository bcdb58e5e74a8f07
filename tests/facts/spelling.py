"""A program in one of its spellings, and what has become of the names it began with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tests.facts import trees
from tests.facts.trees import Statements, paren

from indexical.syntax import tree

Names = Mapping[str, frozenset[str]]


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
    found = coordinates_in(statements)
    inputs = {item.name: (item.name, tuple(range(len(item.slots or ())))) for item in inputs_in(statements)}
    tensors = {word: frozenset((word,)) for word in (*inputs, *lets_in(statements))}
    sizes = {f"size({word})": frozenset((word,)) for word in found}
    coordinates = {word: frozenset((word,)) for word in found}
    return Spelling(statements, {**tensors, **sizes}, coordinates, inputs, frozenset(kept))


# --------------------------------------------------------------------- a program's parts


def inputs_in(statements: Statements) -> list[tree.InputItem]:
    return [item for statement in statements if isinstance(statement, tree.Input) for item in statement.items]


def lets_in(statements: Statements) -> dict[str, list[tree.Let]]:
    found: dict[str, list[tree.Let]] = {}
    for statement in statements:
        if isinstance(statement, tree.Let):
            found.setdefault(statement.name, []).append(statement)
    return found


def single(spelling: Spelling) -> list[tree.Let]:
    """Definitions of one clause that do not refer to themselves."""
    return [
        clauses[0]
        for word, clauses in lets_in(spelling.statements).items()
        if len(clauses) == 1 and word not in trees.names_in(clauses[0].body)
    ]


def homes(statements: Statements) -> dict[str, tuple[tree.Slot, ...]]:
    """The slots of every tensor; what is bound whole has those of the function's result."""
    results = {s.name: s.results[0].slots if s.results else () for s in statements if isinstance(s, tree.Fn)}
    found = {item.name: item.slots or () for item in inputs_in(statements)}
    for word, clauses in lets_in(statements).items():
        body = clauses[0].body
        whole = results.get(body.function, ()) if isinstance(body, tree.Call) else ()
        found[word] = whole if clauses[0].slots is None else clauses[0].slots
    return found


def coordinates_in(statements: Statements) -> list[str]:
    """Every coordinate's name, in the order of the text."""
    found = {}
    for statement in statements:
        for part in tree.walk(statement):
            if isinstance(part, tree.Binder) and not part.rest:
                found[part.name] = None
            if isinstance(part, tree.SpaceItem):
                found.update(dict.fromkeys(coordinate.name for coordinate in part.coordinates))
    return list(found)


def declared(statements: Statements) -> set[str]:
    """The coordinates that have a space."""
    items = [item for statement in statements if isinstance(statement, tree.Space) for item in statement.items]
    return {coordinate.name for item in items for coordinate in item.coordinates}


def claimed(statements: Statements) -> set[str]:
    """The coordinates that a contract names."""
    parts = [part for statement in statements for part in tree.walk(statement)]
    return {part.coordinate.name for part in parts if isinstance(part, tree.RoleItem)}


def bare(statements: Statements) -> set[str]:
    """Names that stand without a bracket: scalars, coordinates, and tensors that are passed on whole."""
    found = set()
    for statement in statements:
        bases = {id(part.base) for part in tree.walk(statement) if isinstance(part, tree.Index)}
        parts = (part for part in tree.walk(statement) if isinstance(part, tree.Name))
        if not isinstance(statement, tree.Output | tree.Contract | tree.Space):
            found |= {part.name for part in parts if id(part) not in bases}
    return found


def named(statements: Statements) -> set[str]:
    """What outputs and contracts name."""
    found = set()
    for statement in statements:
        if isinstance(statement, tree.Output):
            found |= {word.name for word in statement.names}
        elif isinstance(statement, tree.Contract):
            found.add(statement.name.name)
    return found


def swap(spelling: Spelling, old: tree.Statement, *new: tree.Statement) -> Spelling:
    """The spelling with other statements in place of one."""
    result = []
    for statement in spelling.statements:
        result += list(new) if statement is old else [statement]
    return replace(spelling, statements=tuple(result))


def also(names: Names, made: str, of: Iterable[str]) -> Names:
    """The names, with one more for whatever goes by one of these."""
    parts = set(of)
    return {word: found | {made} if found & parts else found for word, found in names.items()}


def mapped(names: Names, words: Mapping[str, str]) -> Names:
    return {word: frozenset(words.get(one, one) for one in found) for word, found in names.items()}


# ---------------------------------------------------------------------------- guards


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
