"""Arrays between machines: the only place that speaks with `torch.distributed`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, TypeAlias

from ..diagnostics import CallError, Diagnostic
from ..records import dataclass, field
from .mesh import Mesh

Block: TypeAlias = tuple[int, ...]
Values: TypeAlias = dict[Block, Any]


@dataclass(frozen=True, slots=True)
class Transfer:
    """An array of this shape that goes from one block to another; `array` is there where the first is held."""

    source: Block
    target: Block
    shape: tuple[int, ...]
    array: Any = None


@dataclass
class Carrier:
    """All blocks in one process: what is sent is handed over, and counted as if it were sent. `sent` are the bytes that
    each rank has sent so far, of those that are held here."""

    mesh: Mesh
    owned: tuple[Block, ...]
    sent: dict[tuple[int, ...], int] = field(default_factory=dict)

    def rank(self, block: Block) -> tuple[int, ...]:
        """The rank that holds a block, along every dimension."""
        return tuple(self.mesh.rank_of(name, place) for name, place in zip(self.mesh.names, block, strict=True))

    def move(self, transfers: Sequence[Transfer], like: Any, dimension: str) -> Callable[[], list[Any]]:
        """Send arrays between blocks that differ along a dimension; the function that is returned waits, and gives
        those that arrive here, None for others."""
        for one in transfers:
            if one.array is not None and self.rank(one.source) != self.rank(one.target):
                self.count(one.source, one.array)
        return lambda: [one.array for one in transfers]

    def total(self, values: Values, dimension: str, op: str) -> Values:
        """The sum, or the largest or smallest, of the arrays of all blocks along a dimension, for each of them."""
        result: Values = {}
        for block in self.owned:
            line = [other for other in self.mesh.line(block, dimension) if other in values]
            if line[0] in result:
                result[block] = result[line[0]]
                continue
            joined = _joined([values[other] for other in line], op)
            for rank in dict.fromkeys(self.rank(other) for other in line):
                bytes = all_reduced(joined.numel() * joined.element_size(), self._ranks(dimension))
                self.sent[rank] = self.sent.get(rank, 0) + bytes
            result[block] = self.reduced(joined, dimension, op)
        return result

    def _ranks(self, dimension: str) -> int:
        return self.mesh.ranks[self.mesh.names.index(dimension)]

    def count(self, block: Block, array: Any) -> None:
        """Note that the rank of a block sends an array."""
        rank = self.rank(block)
        self.sent[rank] = self.sent.get(rank, 0) + array.numel() * array.element_size()

    def reduced(self, array: Any, dimension: str, op: str) -> Any:
        """The total over ranks of what each of them has."""
        return array

    def compared(self, figures: Sequence[int], dimension: str) -> list[list[int]]:
        """The figures of every process along a dimension."""
        return [list(figures)]


def all_reduced(bytes: int, ranks: int) -> int:
    """The bytes that a rank sends for a total: it goes round once to be added and once to be told."""
    return 2 * bytes * (ranks - 1) // ranks


def _joined(arrays: Sequence[Any], op: str) -> Any:
    import torch

    result = arrays[0]
    for array in arrays[1:]:
        result = result + array if op == "sum" else (torch.maximum if op == "max" else torch.minimum)(result, array)
    return result


@dataclass
class Processes(Carrier):
    """Blocks in processes of `torch.distributed`, each of which has the blocks of one place in a `DeviceMesh`."""

    device_mesh: Any = None
    timeout: float = 60.0

    def process(self, block: Block) -> int:
        """The process that holds a block."""
        return self._holders[block]

    @cached_property
    def _holders(self) -> dict[Block, int]:
        """The process of every block. A `DeviceMesh` works out its table anew whenever it is asked for it."""
        names, table = self.device_mesh.mesh_dim_names, self.device_mesh.mesh
        here = dict(zip(names, self.device_mesh.get_coordinate(), strict=True))
        found = {}
        for block in self.mesh.everything:
            place = dict(zip(self.mesh.names, self.rank(block), strict=True))
            found[block] = int(table[tuple({**here, **place}.values())])
        return found

    def group(self, dimension: str) -> Any:
        """The processes along a dimension."""
        return self.device_mesh.get_group(dimension)

    def move(self, transfers: Sequence[Transfer], like: Any, dimension: str) -> Callable[[], list[Any]]:
        """Send and receive what these transfers say; the function that is returned waits for it, and gives what
        arrived."""
        import torch
        import torch.distributed as dist

        me, group = dist.get_rank(), self.group(dimension)
        arrived: list[Any] = []
        calls: list[Any] = []
        others: list[int] = []
        for tag, one in enumerate(transfers):
            source, target = self.process(one.source), self.process(one.target)
            array = None
            if source == target:
                array = one.array
            elif source == me:
                self.count(one.source, one.array)
                calls.append(dist.P2POp(dist.isend, one.array.contiguous(), target, group, tag))
                others.append(target)
            elif target == me:
                array = torch.empty(one.shape, dtype=like.dtype, device=like.device)
                calls.append(dist.P2POp(dist.irecv, array, source, group, tag))
                others.append(source)
            arrived.append(array)
        works = _tried(lambda: dist.batch_isend_irecv(calls) if calls else [], "the others", self.timeout)

        def wait() -> list[Any]:
            for number, work in enumerate(works):
                who = f"process {others[number]}" if len(works) == len(others) else "another process"
                _tried(partial(work.wait, timedelta(seconds=self.timeout)), who, self.timeout)
            return arrived

        return wait

    def reduced(self, array: Any, dimension: str, op: str) -> Any:
        import torch
        import torch.distributed as dist

        # Ranks add up what lies at the same place: on all of them in the same order of axes.
        array = array.clone(memory_format=torch.contiguous_format)
        ops = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
        self._together(dimension, partial(dist.all_reduce, array, ops[op]))
        return array

    def compared(self, figures: Sequence[int], dimension: str) -> list[list[int]]:
        import torch
        import torch.distributed as dist

        mine = torch.tensor([*figures], dtype=torch.int64, device=self.device_mesh.device_type)
        everybody = [torch.empty_like(mine) for _ in range(self.group(dimension).size())]
        self._together(dimension, partial(dist.all_gather, everybody, mine))
        return [found.tolist() for found in everybody]

    def _together(self, dimension: str, call: Callable[..., Any]) -> None:
        """Do what all processes along a dimension do."""
        until, group = timedelta(seconds=self.timeout), self.group(dimension)

        def done() -> None:
            with _waiting(group, until):
                work = call(group=group, async_op=True)
            if work is not None:
                work.wait(until)

        _tried(done, f"a process along `{dimension}`", self.timeout)


@contextmanager
def _waiting(group: Any, until: timedelta) -> Iterator[None]:
    """A group that waits so long for what is begun now. Threads of gloo wait on after an error, by default for half an
    hour, and until then their process does not end; those of other backends end with it."""
    import torch.distributed as dist

    backend = group._get_backend(next(iter(group._device_types)))
    if not dist.is_gloo_available() or not isinstance(backend, dist.ProcessGroupGloo):
        yield
        return
    before = backend.options._timeout
    backend._set_default_timeout(until)
    try:
        yield
    finally:
        backend._set_default_timeout(before)


def _tried(call: Callable[[], Any], who: str, timeout: float) -> Any:
    """Call what speaks with others; an error, where one of them is gone or late."""
    try:
        return call()
    except RuntimeError as problem:
        reason = re.sub(r"^\[[^]]*\] | This is typically.*", "", str(problem).splitlines()[0])[:160]
        message = f"{who} did not answer within {timeout:g} s, or is gone ({reason})"
        help = (
            "look at the first error among the processes: the others only waited for it; `timeout=` is how long they do"
        )
        raise CallError([Diagnostic("IX521", message, (), help=help)]) from None


def gathered(carrier: Carrier, array: Any, axis: int, dimension: str) -> Any:
    """The whole of an array of which each rank along a dimension has its blocks along an axis."""
    import torch

    me = carrier.owned[0]
    mine = [block for block in carrier.mesh.line(me, dimension) if block in carrier.owned]
    if len(mine) == carrier.mesh.blocks(dimension):
        return array
    lengths = [row[0] for row in carrier.compared([array.shape[axis]], dimension)]
    points = carrier.mesh.points(sum(lengths), dimension)
    parts, at = {}, 0
    for block in mine:
        first, last = points[carrier.mesh.place(block, dimension)]
        parts[block] = array.narrow(axis, at, last - first)
        at += last - first
    transfers = []
    for source in carrier.mesh.line(me, dimension):
        first, last = points[carrier.mesh.place(source, dimension)]
        shape = (*array.shape[:axis], last - first, *array.shape[axis + 1 :])
        for rank in range(len(lengths)):
            target = carrier.mesh.line(me, dimension)[carrier.mesh.held_by(dimension, rank)[0]]
            transfers.append(Transfer(source, target, shape, parts.get(source)))
    arrived = carrier.move(transfers, array, dimension)()
    found = [x for one, x in zip(transfers, arrived, strict=True) if x is not None and one.target in carrier.owned]
    return torch.cat(found, axis)


def on_processes(device_mesh: Any, mesh: Mesh, timeout: float) -> Processes | None:
    """The carrier of this process in a `DeviceMesh`; None where it has no place there."""
    place = device_mesh.get_coordinate()
    if place is None:
        return None
    here = dict(zip(device_mesh.mesh_dim_names, place, strict=True))
    mine = tuple(
        block
        for block in mesh.everything
        if all(mesh.rank_of(name, place) == here[name] for name, place in zip(mesh.names, block, strict=True))
    )
    return Processes(mesh, mine, {}, device_mesh, timeout)


def dimensions_of(mesh: Any) -> tuple[Mapping[str, int], bool] | None:
    """The dimensions of a mesh, and whether there are processes behind them; None where it is no mesh."""
    if isinstance(mesh, Mapping):
        return dict(mesh), False
    if hasattr(mesh, "axis_names") and hasattr(mesh, "devices"):
        return dict(mesh.shape), False
    names, shape = getattr(mesh, "mesh_dim_names", None), getattr(mesh, "mesh", None)
    if names is None or shape is None:
        return None
    return dict(zip(names, shape.shape, strict=True)), True
