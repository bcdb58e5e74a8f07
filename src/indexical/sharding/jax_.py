"""Programs on several devices of JAX: the same units, in one `shard_map`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..api import Program
from ..diagnostics import CallError, Diagnostic
from ..ir import nodes as ir
from ..ir.types import NUMPY_NAMES
from ..run.asked import packed
from ..run.bind import bind
from .mesh import Mesh
from .moving import Block, Carrier
from .prepared import TOTALS
from .programs import Programs
from .spread import Spread
from .units import Layout, Unit


class OnDevices(Spread):
    """A program that is split over a mesh of JAX. Call it with whole arrays: JAX knows which part is where."""

    at_once = True

    def __init__(
        self,
        program: Program,
        mesh: Mesh,
        carrier: Carrier,
        coordinates: Mapping[str, str],
        parameters: str | None,
        devices: Any,
    ) -> None:
        super().__init__(program, mesh, carrier, coordinates, parameters)
        self.devices = devices
        self._functions: dict[int, Callable[..., Any]] = {}

    def sharding(self, name: str, rank: int | None = None) -> Any:
        """The `NamedSharding` of an input or an output; `rank` is that of its array, where `..r` leads it."""
        from jax.sharding import NamedSharding, PartitionSpec

        axes = self.prepared().program.tensors[name].axes
        split = self._array_axes(name, len(axes) if rank is None else rank)
        words = [split.get(axis) for axis in range(len(axes) if rank is None else rank)]
        return NamedSharding(self.devices, PartitionSpec(*words))

    def local(self, array: Any, name: str) -> Any:
        """The whole array, put on the devices that hold its parts."""
        import jax

        for axis, dimension in self._array_axes(name, array.ndim).items():
            if array.shape[axis] % self.mesh.blocks(dimension):
                raise _uneven(name, dimension)
        return jax.device_put(array, self.sharding(name, array.ndim))

    def whole(self, array: Any, name: str) -> Any:
        """The array, which is whole already."""
        return array

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The outputs, of whole arrays, also under `jax.jit` and `jax.grad`."""
        import jax.numpy as jnp

        given = {name: jnp.asarray(x) for name, x in self.program.arguments(arrays, named).items()}
        inputs = self.program._program.inputs
        stand_ins = {t.name: self._stand_in(t, given[t.name]) for t in inputs}
        layout, programs = self.layout(bind(self.program._program, stand_ins))
        if id(layout) not in self._functions:
            _check_even(layout)
            self._functions[id(layout)] = self._function(layout, programs, {n: x.ndim for n, x in given.items()})
        names = [t.name for t in inputs if t.axes or t.kind != "whole"]
        found = self._functions[id(layout)](*(given[name] for name in names))
        return found[0] if len(self.outputs) == 1 else packed(self.outputs)(*found)

    def _stand_in(self, tensor: ir.Input, array: Any) -> Any:
        if not tensor.axes and tensor.kind == "whole":
            return np.asarray(array)
        return np.broadcast_to(np.zeros((), NUMPY_NAMES.get(str(array.dtype), str(array.dtype))), array.shape)  # type: ignore[call-overload]

    def _function(self, layout: Layout, programs: Programs, ranks: Mapping[str, int]) -> Callable[..., Any]:
        import jax

        names = [t.name for t in layout.program.inputs if t.axes or t.kind != "whole"]
        inner = partial(_outputs, layout, programs, self.mesh, names)
        ins = tuple(self.sharding(name, ranks[name]).spec for name in names)
        outs = tuple(self.sharding(name, len(_shape(layout, name))).spec for name in self.outputs)
        found: Callable[..., Any] = jax.jit(
            jax.shard_map(inner, mesh=self.devices, in_specs=ins, out_specs=outs, check_vma=False)
        )
        return found


def _shape(layout: Layout, name: str) -> tuple[int, ...]:
    return layout.shape(name, layout.mesh.everything[0])


def _check_even(layout: Layout) -> None:
    for name, homes in layout.homes.items():
        for dimension in homes if name not in layout.free else ():
            lengths = {last - first for first, last in layout.rows(name, dimension)}
            if len(lengths) > 1:
                raise _uneven(name, dimension)


def _uneven(name: str, dimension: str) -> CallError:
    message = f"`{name}` is cut unevenly along `{dimension}`, and JAX wants parts of one length"
    return CallError([Diagnostic("IX515", message, (), help="choose sizes that the ranks divide")])


def _outputs(layout: Layout, programs: Programs, mesh: Mesh, names: list[str], *parts: Any) -> tuple[Any, ...]:
    """The part of the outputs that a device has, from its part of the inputs."""
    values = dict(zip(names, parts, strict=True))
    for unit in layout.units:
        found = _computed(layout, programs, mesh, unit, values)
        if unit.merged is not None:
            (name,) = unit.wanted
            values[name] = _merged(layout, unit, *found)
            continue
        for name, value in zip(unit.wanted, found, strict=True):
            values[name] = _total(layout, unit, name, value)
    return tuple(values[name] for name in layout.program.outputs)


def _computed(layout: Layout, programs: Programs, mesh: Mesh, unit: Unit, values: Mapping[str, Any]) -> list[Any]:
    """The computation of a unit on a device: each has a program of its own."""
    from jax import lax

    held = {name: _gathered(layout, unit, name, values[name]) for name in layout.read_by(unit)}
    along = [name for name in mesh.names if name in unit.varying]
    blocks = [b for b in mesh.everything if all(p == 0 or n in along for n, p in zip(mesh.names, b, strict=True))]
    branches = [partial(_block, layout, programs, unit, block) for block in blocks]
    if len(branches) == 1:
        return branches[0](held)
    place: Any = 0
    for name in along:
        place = place * mesh.blocks(name) + lax.axis_index(name)
    found: list[Any] = lax.switch(place, branches, held)
    return found


def _block(layout: Layout, programs: Programs, unit: Unit, block: Block, held: Mapping[str, Any]) -> list[Any]:
    """A unit on one block, of what was gathered for all of them."""
    import jax.numpy as jnp
    from jax import lax

    program, names = programs.of_unit(unit, block)
    arrays = []
    for name in names:
        array = held[name]
        for dimension, rows in unit.needs.get(name, {}).items():
            if rows != layout.rows(name, dimension):
                first, last = rows[layout.mesh.place(block, dimension)]
                array = lax.slice_in_dim(array, first, last, axis=_axis(layout, name, dimension))
        arrays.append(array)
    found = program(*arrays)
    return [jnp.asarray(x) for x in (found if len(program.outputs) > 1 else [found])]


def _gathered(layout: Layout, unit: Unit, name: str, array: Any) -> Any:
    from jax import lax

    for dimension, rows in unit.needs.get(name, {}).items():
        if rows != layout.rows(name, dimension):
            array = lax.all_gather(array, dimension, axis=_axis(layout, name, dimension), tiled=True)
    return array


def _axis(layout: Layout, name: str, dimension: str) -> int:
    axes = layout.program.tensors[name].axes
    lead = len(layout.rests.get(axes[0].coordinate.name, ())) - 1 if axes[0].coordinate.rest else 0
    return layout.homes[name][dimension] + lead


def _total(layout: Layout, unit: Unit, name: str, part: Any) -> Any:
    """A sum, or the largest or smallest, of the parts of all devices."""
    import jax.numpy as jnp
    from jax import lax

    body = layout.program.definitions[name].clauses[0].body
    for dimension, cut in unit.cuts[name].items():
        if cut.way != "sum":
            continue
        assert isinstance(body, ir.Reduce)
        op = TOTALS[body.op]
        if cut.scatter is not None:
            axis = _axis(layout, name, dimension)
            part = lax.psum_scatter(part, dimension, scatter_dimension=axis, tiled=True)
        elif op == "sum":
            part = lax.psum(part, dimension)
        else:  # What is gathered has a derivative, and `pmax` has none.
            part = (jnp.max if op == "max" else jnp.min)(lax.all_gather(part, dimension), axis=0)
    return part


def _merged(layout: Layout, unit: Unit, out: Any, total: Any) -> Any:
    """An attention to keys on several devices."""
    import jax.numpy as jnp
    from jax import lax

    (name,) = unit.wanted
    dimension = next(d for d, cut in unit.cuts[name].items() if cut.way == "sum")
    top = lax.pmax(lax.stop_gradient(total), dimension)
    top = jnp.where(jnp.isfinite(top), top, 0)
    share = jnp.exp(total - top)
    all_shares = lax.psum(share, dimension)
    beside = layout.shape_beside(name, layout.mesh.everything[0])
    weight = (share / jnp.where(all_shares == 0, 1, all_shares)).reshape(beside)
    return lax.psum(jnp.where(weight == 0, 0, out) * weight, dimension)
