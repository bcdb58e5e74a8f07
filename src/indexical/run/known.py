"""Calls that are known by their signature: these run the emitted function, and bind nothing.

A signature is the type, dtype, rank, device and layout of every array, and the kind of every Python number. Whatever
else binding looks at is looked at by the emitted function (sizes that disagree, wholes that do not fit), or is one of
the few checks in `Known.fits`. A refusal goes back to binding, which says where and why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from ..checker.recurrence import is_plain
from ..engine.dialects import dialect
from ..ir import nodes as ir
from ..ir.affine import number, polynomial
from ..ir.context import agreed
from ..ir.types import STORED_ONLY, Coordinate, Dtype
from ..records import dataclass, field, replace
from . import jax_arrays, tensors
from .asked import packed
from .bind import rounded
from .kernel import MEMORY, Call, Kernel, as_numpy, is_out_of_memory
from .parts import Part
from .tracing import differentiates_again

# Python's whole numbers up to here fit whatever whole dtype an input is computed in.
_SMALL = 1 << 31
# A call whose sizes were checked before is known; so many are remembered.
_MOST_SIZES = 4096

Values = tuple[Any, ...]
Signature = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """An emitted function for calls of one signature, which gives what the call returns.

    `fits` says whether these arrays pass the checks that the function does not make itself; None where there are none.
    `kernel` is whose function it is; None where it takes arrays of another library. Some values are `moved` before this
    takes them.
    """

    function: Callable[..., Any]
    fits: Callable[[Values], bool] | None
    refused: tuple[type[Exception], ...]
    pack: Callable[[Any], Any] | None
    kernel: Kernel | None
    moved: tuple[Callable[[Any], Any] | None, ...] = ()

    def by(self, kernel: Kernel) -> Known:
        """The same by another kernel."""
        function = _moving(kernel.function, self.moved)
        return replace(self, function=function, refused=(*self.refused, kernel.refused), kernel=kernel)


@dataclass(frozen=True, slots=True)
class Calls:
    """The known calls of a program: by what was asked for (outputs, backend, flags), then by signature."""

    known: dict[tuple[Any, ...], dict[object, Known]] = field(default_factory=dict)

    def like(self, values: Values, outputs: Any, *flags: Any) -> Known | None:
        """A known call like this one; values of any sort, and outputs in a list too."""
        try:
            found = self.known.get((_hashed(outputs), *flags))
        except TypeError:  # something is asked for that is no name
            return None
        return None if found is None else found.get(signature(values))

    def learn(self, call: Call, kernel: Kernel, values: Values, alone: bool, outputs: Any, *flags: Any) -> None:
        """Know calls like this one from now on, where binding has nothing more to find out about them."""
        key, asked = signature(values), _hashed(outputs)
        if key is None or not (asked is None or isinstance(asked, str | tuple)):
            return
        found = self.known.setdefault((asked, *flags), {})
        if key in found:
            learn_sizes(found[key], values)
        elif (new := known(call, kernel, values, alone)) is not None:
            found[key] = new


def _hashed(outputs: Any) -> Any:
    return tuple(outputs) if isinstance(outputs, list) else outputs


def signature(values: Values) -> Signature | None:
    """The types, dtypes, ranks, devices and layouts of the values; None for other types and large whole numbers."""
    parts: list[object] = []
    for value in values:
        kind = type(value)
        if kind is float or kind is bool or (kind is int and -_SMALL <= value < _SMALL):
            parts.append(kind)
        elif kind is np.ndarray or isinstance(value, np.generic):
            parts += (kind, value.dtype, value.ndim)
        elif jax_arrays.is_jax(value):
            parts += (kind, value.dtype, value.ndim, value.weak_type)
        elif tensors.is_tensor(value):
            parts += (kind, value.dtype, value.ndim, value.device, value.layout)
        else:
            return None
    return tuple(parts)


@cache
def signature_of(count: int) -> Callable[..., Signature]:
    """A function that gives the signature of so many tensors, as `signature` does, without a loop: on the way of every
    call it takes about a microsecond."""
    names = [f"a{n}" for n in range(count)]
    parts = [f"type({a}), {a}.dtype, {a}.ndim, {a}.device, {a}.layout, " for a in names]
    found: Callable[..., Signature] = eval(f"lambda {', '.join(names)}: ({''.join(parts)})")
    return found


def unlike(*values: Any) -> bool:
    """A test that no call passes."""
    return False


def alike(values: Values, of_one_size: bool = False, growing: Mapping[int, int] | None = None) -> Callable[..., bool]:
    """A test whether as many tensors have the signatures of these, or also their sizes and strides, in one call of
    PyTorch's own guards, a fifth of the time that it takes to ask each; and whether plain numbers have their types. It
    also compares whether tensors require gradients (not whether these are on) and what else PyTorch does with a call
    (transforms, modes). Where it says no, or this version has none, they may be alike all the same. Those at the places
    `growing` may have another size along an axis, which is counted from the end, and other strides but along the last.
    """
    if not all(tensors.is_tensor(value) or type(value) in (bool, int, float) for value in values):
        return unlike
    from ..backends.kernels.torch_guards import guard_for  # It loads PyTorch.

    given = [value for value in values if tensors.is_tensor(value)]
    sizes = [list(value.shape) if of_one_size else [None] * value.ndim for value in given]
    strides = [list(value.stride()) if of_one_size else [None] * value.ndim for value in given]
    for place, axis in (growing or {}).items():
        sizes[place][axis] = None
        strides[place][:-1] = [None] * (given[place].ndim - 1)
    test = guard_for(given, sizes, strides) if given else None
    if test is None or len(given) == len(values):
        return test or unlike
    named = {f"a{n}": value for n, value in enumerate(values)}
    names, arrays = [*named], [name for name, value in named.items() if tensors.is_tensor(value)]
    numbers = {name: type(value).__name__ for name, value in named.items() if name not in arrays}
    tests = [f"type({name}) is {kind}" for name, kind in numbers.items()]
    tests += [f"-{_SMALL} <= {name} < {_SMALL}" for name, kind in numbers.items() if kind == "int"]
    source = f"lambda {', '.join(names)}: {' and '.join(tests)} and test({', '.join(arrays)})"
    both: Callable[..., bool] = eval(source, {"test": test})
    return both


def in_order(names: tuple[str, ...], arrays: Values, named: Mapping[str, Any]) -> Values:
    """The arrays in the order of the inputs; none where one is missing or too many."""
    if len(arrays) + len(named) != len(names):
        return ()
    try:
        return (*arrays, *[named[name] for name in names[len(arrays) :]])
    except KeyError:
        return ()


def known(call: Call, kernel: Kernel, values: Values, alone: bool) -> Known | None:
    """Return the way to run calls like this one from now on; None where each has to be bound. Several outputs, or one
    of a list, come as a named tuple unless one stands `alone`."""
    inputs = call.program.inputs
    if any(map(partial(_is_read, call.backend), inputs, values)):
        return None
    moved = tuple(_conversion(call, tensor.name, value) for tensor, value in zip(inputs, values, strict=True))
    wanted = kernel.wanted
    pack = None if alone else packed(wanted)._make if len(wanted) > 1 else packed(wanted)
    checks = _checks(call, kernel.parts, values)
    if checks is None:
        return None
    fits = None if not checks else checks[0] if len(checks) == 1 else partial(_all, checks)
    refused = (kernel.refused, ArithmeticError, MemoryError)
    is_own = call.backend == "torch" or not any(moved)
    return Known(_moving(kernel.function, moved), fits, refused, pack, kernel if is_own else None, moved)


def is_excused(problem: RuntimeError, values: Values) -> bool:
    """Whether a call that PyTorch refused may have another error to report: arrays that do not fit into memory, that
    are not dense, or that a transform has wrapped."""
    if is_out_of_memory(problem) or tensors.is_about_values(problem) or not all(map(tensors.is_dense, values)):
        return True
    return isinstance(problem, NotImplementedError) and differentiates_again()


def _all(checks: list[Callable[[Values], bool]], values: Values) -> bool:
    return all(check(values) for check in checks)


# ------------------------------------------------------------------------------------- conversions


def _is_read(backend: str, tensor: ir.Input, value: Any) -> bool:
    """Whether the values in an array decide if it fits: of a library without bf16 those for it, the widest wholes, of
    which not all are i64, and plain numbers for 8 bits."""
    if not hasattr(value, "dtype"):
        return tensor.dtype in STORED_ONLY
    return str(value.dtype).endswith("uint64") or (tensor.dtype == "bf16" and not dialect(backend).has_bfloat16)


def _conversion(call: Call, name: str, value: Any) -> Callable[[Any], Any] | None:
    """Return the conversion of an array to the one that the function takes; None where it is taken as it is."""
    dtype = call.arguments[name].dtype
    if call.values[name] is value or (dtype is None and not hasattr(value, "dtype")):
        return None
    if call.backend == "torch":
        return partial(tensors.finished, dtype=dtype, device=tensors.device_of(call.values))
    if call.backend == "jax":
        return partial(jax_arrays.finished, dtype=dtype)
    return partial(_numpy, dtype=dtype)


def _numpy(value: Any, dtype: Dtype | None) -> Any:
    array = np.asarray(jax_arrays.to_numpy(tensors.to_numpy(value)))
    return as_numpy(array if dtype is None else rounded(array, dtype), dtype)


def _moving(function: Callable[..., Any], moved: tuple[Callable[[Any], Any] | None, ...]) -> Callable[..., Any]:
    """A function of the values as a call has them."""
    return partial(_converted, function, moved) if any(moved) else function


def _converted(function: Callable[..., Any], conversions: tuple[Callable[[Any], Any] | None, ...], *values: Any) -> Any:
    return function(*[v if c is None else c(v) for v, c in zip(values, conversions, strict=True)])


# ------------------------------------------------------------------------------------------ checks


def _checks(call: Call, parts: tuple[Part, ...], values: Values) -> list[Callable[[Values], bool]] | None:
    """The checks that the emitted function does not make; None where each call has to be bound to make them."""
    checks: list[Callable[[Values], bool]] = []
    places = _places(call.program)
    covers = {test for let in call.program.lets if not is_plain(let) for test in _covering(let, places)}
    tests = _room(call, parts) | _agreements(call.program, places) | covers
    if None in tests:
        given = zip(call.program.inputs, values, strict=True)
        if any(tensor.kind == "whole" and not tensor.axes and hasattr(value, "dtype") for tensor, value in given):
            return None
        checks.append(partial(_was_seen, {_sizes(values)}))
    elif tests:
        source = f"lambda arrays: {' and '.join(sorted(str(test) for test in tests))}"
        checks.append(eval(source, {"prod": math.prod}))
    if any(part.derives for part in parts):
        checks.append(_takes_no_gradient)
    return checks


def _takes_no_gradient(values: Values) -> bool:
    """A derivative that is to be differentiated again is computed in another way, which may be worth a warning."""
    learns = any(getattr(value, "requires_grad", False) for value in values)
    return not (learns and tensors.load_torch().is_grad_enabled())


def _sizes(values: Values) -> Signature:
    return tuple([value.shape if hasattr(value, "shape") else value for value in values])


def _was_seen(seen: set[Signature], values: Values) -> bool:
    """Whether clauses are known to cover their boxes for arrays of these sizes."""
    return _sizes(values) in seen


def learn_sizes(found: Known, values: Values) -> None:
    """Remember that arrays of these sizes fit."""
    checks = found.fits.args[0] if isinstance(found.fits, partial) and found.fits.func is _all else [found.fits]
    for check in checks:
        if isinstance(check, partial) and check.func is _was_seen and len(check.args[0]) < _MOST_SIZES:
            check.args[0].add(_sizes(values))


def _room(call: Call, parts: tuple[Part, ...]) -> set[str | None]:
    """Tests that no definition has more points than there is memory, as text about the shapes of `arrays`: a system
    that promises more than it has would end the process. None is one that takes more than sizes to say.

    What an attention gathers has the rows of its queries and the width of its values, and is left out."""
    if call.device != "cpu":
        return set()
    places = _places(call.program)
    found: set[str | None] = set()
    for part in parts:
        extents = [_spelled(extent, places) for extent in part.array.extents]
        if not part.attends and extents:
            points = " * ".join(sorted(str(extent) for extent in extents))
            found.add(None if None in extents else f"{points} <= {MEMORY}")
    return found


def _agreements(program: ir.Program, places: Mapping[Coordinate, str]) -> set[str | None]:
    """Tests that a coordinate has the size of every axis that it indexes, in the same words. Kernels that read an array
    part by part do not ask."""
    found: set[str | None] = set()
    for pair in agreed(program):
        sides = [_spelled(side, places) for side in pair]
        found.add(None if None in sides else f"{sides[0]} == {sides[1]}")
    return found


def _covering(let: ir.Let, places: Mapping[Coordinate, str]) -> set[str | None]:
    """Tests that clauses cover their box, where they follow one another along an axis and have all of the others: then
    each has to begin before it ends. None where they lie otherwise."""
    own_axes = range(let.captured, len(let.axes))
    split = [axis for axis in own_axes if not all(_is_whole(let, clause, axis) for clause in let.clauses)]
    if len(split) != 1:
        return {None}
    found: set[str | None] = set()
    waiting = []
    for clause in let.clauses:
        slot = clause.slots[split[0]]
        if isinstance(slot, ir.Coord):
            own = next(r for r in clause.ranges if r.coordinate == slot.coordinate)
            waiting.append((polynomial(own.lower), polynomial(own.upper)))
            ends = _spelled(own.lower, places), _spelled(own.upper, places)
            found.add(None if None in ends else f"{ends[0]} <= {ends[1]}")
        else:
            waiting.append((polynomial(slot), polynomial(slot) + 1))
    reached = number(0)
    while (following := next((piece for piece in waiting if piece[0] == reached), None)) is not None:
        waiting.remove(following)
        reached = following[1]
    return found if not waiting and reached == polynomial(let.axes[split[0]].extent) else {None}


def _is_whole(let: ir.Let, clause: ir.Clause, axis: int) -> bool:
    """Whether a clause has all points of an axis."""
    slot = clause.slots[axis]
    if not isinstance(slot, ir.Coord):
        return False
    own = next(r for r in clause.ranges if r.coordinate == slot.coordinate)
    return polynomial(own.lower) == number(0) and polynomial(own.upper) == polynomial(let.axes[axis].extent)


def _places(program: ir.Program) -> dict[Coordinate, str]:
    """Return the expression that reads the size of each coordinate off the shapes of the arrays."""
    places: dict[Coordinate, str] = {}
    for n, tensor in enumerate(program.inputs):
        for m, axis in enumerate(tensor.axes):
            behind = len(tensor.axes) - m
            if axis.coordinate.rest and isinstance(axis.extent, ir.Size):
                tail = f":-{behind - 1}" if behind > 1 else ":"
                places.setdefault(axis.extent.coordinate, f"prod(arrays[{n}].shape[{tail}])")
            elif isinstance(axis.extent, ir.Size):
                places.setdefault(axis.extent.coordinate, f"arrays[{n}].shape[-{behind}]")
    return places


def _spelled(expr: ir.Expr, places: Mapping[Coordinate, str]) -> str | None:
    """An extent as text about the shapes; None where it is more than sums, products and parts of sizes."""
    match expr:
        case ir.Const(int(value)):
            return str(value)
        case ir.Size(coordinate):
            return places.get(coordinate)
        case ir.Map("+" | "*" | "-" as op, (left, right)):
            sides = _spelled(left, places), _spelled(right, places)
            return None if None in sides else f"({sides[0]} {op} {sides[1]})"
        case ir.Map("//", (left, ir.Const(int(divisor)))) if divisor > 0:
            whole = _spelled(left, places)
            return None if whole is None else f"({whole} // {divisor})"
        case ir.Map("max" | "min" as op, arguments):
            each = [_spelled(argument, places) for argument in arguments]
            return None if None in each else f"{op}({', '.join(map(str, each))})"
        case _:
            return None
