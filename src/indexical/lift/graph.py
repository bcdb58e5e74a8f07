"""The tensors of several runs as one graph: what differs between the runs is a size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..diagnostics import CallError
from . import elementwise, equations, layouts, orders, reductions
from .arguments import FROM_OUTSIDE, KEEP_NUMBERS, ON_VALUES, free_name, held_names, identifier, kind_of, refusal
from .constants import constant
from .recording import Call, Recording, Ref, Site, flat
from .rules import RULES, Asked, Unfit, Unreadable
from .sizes import Fit, Group
from .values import Leaf, Node, Opaque, Patched, Shape, View, sources_of

# The rules are in their table once their modules are loaded.
_RULES = (elementwise, equations, layouts, orders, reductions)

# What only places a tensor, or says nothing about its value.
_PLACING = frozenset(("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "generator", "copy"))
_IGNORED = frozenset(
    ("_assert_async", "_assert_tensor_metadata", "record_stream", "is_same_size", "sym_size", "_has_same_storage_numel")
)
HELP = "`ix.audit` can still probe the callable from outside"
_IN_PLACE = "make a new tensor instead: `torch.where`, `torch.cat`"
_RANDOM = ("dropout", "bernoulli", "rand", "normal", "multinomial", "uniform", "exponential")


def _last_uses(recording: Recording) -> dict[int, int]:
    """The last operation that takes each tensor; a result is taken after all of them."""
    found: dict[int, int] = {}
    for place, call in enumerate(recording.calls):
        for part in (*flat(call.arguments), *flat(call.keywords)):
            if isinstance(part, Ref):
                found[part.number] = place
    for part in flat(recording.result):
        if isinstance(part, Ref):
            found[part.number] = len(recording.calls)
    return found


def _because(name: str) -> str:
    if any(word in name for word in _RANDOM):
        return ": its result is random; a module is read after `.eval()`"
    return ": there is no rule for it"


class Graph:
    """The tensors of several runs at once: what differs between them is a size."""

    def __init__(
        self,
        function: Callable[..., Any],
        names: list[str],
        groups: list[Group],
        recordings: list[Recording],
        given: list[list[Any]],
    ) -> None:
        self._names = names
        self.recordings = recordings
        self.fit = Fit(tuple(group.extent for group in groups))
        self.nodes: dict[int, Node] = {}
        self.leaves: list[Leaf] = []
        self.given = given
        self._named = held_names(function)
        self._name_inputs()
        self._viewed: dict[int, tuple[Ref, View]] = {}
        self._last_use = _last_uses(recordings[0])
        for number_of_call in range(len(recordings[0].calls)):
            self._step(number_of_call, [recording.calls[number_of_call] for recording in recordings])

    # ------------------------------------------------------------------------------- leaves

    def _name_inputs(self) -> None:
        for place, name in enumerate(self._names):
            tensors = [drawn[place] for drawn in self.given]
            leaf = Leaf(self._shape_of(tensors, None), kind_of(tensors[0]), name, tensors[0], True)
            self.leaves.append(leaf)
            for recording, tensor in zip(self.recordings, tensors, strict=True):
                number_of = recording.numbers.get(id(tensor))
                if number_of is not None:
                    self.nodes[number_of] = leaf

    def _leaf(self, number_of: int, site: Site | None) -> Node:
        """A tensor that the callable holds: a parameter, a constant, or a pattern that has a relation."""
        import torch

        tensors = [recording.tensors[number_of] for recording in self.recordings]
        name = self._named.get(id(tensors[0])) or self.recordings[0].held.get(number_of)
        shape = self._shape_of(tensors, site)
        learned = isinstance(tensors[0], torch.nn.Parameter)
        found = None if learned else constant(tensors, shape, kind_of(tensors[0]), site)
        if found is not None:
            return found
        if any(tensor is not tensors[0] for tensor in tensors):
            first = tensors[0]
            if any(t.shape != first.shape or not bool((t == first).all()) for t in tensors):
                raise refusal(
                    "IX602",
                    "a tensor that is made outside of the library's operations differs from run to run",
                    site,
                    f"what NumPy computes is not read, but {FROM_OUTSIDE}; make it with the library of the arrays, or "
                    "pass it",
                )
        taken = {leaf.name for leaf in self.leaves}
        chosen = free_name(identifier(name or "constant"), taken)
        leaf = Leaf(shape, kind_of(tensors[0]), chosen, tensors[0], False)
        self.leaves.append(leaf)
        return leaf

    def _node(self, number_of: int, site: Site | None) -> Node:
        if number_of not in self.nodes:
            self.nodes[number_of] = self._leaf(number_of, site)
        return self.nodes[number_of]

    def _shape_of(self, tensors: Sequence[Any], site: Site | None) -> Shape:
        extents = []
        for sizes in zip(*(tuple(tensor.shape) for tensor in tensors), strict=True):
            extent = self.fit.extent(sizes)
            if extent is None:
                shown = ", ".join(map(str, sizes))
                raise Unfit(f"an axis of sizes {shown} is no simple function of the sizes of the arguments")
            extents.append(extent)
        return tuple(extents)

    # ------------------------------------------------------------------------------- operations

    def _step(self, number_of_call: int, calls: list[Call]) -> None:
        call = calls[0]
        name = call.name.removeprefix("aten.").split(".")[0]
        written = name.endswith("_") and not name.endswith("__")
        rule = RULES.get(name.removesuffix("_") if written else name)
        if name in _IGNORED:
            return
        if name == "_local_scalar_dense":
            self._check_constant(call)
            return
        problem = self._unread_argument(call)
        if problem is None and rule is None:
            problem = refusal("IX602", f"`{name}` cannot be read" + _because(name), call.site, HELP)
        if problem is None:
            try:
                self._apply(rule, name, calls)
            except (Unfit, CallError) as found:
                problem = found
        if problem is not None:
            self._hide(call, written, problem)
        elif written:
            self._write_back(number_of_call, call)

    def _unread_argument(self, call: Call) -> Exception | None:
        """The reason why an argument could not be read."""
        for ref in (*flat(call.arguments), *flat(call.keywords)):
            node = self.nodes.get(ref.number) if isinstance(ref, Ref) else None
            if isinstance(node, Opaque):
                return node.problem
        return None

    def _hide(self, call: Call, written: bool, problem: Exception) -> None:
        """Leave the results of an operation unread, and all that looks at the tensor that it writes."""
        tensors = self.recordings[0].tensors
        hidden = {ref.number for ref in flat(call.result) if isinstance(ref, Ref)}
        for ref in (*flat(call.arguments), *flat(call.keywords)) if written else ():
            if isinstance(ref, Ref):
                mine = tensors[ref.number].untyped_storage().data_ptr()
                hidden |= {n for n, tensor in enumerate(tensors) if tensor.untyped_storage().data_ptr() == mine}
                break
        for number_of in hidden:
            self.nodes[number_of] = Opaque((), kind_of(tensors[number_of]), problem=problem, site=call.site)

    def _apply(self, rule: Any, name: str, calls: list[Call]) -> None:
        call = calls[0]
        try:
            arguments = self._merged([c.arguments for c in calls], call.site)
            keywords = {key: self._merged([c.keywords[key] for c in calls], call.site) for key in call.keywords}
            refs = [ref for ref in flat(call.result) if isinstance(ref, Ref)]
            shapes = [self._shape_of([r.tensors[ref.number] for r in self.recordings], call.site) for ref in refs]
            kinds = [kind_of(self.recordings[0].tensors[ref.number]) for ref in refs]
            made = rule(
                Asked(shapes, kinds, call.site), *arguments, **{k: v for k, v in keywords.items() if k not in _PLACING}
            )
        except Unfit as problem:
            problem.site = call.site
            raise
        except Unreadable as problem:
            raise refusal("IX602", f"`{name}` cannot be read: {problem}", call.site, HELP) from None
        for ref, node in zip(refs, made if isinstance(made, tuple) else (made,), strict=False):
            if node is None:
                unread = refusal("IX602", f"the places that `{name}` gives cannot be read", call.site, HELP)
                self.nodes[ref.number] = Opaque((), "whole", problem=unread, site=call.site)
                continue
            if node.shape != shapes[refs.index(ref)]:
                raise refusal("IX602", f"the shape of `{name}` cannot be followed", call.site, HELP)
            self.nodes[ref.number] = node
            if isinstance(node, View) and call.arguments and isinstance(call.arguments[0], Ref):
                self._viewed[ref.number] = (call.arguments[0], node)

    def _merged(self, values: list[Any], site: Site | None) -> Any:
        """An argument of several runs as one: tensors as nodes, numbers as sizes."""
        first = values[0]
        match first:
            case Ref(number=number_of):
                return self._node(number_of, site)
            case bool() | str() | None:
                return first
            case int():
                found = self.fit.whole(tuple(values))
                if found is None:
                    raise Unfit(f"the numbers {', '.join(map(str, values))} are no simple function of the sizes")
                return found
            case float():
                scale = self.fit.real(tuple(values))
                if scale is None:
                    raise Unfit(f"the numbers {', '.join(map(str, values))} are no simple function of the sizes")
                return scale
            case tuple():
                if len({len(value) for value in values}) > 1:
                    raise Unreadable("it takes more or fewer arguments on other sizes")
                return tuple(self._merged(list(parts), site) for parts in zip(*values, strict=True))
        return first

    def _write_back(self, number_of_call: int, call: Call) -> None:
        """A write in place is seen by the tensor that it is a part of; nobody else may look at it later."""
        target = call.arguments[0]
        if not isinstance(target, Ref):
            return
        node = self.nodes[flat(call.result)[0].number]
        seen = {target.number}
        self.nodes[target.number] = node
        while target.number in self._viewed and self._stale(number_of_call, target, seen) is not None:
            source, view = self._viewed[target.number]
            if view.inverse is None or view.source is not self.nodes[source.number]:
                raise refusal(
                    "IX602",
                    "a part of a tensor is changed in place in a way that cannot be followed",
                    call.site,
                    _IN_PLACE,
                )
            whole = self.nodes[source.number]
            node = Patched(whole.shape, whole.kind, source=whole, part=node, inverse=view.inverse, site=call.site)
            self.nodes[source.number] = node
            seen.add(source.number)
            target = source
        if self._stale(number_of_call, target, seen) is not None:
            raise refusal("IX602", "a tensor is changed in place while another one looks at it", call.site, _IN_PLACE)

    def _stale(self, number_of_call: int, target: Ref, seen: set[int]) -> int | None:
        """A tensor that shares its elements with one that is written, and is used after that."""
        tensors = self.recordings[0].tensors
        mine = tensors[target.number].untyped_storage().data_ptr()
        for other, last in self._last_use.items():
            later = other not in seen and last > number_of_call and other in self.nodes
            if later and tensors[other].untyped_storage().data_ptr() == mine:
                return other
        return None

    def _check_constant(self, call: Call) -> None:
        for ref in flat(call.arguments):
            if isinstance(ref, Ref) and self._depends(self._node(ref.number, call.site)):
                raise refusal(
                    "IX602",
                    ON_VALUES,
                    call.site,
                    KEEP_NUMBERS,
                )

    def _depends(self, node: Node) -> bool:
        if isinstance(node, Leaf | Opaque):
            return isinstance(node, Opaque) or node.given
        return any(self._depends(source) for source in sources_of(node))

    def results(self) -> list[Node]:
        refs = [ref for ref in flat(self.recordings[0].result) if isinstance(ref, Ref)]
        if not refs:
            help = f"what NumPy computes is not read, but {FROM_OUTSIDE}"
            raise refusal("IX601", "the callable returns no tensor", help=help)
        nodes = [self._node(ref.number, None) for ref in refs]
        for node in nodes:
            if isinstance(node, Opaque):
                raise node.problem
        return nodes
