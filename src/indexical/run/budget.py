"""A call under a budget of memory: rehearsed whole, then with some definitions computed again, until it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..backends import segments
from ..backends.source import Module, dialect_of, lowered, module, parameters_of
from ..diagnostics import CallError, Diagnostic
from ..ir.constants import in_digits
from ..ir.types import LIBRARY_NAMES
from ..plan.budget import Budget, Choice, Held, Outline, Repeated, Segment, Trace, choices, relaxed
from ..plan.choose import choose
from ..plan.steps import Plan
from ..records import dataclass
from . import tensors
from .amounts import limit_of
from .kernel import Call, load
from .rehearsal import Shape, Unforeseen, rehearsed, shape_of
from .tracing import differentiates_again, transform_test

# So often a choice that should fit is rehearsed and does not, before the leanest ones are.
_TRIES, _LEANEST = 4, 3


def _unkept(message: str, help: str) -> CallError:
    return CallError([Diagnostic("IX536", message, help=help)])


def check_place(backend: str) -> None:
    """Refuse a call of which the memory is not in our hands."""
    if backend != "torch":
        message = f"a budget of memory is kept with PyTorch, and not with {backend}"
        raise _unkept(message, 'call it with tensors or `backend="torch"`; or leave `memory=` out')
    if transform_test()() or differentiates_again():
        message = "transforms of `torch.func` and forward mode decide what is kept: no budget is kept there"
        raise _unkept(message, "leave `memory=` out, or call `backward` or `torch.autograd.grad`")


@dataclass(frozen=True, slots=True)
class Asked:
    """A budget in bytes, the inputs that it is for, without their numbers, and whether a gradient may be asked for."""

    limit: int
    shapes: tuple[Any, ...]
    learns: bool


def asked_of(values: Sequence[Any], memory: str | int) -> Asked:
    """The budget of a call with these inputs."""
    check_place("torch")
    limit, learns = limit_of(memory), tensors.load_torch().is_grad_enabled()
    learns = learns and any(getattr(value, "requires_grad", False) for value in values)
    return Asked(limit, tuple(map(shape_of, values)), learns)


def imagined(call: Call, memory: str | int) -> Asked:
    """The budget of a call that is only described: all its reals learn."""
    limit = limit_of(memory)
    check_place(call.backend)
    if call.values:
        return asked_of([call.values[tensor.name] for tensor in call.program.inputs], limit)
    torch = tensors.load_torch()
    shapes: list[Any] = []
    for tensor in call.program.inputs:
        array, dtype = call.bound.arrays[tensor.name], call.arguments[tensor.name].dtype
        if dtype is None:
            shapes.append(array.item())
            continue
        sizes = tuple(array.shape)
        strides = tuple(math.prod(sizes[n + 1 :]) for n in range(len(sizes)))
        kind = getattr(torch, LIBRARY_NAMES[dtype])
        shapes.append(Shape(sizes, strides, kind, call.device, kind.is_floating_point))
    return Asked(limit, tuple(shapes), any(isinstance(shape, Shape) and shape.learns for shape in shapes))


def budgeted(
    call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool, asked: Asked
) -> tuple[Plan, Module]:
    """The plan and the text for calls with inputs like these, which take no more memory than the limit."""
    limit, shapes, learns = asked.limit, asked.shapes, asked.learns
    target = dialect_of(call.backend).target
    plan = choose(in_digits(call.program), wanted, call.bound.dtypes, target, call.device, isolate, recompute)
    low = lowered(plan, call.arguments)
    inputs, paragraphs = parameters_of(low), segments.paragraphs_of(low.text.body)

    def made(chosen: Sequence[Segment]) -> Module:
        return module(low, *segments.cut(paragraphs, inputs, chosen, low.text.taken))

    tried: dict[Any, int] = {}

    def rehearse(text: Module, count: int = 1) -> Trace:
        kernel = load(text.linked(), wanted, ())
        try:
            return rehearsed(kernel.function, shapes, count, learns, tried)
        except (Unforeseen, kernel.refused) as problem:
            help = "leave `memory=` out"
            raise _unkept(f"the memory of this call is not known before it runs: {problem.args[-1]}", help) from None

    whole = rehearse(module(low, segments.marked(paragraphs, "mark")), len(paragraphs))
    across = [segments.crossing(paragraphs, inputs, n) for n in range(len(paragraphs))]
    outline = Outline(whole, [one.reads for one in paragraphs], across)
    choice, peak = _chosen(outline, limit, learns, lambda some: rehearse(made(some)).peak)
    told = _told(outline, [one.definitions for one in paragraphs], choice, limit, peak, learns)
    return replace(plan, budget=told), made(choice.segments)


def _chosen(
    outline: Outline, limit: int, learns: bool, rehearse: Callable[[tuple[Segment, ...]], int]
) -> tuple[Choice, int]:
    """The segments of least work with which a rehearsal fits, and the memory that it takes."""
    whole = outline.choice(())
    tried: dict[tuple[Segment, ...], int] = {(): outline.trace.peak}
    if outline.trace.peak <= limit:
        return whole, outline.trace.peak
    options = choices(outline) if learns else [whole]
    beyond = 0  # The bytes by which rehearsals exceeded what was expected of them.
    for _ in range(_TRIES):
        fitting = [choice for choice in options if choice.peak + beyond <= limit]
        if not fitting:
            break
        best = min((relaxed(outline, choice, limit - beyond) for choice in fitting), key=lambda choice: choice.work)
        if best.segments not in tried:
            tried[best.segments] = rehearse(best.segments)
        if tried[best.segments] <= limit:
            return best, tried[best.segments]
        beyond = max(beyond + 1, tried[best.segments] - best.peak)
    leanest = sorted(options, key=lambda choice: (choice.peak, choice.work))[:_LEANEST]
    for choice in sorted(leanest, key=lambda choice: choice.work):
        if choice.segments not in tried:
            tried[choice.segments] = rehearse(choice.segments)
        if tried[choice.segments] <= limit:
            return choice, tried[choice.segments]
    least = min(tried.values())
    way = "and its way back take" if learns else "takes"
    message = f"this call {way} at least {least:,} bytes beside its inputs, and the budget is {limit:,}"
    raise _unkept(message, f"`memory={least}` is the least that can be kept; take smaller sizes or fewer at a time")


def _told(
    outline: Outline, definitions: Sequence[tuple[str, ...]], choice: Choice, limit: int, peak: int, learns: bool
) -> Budget:
    """The choice in the words of the program."""
    trace = outline.trace
    held = outline.held(choice.segments) if learns else set()
    kept: dict[str, int] = {}
    for one in held:
        names = definitions[trace.born[one]]
        if names and trace.sizes[one]:
            kept[names[-1]] = kept.get(names[-1], 0) + trace.sizes[one]
    total = sum(place.work for place in trace.places) or 1.0
    again = []
    for start, stop in choice.segments:
        inside = set[int]().union(*(place.kept for place in trace.places[start:stop])) - held
        names = tuple(dict.fromkeys(name for n in range(start, stop) for name in definitions[n]))
        work = sum(place.work for place in trace.places[start:stop])
        again.append(Repeated(names, sum(trace.sizes[one] for one in inside), work / total))
    order = {name: n for n, name in enumerate(name for names in definitions for name in names)}
    shown = tuple(Held(name, kept[name]) for name in sorted(kept, key=order.__getitem__))
    return Budget(limit, peak, trace.peak, trace.inputs, learns, shown, tuple(again))
