"""From the graph of a run to definitions: views become index arithmetic, and what a person would name gets a name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from ..ir.affine import Polynomial, number
from ..syntax.vocabulary import NORMALISERS
from .definitions import Definition, joined, ordered, refined
from .expressions import (
    ONE,
    Expr,
    Num,
    Op,
    Over,
    Read,
    Whole,
    apply,
    axes_in,
    bound_in,
    compare,
    hoisted,
    index_of,
    parts,
    unmasked,
    unscaled,
)
from .indices import Axis, Looked, Quotient, Remainder, atom, atoms_in
from .recording import Site
from .rules import Unreadable
from .values import (
    Condition,
    Count,
    Full,
    Gathered,
    Indices,
    Join,
    Leaf,
    Map,
    Node,
    Normalize,
    Patched,
    Reduce,
    Scale,
    View,
    sources_of,
)

Inside = Literal["", "sum", "normaliser"]


class Writer:
    """The definitions of a graph, each before those that read it."""

    def __init__(self, results: list[Node], limit: float) -> None:
        """A number up to `limit` that is put in place of a score is a mask."""
        self._limit = limit
        self.definitions: list[Definition] = []
        self._known: dict[Node, Definition] = {}
        self._shared: dict[Expr, Definition] = {}
        self._consumers: dict[Node, dict[Node, None]] = {}
        self._heavy: dict[Node, bool] = {}
        self._results = results
        seen: set[Node] = set()
        todo = list(results)
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            for source in sources_of(node):
                self._consumers.setdefault(source, {})[node] = None
                todo.append(source)

    def result(self, node: Node) -> Definition:
        """The definition of a result, with the axes that the callable returns."""
        found = self._definition_behind(node)
        plain = found is not None and found.scale.value == ONE and all(len(axes) == 1 for axes in found.slots)
        if found is not None and plain and not found.result:
            found.result = True
            return found
        axes = tuple(Axis(extent) for extent in node.shape)
        at = tuple(atom(axis) if axis.extent.constant != 1 else number(0) for axis in axes)
        if found is None and isinstance(_base(node), Map | Reduce) and self._is_heavy(node):
            anchor, move = self._anchor(node, _base(node))
            body = self.define(anchor).read(move(at)) if anchor is not node else self.write(node, at, "")
        else:
            body = self.write(node, at, "") if found is None else found.read(at)
        if isinstance(body, Read) and (site := self._crossing(node)) is not None:
            body = replace(body, site=site)
        definition = Definition(axes, body, node.site, tuple((axis,) for axis in axes), result=True)
        self.definitions.append(definition)
        return definition

    def _definition_behind(self, node: Node) -> Definition | None:
        """The definition that a result is, where no further one is needed."""
        base = _base(node)
        if isinstance(base, Leaf | Full | Count | Condition | Join | Patched) or _expands(node):
            return None
        if isinstance(base, Normalize) and node is not base:
            return None
        if not isinstance(base, Normalize):
            anchor = self._anchor(node, base)[0]
            if anchor is not node:
                return None
        return self.define(node)

    # ------------------------------------------------------------------------------- what gets a name

    def define(self, node: Node) -> Definition:
        """The definition of a tensor, made when it is first asked for."""
        known = self._known.get(node)
        if known is not None:
            return known
        slots: list[tuple[Axis, ...]] = [() if e.constant == 1 else (Axis(e),) for e in node.shape]
        while True:
            body = self._inner(node, tuple(joined(axes) for axes in slots))
            finer = refined([axis for axes in slots for axis in axes], body)
            if finer is None:
                break
            axis, pieces = finer
            slots = [tuple(p for a in axes for p in (pieces if a is axis else (a,))) for axes in slots]
        axes = tuple(axis for axes in slots for axis in axes)
        scale = Num(ONE)
        if node not in self._results and body.kind == "real":
            scale, rest = unscaled(body)
            scale, body = (Num(ONE), body) if rest is None or not _is_finite(scale) else (scale, rest)
        definition = Definition(axes, body, body.site or node.site, tuple(slots), scale)
        self._known[node] = definition
        self.definitions.append(definition)
        return definition

    def _inner(self, node: Node, at: Indices) -> Expr:
        while isinstance(node, View):
            at = node.move(at)
            node = node.source
        return self._body(node, at, "")

    def name_part(self, expr: Expr, order: tuple[Axis, ...]) -> Expr:
        """A read of an expression that becomes a definition over the coordinates it has, in this order."""
        known = self._shared.get(expr)
        if known is None:
            free = set(axes_in(expr)) - bound_in(expr)
            axes = tuple(axis for axis in order if axis in free)
            known = Definition(axes, expr, expr.site, tuple((axis,) for axis in axes))
            self._shared[expr] = known
            self.definitions.append(known)
        return Read(known, tuple(atom(axis) for axis in known.axes), expr.kind, site=expr.site)

    def _uses(self, node: Node) -> int:
        """How many operations and results need a tensor, or a view of it."""
        total = sum(node is result for result in self._results)
        for consumer in self._consumers.get(node, ()):
            total += self._uses(consumer) if isinstance(consumer, View) else 1
        return total

    def _is_heavy(self, node: Node) -> bool:
        """Whether a tensor, written out in full, scans."""
        known = self._heavy.get(node)
        if known is None:
            match node:
                case Reduce():
                    known = True
                case Normalize():
                    known = False
                case _:
                    known = any(self._is_heavy(s) and not self._is_shared(_base(s)) for s in sources_of(node))
            self._heavy[node] = known
        return known

    def _is_shared(self, node: Node) -> bool:
        return self._uses(node) > 1 and isinstance(node, Map | Reduce | Join | Patched) and self._is_heavy(node)

    def _deserves(self, base: Node, inside: Inside) -> bool:
        match base:
            case Normalize():
                return True
            case Reduce():
                return bool(inside) or self._uses(base) > 1
            case Map() | Gathered():
                heavy = self._is_heavy(base)
                if heavy and (inside == "sum" or self._uses(base) > 1):
                    return True
                return inside == "sum" and _length(base) > 2
            case Join() | Patched():
                return inside == "sum" or (self._uses(base) > 1 and self._is_heavy(base))
        return False

    def _anchor(self, node: Node, base: Node) -> tuple[Node, Callable[[Indices], Indices]]:
        """The view of a tensor that is defined when `node` is asked for, and how `node` reads it."""
        views: list[View] = []
        current = node
        while isinstance(current, View):
            views.append(current)
            current = current.source
        anchor: Node = base
        while views and not isinstance(base, Normalize) and not views[-1].expands and self._is_only_way(anchor):
            if not _is_plain(views[-1]):
                break
            anchor = views.pop()

        def move(at: Indices) -> Indices:
            for view in views:
                at = view.move(at)
            return at

        return anchor, move

    def _is_only_way(self, node: Node) -> bool:
        """Whether nothing but the one view that is asked for, or parts beside it, needs a tensor as it is."""
        if any(node is result for result in self._results):
            return False
        consumers = self._consumers.get(node, {})
        return len(consumers) == 1 or all(isinstance(view, View) and view.restricts for view in consumers)

    # ------------------------------------------------------------------------------- expressions

    def write(self, node: Node, at: Indices, inside: Inside) -> Expr:
        base = _base(node)
        site = self._crossing(node)
        if self._deserves(base, inside):
            anchor, move = self._anchor(node, base)
            found = self.define(anchor).read(move(at))
        else:
            while isinstance(node, View):
                at = node.move(at)
                node = node.source
            found = self._body(node, at, inside)
        return replace(found, site=site) if site is not None and isinstance(found, Read) else found

    def _crossing(self, node: Node) -> Site | None:
        """The place of the view after which an axis is cut in another way than it was put together."""
        site = None
        while isinstance(node, View):
            if _is_plain(node):
                break
            site = node.site
            node = node.source
        return site

    def _body(self, node: Node, at: Indices, inside: Inside) -> Expr:
        match node:
            case Leaf():
                return Read(node, at, node.kind, site=node.site)
            case Full(value=value):
                return Num(value, node.kind, site=node.site)
            case Count(at=count):
                return Whole(count(at), site=node.site)
            case Condition(at=gap):
                return relation(gap(at), node.site)
            case Map(op=op, arguments=arguments):
                return self._function(node, op, arguments, at, inside)
            case Reduce():
                return self._reduction(node, at)
            case Normalize():
                return self._normaliser(node, at)
            case Join():
                return self._joined(node, at, inside)
            case Patched(source=source, part=part, inverse=inverse):
                place, gaps = inverse(at)
                inner, outer = self.write(part, place, inside), self.write(source, at, inside)
                return apply("if", (_within(gaps, node.site), inner, outer), node.kind, node.site)
            case Gathered(source=source, tables=tables, move=move):
                places = list(move(at))
                for axis, (table, where) in tables.items():
                    found = self.write(table, where(at), inside)
                    places[axis] = found.index if isinstance(found, Whole) else atom(Looked(found))
                return self.write(source, tuple(places), inside)
        raise Unreadable(f"{type(node).__name__} cannot be written")

    def _function(self, node: Map, op: str, arguments: tuple[Node, ...], at: Indices, inside: Inside) -> Expr:
        return apply(op, tuple(self.write(argument, at, inside) for argument in arguments), node.kind, node.site)

    def _reduction(self, node: Reduce, at: Indices) -> Expr:
        bound: list[tuple[Axis, ...]] = [(Axis(node.source.shape[axis]),) for axis in node.axes]
        while True:
            indices = list(at)
            for place, pieces in zip(node.axes, bound, strict=True):
                one = node.source.shape[place].constant == 1
                indices.insert(place, number(0) if one else joined(pieces))
            body = self._summand(node.source, tuple(indices))
            finer = refined([axis for axes in bound for axis in axes], body, despite_leaves=True)
            if finer is None:
                break
            axis, pieces = finer
            bound = [tuple(p for a in axes for p in (pieces if a is axis else (a,))) for axes in bound]
        axes = tuple(a for axes in bound for a in axes if a.extent.constant != 1)
        if not axes:
            return body
        if node.op != "sum":
            return Over(node.op, axes, body, None, node.kind, site=node.site)
        body, guard = _guarded(body)
        return hoisted(Over("sum", axes, body, guard, node.kind, site=node.site))

    def _summand(self, node: Node, at: Indices) -> Expr:
        """The body of a reduction: a function of definitions, and no definition itself unless others need it too."""
        base = _base(node)
        if not isinstance(base, Map) or (self._uses(base) > 1 and (self._is_heavy(base) or _length(base) > 2)):
            return self.write(node, at, "sum")
        while isinstance(node, View):
            at = node.move(at)
            node = node.source
        return self._body(node, at, "sum")

    def _normaliser(self, node: Normalize, at: Indices) -> Expr:
        place = at[node.axis]
        axes = tuple(ordered(place))
        if place != joined(axes):
            raise Unreadable(f"a part of a {node.op} is read by itself")
        order = tuple(axis for index in at for axis in ordered(index))
        body = self.write(node.source, at, "")
        guards: list[Expr] = []
        if node.op in ("softmax", "log_softmax"):
            body, guards = unmasked(body, self._limit)
            body = _unshifted(body, axes)
        scans = any(isinstance(part, Over) and part.op not in NORMALISERS for part in parts(body))
        if scans and refined(list(order), body) is None:
            body = self.name_part(hoisted(body), order)
        guard = None
        for found in guards:
            guard = found if guard is None else apply("&&", (guard, found), "bool", found.site)
        return Over(node.op, axes, body, guard, node.kind, site=node.site)

    def _joined(self, node: Join, at: Indices, inside: Inside) -> Expr:
        """One tensor up to where the next begins; a place that is known picks its part."""
        index = at[node.axis]
        result: Expr | None = None
        ends = [*node.starts[1:], node.shape[node.axis]]
        for part, start, end in reversed(list(zip(node.parts, node.starts, ends, strict=True))):
            before = compare("<", index, end, node.site)
            if before == Num(Scale(False), "bool"):
                continue
            if compare("<", index, start, node.site) == Num(Scale(True), "bool"):
                continue
            one = part.shape[node.axis].constant == 1
            moved = (*at[: node.axis], number(0) if one else index - start, *at[node.axis + 1 :])
            value = self.write(part, moved, inside)
            result = value if result is None else apply("if", (before, value, result), node.kind, node.site)
        assert result is not None
        return result


def known_whole(node: Node, at: Indices) -> Polynomial | None:
    """The whole number that a tensor has at a place; None where it depends on values."""
    found = index_of(Writer([node], -math.inf).write(node, at, ""))
    return None if found is None or any(isinstance(part, Looked) for part in atoms_in(found)) else found


def _base(node: Node) -> Node:
    while isinstance(node, View):
        node = node.source
    return node


def _expands(node: Node) -> bool:
    while isinstance(node, View):
        if node.expands:
            return True
        node = node.source
    return False


def _is_plain(view: View) -> bool:
    """Whether a view only renames, cuts, splits and merges axes: no quotient is of several coordinates at once."""
    node: Node = view
    at = tuple(number(0) if extent.constant == 1 else atom(Axis(extent)) for extent in view.shape)
    while isinstance(node, View):
        at = node.move(at)
        node = node.source
    return not any(
        isinstance(part, Quotient | Remainder) and len(part.of.terms) > 1 for index in at for part in atoms_in(index)
    )


def _length(node: Node) -> int:
    """How many operations of real numbers a tensor is made of, written out."""
    match node:
        case Map(arguments=arguments):
            return (node.kind == "real" and node.op != "real") + sum(_length(argument) for argument in arguments)
        case View(source=source):
            return _length(source)
        case Gathered(source=source):
            return _length(source)
        case Join() | Patched():
            return 3 + sum(map(_length, sources_of(node)))
    return 0


def relation(gap: Polynomial, site: Site | None) -> Expr:
    """The condition that a difference of indices is at least 0: what is taken away stands on the left."""
    left = Polynomial({m: -f for m, f in gap.terms.items() if f < 0})
    right = Polynomial({m: f for m, f in gap.terms.items() if f > 0})
    return compare("<=", left, right, site)


def _within(gaps: tuple[Polynomial, ...], site: Site | None) -> Expr:
    """The condition that all of these are at least 0; two that are opposite make an equality."""
    if len(gaps) == 2 and gaps[0] == -gaps[1]:
        left = Polynomial({m: f for m, f in gaps[0].terms.items() if f > 0})
        return compare("==", left, left - gaps[0], site)
    found = relation(gaps[0], site)
    for gap in gaps[1:]:
        found = apply("&&", (found, relation(gap, site)), "bool", site)
    return found


def _guarded(body: Expr) -> tuple[Expr, Expr | None]:
    """A summand that is 0 where a condition fails, as a summand under that condition."""
    if isinstance(body, Op) and body.op == "if":
        condition, then, otherwise = body.arguments
        if isinstance(otherwise, Num) and not otherwise.value.factor:
            return then, condition
    return body, None


def _unshifted(body: Expr, axes: tuple[Axis, ...]) -> Expr:
    """A score from which a maximum is taken, without that: a normaliser does not see what is the same for all."""
    if isinstance(body, Op) and body.op == "-":
        score, shift = body.arguments
        inner = shift.tensor.body if isinstance(shift, Read) and isinstance(shift.tensor, Definition) else shift
        if isinstance(inner, Over) and inner.op == "max" and not set(axes) & set(axes_in(shift)):
            return score
    return body


def _is_finite(scale: Num) -> bool:
    return abs(float(scale.value.factor)) not in (0.0, float("inf"))
