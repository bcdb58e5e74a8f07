"""What a kernel takes of memory: it runs once by itself, there and back, on arrays of its sizes, and is watched.

The ledger knows the bytes of every operation; a kernel that is no operation yet says here what it allocates, and what
it keeps between the two ways.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from ..backends.opaque import Former
from ..engine.counted import Counted
from ..engine.dialects import dialect
from ..engine.kept import Taken
from ..engine.kernel_texts import KERNELS
from ..engine.ops import Input, Opaque, Value, value
from ..engine.ops import Plan as Operations
from ..engine.order import reachable
from ..engine.products import Order
from ..engine.show import emit
from ..ir import nodes as ir
from ..ir.types import LIBRARY_NAMES, Dtype
from ..plan.steps import Plan
from ..records import replace
from . import tensors
from .kernel import Call, load

# A number that functions of all kinds are defined at.
_SOME = 0.5


class Refused(Exception):
    """A kernel refused the numbers of its trial, with these words."""


class Trials:
    """The kernels of one plan, each tried once for its sizes."""

    def __init__(self, plan: Plan, call: Call, counted: Counted, room: int) -> None:
        assert plan.arrays is not None
        self.plan, self.operations, self.call, self.counted, self.room = plan, plan.arrays, call, counted, room
        self.torch = tensors.load_torch()
        self.found: dict[object, Taken] = {}

    def __call__(self, one: Value, learned: frozenset[str], orders: tuple[Order, ...]) -> Taken:
        """What a kernel takes, where gradients to some of its operands are asked for. Its definitions, and those of
        others that differ in names alone, are tried together."""
        kernel = one.op.step  # type: ignore[union-attr]
        lies = {name: order for (name, _), order in zip(one.op.operands, orders, strict=True)}  # type: ignore[union-attr]
        given = [(self._like(part, lies[name]), name in learned) for name, part in one.op.operands]  # type: ignore[union-attr]
        key = kernel.label, kernel.kind, tuple(given), self._like(one, ()), len(kernel.definitions)
        if key not in self.found:
            self.found[key] = self._tried(one, learned, lies)
        taken = self.found[key]
        names = [*(name for name, _ in one.op.operands), *kernel.definitions]  # type: ignore[union-attr]
        return replace(taken, names=frozenset(names[n] for n in taken.places))

    def _like(self, one: Value, order: Order) -> object:
        """What two arrays have in common that a kernel takes alike, whatever their axes are called."""
        names = [axis.name for axis in one.axes]
        sizes = tuple(self.counted.extent(axis.extent) for axis in one.axes)
        return one.dtype, sizes, one.is_host, tuple(names.index(name) for name in order)

    def _tried(self, one: Value, learned: frozenset[str], lies: Mapping[str, Order]) -> Taken:
        """The kernel by itself: printed, and run."""
        torch, op = self.torch, one.op
        assert isinstance(op, Opaque)
        apart, names = self._alone(op)
        module = emit(apart, dialect(self.call.backend), self.call.arguments, Former(self.plan, room=self.room))
        kernel = load(module.linked(), apart.wanted, ())
        watch = _watch()()
        with torch.inference_mode(False), torch.set_grad_enabled(bool(learned)):
            given = [self._given(part, lies, learned) for part in apart.inputs]
            pairs = zip(map(_name, apart.inputs), given, strict=True)
            arrays = {name: x for name, x in pairs if name in names}
            watch.admit([x for x in given if tensors.is_tensor(x)])
            keys = {name: watch.key(x) for name, x in arrays.items() if tensors.is_tensor(x)}
            edges = {
                name: torch.autograd.graph.get_gradient_edge(x)
                for name, x in arrays.items()
                if name in learned and tensors.is_tensor(x) and x.requires_grad
            }
            try:
                with watch:
                    results = kernel.function(*given)
            except kernel.refused as problem:
                raise Refused(problem.args[-1]) from None
            del given, arrays
            return self._summed(watch, results if isinstance(results, tuple) else (results,), keys, edges, op)

    def _summed(self, watch: Any, results: tuple[Any, ...], keys: Mapping[str, int], edges: Any, op: Opaque) -> Taken:
        """What was there in all, and what is left; then the way back."""
        made = sum(one.untyped_storage().nbytes() for one in results)
        own = dict(zip(op.step.definitions, map(watch.key, results), strict=False))
        kept = max(0, watch.live - made)
        there = max(0, watch.peak - made - kept)
        live = [one for one in results if one.requires_grad]
        ends = [self.torch.autograd.graph.get_gradient_edge(one) for one in live]
        arriving = [self.torch.ones_like(one) for one in live]
        watch.admit(arriving)
        del results, live
        places = [keys.get(name, -1) for name, _ in op.operands] + [own.get(name, -1) for name in op.step.definitions]
        held = frozenset(n for n, key in enumerate(places) if edges and key in watch.arrays)
        back = 0
        if ends and edges:
            start = watch.peak = watch.live
            with watch:
                found = self.torch.autograd.grad(ends, list(edges.values()), arriving, allow_unused=True)
            gradients = sum(one.untyped_storage().nbytes() for one in found if one is not None)
            back = max(0, watch.peak - start - gradients)
        return Taken(there, back, kept if edges else 0, places=held)

    def _alone(self, op: Opaque) -> tuple[Operations, dict[str, Value]]:
        """The operations of a kernel alone, its operands as inputs."""
        plan = self.operations
        names: dict[str, Value] = {}
        for name, part in op.operands:
            definition = plan.definitions.get(name)
            if definition is not None and not part.is_host:
                part = value(Input(name, definition.home, definition.kind, definition.dtype))
            names[name] = part
        new = replace(op, operands=tuple(names.items()))
        definitions = {
            name: replace(plan.definitions[name], value=value(replace(new, name=name, **_own(plan, name))))
            for name in op.step.definitions
            if name in plan.definitions
        }
        more = [(name, part) for name, part in names.items() if name in plan.definitions and not part.is_host]
        lets = plan.program.definitions
        inputs = tuple(
            ir.Input(name, lets[name].axes, part.kind, part.dtype, lets[name].span) for name, part in more
        )
        program = replace(plan.program, inputs=(*plan.program.inputs, *inputs))
        alone = replace(
            plan,
            program=program,
            inputs=(*plan.inputs, *(part for _, part in more)),
            definitions=definitions,
            wanted=tuple(definitions),
            agreed=(),
            checks=(),
            written=None,
        )
        return alone, names

    def _given(self, one: Value, lies: Mapping[str, Order], learned: Iterable[str]) -> Any:
        """An input of the trial: a scalar as it is, whole numbers as they are, and reals as some number."""
        torch, op = self.torch, one.op
        assert isinstance(op, Input)
        argument = self.call.arguments.get(op.name)
        if argument is not None and not op.home:
            number = self.call.bound.arrays[op.name].item() if op.kind != "real" else _SOME
            return number if argument.dtype is None else torch.as_tensor(number, dtype=self._dtype(argument.dtype))
        sizes = [self.counted.extent(axis.extent) for axis in op.home]
        some = _SOME if op.kind == "real" else 0
        start = torch.full((), some, dtype=self._dtype(op.dtype or "f32"), device=self.call.device)
        if op.name not in lies:
            return start.expand(sizes)
        if op.kind != "real":
            return self._whole(op, start.expand(sizes).clone())
        start.requires_grad_(op.name in learned)
        home = [axis.name for axis in op.home]
        order = [home.index(name) for name in lies[op.name]]
        if len(order) < len(home):
            return start.expand(sizes).clone()
        return start.expand([sizes[n] for n in order]).clone().permute([order.index(n) for n in range(len(home))])

    def _dtype(self, dtype: Dtype) -> Any:
        return getattr(self.torch, LIBRARY_NAMES[dtype])

    def _whole(self, op: Input, other: Any) -> Any:
        """Whole numbers and tests, which may decide how a kernel goes on: computed, where that takes no array."""
        known = self.call.values.get(op.name)
        if known is not None:
            return known.reshape(other.shape).to(other.dtype).clone() if tensors.is_tensor(known) else other
        plan = self.operations
        parts = reachable([plan.definitions[op.name].value])
        if any(isinstance(part.op, Opaque) or (isinstance(part.op, Input) and part.op.home) for part in parts):
            return other
        text = emit(replace(plan, wanted=(op.name,), checks=()), dialect(self.call.backend), self.call.arguments)
        given = [self._given(part, {}, ()) for part in plan.inputs]
        return load(text.linked(), (op.name,), ()).function(*given).reshape(other.shape).clone()


def _name(one: Value) -> str:
    assert isinstance(one.op, Input)
    return one.op.name


def _own(plan: Operations, name: str) -> dict[str, Any]:
    """What a definition of a kernel has of its own."""
    op = plan.definitions[name].value.op
    assert isinstance(op, Opaque)
    return {"home": op.home, "kind": op.kind, "dtype": op.dtype}


@cache
def _watch() -> Any:
    """The mode that counts arrays. The class is made once PyTorch is loaded."""
    torch = tensors.load_torch()
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """The bytes of all arrays that are there, and the most there ever were."""

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # To skip it, the library would load it, which takes seconds.

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.arrays: dict[int, Any] = {}
            self.live = self.peak = 0

        def key(self, tensor: Any) -> int:
            return int(tensor.untyped_storage()._cdata)

        def admit(self, some: Iterable[Any], is_counted: bool = False) -> None:
            """Know arrays until they are gone; those that are there already take nothing."""
            for one in some:
                storage, key = one.untyped_storage(), self.key(one)
                if key not in self.arrays:
                    size = storage.nbytes() if is_counted else 0
                    self.live += size
                    self.arrays[key] = weakref.finalize(storage, self.forget, key, size)

        def forget(self, key: int, size: int) -> None:
            self.live -= size
            del self.arrays[key]

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            body = _bodies().get(function.name().split(".")[0])
            if body is not None:
                with self, torch.no_grad():
                    return body(*args, **(kwargs or {}))
            found = function(*args, **(kwargs or {}))
            self.admit((one for one in tree_leaves(found) if isinstance(one, torch.Tensor)), is_counted=True)
            self.peak = max(self.peak, self.live + _inside(function, args, torch.get_num_threads()))
            return found

    return Watch


def _bodies() -> Any:
    """The functions that operators of ours run; none where no kernel with one is loaded."""
    return getattr(sys.modules.get(f"{KERNELS}.torch_operator"), "bodies", {})


def _inside(function: Any, args: Any, threads: int) -> int:
    """The bytes that PyTorch's attention on a CPU allocates unseen, for each thread: a block of scores and of sums, on
    the way back two of scores; there also a copy of the gradient."""
    name = function.name().partition(".")[0].removeprefix("aten::_scaled_dot_product_flash_attention_for_cpu")
    if name not in ("", "_backward"):
        return 0
    query, key = args[1:3] if name else args[:2]
    is_half = query.element_size() == 2
    length = query.shape[-2]
    rows = min(length, next(height for least, height in ((768, 256), (192, 64), (0, 32)) if length >= least))
    keys = min(512, key.shape[-2])
    if name:
        return int(threads * rows * keys * (8 + 4 * is_half) + query.nbytes)
    return int(threads * rows * (4 * (keys + query.shape[-1] + 2) + 2 * keys * is_half))
