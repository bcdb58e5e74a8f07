"""A call under a budget of memory: rehearsed whole, then with some definitions computed again, until it fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ..backends import segments
from ..backends.layout import Statement
from ..backends.lowering import Lowering
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
# So many of the last segments of the leanest choice are tried without.
_LAST = 4
# The points of a block of rows, where those of the usual size take too much.
_ROOMS = (1 << 20, 1 << 16)


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
    if any(map(tensors.load_torch().is_autocast_enabled, ("cpu", "cuda"))):
        message = "`torch.autocast` decides dtypes on the way there, and not on the way back: no budget is kept there"
        raise _unkept(message, "leave `memory=` out, or give arrays of the dtype that is meant")


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


class Unmet(Exception):
    """A limit below the least memory that there is a way for, which it has."""


class Study:
    """Calls with inputs like these: their plan, and rehearsals with blocks of rows as large as usual, then smaller."""

    def __init__(self, call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool, asked: Asked) -> None:
        target = dialect_of(call.backend).target
        program = in_digits(call.program)
        self.plan = choose(program, wanted, call.bound.dtypes, target, call.device, isolate, recompute)
        self.low, self.asked = lowered(self.plan, call.arguments), asked
        self.body = self.low.text.body
        blocks = any("in_blocks" in statement.words for statement in self.body)
        self.rooms = (None, *(_ROOMS if blocks else ()))
        self.found: dict[int | None, Rehearsals] = {}

    def within(self, limit: int) -> tuple[Plan, Module]:
        """The plan and the text of least work that take no more memory than the limit."""
        least = []
        for room in self.rooms:
            if room not in self.found:
                body = self.body if room is None else segments.in_small_blocks(self.body, room)
                self.found[room] = Rehearsals(self.plan, self.low, body, self.asked)
            try:
                budget, text = self.found[room].within(limit)
            except Unmet as refusal:
                least.append(refusal.args[0])
                continue
            budget = replace(budget, whole=self.found[None].outline.trace.peak, room=room)
            return replace(self.plan, budget=budget), text
        way = "and its way back take" if self.asked.learns else "takes"
        message = f"this call {way} at least {min(least):,} bytes beside its inputs, and the budget is {limit:,}"
        help = f"`memory={min(least)}` is the least that can be kept; take smaller sizes or fewer at a time"
        raise _unkept(message, help)


class Rehearsals:
    """The rehearsals of one text: whole, and with segments as they are asked for."""

    def __init__(self, plan: Plan, low: Lowering, body: list[Statement], asked: Asked) -> None:
        self.plan, self.low = plan, low
        self.shapes, self.learns = asked.shapes, asked.learns
        self.inputs, self.paragraphs = parameters_of(low), segments.paragraphs_of(body)
        # The memory that operators need for themselves.
        self.inside: dict[Any, int] = {}
        count = len(self.paragraphs)
        whole = self.rehearse(module(self.low, segments.marked(self.paragraphs, "mark")), count)
        across = [segments.crossing(self.paragraphs, self.inputs, n) for n in range(count)]
        self.outline = Outline(whole, [one.reads for one in self.paragraphs], across)
        self.options = choices(self.outline) if self.learns else [self.outline.choice(())]
        self.peaks: dict[tuple[Segment, ...], int] = {(): whole.peak}

    def made(self, chosen: Sequence[Segment]) -> Module:
        """The text in which these segments are computed again."""
        return module(self.low, *segments.cut(self.paragraphs, self.inputs, chosen, self.low.text.taken))

    def rehearse(self, text: Module, count: int = 1) -> Trace:
        kernel = load(text.linked(), self.plan.wanted, ())
        try:
            return rehearsed(kernel.function, self.shapes, count, self.learns, self.inside)
        except (Unforeseen, kernel.refused) as problem:
            message = f"the memory of this call is not known before it runs: {problem.args[-1]}"
            raise _unkept(message, "leave `memory=` out") from None

    def peak(self, choice: Choice) -> int:
        """The memory that a choice takes in a rehearsal."""
        if choice.segments not in self.peaks:
            self.peaks[choice.segments] = self.rehearse(self.made(choice.segments)).peak
        return self.peaks[choice.segments]

    def within(self, limit: int) -> tuple[Budget, Module]:
        """The memory and the text of least work within the limit."""
        choice = self._chosen(limit)
        definitions = [one.definitions for one in self.paragraphs]
        told = _told(self.outline, definitions, choice, limit, self.peak(choice), self.learns)
        return told, self.made(choice.segments)

    def _chosen(self, limit: int) -> Choice:
        """The segments of least work with which a rehearsal fits."""
        whole = self.outline.choice(())
        if self.peak(whole) <= limit:
            return whole
        beyond = 0  # The bytes by which rehearsals exceeded what was expected of them.
        for _ in range(_TRIES):
            fitting = [choice for choice in self.options if choice.peak + beyond <= limit]
            if not fitting:
                break
            some = (relaxed(self.outline, choice, limit - beyond) for choice in fitting)
            best = min(some, key=lambda choice: choice.work)
            if self.peak(best) <= limit:
                return best
            beyond = max(beyond + 1, self.peak(best) - best.peak)
        for choice in sorted(self.leanest, key=lambda choice: choice.work):
            if self.peak(choice) <= limit:
                return choice
        raise Unmet(min(map(self.peak, self.leanest)))

    @cached_property
    def leanest(self) -> list[Choice]:
        """Some choices with the least memory. They are the same for every limit, so that the least figure that is named
        is that of a choice that is found again."""
        outline = self.outline
        some = {choice.segments: choice for choice in self.options}
        for choice in self.options:
            without = relaxed(outline, choice, choice.peak)
            some.setdefault(without.segments, without)
        found = sorted(some.values(), key=lambda choice: (choice.peak, choice.work))[:_LEANEST]
        best = min((outline.choice(()), *found), key=self.peak)
        # What is computed again has to be there at once, which may be more than to keep it: most so at the end.
        for segment in best.segments[::-1][:_LAST]:
            without = outline.choice([one for one in best.segments if one != segment])
            found.append(without)
            best = min(best, without, key=self.peak)
        return [outline.choice(()), *found]


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
