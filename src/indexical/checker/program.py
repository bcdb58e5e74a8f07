"""A whole file: tree to Program. The stages, top to bottom."""

from __future__ import annotations

from collections.abc import Mapping

from ..diagnostics import Diagnostic, Label, Sink
from ..ir import build
from ..ir import nodes as ir
from ..ir.graph import reached
from ..ir.types import KIND_OF, Coordinate, Dtype, Kind
from ..ir.walk import LEAVES, children, rebuild
from ..records import replace
from ..source import Span
from ..syntax import tree
from ..syntax.literals import array_shape
from ..syntax.vocabulary import WORDS
from . import absence, bounds, claims, definitions, elaborate, inline, lifting, numerals, recurrence, sizes, spaces
from .modules import Function, functions_of, sources_of
from .names import Declarations, apart, check_free, collect, suggest
from .scope import Binding, Derive, Frame, Meaning, Poison, Scope, Tensor, Unit

# An index that turns out to need a whole input makes the program be read again; never often.
_MOST_READINGS = 40


def check(file: tree.File, sink: Sink, derive: Derive | None = None) -> ir.Program | None:
    """The Program that a file means; None where it has an error. `derive` says what a derivative in it is."""
    declared = collect(file, sink)
    functions = functions_of(file, declared, sink)
    mentioned = inline.mentions(declared.lets)
    unit, scope, inputs = _read(file, declared, mentioned, functions, sink, derive)
    _check_uncalled(unit, declared, functions)
    outputs = _outputs(unit, declared, mentioned)
    contracts = claims.contracts(unit, declared.contracts, scope)
    # What is claimed may call functions and take derivatives: their definitions join the program.
    asserts = claims.asserts(unit, declared.asserts, scope)
    expects = claims.expects(unit, declared, scope)
    lets = tuple(unit.lets.values())
    modules = tuple(source for source in sources_of(functions) if source is not file.source)
    claimed = contracts, (*unit.asserts, *asserts), expects
    return finish(ir.Program(file.source, inputs, lets, outputs, (), *claimed, modules), sink)


def finish(program: ir.Program, sink: Sink) -> ir.Program | None:
    """The program with its definitions in order; None where something is wrong with it that its Program shows."""
    program = replace(program, order=recurrence.arrange({let.name: let for let in program.lets}, sink))
    if spaces.are_declared(program):
        spaces.check(program, sink)
    bounds.check(program, sink)
    absence.check(program, sink)
    numerals.check(program, sink)
    return None if sink.failed else program


def _read(
    file: tree.File,
    declared: Declarations,
    mentioned: inline.Mentions,
    functions: dict[str, Function],
    sink: Sink,
    derive: Derive | None,
) -> tuple[Unit, Scope, tuple[ir.Input, ...]]:
    """Inputs and definitions, read as often as it takes to know which inputs are whole or Boolean."""
    kinds: dict[str, tuple[Kind, Span]] = {}
    groups = inline.in_order(declared.lets, mentioned)
    for _ in range(_MOST_READINGS):
        unit = Unit(Sink(), file.broken | declared.broken, {*declared.inputs, *declared.lets, *WORDS}, dict(kinds))
        scope, inputs = _inputs(unit, declared, functions)
        unit.inputs, unit.derive = inputs, derive
        scope = _define_all(unit, scope, declared, groups, mentioned)
        if not unit.demands:
            break
        kinds.update(unit.demands)
    for diagnostic in unit.sink:
        sink.add(diagnostic)
    unit.sink = sink
    return unit, scope, inputs


# --------------------------------------------------------------------- inputs


def _inputs(unit: Unit, declared: Declarations, functions: dict[str, Function]) -> tuple[Scope, tuple[ir.Input, ...]]:
    names: dict[str, Meaning] = {}
    sizes_: dict[str, ir.Expr] = _literal_sizes(declared)
    rests: dict[str, tuple[ir.Axis, ...]] = {}
    for item in declared.inputs.values():
        for slot in item.slots or ():
            if isinstance(slot, tree.Binder):
                check_free(slot.name, slot.span, unit.sink)
            if isinstance(slot, tree.Binder) and not slot.rest:
                sizes_[slot.name] = build.size(Coordinate(slot.name, False, declared.spaces.get(slot.name)), slot.span)
            elif isinstance(slot, tree.Binder):
                rest = Coordinate(slot.name, True)
                rests.setdefault(slot.name, (ir.Axis(rest, build.size(rest, slot.span)),))
        if item.dtype is None:
            unit.untyped.add(item.name)
        if not item.slots:
            names[item.name] = Tensor(item.name, (), _input_kind(unit, item), item.name_span)
    scope = Scope(names, functions, declared.spaces, sizes_, rests, Frame("input"))
    _state_sizes(unit, scope, declared, sizes_)
    inputs = []
    for item in declared.inputs.values():
        axes = _input_axes(unit, item, declared, sizes_, rests)
        kind = _input_kind(unit, item)
        names[item.name] = Poison() if axes is None else Tensor(item.name, axes, kind, item.span)
        if axes is not None:
            inputs.append(ir.Input(item.name, axes, kind, _dtype(item), item.span))
    return scope, tuple(inputs)


def _input_kind(unit: Unit, item: tree.InputItem) -> Kind:
    if item.dtype is not None:
        return KIND_OF[item.dtype]
    return unit.kinds[item.name][0] if item.name in unit.kinds else "real"


def _dtype(item: tree.InputItem) -> Dtype | None:
    return item.dtype  # type: ignore[return-value]


def _literal_sizes(declared: Declarations) -> dict[str, ir.Expr]:
    """Figures in the file stand for inputs: their coordinates have sizes too, where they agree."""
    found: dict[str, set[int]] = {}
    spans: dict[str, Span] = {}
    for clauses in declared.lets.values():
        shape = array_shape(clauses[0].body)
        slots = clauses[0].slots or ()
        if len(clauses) == 1 and shape and len(shape) == len(slots):
            for slot, length in zip(slots, shape, strict=True):
                if isinstance(slot, tree.Binder) and slot.range is None and not slot.rest:
                    found.setdefault(slot.name, set()).add(length)
                    spans[slot.name] = slot.span
    return {name: build.whole(min(sizes), spans[name]) for name, sizes in found.items() if len(sizes) == 1}


def _state_sizes(unit: Unit, scope: Scope, declared: Declarations, known: dict[str, ir.Expr]) -> None:
    """The ranges in inputs' slots: they start at 0 and say how many points the coordinate has."""
    stated: dict[str, ir.Range] = {}
    for item in declared.inputs.values():
        for slot in item.slots or ():
            if not isinstance(slot, tree.Binder) or slot.range is None:
                continue
            binding = Binding(Coordinate(slot.name), slot.name, slot.span)
            if not sizes.state_range(unit, scope, binding, slot.range, elaborate.expression, outer=False):
                continue
            assert binding.stated is not None
            if binding.stated.lower != build.whole(0, slot.span):
                unit.report("IX302", f"the range of an input's `{slot.name}` must start at 0", slot.range.lower.span)
            else:
                stated.setdefault(slot.name, binding.stated)
    for name, range in stated.items():
        known[name] = _written_out(unit, range.upper, stated, frozenset((name,)))


def _written_out(unit: Unit, size: ir.Expr, stated: dict[str, ir.Range], names: frozenset[str]) -> ir.Expr:
    """A stated size in terms of those that the arrays decide."""
    match size:
        case ir.Size(coordinate) if coordinate.name in names:
            unit.report("IX302", f"the size of `{coordinate}` depends on itself", size.span)
            return build.whole(0, size.span)
        case ir.Size(coordinate) if coordinate.name in stated:
            return _written_out(unit, stated[coordinate.name].upper, stated, names | {coordinate.name})
        case _:
            return rebuild(size, lambda inner: _written_out(unit, inner, stated, names))


def _input_axes(
    unit: Unit,
    item: tree.InputItem,
    declared: Declarations,
    known: dict[str, ir.Expr],
    rests: dict[str, tuple[ir.Axis, ...]],
) -> tuple[ir.Axis, ...] | None:
    axes: list[ir.Axis] = []
    for number, slot in enumerate(item.slots or ()):
        if not isinstance(slot, tree.Binder):
            help = "a size is stated as `i in 0..5`"
            unit.report("IX302", "an input's bracket holds coordinates", slot.span, help=help)
            return None
        if slot.rest and number:
            unit.report("IX213", "`..` leads a bracket, once", slot.span)
            return None
        axis = rests[slot.name][0] if slot.rest else _input_axis(slot, declared, known[slot.name])
        if any(axis.coordinate == other.coordinate for other in axes):
            unit.report("IX211", f"`{slot.name}` stands twice in one bracket", slot.span, help="give one another name")
            return None
        axes.append(axis)
    return tuple(axes)


def _input_axis(slot: tree.Binder, declared: Declarations, size: ir.Expr) -> ir.Axis:
    """An axis whose size, where it is the array's to say, points at its own slot."""
    coordinate = Coordinate(slot.name, False, declared.spaces.get(slot.name))
    return ir.Axis(coordinate, build.size(size.coordinate, slot.span) if isinstance(size, ir.Size) else size)


# ---------------------------------------------------------------- definitions


def _define_all(
    unit: Unit, scope: Scope, declared: Declarations, groups: list[list[str]], mentioned: inline.Mentions
) -> Scope:
    """Every definition, after all that it reads; the scope in which all are known."""
    names: dict[str, Meaning] = {}
    for group in groups:
        here = scope.binding(names)
        if group[0] in names:
            continue
        if inline.is_recursive(group, mentioned):
            clauses = {name: declared.lets[name] for name in group}
            names.update(definitions.define_recursive(unit, here, clauses, mentioned, local=False))
        else:
            names.update(_define(unit, here, group[0], declared.lets[group[0]]))
    for name in unit.sized:
        _check_size(unit, name, names)
    source_order = [name for name in declared.lets if name in unit.lets]
    hidden = {name: let for name, let in unit.lets.items() if name not in declared.lets}
    unit.lets = {**hidden, **{name: unit.lets[name] for name in source_order}}
    return scope.binding(names)


def _check_size(unit: Unit, name: str, names: Mapping[str, Meaning]) -> None:
    """A size that was taken from a definition is that of the coordinate in all others too."""
    for tensor in [meaning for meaning in names.values() if isinstance(meaning, Tensor)]:
        for axis in tensor.axes:
            if axis.coordinate == name:
                sizes.agree_about_size(unit, name, tensor, axis.extent)


def _define(unit: Unit, scope: Scope, name: str, clauses: list[tree.Let]) -> dict[str, Meaning]:
    """A definition, and those that are bound together with it."""
    first = clauses[0]
    here = replace(scope, frame=Frame(name))
    if first.names:
        # What the function shares is told by its name, for it belongs to none of the results more than to another.
        if isinstance(first.body, tree.Call):
            here.frame.owner = first.body.function
        found = definitions.define_together(unit, here, first, local=False)
        lifting.finish(unit, here.frame)
        return {bound.name: _defined(unit, bound.name, bound.span, found[bound.name]) for bound in first.names}
    if first.slots is None and definitions.is_whole(here, first.body):
        tensor = definitions.whole_tensor(unit, here, first, name, hidden=False)
    else:
        drafts = [definitions.draft(unit, here, clause) for clause in clauses]
        known = [draft for draft in drafts if draft is not None]
        tensor = lifting.lift(unit, here, name, known, first, hidden=False) if len(known) == len(drafts) else None
    lifting.finish(unit, here.frame)
    return {name: _defined(unit, name, first.name_span, tensor)}


def _defined(unit: Unit, name: str, span: Span, found: Meaning | None) -> Meaning:
    """The tensor of a definition that has joined the program."""
    if not isinstance(found, Tensor) or name not in unit.lets:
        return Poison()
    for clause in unit.lets[name].clauses:
        if _depth(clause.body) > elaborate.MAXIMUM_NESTING:
            message = f"`{name}` is nested more than {elaborate.MAXIMUM_NESTING} deep when all is inlined"
            unit.report("IX106", message, span, help="name a part of it with `let`")
            del unit.lets[name]
            return Poison()
    let = unit.lets[name]
    return Tensor(name, let.axes, let.kind, span)


def _depth(expr: ir.Expr) -> int:
    depth, level = 1, [expr]
    while level := [child for part in level if type(part) not in LEAVES for child in children(part)]:
        depth += 1
    return depth


def _check_uncalled(unit: Unit, declared: Declarations, functions: dict[str, Function]) -> None:
    """A function that nothing calls is read once with its parameters as inputs, for its mistakes alone."""
    for name, fn in declared.functions.items():
        if name in unit.called:
            continue
        slots = tuple(
            tree.InputItem(parameter.name, parameter.span, parameter.slots, None, parameter.span)
            for parameter in fn.parameters
        )
        inner = Declarations(inputs={item.name: item for item in slots})
        arguments = tuple(tree.Name(parameter.name, parameter.span) for parameter in fn.parameters)
        call = tree.Call(name, fn.name_span, arguments, fn.name_span)
        names = tuple(tree.Name(f"{name}(){number or ''}", fn.name_span) for number in range(len(fn.results) or 1))
        let = tree.Let(f"{name}()", fn.name_span, None, call, (), fn.span, names if len(names) > 1 else ())
        inner.lets |= {part.name: [part] for part in apart(let)}
        file = tree.File((), (), unit.broken, fn.span.source)
        found = Sink()
        reading, _, _ = _read(file, inner, inline.mentions(inner.lets), functions, found, unit.derive)
        unit.called |= reading.called
        for diagnostic in found:
            unit.sink.add(_without_call(diagnostic, fn.name_span))


def _without_call(diagnostic: Diagnostic, place: Span) -> Diagnostic:
    labels = tuple(label for label in diagnostic.labels if label.span is not place or label is diagnostic.labels[0])
    return replace(diagnostic, labels=labels)


# -------------------------------------------------------------------- outputs


def _outputs(unit: Unit, declared: Declarations, mentioned: inline.Mentions) -> tuple[str, ...]:
    """The outputs of the program: those that it names, else the definitions that no other definition reads."""
    if declared.outputs:
        return tuple(dict.fromkeys(name.name for name in declared.outputs if _is_output(unit, declared, name)))
    read = {name for owner, names in mentioned.items() for name in names if name != owner}
    found = tuple(name for name in declared.lets if name in unit.lets and name not in read)
    if not found and declared.lets and not unit.sink.failed:
        found = _claimed(declared)
    if not found and declared.lets and not unit.sink.failed:
        last = _last(declared, mentioned)
        message = "every definition is read by another, so none is an output"
        unit.report("IX217", message, Label(last.name_span), help=f"say which: `output {last.name};`")
    return found


def _claimed(declared: Declarations) -> tuple[str, ...]:
    """The definitions that claims about figures speak of."""
    named = {node.name for claim in declared.expects for node in tree.walk(claim) if isinstance(node, tree.Name)}
    return tuple(name for name in declared.lets if name in named)


def _last(declared: Declarations, mentioned: inline.Mentions) -> tree.Let:
    """The definition that is most likely wanted of those that are made of each other: what nothing else is made of,
    and what no other reads within the same step."""
    lets = declared.lets
    made = {name: set(reached((name,), mentioned.__getitem__)) for name in lets}
    last = [name for name in lets if all(other in made[name] for other in lets if name in made[other])]
    bare = {
        (owner, node.base.name)
        for owner, clauses in lets.items()
        for clause in clauses
        for node in tree.walk(clause)
        if isinstance(node, tree.Index) and isinstance(node.base, tree.Name)
        if all(isinstance(index, tree.Name) for index in node.indices)
    }
    ending = [name for name in last if not any((owner, name) in bare for owner in last if owner != name)]
    return lets[(ending or last)[-1]][0]


def _is_output(unit: Unit, declared: Declarations, name: tree.Name) -> bool:
    if name.name in declared.lets:
        return name.name in unit.lets
    if name.name in unit.broken:
        return False
    help, fix = suggest(name.name, declared.lets, name.span, unit.sink)
    if name.name in declared.inputs:
        help = f"an output is a definition: `let {name.name}_out = {name.name};`"
    unit.report("IX201", f"no definition is called `{name.name}`", name.span, help=help, fix=fix)
    return False
