"""Rewrites that cut a program into other pieces: name a part, write one out."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.facts import trees
from tests.facts.spelling import (
    Spelling,
    also,
    bare,
    coordinates_in,
    declared,
    guards_inside,
    homes,
    named,
    single,
    swap,
)
from tests.facts.trees import at, let, name, paren

from indexical.syntax import tree
from indexical.syntax.vocabulary import NORMALISERS

# ------------------------------------------------------------------------- name a part


def extract(spelling: Spelling, chance: Random) -> Spelling | None:
    """Give a part of a definition a name of its own: a factor, a product, a scale, a guard, an index."""
    found = []
    for statement in single(spelling):
        inside = guards_inside(statement)
        scope = tuple(slot for slot in inside.slots or () if isinstance(slot, tree.Binder))
        if any(isinstance(part, tree.Block) and part.lets for part in tree.walk(inside.body)):
            continue
        for part, around in trees.places(inside.body, scope):
            slots = _slots(spelling, part, around)
            if slots is not None and part is not inside.body:
                found.append((statement, inside, part, slots))
    if not found:
        return None
    statement, inside, part, slots = chance.choice(found)
    word = next(trees.fresh(("part", "piece", "step", "stage", "inner", "other"), spelling.taken()))
    order = tuple(chance.sample(slots, len(slots)))
    definition = let(word, order or None, _unwrapped(part))
    reader = trees.put(inside, part, at(word, trees.coordinates_of(order)))
    of = {read.base.name for read in trees.tensors_in(part) if isinstance(read.base, tree.Name)}
    tensors = also(spelling.tensors, word, of)
    for size in trees.sized(part):
        tensors = also(tensors, word, (size,)) if not of else tensors
    return replace(swap(spelling, statement, definition, reader), tensors=tensors)


def _unwrapped(expr: tree.Expr) -> tree.Expr:
    return _unwrapped(expr.inner) if isinstance(expr, tree.Paren) else expr


def _slots(spelling: Spelling, part: tree.Expr, scope: trees.Scope) -> list[tree.Binder] | None:
    """The coordinates a part varies over, as slots of a definition; None where it cannot be one."""
    if isinstance(part, tree.Name | tree.Number | tree.Bool | tree.Paren | tree.Block):
        return None
    if isinstance(part, tree.Unary) and isinstance(part.operand, tree.Number):
        return None
    around = {own.name: own for own in scope}
    given = set(coordinates_in(_inputs_only(spelling)))
    spoken = trees.spoken(part)
    read = _read_bare(part)
    result = []
    for word, own in around.items():
        if word not in spoken:
            continue
        if own.range is not None and trees.spoken(own.range) & around.keys():
            return None
        if own.range is None and word not in read and word not in given:
            return None
        result.append(own)
    kept = {own.name for own in result}
    for word in trees.sized(part) - kept:
        if word in around and (around[word].range is not None or word not in given):
            return None
    return result


def _inputs_only(spelling: Spelling) -> trees.Statements:
    return tuple(statement for statement in spelling.statements if isinstance(statement, tree.Input))


def _read_bare(expr: tree.Expr) -> set[str]:
    """The coordinates that are an index by themselves somewhere in an expression."""
    return {i.name for read in trees.tensors_in(expr) for i in read.indices if isinstance(i, tree.Name)}


def enclose(spelling: Spelling, chance: Random) -> Spelling | None:
    """A part of a right-hand side as a `let` in a block, which sees the coordinates around it."""
    found = []
    for statement in single(spelling):
        inside = guards_inside(statement)
        if inside.slots is None or any(isinstance(part, tree.Block) for part in tree.walk(inside.body)):
            continue
        home = tuple(slot for slot in inside.slots if isinstance(slot, tree.Binder))
        for part, around in trees.places(inside.body, home):
            slots = _slots(spelling, part, around)
            if slots is None or part is inside.body:
                continue
            own = [slot for slot in slots if not any(slot is one for one in home)]
            if all(slot.name in _read_bare(part) and slot.name not in trees.sized(part) for slot in own):
                found.append((statement, inside, part, own))
    if not found:
        return None
    statement, inside, part, own = chance.choice(found)
    words = trees.fresh(("local", "kept_here"), spelling.taken())
    word, inner = next(words), {slot.name: next(words) for slot in own}
    slots = [replace(slot, name=inner[slot.name]) for slot in own]
    body = trees.substitute(_unwrapped(part), {old: name(new) for old, new in inner.items()})
    value = trees.put(inside.body, part, at(word, inner))
    block = tree.Block((let(word, slots or None, body),), value, (), trees.NOWHERE)
    of = {read.base.name for read in trees.tensors_in(part) if isinstance(read.base, tree.Name)} or trees.sized(part)
    coordinates = spelling.coordinates
    for old, new in inner.items():
        coordinates = also(coordinates, new, (old,))
    after = swap(spelling, statement, replace(inside, body=block))
    return replace(after, tensors=also(spelling.tensors, word, of), coordinates=coordinates)


def abbreviate(spelling: Spelling, chance: Random) -> Spelling | None:
    """A part of a right-hand side as `where z = …`."""
    found = []
    for statement in single(spelling):
        inside = guards_inside(statement)
        if inside.where or inside.slots is None:
            continue
        for part, _ in trees.places(inside.body, ()):
            inner = isinstance(part, tree.Index | tree.Call | tree.Binary) and part is not inside.body
            if inner and not isinstance(part, tree.Comparison):
                found.append((statement, inside, part))
    if not found:
        return None
    statement, inside, part = chance.choice(found)
    word = next(trees.fresh(("short", "brief", "z"), spelling.taken()))
    clause = tree.Abbreviation(word, part, trees.NOWHERE)
    of = {read.base.name for read in trees.tensors_in(part) if isinstance(read.base, tree.Name)} or trees.sized(part)
    new = replace(trees.put(inside, part, name(word)), where=(clause,))
    tensors, coordinates = also(spelling.tensors, word, of), also(spelling.coordinates, word, trees.spoken(part))
    return replace(swap(spelling, statement, new), tensors=tensors, coordinates=coordinates)


# -------------------------------------------------------------------------- write one out


def inline(spelling: Spelling, chance: Random) -> Spelling | None:
    """Write a definition out where it is read, and drop it."""
    found = single(spelling)
    chance.shuffle(found)
    statement = next((one for one in found if _can_inline(spelling, guards_inside(one))), None)
    if statement is None:
        return None
    inside = guards_inside(statement)
    slots = trees.coordinates_of(inside.slots)
    taken: set[str] = set()
    known = homes(spelling.statements).keys() | declared(spelling.statements)
    coordinates = spelling.coordinates

    def visit(part: Any) -> Any:
        nonlocal coordinates
        match part:
            case tree.Index(tree.Name(word), indices) if word == inside.name:
                body = trees.apart(inside.body, taken, known)
                for before, after in zip(_bound(inside.body), _bound(body), strict=True):
                    coordinates = also(coordinates, after, (before,))
                values = dict(zip(slots, indices, strict=True))
                for old, new in values.items():
                    if isinstance(new, tree.Name):
                        body = _resized(body, old, new.name)
                return paren(trees.substitute(body, values))
            case tree.Name(word) if word == inside.name and inside.slots is None:
                return paren(inside.body)
            case _:
                return part

    statements = []
    for other in spelling.statements:
        if other is not statement:
            taken = trees.names_in(other)
            reader = other if isinstance(other, tree.Fn) else _ranging(other, inside)
            statements.append(other if isinstance(other, tree.Fn) else trees.change(reader, visit))
    tensors = spelling.tensors
    for read in trees.tensors_in(inside.body):
        if isinstance(read.base, tree.Name):
            tensors = also(tensors, read.base.name, (inside.name,))
    for word in trees.sized(inside.body):
        tensors = also(tensors, word, (inside.name,))
    return replace(spelling, statements=tuple(statements), tensors=tensors, coordinates=coordinates)


def _bound(expr: tree.Expr) -> list[str]:
    return [own.name for part in tree.walk(expr) if isinstance(part, tree.Reduction) for own in part.binders]


def _ranging(reader: tree.Statement, inside: tree.Let) -> tree.Statement:
    """The reader, with the ranges of the definition for the coordinates at which it is read."""
    ranges = {}
    for read in trees.tensors_in(reader):
        if read.base == name(inside.name):
            for slot, index in zip(inside.slots or (), read.indices, strict=True):
                if isinstance(slot, tree.Binder) and slot.range is not None and isinstance(index, tree.Name):
                    ranges[index.name] = slot.range

    def visit(part: Any) -> Any:
        if isinstance(part, tree.Reduction) and part.operator in NORMALISERS:
            return replace(part, binders=tuple(replace(own, range=None) for own in part.binders))
        if isinstance(part, tree.Binder) and part.range is None and part.name in ranges:
            return replace(part, range=ranges[part.name])
        return part

    return trees.change(reader, visit) if ranges else reader


def _resized(expr: tree.Expr, old: str, new: str) -> tree.Expr:
    bound = {own.name for part in tree.walk(expr) if isinstance(part, tree.Reduction) for own in part.binders}
    return expr if old in bound else trees.rename_sizes(expr, old, new)


def _can_inline(spelling: Spelling, statement: tree.Let) -> bool:
    word = statement.name
    slots = statement.slots
    used = uses(spelling, word)
    if word in spelling.kept or word in named(spelling.statements) or statement.where or not used:
        return False
    if slots is None:
        # Written out, a whole quotient would meet a real one.
        return not any(
            (isinstance(part, tree.Call) and part.function not in _KNOWN)
            or (isinstance(part, tree.Binary) and part.operator == "/")
            for part in tree.walk(statement.body)
        )
    if word in bare(spelling.statements) or any(not isinstance(s, tree.Binder) or s.rest for s in slots):
        return False
    names = trees.coordinates_of(slots)
    scanned = {
        own.name
        for part in tree.walk(statement.body)
        if isinstance(part, tree.Reduction) and part.operator in NORMALISERS
        for own in part.binders
    }
    if any(isinstance(part, tree.If | tree.Block) for part in tree.walk(statement.body)):
        return False
    held = set(trees.sized(statement.body)) & set(names)
    for other, read in used:
        plain = [i.name if isinstance(i, tree.Name) else "" for i in read.indices]
        must = [n for n, own in enumerate(names) if own in scanned or own in held]
        if any(not plain[n] or plain.count(plain[n]) > 1 for n in must):
            return False
        if scanned & set(names) and _ranged(other) & {plain[n] for n in must}:
            return False
    return True


_KNOWN = {"size", "sqrt", "rsqrt", "exp", "log", "tanh", "sigmoid", "relu", "gelu", "silu", "abs", "max", "min"}


def uses(spelling: Spelling, word: str) -> list[tuple[tree.Statement, tree.Index]]:
    found = []
    for statement in spelling.statements:
        bases = {id(part.base) for part in tree.walk(statement) if isinstance(part, tree.Index)}
        for part in tree.walk(statement):
            if isinstance(part, tree.Index) and part.base == name(word):
                found.append((statement, part))
            elif (
                part == name(word) and id(part) not in bases and not isinstance(statement, tree.Output | tree.Contract)
            ):
                found.append((statement, tree.Index(name(word), (), trees.NOWHERE)))
    return found


def _ranged(statement: tree.Node) -> set[str]:
    return {p.name for p in tree.walk(statement) if isinstance(p, tree.Binder) and p.range is not None}
