"""The outputs of an emitted function: with their shape and dtype, in memory of their own."""

from __future__ import annotations

from ...ir import nodes as ir
from ...ir.needs import made_of
from ..merging import merge_of
from ..ops import Axis, Definition, Input, Map, Read, Value
from ..order import reachable, roots_of
from .code import Code, call, method
from .inputs import argument_of, input_of
from .numbers import extent
from .printer import Printer, dtype_of


def give(p: Printer) -> None:
    """Return the definitions that are wanted."""
    given: set[Value] = set()
    wanted = [p.plan.definitions[name] for name in p.plan.wanted]
    found = [_with_zeros(p, definition, _own(p, definition, given)) for definition in wanted]
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
    if p.shares:
        return code
    if p.d.updates_in_place and not one.is_host:
        code = _apart(p, definition, code, given)
    if not home:
        return p.d.scalar(code)
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
    if isinstance(source.op, Input) or source in given or repeats:
        return p.d.copy(code)
    given.add(source)
    return call(p.helper("forward"), code) if not p.d.flips_by_copying and _runs_backward(p) else code


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


def _runs_backward(p: Printer) -> bool:
    """Whether some array may be another one's memory from its end to its beginning, which other libraries refuse; what
    is computed of it lies so, too."""
    reads = [one.op for one in reachable(roots_of(p.plan)) if isinstance(one.op, Read)]
    places = [at for op in reads for _, at in op.index if at.known.whole is not None]
    terms = [(term, at) for at in places for term in (at.known.whole.terms.items() if at.known.whole else ())]
    return any(factor < 0 and at.names & {atom for atom, _ in monomial} for (monomial, factor), at in terms)


def _with_zeros(p: Printer, definition: Definition, code: Code) -> Code:
    """A result in which some inputs cancel, for a library that knows gradients of what is read alone."""
    if "with_zeros" not in p.d.helpers or definition.kind != "real":
        return code
    reads = made_of([definition.name], (p.plan.written or p.plan.program).definitions)
    left = set(reachable([definition.value]))
    gone = [input_of(one) for one in p.plan.inputs if one not in left and one.kind == "real"]
    names = [op.name for op in gone if op.name in reads and argument_of(p, op).dtype is not None]
    p.notes[definition.name] = [f"`{name}` cancels and is not read: its gradient is 0" for name in names]
    return call(p.helper("with_zeros"), code, *(p.variables[name] for name in names)) if names else code
