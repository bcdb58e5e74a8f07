"""A call under a budget of memory: planned as it is, then with some definitions computed again, until it fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backends.opaque import Former
from ..diagnostics import CallError, Diagnostic
from ..engine.budget import Choices
from ..engine.counted import Counted
from ..engine.dialects import dialect
from ..engine.show import Module, Statements, emit, statements
from ..engine.specialise import one_way
from ..engine.way_back import Call as Counting
from ..ir.types import LIBRARY_NAMES
from ..plan.steps import WIDTH, Plan, Step
from ..plan.target import WHOLE
from ..records import dataclass, replace
from . import tensors
from .amounts import limit_of
from .emitting import planned
from .kernel import Call
from .tracing import differentiates_again, transform_test
from .trial import Refused, Trials

# The points of a block of rows, where those of the usual size take too much; 0 are these.
_ROOMS = (0, 1 << 20, 1 << 16)


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
    """A budget in bytes, the inputs that it is for, without their numbers, and to which of them gradients may be asked
    for."""

    limit: int
    shapes: tuple[object, ...]
    learned: tuple[bool, ...]


def asked_of(values: Sequence[Any], memory: str | int) -> Asked:
    """The budget of a call with these inputs."""
    check_place("torch")
    limit, learns = limit_of(memory), tensors.load_torch().is_grad_enabled()
    learned = tuple(learns and getattr(value, "requires_grad", False) for value in values)
    return Asked(limit, tuple(map(_shape, values)), learned)


def _shape(value: Any) -> object:
    """What plans of memory differ by: sizes, and whole numbers, which may decide some."""
    if not tensors.is_tensor(value):
        return value
    is_number = value.numel() == 1 and not value.is_floating_point()
    return tuple(value.shape), value.dtype, str(value.device), value.item() if is_number else None


def imagined(call: Call, memory: str | int) -> Asked:
    """The budget of a call that is only described: all its reals learn."""
    limit = limit_of(memory)
    check_place(call.backend)
    inputs = call.program.inputs
    if call.values:
        return asked_of([call.values[tensor.name] for tensor in inputs], limit)
    dtypes = [call.arguments[tensor.name].dtype for tensor in inputs]
    shapes = [call.bound.arrays[one.name].shape or call.bound.arrays[one.name].item() for one in inputs]
    torch = tensors.load_torch()
    learned = (dtype is not None and getattr(torch, LIBRARY_NAMES[dtype]).is_floating_point for dtype in dtypes)
    return Asked(limit, tuple(shapes), tuple(learned))


class Study:
    """Calls with inputs like these: their plan, and the ways to compute it with blocks of rows as large as usual, then
    smaller."""

    def __init__(self, call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool, asked: Asked) -> None:
        plan = planned(call, wanted, isolate, recompute)
        assert plan.arrays is not None
        self.call = call
        names = [tensor.name for tensor in call.program.inputs]
        self.learned = frozenset(name for name, is_one in zip(names, asked.learned, strict=True) if is_one)
        blocks = any(step.block is not None for step in plan.steps)
        # All pairs at once take less time, and more memory.
        ways = [one_way(plan.arrays, call.bound.sizes, at_once) for at_once in (True, False)]
        ways = ways if ways[0].definitions != ways[1].definitions else ways[:1]
        self.ways: list[tuple[Plan, int, Choices]] = []
        for operations in ways:
            steps = plan.steps if operations is ways[0] else tuple(map(_streamed, plan.steps))
            one = replace(plan, arrays=operations, steps=steps)
            text = statements(operations, dialect(call.backend))
            self.ways += [(one, room, self._choices(one, text, room)) for room in (_ROOMS if blocks else _ROOMS[:1])]
        arrays = ((call.bound.arrays[name], call.arguments[name].dtype) for name in names)
        self.inputs = sum(array.size * WIDTH[dtype] for array, dtype in arrays if dtype is not None)

    def _choices(self, plan: Plan, text: Statements, room: int) -> Choices:
        """The ways to compute the call, with room for so many points in a block of rows."""
        assert plan.arrays is not None
        counted = Counted(self.call.bound.sizes, self.call.bound.scalars)
        trials = Trials(plan, self.call, counted, room)
        return Choices(Counting(plan.arrays, counted, self.call.backend, text, self.learned, trials))

    def within(self, limit: int) -> tuple[Plan, Module]:
        """The plan and the text of least work that take no more memory than the limit."""
        try:
            return self._within(limit)
        except Refused as problem:
            message = f"the memory of this call is not known before it runs: {problem.args[-1]}"
            raise _unkept(message, "leave `memory=` out") from None

    def _within(self, limit: int) -> tuple[Plan, Module]:
        for plan, room, choices in self.ways:
            assert plan.arrays is not None
            groups = choices.within(limit)
            if groups is None:
                continue
            budget = choices.told(groups, limit, self.inputs)
            budget = replace(budget, whole=self.ways[0][2].peak(()), room=room or None)
            arguments, kernels = self.call.arguments, Former(plan, room=room)
            spelling, again = dialect(self.call.backend), choices.names(groups)
            module = emit(plan.arrays, spelling, arguments, kernels, frees=True, again=again)
            return replace(plan, budget=budget), module
        least = min(choices.least for _, _, choices in self.ways)
        way = "and its way back take" if self.learned else "takes"
        message = f"this call {way} at least {least:,} bytes beside its inputs, and the budget is {limit:,}"
        raise _unkept(message, f"`memory={least}` is the least that can be kept; take smaller sizes or fewer at a time")


def _streamed(step: Step) -> Step:
    """A step whose scores are never computed at once."""
    return replace(step, words=tuple(words for words in step.words if WHOLE not in words))
