"""Claims of a contract on the relation that a callable was read as: proved by its guards, or refuted at a point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise, product
from typing import Any

import numpy as np

from ..facts.attention import Comparison, Gather
from ..facts.contracts import gather_of
from ..facts.figures import Known, figure
from ..facts.lints.scale import scaling
from ..facts.roles import query_of, rows_of
from ..facts.rotations import sides
from ..facts.view import View
from ..ir import build
from ..ir import nodes as ir
from ..ir.domain import Domain
from ..ir.types import Coordinate
from ..ir.walk import walk
from ..lift import Reading
from ..lift.expressions import ABSENT
from ..source import Span
from .access import role_of_name
from .contract import Contract, evaluate
from .inquiry import number
from .layout import Layout
from .scores import name_scale, scale_cause

_POINTS = 4000
_SOME = 40  # Points at which a slope is compared.
# What leaves a product of queries and keys one: all else that is done with them bends it.
_PRODUCTS = frozenset("+ - * neg sin cos".split())
_REGIONS = "the regions of the contract"
_Place = tuple[Known, dict[Coordinate, int]]


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds of the relation, the place that says so, and where it fails, what is there instead."""

    holds: bool
    span: Span | None
    witness: str = ""
    cause: str = ""
    mend: str = ""


def verdicts(
    reading: Reading,
    example: Mapping[str, Any],
    layouts: Mapping[str, Layout],
    sizes: Mapping[str, int],
    contract: Contract,
) -> dict[str, Verdict]:
    """The claims of a contract that are proved, by law; nothing of those that cannot be told from the relation."""
    relation = _Relation(reading, example, layouts, sizes, contract)
    if relation.gather is None or relation.query is None or not relation.is_all:
        return {}
    found = {law: told for law, told in relation.reach() if not told.holds or not relation.has_others}
    plain = contract.rows in (1, "1") and not contract.kernel and not contract.attends and relation.drops_no_weights
    if plain and rows_of(relation.view, relation.gather, reading.outputs[0]) == "sum to 1":
        found["rows"] = Verdict(True, None)
    for law, told in (("scale", relation.scale()), ("rotary", relation.rotary())):
        if told is not None:
            found[law] = told
    for law, told in relation.score():
        found[law] = told
    return {law: replace(told, span=_placed(reading, told.span)) for law, told in found.items()}


def _times(sizes: Mapping[str, int], times: int) -> dict[str, int]:
    return {name: times * size for name, size in sizes.items()}


def _placed(reading: Reading, span: Span | None) -> Span | None:
    site = None if span is None else reading.place_of(span)
    return None if site is None else site.span


@dataclass
class _Relation:
    reading: Reading
    example: Mapping[str, Any]
    layouts: Mapping[str, Layout]
    sizes: Mapping[str, int]
    contract: Contract

    @cached_property
    def view(self) -> View:
        return View(self.reading.ir).joined

    @cached_property
    def gather(self) -> Gather | None:
        found = gather_of(self.view, self.reading.outputs[0])
        return found if isinstance(found, Gather) else None

    @property
    def is_all(self) -> bool:
        """Whether the weights are those of the one gather that there is: no other is added, subtracted or beside it."""
        assert self.gather is not None
        site = self.gather.site
        return len(self.view.gathers) + len(self.view.free) == 1 and not site.beside and len(site.weights) == 1

    @property
    def has_others(self) -> bool:
        """Whether something along positions is given beside queries, keys and values: what it lets through is not
        seen in the weights."""
        along = [
            name
            for name, layout in self.layouts.items()
            if name in self.example and {"i", "j", "t"} & set(layout.factors) and name not in self.contract.masks
            if "float" in str(getattr(self.example[name], "dtype", ""))
        ]
        return len(along) > 1 and any(role_of_name(name) is None for name in along)

    @property
    def drops_no_weights(self) -> bool:
        """Whether what is dropped is dropped from the scores: a weight that is dropped later is missing in the sum."""
        assert self.gather is not None
        conditions = {condition.expr for condition in self.gather.site.product.conditions}
        return conditions <= set(self.gather.weights.kept)

    @cached_property
    def query(self) -> Coordinate | None:
        asks = frozenset() if self.gather is None else query_of(self.view, self.gather)
        return next(iter(asks)) if len(asks) == 1 else None

    @property
    def key(self) -> Coordinate:
        assert self.gather is not None
        return self.gather.coordinate

    # ------------------------------------------------------------------------------- who hears whom

    @property
    def guards(self) -> list[ir.Expr]:
        assert self.gather is not None
        conditions = [condition.expr for condition in self.gather.site.product.conditions]
        return list(dict.fromkeys((*self.gather.weights.kept, *conditions)))

    @cached_property
    def ranges(self) -> dict[Coordinate, ir.Range]:
        assert self.gather is not None
        summed = [step.range for step in self.gather.site.product.summed]
        return {r.coordinate: r for r in (*self.gather.site.clause.ranges, *summed)}

    def reach(self) -> Iterator[tuple[str, Verdict]]:
        """Claims on who is heard: each follows from the guards, or some point that they leave breaks it."""
        claims = list(self._reach_claims())
        if not claims or any(c not in self.ranges for c in (self.query, self.key)):
            return
        domain = Domain.of(self.ranges.values(), self.guards, self.view.lets)
        span = self.guards[0].span if self.guards else self._weights_span
        open_claims: dict[str, list[ir.Expr]] = {}
        for law, claim in claims:
            if not domain.proves(claim):
                open_claims.setdefault(law, []).append(claim)
        for law in dict.fromkeys(law for law, _ in claims):
            if law not in open_claims:
                yield law, Verdict(True, span)
                continue
            places = self._at_points(open_claims[law])
            heard = next((at for at, wanted in places if not all(wanted) and self._heard(at)), None)
            if heard is not None:
                yield law, Verdict(False, span, f"{self._pair(heard)}, which {law} drops")
        if self.contract.causal is None and self.contract.window is None:
            return  # What is not declared may drop more.
        places = self._at_points([claim for _, claim in claims])
        lost = next((at for at, wanted in places if all(wanted) and self._heard(at) is False), None)
        if lost is not None:
            yield "gap", Verdict(False, span, f"{self._pair(lost)} in what is declared alone")

    def _pair(self, place: _Place) -> str:
        query, key = (place[1].get(c, 0) for c in (self.query, self.key) if c is not None)
        return f"query {query} hears key {key}"

    @property
    def _weights_span(self) -> Span:
        assert self.gather is not None
        return self.gather.weights.span

    def _reach_claims(self) -> Iterator[tuple[str, ir.Expr]]:
        assert self.query is not None
        span = self._weights_span
        i, j = build.coord(self.query, span), build.coord(self.key, span)
        contract = self.contract
        here: ir.Expr = i
        if contract.causal == "bottom-right" and self.query in self.ranges and self.key in self.ranges:
            ends = self.ranges[self.key].upper, self.ranges[self.query].upper
            here = build.apply("+", (i, build.apply("-", ends, "whole", span)), "whole", span)
        if contract.causal:
            yield "causal", build.apply("<=", (j, here), "bool", span)
        if contract.window is not None:
            gap = build.apply("-", (here, j), "whole", span)
            yield "window", build.apply("<", (gap, build.whole(contract.window, span)), "bool", span)
        if contract.documents is not None:
            asks = self._read(contract.documents, self.query)
            answers = self._read(contract.documents, self.key)
            if asks is not None and answers is not None:
                yield "documents", build.apply("==", (asks, answers), "bool", span)
        if contract.regions is not None:
            ids = (build.read(_REGIONS, (at,), "whole", span) for at in (i, j))
            yield "regions", build.apply("==", tuple(ids), "bool", span)
        for name, polarity in contract.masks.items():
            read = self._read(name, self.key)
            if read is None or polarity == "additive":
                continue
            marked: ir.Expr = read
            if read.type.kind != "bool":
                marked = build.apply("!=", (read, build.whole(0, span)), "bool", span)
            yield "mask", marked if polarity == "keep" else build.apply("!", (marked,), "bool", span)

    def _read(self, name: str, along: Coordinate) -> ir.Read | None:
        """An argument as its axes say: the one axis of positions that it may have is read at the coordinate."""
        layout = self.layouts.get(name)
        given = next((tensor for tensor in self.reading.ir.inputs if tensor.name == name), None)
        if layout is None or given is None or len(layout.dims) != len(given.axes):
            return None
        assert self.gather is not None
        known = {c.name: c for c in (*self.gather.weight_coordinates, self.key)}
        alone = not {"i", "j"} <= set(layout.factors)
        indices: list[ir.Expr] = []
        for dim in layout.dims:
            letter = dim[0] if len(dim) == 1 else ""
            place = {"j": self.key, "i": self.query}.get(letter) or known.get(letter)
            if letter in ("i", "j") and alone:
                place = along
            if place is None:
                return None
            indices.append(build.coord(place, self._weights_span))
        return build.read(name, tuple(indices), given.kind, self._weights_span)

    def _at_points(self, claims: list[ir.Expr]) -> Iterator[tuple[_Place, list[bool]]]:
        """The claims at points of the relation; none from where one is not known."""
        assert self.gather is not None
        score = self.gather.weights.score
        for known, point in self._points([*self.guards, *claims, *(() if score is None else (score,))]):
            wanted = [figure(self.view.forms, claim, point, known) for claim in claims]
            if None in wanted:
                return
            yield (known, point), wanted

    def _heard(self, place: _Place) -> bool | None:
        """Whether a key is heard at a point; None where that is not known. A score of -10,000 is a mask."""
        assert self.gather is not None
        known, point = place
        kept = [figure(self.view.forms, guard, point, known) for guard in self.guards]
        if None in kept or not all(kept):
            return None if None in kept else False
        score = self.gather.weights.score
        level = None if score is None else figure(self.view.forms, score, point, Known(known.sizes, known.arrays, 0.0))
        return None if level is None else bool(level > ABSENT)

    # ------------------------------------------------------------------------------- points and arrays

    def _points(self, exprs: list[ir.Expr]) -> Iterator[tuple[Known, dict[Coordinate, int]]]:
        used = sorted({c for expr in exprs for c in expr.type.coordinates}, key=str)
        for seed in range(2):
            arrays = self._arrays(seed)
            sizes = self._sizes(arrays)
            ends = [sizes.get(c.name) or self._end(c, sizes) for c in used]
            if any(end is None for end in ends):
                return
            known = Known(sizes, arrays)
            for values in islice(product(*(range(end) for end in ends if end is not None)), _POINTS):
                yield known, dict(zip(used, values, strict=True))

    def _end(self, coordinate: Coordinate, sizes: Mapping[str, int]) -> int | None:
        range_ = self.ranges.get(coordinate)
        found = None if range_ is None else figure(self.view.forms, range_.upper, {}, Known(sizes))
        return found if isinstance(found, int) else None

    def _arrays(self, seed: int) -> dict[str, Any]:
        """The inputs of the relation: masks and ids drawn anew, everything that the callable holds as it is."""
        rng = np.random.default_rng(seed)
        found = {name: np.asarray(value) for name, value in self.reading.held_tensors().items()}
        if self.contract.regions is not None:
            found[_REGIONS] = np.asarray(self.contract.regions)
        for name, value in self.example.items():
            if not hasattr(value, "shape"):
                continue
            shape = tuple(value.shape)
            if name == self.contract.documents:
                found[name] = rng.integers(0, 2, size=shape)
            elif name in self.contract.masks and self.contract.masks[name] != "additive":
                found[name] = rng.integers(0, 2, size=shape).astype(bool)
            elif "float" in str(value.dtype):
                found[name] = rng.normal(size=shape)
            else:
                found[name] = np.asarray(value)
        return found

    def _sizes(self, arrays: Mapping[str, Any]) -> dict[str, int]:
        return {
            axis.coordinate.name: length
            for tensor in self.reading.ir.inputs
            if tensor.name in arrays
            for axis, length in zip(tensor.axes, arrays[tensor.name].shape, strict=True)
        }

    # ------------------------------------------------------------------------------- what scores are made of

    def scale(self) -> Verdict | None:
        """The product of all numbers that a comparison is multiplied by, against the one that is declared."""
        assert self.gather is not None
        comparisons = self.view.comparisons(self.gather)
        if self.contract.scale is None or len(comparisons) != 1 or self.gather.weights.score is None:
            return None
        if not self._is_line(self.gather.weights.score) or not self._compares_projections(comparisons[0]):
            return None
        factors = scaling(self.view, self.gather, comparisons[0])
        arrays = self._arrays(0)
        sizes, letters = self._sizes(arrays), self._letters()
        if "d" not in letters:
            return None
        sized = any(isinstance(part, ir.Size) for factor in factors for part in walk(factor.expr))
        span = next((f.expr.span for f in factors), self.gather.weights.score.span)
        follows = evaluate(self.contract.scale, letters) != evaluate(self.contract.scale, _times(letters, 3))
        # A scale that follows the sizes is compared at others too.
        for times in (1, 3) if sized else (1,):
            known = Known({name: times * size for name, size in sizes.items()}, arrays)
            total = 1.0
            for factor in factors:
                value = None if factor.coordinates else figure(self.view.forms, factor.expr, {}, known)
                if not value:
                    return None
                total *= 1 / value if factor.inverse else value
            wanted = evaluate(self.contract.scale, {name: times * size for name, size in letters.items()})
            if not math.isclose(total, wanted, rel_tol=1e-5):
                heads = letters.get("h", 1)
                name = name_scale(total, letters, heads) if times == 1 else ""
                witness = f"the scale is {number(total)}, and not {number(wanted)}"
                return Verdict(False, span, witness, *scale_cause(total, wanted, letters["d"], name))
        # A number that is right for these sizes need not be for others.
        return Verdict(True, span) if sized or not follows else None

    def _is_line(self, score: ir.Expr) -> bool:
        """Whether a score grows by as much for every step of `q·k`: of small ones, where a cap is declared."""
        small, near = (1.0, 1e-6) if self.contract.softcap is None else (1e-3, 1e-4)
        totals = (-1.0, 0.0, 1.0, 2.0) if self.contract.softcap is not None else (-1e4, -1.0, 0.0, 1.0, 2.0, 1e4)
        points = list(islice(self._points([score]), _POINTS))
        slopes: list[float] = []
        # The corners of who asks and who answers, and some between: every point has one slope.
        for known, point in points[:: max(1, len(points) // _SOME)] + points[-1:]:
            values = [
                figure(self.view.forms, score, point, Known(known.sizes, known.arrays, total * small))
                for total in totals
            ]
            if None in values:
                return False
            steps = [
                (second - first) / (after - before)
                for (first, second), (before, after) in zip(pairwise(values), pairwise(totals), strict=True)
            ]
            if not all(math.isfinite(step) for step in steps):
                continue  # The key is masked there.
            slopes += steps
        return bool(slopes) and all(math.isclose(slope, slopes[0], rel_tol=near) for slope in slopes)

    def _compares_projections(self, comparison: Comparison) -> bool:
        """Whether both sides are made of inputs by products and sums alone: where they are normed, or bent otherwise,
        the numbers on the way are not all of the scale."""
        waiting = [factor.expr for factor in (*comparison.query_side, *comparison.key_side)]
        seen: set[str] = set()
        while waiting:
            for part in walk(waiting.pop()):
                if isinstance(part, ir.Map) and part.op not in _PRODUCTS and not part.op.startswith("as "):
                    bent = part.arguments[1:] if part.op == "/" else part.arguments
                    if any(self._hangs_on_inputs(argument) for argument in bent):
                        return False
                if isinstance(part, ir.Reduce) and part.op not in ("sum", "mean"):
                    return False
                if isinstance(part, ir.Normalize):
                    return False
                if isinstance(part, ir.Read) and part.tensor in self.view.lets and part.tensor not in seen:
                    seen.add(part.tensor)
                    waiting += [clause.body for clause in self.view.lets[part.tensor].clauses]
        return True

    def _hangs_on_inputs(self, expr: ir.Expr) -> bool:
        read = {part.tensor for part in walk(expr) if isinstance(part, ir.Read)}
        return any(name not in self.view.lets for name in self.view.made_of(*read))

    def _letters(self) -> dict[str, int]:
        """Sizes by the letters of the axes."""
        heads = self.sizes.get("h", 0)
        inside = {"d": self.sizes["c"] // heads} if heads and "c" in self.sizes else {}
        return {**inside, **self.sizes}

    def score(self) -> Iterator[tuple[str, Verdict]]:
        """Scores as functions of `q·k`: the soft cap, and what is added by distance or by a mask."""
        assert self.gather is not None
        score = self.gather.weights.score
        additive = [name for name, polarity in self.contract.masks.items() if polarity == "additive"]
        if score is None or self.query is None:
            return
        if self.contract.softcap is not None:
            told = self._capped(score, self.contract.softcap)
            if told is not None:
                yield "softcap", Verdict(told, score.span, "scores of 1e9 and -1e9 are not the cap apart from 0")
        if self.contract.alibi is not None and not additive:
            told = self._sloped(score, self.contract.alibi)
            if told is not None:
                yield "alibi", Verdict(told, score.span, "scores do not fall by the slope for each step back")

    def _capped(self, score: ir.Expr, cap: float) -> bool | None:
        """Whether no score is beyond the cap, and large ones reach it."""
        found = []
        for known, point in islice(self._points([score]), 1):
            for total in (1e9, -1e9):
                value = figure(self.view.forms, score, point, Known(known.sizes, known.arrays, total))
                if value is None:
                    return None
                found.append(value)
        if len(found) != 2:
            return None
        return math.isclose((found[0] - found[1]) / 2, cap, rel_tol=1e-4)

    def _sloped(self, score: ir.Expr, slopes: list[float]) -> bool | None:
        """Whether scores fall by the slope of the head for every step back from the query."""
        heads = [c for c in score.type.coordinates if c.name == "h"]
        seen = False
        for known, point in self._points([score]):
            i, j = point.get(self.query), point.get(self.key)  # type: ignore[arg-type]
            if i is None or j is None or j >= i or (self.contract.softcap is not None):
                continue
            at = Known(known.sizes, known.arrays, 0.0)
            here = figure(self.view.forms, score, {**point, self.key: i}, at)
            there = figure(self.view.forms, score, point, at)
            if here is None or there is None:
                return None
            slope = slopes[point[heads[0]]] if heads else slopes[0]
            if not math.isclose(here - there, slope * (i - j), rel_tol=1e-4, abs_tol=1e-6):
                return False
            seen = True
        return True if seen else None

    def rotary(self) -> Verdict | None:
        """The pairing of features that turn together, and that both sides turn by their own positions alike."""
        assert self.gather is not None
        if self.contract.rotary is None:
            return None
        for _, query, key in sides(self.view, self.gather):
            if not query.turns or not key.turns:
                turned, still = (query, key) if query.turns else (key, query)
                # A side that is multiplied by tables turns, perhaps; and what was kept may have been turned before.
                met = turned.offset(self.view) if turned.turns else None
                counted = met is not None and met.constant == 0
                if turned.turns and still.plain and (counted or turned.inputs & still.inputs):
                    return Verdict(False, still.factor.expr.span, "one side is not rotated")
                return None
            mine, theirs = query.rates(self.view), key.rates(self.view)
            if mine is None or theirs is None or None in mine or None in theirs or len(mine) != len(theirs):
                return None
            ends = (figure(self.view.forms, bound, {}, len(mine)) for bound in (query.over.lower, query.over.upper))
            if dict(enumerate(ends)) != {0: 0, 1: len(mine)} or len(mine) % 2:
                return None
            one, other = np.array(mine, float), np.array(theirs, float)
            half = len(one) // 2
            paired = {"half": np.allclose(one[:half], one[half:]), "pair": np.allclose(one[::2], one[1::2])}
            kind = self.contract.rotary
            good = np.allclose(one, other) and (kind == "relative" or paired[kind])
            return Verdict(
                bool(good), query.factor.expr.span, "features that turn alike are other pairs, or sides differ"
            )
        return None
