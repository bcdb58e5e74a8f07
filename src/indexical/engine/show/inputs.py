"""The inputs of an emitted function: taken as they arrive, with the sizes that their shapes say."""

from __future__ import annotations

from ...ir import nodes as ir
from ...ir.types import Coordinate
from ..arguments import Argument
from ..ops import Axis, Input, Number, Value
from .code import COMPARE, Code, closed, method, tupled
from .numbers import negated, number
from .printer import Printer


def take(p: Printer) -> None:
    """The inputs as they arrive, sizes from their shapes, and the conditions that numbers decide."""
    led: set[Coordinate] = set()
    for one in p.plan.inputs:
        _take_one(p, one, led)
    asked = _asked_sizes(p)
    known: set[Coordinate] = set()
    for one in p.plan.inputs:
        before = set(known)
        _measure(p, input_of(one), asked, known)
        _compare(p, input_of(one), asked, before)
    for one in p.plan.inputs:
        _compare_stated(p, input_of(one))
    for left, right in p.plan.agreed:
        name = next((side.coordinate for side in (left, right) if isinstance(side, ir.Size)), "an axis")
        p.refuse(f"{number(p, left)} != {number(p, right)}", "IX304", f"`{name}` has one size here and another there")
    for check in p.plan.checks:
        if check.condition.is_host:
            p.refuse(negated(p, check.condition), check.code, check.message)
    if not p.sized and (p.uses_device or (p.kernels is not None and "device" in p.kernels.reads())):
        p.lines.insert(0, f"    device = {_device(p)}")


def input_of(one: Value) -> Input:
    assert isinstance(one.op, Input)
    return one.op


def argument_of(p: Printer, op: Input) -> Argument:
    """How an input arrives; without a call, scalars may be numbers or arrays."""
    if p.arguments is not None and op.name in p.arguments:
        return p.arguments[op.name]
    is_own = op.name in {tensor.name for tensor in p.plan.program.inputs}  # What is kept between calls is an array.
    return Argument(len(op.home), op.dtype or ("f64" if op.kind == "real" else None), loose=is_own and not op.home)


def _device(p: Printer) -> str:
    """The device of the first array; of a scalar that may be a number, if it has one."""
    given = {p.variables[input_of(one).name]: argument_of(p, input_of(one)) for one in p.plan.inputs}
    arrays = [name for name, argument in given.items() if argument.dtype is not None]
    first = next((name for name in arrays if not given[name].loose), arrays[0] if arrays else None)
    if first is None:
        return '"cpu"'
    return f'getattr({first}, "device", "cpu")' if given[first].loose else f"{first}.device"


def _take_one(p: Printer, one: Value, led: set[Coordinate]) -> None:
    """An input with the dtype and the number of axes that the program takes it with. A whole scalar is a number, unless
    it is read as an array."""
    op = input_of(one)
    argument, variable = argument_of(p, op), p.variables[op.name]
    if not op.home and op.kind == "whole" and one not in p.uses:
        if argument.loose or argument.dtype is not None:
            p.add(f"{variable} = {p.d.taken_scalar(p, variable, None, op.kind)}")
    elif argument.loose:
        p.add(f"{variable} = {p.d.taken_scalar(p, variable, argument.dtype, op.kind)}")
    elif argument.converted and argument.dtype is not None:
        p.add(f"{variable} = {p.d.cast(p, Code(variable), argument.dtype, True)}")
    if not op.home or not op.home[0].name.rest:
        return
    coordinate, tail = op.home[0].name, len(op.home) - 1
    shape = f"{variable}.shape[:{-tail}]" if tail else f"{variable}.shape"
    lead = p.lead(coordinate)
    if coordinate in led:
        p.refuse(f"{shape} != {lead}", "IX304", f"`{coordinate}` differs between inputs")
    else:
        led.add(coordinate)
        p.add(f"{lead} = {shape}")
    rest = [f"*{variable}.shape[{-tail}:]"] if tail else []
    p.add(f"{variable} = {method(variable, 'reshape', p.call('math.prod', lead), *rest)}")


def _size(axis: Axis) -> Coordinate | None:
    """The coordinate whose size an axis measures; None of one whose size is stated."""
    return axis.extent.coordinate if isinstance(axis.extent, ir.Size) else None


def _asked_sizes(p: Printer) -> set[Coordinate]:
    """The coordinates whose sizes are read: by the function, by a check, or where another axis has to have the same."""
    read = set() if p.kernels is None else p.kernels.reads()
    p.measured |= {size for size, variable in p.sizes.items() if variable in read}
    homes = [axis for one in p.plan.inputs for axis in input_of(one).home]
    stated = [axis.extent for axis in homes if _size(axis) is None]
    tested = [check.condition.op.expr for check in p.plan.checks if isinstance(check.condition.op, Number)]
    for expr in (*stated, *tested, *(side for pair in p.plan.agreed for side in pair)):
        number(p, expr)
    sizes = [_size(axis) for axis in homes]
    return {size for size in sizes if size is not None and (size in p.measured or sizes.count(size) > 1)}


def _measure(p: Printer, op: Input, asked: set[Coordinate], known: set[Coordinate]) -> None:
    """Sizes from a shape: all at once where all are new, else one by one."""
    sizes = [_size(axis) for axis in op.home]
    new = [size for n, size in enumerate(sizes) if size is not None and size not in known and sizes.index(size) == n]
    wanted = [size for size in new if size in asked]
    known |= set(wanted)
    shape = f"{p.variables[op.name]}.shape"
    if len(wanted) > 1 and len(new) == len(sizes):
        p.add(f"{', '.join(p.sizes[size] if size in asked else '_' for size in new)} = {shape}")
        return
    for size in wanted:
        p.add(f"{p.sizes[size]} = {shape}[{sizes.index(size)}]")


def _compare(p: Printer, op: Input, asked: set[Coordinate], known: set[Coordinate]) -> None:
    """Refuse an array whose shape is not what other arrays say."""
    variable, sizes = p.variables[op.name], [_size(axis) for axis in op.home]
    if not any(size is not None and (size in known or sizes.count(size) > 1) for size in sizes):
        return
    own = [p.sizes[size] if size in asked else f"{variable}.shape[{n}]" for n, size in enumerate(sizes)]
    home = ", ".join(str(axis.name) for axis in op.home)
    message = f"`{op.name}` is not [{home}] with the sizes of the other inputs"
    p.refuse(f"{variable}.shape != {tupled(own)}", "IX304", message)


def _compare_stated(p: Printer, op: Input) -> None:
    """Refuse an array with another size than the program states; not one that was found to have it."""
    shape, message = f"{p.variables[op.name]}.shape", f"`{op.name}` has another size than is stated"
    home = [(n, axis) for n, axis in enumerate(op.home) if not (p.sized and isinstance(axis.extent, ir.Const))]
    stated = {n: number(p, axis.extent) for n, axis in home if _size(axis) is None}
    if 1 < len(stated) == len(op.home):
        p.refuse(f"{shape} != {tupled(stated.values())}", "IX304", message)
        return
    for n, length in stated.items():
        p.refuse(f"{shape}[{n}] != {closed(length, COMPARE - 1)}", "IX304", message)
