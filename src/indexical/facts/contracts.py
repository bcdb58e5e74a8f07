"""Contracts: proved, or refuted with a point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product

from ..checker.names import suggest
from ..checker.sizes import show
from ..diagnostics import Label, Sink
from ..ir import build, whole
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.algebra.factors import varying
from ..ir.context import constants_of
from ..ir.types import Coordinate
from ..ir.walk import reads_of
from ..records import dataclass, replace
from ..syntax import vocabulary
from .along import is_position, positions_of
from .attention import Gather, Ungathered
from .dependence import Scan
from .orders import place_on
from .roles import ROLES, Parts, parts_of, query_of, rows_of
from .view import View
from .weights import added


@dataclass(frozen=True, slots=True)
class Claim:
    """One word of a contract, with its argument, and what it is said of. A `role` claims `coordinate`."""

    contract: ir.Contract
    word: str
    view: View
    gather: Gather | Ungathered
    roles: Parts
    sink: Sink
    coordinate: str = ""
    argument: ir.Expr | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """How a word is checked: `proves` says whether it holds, and reports why not; `code` is for what it leaves
    undecided. Some words say nothing where the roles are wrong."""

    code: str
    proves: Callable[[Claim], bool]
    needs_roles: bool = True


def check(view: View, sink: Sink) -> None:
    """Every contract of a program: silent where it is proved, an error where it is not."""
    view = view.joined if view.program.contracts else view
    for contract in view.program.contracts:
        gather = gather_of(view, contract.name)
        if gather is None:
            sink.report(
                "IX420",
                f"`{contract.name}` is not an attention",
                Label(contract.span, "claimed here"),
                Label(view.lets[contract.name].span, "neither it nor what it reads has weights"),
                help="an attention sums values under weights that compare who asks with who answers",
            )
            continue
        claim = Claim(contract, "", view, gather, parts_of(view, gather), sink)
        known = [holds(replace(claim, word=role, coordinate=name)) for role, name in contract.roles]
        good = all(known) and _proves_structure(claim)
        summed = any(flag.startswith("rows ") for flag, _ in contract.flags)
        for word, argument in (*(() if summed else ((SUM_TO_ONE, None),)), *contract.flags):
            if good or not CHECKS[word].needs_roles:
                holds(replace(claim, word=word, argument=argument))


def holds(claim: Claim) -> bool:
    """Whether a word of a contract is proved. What is not is an error: the one that its check reports, or else that it
    is left undecided."""
    sink, row = claim.sink, CHECKS[claim.word]
    found = Sink()
    proved = row.proves(replace(claim, sink=found)) is True and not found.failed
    if not proved and not found.failed:
        found.report(row.code, f"`{claim.word}` is not proved", Label(claim.contract.span, "claimed here"))
    for diagnostic in found:
        sink.add(diagnostic)
    return proved


def gather_of(view: View, name: str) -> Gather | Ungathered | None:
    """The gather in a definition, or the nearest one in what it reads; or else the weights that are there, of which
    all can be said but what is carried."""
    nearest = view.made_of(name)
    known: tuple[Sequence[Gather | Ungathered], ...] = (view.gathers, view.ungathered)
    found = (use for uses in known for here in nearest for use in uses if use.name == here)
    nearer = next(found, None)
    if nearer is not None and nearer.name == name:
        return nearer
    free = [use for here in nearest for use in view.free if use.name == here and use.values]
    if free and (nearer is None or nearest.index(free[0].name) < nearest.index(nearer.name)):
        return free[0]
    return nearer


# ----------------------------------------------------------------------- roles


def _proves_role(claim: Claim) -> bool:
    contract, found, view, gather = claim.contract, claim.roles, claim.view, claim.gather
    role, name = claim.word, claim.coordinate
    if name in found.names(role) or (role in ("head", "batch") and name in found.names("shared")):
        return True
    other = next((r for r in (*ROLES, "shared") if name in found.of(r) or name in found.names(r)), None)
    actual = ", ".join(f"`{n}`" for n in found.of(role)) or "nothing"
    blocks = () if other is not None else _taken_apart(view, contract.name, gather, name)
    if blocks:
        parts = " and ".join(f"`{part}`" for part in blocks)
        message = f"the contract calls `{name}` the {_WORDS[role]}, and it is taken apart into {parts}"
    elif other is None:
        message = f"the contract calls `{name}` the {_WORDS[role]}, and no coordinate of that name takes part"
    else:
        message = f"the contract calls `{name}` the {_WORDS[role]}, and it is the {_WORDS[other]}"
    place = Label(gather.span, f"here, {actual} is the {_WORDS[role]}")
    labels = [Label(contract.span, f"{role} `{name}` claimed here"), place]
    help = _REMEDY.get((role, other or ""), "correct the relation, or the contract")
    if blocks and found.of(role):
        help = f"say which part it is: `{role} {found.of(role)[0]}`"
    elif other is None:
        named = {each for r in (*ROLES, "shared") for each in found.of(r)}
        help = suggest(name, named, contract.span)[0] or help
    if isinstance(gather, Gather):
        labels.append(Label(gather.weights.span, f"normalised over `{view.shown(gather.coordinate)}`"))
    elif role == "carry":
        help = "nothing is gathered with these weights: sum values under them, or claim nothing of what is carried"
    claim.sink.report("IX421", message, *labels, help=help)
    return False


def _proves_structure(claim: Claim) -> bool:
    """Whether the sides of the scores and what is added to the attention stand where every contract says."""
    contract, view, gather, sink = claim.contract, claim.view, claim.gather, claim.sink
    _check_sides(contract, claim.roles, view, gather, sink)
    return not isinstance(gather, Gather) or _check_residual(contract, view, gather, sink)


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


def _taken_apart(view: View, name: str, gather: Gather | Ungathered, coordinate: str) -> tuple[str, ...]:
    """The coordinates of a gather that a position is made of, as `i` is of `block` and `place` in `block * 4 + place`;
    none where it is not. They stand at its axis together, or are told from it where the gather is read."""
    own = gather.weight_coordinates | {gather.coordinate}
    lets = [view.lets[made] for made in view.made_of(name) if made in view.lets]
    for read in (read for let in lets for read in reads_of(let)):
        for axis, index in zip(view.program.tensors[read.tensor].axes, read.indices, strict=True):
            if axis.coordinate.name == coordinate and len(index.type.coordinates) > 1:
                return tuple(sorted(view.shown(c) for c in index.type.coordinates))
        if read.tensor == gather.name:
            pairs = zip(gather.site.clause.slots, read.indices, strict=True)
            split = [slot for slot, at in pairs if not isinstance(at, ir.Coord) and _names_in(at) == {coordinate}]
            found = sorted(view.shown(c) for slot in split for c in slot.type.coordinates & own)
            if len(found) > 1:
                return tuple(found)
    return ()


def _names_in(expr: ir.Expr) -> set[str]:
    return {c.name for c in expr.type.coordinates}


def _check_sides(contract: ir.Contract, found: Parts, view: View, gather: Gather | Ungathered, sink: Sink) -> None:
    """Report a tensor that is declared at the query and read at the key in the scores, or the other way round."""
    claimed = {role: {name for r, name in contract.roles if r == role} for role in ("query", "key")}
    for comparison in view.comparisons(gather):
        crossed = []
        for factors, mine, other in (
            (comparison.query_side, "query", "key"),
            (comparison.key_side, "key", "query"),
        ):
            here = {c.name for c in varying(factors)} & set(found.of(mine))
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


def _homes(view: View, expr: ir.Expr, names: set[str]) -> set[str]:
    """The home coordinates of a tensor, on the axes that are read at one of these."""
    if not isinstance(expr, ir.Read):
        return set()
    read = view.forms.seen_through(expr, visible=True)
    axes = view.program.tensors[read.tensor].axes
    return {
        axis.coordinate.name
        for axis, index in zip(axes, read.indices, strict=True)
        if isinstance(index, ir.Coord) and index.coordinate.name in names
    }


# ------------------------------------------------------------------------ rows


def _proves_rows(claim: Claim) -> bool:
    """Whether the weights of a query come to what the contract says, or to less than it allows."""
    contract, view, gather = claim.contract, claim.view, claim.gather
    claimed = claim.word.removeprefix("rows ")
    found = rows_of(view, gather, contract.name)
    if _FREEDOM.index(found) <= _FREEDOM.index(claimed):
        return True
    implied = claim.word == SUM_TO_ONE
    saying = "the contract says that they sum to 1" if implied else f"the contract says `{claim.word}`"
    claim.sink.report(
        "IX426",
        f"the weights of `{contract.name}` {_SUMS[found]}, and {saying}",
        Label(gather.weights.span, _WHY[found]),
        Label(contract.span, "claimed by saying nothing else" if implied else "claimed here"),
        help=f"say `rows {found}`, or normalise the weights over `{view.shown(gather.coordinate)}`",
    )
    return False


# What a contract claims that says nothing of its rows.
SUM_TO_ONE = "rows sum to 1"
# From the claim that says most to the one that says nothing.
_FREEDOM = ("sum to 1", "at most 1", "signed", "free")
_SUMS = {
    "at most 1": "sum to less than 1",
    "signed": "are not all of one sign, or sum to more than 1",
    "free": "sum to no number that is known",
}
_WHY = {
    "at most 1": "something is added to what they are divided by",
    "signed": "these are added to others, or subtracted from them, for the same values",
    "free": "nothing divides these by their sum",
}


# ---------------------------------------------------------------------- causal


def _proves_causal(claim: Claim) -> bool:
    """Whether everything that is read along the positions is read at the query, or before it; or up to so much after
    it, where an offset that is no figure counts keys from before: it is not negative."""
    contract, offset, view, gather = claim.contract, claim.argument, claim.view, claim.gather
    let = view.lets[contract.name]
    asks = _query_axis(view, let, gather)
    if asks is None:
        message = f"`{contract.name}` does not keep the query, so it cannot be causal"
        claim.sink.report("IX423", message, contract.span)
        return False
    positions = positions_of(view, let, asks, gather)
    here = place_on(let.axes[asks], let.axes[asks].coordinate, contract.span)
    last = here if offset is None else build.apply("+", (here, offset), "whole", contract.span)
    figure = None if offset is None else polynomial(offset, constants_of(view.lets)).constant
    ends = (last,) if figure is not None and figure < 0 else tuple(dict.fromkeys((here, last)))
    for scan in view.influence.of(contract.name):
        places = [
            index
            for number, index in enumerate(scan.indices)
            if index != here and is_position(view, scan.tensor, number, index, positions)
        ]
        reached = view.scanning(let, scan) if places else None
        for index in places:
            orders = [build.apply("<=", (index, end), "bool", index.span) for end in ends]
            if reached is None or not any(reached.proves(order) for order in orders):
                _report_causal(contract, view, gather, claim.roles, scan, index, here, offset, claim.sink)
                return False
    return True


def _report_causal(
    contract: ir.Contract,
    view: View,
    gather: Gather | Ungathered,
    found: Parts,
    scan: Scan,
    index: ir.Expr,
    here: ir.Expr,
    offset: ir.Expr | None,
    sink: Sink,
) -> None:
    figure = 0 if offset is None else polynomial(offset, constants_of(view.lets)).constant
    point = None if figure is None else later_pair(scan, index, here, figure, view.lets[contract.name])
    guard = gather.weights.kept[0] if gather.weights.kept else None
    span = gather.weights.span if guard is None else guard.span
    words = "no guard removes the future" if guard is None else "this guard keeps it"
    if guard is not None and point is None:
        words = "this guard does not prove it"
    at = view.shown(index.coordinate) if isinstance(index, ir.Coord) else show(index)
    done = "gathered" if isinstance(gather, Gather) else "normalised"
    read = Label(gather.span, f"{done} here; `{scan.tensor}` is read at `{at}`")
    key, asking = view.shown(gather.coordinate), found.of("query")
    query = asking[0] if asking else show(here)
    past = "" if offset is None else f" - {-figure}" if figure is not None and figure < 0 else f" + {show(offset)}"
    if point is None:
        order = f"{show(index)} <= {show(here)}{past}"
        message = f"causal is not proved: that `{order}` does not follow from the guards"
    elif offset is not None:
        message = f"not causal with an offset of {show(offset)}: query {point[0]} listens to key {point[1]}"
    else:
        message = f"not causal: query {point[0]} listens to key {point[1]}"
    sink.report(
        "IX423",
        message,
        Label(span, words),
        read,
        Label(contract.span, "causal claimed here"),
        help=f"`where {key} <= {query}{past}` removes the future",
    )


def _query_axis(view: View, let: ir.Let, gather: Gather | Ungathered) -> int | None:
    """The axis of a definition that is the query of its attention."""
    query = query_of(view, gather)
    for indices in view.read_as(let, gather.site.let):
        for slot, index in zip(gather.site.clause.slots, indices, strict=True):
            if slot.type.coordinates and slot.type.coordinates <= query and isinstance(index, ir.Coord):
                for number, own in enumerate(let.clauses[0].slots):
                    if own.type.coordinates == {index.coordinate}:
                        return number
    return None


def later_pair(scan: Scan, index: ir.Expr, here: ir.Expr, offset: int, let: ir.Let) -> tuple[int, int] | None:
    """A query and a position later than so much after it that it reads, where every size is 4; None if none is
    found."""
    from ..ir.sampled import SIZE, may_hold, value_at  # Only a refuted contract asks.

    relevant = {c for condition in scan.conditions for c in condition.type.coordinates}
    relevant |= index.type.coordinates | here.type.coordinates
    known = [axis.coordinate for axis in let.axes] + [range.coordinate for range in scan.ranges]
    used = [c for c in known if c in relevant]
    for values in islice(product(range(SIZE), repeat=len(used)), 20_000):
        point = dict(zip(used, values, strict=True))
        try:
            at, asks = value_at(index, point), value_at(here, point)
            if asks + offset < at < SIZE and all(may_hold(condition, point) for condition in scan.conditions):
                return asks, at
        except whole.Unknown:
            return None
    return None


# ------------------------------------------------------------ residual and groups


def _check_residual(contract: ir.Contract, view: View, gather: Gather, sink: Sink) -> bool:
    """Whether everything that is added to an attention is added once, at the query."""
    good = True
    key = gather.coordinate
    for term in gather.site.beside:
        if key in term.type.coordinates and not gather.asks & term.type.coordinates:
            place = Label(gather.span, f"all of them are summed over `{key.name}`")
            _report_residual(term, key.name, Label(term.span, "one for every key"), place, sink)
            good = False
    let = view.lets[contract.name]
    asks = _query_axis(view, let, gather)
    if asks is None:
        return good
    here, positions = let.axes[asks].coordinate, None
    for term in (term for clause in let.clauses for term in added(clause.body)):
        if isinstance(term, ir.Reduce) and term.span == gather.span:
            continue
        if isinstance(term, ir.Reduce) and term.op in ("sum", "mean") and isinstance(term.body, ir.Read):
            term = term.body
        if not isinstance(term, ir.Read) or _reads_weights(view, term.tensor, gather):
            continue
        positions = positions or positions_of(view, let, asks, gather)
        for number, index in enumerate(term.indices):
            if is_position(view, term.tensor, number, index, positions) and not _is_at(index, here):
                place = Label(contract.span, f"the query is `{here.name}`")
                _report_residual(term, index.span.text, Label(term.span, "at another position"), place, sink)
                good = False
    return good


def _is_at(index: ir.Expr, coordinate: Coordinate) -> bool:
    return isinstance(index, ir.Coord) and index.coordinate == coordinate


def _reads_weights(view: View, name: str, gather: Gather | Ungathered) -> bool:
    """Whether a definition is, or is made of, the attention itself."""
    return gather.name in view.made_of(name)


def _report_residual(term: ir.Expr, where: str, primary: Label, other: Label, sink: Sink) -> None:
    sink.report(
        "IX424",
        f"`{term.span.text}` is added at `{where}`, not where the query is",
        primary,
        other,
        notes=("a residual belongs to who asks: it is added once, at the query's position",),
        help="add it after the sum over the keys, at the query",
    )


def _proves_groups(claim: Claim) -> bool:
    """Whether heads share a key: neighbours where the groups are contiguous, every G-th where interleaved."""
    flag, size, view = claim.word, claim.argument, claim.view
    claimed = Label(claim.contract.span, "claimed here")
    help = "contiguous groups are read at `h / G`, interleaved ones at `h % G`"
    found = list(_grouped(view, claim.gather))
    if not found:
        message = f"{flag} is not proved: no key is read at a quotient or remainder of a head"
        claim.sink.report("IX425", message, claimed, help=help)
        return False
    for index in found:
        wanted = "//" if flag.endswith("contiguous") else "%"
        constants = constants_of(view.lets)
        difference = polynomial(index.arguments[1], constants)
        difference = difference if size is None else difference - polynomial(size, constants)
        if index.op != wanted:
            kind = "interleaved" if index.op == "%" else "contiguous"
            message = f"the contract says {flag}, and `{index.span.text}` reads {kind} ones"
            words = _example(index.op)
        elif size is not None and difference.constant != 0:
            message = (
                f"the contract says {flag} {show(size)}, and `{index.span.text}` does not show groups of that size"
            )
            words = f"groups of {show(index.arguments[1])}"
        else:
            continue
        claim.sink.report("IX425", message, Label(index.span, words), claimed, help=help)
        return False
    return True


def _grouped(view: View, gather: Gather | Ungathered) -> Iterator[ir.Map]:
    """The indices of keys and values in which a head is divided."""
    factors = [f for comparison in view.comparisons(gather) for f in comparison.key_side] + gather.values
    for factor in factors:
        if isinstance(factor.expr, ir.Read):
            for index in view.forms.seen_through(factor.expr).indices:
                heads = index.type.coordinates & gather.weight_coordinates
                if heads and isinstance(index, ir.Map) and index.op in ("//", "%"):
                    yield index


def _example(op: str) -> str:
    return "heads 0 and 1 read different keys" if op == "%" else "heads 0 and 1 read the same key"


# Exactly one check for each word that a contract may have, and for the one that is claimed by saying nothing.
CHECKS: Mapping[str, Check] = {
    **{role: Check("IX421", _proves_role) for role in vocabulary.ROLES},
    **{f"rows {sums}": Check("IX426", _proves_rows) for sums in ("sum to 1", *vocabulary.ROW_SUMS)},
    "causal": Check("IX423", _proves_causal),
    "causal offset": Check("IX423", _proves_causal),
    "groups contiguous": Check("IX425", _proves_groups, needs_roles=False),
    "groups interleaved": Check("IX425", _proves_groups, needs_roles=False),
}
