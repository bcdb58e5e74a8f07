"""Well-typed programs with arrays to call them with, drawn at random over the whole language.

`cases()` is a Hypothesis strategy; `random_case(seed)` draws from the same programs without it, faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.laws.inputs import Array
from tests.laws.recurrences import Recurrences
from tests.laws.scopes import NAMES, Scope, is_sayable, leaks, number, plus, size_of
from tests.laws.terms import (
    Apply,
    Binder,
    Block,
    Cells,
    Clause,
    Coordinate,
    Dim,
    Fn,
    Function,
    Kind,
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
    Term,
    change,
    mentioned,
    tensors_in,
    walk,
)
from tests.laws.writing import spine, text_of


class Case:
    """A program and the arrays of one call. It shows itself as its text."""

    def __init__(self, program: Program, arrays: Mapping[str, Array]) -> None:
        self.program = program
        self.arrays = arrays

    @property
    def text(self) -> str:
        return text_of(self.program)

    def __repr__(self) -> str:
        shown = [f"{name} = {array.dtype} {array.tolist()}" for name, array in self.arrays.items()]
        return "\n".join(["", self.text, *shown])


class Statements(Recurrences):
    """Draws functions and definitions, and puts a program together."""

    # ----------------------------------------------------------------------------- functions

    def draw_functions(self) -> None:
        for _ in range(self.weighted((3, 0), (3, 1), (1, 2))):
            self.functions.append(self.fn(self.weighted((5, "real"), (2, "bool"), (1, "whole"))))

    def fn(self, kind: Kind) -> Fn:
        """A function of tensors and scalars. Its coordinates are called like those of its callers."""
        name = self.fresh("f")
        names = self.shuffled(list(NAMES[:5]))
        sizes = {name: Dim(None) for name in names[:2]}
        parameters: list[Tensor] = []
        homes: list[tuple[str, ...] | None] = []
        for number_ in range(self.choose(2) if kind == "bool" else 1 + self.choose(2)):
            home = tuple(self.shuffled(list(sizes))[: 1 + self.choose(2)])
            parameters.append(Tensor(f"g{number_}", tuple(sizes[name] for name in home), "real"))
            homes.append(home)
        for number_ in range(2 if kind == "bool" else self.choose(2)):
            scalar: Kind = "whole" if kind == "bool" else self.weighted((2, "real"), (1, "whole"))
            parameters.append(Tensor(f"s{number_}", (), scalar))
            homes.append(None)
        used = {dim for tensor in parameters for dim in tensor.axes}
        outer, self.spaces, products, self.products = self.spaces, {}, self.products, []
        known = {name: dim for name, dim in sizes.items() if dim in used}
        scope = Scope(tuple(parameters), tuple(self.functions), known, in_function=True)
        fn = self.finish_fn(name, tuple(parameters), tuple(homes), scope, kind)
        self.spaces, self.products = outer, products
        return fn

    def finish_fn(
        self, name: str, parameters: tuple[Tensor, ...], homes: tuple[Any, ...], scope: Scope, kind: Kind
    ) -> Fn:
        lets: list[Let] = []
        if self.chance(30) and scope.sizes and kind == "real":
            lets.append(self.local(scope, 1))
            if not lets[-1].tensor.leaky:
                scope = replace(scope, tensors=(*scope.tensors, lets[-1].tensor))
        inner, coordinates = scope, []
        if kind == "real" and scope.sizes and self.chance(60):
            for dim in self.shuffled(list(dict.fromkeys(scope.sizes.values())))[: 1 + self.choose(2)]:
                coordinates.append(self.coordinate(inner, dim, beside=coordinates))
                inner = inner.binding(coordinates[-1], (Place(coordinates[-1]), dim))
        guard: Term | None = None
        if coordinates and self.chance(20):
            guard, facts = self.guard(inner.strict(), coordinates, 1)
            inner = inner.given(facts)
        body = self.term(inner.strict(), kind, 2)
        if guard is not None and self.is_claimed(body, guard):
            body = Paren(body)
        result = None
        if coordinates:
            result = self.entered_all(inner, coordinates, body, guard)
        return Fn(name, parameters, homes, tuple(lets), result, body, guard)

    def is_claimed(self, body: Term, guard: Term) -> bool:
        """Whether a guard after this body would belong to a reduction or normaliser in it."""
        names = {coordinate.name for coordinate in mentioned(guard)}
        return any(names & set(binding_names(node)) for node in spine(body))

    # --------------------------------------------------------------------------- definitions

    def draw_definitions(self) -> None:
        for _ in range(1 + self.choose(4) + (self.reuse > 50)):
            choice: Callable[[], Sequence[Let]] = self.weighted(
                (8, self.points),
                (4, self.guarded_points),
                (3, self.named_guard),
                (3, self.attention),
                (2, self.recurrence),
                (1, self.recurrence_over_two),
                (1, self.two_recurrences),
                (1, self.figure_tensor),
                (1, self.whole_tensor),
                (1, self.constant),
                (1, self.shorter),
                (2, self.leading),
            )
            lets = tuple(choice())
            if lets:
                self.groups.append(lets)
                self.tensors += [let.tensor for let in lets]

    def left(self, scope: Scope, most: int = 3) -> tuple[Scope, list[Coordinate]]:
        """The coordinates of a left-hand side."""
        coordinates: list[Coordinate] = []
        for _ in range(self.choose(most + 1)):
            dims = self.dims(scope, False)
            if not dims:
                break
            dim = self.pick(dims)
            if scope.points * size_of(dim) > 64:
                break
            coordinate = self.coordinate(scope, dim, beside=coordinates)
            coordinates.append(coordinate)
            scope = scope.binding(coordinate, (Place(coordinate), dim), size=size_of(dim))
        return scope, coordinates

    def defined(
        self,
        scope: Scope,
        coordinates: Sequence[Coordinate],
        body: Term,
        guard: Term | None = None,
        rest: Rest | None = None,
        within: bool = True,
    ) -> list[Let]:
        """A definition: its ranges stated where they have to be, its guards moved to its end where they may be."""
        shorts: tuple[Short, ...] = ()
        if self.chance(15):
            body, shorts = self.abbreviated(body)
        if guard is not None and self.is_claimed(body, guard):
            body = Paren(body)
        body = self.with_guards_after(body, guard)
        inside = isinstance(body, Block) and guard is not None and not shorts and within and self.chance(60)
        slots = self.entered_all(scope, coordinates, body, guard)
        lead = (rest,) if rest is not None else ()
        axes = tuple(c.dim for c in (*(rest.coordinates if rest else ()), *coordinates))
        tensor = Tensor(self.fresh("y"), axes, body.kind, open=len(rest.coordinates) if rest and rest.flat else None)
        tensor.leaky = guard is not None or leaks(body)
        if guard is not None and rest is None and all(isinstance(p, Place | Op | Number | Size) for p in walk(guard)):
            tensor.guard = (tuple(coordinates), guard)
        return [Let(tensor, (Clause((*lead, *slots), body, guard, inside, shorts),))]

    def entered_all(self, scope: Scope, coordinates: Sequence[Coordinate], *nodes: Any) -> tuple[Binder, ...]:
        """The slots of a left-hand side. The range of one may ask for the size of another, but not both ways."""
        stated = [c for c in coordinates if self.needs_range(scope, c, *nodes)]
        stated.sort(key=lambda c: scope.sizes.get(c.name) is not c.dim)
        found: list[Binder] = []
        for coordinate in coordinates:
            if coordinate not in stated:
                found.append(Binder(coordinate))
                continue
            later = set(stated[stated.index(coordinate) :])
            around = tuple(Coordinate(c.name) if c in later and c is not coordinate else c for c in scope.coordinates)
            found.append(self.ranged_fully(replace(scope, coordinates=around), coordinate))
        return tuple(found)

    def abbreviated(self, body: Term) -> tuple[Term, tuple[Short, ...]]:
        """The body with some part of it under a name."""
        wanted = (Op, Function, Reduce, Read)
        choices = [part for part in reachable(body) if isinstance(part, wanted) and part is not body]
        if not choices:
            return body, ()
        chosen = self.pick(choices)
        short = Short(self.fresh("q"), chosen)

        def put(part: Any) -> Any:
            return short if part is chosen else change(part, put)

        return put(body), (short,)

    def with_guards_after(self, body: Term, own: Term | None) -> Term:
        """The body with the guard of some reduction at the end of the statement, where it can only mean that one."""
        scans = spine(body)
        for node in scans:
            names = told(node.guard) if node.guard is not None else set()
            takers = [other for other in scans if names & set(binding_names(other))]
            scanning = [part for part in walk(node.guard) if isinstance(part, Reduce | Scan)] if names else []
            bound = {name for part in scanning for name in binding_names(part)}
            if takers == [node] and not bound & names and not isinstance(body, Block) and self.chance(60):
                after = replace(node, after=True)

                def put(part: Any, node: Any = node, after: Any = after) -> Any:
                    return after if part is node else change(part, lambda inner: put(inner, node, after))

                body = put(body)
        return body

    def points(self) -> list[Let]:
        scope, coordinates = self.left(self.scope)
        kind = self.weighted((6, "real"), (2, "whole"), (1, "bool"))
        return self.defined(scope, coordinates, self.term(scope, kind, 3))  # type: ignore[arg-type]

    def guarded_points(self) -> list[Let]:
        scope, coordinates = self.left(self.scope)
        if not coordinates:
            return self.points()
        guard, facts = self.guard(scope.strict(), coordinates, 1)
        kind = self.weighted((6, "real"), (1, "whole"), (1, "bool"))
        return self.defined(scope, coordinates, self.term(scope.given(facts), kind, 2), guard, within=not facts)  # type: ignore[arg-type]

    def named_guard(self) -> list[Let]:
        scope, coordinates = self.left(self.scope, 2)
        condition, _ = self.guard(scope.strict(), coordinates, 1)
        guard = self.guard(scope.strict(), coordinates, 1)[0] if coordinates and self.chance(40) else None
        return self.defined(scope, coordinates, condition, guard)

    def attention(self) -> list[Let]:
        """Scores, weights under a guard, and what they gather."""
        matrices = [t for t in self.tensors if t.kind == "real" and len(t.axes) >= 2 and t.open is None and not t.leaky]
        if not matrices:
            return self.points()
        keys = self.pick(matrices)
        if not all(map(size_of, keys.axes)):
            return self.points()
        scope = self.scope
        j, d = self.coordinate(scope, keys.axes[0]), Coordinate("", keys.axes[-1])
        scope = scope.binding(j, (Place(j), keys.axes[0]))
        i = self.coordinate(scope, keys.axes[0], beside=[j])
        scope = scope.binding(i, (Place(i), keys.axes[0]))
        d.name = self.coordinate(scope, keys.axes[-1], beside=[i, j]).name
        inner = scope.binding(d)
        e = self.coordinate(inner, keys.axes[-1], beside=[i, j, d])
        for late in (d, e):  # What is said before they are bound must not be changed by their names.
            if self.sizes.get(late.name, keys.axes[-1]) is not keys.axes[-1]:
                late.name = self.fresh("c")
        middle = tuple(self.index(inner.binding(e), dim) for dim in keys.axes[1:-1])
        if {d, e} & {c for index in middle for c in mentioned(index)}:
            middle = tuple(number(0) for _ in middle)
        product = Op(("*",), tuple(Read(keys, (Place(c), *middle, Place(d))) for c in (i, j)), "real")
        scores: Term = Reduce("sum", (self.entered(scope, d, product),), product, None, "real")
        scores = Op(("/",), (scores, Function("sqrt", (self.extent(scope, keys.axes[-1]),), "real")), "real")
        guard, _ = self.guard(scope.strict(), [j], 1)
        weights: Term = Scan("softmax", j, scores, guard if self.chance(80) else None, "real")
        if self.chance(50):
            return self.defined(scope, [i, j], weights)
        values = Read(keys, (Place(j), *middle, Place(e)))
        body = Op(("*",), (weights, values), "real")
        outside = replace(scope, coordinates=(i,), places=((Place(i), keys.axes[0]),))
        return self.defined(
            outside.binding(e), [i, e], Reduce("sum", (self.entered(outside, j, body),), body, None, "real")
        )

    # ---------------------------------------------------------------------- other statements

    def figure_tensor(self) -> list[Let]:
        """Figures in the text, under a name."""
        dims = tuple(self.shuffled([dim for dim in self.sizes.values() if is_sayable(dim)])[: 1 + self.choose(2)])
        if not dims:
            return self.points()
        if self.spaces and len(dims) > 1 and self.chance(50):
            dims = dims[:1]
        kind = self.weighted((4, "real"), (1, "whole"), (1, "bool"))
        cells = self.cells(tuple(map(size_of, dims)), kind)
        literal = Cells(cells, kind, dims, (), kind == "real" and self.chance(30))  # type: ignore[arg-type]
        tensor = Tensor(self.fresh("y"), dims, kind)  # type: ignore[arg-type]
        return [Let(tensor, whole=literal)]

    def cells(self, shape: tuple[int, ...], kind: str) -> Any:
        if shape:
            return tuple(self.cells(shape[1:], kind) for _ in range(shape[0]))
        if kind == "bool":
            return self.pick(("true", "false"))
        sign = "-" if self.chance(30) else ""
        return f"{sign}{self.choose(9)}" if kind == "whole" else f"{sign}{self.choose(40) / 8:.3f}"

    def whole_tensor(self) -> list[Let]:
        """Another tensor, or the result of a function, under a name of its own."""
        scope = self.scope
        found: list[Any] = [t for t in self.tensors if t.axes and t.open is None]
        for fn in self.functions:
            if fn.result is not None and (call := self.call(scope, fn, 1)) is not None:
                found += [call] * 3
        if not found:
            return self.points()
        whole = self.pick(found)
        axes = whole.axes
        tensor = Tensor(self.fresh("y"), axes, whole.kind)
        if isinstance(whole, Apply):
            tensor.leaky = whole.fn.guard is not None or leaks(whole.fn.body)
        else:
            tensor.leaky, tensor.guard, tensor.below = whole.leaky, whole.guard, whole.below
        return [Let(tensor, whole=whole)]

    def constant(self) -> list[Let]:
        """A whole number that says how many points something has."""
        if not self.sizes:
            return self.points()
        name, dim = self.pick(list(self.sizes.items()))
        body: Term = Size(name, dim)
        if self.chance(40):
            body = Op(("-",), (plus(body, 1), number(1)), "whole")
        tensor = Tensor(self.fresh("c"), (), "whole", counts=dim)
        return [Let(tensor, (Clause((), body),))]

    def shorter(self) -> list[Let]:
        """A definition over all but one point of a coordinate, which reads both neighbours."""
        if not self.sizes:
            return self.points()
        name, dim = self.pick(list(self.sizes.items()))
        size = Size(name, dim)
        less = Dim(size_of(dim) - 1, (plus(size, -1),), dim.space or dim)
        fitting = [t for t in self.tensors if t.kind == "real" and t.axes == (dim,) and not t.leaky]
        if not fitting:
            return self.points()
        tensor = self.pick(fitting)
        if tensor.open is not None:
            return self.points()
        here = self.coordinate(self.scope, less)
        here.dim = less
        scope = self.scope.binding(here, (Place(here), less), (Place(here), dim), (plus(Place(here), 1), dim))
        near = Read(tensor, (Place(here),))
        body = Op((self.pick(("-", "*")),), (Read(tensor, (plus(Place(here), 1),)), near), "real")
        if self.chance(60):
            body = Op(("+",), (body, self.term(scope, "real", 1)), "real")
        binder = Binder(here, number(0), plus(self.extent(self.scope, dim), -1))
        found = Tensor(self.fresh("y"), (less,), "real", leaky=leaks(body))
        return [Let(found, (Clause((binder,), body),))]

    def leading(self) -> list[Let]:
        """`let y[..r, i] = … x[..r, i] …;`"""
        rest = self.rest(self.scope)
        if rest is None:
            return self.points()
        fitting = [t for t in self.tensors if t.kind == "real" and self.leads(t, rest)]
        if not fitting:
            return self.points()
        tensor = self.pick(fitting)
        scope = replace(self.scope, rest=rest)
        scope = replace(scope, points=max(1, int(np.prod([size_of(c.dim) for c in rest.coordinates]))))  # type: ignore[arg-type]
        scope, coordinates = self.left(scope, 2)
        if any(size_of(dim) == 0 for dim in tensor.axes):
            return self.points()
        body: Term = self.read_at(scope, tensor)
        if self.chance(70):
            body = Op((self.pick(("+", "*")),), (body, self.term(scope, "real", 2)), "real")
        return self.defined(scope, coordinates, body, rest=rest)

    def leads(self, tensor: Tensor, rest: Rest) -> bool:
        dims = tuple(c.dim for c in rest.coordinates)
        return (tensor.open is not None) == rest.flat and tensor.axes[: len(dims)] == dims

    # ------------------------------------------------------------------------------- program

    def case(self) -> Case:
        self.draw_inputs()
        self.draw_functions()
        self.draw_definitions()
        spaces = {f"space_{n}": names for n, names in enumerate(self.spaces.values())}
        program = Program(tuple(self.inputs), tuple(self.functions), tuple(self.groups), spaces)
        names = [let.tensor.name for let in program.lets]
        if self.chance(25) or not unread(program):
            program = replace(program, outputs=tuple(self.shuffled(names)[: 1 + self.choose(len(names))]))
        if self.chance(40):
            program = replace(program, order=tuple(self.shuffled(list(range(40)))))
        return Case(program, self.arrays)


def unread(program: Program) -> list[str]:
    """The definitions that no other definition reads."""
    read = {tensor for let in program.lets for tensor in tensors_in(let) if tensor is not let.tensor}
    return [let.tensor.name for let in program.lets if let.tensor not in read]


def told(guard: Any) -> set[str]:
    """The coordinates that a guard speaks of, by name; one whose size alone it asks for is none."""
    return {part.coordinate.name for part in walk(guard) if isinstance(part, Place)}


def binding_names(node: Reduce | Scan) -> list[str]:
    """What a reduction or normaliser binds, by name."""
    if isinstance(node, Scan):
        return [node.coordinate.name]
    return [slot.name if isinstance(slot, Rest) else slot.coordinate.name for slot in node.binders]


def reachable(term: Any) -> list[Any]:
    """The parts of a term that stand neither in a block, nor in an index, nor in a range, nor in a call."""
    found = [term]
    match term:
        case Op(_, terms) | Function(_, terms):
            inner: Sequence[Any] = terms
        case Reduce(body=body) | Scan(body=body):
            inner = [body]
        case _:
            inner = []
    for part in inner:
        found += reachable(part)
    return found


@cache
def _below(n: int) -> st.SearchStrategy[int]:
    return st.integers(0, n - 1)


@st.composite
def cases(draw: st.DrawFn, reuse: int = 40) -> Case:
    """Programs with arrays, for Hypothesis to make smaller where a law fails. `reuse` says how eagerly definitions
    read others, in percent."""
    statements = Statements(lambda n: draw(_below(n)) if n > 1 else 0)
    statements.reuse = reuse
    return statements.case()


def random_case(seed: int) -> Case:
    """The same programs, drawn by a seed."""
    return Statements(Random(seed).randrange).case()
