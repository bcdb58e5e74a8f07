"""What a program means, said a second time: all points at once, on full grids of indices, with NumPy.

It reads the laws' own trees and uses nothing of the compiler. Every coordinate in force is an axis of the grid, the
newest first, so that whatever varies over fewer coordinates broadcasts. A guard takes points off the grid's `live`
mask: what stands there is computed too, means nothing, and is never looked at. A recurrence is swept over until
nothing changes, so that no order of steps has to be found.

A 0 that is there because a guard removed a point (an absent point, a weight of softmax) is more than a number: what
it multiplies is not looked at, not even a NaN. Values carry along where they are `removed`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tests.laws.numerics import COMPARE, LARGEST, NUMPY, REAL, WHOLE, Array, Nudge, exactly, rounded, widest
from tests.laws.terms import (
    Apply,
    Binder,
    Block,
    Cast,
    Cells,
    Clause,
    Coordinate,
    Dim,
    Function,
    If,
    Let,
    Number,
    Op,
    Paren,
    Place,
    Program,
    Read,
    Reduce,
    Rest,
    Scan,
    Short,
    Size,
    Tensor,
    Truth,
    walk,
)


class Outside(Exception):
    """Something the laws do not speak of: a number too large, a NaN that should become whole."""


class OutOfBounds(AssertionError):
    """A live point reads past an axis: the generator promised otherwise."""


NOWHERE = np.bool_(False)


@dataclass(frozen=True)
class Value:
    """Cells that broadcast to the grid; `dtype` is None while only weak things are in them."""

    cells: Array
    dtype: str | None = None
    removed: Any = NOWHERE

    @property
    def kind(self) -> str:
        return self.cells.dtype.kind


@dataclass(frozen=True)
class Stored:
    """A tensor: its own axes first, then those of the grid on which it was defined."""

    cells: Array
    own: int
    dtype: str | None
    removed: Any = NOWHERE


@dataclass(frozen=True)
class Grid:
    """`axes` counts coordinates from the last axis; `ends` are the first point of each and the one after its last."""

    shape: tuple[int, ...]
    live: Array
    axes: Mapping[Coordinate, int]
    places: Mapping[Coordinate, Array]
    ends: Mapping[Coordinate, tuple[Array, Array]]
    stored: Mapping[Tensor, Any]
    dims: Mapping[Dim, int]

    def size(self, dim: Dim) -> int:
        return self.dims[dim] if dim.size is None else dim.size

    def among(self, condition: Array) -> Grid:
        return replace(self, live=self.live & condition)

    def spread(self, cells: Array) -> Array:
        return np.broadcast_to(cells, self.shape)

    def with_coordinate(self, coordinate: Coordinate, lower: Array, upper: Array) -> Grid:
        """One axis more, from the smallest to the largest point that the coordinate has anywhere."""
        lower, upper = self.spread(lower), self.spread(upper)
        first = int(lower[self.live].min()) if self.live.any() else 0
        after = int(upper[self.live].max()) if self.live.any() else 0
        steps = np.arange(first, max(first, after)).reshape(-1, *(1,) * len(self.shape))
        return replace(
            self,
            shape=(len(steps), *self.shape),
            live=self.live & (steps >= lower) & (steps < upper),
            axes={**self.axes, coordinate: len(self.shape) + 1},
            places={**self.places, coordinate: steps},
            ends={**self.ends, coordinate: (lower, upper)},
        )


class Evaluator:
    """`nudge` is done to every real number that is computed, to see what hangs on its last digits."""

    def __init__(self, nudge: Nudge) -> None:
        self.nudge = nudge

    # ------------------------------------------------------------------------ terms

    def value(self, term: Any, grid: Grid) -> Value:
        match term:
            case Number("pi"):
                return Value(np.array(np.pi))
            case Number(text):
                return Value(np.array(int(text) if term.kind == "whole" else float(text)))
            case Truth(value):
                return Value(np.array(value))
            case Place(coordinate):
                return Value(grid.places[coordinate])
            case Size(_, dim):
                return Value(np.array(grid.size(dim)))
            case Read(tensor, indices):
                stored = grid.stored[tensor]
                return self.read(stored, indices, grid) if isinstance(stored, Stored) else self.value(stored, grid)
            case Cells(indices=indices):
                return self.read(self.cells(term), indices, grid)
            case Op(ops, terms):
                return self.operation(ops, terms, grid)
            case Function(name, terms):
                return self.elementwise(name, [self.value(inner, grid) for inner in terms], grid)
            case Cast(inner, dtype):
                return self.cast(self.value(inner, grid), dtype, grid)
            case If(condition, then, otherwise):
                return self.conditional(condition, then, otherwise, grid)
            case Reduce():
                return self.reduction(term, grid)
            case Scan():
                return self.scan(term, grid)
            case Short(_, inner) | Paren(inner):
                return self.value(inner, grid)
            case Block(lets, body):
                return self.value(body, self.with_locals(lets, grid))
            case Apply(_, _, indices):
                return self.read(self.call(term, grid), indices, grid)
        raise TypeError(term)

    def read(self, stored: Stored, indices: Any, grid: Grid) -> Value:
        """A tensor at indices; along the grid that it was defined on, it is read where we stand."""
        picks: list[Array] = []
        for number, index in enumerate(indices):
            length = stored.cells.shape[number]
            at = grid.spread(self.value(index, grid).cells)
            if ((at < 0) | (at >= length))[grid.live].any():
                raise OutOfBounds(f"{at.min()}..{at.max()} in {length}")
            picks.append(np.clip(at, 0, max(0, length - 1)))
        if 0 in stored.cells.shape:
            return Value(np.zeros(grid.shape, stored.cells.dtype), stored.dtype)
        around = stored.cells.ndim - stored.own
        for axis in range(len(grid.shape) - around, len(grid.shape)):
            steps = np.arange(grid.shape[axis])
            picks.append(steps.reshape(-1, *(1,) * (len(grid.shape) - axis - 1)))
        if not picks:
            return Value(stored.cells, stored.dtype, stored.removed)
        gone = stored.removed[tuple(picks)] if stored.removed.ndim else stored.removed
        return Value(stored.cells[tuple(picks)], stored.dtype, gone)

    def cells(self, term: Cells) -> Stored:
        target = {"bool": np.bool_, "whole": np.int64, "real": np.float64}[term.kind]
        plain = np.vectorize(lambda text: text == "true")(term.cells) if term.kind == "bool" else term.cells
        return Stored(np.array(plain).astype(target), np.ndim(term.cells), None)

    def operation(self, ops: tuple[str, ...], terms: tuple[Any, ...], grid: Grid) -> Value:
        first = self.value(terms[0], grid)
        if ops[0] in ("&&", "||"):
            decided = first.cells if ops[0] == "||" else ~first.cells
            second = self.value(terms[1], grid.among(~decided))
            return Value(np.where(decided, ops[0] == "||", second.cells))
        if len(terms) == 1:
            return Value(~first.cells) if ops[0] == "!" else Value(-first.cells, first.dtype, first.removed)
        others = [self.value(term, grid) for term in terms[1:]]
        if ops[0] in COMPARE:
            result = np.array(True)
            for op, left, right in zip(ops, [first, *others], others, strict=False):
                result = result & COMPARE[op](left.cells, right.cells)
            return Value(result)
        return self.elementwise(ops[0], [first, *others], grid)

    def elementwise(self, name: str, values: list[Value], grid: Grid) -> Value:
        """A function or an arithmetic operator: of wholes, or of reals."""
        cells = [value.cells for value in values]
        whole = name in WHOLE and all(value.kind == "i" for value in values)
        dtype = widest([value.dtype for value in values if value.kind == ("i" if whole else "f")])
        gone = NOWHERE
        if name in ("*", "/"):
            gone = values[0].removed | values[1].removed if name == "*" else values[0].removed
        if not whole:
            found = self.nudge(REAL[name](*(np.asarray(part, np.float64) for part in cells)))
            return Value(np.where(gone, 0.0, found), dtype, gone)
        if name in ("/", "%"):
            if (grid.spread(cells[1]) == 0)[grid.live].any():
                raise Outside("a whole number divided by zero")
            cells[1] = np.where(cells[1] == 0, 1, cells[1])
        if name == "**":
            if (grid.spread(cells[1]) < 0)[grid.live].any():
                raise Outside("a negative power")
            cells[1] = np.maximum(cells[1], 0)
        if name in ("+", "-", "*", "**"):
            self.check_size(REAL[name](*(part.astype(np.float64) for part in cells)), grid)
        return Value(np.where(gone, 0, WHOLE[name](*cells)).astype(np.int64), dtype, gone)

    def check_size(self, about: Array, grid: Grid) -> None:
        if (np.abs(grid.spread(about))[grid.live] > LARGEST).any():
            raise Outside("a large whole number")

    def cast(self, value: Value, dtype: str, grid: Grid) -> Value:
        if dtype == "bool":
            return value
        if dtype in ("i32", "i64"):
            if value.kind == "f":
                about = np.trunc(value.cells)
                spread = grid.spread(about)[grid.live]
                if not np.isfinite(spread).all() or (np.abs(spread) > 2.0**30).any():
                    raise Outside("not a small whole number")
                value = Value(np.where(np.isfinite(about), np.clip(about, -1e9, 1e9), 0))
            return Value(value.cells.astype(np.int64), dtype)
        return Value(rounded(value.cells.astype(np.float64), dtype), dtype)

    def conditional(self, condition: Any, then: Any, otherwise: Any, grid: Grid) -> Value:
        test = self.value(condition, grid).cells
        sides = [self.value(then, grid.among(test)), self.value(otherwise, grid.among(~test))]
        kind = "f" if any(side.kind == "f" for side in sides) else sides[0].kind
        dtype = widest([side.dtype for side in sides if side.kind == kind])
        gone = np.where(test, sides[0].removed, sides[1].removed)
        return Value(np.where(test, sides[0].cells, sides[1].cells), dtype, gone)

    # ------------------------------------------------------- reductions, normalisers

    def over(self, binders: Any, grid: Grid) -> Grid:
        """The grid with the coordinates that are bound, the first of them outermost."""
        for binder in binders:
            if isinstance(binder, Rest):
                grid = self.over([Binder(coordinate) for coordinate in binder.coordinates], grid)
            elif binder.lower is None:
                assert binder.coordinate.dim is not None
                size = grid.size(binder.coordinate.dim)
                grid = grid.with_coordinate(binder.coordinate, np.array(0), np.array(size))
            else:
                lower, upper = self.value(binder.lower, grid).cells, self.value(binder.upper, grid).cells
                grid = grid.with_coordinate(binder.coordinate, lower, upper + binder.inclusive)
        return grid

    def reduction(self, term: Reduce, grid: Grid) -> Value:
        inner = self.over(term.binders, grid)
        if term.guard is not None:
            inner = inner.among(self.value(term.guard, inner).cells)
        body = self.value(term.body, inner)
        count = len(inner.shape) - len(grid.shape)
        # The last coordinate runs fastest: it is moved behind the others, and all become one axis.
        order = (*reversed(range(count)), *range(count, len(inner.shape)))
        together = (math.prod(inner.shape[:count]), *grid.shape)
        cells = inner.spread(body.cells).transpose(order).reshape(together)
        live = inner.live.transpose(order).reshape(together)
        if term.op in ("argmax", "argmin"):
            return Value(self.first_place(term, cells, live, inner, grid))
        result = self.scanned(term.op, cells, live, grid)
        return Value(result, body.dtype if result.dtype.kind == body.kind else None)

    def scanned(self, op: str, cells: Array, live: Array, grid: Grid) -> Array:
        """One of `sum prod max min mean any all` along the first axis, over live points."""
        real = cells.dtype.kind == "f"
        if op == "any":
            return np.any(cells & live, axis=0)
        if op == "all":
            return np.all(cells | ~live, axis=0)
        if op in ("sum", "prod"):
            apart = np.where(live, cells, 0 if op == "sum" else 1)
            add = np.add if op == "sum" else np.multiply
            if real:
                return self.nudge(add.reduce(apart, axis=0), total=True)
            self.check_size(add.reduce(np.abs(apart.astype(np.float64)), axis=0), grid)
            return np.asarray(add.reduce(apart, axis=0, dtype=np.int64))
        if op == "mean":
            total = np.add.reduce(np.where(live, cells.astype(np.float64), 0), axis=0)
            return self.nudge(total / live.sum(axis=0), total=True)
        if not real and not live.any(axis=0)[grid.live].all():
            raise Outside("no largest whole number")
        if real:
            lowest: Any = -np.inf if op == "max" else np.inf
        else:
            lowest = np.iinfo(np.int64).min if op == "max" else np.iinfo(np.int64).max
        found = np.maximum if op == "max" else np.minimum
        return np.asarray(found.reduce(np.where(live, cells, lowest), axis=0, initial=lowest))

    def first_place(self, term: Reduce, cells: Array, live: Array, inner: Grid, grid: Grid) -> Array:
        """Where the first of the largest (smallest) live values is, or the first NaN; -1 where none is live."""
        steps = inner.places[term.binders[0].coordinate].reshape(-1)  # type: ignore[union-attr]
        if not len(steps):
            return np.full(grid.shape, -1)
        turned = cells.astype(np.float64) * (1 if term.op == "argmax" else -1)
        key = np.where(live, turned, -np.inf)
        best = np.max(key, axis=0)
        hit = live & ((key == best) | (np.isnan(key) & np.isnan(best)))
        return np.where(live.any(axis=0), steps[np.argmax(hit, axis=0)], -1)

    def scan(self, term: Scan, grid: Grid) -> Value:
        """Along the whole range of a coordinate that is in force, whatever holds of it outside."""
        axis = len(grid.shape) - grid.axes[term.coordinate]
        lower, upper = grid.ends[term.coordinate]
        steps = grid.places[term.coordinate]
        row = grid.live.any(axis=axis, keepdims=True) & (steps >= lower) & (steps < upper)
        inner = replace(grid, live=grid.spread(row))
        if term.guard is not None:
            inner = inner.among(self.value(term.guard, inner).cells)
        body = self.value(term.body, inner)
        cells, live = grid.spread(body.cells), inner.live
        gone = ~live if term.guard is not None else NOWHERE
        if term.op == "cumsum":
            kept = np.where(live, cells, 0)
            if body.kind == "i":
                self.check_size(np.cumsum(np.abs(kept).astype(np.float64), axis=axis), grid)
                return Value(np.where(live, np.cumsum(kept, axis=axis), 0), body.dtype, gone)
            return Value(np.where(live, self.nudge(np.cumsum(kept, axis=axis), total=True), 0), body.dtype, gone)
        if term.op in ("cumprod", "cummax"):
            nothing, running = {"cumprod": (1.0, np.multiply), "cummax": (-np.inf, np.maximum)}[term.op]
            found = running.accumulate(np.where(live, cells, nothing), axis=axis)
            found = self.nudge(found, total=True) if term.op == "cumprod" else found
            return Value(np.where(live, found, nothing), body.dtype)
        if term.op == "rank":
            return Value(self.places(cells, live, axis), None)
        scores = np.where(live, cells.astype(np.float64), -np.inf)
        top = np.max(scores, axis=axis, keepdims=True, initial=-np.inf)
        total = self.nudge(np.sum(np.exp(scores - top), axis=axis, keepdims=True, where=live), total=True)
        dtype = body.dtype if body.kind == "f" else None
        if term.op == "softmax":
            return Value(np.where(live, self.nudge(np.exp(scores - top) / total), 0.0), dtype, gone)
        return Value(np.where(live, self.nudge(scores - self.nudge(top + np.log(total))), -np.inf), dtype)

    def places(self, cells: Array, live: Array, axis: int) -> Array:
        """How many live values come before each: all that are larger, equal ones that stand before; NaN is less than
        any number. What is not live comes after all that is."""
        rows, kept = (np.moveaxis(part, axis, -1) for part in (cells, live))
        steps = np.arange(rows.shape[-1])
        mine, other = rows[..., :, None], rows[..., None, :]
        odd, others = np.isnan(mine), np.isnan(other)
        level = np.where(odd | others, odd & others, mine == other) & (steps < steps[:, None])
        before = np.where(odd | others, odd & ~others, other > mine) | level
        count = (before & kept[..., None, :]).sum(-1)
        return np.moveaxis(np.where(kept, count, kept.sum(-1, keepdims=True)), -1, axis)

    # ------------------------------------------------------------- calls, definitions

    def call(self, term: Apply, grid: Grid) -> Stored:
        """A function's result. Its body sees its parameters and no more; the grid goes on underneath."""
        stored: dict[Tensor, Stored] = {}
        dims: dict[Dim, int] = {}
        for parameter, argument in zip(term.fn.parameters, term.arguments, strict=True):
            given = self.argument(argument, grid)
            stored[parameter] = given
            for dim, length in zip(parameter.axes, given.cells.shape[: given.own], strict=True):
                assert dims.setdefault(dim, length) == length
        inner = self.with_locals(term.fn.lets, replace(grid, stored=stored, dims=dims))
        result = Let(Tensor("", (), "real"), (Clause(term.fn.result or (), term.fn.body, term.fn.guard),))
        return self.defined((result,), inner)[result.tensor]

    def argument(self, argument: Any, grid: Grid) -> Stored:
        if isinstance(argument, Tensor):
            return grid.stored[argument]
        if isinstance(argument, Apply) and argument.fn.result is not None and not argument.indices:
            return self.call(argument, grid)
        if isinstance(argument, Cells) and not argument.indices:
            return self.cells(argument)
        value = self.value(argument, grid)
        return Stored(grid.spread(value.cells), 0, value.dtype, grid.spread(value.removed))

    def with_lets(self, groups: Any, grid: Grid) -> Grid:
        for group in groups:
            grid = replace(grid, stored={**grid.stored, **self.defined(group, grid)})
        return grid

    def with_locals(self, lets: tuple[Let, ...], grid: Grid) -> Grid:
        """A scalar of a block stands for its term: inside a normaliser it is another one at each point."""
        for let in lets:
            if let.clauses and not let.clauses[0].slots and let.clauses[0].guard is None:
                grid = replace(grid, stored={**grid.stored, let.tensor: let.clauses[0].body})
            else:
                grid = self.with_lets([(let,)], grid)
        return grid

    def defined(self, group: tuple[Let, ...], grid: Grid) -> dict[Tensor, Stored]:
        """Definitions; those that read each other are swept over until all stays as it is."""
        if len(group) == 1 and group[0].whole is not None:
            return {group[0].tensor: self.argument(group[0].whole, grid)}
        tables = {let.tensor: self.empty(let, grid) for let in group}
        recursive = any(isinstance(part, Read) and part.tensor in tables for let in group for part in walk(let))
        sweeps = 1 + sum(table.cells.size for table in tables.values()) if recursive else 1
        for _ in range(sweeps):
            here = replace(grid, stored={**grid.stored, **tables})
            found = {let.tensor: self.filled(let, tables[let.tensor], here) for let in group}
            if all(_alike(found[tensor], tables[tensor]) for tensor in found):
                break
            tables = found
        return tables

    def empty(self, let: Let, grid: Grid) -> Stored:
        kind = "b" if any(c.body.kind == "bool" for c in let.clauses) else "i"
        kind = "f" if any(c.body.kind == "real" for c in let.clauses) else kind
        reach: dict[int, int] = {}
        for clause in let.clauses:
            for axis, slot in enumerate(flat(clause.slots)):
                reach[axis] = max(reach.get(axis, 0), self.ends(slot, grid)[1])
        shape = (*(reach[axis] for axis in sorted(reach)), *grid.shape)
        cells = np.zeros(shape, {"b": np.bool_, "i": np.int64, "f": np.float64}[kind])
        return Stored(cells, len(reach), None, np.zeros(shape, np.bool_))

    def ends(self, slot: Any, grid: Grid) -> tuple[int, int]:
        """From where to where a slot of a left-hand side reaches; it depends on nothing around it."""
        if not isinstance(slot, Binder):
            at = int(self.value(slot, grid).cells)
            return at, at + 1
        if slot.lower is None:
            assert slot.coordinate.dim is not None
            return 0, grid.size(slot.coordinate.dim)
        lower, upper = (int(self.value(end, grid).cells) for end in (slot.lower, slot.upper))
        return lower, max(lower, upper + slot.inclusive)

    def filled(self, let: Let, before: Stored, grid: Grid) -> Stored:
        """The table with every clause done once, absent points 0."""
        cells, dtype, gone = before.cells.copy(), before.dtype, before.removed.copy()
        for clause in let.clauses:
            slots = flat(clause.slots)
            inner = grid
            for slot in reversed(slots):
                if isinstance(slot, Binder):
                    lower, upper = self.ends(slot, grid)
                    inner = inner.with_coordinate(slot.coordinate, np.array(lower), np.array(upper))
            if clause.guard is not None:
                inner = inner.among(self.value(clause.guard, inner).cells)
            body = self.value(clause.body, inner)
            values = np.where(inner.live, inner.spread(body.cells), np.zeros((), cells.dtype))
            bound = iter(inner.shape)
            where = []
            for slot in slots:
                lower, upper = self.ends(slot, grid)
                where.append(slice(lower, lower + next(bound)) if isinstance(slot, Binder) else lower)
            cells[tuple(where)] = values
            gone[tuple(where)] = ~inner.live | body.removed
            dtype = widest([dtype, body.dtype if body.kind == cells.dtype.kind else None])
        return Stored(cells, before.own, dtype, gone)


def flat(slots: Any) -> list[Any]:
    """Slots with `..r` written out."""
    found: list[Any] = []
    for slot in slots:
        found += [Binder(coordinate) for coordinate in slot.coordinates] if isinstance(slot, Rest) else [slot]
    return found


def _alike(one: Stored, other: Stored) -> bool:
    same = np.array_equal(one.cells, other.cells, equal_nan=one.cells.dtype.kind == "f")
    return same and one.dtype == other.dtype and np.array_equal(one.removed, other.removed)


# --------------------------------------------------------------------------------- programs


def evaluate(program: Program, arrays: Mapping[str, Array], nudge: Nudge = exactly) -> dict[str, Array]:
    """Every definition of a program, by its name, in its dtype."""
    stored = {}
    for input in program.inputs:
        array = arrays[input.tensor.name]
        given = {"float16": "f16", "float32": "f32", "int32": "i32", "bool": "bool"}.get(array.dtype.name)
        dtype = input.dtype or given
        if input.tensor.kind == "real":
            dtype = dtype if dtype in ("f16", "bf16", "f32", "f64") else "f64"
        elif input.tensor.kind == "whole":
            dtype = {"i8": "i32", "u8": "i32", None: "i64"}.get(dtype, dtype)
        target = {"bool": np.bool_, "whole": np.int64, "real": np.float64}[input.tensor.kind]
        stored[input.tensor] = Stored(array.astype(target), array.ndim, dtype)
    evaluator = Evaluator(nudge)
    nowhere = Grid((), np.array(True), {}, {}, {}, stored, {})
    with np.errstate(all="ignore"):
        final = evaluator.with_lets(program.groups, nowhere)
        return {let.tensor.name: _as_output(final.stored[let.tensor]) for let in program.lets}


def _as_output(stored: Stored) -> Array:
    kind = stored.cells.dtype.kind
    dtype = stored.dtype or {"b": "bool", "i": "i64", "f": "f64"}[kind]
    if dtype == "i32" and (np.abs(stored.cells) > 2**31 - 1).any():
        raise Outside("too large for 32 bits")
    cells = rounded(stored.cells, dtype) if kind == "f" else stored.cells
    return cells.astype(NUMPY[dtype])
