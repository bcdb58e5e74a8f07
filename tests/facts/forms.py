"""Rewrites that know attention: where the scale stands, and softmax written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from tests.facts import trees
from tests.facts.spelling import Spelling, also, guards_inside, single, swap
from tests.facts.trees import at, binary, call, let, number, paren, reduction

from indexical.syntax import tree

# ------------------------------------------------------------------------------ scale


def move_scale(spelling: Spelling, chance: Random) -> Spelling | None:
    """`sum[d](Q * K) / sqrt(n)` with the scale before, behind, on either side or split over both."""
    found = []
    for statement in single(spelling):
        scaled = [part for part in tree.walk(statement.body) if _is_scaled(part)]
        # By hand, a score stands there twice, and has to stay the same.
        found += [(statement, part) for part in scaled if len(scaled) == 1]
    if not found:
        return None
    statement, part = chance.choice(found)
    assert isinstance(part, tree.Binary)
    total, root = _bare(part.left), part.right
    assert isinstance(total, tree.Reduction)
    assert isinstance(root, tree.Call)
    new = chance.choice(list(_scalings(total, root)))
    return swap(spelling, statement, trees.put(statement, part, new))


def _bare(expr: tree.Expr) -> tree.Expr:
    return _bare(expr.inner) if isinstance(expr, tree.Paren) else expr


def _is_scaled(part: tree.Node) -> bool:
    if not (isinstance(part, tree.Binary) and part.operator == "/"):
        return False
    total, root = _bare(part.left), part.right
    if not (isinstance(root, tree.Call) and root.function == "sqrt"):
        return False
    product = total.body if isinstance(total, tree.Reduction) and total.operator == "sum" else None
    return isinstance(product, tree.Binary) and product.operator == "*"


def _scalings(total: tree.Reduction, root: tree.Call) -> Iterator[tree.Expr]:
    product = total.body
    assert isinstance(product, tree.Binary)
    left, right = product.left, product.right
    inverse = call("rsqrt", *root.arguments)
    base = paren(root.arguments[0])
    half, quarter = binary("**", base, number("-0.5")), binary("**", base, number("-0.25"))
    yield binary("*", total, inverse)
    yield binary("*", half, total)
    yield binary("*", total, paren(binary("/", number("1.0"), root)))
    yield paren(binary("*", inverse, total))
    yield replace(total, body=binary("/", product, root))
    yield replace(total, body=binary("*", paren(binary("/", left, root)), right))
    yield replace(total, body=binary("*", left, paren(binary("*", inverse, right))))
    yield replace(total, body=binary("*", paren(binary("*", left, quarter)), paren(binary("*", right, quarter))))


# ---------------------------------------------------------------------------- softmax


def softmax_by_hand(spelling: Spelling, chance: Random) -> Spelling | None:
    """`softmax[j](s where g)` as exponentials divided by their sum, with and without a shift."""
    found = []
    for statement in single(spelling):
        inside = guards_inside(statement)
        body = _bare(inside.body)
        plain = not inside.where and statement.slots is not None
        if plain and isinstance(body, tree.Reduction) and body.operator == "softmax":
            found.append((statement, inside, body))
    if not found:
        return None
    statement, inside, body = chance.choice(found)
    how = chance.choice((_in_one, _in_parts))
    return how(spelling, statement, inside, body, chance.random() < 0.5)


def _in_one(
    spelling: Spelling, statement: tree.Let, inside: tree.Let, body: tree.Reduction, shifted: bool
) -> Spelling | None:
    own = body.binders[0].name
    score = body.body
    words = trees.fresh("klnpqrstuv", spelling.taken())
    other, third = next(words), next(words)

    def there(expr: tree.Expr, word: str, salt: int) -> tree.Expr:
        moved = trees.substitute(expr, {own: trees.name(word)})
        return trees.apart(moved, {*spelling.taken(), other, third, *(f"x{n}" for n in range(10 * salt))})

    def held(word: str) -> tuple[tree.Clause, ...]:
        return tuple(trees.substitute(clause, {own: trees.name(word)}) for clause in body.where)

    if own in trees.sized(score) or any(own in trees.sized(clause) for clause in body.where):
        return None
    here, again = paren(score), paren(there(score, other, 1))
    if shifted:
        top = reduction("max", [trees.binder(third)], there(score, third, 2), held(third))
        again_top = trees.apart(top, {*spelling.taken(), other, *(f"x{n}" for n in range(40))})
        here, again = binary("-", here, top), binary("-", again, again_top)
    total = reduction("sum", [trees.binder(other)], call("exp", again), held(other))
    value = binary("/", call("exp", here), total)
    coordinates = also(also(spelling.coordinates, other, (own,)), third, (own,))
    guards = tuple(body.where)
    return replace(swap(spelling, statement, replace(inside, body=value, where=guards)), coordinates=coordinates)


def _in_parts(
    spelling: Spelling, statement: tree.Let, inside: tree.Let, body: tree.Reduction, shifted: bool
) -> Spelling | None:
    own = body.binders[0].name
    words = trees.fresh(("raised", "total", "top"), spelling.taken())
    raised, total, top = next(words), next(words), next(words)
    slots = inside.slots or ()
    outer = tuple(slot for slot in slots if not (isinstance(slot, tree.Binder) and slot.name == own))
    if len(outer) == len(slots) or any(not isinstance(slot, tree.Binder) for slot in slots):
        return None
    ranges = [slot.range for slot in slots if isinstance(slot, tree.Binder) and slot.name == own]
    summed = [trees.binder(own, ranges[0])]
    home, row = trees.coordinates_of(slots), trees.coordinates_of(outer)
    score = body.body
    new: list[tree.Statement] = []
    if shifted:
        new.append(let(top, outer or None, reduction("max", summed, score, body.where)))
        score = binary("-", paren(score), at(top, row))
    new.append(let(raised, slots, call("exp", score), body.where))
    new.append(let(total, outer or None, reduction("sum", summed, at(raised, home), body.where)))
    new.append(replace(inside, body=binary("/", at(raised, home), at(total, row)), where=body.where))
    parts = {word for part in trees.tensors_in(score) for word in trees.names_in(part.base)}
    return replace(swap(spelling, statement, *new), tensors=also(spelling.tensors, raised, parts))
