"""Definitions: clauses to Lets, at the top of a program and inside functions and blocks.

A local definition becomes a definition of the program, hidden; the coordinates of the statement
around it that it mentions become leading axes of it.
"""

from __future__ import annotations

from ..diagnostics import Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate, Kind
from ..ir.walk import fresh, walk
from ..records import replace
from ..syntax import tree
from . import derivatives, elaborate, guards, inline, kinds, lifting, literals, reads, reductions, sizes
from .names import apart, check_free
from .scope import Binding, Frame, Meaning, Poison, RestBinding, Scope, Tensor, Unit, Value, is_closed

# ---------------------------------------------------------------- one clause


def draft(unit: Unit, scope: Scope, let: tree.Let) -> lifting.Draft | None:
    """One `let`, with or without a bracket, that defines values point by point."""
    frame = scope.frame
    before = dict(frame.live)
    slots = let.slots or ()
    names, good = _bind_slots(unit, scope, slots)
    inner = scope.binding(names)
    for binder in slots:
        if isinstance(binder, tree.Binder) and binder.range is not None:
            binding = names.get(binder.name)
            others = scope.binding({name: meaning for name, meaning in names.items() if name != binder.name})
            if isinstance(binding, Binding):
                good &= sizes.state_range(unit, others, binding, binder.range, elaborate.expression, outer=False)
    places = {id(slot): _base_case(unit, scope, slot) for slot in slots if not isinstance(slot, tree.Binder)}
    body, guard, guarded = value_and_guard(unit, inner, let.body, let.where, slots)
    own: list[Binding] = []
    found: list[ir.Expr | None] = []
    for slot in slots:
        if isinstance(slot, tree.Binder):
            parts = _parts(unit, inner, names.get(f"..{slot.name}" if slot.rest else slot.name))
            own += parts
            found += [build.coord(part.coordinate, slot.span) for part in parts]
        else:
            found.append(places[id(slot)])
    ranges = [sizes.settle(unit, scope, binding) for binding in own]
    frame.live.clear()
    frame.live.update(before)
    frame.live.update({part.coordinate.name: part for part in reductions.outer_parts(scope)})
    known = tuple([range for range in ranges if range is not None])
    places_known = tuple([slot for slot in found if slot is not None])
    if body is None or not guarded or not good or len(known) < len(ranges) or len(places_known) < len(found):
        return None
    return lifting.Draft(places_known, own, known, body, guard, let.span)


def _parts(unit: Unit, scope: Scope, meaning: Meaning | None) -> list[Binding]:
    match meaning:
        case Binding():
            return [meaning]
        case RestBinding():
            return sizes.settle_rest(unit, scope, meaning)
        case _:
            return []


def _bind_slots(unit: Unit, scope: Scope, slots: tuple[tree.Slot, ...]) -> tuple[dict[str, Meaning], bool]:
    names: dict[str, Meaning] = {}
    good = True
    for number, slot in enumerate(slots):
        if not isinstance(slot, tree.Binder):
            continue
        key = f"..{slot.name}" if slot.rest else slot.name
        if key in names:
            unit.report("IX211", f"`{key}` stands twice on the left", slot.span, help="a coordinate stands once there")
            good = False
        elif slot.rest and number:
            unit.report("IX213", "`..` leads a bracket, once", slot.span)
            good = False
        else:
            names[key] = reductions.bind(unit, scope, slot)
    return names, good


def _base_case(unit: Unit, scope: Scope, slot: tree.Expr) -> ir.Expr | None:
    place = elaborate.expression(unit, scope, slot)
    if place is None or not kinds.whole(unit, place, "the place of a base case"):
        return None
    if place.type.coordinates or not is_closed(place, unit):
        help = "or name a coordinate here"
        unit.report("IX302", "the place of a base case is made of literals and sizes", slot.span, help=help)
        return None
    return sizes.simplify(place)


def value_and_guard(
    unit: Unit, scope: Scope, body: tree.Expr, where: tuple[tree.Clause, ...], slots: tuple[tree.Slot, ...] = ()
) -> tuple[ir.Expr | None, ir.Expr | None, bool]:
    """The value of a right-hand side, the guard of its declaration, and whether the guard could be read."""
    scope, own, deeper = guards.attach(unit, scope, body, where)
    found = [_own_guard(unit, scope, clause, deeper) for clause in own]
    guard = build.conjunction(found)
    scope = scope.given(guard)
    good = None not in found
    if isinstance(body, tree.Block):
        inner = scope.binding(define(unit, scope, body))
        value, also, fine = value_and_guard(unit, inner, body.body, body.where, slots)
        return value, build.conjunction((guard, also)), good and fine
    if slots and is_whole(scope, body):
        tensor = reads.tensor_of(unit, scope, body)
        if tensor is not None and not tensor.axes:
            return reads.read_at(unit, scope, tensor, (), body.span), guard, good
        return reads.read(unit, scope, tensor, _as_indices(slots), body.span, body.span), guard, good
    outside, unit.statement = unit.statement, body
    value = elaborate.expression(unit, scope, body)
    unit.statement = outside
    return value, guard, good


def _own_guard(unit: Unit, scope: Scope, clause: tree.Guard, deeper: set[str]) -> ir.Expr | None:
    missing = sorted((guards.mentioned(clause.condition, {}) & deeper) - scope.names.keys())
    if missing:
        unit.report(
            "IX212",
            f"`{missing[0]}` is bound deeper inside, and this guard stands outside",
            clause.span,
            help=f"write the guard inside the bracket that binds `{missing[0]}`: `sum[{missing[0]}](… where …)`",
        )
        return None
    return elaborate.condition(unit, scope, clause.condition, "a guard")


def _as_indices(slots: tuple[tree.Slot, ...]) -> tuple[tree.Expr | tree.Rest, ...]:
    """A left-hand side, written as the indices of a read."""
    return tuple(
        (tree.Rest(slot.name, slot.span) if slot.rest else tree.Name(slot.name, slot.span))
        if isinstance(slot, tree.Binder)
        else slot
        for slot in slots
    )


def is_whole(scope: Scope, node: tree.Expr) -> bool:
    """Whether an expression is a whole tensor: a bare name, an array, a call that gives one."""
    match node:
        case tree.Name(name):
            meaning = scope.names.get(name)
            return isinstance(meaning, Tensor) and bool(meaning.axes)
        case tree.ArrayLiteral() | tree.Printed(tree.ArrayLiteral()):
            return True
        case tree.Call(name):
            return name in scope.functions and bool(scope.functions[name].tree.results)
        case tree.Derivative():
            return True
        case tree.Paren(inner):
            return is_whole(scope, inner)
        case _:
            return False


# ------------------------------------------------------------ many definitions


def define(unit: Unit, scope: Scope, block: tree.Block) -> dict[str, Meaning]:
    """The local definitions of a block or a function, and what their names mean."""
    groups: dict[str, list[tree.Let]] = {}
    for let in [part for several in block.lets for part in apart(several)]:
        known = groups.setdefault(let.name, [])
        if known and (let.slots is None or len(let.slots) != len(known[0].slots or ())):
            unit.report("IX202", f"`{let.name}` is defined twice", Label(let.name_span), Label(known[0].name_span))
        else:
            known.append(let)
    names: dict[str, Meaning] = {}
    if not groups:
        return names
    if id(block) not in unit.orders:  # A function is read at each of its calls.
        mentioned = inline.mentions(groups)
        unit.orders[id(block)] = mentioned, inline.in_order(groups, mentioned), derivatives.sides_of(block)
    mentioned, order, sides = unit.orders[id(block)]
    for group in order:
        here = scope.binding(names)
        if group[0] in names:
            continue
        for name in group:
            check_free(name, groups[name][0].name_span, unit.sink)
            _warn_of_hiding(unit, scope, groups[name][0])
        if inline.is_recursive(group, mentioned):
            clauses = {name: groups[name] for name in group}
            names.update(define_recursive(unit, here, clauses, mentioned, local=True))
        elif groups[group[0]][0].names:
            names.update(define_together(unit, here, groups[group[0]][0], local=True))
        else:
            names[group[0]] = _define_local(unit, here, group[0], groups[group[0]], group[0] in sides)
    return names


def _warn_of_hiding(unit: Unit, scope: Scope, let: tree.Let) -> None:
    hidden = scope.names.get(let.name)
    if hidden is not None and not isinstance(hidden, Poison):
        places = (Label(let.name_span, "from here on, this one is meant"), Label(hidden.span, "hidden"))
        unit.report("IX204", f"`{let.name}` hides another `{let.name}`", *places)


def _define_local(unit: Unit, scope: Scope, name: str, clauses: list[tree.Let], differentiated: bool) -> Meaning:
    first = clauses[0]
    if first.slots is None and is_whole(scope, first.body):
        return whole_tensor(unit, scope, first, unit.fresh_name(f"{scope.frame.owner}_{name}")) or Poison()
    before = unit.count
    drafts = [draft(unit, scope, clause) for clause in clauses]
    known = [found for found in drafts if found is not None]
    if len(known) < len(drafts):
        return Poison()
    if first.slots is None and not differentiated and not _worth_keeping(scope, known[0]):
        return Value(known[0].body, unit.count - before, first.name_span)
    return lifting.lift(unit, scope, unit.fresh_name(f"{scope.frame.owner}_{name}"), known, first) or Poison()


def define_together(unit: Unit, scope: Scope, let: tree.Let, local: bool) -> dict[str, Meaning]:
    """`let (a, b) = f(x);`: every name at once, so that what the function shares among them is there once."""
    written = [name.name for name in let.names]
    names = [unit.fresh_name(f"{scope.frame.owner}_{name}") if local else name for name in written]
    found = inline.call_together(unit, scope, let, names, hidden=local)
    meanings: list[Meaning] = [Poison() for _ in written] if found is None else [*found]
    return dict(zip(written, meanings, strict=True))


def _worth_keeping(scope: Scope, found: lifting.Draft) -> bool:
    """Whether a local scalar is computed once and kept, rather than written out at each use."""
    if found.guard is not None:
        return True
    scans = any(isinstance(part, ir.Reduce | ir.Normalize) for part in walk(found.body))
    captured = [scope.frame.live[coordinate.name] for coordinate in found.free]
    return scans and not any(lifting.is_dependent(binding) for binding in captured)


def define_recursive(
    unit: Unit, scope: Scope, groups: dict[str, list[tree.Let]], mentioned: inline.Mentions, local: bool
) -> dict[str, Meaning]:
    """Definitions that read each other. What is not known of them yet is found by rehearsal: they are
    read, with nothing reported, until their kinds, sizes and captured coordinates stay the same."""
    names = {name: unit.fresh_name(f"{scope.frame.owner}_{name}") if local else name for name in groups}
    tensors: dict[str, Tensor] = {}
    for name, clauses in groups.items():
        if any(clause.slots is None for clause in clauses):
            help = "a recurrence needs a coordinate to go along"
            unit.report("IX208", f"`{name}` is defined by itself", clauses[0].name_span, help=help)
            return {name: Poison() for name in groups}
        tensors[name] = Tensor(names[name], _unknown_axes(clauses[0]), None, clauses[0].name_span, recursive=True)
    for guess in _GUESSES:
        start = {name: replace(tensor, kind=guess) for name, tensor in tensors.items()}
        found = _rehearse(unit, scope, groups, mentioned, names, start, local)
        if found is not None:
            return found
    unknown = {name: replace(tensor, kind="real") for name, tensor in tensors.items()}
    return _read_group(unit, scope, groups, names, unknown, local)


# A recurrence without a base case says nothing of its kind until one is assumed; the least is tried first.
_GUESSES: tuple[Kind | None, ...] = (None, "whole", "bool", "real")


def _rehearse(
    unit: Unit,
    scope: Scope,
    groups: dict[str, list[tree.Let]],
    mentioned: inline.Mentions,
    names: dict[str, str],
    tensors: dict[str, Tensor],
    local: bool,
) -> dict[str, Meaning] | None:
    """What definitions that read each other mean; None where their kinds cannot be found out so. Only those are read
    again that read one of which more is known now."""
    sink, rehearsing = unit.sink, unit.rehearsing
    found: dict[str, Meaning] = {}
    waiting = groups
    for turn in range(len(groups) + 4):
        # Of one that reads itself alone, all is known after one rehearsal, nearly always.
        kept = _kept(unit, scope, groups, names, tensors, local) if turn and len(groups) == 1 else None
        if kept is not None:
            return kept
        mark = _mark(unit, scope.frame)
        unit.sink, unit.rehearsing = type(sink)(), True
        read = _read_group(unit, scope, waiting, names, tensors, local)
        unit.sink, unit.rehearsing = sink, rehearsing
        _reset(unit, scope.frame, mark)
        found |= read
        news = {name: new for name, new in read.items() if isinstance(new, Tensor) and not _alike(tensors[name], new)}
        if not news:
            break
        tensors = {**tensors, **news}
        waiting = {name: clauses for name, clauses in groups.items() if not mentioned[name].isdisjoint(news)}
    known = all(isinstance(meaning, Tensor) for meaning in found.values())
    return _read_group(unit, scope, groups, names, tensors, local) if known else None


def _kept(
    unit: Unit,
    scope: Scope,
    groups: dict[str, list[tree.Let]],
    names: dict[str, str],
    tensors: dict[str, Tensor],
    local: bool,
) -> dict[str, Meaning] | None:
    """A reading that is none for rehearsal; None, and forgotten, where it finds anything or more becomes known."""
    mark, sink = _mark(unit, scope.frame), unit.sink
    unit.sink = type(sink)()
    read = _read_group(unit, scope, groups, names, tensors, local)
    is_silent, unit.sink = not len(unit.sink), sink
    if is_silent and all(isinstance(new, Tensor) and _alike(tensors[name], new) for name, new in read.items()):
        return read
    _reset(unit, scope.frame, mark)
    return None


def _unknown_axes(clause: tree.Let) -> tuple[ir.Axis, ...]:
    unknown = build.size(Coordinate("?"), clause.span)
    rests = [slot.name if isinstance(slot, tree.Binder) and slot.rest else None for slot in clause.slots or ()]
    return tuple(
        ir.Axis(Coordinate(rest or f"?{number}", rest is not None), unknown) for number, rest in enumerate(rests)
    )


def _read_group(
    unit: Unit,
    scope: Scope,
    groups: dict[str, list[tree.Let]],
    names: dict[str, str],
    tensors: dict[str, Tensor],
    local: bool,
) -> dict[str, Meaning]:
    """One reading of definitions that read each other, of which this much is known."""
    result: dict[str, Meaning] = {}
    scope = scope.binding(tensors)
    outside, unit.stepping = unit.stepping, {**unit.stepping, **{each.name: each for each in tensors.values()}}
    for name, clauses in groups.items():
        here = scope if local else replace(scope, frame=Frame(name))
        drafts = [draft(unit, here, clause) for clause in clauses]
        known = [found for found in drafts if found is not None]
        if not known or (len(known) < len(drafts) and not unit.rehearsing):
            result[name] = Poison()
            continue
        tensor = lifting.lift(unit, here, names[name], known, clauses[0], hidden=local)
        if tensor is None:
            result[name] = Poison()
            continue
        filled = tuple(sizes.fill_axis(unit, here.frame, axis) for axis in tensor.axes)
        result[name] = replace(tensor, axes=filled, recursive=True)
        if not local and not unit.rehearsing:
            lifting.finish(unit, here.frame)
    unit.stepping = outside
    return result


def _alike(old: Tensor, new: Tensor) -> bool:
    """Whether no more is known of a tensor than before, nor where in the text its sizes come from."""
    before, after = ([(axis, axis.extent.span, axis.origin) for axis in tensor.axes] for tensor in (old, new))
    return before == after and old.kind == new.kind and old.captured == new.captured


Mark = tuple[int, int, dict[str, ir.Let], set[str], int, int]


def _mark(unit: Unit, frame: Frame) -> Mark:
    return len(frame.pending), len(frame.asserts), dict(unit.lets), set(unit.taken), unit.count, len(unit.asserts)


def _reset(unit: Unit, frame: Frame, mark: Mark) -> None:
    """Forget what a rehearsal brought."""
    del frame.pending[mark[0] :]
    del frame.asserts[mark[1] :]
    unit.lets, unit.taken, unit.count = mark[2], mark[3], mark[4]
    del unit.asserts[mark[5] :]


# --------------------------------------------------------------- whole tensors


def whole_tensor(unit: Unit, scope: Scope, let: tree.Let, name: str, hidden: bool = True) -> Tensor | None:
    """`let o = norm(X);`: the tensor on the right, under a name of its own."""
    if let.where:
        help = f"write `let {let.name}[i, …] = …`"
        unit.report("IX209", "a guard needs coordinates on the left", let.where[0].span, help=help)
        return None
    body = let.body
    while isinstance(body, tree.Paren):
        body = body.inner
    if isinstance(body, tree.Call):
        result = inline.call(unit, scope, body, name, hidden)
        return result if isinstance(result, Tensor) else None
    if isinstance(body, tree.ArrayLiteral | tree.Printed):
        return literals.literal_tensor(unit, scope, body, name, hidden)
    if isinstance(body, tree.Derivative):
        return derivatives.derivative(unit, scope, body, name, hidden)
    tensor = reads.tensor_of(unit, scope, body)
    return None if tensor is None else _alias(unit, scope, name, tensor, let, hidden)


def _alias(unit: Unit, scope: Scope, name: str, tensor: Tensor, let: tree.Let, hidden: bool) -> Tensor | None:
    """A definition that repeats another, point by point."""
    if tensor.kind is None:
        return None
    bindings = []
    taken = set(scope.frame.live)
    for axis in tensor.axes:
        coordinate = fresh(axis.coordinate, taken)
        taken.add(coordinate.name)
        range = sizes.whole_range(coordinate, axis, let.span)
        bindings.append(Binding(coordinate, coordinate.name, let.span, range=range))
    own = tuple(build.coord(binding.coordinate, let.body.span) for binding in bindings)
    places = tuple(
        place if axis.origin is None else sizes.counted_from(place, axis.origin)
        for place, axis in zip(own, tensor.axes, strict=True)
    )
    captured = tuple(build.coord(binding.coordinate, let.body.span) for binding in tensor.captured)
    body = build.read(tensor.name, (*captured, *places), tensor.kind, let.body.span)
    ranges = tuple(binding.range for binding in bindings if binding.range is not None)
    return lifting.lift(unit, scope, name, [lifting.Draft(own, bindings, ranges, body, None, let.span)], let, hidden)


# ----------------------------------------------------------------------- blocks


def block_value(unit: Unit, scope: Scope, node: tree.Block, name: str = "block") -> ir.Expr | None:
    """`{ let …; expr where … }` inside an expression. A guard that attaches to no reduction in it makes
    its value absent, so it becomes a definition of that name."""
    value, guard, good = value_and_guard(unit, scope, node, ())
    if value is None or not good or guard is None:
        return value if good else None
    return lifting.keep(unit, scope, name, value, guard, node)
