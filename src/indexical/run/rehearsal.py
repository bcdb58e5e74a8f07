"""A call that is rehearsed: an emitted function runs on tensors that have sizes and no numbers, forward and backward.

PyTorch's own rules say what each operation makes and what autograd keeps of it, so that the bytes that are there at
once are counted, and not estimated. What an operator of ours needs for itself is found in a trial: it runs once, with
numbers, for each of the sizes that it meets.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import field
from functools import cache
from typing import Any

from ..plan.budget import Place, Trace
from ..records import dataclass
from . import tensors

# What a multiplication costs, in bytes that are moved.
_BYTES_A_PRODUCT = 1 / 8
# Tensors of whole numbers and tests of up to so many points are computed, where they follow from sizes alone.
_SHADED = 1 << 22


class Unforeseen(Exception):
    """The sizes of this call depend on the numbers in its arrays."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor without its numbers. `value` is that of a single whole number, which may decide sizes."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    device: str
    learns: bool
    value: Any = None


def shape_of(value: Any) -> Any:
    """An input without its numbers; a Python number as it is."""
    if not tensors.is_tensor(value):
        return value
    known = value.item() if value.numel() == 1 and not value.is_floating_point() else None
    return Shape(tuple(value.shape), value.stride(), value.dtype, str(value.device), value.requires_grad, known)


@dataclass
class Record:
    """All that is seen in a rehearsal: the bytes that are there, by number of the storage; the most there ever were;
    and for each paragraph what it keeps, needs beside that, and costs."""

    places: list[Place]
    sizes: dict[int, int] = field(default_factory=dict)
    born: dict[int, int] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    watched: dict[int, Any] = field(default_factory=dict)
    held: list[int] = field(default_factory=list)
    live: int = 0
    peak: int = 0
    at: int = 0
    is_back: bool = False

    def number(self, tensor: Any) -> int:
        """The number of the storage of a tensor, which is counted from now on until it is freed."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.numbers:
            number, size = len(self.sizes), storage.nbytes()
            self.numbers[key], self.sizes[number], self.born[number] = number, size, self.at
            self.live += size
            self.watched[number] = weakref.ref(storage, lambda _: self.free(key, number))
        return self.numbers[key]

    def free(self, key: int, number: int) -> None:
        self.live -= self.sizes[number]
        self.numbers.pop(key, None)
        self.watched.pop(number, None)
        if number in self.first:
            self.held[self.first[number]] -= self.sizes[number]

    def admit(self, given: list[Any]) -> int:
        """Take the inputs, which are there before the call and are not counted; how many bytes they have."""
        for one in given:
            self.first[self.number(one)] = 0
        total, self.live = self.live, 0
        self.sizes = dict.fromkeys(self.sizes, 0)
        return total

    def keep(self, tensor: Any) -> None:
        """Autograd keeps a tensor, for the paragraph that runs."""
        number = self.number(tensor)
        self.places[self.at].kept.add(number)
        if number not in self.first:
            self.first[number] = self.at
            self.held[self.at] += self.sizes[number]

    def look(self, more: int = 0) -> None:
        """Compare what is there, and what an operation needs for itself, with the most so far."""
        self.peak = max(self.peak, self.live + more)
        place, beside = self.places[self.at], self.live + more - sum(self.held[: self.at + 1])
        if self.is_back:
            place.back = max(place.back, beside)
        else:
            place.there = max(place.there, beside)


def rehearsed(
    function: Callable[..., Any], shapes: Sequence[Any], paragraphs: int, learns: bool, tried: dict[Any, int]
) -> Trace:
    """Run an emitted function without numbers, and on the way back from all its results, where it `learns`. It calls
    `mark` where one of its paragraphs begins, if there are several. What operators need for themselves is `tried`."""
    torch = tensors.load_torch()
    from torch._subclasses import fake_tensor as fake

    unknown: tuple[type[Exception], ...] = fake.DataDependentOutputException, fake.DynamicOutputShapeException
    unknown = *unknown, fake.UnsupportedFakeTensorException, fake.UnsupportedOperatorException
    record = Record([Place() for _ in range(paragraphs)])
    record.held = [0] * paragraphs
    with fake.FakeTensorMode(), torch.inference_mode(False), torch.set_grad_enabled(learns):
        given = [_fake(torch, shape) if isinstance(shape, Shape) else shape for shape in shapes]
        inputs = record.admit([one for one in given if tensors.is_tensor(one)])
        try:
            with _ledger()(record, tried), _kept(torch, record) if paragraphs > 1 else nullcontext():
                function.__globals__["mark"] = _mark(record)
                results = function(*given)
                _go_back(torch, results, record) if learns else None
        except unknown as problem:
            raise Unforeseen(f"`{getattr(problem, 'func', problem)}` depends on the numbers in the arrays") from None
        finally:
            function.__globals__.pop("mark", None)
    return Trace(tuple(record.places), dict(record.sizes), dict(record.born), record.peak, inputs)


def _fake(torch: Any, shape: Shape) -> Any:
    made = torch.empty_strided(shape.sizes, shape.strides, dtype=shape.dtype, device=shape.device)
    if shape.value is not None:
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():
            made.shade = torch.full(shape.sizes, shape.value, dtype=shape.dtype, device=shape.device)
    return made.requires_grad_(shape.learns)


def _mark(record: Record) -> Callable[[int], None]:
    """A function that is called where a paragraph begins, and looks at the variables of its caller."""

    def mark(number: int) -> None:
        record.at = number
        names = sys._getframe(1).f_locals
        place = record.places[number]
        for name, value in names.items():
            if tensors.is_tensor(value):
                place.arrays[name] = record.number(value)
            elif not _is_plain(value):
                place.odd.add(name)

    return mark


def _is_plain(value: Any) -> bool:
    """Whether a value holds no tensor, and is none."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, int | float | str) or type(value).__module__ == "torch"


@contextmanager
def _kept(torch: Any, record: Record) -> Iterator[None]:
    """Say of every tensor that autograd keeps for which paragraph it is, and go to that paragraph on the way back."""

    def pack(tensor: Any) -> Any:
        if not record.is_back:
            record.keep(tensor)
        return record.at, tensor

    def unpack(packed: Any) -> Any:
        place, tensor = packed
        if record.is_back:
            record.at = min(record.at, place)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


def _go_back(torch: Any, results: Any, record: Record) -> None:
    """The way back from all results at once, with a gradient of each."""
    results = [one for one in (results if isinstance(results, tuple) else (results,)) if one.requires_grad]
    record.is_back = True
    if results:
        torch.autograd.backward(results, [torch.ones_like(one) for one in results])


@cache
def _ledger() -> Any:
    """The mode that sees every operation. The class is made once PyTorch is loaded."""
    torch = tensors.load_torch()
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
    from torch.utils._pytree import tree_leaves, tree_map
    from torch.utils.flop_counter import flop_registry

    aten = torch.ops.aten
    asking = (aten._local_scalar_dense.default, aten.item.default, aten.is_nonzero.default)

    class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __init__(self, record: Record, tried: dict[Any, int] | None = None) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.record = record
            # The memory that operators need for themselves, as far as they were tried; None while one is.
            self.tried = tried

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function.namespace == "prim":  # It asks for the device of a tensor, or the like.
                return function(*args, **kwargs)
            if function in asking and self.tried is not None:
                return self.answer(args[0])
            out = function(*args, **kwargs)
            read, made = arrays_in((args, kwargs)), arrays_in(out)
            for one in made:
                self.record.number(one)
            if self.tried is None:
                self.record.look(_inside(function, args))
                return out
            self.shade(function, args, kwargs, read, made)
            self.record.look(self.inside(function, args, kwargs))
            if not self.record.is_back:
                self.record.places[self.record.at].work += work_of(function, args, kwargs, out, read, made)
            return out

        def shade(self, function: Any, args: Any, kwargs: Any, read: list[Any], made: list[Any]) -> None:
            """Compute small tensors that follow from sizes: bounds of keys, masks, places."""
            for one in made:
                one.made_by = function.overloadpacket
            small = all(one.numel() <= _SHADED and not one.is_floating_point() and one.is_cpu for one in made)
            if small and made and all(getattr(one, "shade", None) is not None for one in read):
                with _disable_current_modes():
                    found = arrays_in(function(*shades(args), **shades(kwargs)))
                for one, shade in zip(made, found, strict=True):
                    one.shade = shade
            elif function._schema.is_mutable:
                for one in made:
                    one.shade = None

        def inside(self, function: Any, args: Any, kwargs: Any) -> int:
            """The memory that an operation needs for itself: of an operator of ours, as it is found in a trial."""
            body = _bodies().get(function.name().split(".")[0])
            if body is None or self.tried is None:
                return _inside(function, args)
            sizes = [(one.shape, one.dtype) if isinstance(one, torch.Tensor) else str(one) for one in tree_leaves(args)]
            key = (function, *sizes)
            if key not in self.tried:
                with _disable_current_modes(), torch.no_grad():
                    given = tree_map(real, args)
                    record = Record([Place()], held=[0])
                    record.admit(arrays_in(given))
                    with Ledger(record):
                        found = arrays_in(body(*given, **kwargs))
                self.tried[key] = record.peak - sum(one.numel() * one.element_size() for one in found)
            return self.tried[key]

        def answer(self, tensor: Any) -> Any:
            """The number in a tensor, where it is known; of a test, the one that lets the call go on."""
            shade, made = getattr(tensor, "shade", None), getattr(tensor, "made_by", None)
            if shade is not None:
                with _disable_current_modes():
                    return shade.item()
            if tensor.is_floating_point():
                return 0.0  # It is asked whether it is finite.
            if made in (aten.any, aten.all):
                return made is aten.all
            if made in (aten.aminmax, aten.amin, aten.amax):
                return 0  # The least and the largest of some places, which are among the points.
            raise Unforeseen("a number in its arrays decides how it goes on")

    def arrays_in(tree: Any) -> list[Any]:
        return [one for one in tree_leaves(tree) if isinstance(one, torch.Tensor)]

    def shades(tree: Any) -> Any:
        return tree_map(lambda one: one.shade if isinstance(one, torch.Tensor) else one, tree)

    def real(one: Any) -> Any:
        """A tensor with numbers: those that are known, else zeros."""
        if not isinstance(one, torch.Tensor):
            return one
        shade = getattr(one, "shade", None)
        made = torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device)
        return made.zero_() if shade is None else shade

    def work_of(function: Any, args: Any, kwargs: Any, out: Any, read: list[Any], made: list[Any]) -> float:
        """The cost of an operation, in bytes that are moved."""
        if function.is_view:
            return 0.0
        moved = sum(one.numel() * one.element_size() for one in (*read, *made))
        products: Any = 0.0
        if function.overloadpacket in flop_registry:
            products = flop_registry[function.overloadpacket](*args, **kwargs, out_val=out)
        elif function.namespace not in ("aten", "prims") and made:  # An attention that is written by hand.
            keys = [one.shape[-2] for one in read if one.dim() > 1]
            products = 4.0 * made[0].numel() * max(keys, default=1)
        return float(moved + products * _BYTES_A_PRODUCT)

    return Ledger


def _bodies() -> Any:
    """The functions that our operators run; none where no kernel with one is loaded."""
    module = sys.modules.get(f"{__name__.partition('.')[0]}.backends.kernels.torch_operator")
    return {} if module is None else module.bodies


def _inside(function: Any, args: Any) -> int:
    """The memory that PyTorch's attention on a CPU needs for itself: a block of scores for every thread, and on the way
    back two, and a copy of the gradient."""
    name = function.name().split(".")[0]
    if not name.startswith("aten::_scaled_dot_product_flash_attention_for_cpu"):
        return 0
    is_back = name.endswith("_backward")
    query, key = args[1:3] if is_back else args[:2]
    rows, keys, width = query.shape[-2], min(512, key.shape[-2]), query.shape[-1]
    height = 256 if rows >= 768 else 64 if rows >= 192 else 32
    half = query.element_size() == 2
    threads = tensors.load_torch().get_num_threads()
    if is_back:
        return int(threads * height * keys * (12 if half else 8) + query.numel() * query.element_size())
    return int(threads * height * ((keys + width + 2) * 4 + (2 * keys if half else 0)))
