"""The derivative of attention, in any spelling: definitions that are the cotangents of its query, key and value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import permutations
from typing import Protocol

from ....ir import build
from ....ir import nodes as ir
from ....ir.algebra.canonical import text
from ....ir.algebra.contents import Contents
from ....ir.algebra.normal import (
    EMPTY,
    Binder,
    Form,
    Leaf,
    Number,
    Product,
    TooLarge,
    form,
    magnitude,
    multiplied,
    product,
    times,
)
from ....ir.algebra.sums import replaced, summed
from ....ir.algebra.writing import name_for, named, written
from ....ir.needs import needed
from ....ir.types import Coordinate
from ....ir.walk import fresh_name
from ....plan.steps import Attend, Gradient, Receiver, Refusal, Step
from ....records import dataclass, field, replace
from .backflow import Flowing, Scene, binder_of, flows_back
from .cotangents import Gather, Use, adjoint_of, gathered, read_of
from .ordering import Uses, arranged, definition, extended
from .softmaxes import may_flow_back, name_softmaxes, weights_of


class Describer(Protocol):
    """Knows the attentions among the definitions of a program."""

    def describe(self, let: ir.Let, asked: tuple[ir.Expr, ...]) -> tuple[Step, ir.Let] | str:
        """The kernel of a further definition that is an attention, all that this wants to know, and the definition as
        the kernel sees it; or why none takes it. It counts where all that is `asked` holds."""

    def add(self, let: ir.Let) -> None:
        """A definition that the program has from now on, or has in another form."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A program in which gradients of attentions are computed by their kernels, and the reasons where not.

    `flowing` are weights whose derivative no kernel computes; `left` are definitions that use weights in another way
    than attention does.
    """

    program: ir.Program
    gradients: tuple[Gradient, ...]
    refusals: tuple[Refusal, ...]
    flowing: tuple[str, ...]
    left: frozenset[str]

    @property
    def computed(self) -> frozenset[str]:
        """The definitions that the backward of a kernel computes."""
        return frozenset(name for gradient in self.gradients for name in gradient.definitions)

    @classmethod
    def none(cls, program: ir.Program) -> Derived:
        """A program without gradients of attentions."""
        return cls(program, (), (), (), frozenset())


def derive(
    program: ir.Program,
    wanted: tuple[str, ...],
    describing: Callable[[ir.Program], Describer] | None,
    contents: Contents,
) -> Derived:
    """A program that says the same, with a definition for everything that the backward of an attention computes;
    without `describing` there is no such kernel."""
    parts = (part for let in program.lets for part in contents.operations(let))
    if not any(isinstance(part, ir.Normalize) and part.op == "softmax" for part in parts):
        return Derived.none(program)
    if not may_flow_back(program, contents):
        return Derived.none(program)
    named = name_softmaxes(program, needed(program, wanted))
    uses = Uses(named, wanted)
    if not any(_is_followed(let, uses) for let in named.lets):
        return Derived.none(program)
    derived = _derived(named, wanted, describing, contents, False)
    derived = derived or _derived(named, wanted, describing, contents, True)
    assert derived is not None
    return derived if derived.gradients or derived.flowing else Derived.none(program)


def _derived(
    program: ir.Program,
    wanted: tuple[str, ...],
    describing: Callable[[ir.Program], Describer] | None,
    contents: Contents,
    one_by_one: bool,
) -> Derived | None:
    """The derivatives of all weights, in an order that is found for all at once; None where there is none. Found for
    one after the other, it leaves out those that stand in the way of others."""
    gradients: list[Gradient] = []
    refusals: list[Refusal] = []
    flowing: list[str] = []
    left: set[str] = set()
    scene = Scene(program, wanted, contents)
    describer: Describer | None = None
    for let in scene.program.lets:
        if not _is_followed(let, scene.uses):
            continue
        if describing is not None and describer is None:
            describer = describing(scene.program)
        search = _Search(scene, let.name, describer)
        made_of = search.made_of()
        if not made_of:
            continue
        left |= made_of if search.is_derived() else set()
        found = search.found()
        if one_by_one and not isinstance(found, str):
            ordered = arranged(found.program, [*gradients, *found.gradients])
            found = ordered if isinstance(ordered, str) else replace(found, program=ordered)
        if isinstance(found, str):
            flowing.append(let.name)
            refusals += [Refusal(let.name, "the backward of its kernel", found, let.span)] if found else []
        else:
            gradients += found.gradients
            scene.change(found.program, found.changed)
            for changed in found.changed:
                assert describer is not None
                describer.add(changed)
    ordered = scene.program if one_by_one or not gradients else arranged(scene.program, gradients)
    if isinstance(ordered, str):
        return None
    derived = Derived(ordered, tuple(gradients), tuple(refusals), tuple(flowing), frozenset())
    return replace(derived, left=derived.computed.union(left))


def _is_followed(let: ir.Let, uses: Uses) -> bool:
    """Whether a definition is weights that are needed, and not only gathered with."""
    return weights_of(let) is not None and let.name in uses.needed and flows_back(let, uses)


@dataclass(frozen=True, slots=True)
class _Part:
    """A term of a definition that is a gradient: which, read where, times what, summed over what else."""

    side: str
    flow: str
    indices: tuple[ir.Expr, ...]
    rest: Product
    binders: tuple[Binder, ...]
    number: Number


@dataclass(frozen=True, slots=True)
class _Forward:
    """An attention whose derivative is there: the definition that it would be, and the two sides of its scores."""

    name: str
    attend: Attend
    kernel: str
    words: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    flow: Form
    gather: Gather
    row: int
    query: Product
    key: Product
    number: Number


@dataclass(frozen=True, slots=True)
class _Found:
    """A program in which gradients are definitions, those of its definitions that are new or changed, and the
    gradients."""

    program: ir.Program
    changed: tuple[ir.Let, ...]
    gradients: list[Gradient]


@dataclass
class _Search(Flowing):
    """The search for the derivative of one softmax, as that of a gather."""

    describer: Describer | None = None
    forwards: dict[str, _Forward] = field(default_factory=dict)
    gathers: list[ir.Let] = field(default_factory=list)
    parts: dict[str, list[_Part | Form]] = field(default_factory=dict)

    def found(self) -> _Found | str:
        """The program with the gradients as definitions, or why there are none."""
        if self.describer is None:
            return ""
        try:
            return self.run()
        except TooLarge:
            return "what it is made of grows too large when it is written out"

    def run(self) -> _Found | str:
        """The program with the gradients as definitions, made of all that reads the softmax; or why there are none."""
        asked = [name for name in self.scene.wanted if name in self.pointwise - {self.name}]
        if asked:
            return f"`{asked[0]}` is asked for whole"
        readers = self.readers
        terms: dict[str, list[tuple[Number, Product]]] = {}
        for let in readers:
            found = self.form(let)
            if isinstance(found, str):
                return found
            terms[let.name] = list(found.terms)
        uses = [(let.name, number, term, self.uses(term)) for let in readers for number, term in terms[let.name]]
        for _, _, _, found_uses in uses:
            for use, _ in found_uses:
                reason = self.describe_flow(use)
                if reason is not None:
                    return reason
        if not self.forwards:
            return "nothing flows back through it that a gather of its own brings"
        for name, number, term, found_uses in uses:
            part = self.matched(number, term, found_uses)
            if isinstance(part, str):
                return f"`{name}`: {part}"
            self.parts.setdefault(name, []).append(part)
        return self.built()

    # --------------------------------------------------------------------- the attention

    def describe_flow(self, use: Use) -> str | None:
        """The attention whose derivative this is; or why there is none."""
        flow = use.flow
        if flow is None or flow.key in self.forwards:
            return None
        gather = gathered(flow, self.weights, self.algebra)
        if gather is None:
            return "what flows back to the weights is more than what one gather brings"
        weights, span = self.weights, self.lets[self.name].span
        taken = {c.name for c in weights.axes}
        names: dict[Coordinate, ir.Expr] = {}
        carried = []
        for binder in gather.carried:
            new = name_for(binder.upper, taken)
            taken.add(new.name)
            names[binder.coordinate] = build.coord(new, span)
            carried.append(ir.Range(new, binder.lower, binder.upper, binder.stated, span))
            if any(binder.coordinate not in side.coordinates for side in (gather.arriving, gather.value)):
                return "what arrives varies with more than what is gathered"
        arriving, value = (self._named(side, names) for side in (gather.arriving, gather.value))
        gather = replace(gather, arriving=arriving, value=value)
        assert self.describer is not None
        described = self.describer.describe(self._forward(carried, value), tuple(arriving.conditions.values()))
        if isinstance(described, str):
            return described
        step, let = described
        forward = self._described(let, step, flow, gather)
        if isinstance(forward, str):
            return forward
        self.program = extended(self.program, [let], {})
        self.gathers.append(let)
        self.forwards[flow.key] = forward
        return None

    def _named(self, side: Product, names: Mapping[Coordinate, ir.Expr]) -> Product:
        found = replaced(form(((1, side),)), names, self.algebra)
        return found.terms[0][1]

    def _forward(self, carried: list[ir.Range], value: Product) -> ir.Let:
        """The gather that the derivative is of, as a definition."""
        weights, span = self.weights, self.lets[self.name].span
        axes = [r for n, r in enumerate(weights.ranges) if n != weights.key] + carried
        read = build.read(self.name, tuple(build.coord(c, span) for c in weights.axes), "real", span)
        taken = [r.coordinate.name for r in (*weights.ranges, *carried)]
        other = named(written(form(((1, value),)), span), taken)
        body = build.reduce(
            "sum", (weights.ranges[weights.key],), build.apply("*", (read, other), "real", span), None, "real", span
        )
        return definition(fresh_name(f"{self.name}_gathered", self.program.tensors), axes, body)

    def _described(self, let: ir.Let, step: Step, flow: Form, gather: Gather) -> _Forward | str:
        """The attention whose gradient flows through the weights, and the two sides of its scores; the reason where
        they
        do not fit."""
        attend = step.attend
        assert attend is not None
        dot = attend.scores.dot
        if dot is None:
            return attend.scores.reason
        layout = attend.layout
        guarded = [c for c in layout.rows if any(c in g.type.coordinates for g in attend.attention.guard)]
        rows = guarded or list(layout.rows)
        if not rows:
            return "what is gathered varies with everything that asks"
        at_key = {attend.attention.coordinate: build.coord(self.weights.axes[self.weights.key], let.span)}
        if any(r.coordinate in self.weights.axes for r in dot.compared):
            return "what is compared goes by the name of the key"
        sides = [replaced(self.algebra.plain(side), at_key, self.algebra) for side in (dot.query, dot.key)]
        scale = form(((1, EMPTY),)) if dot.scale is None else self.algebra.plain(dot.scale)
        query, key = (times(scale, side) for side in sides)
        if len(query.terms) != 1 or len(key.terms) != 1:
            return "a side of its scores is a sum"
        row = self.weights.axes.index(rows[-1])
        numbers = query.terms[0][0], key.terms[0][0]
        if numbers[0] != numbers[1]:
            return "one side of its scores has a figure that the other has not"
        parts = (flow, gather, row, query.terms[0][1], key.terms[0][1], numbers[0])
        return _Forward(let.name, attend, step.kernel, step.words, step.refusals, *parts)

    # ------------------------------------------------------------------------- matching

    def matched(self, number: Number, term: Product, uses: list[tuple[Use, tuple[Binder, ...]]]) -> _Part | Form | str:
        """A term as a gradient times something; as it is where it has no derivative of the weights."""
        if not self.weights.is_in(term):
            return form(((number, term),))
        if len(uses) != 1:
            return "the weights are in it in another way than the derivative of a gather has them"
        use, binders = uses[0]
        for forward in self.forwards.values():
            if use.flow is not None and use.flow.key != forward.flow.key:
                continue
            for side, expected, over, columns in self._sides(forward, use):
                found = self._against(forward, use, binders, expected, over, columns)
                if found is not None:
                    indices, rest, left = found
                    share = Fraction(forward.gather.number if side == "value" else forward.number)
                    return _Part(side, forward.flow.key, indices, rest, left, number * use.number / share)
        if use.flow is None and binder_of(use.coordinate(self.weights.key), binders) is not None:
            return form(((number, term),))
        return "it is not what flows back to a side of the scores, or to what is gathered"

    def _sides(self, forward: _Forward, use: Use) -> Iterator[tuple[str, Product, int, tuple[Coordinate, ...]]]:
        """Yield the cofactor of the weights for each gradient, with the axis that is summed over and the columns."""
        dot = forward.attend.scores.dot
        assert dot is not None
        compared = tuple(r.coordinate for r in dot.compared)
        if use.flow is None:
            yield "value", forward.gather.arriving, forward.row, forward.attend.layout.carry
        else:
            yield "query", forward.key, self.weights.key, compared
            yield "key", forward.query, forward.row, compared

    def _against(
        self,
        forward: _Forward,
        use: Use,
        binders: tuple[Binder, ...],
        expected: Product,
        over: int,
        columns: tuple[Coordinate, ...],
    ) -> tuple[tuple[ir.Expr, ...], Product, tuple[Binder, ...]] | None:
        """Return the indices at which the gradient is read, its cofactor, and the coordinates that are summed over."""
        summed_over = use.coordinate(over)
        binder = binder_of(summed_over, binders)
        if summed_over is None or binder is None or not self._is_whole(binder, over):
            return None
        values = self.weights.at(use.indices)
        free = sorted(use.rest.coordinates - {c for v in use.indices for c in v.type.coordinates})
        for chosen in permutations(free, len(columns)):
            spots = {old: build.coord(new, binder.lower.span) for old, new in zip(columns, chosen, strict=True)}
            wanted = replaced(form(((1, expected),)), {**values, **spots}, self.algebra)
            if len(wanted.terms) != 1 or wanted.terms[0][0] != 1:
                continue
            left = _divided(use.rest, wanted.terms[0][1])
            if left is None or summed_over in left.coordinates:
                continue
            kept = [index for n, index in enumerate(use.indices) if n not in (over, forward.row, self.weights.key)]
            last = use.indices[forward.row if over == self.weights.key else self.weights.key]
            rest = tuple(b for b in binders if b is not binder)
            return (*kept, last, *spots.values()), left, rest
        return None

    def _is_whole(self, binder: Binder, axis: int) -> bool:
        """Whether a sum runs over all points of an axis of the weights."""
        own = self.weights.ranges[axis]
        same = text(binder.lower) == text(own.lower) and text(binder.upper) == text(self.algebra.whole(own.upper))
        return same or not (binder.stated or own.stated)

    # ------------------------------------------------------------------------- building

    def built(self) -> _Found:
        """The program with a definition for each gradient, or with the definition that is one in its place."""
        made: dict[tuple[str, str], ir.Let] = {}
        targets: dict[tuple[str, str], Receiver] = {}
        changed: dict[str, ir.Let] = {}
        for name, parts in self.parts.items():
            let = self.lets[name]
            only = parts[0] if len(parts) == 1 else None
            if isinstance(only, _Part) and (only.flow, only.side) not in targets:
                order = _order(let, only)
                if order is not None:
                    targets[only.flow, only.side] = Receiver(name, order)
        for name, parts in self.parts.items():
            let = self.lets[name]
            if any(target.definition == name for target in targets.values()) or not any(
                isinstance(part, _Part) for part in parts
            ):
                continue
            changed[name] = self._rewritten(let, parts, targets, made)
        gradients = [self._gradient(forward, targets) for forward in self.forwards.values()]
        program = extended(self.program, list(made.values()), changed)
        return _Found(program, (*self.gathers, *made.values(), *changed.values()), gradients)

    def _rewritten(
        self,
        let: ir.Let,
        parts: list[_Part | Form],
        targets: dict[tuple[str, str], Receiver],
        made: dict[tuple[str, str], ir.Let],
    ) -> ir.Let:
        """A definition that reads gradients where it had what they are."""
        terms: list[tuple[Number, Product]] = []
        for part in parts:
            if isinstance(part, Form):
                terms += part.terms
                continue
            place = part.flow, part.side
            if place not in targets:
                made[place] = self._made(self.forwards[part.flow], part.side)
                targets[place] = Receiver(made[place].name, tuple(range(len(made[place].axes))))
            target = targets[place]
            read = build.read(target.definition, tuple(part.indices[n] for n in target.order), "real", let.span)
            atom = Leaf(read, f"1{text(read)}", read.type.coordinates, 0)
            inner = multiplied(part.rest, product(((atom, 1),)))
            found = summed(form(((1, inner),)), part.binders, self.algebra)
            terms += [(part.number * number, term) for number, term in found.terms]
        clause = let.clauses[0]
        body = named(written(form(terms), clause.span), (r.coordinate.name for r in clause.ranges))
        return replace(let, clauses=(replace(clause, body=body),))

    def _made(self, forward: _Forward, side: str) -> ir.Let:
        """A definition for a gradient that no definition is."""
        weights, span = self.weights, self.lets[self.name].span
        dot = forward.attend.scores.dot
        assert dot is not None
        flow = adjoint_of(forward.flow, weights, self.algebra)
        let = next(let for let in self.gathers if let.name == forward.name)
        own = {r.coordinate: r for r in (*let.clauses[0].ranges, *dot.compared)}
        over, columns = {
            "query": (weights.key, tuple(r.coordinate for r in dot.compared)),
            "key": (forward.row, tuple(r.coordinate for r in dot.compared)),
            "value": (forward.row, forward.attend.layout.carry),
        }[side]
        value = {"query": forward.key, "key": forward.query, "value": forward.gather.arriving}[side]
        number = forward.gather.number if side == "value" else forward.number
        left = read_of(weights, self.algebra) if side == "value" else flow
        body = times(left, form(((number, value),)))
        total = summed(body, [weights.binder(over, weights.axes[over], self.algebra)], self.algebra)
        kept = [r for n, r in enumerate(weights.ranges) if n not in (weights.key, forward.row)]
        last = weights.ranges[forward.row if over == weights.key else weights.key]
        axes = [*kept, last, *(own[c] for c in columns)]
        shown = named(written(total, span), [r.coordinate.name for r in axes])
        return definition(fresh_name(f"d_{side}", self.program.tensors), axes, shown)

    def _gradient(self, forward: _Forward, targets: Mapping[tuple[str, str], Receiver]) -> Gradient:
        span = self.lets[self.name].span
        gather = forward.gather
        taken = [r.coordinate.name for r in self.weights.ranges]
        arriving = named(written(form(((gather.number, gather.arriving),)), span), taken)
        found = {side: targets.get((forward.flow.key, side)) for side in ("query", "key", "value")}
        words = tuple(w for w in forward.words if "wants a gradient" not in w)
        return Gradient(
            self.name, forward.name, forward.attend, forward.kernel, words, forward.refusals, arriving, **found
        )


# ------------------------------------------------------------------------------ products


def _divided(whole: Product, part: Product) -> Product | None:
    """Divide a product by another; None where not all of its factors are in it."""
    left = {atom.key: (atom, power) for atom, power in whole.factors}
    for atom, power in part.factors:
        known = left.get(atom.key)
        if known is None or known[1] * power <= 0 or magnitude(known[1]) < magnitude(power):
            return None
        left[atom.key] = (known[0], known[1] - power)
    if any(key not in whole.conditions for key in part.conditions) or part.exponent is not None:
        return None
    conditions = {key: c for key, c in whole.conditions.items() if key not in part.conditions}
    return product([factor for factor in left.values() if factor[1]], whole.exponent, conditions)


def _order(let: ir.Let, part: _Part) -> tuple[int, ...] | None:
    """Return the axis of a gradient that each axis of a definition is, where the definition is that gradient."""
    if part.number != 1 or part.binders or part.rest.key != EMPTY.key or let.clauses[0].guard is not None:
        return None
    slots = [slot.coordinate for slot in let.clauses[0].slots if isinstance(slot, ir.Coord)]
    indices = [index.coordinate for index in part.indices if isinstance(index, ir.Coord)]
    whole = all(not r.stated for r in let.clauses[0].ranges)
    if not whole or len(slots) != len(part.indices) or sorted(slots) != sorted(indices):
        return None
    return tuple(indices.index(c) for c in slots)
