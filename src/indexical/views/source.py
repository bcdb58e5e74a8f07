"""A Program as a text of the language, which means exactly what the Program says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..checker.guards import at_this_depth
from ..checker.spaces import check as check_spaces
from ..diagnostics import Sink
from ..ir import build
from ..ir import nodes as ir
from ..ir.constants import names_pi
from ..ir.graph import components
from ..ir.types import Coordinate, Dtype
from ..ir.walk import fresh_name, reads_of, rebuild, walk
from ..records import replace
from ..source import Source, Span
from ..syntax import tree
from ..syntax.format import format_source, format_statement
from ..syntax.parse import parse
from .arrangement import arranged, is_derivative, ranges_in
from .expressions import (
    Place,
    as_real,
    attaches,
    binder,
    circle_name,
    guards,
    legal,
    scan,
    written_expression,
)
from .figures import NOWHERE, Unwritable, array, is_decimal
from .inference import Setting, asked_kinds, simplified

# So many numbers of an array literal may stand in the midst of an expression.
_FEW = 8


def written(program: ir.Program, remarks: Mapping[str, str] = {}) -> str:
    """The text of a Program, laid out as `ix fmt` does; `remarks` are put behind the definitions they name.

    What a function or a block brought along is a definition like any other. Expectations are left out.
    Raises `Unwritable` for what the language has no words for.
    """
    return laid_out(spelled(program, remarks))


def spelled(program: ir.Program, remarks: Mapping[str, str] = {}) -> str:
    """The same before it is laid out: `=` signs and comments are not aligned."""
    program = arranged(program)
    setting = _setting(program)
    blocks = [
        *([format_statement(statement) for statement in part] for part in _declarations(program, setting)),
        *_definitions(program, setting, remarks),
        *([format_statement(statement) for statement in part] for part in _claims(program, setting)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def unwritten(program: ir.Program, name: str) -> ir.Program:
    """The Program that the text of a Program would mean, made without that text: nothing in it has a place in one.

    Coordinates may be called otherwise there, a constant beside a real be whole, and an index be written shorter.
    """
    program = arranged(program)
    program = _renamed(program, {old: new for old, new in _names(program).items() if old != new})
    figures = _figures(program)
    nowhere = Span(Source(name, ""), 0, 0)
    lets = []
    for let in program.lets:
        clauses = tuple(replace(clause, span=nowhere) for clause in let.clauses)
        lets.append(replace(let, hidden=let.name in figures, clauses=clauses, call=None, span=nowhere))
    asked = asked_kinds(program) if any(_is_undeclared(tensor) for tensor in program.inputs) else set()
    inputs = tuple(replace(tensor, dtype=_dtype(tensor, asked), span=nowhere) for tensor in program.inputs)
    asserts = tuple(replace(claim, span=nowhere) for claim in program.asserts)
    return replace(program, source=nowhere.source, inputs=inputs, lets=tuple(lets), asserts=asserts)


def with_texts(program: ir.Program) -> ir.Program:
    """An unwritten Program whose clauses and assertions each have a text of their own."""
    setting = _setting(program)

    def told(statement: tree.Statement) -> Span:
        text = format_statement(statement)
        return Span(Source(program.source.name, text), 0, len(text))

    lets = []
    for let in program.lets:
        spans = [told(statement) for statement in _statements(let, setting)]
        clauses = tuple(replace(clause, span=span) for clause, span in zip(let.clauses, spans, strict=True))
        lets.append(replace(let, clauses=clauses, span=spans[0]))
    asserts = tuple(replace(claim, span=told(_assert(claim, setting))) for claim in program.asserts)
    return replace(program, lets=tuple(lets), asserts=asserts)


def _renamed(program: ir.Program, names: Mapping[str, str]) -> ir.Program:
    """The program with these tensors under other names."""
    if not names:
        return program

    def change(expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, change)
        return replace(expr, tensor=names.get(expr.tensor, expr.tensor)) if isinstance(expr, ir.Read) else expr

    def changed(range: ir.Range) -> ir.Range:
        return replace(range, lower=change(range.lower), upper=change(range.upper))

    def home(axes: tuple[ir.Axis, ...]) -> tuple[ir.Axis, ...]:
        return tuple(replace(axis, extent=change(axis.extent)) for axis in axes)

    lets = []
    for let in program.lets:
        clauses = tuple(
            replace(
                clause,
                slots=tuple(map(change, clause.slots)),
                ranges=tuple(map(changed, clause.ranges)),
                body=change(clause.body),
                guard=None if clause.guard is None else change(clause.guard),
            )
            for clause in let.clauses
        )
        lets.append(replace(let, name=names.get(let.name, let.name), axes=home(let.axes), clauses=clauses))
    inputs = tuple(replace(t, name=names.get(t.name, t.name), axes=home(t.axes)) for t in program.inputs)
    asserts = tuple(replace(claim, condition=change(claim.condition)) for claim in program.asserts)
    outputs = tuple(names.get(name, name) for name in program.outputs)
    return replace(program, inputs=inputs, lets=tuple(lets), outputs=outputs, asserts=asserts)


def laid_out(text: str) -> str:
    """A text that was spelled, as `ix fmt` leaves it."""
    sink = Sink()
    file = parse(Source("<written>", text), sink)
    if sink.failed:
        raise Unwritable(next(iter(sink)).message)
    return format_source(file)


# ------------------------------------------------------------------- the setting


def _setting(program: ir.Program) -> Setting:
    names = _names(program)
    figures = _figures(program)
    reads = {let.name: sorted({read.tensor for read in reads_of(let)}) for let in program.lets}
    known = {name: [target for target in targets if target in reads] for name, targets in reads.items()}
    circles = [group for group in components(known) if len(group) > 1 or group[0] in known[group[0]]]
    kept = {name for contract in program.contracts for _, name in contract.roles}
    kept |= {axis.coordinate.name for tensor in program.inputs for axis in tensor.axes}
    return Setting(
        names,
        frozenset(coordinate.name for coordinate in _coordinates(program)),
        frozenset(kept),
        program.tensors,
        _sizes(program, figures, frozenset(names.values())),
        _spaces(program, frozenset(names.values())),
        check_spaces(program, Sink()),
        figures,
        {name: frozenset(circle) for circle in circles for name in circle},
    )


def _names(program: ir.Program) -> dict[str, str]:
    """The printed name of each tensor; what had none in a text is called like no coordinate."""
    own = [t.name for t in program.tensors.values() if isinstance(t, ir.Input) or not t.hidden]
    names = {name: name for name in own if legal(name) == name}
    taken = {*names.values(), *(legal(c.name) for c in _coordinates(program))}
    for tensor in program.tensors:
        if tensor not in names:
            names[tensor] = fresh_name(legal(tensor), taken)
            taken.add(names[tensor])
    return names


def _coordinates(program: ir.Program) -> list[Coordinate]:
    """Every coordinate that occurs: those of the inputs in their order, then the others by name."""
    first = [axis.coordinate for tensor in program.inputs for axis in tensor.axes]
    clauses = (clause for let in program.lets for clause in let.clauses)
    others = {(r.coordinate, r.coordinate.space or ""): r.coordinate for clause in clauses for r in ranges_in(clause)}
    return [*first, *(others[key] for key in sorted(others))]


def _spaces(program: ir.Program, tensors: frozenset[str]) -> dict[str, str]:
    """Return the spaces to declare: `j_1` beside `j` finds its space along the axes it indexes, and so does a
    coordinate that is renamed because it is called like a tensor."""
    found: dict[str, str] = {}
    free = tensors - {axis.coordinate.name for tensor in program.inputs for axis in tensor.axes}
    for coordinate in _coordinates(program):
        name = legal(coordinate.name)
        base, _, number = name.rpartition("_")
        if coordinate.space is None or name in free or (number.isdigit() and found.get(base) == coordinate.space):
            continue
        found.setdefault(name, coordinate.space)
    return found


def _figures(program: ir.Program) -> dict[str, ir.Array]:
    """The array literals that are written where they are read: once, and as a whole or in few words."""
    uses: dict[str, int] = {}
    wholes: set[str] = set()
    for let in program.lets:
        for read in reads_of(let):
            uses[read.tensor] = uses.get(read.tensor, 0) + 1
        for clause in let.clauses:
            if isinstance(clause.body, ir.Read) and clause.body.indices == clause.slots:
                wholes.add(clause.body.tensor)
    for claim in program.asserts:
        for part in walk(claim.condition):
            if isinstance(part, ir.Read):
                uses[part.tensor] = uses.get(part.tensor, 0) + 1
    found: dict[str, ir.Array] = {}
    for let in program.lets:
        literal = _literal(let)
        if not let.hidden or literal is None or uses.get(let.name) != 1:
            continue
        if let.name in wholes or len(literal.cells) <= _FEW:
            found[let.name] = literal
    return found


def _literal(let: ir.Let) -> ir.Array | None:
    """The array literal that a definition is, cell by cell."""
    return body_literal(let.clauses[0], {}) if len(let.clauses) == 1 else None


def _sizes(program: ir.Program, figures: Mapping[str, ir.Array], tensors: frozenset[str]) -> dict[str, ir.Expr]:
    """The sizes of coordinates that are named like those of the inputs, or of array literals in the text."""
    found: dict[str, set[int]] = {}
    for let in (let for let in program.lets if let.name not in figures):
        clause = let.clauses[0]
        literal = body_literal(clause, figures)
        if len(let.clauses) > 1 or literal is None or _is_bare(let, clause):
            continue
        for axis, length in zip(let.axes, literal.shape, strict=True):
            found.setdefault(legal(axis.coordinate.name), set()).add(length)
    sizes: dict[str, ir.Expr] = {
        name: build.whole(min(lengths), NOWHERE)
        for name, lengths in found.items()
        if len(lengths) == 1 and name not in tensors
    }
    for tensor in program.inputs:
        for axis in tensor.axes:
            if not axis.coordinate.rest:
                sizes[legal(axis.coordinate.name)] = axis.extent
    return sizes


def body_literal(clause: ir.Clause, figures: Mapping[str, ir.Array]) -> ir.Array | None:
    """The figures that a whole right-hand side is: then they say how long the left-hand side is."""
    body = clause.body
    found = figures.get(body.tensor) if isinstance(body, ir.Read) else body
    if not isinstance(found, ir.Array) or not isinstance(body, ir.Read | ir.Array) or not is_decimal(found):
        return None
    return found if body.indices == clause.slots and _lengths(clause) == found.shape else None


def _lengths(clause: ir.Clause) -> tuple[int, ...] | None:
    """The lengths of the axes, where the ranges start at 0, end at numbers, and have no guard."""
    plain = clause.guard is None and all(build.is_number(range.lower, 0) for range in clause.ranges)
    lengths = [int(range.upper.value) for range in clause.ranges if isinstance(range.upper, ir.Const)]
    return tuple(lengths) if plain and len(lengths) == len(clause.ranges) else None


def _is_bare(let: ir.Let, clause: ir.Clause) -> bool:
    """Whether a literal stands without a bracket: its coordinates have no names of their own."""
    unnamed = all(axis.coordinate.name == f"axis_{number}" for number, axis in enumerate(let.axes))
    return unnamed and isinstance(clause.body, ir.Array) and len(let.clauses) == 1


# ----------------------------------------------------------------- declarations


def _declarations(program: ir.Program, setting: Setting) -> Iterator[list[tree.Statement]]:
    members: dict[str, list[tree.Name]] = {}
    for coordinate, space in setting.spaces.items():
        members.setdefault(space, []).append(tree.Name(coordinate, NOWHERE))
    if members:
        items = tuple(tree.SpaceItem(legal(space), tuple(names), NOWHERE) for space, names in members.items())
        yield [tree.Space(items, NOWHERE)]
    if "pi" in setting.names.values() and names_pi(program):
        body = tree.Block((), tree.Name("pi", NOWHERE), (), NOWHERE)
        yield [tree.Fn(circle_name(setting), NOWHERE, (), (), body, NOWHERE)]
    yield _inputs(program, setting)


def _inputs(program: ir.Program, setting: Setting) -> list[tree.Statement]:
    """The inputs, as many on a line as it holds. A range is stated where its coordinate stands first."""
    asked = asked_kinds(program)
    lines: list[tuple[tree.InputItem, ...]] = []
    known: set[str] = set()
    for tensor in program.inputs:
        item = _input(tensor, setting, asked, known)
        known |= {axis.coordinate.name for axis in tensor.axes}
        longer = (*lines[-1], item) if lines else (item,)
        if lines and len(format_statement(tree.Input(longer, NOWHERE)).splitlines()) == 1:
            lines[-1] = longer
        else:
            lines.append((item,))
    return [tree.Input(items, NOWHERE) for items in lines]


def _input(tensor: ir.Input, setting: Setting, asked: set[str], known: set[str]) -> tree.InputItem:
    slots = tuple(_input_slot(axis, setting, known) for axis in tensor.axes) if tensor.axes else None
    return tree.InputItem(setting.names[tensor.name], NOWHERE, slots, _dtype(tensor, asked), NOWHERE)


def _is_undeclared(tensor: ir.Input) -> bool:
    return tensor.dtype is None and tensor.kind != "real"


def _dtype(tensor: ir.Input, asked: set[str]) -> Dtype | None:
    """The dtype to declare: of what is not real, and is not `asked` to be so by its uses, that of its kind."""
    if not _is_undeclared(tensor) or tensor.name in asked:
        return tensor.dtype
    return "bool" if tensor.kind == "bool" else "i64"


def _input_slot(axis: ir.Axis, setting: Setting, known: set[str]) -> tree.Binder:
    coordinate, extent = axis.coordinate, axis.extent
    name = legal(coordinate.name)
    own = isinstance(extent, ir.Size) and extent.coordinate == coordinate
    if own or coordinate.rest or coordinate.name in known:
        return tree.Binder(name, None, coordinate.rest, NOWHERE)
    bounds = tree.Range(tree.Number("0", NOWHERE), _closed(simplified(extent), setting), False, NOWHERE)
    return tree.Binder(name, bounds, False, NOWHERE)


# ------------------------------------------------------------------ definitions


def _definitions(program: ir.Program, setting: Setting, remarks: Mapping[str, str]) -> Iterator[list[str]]:
    """The definitions in paragraphs: a recurrence is one, so is what is named after one result, and so are
    derivatives after all that they are derivatives of."""
    lets = [let for let in program.lets if let.name not in setting.figures]
    tensors = program.tensors.keys()
    turn = _turn([is_derivative(let.name, tensors) for let in lets])
    owners = _owners([let.name for let in lets])
    paragraph: list[str] = []
    for number, let in enumerate(lets):
        several = any(len(other.clauses) > 1 for other in lets[max(number - 1, 0) : number + 1])
        apart = number and (owners[number] != owners[number - 1] or (not owners[number] and several))
        if paragraph and (number == turn or apart):
            yield paragraph
            paragraph = []
        paragraph += _let(let, setting, remarks.get(let.name))
    yield paragraph


def _turn(marks: list[bool]) -> int | None:
    """Return the first mark, where all marks from it on are set."""
    first = marks.index(True) if True in marks else None
    return first if first is not None and all(marks[first:]) else None


def _owners(names: list[str]) -> list[str]:
    """For every definition the result further down that it is named after, with all between; itself where one before
    it is named after it."""
    place = {name: number for number, name in enumerate(names)}
    found = []
    for number, name in enumerate(names):
        shorter = [name[:end] for end, letter in enumerate(name) if letter == "_"]
        places = sorted((place[owner] for owner in shorter if place.get(owner, -1) > number), reverse=True)
        owner = next((names[at] for at in places if _are_named_after(names[number:at], names[at])), None)
        own = name if number and names[number - 1].startswith(f"{name}_") else ""
        found.append(owner or own)
    return found


def _are_named_after(names: list[str], owner: str) -> bool:
    return all(name.startswith(f"{owner}_") for name in names)


def _let(let: ir.Let, setting: Setting, remark: str | None) -> list[str]:
    lines = [format_statement(statement) for statement in _statements(let, setting)]
    if remark is not None:
        lines[-1] += f"  {remark if remark.startswith('//') else f'// {remark}'}"
    return lines


def _statements(let: ir.Let, setting: Setting) -> list[tree.Let]:
    """The clauses of a definition; where all are whole and it is real, the first says so."""
    made_real = let.kind == "real" and all(clause.body.type.kind == "whole" for clause in let.clauses)
    return [_clause(let, clause, setting, made_real and number == 0) for number, clause in enumerate(let.clauses)]


def _clause(let: ir.Let, clause: ir.Clause, setting: Setting, made_real: bool) -> tree.Let:
    """One `let`. A coordinate whose name means something else in it gets another name."""
    place = Place(setting, let.name, taken=frozenset(legal(range.coordinate.name) for range in clause.ranges))
    return place.settled(lambda here: _clause_at(let, clause, here, made_real))


def _clause_at(let: ir.Let, clause: ir.Clause, place: Place, made_real: bool) -> tree.Let:
    inside = frozenset(legal(range.coordinate.name) for range in ranges_in(clause))
    inner = replace(place.binding(clause.ranges), taken=inside)
    name = place.setting.names[let.name]
    slots = tuple(_slot(slot, clause, inner) for slot in clause.slots) if let.axes else None
    literal = body_literal(clause, place.setting.figures)
    if literal is not None:
        left = None if _is_bare(let, clause) else slots
        return tree.Let(name, NOWHERE, left, array(literal.shape, literal.cells), (), NOWHERE)
    where = guards(clause.guard, inner)
    body, behind = _body(clause, inner, where)
    if made_real:
        body = as_real(clause.body, body)
    return tree.Let(name, NOWHERE, slots, body, (*where, *behind), NOWHERE)


def _body(clause: ir.Clause, place: Place, where: tuple[tree.Clause, ...]) -> tuple[tree.Expr, tuple[tree.Clause, ...]]:
    """A right-hand side, and the guard of its normaliser where that may stand behind it. Parentheses keep the
    definition's own guard away from what else it would attach to."""
    body = clause.body
    if isinstance(body, ir.Normalize) and body.guard is not None and not where:
        bare, behind = scan(body, place, inside=False), guards(body.guard, place)
        if all(attaches(part, bare) for part in behind):
            return bare, behind
    found = written_expression(body, place)
    if any(attaches(part, taker) for part in where for taker in at_this_depth(found)):
        return tree.Paren(found, NOWHERE), ()
    return found, ()


def _slot(slot: ir.Expr, clause: ir.Clause, place: Place) -> tree.Slot:
    if isinstance(slot, ir.Coord):
        range = next(range for range in clause.ranges if range.coordinate == slot.coordinate)
        return binder(range, place, place.without(slot.coordinate), (clause.guard, clause.body))
    found = written_expression(slot, Place(place.setting, place.owner))
    return tree.Paren(found, NOWHERE) if isinstance(found, tree.Name) else found


# ----------------------------------------------------------------------- claims


def _claims(program: ir.Program, setting: Setting) -> Iterator[list[tree.Statement]]:
    yield [_contract(contract, setting) for contract in program.contracts]
    yield [_assert(claim, setting) for claim in program.asserts]
    if program.outputs:
        yield [tree.Output(tuple(tree.Name(setting.names[name], NOWHERE) for name in program.outputs), NOWHERE)]


def _assert(claim: ir.Assert, setting: Setting) -> tree.Assert:
    return tree.Assert(_closed(claim.condition, setting), claim.message, NOWHERE)


def _closed(expr: ir.Expr, setting: Setting) -> tree.Expr:
    """An expression that stands in no definition."""
    return Place(setting).settled(lambda place: written_expression(expr, place))


def _contract(contract: ir.Contract, setting: Setting) -> tree.Contract:
    items: list[tree.RoleItem | tree.FlagItem] = [
        tree.RoleItem(role, tree.Name(legal(coordinate), NOWHERE), NOWHERE) for role, coordinate in contract.roles
    ]
    for flag, size in contract.flags:
        argument = None if size is None else _closed(size, setting)
        items.append(tree.FlagItem(flag, argument, NOWHERE))
    return tree.Contract(tree.Name(setting.names[contract.name], NOWHERE), tuple(items), NOWHERE)
