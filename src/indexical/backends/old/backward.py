"""The gradients of an attention → a call of its kernel's backward pass."""

from __future__ import annotations

from ...ir import nodes as ir
from ...ir.types import Coordinate
from ...plan.steps import Attend, Gradient, Receiver, Step
from ...plan.target import FUSED, TILES, TRITON
from ...records import replace
from . import arrays, clauses, interval_attention, library_attention, operands, small_attention
from .base import Value
from .code import Attribute, Name, Node, infix
from .interval_attention import KernelCall, Operands
from .lowering import Lowering, Stored
from .operands import Frame
from .triton_ import attend_by_triton, products_of
from .values import permuted


def flow_back(low: Lowering, step: Step, gradient: Gradient) -> None:
    """The gradients that are wanted."""
    let, attend = low.lets[gradient.forward], gradient.attend
    targets = {side: t for side, t in _sides(gradient).items() if t is not None}
    members = [low.lets[target.definition] for target in targets.values()]
    wanted, covers = {m.name for m in members}, set(step.covers)
    spoken = [m for m in low.program.lets if m.name in wanted or m.name in covers]
    clauses.begin(low, members[0], [m for m in spoken if not m.hidden and m is not members[0]])
    clauses.turn_to(low, let)
    frame = operands.frame_of(let, attend)
    variables = {side: low.text.fresh(target.definition) for side, target in targets.items()}
    _kernel_back(low, let, gradient, frame, variables)
    for side, target in targets.items():
        low.stored[target.definition] = Stored(variables[side], low.dtypes[target.definition])


def _sides(gradient: Gradient) -> dict[str, Receiver | None]:
    return {"query": gradient.query, "key": gradient.key, "value": gradient.value}


def _kernel_back(low: Lowering, let: ir.Let, gradient: Gradient, frame: Frame, variables: dict[str, str]) -> None:
    """The kernel's own backward pass."""
    attend = gradient.attend
    taken = interval_attention.kernel_operands(low, let, attend, frame)
    carry = attend.layout.carry
    arriving = operands.operand(low, gradient.arriving, frame.row, carry, frame, let)
    sides = _sides(gradient)
    dot = attend.scores.dot
    assert dot is not None
    assert frame.row is not None
    compared = tuple(r.coordinate for r in dot.compared)
    key = attend.attention.coordinate
    axes = {"query": (frame.row, compared), "key": (key, compared), "value": (key, carry)}
    names = {side: low.text.fresh(f"d_{side}") if target else "_" for side, target in sides.items()}
    scale = dot.scale if operands.is_scaled_before(low, attend) else None
    finished: dict[str, Node] = {}
    for side, target in sides.items():
        if target is not None:
            value = _restored(low, Name(names[side]), frame, *axes[side], let)
            if side == "query" and scale is not None and gradient.kernel != TRITON:
                value = _scaled(low, value, scale, frame)
            code = _finished(low, value, target)
            if code == Name(names[side]):
                names[side] = variables[side]
            else:
                finished[variables[side]] = code
    if gradient.kernel == TRITON:
        code_of, _, test = attend_by_triton(low, let, attend, frame)
        low.text.add("if", test)
        with low.block():
            low.text.unpack(list(names.values()), code_of(arriving))
            _promote(low, let, attend, names)
        low.text.add("else")
        with low.block():
            _library_back(low, let, gradient, frame, taken, arriving, list(names.values()))
            if scale is not None and gradient.query is not None:
                scaled = _scaled(low, Value(Name(names["query"]), (), "real", low.compute), scale, frame)
                low.text.update(names["query"], scaled.code)
    else:
        _library_back(low, let, gradient, frame, taken, arriving, list(names.values()))
    for variable, code in finished.items():
        low.text.assign(variable, code)


def _promote(low: Lowering, let: ir.Let, attend: Attend, names: dict[str, str]) -> None:
    """The gradients of a kernel that takes products in other dtypes than that of the definition, in this one."""
    dot = attend.scores.dot
    assert dot is not None
    compared, carried = products_of(low, let, attend, (dot,))
    for (_, name), dtype in zip(names.items(), (compared, compared, carried), strict=True):
        if name != "_" and dtype != low.dtypes[let.name]:
            low.text.update(name, low.text.dialect.narrow(Name(name), low.dtypes[let.name]))


def _library_back(
    low: Lowering, let: ir.Let, gradient: Gradient, frame: Frame, taken: Operands, arriving: Node, names: list[str]
) -> None:
    """The backward pass by calls of the library, over few pairs by one under a mask."""
    attend = gradient.attend
    few = small_attention.few(low, attend, frame)
    if few is not None:
        low.text.add("if", few)
        with low.block():
            met = interval_attention.masked_backward(low, let, attend, frame, taken)
            low.text.unpack(names, met.code(arriving))
        low.text.add("else")
        with low.block():
            low.text.unpack(names, _backward_call(low, let, gradient, frame, taken).code(arriving))
    else:
        low.text.unpack(names, _backward_call(low, let, gradient, frame, taken).code(arriving))


def _backward_call(low: Lowering, let: ir.Let, gradient: Gradient, frame: Frame, taken: Operands) -> KernelCall:
    attend = gradient.attend
    kernel = attend.otherwise if gradient.kernel == TRITON else gradient.kernel
    if kernel != FUSED:
        met = interval_attention.interval_call(low, let, attend, frame, kernel == TILES, taken)
        return replace(met, function=Attribute(met.function, "backward"))
    low.kernels.setdefault("torch_backward", set()).add("attend_backward")
    scale, operands = taken
    return KernelCall(Name("attend_backward"), operands, keywords=library_attention.scaling(attend, scale))


def _restored(
    low: Lowering, code: Node, frame: Frame, row: Coordinate, columns: tuple[Coordinate, ...], let: ir.Let
) -> Value:
    """A gradient of an operand with the axes of what the operand was made of."""
    code = operands.unfolded_columns(low, operands.unfolded_batch(low, code, frame), columns, frame)
    return Value(code, (*frame.batch, row, *columns), "real", low.dtypes[let.name])


def _scaled(low: Lowering, value: Value, scale: ir.Expr, frame: Frame) -> Value:
    factor = low.text.short(low.value(scale, frame.scope), "scale")
    return value.but(infix("*", value.code, factor.code))


def _finished(low: Lowering, value: Value, target: Receiver) -> Node:
    """A gradient with the axes and the dtype of the definition that it is."""
    value = permuted(value, tuple(value.axes[n] for n in target.order), low.text)
    dtype = low.dtypes[target.definition]
    return (value if value.dtype == dtype else arrays.cast_to(low, value, dtype)).code
