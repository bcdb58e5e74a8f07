"""Functions for calls of known sizes: what sizes decide is decided once, and arrays that follow from them are kept.

An emitted function takes arrays of any size. Where arrays of the same sizes come again and again, its plan is made once
more for these sizes, and what is the same in all calls is computed when the function is loaded.

A mask that is kept is shared by later calls. It is an operand of arithmetic, or an argument of a kernel that only reads
it; it is never returned, and never written to.

Of a step of decoding, what is past grows along an axis from call to call, and weights are the same arrays in all calls:
of the first all but that axis is known, of the second views are made once. A view has the numbers that its weight has,
also after these were changed; what would be a copy is made anew in each call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..diagnostics import CallError
from ..faults import deep
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..records import dataclass
from ..source import Span
from . import cached, tensors
from .kernel import Call, Engine, Kernel, load
from .known import Known, Values, alike, unlike
from .tracing import is_replaced

if TYPE_CHECKING:
    from ..engine.constants import Facts

_NONE: Mapping[int, int] = {}


def for_sizes(
    engine: Engine,
    kernel: Kernel,
    values: Values,
    growing: Mapping[int, int] = _NONE,
    held: Collection[int] = (),
    keeps: Collection[str] = ("cpu",),
) -> Kernel | None:
    """The kernel for tensors that have the types, sizes, strides and devices of these and require gradients as these
    do; None where there is none. Those at the places `growing` may have another size along an axis, which is counted
    from the end, and other strides but along the last; those at the places `held` are these themselves. Small arrays
    are kept on devices of the types that it `keeps`."""
    if kernel.origin is None or is_replaced():
        return None
    inputs = engine.program.inputs
    try:
        call = engine.prepare({tensor.name: value for tensor, value in zip(inputs, values, strict=True)}, "torch")
    except CallError:
        return None  # The call is refused, and says why.
    axes = [inputs[place].axes[axis] for place, axis in growing.items()]
    grown = {axis.extent.coordinate for axis in axes if isinstance(axis.extent, ir.Size)}
    sizes = {one: size for one, size in call.bound.sizes.items() if one not in grown}
    names = [inputs[place].name for place in held]
    text = _text(engine, kernel, call, sizes, names, _facts(call, {inputs[place].name for place in growing}, keeps))
    torch = tensors.load_torch()
    space = {name: one for name, one in kernel.origin.names.items() if not name.startswith("__")}
    space |= {"device": torch.device(tensors.device_of(call.values)), **{name: call.values[name] for name in names}}
    # What is made in inference mode could not be used outside of it.
    with torch.inference_mode(False), torch.set_grad_enabled(torch.is_grad_enabled()):
        return load(text, kernel.wanted, kernel.parts, space)


def _facts(call: Call, growing: Collection[str], keeps: Collection[str]) -> Facts:
    """What is known of calls like this one."""
    from ..engine.constants import Facts

    arrays = {}
    for tensor in call.program.inputs:
        argument = call.arguments[tensor.name]
        is_as_given = not (argument.converted or argument.loose or any(axis.coordinate.rest for axis in tensor.axes))
        if tensor.axes and is_as_given:
            arrays[tensor.name] = call.values[tensor.name]
    learns = any(getattr(value, "requires_grad", False) for value in call.values.values())
    return Facts(arrays, frozenset(growing), learns, call.device in keeps)


@deep
def _text(
    engine: Engine, kernel: Kernel, call: Call, sizes: Mapping[Coordinate, int], held: list[str], facts: Facts
) -> str:
    """The text for calls of these sizes; it is kept on disk as others are."""
    origin = kernel.origin
    assert origin is not None
    key = None
    if engine.texts is not None:
        given = [(name, [*value.shape], [*value.stride()]) for name, value in facts.arrays.items()]
        known = [sorted((str(one), size) for one, size in sizes.items()), held, sorted(facts.growing)]
        further = [given, known, facts.learns, facts.keeps, origin.text]
        key = cached.key_of(engine.texts, call, kernel.wanted, origin.isolate, origin.recompute, further)
    found = None if key is None else cached.find(key, Span(engine.program.source, 0, 0))
    if found is not None:
        return found[0]
    from .emitting import planned, sized

    plan = origin.plan or planned(call, kernel.wanted, origin.isolate, origin.recompute)
    text = sized(plan, call.arguments, sizes, held, facts, origin.text).linked()
    if key is not None:
        cached.keep(key, text, kernel.parts)
    return text


@dataclass(frozen=True)
class Repeated:
    """The inputs of steps of decoding, by their places: `held` are the same arrays in all calls, unless they are
    replaced; of `growing` each has some size along an axis, which is counted from the end. `own` are those of `held`
    that nobody replaces by others of the same sizes."""

    held: tuple[int, ...]
    growing: Mapping[int, int]
    own: frozenset[int] = frozenset()

    def known(self, engine: Engine, like: Known, values: Values) -> tuple[Callable[..., bool], Known] | None:
        """A test for steps like this one, and how they run; None where there is none."""
        numbers = [place for place, value in enumerate(values) if not tensors.is_tensor(value)]
        if like.kernel is None or any(type(values[place]) is not int for place in numbers):
            return None
        held = [place for place in self.held if place not in numbers]
        test = _Step(values, numbers, self.growing, [place for place in held if place not in self.own])
        made = None if test.guard is unlike else for_sizes(engine, like.kernel, values, self.growing, held)
        return None if made is None else (test, like.by(made))


class _Step:
    """A test whether the arrays of a step are like those of an earlier one, and the weights lie where they did: a view
    that was made then has their numbers now. It keeps their memory, so that no other array comes to lie there; it has
    `ended` when they have moved."""

    def __init__(self, values: Values, numbers: list[int], growing: Mapping[int, int], weights: list[int]) -> None:
        arrays = [place for place in range(len(values)) if place not in numbers]
        given = tuple(values[place] for place in arrays)
        self.guard = alike(given, True, {arrays.index(place): axis for place, axis in growing.items()})
        self._arrays, self._numbers, self._weights = arrays, numbers, weights
        self._memory = [values[place].detach() for place in weights]
        self._pointers = self._lie_at(values)
        self.ended = False

    def _lie_at(self, values: Values) -> list[int]:
        return [values[place].data_ptr() for place in self._weights]

    def __call__(self, *values: Any) -> bool:
        given: Any = values
        if self._numbers:
            if not all(type(values[place]) is int for place in self._numbers):
                return False
            given = [values[place] for place in self._arrays]
        if not self.guard(*given):
            return False
        self.ended = self._lie_at(values) != self._pointers
        return not self.ended
