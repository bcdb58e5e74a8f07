"""A mask on keys with its sense turned round: padding is heard, and what was said is not."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.conditions import OPPOSITE
from ...ir.types import Coordinate
from ...ir.walk import walk
from ..attention import Gather, Ungathered, as_condition
from ..masks import CONTENT, PADDING, literals, looked_up, masked, of_weights, says, words_in
from ..roles import query_of
from ..view import View

CODE = "IX431"

# A name of these words alone is the number of keys that are there.
_LENGTHS = frozenset(("len", "length", "lengths", "lens"))
_OF_WHAT = frozenset(("key", "keys", "seq", "sequence", "valid"))


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in masked(view):
        asks, key = query_of(view, gather), gather.coordinate
        for literal, holds, guard in of_weights(view, gather):
            if key not in literal.type.coordinates or asks & literal.type.coordinates:
                continue
            pool = None if _is_named(literal, holds, key) else _pool(view, gather, literal, holds)
            if pool is not None or _is_named(literal, holds, key):
                yield gather.site.let, _report(view, key, guard, pool)
                break


def _report(view: View, key: Coordinate, guard: ir.Expr, pool: ir.Expr | None) -> Diagnostic:
    answers = view.shown(key)
    kept = Label(guard.span, f"the `{answers}` that are heard")
    help = "turn the condition round"
    if pool is None:
        message = f"this guard keeps the `{answers}` that are padding, and drops the others"
        return Diagnostic(CODE, message, (kept,), ("nothing of what is not padding is heard",), help)
    message = f"this guard keeps the `{answers}` that are left out where the result is summed up"
    labels = (kept, Label(pool.span, "keeps the others"))
    return Diagnostic(CODE, message, labels, ("of those that count in the end, nobody is heard",), help)


def _is_named(literal: ir.Expr, holds: bool, key: Coordinate) -> bool:
    """Whether a condition that holds (or fails) says by its names that a key is padding."""
    match literal:
        case ir.Read(tensor):
            return says(tensor, PADDING if holds else CONTENT)
        case ir.Map(op, (left, right)):
            op = op if holds else OPPOSITE[op]
            for one, other, above in ((left, right, (">", ">=")), (right, left, ("<", "<="))):
                if not isinstance(other, ir.Read) or key in other.type.coordinates:
                    continue
                if op == "==" and not other.type.coordinates and says(other.tensor, PADDING):
                    return True
                words = set(words_in(other.tensor))
                if op in above and isinstance(one, ir.Coord) and words & _LENGTHS and words <= _LENGTHS | _OF_WHAT:
                    return True
    return False


def _pool(view: View, gather: Gather | Ungathered, literal: ir.Expr, holds: bool) -> ir.Expr | None:
    """A sum or mean of the results of a gather at the points that its mask leaves out. A loss compares them with
    something: it may ask for what was hidden on purpose."""
    masks = [(read.tensor, axis) for read, axis in looked_up(view, literal, gather.coordinate)]
    if not masks:
        return None
    made = [let for let in view.program.lets if gather.name in view.made_of(let.name)]
    names = {let.name for let in made if let.name != gather.name}
    for let in made:
        for clause in let.clauses:
            for part in walk(clause.body):
                if isinstance(part, ir.Reduce) and part.guard is not None and _is_sum(part.body, gather):
                    conditions = [part.guard]
                elif isinstance(part, ir.Reduce) and let.name in names:
                    conditions = _left_out(view, part, gather.name, names)
                else:
                    continue
                for condition in conditions:
                    for other, held in literals(view, condition):
                        found = [(r.tensor, a) for c in part.coordinates for r, a in looked_up(view, other, c)]
                        if held != holds and set(found) & set(masks):
                            return condition
    return None


def _is_sum(expr: ir.Expr, gather: Gather | Ungathered) -> bool:
    """Whether an expression is the sum that gathers, in place."""
    return isinstance(gather, Gather) and isinstance(expr, ir.Reduce) and expr.span == gather.span


def _left_out(view: View, total: ir.Reduce, result: str, made: set[str]) -> list[ir.Expr]:
    """The conditions on what is summed up, where that is a result, or is made of it alone."""
    product = view.forms.expand(total.body, total.coordinates, lambda read: read.tensor in made)
    conditions = [condition.expr for condition in product.conditions]
    conditions += [] if total.guard is None else [total.guard]
    for factor in product.factors:
        test = as_condition(view.forms, factor)
        if test is not None:
            conditions.append(test)
        elif factor.coordinates & total.coordinates and not _is_read(factor.expr, result):
            return []
    return conditions if any(c.type.coordinates & total.coordinates for c in conditions) else []


def _is_read(expr: ir.Expr, name: str) -> bool:
    return isinstance(expr, ir.Read) and expr.tensor == name
