"""Reductions, normalisers, blocks and calls, drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.laws.draws import Draws
from tests.laws.scopes import MOST_POINTS, Scope, leaks, moved, number, plus, size_of
from tests.laws.terms import (
    Apply,
    Binder,
    Block,
    Clause,
    Coordinate,
    Dim,
    Fn,
    Kind,
    Let,
    Op,
    Place,
    Read,
    Reduce,
    Rest,
    Scan,
    Size,
    Tensor,
    Term,
    walk,
)

from indexical.syntax.vocabulary import SCANS


class Scans(Draws):
    """Draws terms with coordinates, definitions or parameters of their own. The terms inside them are drawn by `term`,
    the guards by `guard`.
    """

    def term(self, scope: Scope, kind: Kind, level: int) -> Term:
        raise NotImplementedError

    def leaf(self, scope: Scope, kind: Kind) -> Term:
        raise NotImplementedError

    def guard(
        self, scope: Scope, about: Sequence[Coordinate], level: int, safe: Coordinate | None = None, data: bool = True
    ) -> tuple[Term, tuple[tuple[Term, Dim], ...]]:
        raise NotImplementedError

    # --------------------------------------------------------------- reductions, normalisers

    def reduction(self, scope: Scope, level: int, kind: Kind = "real") -> Term:
        ops = {
            "real": ((5, "sum"), (2, "max"), (2, "min"), (2, "mean"), (2, "prod")),
            "whole": ((4, "sum"), (1, "prod"), (2, "max"), (2, "min"), (2, "argmax"), (2, "argmin")),
            "bool": ((1, "any"), (1, "all")),
        }[kind]
        op = self.weighted(*ops)  # type: ignore[arg-type]
        full = op in ("mean", "argmax", "argmin") or (kind == "whole" and op in ("max", "min"))
        single = op in ("argmax", "argmin")
        made = self.bound(scope, 1 if single else 1 + self.choose(10) // 7, full, single)
        if made is None:
            return self.leaf(scope, kind)
        inner, drafts = made
        inner = replace(inner, zero=op in ("sum", "any", "all"))
        body_kind: Kind = kind
        if op in ("argmax", "argmin", "mean"):
            body_kind = self.weighted((4, "real"), (1, "whole"))
        guard: Term | None = None
        within = inner
        if self.chance(35):
            guard, within = self.reduction_guard(inner, drafts, op, full, level)
        body = self.term(within, body_kind, level - 1)
        if isinstance(drafts[0], Rest) and not any(isinstance(p, Read) and p.rest is drafts[0] for p in walk(body)):
            return self.leaf(scope, kind)
        binders = self.finished(scope, drafts, body, guard)
        return Reduce(op, binders, body, guard, kind)

    def reduction_guard(
        self, inner: Scope, drafts: list[Any], op: str, full: bool, level: int
    ) -> tuple[Term | None, Scope]:
        """A guard, and the scope under it. A reduction that needs a point gets one whatever the sizes are."""
        own = [draft.coordinate for draft in drafts if isinstance(draft, Binder)]
        if not own:
            return None, inner
        repeated = self.repeated_guard(inner)
        if repeated is not None and not full:
            return repeated[0], replace(inner, present=(*inner.present, *repeated[1]))
        if not full:
            guard, facts = self.guard(inner.strict(), own, level - 1)
            return guard, inner.given(facts)
        if len(own) != 1 or own[0].dim is None or own[0].dependent:
            return None, inner
        guard, facts = self.guard(inner.strict(), own, level - 1, own[0], data=op in ("mean", "argmax", "argmin"))
        return guard, inner.given(facts)

    def repeated_guard(self, scope: Scope) -> tuple[Term, list[Term]] | None:
        """The guard of a definition with absent points, and the read of it that is then allowed anywhere."""
        if not self.chance(60):
            return None
        for tensor in scope.tensors[::-1]:
            if tensor.guard is None or tensor.kind != "real":
                continue
            coordinates, guard = tensor.guard
            # Two sizes may only turn out to be the same in a call: then nothing is proved by repeating them.
            if any(isinstance(part, Size) for part in walk(guard)):
                continue
            chosen: dict[Coordinate, Coordinate] = {}
            for old in coordinates:
                fitting = [c for c in scope.coordinates if c.dim is old.dim and c not in chosen.values()]
                if fitting:
                    chosen[old] = fitting[-1]
            if len(chosen) == len(coordinates):
                read = Read(tensor, tuple(Place(chosen[old]) for old in coordinates))
                return moved(guard, chosen), [read]
        return None

    def bound(self, scope: Scope, count: int, full: bool, single: bool = False) -> tuple[Scope, list[Any]] | None:
        """The scope with new coordinates, each of them with its range or, as a coordinate alone, still without."""
        drafts: list[Any] = []
        if not single and self.chance(25) and scope.rest is None and (rest := self.rest(scope)) is not None:
            drafts.append(rest)
            size = 1
            for coordinate in rest.coordinates:
                size *= size_of(coordinate.dim)  # type: ignore[arg-type]
            if not (full and size == 0) and scope.points * size <= MOST_POINTS:
                return replace(scope, rest=rest, points=scope.points * max(1, size)), drafts
            return None
        for _ in range(count):
            beside = [draft.coordinate for draft in drafts]
            made = self.ranged(scope, full, beside) if self.chance(30) else None
            if made is None:
                dims = self.dims(scope, full)
                if not dims:
                    break
                dim = self.pick(dims)
                coordinate = self.coordinate(scope, dim, beside=beside)
                made = coordinate, ((Place(coordinate), dim),), coordinate
            coordinate, places, draft = made
            size = max((size_of(dim) for _, dim in places), default=1)
            if scope.points * size > MOST_POINTS:
                break
            scope = scope.binding(coordinate, *places, size=size)
            drafts.append(draft if isinstance(draft, Binder) else Binder(coordinate))
        return (scope, drafts) if drafts else None

    def dims(self, scope: Scope, full: bool) -> list[Dim]:
        """The dimensions of what can be read here, those of tensors with more axes more often."""
        found = [dim for tensor in scope.tensors for dim in tensor.axes[tensor.open or 0 :]]
        found += [dim for tensor, first in scope.previous for dim in tensor.axes[len(first) :]]
        if scope.in_function:
            found = [dim for dim in found if dim.size is None]
        return [dim for dim in found if not full or size_of(dim) > 0]

    def rest(self, scope: Scope, name: str | None = None) -> Rest | None:
        """`..r` for the leading axes of something."""
        if scope.in_function or self.spaces:
            return None
        opens = [tensor for tensor in scope.tensors if tensor.open is not None]
        if opens and not self.chance(25):
            lead = self.pick(opens)
            dims, flat = lead.axes[: lead.open], True
        else:
            plain = [t for t in scope.tensors if t.open is None and t.axes and (scope.zero or not t.leaky)]
            if not plain:
                return None
            lead = self.pick(plain)
            dims, flat = lead.axes[: 1 + self.choose(len(lead.axes))], False
        return Rest(name or self.pick(("r", "s")), tuple(Coordinate("", dim) for dim in dims), flat)

    def ranged(self, scope: Scope, full: bool, beside: Sequence[Coordinate]) -> tuple[Coordinate, Any, Binder] | None:
        """A coordinate with a range of its own: up to or from another coordinate, or past the first point."""
        dims = [dim for dim in self.dims(scope, full) if size_of(dim) > 0]
        around = [(t.coordinate, dim) for t, dim in scope.places if isinstance(t, Place)]
        if around and self.chance(70):
            other, dim = self.pick(around)
            coordinate = self.coordinate(scope, dim, full=False, dependent=True, beside=beside)
            place = Place(other)
            binder = self.pick(
                (
                    Binder(coordinate, number(0), place, inclusive=True),
                    Binder(coordinate, place, self.extent(scope, dim)),
                    Binder(coordinate, number(0), plus(place, 1)),
                    *(() if full else (Binder(coordinate, number(0), place),)),
                    *(() if full else (Binder(coordinate, plus(place, 1), self.extent(scope, dim)),)),
                )
            )
            return coordinate, ((Place(coordinate), dim),), binder
        if not dims or full:
            return None
        dim = self.pick(dims)
        coordinate = self.coordinate(scope, dim, full=False, beside=beside)
        if dim.size is not None:
            coordinate.count = Dim(dim.size - 1)
        places = ((Place(coordinate), dim), (plus(Place(coordinate), -1), dim))
        return coordinate, places, Binder(coordinate, number(1), self.extent(scope, dim))

    def finished(self, scope: Scope, drafts: list[Any], *nodes: Any) -> tuple[Any, ...]:
        """Binders, with ranges where none can be found without one."""
        binders: list[Any] = []
        for number_, draft in enumerate(drafts):
            if isinstance(draft, Binder) and draft.lower is None:
                later = [d for d in drafts[number_ + 1 :] if isinstance(d, Binder)]
                binders.append(self.entered(scope, draft.coordinate, *nodes, *later))
            else:
                binders.append(draft)
            if isinstance(draft, Binder):
                scope = scope.binding(draft.coordinate)
        return tuple(binders)

    def scannable(self, scope: Scope) -> list[Coordinate]:
        return [c for c in scope.coordinates if c not in scope.fixed]

    def scan(self, scope: Scope, level: int, kind: Kind = "real") -> Term:
        op = self.pick(("cumsum", "rank") if kind == "whole" else ("softmax", "log_softmax", *SCANS))
        dependent = [c for c in self.scannable(scope) if c.dependent]
        coordinate = self.pick(dependent if dependent and self.chance(50) else self.scannable(scope))
        inner = replace(scope.scanning(coordinate), zero=op == "cumsum")
        guard: Term | None = None
        if self.chance(40):
            repeated = self.repeated_guard(inner)
            if repeated is not None:
                guard, inner = repeated[0], replace(inner, present=(*inner.present, *repeated[1]))
            else:
                guard, facts = self.guard(inner.strict(), [coordinate], level - 1)
                inner = inner.given(facts)
        whole = self.chance(10) if op not in SCANS else kind == "whole"
        body_kind: Kind = "whole" if whole else "real"
        return Scan(op, coordinate, self.term(inner, body_kind, level - 1), guard, kind)

    # --------------------------------------------------------------------- blocks, functions

    def may_block(self, scope: Scope) -> bool:
        return not any(coordinate.dependent for coordinate in scope.coordinates) and scope.rest is None

    def block(self, scope: Scope, level: int, kind: Kind = "real") -> Term:
        """`{ let …; … }`, with definitions that may mention the coordinates around."""
        lets: list[Let] = []
        # Whether what is defined under a condition is there for all points of a row is not for these laws to say.
        inner = replace(scope, fixed=scope.coordinates) if scope.conditional else scope
        for _ in range(1 + self.chance(40)):
            let = self.local(inner, level - 1)
            lets.append(let)
            inner = replace(inner, tensors=(*inner.tensors, let.tensor))
        use = self.read_at(inner, lets[-1].tensor) if self.is_readable(inner, lets[-1].tensor) else None
        body = self.term(inner, kind, level - 1)
        if use is not None and kind == use.kind == "real":
            body = Op((self.pick(("+", "*")),), (use, body), "real")
        return Block(tuple(lets), body)

    def local(self, scope: Scope, level: int) -> Let:
        name = self.fresh("l")
        inner, drafts = scope, []
        if self.chance(50):
            made = self.bound(scope, 1, True, single=True)
            if made is not None and all(isinstance(d, Binder) and d.lower is None for d in made[1]):
                inner, drafts = made
        body = self.term(replace(inner, zero=True), "real", max(0, level))
        slots = self.finished(scope, drafts, body)
        axes = tuple(draft.coordinate.dim for draft in drafts)
        tensor = Tensor(name, axes, "real", leaky=leaks(body))
        return Let(tensor, (Clause(slots, body),))

    def apply(self, scope: Scope, level: int, kind: Kind = "real") -> Term:
        """A call, its result read at once where it is a tensor."""
        dependent = [c for c in scope.coordinates if c.dependent]
        for fn in self.shuffled([fn for fn in scope.functions if fn.body.kind == kind]):
            # What is handed to a function that gives a tensor becomes an axis of it: its range has to be a plain one.
            call = self.call(scope.without(dependent) if fn.result else scope, fn, level)
            if call is not None and not (fn.guard is not None and not scope.zero):
                return replace(call, indices=tuple(self.index(scope.strict(), dim) for dim in call.axes))
        return self.leaf(scope, kind)

    def call(self, scope: Scope, fn: Fn, level: int) -> Apply | None:
        """A call with arguments that fit, None where there are none. Nothing absent is handed over."""
        scope = scope.strict()
        known: dict[Dim, Dim] = {}
        arguments: list[Any] = []
        for parameter, home in zip(fn.parameters, fn.homes, strict=True):
            if home is None:
                arguments.append(self.term(scope, parameter.kind, min(1, level - 1)))
                continue
            fitting = [t for t in scope.tensors if self.fits(t, parameter, known)]
            if not fitting:
                return None
            given = self.pick(fitting)
            known.update(zip(parameter.axes, given.axes, strict=True))
            arguments.append(given)
        axes = tuple(known[slot.coordinate.dim] for slot in fn.result or ())  # type: ignore[index]
        return Apply(fn, tuple(arguments), (), axes)

    def fits(self, tensor: Tensor, parameter: Tensor, known: Mapping[Dim, Dim]) -> bool:
        if tensor.kind != parameter.kind or tensor.leaky or tensor.open is not None:
            return False
        if len(tensor.axes) != len(parameter.axes) or not all(size_of(dim) for dim in tensor.axes):
            return False
        wanted: dict[Dim, Dim] = dict(known)
        return all(wanted.setdefault(dim, own) is own for dim, own in zip(parameter.axes, tensor.axes, strict=True))
