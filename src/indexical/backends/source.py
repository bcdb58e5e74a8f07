"""A whole program → the text of one Python module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from importlib import import_module

from ..engine.arguments import Argument
from ..engine.kernel_texts import KERNELS, TRITON_IMPORT, kernel_texts, reserved
from ..ir import nodes as ir
from ..ir.asked import asked_where
from ..plan.steps import Plan
from ..plan.target import TRITON
from ..records import dataclass
from . import definitions, sizes
from .base import Dialect
from .code import Attribute, Name, Node, Prefix, Slice, String, call, index, infix, method, node, parts
from .layout import Statement, flattened, written
from .liveness import released
from .lowering import Lowering, Note, Stored
from .rules import RULES
from .scope import Scope
from .tiles import TILED, Checked


def dialect_of(backend: str) -> Dialect:
    """The spelling of a backend's library: `DIALECT` of the file here that is called like it."""
    found: Dialect = import_module(f"{__package__}.{backend}_").DIALECT
    return found


def emit(plan: Plan, arguments: Mapping[str, Argument]) -> Module:
    """The module that follows a plan, for arrays like these."""
    low = lowered(plan, arguments)
    return module(low, released(low.text.body))


def lowered(plan: Plan, arguments: Mapping[str, Argument]) -> Lowering:
    """The statements of the function that follows a plan, with all that is known of them."""
    program = plan.program
    text = Checked(dialect_of(plan.backend))
    text.taken |= reserved(plan.backend) | text.dialect.helpers.keys()
    if any(step.attend is not None or step.gradient is not None for step in plan.steps):
        text.reserved = TILED
    if any(step.kernel == TRITON or (step.attend is not None and step.attend.decodes) for step in plan.steps):
        text.taken |= reserved("triton")
    steps = {step.definition: step for step in plan.steps}
    low = Lowering(
        text, program, RULES, isolate=plan.isolate, dtypes=dict(plan.dtypes), steps=steps, weak=plan.weak
    )
    low.weak |= {name for name, argument in arguments.items() if argument.weak}
    low.prover.agreed = plan.agreed
    low.handed_out = frozenset(plan.wanted)
    low.asked = asked_where(program, plan.wanted) if text.dialect.differentiates else {}
    low.recurrences = {name: s.recurrence for name, s in steps.items() if s.recurrence is not None}
    needed = set(steps)
    taking(low, arguments)
    for order in program.order:
        definitions.run(low, order, needed)
    asserting(low)
    returning(low, plan)
    return low


def taking(low: Lowering, arguments: Mapping[str, Argument]) -> None:
    """The inputs: sizes from their shapes, which must agree."""
    text = low.text
    for tensor in low.program.inputs:
        argument = arguments[tensor.name]
        low.stored[tensor.name] = Stored(text.fresh(tensor.name), argument.dtype, argument.dtype is None)
    if text.dialect.has_devices:
        text.assign("device", _device(low, arguments))
    for tensor in low.program.inputs:
        take(low, tensor, arguments[tensor.name])
    for tensor in low.program.inputs:
        for n, axis in enumerate(tensor.axes):
            if not isinstance(axis.extent, ir.Size):
                length = index(_shape(low.stored[tensor.name].variable), n)
                message = f"`{tensor.name}` has another size than is stated"
                text.refuse(infix("!=", length, sizes.extent(low, axis.extent)), "IX304", message)


def _device(low: Lowering, arguments: Mapping[str, Argument]) -> Node:
    """The device of the first array; of a scalar that may be a number, if it has one."""
    arrays = [tensor.name for tensor in low.program.inputs if arguments[tensor.name].dtype is not None]
    first = next((name for name in arrays if not arguments[name].loose), arrays[0] if arrays else None)
    if first is None:
        return String("cpu")
    variable = Name(low.stored[first].variable)
    if arguments[first].loose:
        return call("getattr", variable, String("device"), String("cpu"))
    return Attribute(variable, "device")


def take(low: Lowering, tensor: ir.Input, argument: Argument) -> None:
    text = low.text
    name = low.stored[tensor.name].variable
    if argument.loose:
        text.assign(name, text.dialect.taken_scalar(Name(name), argument.dtype, tensor.kind, text))
    elif argument.converted and argument.dtype is not None:
        text.assign(name, text.dialect.narrow(Name(name), argument.dtype))
    if not tensor.axes:
        return
    lead = tensor.axes[0].coordinate
    if lead.rest:
        rest = text.fresh(f"lead_{lead.name}")
        tail = len(tensor.axes) - 1
        text.assign(rest, index(_shape(name), Slice(None, node(-tail) if tail else None)))
        known = low.sizes.get(lead)
        low.leads.setdefault(lead, rest)
        if known is not None:
            text.refuse(infix("!=", rest, low.leads[lead]), "IX304", f"`{lead}` differs between inputs")
        tails = [Prefix("*", index(_shape(name), Slice(node(-tail))))] if tail else []
        text.assign(name, method(name, "reshape", call("math.prod", rest), *tails))
    names: list[str] = []
    for axis in tensor.axes:
        if not isinstance(axis.extent, ir.Size):
            names.append("_")
            continue
        coordinate = axis.extent.coordinate
        if coordinate not in low.sizes:
            low.sizes[coordinate] = text.fresh(f"n_{coordinate.name}")
        names.append(low.sizes[coordinate])
    unpack(low, tensor, names)


def unpack(low: Lowering, tensor: ir.Input, names: list[str]) -> None:
    """`n_b, n_i = Q.shape`, where all are new; else one by one, and the known ones compared."""
    text = low.text
    home = ", ".join(str(axis.coordinate) for axis in tensor.axes)
    array = low.stored[tensor.name].variable
    new = [n for n, name in enumerate(names) if name != "_" and name not in low.unpacked and names.index(name) == n]
    low.unpacked |= {names[n] for n in new}
    if len(new) == len(names):
        text.unpack(names, _shape(array))
        return
    for n in new:
        text.assign(names[n], index(_shape(array), n))
    if any(n not in new and name != "_" for n, name in enumerate(names)):
        expected = tuple(index(_shape(array), n) if name == "_" else Name(name) for n, name in enumerate(names))
        message = f"`{tensor.name}` is not [{home}] with the sizes of the other inputs"
        text.refuse(infix("!=", _shape(array), expected), "IX304", message)


def _shape(array: str) -> Node:
    return Attribute(Name(array), "shape")


def asserting(low: Lowering) -> None:
    for claim in low.program.asserts:
        low.compute = "f64"
        low.text.blank()
        low.text.comment(claim.span.text)
        match claim.condition:
            case ir.Map("||", (enough, rest)) if (known := low.value(enough, Scope({}))).python:
                low.text.add("if", Prefix("not ", known.code))
                with low.block():
                    _assert(low, rest, claim.message)
            case condition:
                _assert(low, condition, claim.message)


def _assert(low: Lowering, condition: ir.Expr, message: str) -> None:
    value = low.value(condition, Scope({}))
    test = Prefix("not ", value.code) if value.python else method(Prefix("~", value.code), "any")
    low.text.refuse(test, "IX506", message)


def returning(low: Lowering, plan: Plan) -> None:
    results: list[Node] = []
    for name in plan.wanted:
        let = low.lets[name]
        stored = low.stored[name]
        result: Node = Name(stored.variable)
        if stored.python:
            result = low.text.dialect.array(result, low.dtypes[name])
        elif not let.axes:
            result = low.text.dialect.scalar(result)
        if any(axis.coordinate.rest for axis in let.axes):
            result = method(result, "reshape", tuple(_lengths(low, axis) for axis in let.axes))
        if let.axes and _may_run_backward(low):
            result = call(low.text.helper("forward"), result)
        results.append(with_zeros(low, name, result, plan.cancelled.get(name, ())))
    low.text.give(*results)


def _may_run_backward(low: Lowering) -> bool:
    """Whether some array may be another one's memory from its end to its beginning, which other libraries refuse."""
    if low.text.dialect.flips_by_copying:
        return False
    waiting = [part for statement in flattened(low.text.statements) for part in statement.nodes]
    for part in waiting:
        waiting += parts(part)
    steps = any(isinstance(part, Slice) and part.step is not None for part in waiting)
    return steps or not low.kernels.keys().isdisjoint(("numpy_scan", "numpy_chunks"))


def with_zeros(low: Lowering, name: str, result: Node, cancelled: Iterable[str]) -> Node:
    """A result in which some inputs cancel, for a library that knows gradients of what is read alone."""
    arrays = {one: low.stored[one].variable for one in cancelled if low.stored[one].dtype is not None}
    if not arrays or "with_zeros" not in low.text.dialect.helpers:
        return result
    low.text.subject = name
    for one in arrays:
        low.tell(f"`{one}` cancels and is not read: its gradient is 0")
    return call(low.text.helper("with_zeros"), result, *map(Name, arrays.values()))


def _lengths(low: Lowering, axis: ir.Axis) -> Node:
    """The length of an axis; of `..r`, those of all the axes that it stands for."""
    if axis.coordinate.rest and isinstance(axis.extent, ir.Size):
        return Prefix("*", Name(low.leads[axis.extent.coordinate]))
    return sizes.extent(low, axis.extent)


@dataclass(frozen=True, slots=True)
class Module:
    """An emitted module: everything but the kernels it calls, by file and name. `body` are the statements of its
    functions, `notes` what was decided while they were made."""

    before: str
    after: str
    kernels: tuple[tuple[str, tuple[str, ...]], ...]
    wide: bool
    body: tuple[Statement, ...] = field(compare=False, repr=False)
    notes: Mapping[str, Iterable[Note]] = field(compare=False, repr=False)

    def linked(self) -> str:
        """The module with its kernels imported from here."""
        lines = [f"from {KERNELS}.{file} import {', '.join(names)}" for file, names in self.kernels]
        before = self.before.replace(TRITON_IMPORT, f"from {KERNELS} import triton_jit as triton\n")
        return before + "\n".join([*lines, ""] if lines else []) + self.after

    def standing_alone(self) -> str:
        """The module with its kernels in it: it runs without Indexical."""
        texts = kernel_texts(file for file, _ in self.kernels)
        return self.before + "".join(f"\n\n{text}\n" for text in texts) + self.after


def module(low: Lowering, body: list[Statement]) -> Module:
    """Everything around the body of the function: imports, what may be refused, the small functions it calls."""
    text = low.text
    lines = ["import math"]
    if "Fraction" in text.helpers:
        lines.append("from fractions import Fraction")
    by_triton = any(file.startswith("triton") for file in low.kernels)
    triton = ("import triton", "import triton.language as tl") if by_triton else ()
    lines += ["", *text.dialect.header, *triton, ""]
    after = [
        "",
        "",
        "class Refused(ValueError):",
        '    """The arrays do not fit the relation: a code and a message."""',
        "",
    ]
    for name in text.dialect.decorators:
        if name.removeprefix("@") in text.dialect.helpers:
            text.helper(name.removeprefix("@"))
    for helper in text.helpers.values():
        if helper:
            after += ["", *helper.strip("\n").splitlines(), ""]
    for function in low.functions:
        after += ["", *function.splitlines(), ""]
    after.append("")
    after += text.dialect.decorators
    after += [f"def program({', '.join(parameters_of(low))}):", *written(body), ""]
    kernels = tuple((file, tuple(sorted(names))) for file, names in low.kernels.items())
    wide = not {"i64", "f64"}.isdisjoint(low.dtypes.values())
    return Module("\n".join(lines), "\n".join(after), kernels, wide, (*low.inner, *body), low.notes)


def parameters_of(low: Lowering) -> list[str]:
    """The variables of the inputs."""
    return [low.stored[tensor.name].variable for tensor in low.program.inputs]
