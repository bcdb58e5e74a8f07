"""Derivatives of programs, as programs: reverse mode and Jacobians."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from ..checker.scope import Refusal
from ..ir import build
from ..ir import nodes as ir
from ..ir.context import Agreement
from ..ir.needs import read_in
from ..ir.walk import reads_of
from ..records import replace
from ..source import Span
from .flatness import flat_parts
from .gradient import Derived, Seeds, derive, fresh_name, home_of
from .stable import stable_lets
from .statement import restated


def gradient(program: ir.Program, of: Sequence[str], by: Sequence[str], split: bool = True) -> ir.Program:
    """The program that pulls cotangents of `of` back to `by`.

    It takes the inputs of the program and, for every one of `of` that is no scalar, its cotangent `d_…`; it gives
    the cotangents of `by`, in their order. `order` is left to the checker. With `split`, what counts on parts of an
    axis becomes clauses: a base case and a rule.
    """
    span = program.tensors[of[0]].span
    program = replace(program, lets=stable_lets(program.lets, program.recurrent, frozenset(by)))
    taken = set(program.tensors)
    given: dict[str, str | None] = {}
    inputs = list(program.inputs)
    for name in of:
        tensor = program.tensors[name]
        given[name] = None
        if tensor.axes:
            given[name] = fresh_name(f"d_{name}", taken)
            inputs.append(ir.Input(given[name] or "", tensor.axes, "real", None, span))
    called = {name: fresh_name(f"d_{name}", taken) for name in by}
    derived = derive(program, Seeds(given), by, called, span, taken, split)
    lets = _restated(derived, program, inputs)
    for name in by:
        if name not in derived.cotangents:
            lets.append(_nothing(called[name], home_of(program.tensors[name], (), span), span))
    outputs = tuple(called[name] for name in by)
    return pruned(replace(program, inputs=tuple(inputs), lets=tuple(lets), outputs=outputs, order=()))


def jacobian(
    inputs: tuple[ir.Input, ...],
    lets: tuple[ir.Let, ...],
    of: str,
    by: str,
    name: str,
    taken: set[str],
    span: Span,
) -> tuple[ir.Let, ...]:
    """`@of / @by` under this name, after all that it needs: `of`'s coordinates in front, then `by`'s.

    Two definitions of one statement share the coordinates around them, which are there once: a point of `of` hears only
    what stands at the same point of them.
    """
    program = ir.Program(span.source, inputs, stable_lets(lets, closed=frozenset((by,))), (of,), (), (), (), ())
    taken |= program.tensors.keys()
    first, second = program.tensors[of], program.tensors[by]
    shared = _shared(first, second)
    lead = tuple(range for number, range in enumerate(home_of(first, (), span)) if number not in shared)
    home = (*lead, *home_of(second, lead, span))
    order = [*range(len(lead))]
    for number in sorted(shared):
        order.insert(number, len(lead) + shared[number])
    order += [number for number in range(len(home)) if number not in order]
    if of == by:
        return (_turned(_identity(name, home, len(lead), span), order),)
    for _, step in flat_parts(replace(program, lets=lets), (of,), (by,)):
        raise Refusal(f"nothing flows from `{by}` to `{of}`: `{step.op}` is flat wherever it has a derivative")
    seeds = Seeds({of: None}, lead, frozenset(shared))
    derived = derive(program, seeds, (by,), {by: name}, span, taken, split=not shared)
    if by not in derived.cotangents:
        return (_turned(_nothing(name, home, span), order),)
    known = {let.name for let in lets}
    program = replace(program, lets=tuple(_restated(derived, program, inputs)), outputs=(name,))
    found = (let for let in pruned(program).lets if let.name not in known)
    return tuple(_turned(let, order) if let.name == name else let for let in found)


def _shared(of: ir.Input | ir.Let, by: ir.Input | ir.Let) -> dict[int, int]:
    """The axes of two definitions of one statement that are the same coordinate around them."""
    if isinstance(of, ir.Input) or isinstance(by, ir.Input):
        return {}
    theirs = {axis.coordinate: number for number, axis in enumerate(by.axes[: by.captured])}
    mine = enumerate(axis.coordinate for axis in of.axes[: of.captured])
    return {number: theirs[coordinate] for number, coordinate in mine if coordinate in theirs}


def _turned(let: ir.Let, order: Sequence[int]) -> ir.Let:
    """The definition with its axes in this order."""
    clauses = tuple(replace(clause, slots=tuple(clause.slots[n] for n in order)) for clause in let.clauses)
    return replace(let, axes=tuple(let.axes[n] for n in order), clauses=clauses)


def _restated(derived: Derived, program: ir.Program, inputs: Iterable[ir.Input]) -> list[ir.Let]:
    """The definitions of a derivative of a program, in which every range is stated that has to be."""
    lets = (*derived.forward, *derived.cotangents.values())
    tensors: dict[str, ir.Input | ir.Let] = {tensor.name: tensor for tensor in inputs}
    tensors |= {let.name: let for let in (*program.lets, *lets)}
    agreement = Agreement(program)
    return [*derived.forward, *(restated(let, tensors, agreement) for let in derived.cotangents.values())]


def _identity(name: str, home: tuple[ir.Range, ...], lead: int, span: Span) -> ir.Let:
    """`@x / @x`: 1 where its two points are one."""
    let = _nothing(name, home, span)
    slots = let.clauses[0].slots
    pairs = zip(slots[:lead], slots[len(slots) - lead :], strict=True)
    same = build.conjunction(build.apply("==", pair, "bool", span) for pair in pairs)
    body: ir.Expr = build.real(Fraction(1), span)
    if same is not None:
        body = build.select(same, body, build.whole(0, span), span)
    return replace(let, clauses=(replace(let.clauses[0], body=body),))


def _nothing(name: str, ranges: tuple[ir.Range, ...], span: Span) -> ir.Let:
    """The cotangent of what nothing reaches: 0 everywhere."""
    slots = tuple(build.coord(range.coordinate, span) for range in ranges)
    clause = ir.Clause(slots, ranges, build.real(Fraction(0), span), None, span)
    axes = tuple(ir.Axis(range.coordinate, range.upper) for range in ranges)
    return ir.Let(name, axes, "real", (clause,), False, span)


def pruned(program: ir.Program) -> ir.Program:
    """The program with nothing but what its outputs need; assertions stay that speak of what is left."""
    lets = program.definitions
    sizes = (axis.extent for tensor in program.inputs for axis in tensor.axes)
    kept = {tensor.name for tensor in program.inputs}
    waiting = [*program.outputs, *read_in(*sizes)]
    while waiting:
        name = waiting.pop()
        if name in lets and name not in kept:
            kept.add(name)
            waiting += [read.tensor for read in reads_of(lets[name])]
    asserts = tuple(claim for claim in program.asserts if kept.issuperset(read_in(claim.condition)))
    left = tuple(let for let in program.lets if let.name in kept)
    return replace(program, lets=left, asserts=asserts, contracts=(), expects=())
