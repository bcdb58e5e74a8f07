"""The outputs of an emitted function: with their shape and dtype, in memory of their own."""

from __future__ import annotations

from functools import reduce
from operator import or_

from ...ir import nodes as ir
from ...ir.needs import members
from ...ir.walk import reads_of
from ..constants import shared
from ..merging import merge_of
from ..ops import Axis, Definition, Input, Map, Read, Result, Value
from ..order import reachable, roots_of, stored
from .code import Code, method
from .inputs import argument_of, input_of
from .numbers import extent
from .printer import Printer, dtype_of


def give(p: Printer) -> None:
    """Return the definitions that are wanted."""
    given: set[Value] = set()
    wanted = [p.plan.definitions[name] for name in p.plan.wanted]
    gone = _cancelled(p, wanted) if p.d.learns_what_is_read else {}
    found = [_with_zeros(p, each, _own(p, each, given), gone.get(each.name, [])) for each in wanted]
    p.add(f"return {', '.join(found)}")


def output(p: Printer, definition: Definition) -> Code:
    """A definition with all axes of its home in order, and its dtype."""
    one, home = definition.value, definition.home
    if one.is_host and not home:
        return p.d.array(p, p.code(one), definition.dtype)
    return p.whole(one, home, definition.dtype)


def _own(p: Printer, definition: Definition, given: set[Value]) -> Code:
    """A result whose memory nobody else has, with the leading axes that its inputs came with."""
    one, home = definition.value, definition.home
    code = output(p, definition)
    if p.d.updates_in_place and not one.is_host:
        code = _apart(p, definition, code, given)
    if not home:
        return p.d.scalar(p, code)
    if any(axis.name.rest for axis in home):
        code = method(code, "reshape", f"({', '.join(_lengths(p, axis) for axis in home)},)")
    return code


def _apart(p: Printer, definition: Definition, code: Code, given: set[Value]) -> Code:
    """A result, copied where it is the memory of an input or of another result, or of one number many times."""
    one = definition.value
    repeats = one.names != {axis.name for axis in definition.home}
    if dtype_of(one) != definition.dtype and not repeats:
        return code
    source = _memory(one)
    if isinstance(source.op, Input) or source in given or repeats or _is_lent(p, source):
        return p.d.copy(code)
    given.add(source)
    return p.call("forward", code) if not p.d.flips_by_copying and _runs_backward(p) else code


def _lengths(p: Printer, axis: Axis) -> str:
    """The length of an axis; of `..r`, those of all the axes that it stands for."""
    if axis.name.rest and isinstance(axis.extent, ir.Size):
        return f"*{p.lead(axis.extent.coordinate)}"
    return extent(p, axis)


def _memory(one: Value) -> Value:
    """The value that has the memory of an array: itself, or what it is a view of."""
    match one.op:
        case Read(source, index) if all(at.known.whole is not None for _, at in index):
            return _memory(source)
        case Read() as op if (merge := merge_of(op)) is not None:
            return _memory(merge.source)
        case Map("where", (test, yes, no)) if test.is_host:
            return next((part for part in map(_memory, (yes, no)) if isinstance(part.op, Input)), one)
        case Map(fn, (source, _)) if fn.startswith("some "):
            return _memory(source)
    return one


def _is_lent(p: Printer, one: Value) -> bool:
    """Whether a row of a recurrence may be an array that was there before its turn."""
    if not isinstance(one.op, Result) or one not in p.by_rows or p.rows[one.op.of.name].filled:
        return False
    values = [store.value for store in stored(one.op.loop)[one.op.of.name]]
    return any(not each.is_host and (not each.symbols or bool(shared(each))) for each in values)


def _runs_backward(p: Printer) -> bool:
    """Whether some array may be another one's memory from its end to its beginning, which other libraries refuse; what
    is computed of it lies so, too."""
    reads = [one.op for one in reachable(roots_of(p.plan)) if isinstance(one.op, Read)]
    places = [at for op in reads for _, at in op.index if at.known.whole is not None]
    terms = [(term, at) for at in places for term in (at.known.whole.terms.items() if at.known.whole else ())]
    return any(factor < 0 and at.names & {atom for atom, _ in monomial} for (monomial, factor), at in terms)


def _with_zeros(p: Printer, definition: Definition, code: Code, cancelled: list[str]) -> Code:
    """A result in which some inputs cancel, for a library that knows gradients of what is read alone."""
    p.notes[definition.name] = [f"`{name}` cancels and is not read: its gradient is 0" for name in cancelled]
    return p.call("with_zeros", code, *(p.variables[name] for name in cancelled)) if cancelled else code


def _cancelled(p: Printer, wanted: list[Definition]) -> dict[str, list[str]]:
    """For each result the arrays that it is made of as it was written, and not as it is computed. Each is a bit: sets
    of them would grow with the program."""
    arrays = [one for one in p.plan.inputs if one.kind == "real" and argument_of(p, input_of(one)).dtype is not None]
    names = [input_of(one).name for one in arrays]
    computed = {one: 1 << number for number, one in enumerate(arrays)}
    written = {name: 1 << number for number, name in enumerate(names)}
    for one in reachable(roots_of(p.plan)):
        computed.setdefault(one, reduce(or_, (computed[part] for part in one.parts), 0))
    program = p.plan.written or p.plan.program
    lets = program.definitions
    for order in program.order:
        group = members(order)
        reads = (read.tensor for name in group for read in reads_of(lets[name]))
        written |= dict.fromkeys(group, reduce(or_, (written.get(name, 0) for name in reads), 0))
    gone = {each.name: written.get(each.name, 0) & ~computed[each.value] for each in wanted if each.kind == "real"}
    return {name: [one for number, one in enumerate(names) if bits >> number & 1] for name, bits in gone.items()}
