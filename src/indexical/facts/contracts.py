"""Contracts: proved, or refuted with a point."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

from ..checker.sizes import show
from ..diagnostics import Label, Sink
from ..ir import build
from ..ir import nodes as ir
from ..ir import whole
from ..ir.types import Coordinate
from .attention import Gather
from .roles import ROLES, Roles, roles
from .view import View


def check(view: View, sink: Sink) -> None:
    """Every contract of a program: silent where it is proved."""
    for contract in view.program.contracts:
        gather = _gather_of(view, contract.name)
        if gather is None:
            sink.report(
                "IX420",
                f"`{contract.name}` is not an attention",
                Label(contract.span, "claimed here"),
                Label(view.lets[contract.name].span, "no weights are gathered in it, or in what it reads"),
                help="an attention sums values under weights that are normalised over what it sums",
            )
            continue
        found = roles(view, gather)
        good = _check_roles(contract, found, view, gather, sink)
        if good:
            _check_sides(contract, found, view, gather, sink)
            _check_residual(contract, view, gather, sink)
        for flag, size in contract.flags:
            if flag == "causal" and good:
                _check_causal(contract, view, gather, found, sink)
            elif flag.startswith("groups"):
                _check_groups(contract, flag, size, view, gather, sink)


def _gather_of(view: View, name: str) -> Gather | None:
    """The gather in a definition, or the nearest one in what it reads."""
    waiting = [name]
    seen = set()
    while waiting:
        here = waiting.pop(0)
        if here in seen:
            continue
        seen.add(here)
        found = [gather for gather in view.gathers if gather.name == here]
        if found:
            return found[0]
        waiting += [read.tensor for read in view.reads(here) if read.tensor in view.lets]
    return None


# ----------------------------------------------------------------------- roles


def _check_roles(contract: ir.Contract, found: Roles, view: View, gather: Gather, sink: Sink) -> bool:
    good = True
    for role, name in contract.roles:
        if name in found.names[role] or (role in ("head", "batch") and name in found.names["shared"]):
            continue
        good = False
        other = next((r for r in (*ROLES, "shared") if name in found.of(r) or name in found.names[r]), None)
        actual = ", ".join(f"`{n}`" for n in found.of(role)) or "nothing"
        if other is None:
            message = f"the contract calls `{name}` the {_WORDS[role]}, and no coordinate of that name takes part"
        else:
            message = f"the contract calls `{name}` the {_WORDS[role]}, and it is the {_WORDS[other]}"
        sink.report(
            "IX421",
            message,
            Label(contract.span, f"{role} `{name}` claimed here"),
            Label(gather.key.reduce.span, f"the {_WORDS[role]} here is {actual}"),
            Label(gather.weights.span, f"normalised over `{gather.weights.coordinate.name}`"),
            help=_REMEDY.get((role, other or ""), "correct the relation, or the contract"),
        )
    return good


_WORDS = {
    "query": "query, who asks",
    "key": "key, who answers",
    "compare": "compared feature",
    "carry": "carried feature",
    "head": "head",
    "batch": "batch",
    "shared": "batch or head, kept apart throughout",
}
_REMEDY = {
    ("query", "key"): "query and key are swapped: who asks survives, who answers is normalised over and summed",
    ("key", "query"): "query and key are swapped: who asks survives, who answers is normalised over and summed",
}


def _check_sides(contract: ir.Contract, found: Roles, view: View, gather: Gather, sink: Sink) -> None:
    """What was declared at the query must be read at the query in the scores, and so for the key."""
    claimed = {role: {name for r, name in contract.roles if r == role} for role in ("query", "key")}
    for comparison in view.comparisons(gather):
        crossed = []
        for factors, mine, other in (
            (comparison.asking, "query", "key"),
            (comparison.answering, "key", "query"),
        ):
            here = {c.name for c in _of(factors)} & set(found.of(mine))
            for factor in factors:
                homes = _homes(view, factor.expr, set(found.of(mine)))
                if here and homes and homes <= claimed[other] and not homes & claimed[mine]:
                    crossed.append((factor.expr, mine, other))
        if len(crossed) == 2:
            (first, mine, other), (second, _, _) = crossed
            sink.report(
                "IX422",
                "query and key are swapped in the scores",
                Label(first.span, f"declared at the {other}, read at the {mine}"),
                Label(second.span, f"declared at the {mine}, read at the {other}"),
                notes=("each position looks with what it should be found by",),
                help=f"exchange the two: read what was declared at the {mine} at the {mine}",
            )


def _of(factors: tuple[object, ...]) -> frozenset[Coordinate]:
    return frozenset().union(*(factor.coordinates for factor in factors))  # type: ignore[attr-defined]


def _homes(view: View, expr: ir.Expr, names: set[str]) -> set[str]:
    """The home coordinates of a tensor, on the axes that are read at one of these."""
    if not isinstance(expr, ir.Read) or expr.tensor not in view.program.tensors:
        return set()
    axes = view.program.tensors[expr.tensor].axes
    return {
        axis.coordinate.name
        for axis, index in zip(axes, expr.indices, strict=True)
        if isinstance(index, ir.Coord) and index.coordinate.name in names
    }


# ---------------------------------------------------------------------- causal


def _check_causal(contract: ir.Contract, view: View, gather: Gather, found: Roles, sink: Sink) -> None:
    """Everything that is read along the positions is at the query, or before it."""
    let = view.lets[contract.name]
    asks = _query_axis(view, let, gather, found)
    if asks is None:
        sink.report("IX423", f"`{contract.name}` does not keep the query, so causal cannot be proved", contract.span)
        return
    here = build.coord(asks.coordinate, contract.span)
    for scan in view.dependence.of(contract.name):
        axes = view.program.tensors[scan.tensor].axes
        for axis, index in zip(axes, scan.indices, strict=True):
            if not _is_position(view, axis, let, asks):
                continue
            known = view.assumptions(let, scan)
            order = build.apply("<=", (index, here), "bool", index.span)
            if known.proves(order):
                continue
            point = _counterexample(view, let, scan, index, asks)
            tensor = scan.tensor
            if point is None:
                missing = show(order) if order.span.text == "" else f"{show(index)} <= {asks.coordinate.name}"
                sink.report(
                    "IX423",
                    f"causal is not proved: `{missing}` does not follow from the guards",
                    Label(contract.span, "causal claimed here"),
                    Label(gather.weights.span, "for what is normalised here"),
                )
            else:
                asked, answered = point
                sink.report(
                    "IX423",
                    f"not causal: query {asked} listens to {'key' if tensor else 'key'} {answered}",
                    Label(_guard_span(gather), _guard_words(gather)),
                    Label(contract.span, "causal claimed here"),
                    Label(gather.key.reduce.span, f"`{tensor}` is read here at `{show(index)}`"),
                    help=f"the future is removed by `where {gather.key.coordinate.name} <= {found.query[0]}`"
                    if found.query
                    else None,
                )
            return


def _guard_span(gather: Gather):  # type: ignore[no-untyped-def]
    return gather.weights.kept[0].span if gather.weights.kept else gather.weights.span


def _guard_words(gather: Gather) -> str:
    return "this guard lets it" if gather.weights.kept else "no guard removes the future"


def _query_axis(view: View, let: ir.Let, gather: Gather, found: Roles) -> ir.Axis | None:
    """The axis of a definition that is the query of its attention."""
    names = set(found.of("query")) | found.names["query"]
    for axis in let.axes:
        if axis.coordinate.name in names:
            return axis
    return None


def _is_position(view: View, axis: ir.Axis, let: ir.Let, asks: ir.Axis) -> bool:
    """Whether an axis of an input runs over positions: those that the query or the key index."""
    return view.same_space(axis, asks)


def _counterexample(
    view: View, let: ir.Let, scan: object, index: ir.Expr, asks: ir.Axis
) -> tuple[int, int] | None:
    """A query and a later position it reads, among small sizes; None if none is found."""
    from .dependence import Scan

    assert isinstance(scan, Scan)
    coordinates = [axis.coordinate for axis in let.axes] + [range.coordinate for range in scan.ranges]
    relevant = {c for condition in scan.conditions for c in condition.type.coordinates}
    relevant |= index.type.coordinates | {asks.coordinate}
    used = [c for c in coordinates if c in relevant]
    for values in islice(product(range(4), repeat=len(used)), 20_000):
        point = dict(zip(used, values, strict=True))
        try:
            if all(_truth(condition, point) for condition in scan.conditions):
                at = whole.value(_closed(index, point), lambda leaf: 4)
                if 0 <= at < 4 and at > point[asks.coordinate]:
                    return point[asks.coordinate], at
        except whole.Unknown:
            continue
    return None


def _closed(expr: ir.Expr, point: dict[Coordinate, int]) -> ir.Expr:
    from ..ir.walk import substitute

    return substitute(expr, {c: build.whole(v, expr.span) for c, v in point.items()})


def _truth(condition: ir.Expr, point: dict[Coordinate, int]) -> bool:
    """A condition on whole numbers at a point; data may be anything, so it may hold."""
    match condition:
        case ir.Map("&&", (left, right)):
            return _truth(left, point) and _truth(right, point)
        case ir.Map("||", (left, right)):
            return _truth(left, point) or _truth(right, point)
        case ir.Map("!", (operand,)):
            return not _truth(operand, point)
        case ir.Map("<" | "<=" | ">" | ">=" | "==" | "!=" as op, (left, right)):
            try:
                a, b = (whole.value(_closed(side, point), lambda leaf: 4) for side in (left, right))
            except whole.Unknown:
                return True
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[op]
        case ir.Const(value):
            return bool(value)
        case _:
            return True


# ------------------------------------------------------------ residual and groups


def _check_residual(contract: ir.Contract, view: View, gather: Gather, sink: Sink) -> None:
    """What is added to an attention is added where it asks: at the query, not under the sum over keys."""
    key = gather.key.coordinate
    body = gather.key.reduce.body
    for term in _added(body):
        reads = [part for part in view.walk(term) if isinstance(part, ir.Read)]
        if reads and key in term.type.coordinates and not gather.weight_coordinates & term.type.coordinates - _shared(gather):
            sink.report(
                "IX424",
                f"`{term.span.text}` is added at the key's position, `{key.name}`",
                Label(term.span, "one for every key"),
                Label(gather.key.reduce.span, f"all of them are summed over `{key.name}`"),
                notes=("a residual belongs to who asks: it is added once, at the query",),
                help="add it after the sum, at the query",
            )
    let = view.lets[contract.name]
    for clause in let.clauses:
        for term in _added(clause.body):
            _check_term(contract, let, term, view, gather, sink)


def _shared(gather: Gather) -> frozenset[Coordinate]:
    return gather.weight_coordinates - gather.asks


def _added(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The terms of a sum, where there is one."""
    match expr:
        case ir.Map("+" | "-", arguments):
            for argument in arguments:
                if isinstance(argument, ir.Map) and argument.op in ("+", "-"):
                    yield from _added(argument)
                else:
                    yield argument


def _check_term(
    contract: ir.Contract, let: ir.Let, term: ir.Expr, view: View, gather: Gather, sink: Sink
) -> None:
    """A term beside the attention that reads along the positions reads at the query itself."""
    found = roles(view, gather)
    asks = _query_axis(view, let, gather, found)
    if asks is None or not isinstance(term, ir.Read) or term.tensor not in view.program.tensors:
        return
    for axis, index in zip(view.program.tensors[term.tensor].axes, term.indices, strict=True):
        if view.same_space(axis, asks) and asks.coordinate not in index.type.coordinates:
            sink.report(
                "IX424",
                f"`{term.span.text}` is not added at the query's position, `{asks.coordinate.name}`",
                Label(index.span, "another position"),
                Label(contract.span, "the contract names the query"),
                help=f"read it at `{asks.coordinate.name}`",
            )
        elif view.same_space(axis, asks) and not isinstance(index, ir.Coord):
            sink.report(
                "IX424",
                f"`{term.span.text}` is not added at the query's position, `{asks.coordinate.name}`",
                Label(index.span, "another position"),
                Label(contract.span, "the contract names the query"),
                help=f"read it at `{asks.coordinate.name}`",
            )


def _check_groups(
    contract: ir.Contract, flag: str, size: ir.Expr | None, view: View, gather: Gather, sink: Sink
) -> None:
    """Heads that share a key: neighbours where the groups are contiguous, every G-th where interleaved."""
    wanted = "//" if flag.endswith("contiguous") else "%"
    heads = gather.weight_coordinates
    factors = [f for comparison in view.comparisons(gather) for f in comparison.answering] + gather.values
    for factor in factors:
        if not isinstance(factor.expr, ir.Read):
            continue
        for index in factor.expr.indices:
            if not (index.type.coordinates & heads) or isinstance(index, ir.Coord):
                continue
            if isinstance(index, ir.Map) and index.op in ("//", "%") and index.op != wanted:
                kind = "interleaved" if index.op == "%" else "contiguous"
                sink.report(
                    "IX425",
                    f"the contract says {flag}, and `{index.span.text}` reads {kind} ones",
                    Label(index.span, _example(index.op)),
                    Label(contract.span, "claimed here"),
                    help="contiguous groups are read at `h / G`, interleaved ones at `h % G`",
                )
                return


def _example(op: str) -> str:
    return "heads 0 and 1 read different keys" if op == "%" else "heads 0 and 1 read the same key"
