"""Why computed numbers are off: each reason is computed, and named where what comes out is what was computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ..ir import nodes as ir
from ..ir.types import Dtype
from ..records import dataclass, replace
from ..run.bind import Bound
from .arrays import Scope
from .balls import Array, Ball, Unfit
from .suppositions import Mask, Steps, Supposed, Supposition, rounded, steps_in, units

# A supposition explains what is off where it accounts for so much of it, as a sum of squares; or else most of it.
ALL, MOST = 0.85, 0.5
# Values that are no further off than this, in units, are the nearest or almost.
_NEARLY = Fraction(1, 2) + Fraction(1, 64)
# Terms cancel where their magnitudes are so many times that of their sum.
CANCELS = 8.0


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an output is off. `share` is how much of the error the supposition accounts for, where one was computed;
    `left` is the largest error against what comes out under it, in units; of a cancellation, in units of the terms."""

    kind: str
    words: str
    share: float | None = None
    left: float | None = None


def find_reasons(
    program: ir.Program,
    bound: Bound,
    output: str,
    computed: Array,
    dtype: Dtype,
    place: tuple[int, ...],
    error: Fraction | None,
    missed: int,
    measured: int,
) -> tuple[Reason, ...]:
    """The reasons of one output; `error` is that at the worst `place`, None where something is not finite. All but
    `missed` values, of those `measured`, are proved to be the nearest."""
    if error is not None and not missed:
        every = "every value" if measured == computed.size else f"each of {measured:,} values"
        return (Reason("output rounding", f"only the output is rounded: {every} is the nearest in {dtype}"),)
    stored = next((narrow for narrow in _NARROWER.get(dtype, ()) if _holds(narrow, computed)), None)
    if stored is not None:
        words = f'every value is one of {stored}, stored as {dtype}: with `dtype="{stored}"` its own units count'
        return (Reason("stored wider", words),)
    try:
        with np.errstate(all="ignore"):
            search = _Search(program, bound, output, computed, dtype)
            found, cancels = search.best(), search.cancellation(place, error)
            # What is little beside terms that cancel needs no other reason.
            enough = bool(cancels) and (cancels[0].left or 0) <= 2 and found[0].kind == "not explained"
            if found[0].kind == "not explained" and error is not None and error <= _NEARLY:
                return (_nearly(missed, measured, dtype, error),)
            return cancels if enough else (*found, *cancels)
    except Unfit as problem:
        if error is not None and error <= _NEARLY:
            return (_nearly(missed, measured, dtype, error),)
        return (Reason("not tried", f"why was not looked for: the program has {problem}"),)


def _nearly(missed: int, measured: int, dtype: Dtype, error: Fraction) -> Reason:
    words = f"little more than the output is rounded: {measured - missed:,} of {measured:,} values are the nearest in "
    return Reason("output rounding", f"{words}{dtype}, and none is more than {float(error):.3f} units off")


@dataclass(frozen=True, slots=True)
class _Tried:
    """A supposition, what comes out under it, rounded, and how much it explains."""

    share: float
    supposition: Supposition
    found: Array


_NARROWER: dict[str, tuple[str, ...]] = {"f64": ("bf16", "f16", "f32"), "f32": ("bf16", "f16")}


def _holds(dtype: str, numbers: Array) -> bool:
    """Whether a narrower dtype has all these numbers, and there are enough of them for that to be no accident."""
    with np.errstate(all="ignore"):
        finite = numbers[np.isfinite(numbers) & (numbers != 0)]
        return finite.size >= 8 and bool((rounded(finite, dtype) == finite).all())


class _Search:
    """One output, its true values by 64 bits, and what comes out under suppositions."""

    def __init__(self, program: ir.Program, bound: Bound, output: str, computed: Array, dtype: Dtype) -> None:
        self.program, self.bound, self.output, self.dtype = program, bound, output, dtype
        self.computed = computed.reshape(-1).astype(np.float64)
        self.steps = steps_in(program, bound, output)
        self.plain = self.run(Supposition("", ""))
        self.true = rounded(self.plain, dtype)
        self.off = _distance(self.computed, self.true)

    def run(self, supposition: Supposition) -> Array:
        found = Supposed(self.program, self.bound, supposition).compute((self.output,))[self.output]
        middle: Array = np.broadcast_to(found.middle, found.shape).reshape(-1)
        return middle

    def best(self) -> tuple[Reason, ...]:
        """The supposition that explains the most; of those that explain nearly as much, the first."""
        usual = self.nearly_rounded() or self.arithmetic()
        if usual is not None:
            return (usual,)
        best = _Tried(-math.inf, Supposition("", ""), self.true)
        tried = 0
        for supposition in suppositions(self.steps, self.bound, self.dtype):
            tried += 1
            best = self.better(best, supposition)
            if best.share > 0.999:
                break
        if best.share < MOST:
            best = self.fitted(best)
        if best.share < MOST:
            leads = f" (the best, with {best.share:.0%}: {best.supposition.words})" if best.share > 0.1 else ""
            return (Reason("not explained", f"none of {tried} reasons that were tried explains it{leads}"),)
        how = "" if best.share >= ALL else ", for the most part"
        return (Reason(best.supposition.kind, f"{best.supposition.words}{how}", best.share, self.worst(best.found)),)

    def better(self, best: _Tried, supposition: Supposition, by: float = 0.02) -> _Tried:
        found = rounded(self.run(supposition), self.dtype)
        share = self.share(found)
        return _Tried(share, supposition, found) if share > best.share + by else best

    def nearly_rounded(self) -> Reason | None:
        """Whether all but a few values are the nearest, as they are where 32 bits are rounded to 16 at the end."""
        if self.dtype not in ("f16", "bf16"):
            return None
        wide = Supposition(
            "",
            "",
            rounds={id(part): "f32" for part in self.steps.every},
            adds_in={id(part): "f32" for part in (*self.steps.products, *self.steps.gathers)},
        )
        usual = int((rounded(self.run(wide), self.dtype) != self.true).sum())
        here = int((self.computed != self.true).sum())
        if here > max(4 * usual, len(self.true) // 1000):
            return None
        words = f"only the output is rounded: all but {here:,} of {len(self.true):,} values are the nearest in "
        return Reason("output rounding", f"{words}{self.dtype}; arithmetic in f32, rounded once, misses {usual:,}")

    def fitted(self, best: _Tried) -> _Tried:
        """A number that is added in place of a mask, or by which scores are multiplied, that explains the most."""
        if any(softmax.guard is not None for softmax, _ in self.steps.softmaxes):
            best = self.fit(best, lambda x: _leak(-x), [float(n) for n in range(1, 25)])
        if self.steps.products:
            best = self.fit(best, lambda x: _scaled(self.steps, math.exp(x)), [n * 0.35 for n in range(-6, 7) if n])
        return best

    def fit(self, best: _Tried, supposed: Callable[[float], Supposition], points: list[float]) -> _Tried:
        """The best of some points, then nearer and nearer."""
        tried = {x: self.better(_Tried(-math.inf, Supposition("", ""), self.true), supposed(x)) for x in points}
        at = max(tried, key=lambda x: tried[x].share)
        step = (points[1] - points[0]) / 2
        while tried[at].share > 0.05 and step > 2e-3:
            for x in (at - step, at + step):
                tried[x] = self.better(_Tried(-math.inf, Supposition("", ""), self.true), supposed(x))
            at = max(tried, key=lambda x: tried[x].share)
            step /= 2
        return tried[at] if tried[at].share > max(best.share, MOST) else best

    def share(self, found: Array) -> float:
        """How much of what is off is explained: of the squares, and of the values that are not finite."""
        squares, odd = _distance(self.computed, found)
        before, odd_before = self.off
        if odd > odd_before:
            return -1.0
        if odd_before and squares <= before * 1.01:
            return 1 - odd / odd_before
        return 1 - squares / before if before else 0.0 if squares else 1.0

    def worst(self, found: Array) -> float:
        """The largest error against numbers that were rounded, in units of the true values."""
        off = np.abs(self.computed - found) / units(np.abs(self.true), self.dtype)
        return float(np.nanmax(np.where(np.isfinite(off), off, 0.0))) if off.size else 0.0

    def typical(self, found: Array) -> float:
        off = np.abs(found - self.plain) / units(np.abs(self.plain), self.dtype)
        off = off[np.isfinite(off) & (self.plain != 0)]
        return float(np.median(off)) if off.size else 0.0

    def arithmetic(self) -> Reason | None:
        """Whether as much is off as arithmetic in the dtype of the output brings along, and which step brings most."""
        adds = {id(part): self.dtype for part in (*self.steps.products, *self.steps.gathers)}
        everything = Supposition("", "", rounds={id(part): self.dtype for part in self.steps.every}, adds_in=adds)
        found = rounded(self.run(everything), self.dtype)
        usual, here = self.typical(found), self.typical(self.computed)
        (squares, odd), (most, odd_most) = self.off, _distance(found, self.true)
        if self.dtype in ("f16", "bf16") or not here <= 2 * usual or squares > 9 * most or odd > odd_most:
            return None
        shares = {words: self.typical(self.run(one)) for words, one in _single_steps(self.steps, self.dtype)}
        leads = f", most of it in {max(shares, key=lambda words: shares[words])}" if shares else ""
        words = f"arithmetic in {self.dtype}{leads}: with every step rounded, and sums term by term, the median error "
        return Reason("arithmetic", f"{words}is {usual:.3g} units, and here it is {here:.3g}")

    def cancellation(self, place: tuple[int, ...], error: Fraction | None) -> tuple[Reason, ...]:
        """Whether terms cancel at the worst place: how large they are beside what is left of them."""
        if error is None:
            return ()
        sizes = _Magnitudes(self.program, self.bound, self.output).compute((self.output,))[self.output]
        size = float(np.broadcast_to(sizes.middle, sizes.shape)[place])
        flat = int(np.ravel_multi_index(place, sizes.shape)) if place else 0
        true = abs(float(self.plain[flat]))
        if not true or not math.isfinite(size) or size < CANCELS * true:
            return ()
        at = f"{self.output}[{', '.join(map(str, place))}]" if place else self.output
        coarser = float(units(np.asarray(size), self.dtype) / units(np.asarray(true), self.dtype))
        left = float(error) / coarser
        words = f"at {at} terms of {size:.3g} in all cancel to {true:.3g}: in units of the terms it is {left:.3g} off"
        return (Reason("cancellation", words, None, left),)


def _distance(one: Array, other: Array) -> tuple[float, int]:
    """The sum of squares, and how many are not finite in one alone or differ in that."""
    finite = np.isfinite(one) & np.isfinite(other)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    apart = np.where(finite, one - other, 0.0)
    return float((apart * apart).sum()), int((~finite & ~same).sum())


class _Magnitudes(Supposed):
    """An output with the magnitudes of its terms added up."""

    def __init__(self, program: ir.Program, bound: Bound, output: str) -> None:
        super().__init__(program, bound, Supposition("", ""))
        self.bodies = {id(clause.body) for clause in program.definitions[output].clauses}

    def value(self, expr: ir.Expr, scope: Scope) -> Any:
        return self.magnitude(expr, scope) if id(expr) in self.bodies else super().value(expr, scope)

    def magnitude(self, expr: ir.Expr, scope: Scope) -> Ball:
        match expr:
            case ir.Map("+" | "-", (left, right)) if expr.type.kind == "real":
                return self.magnitude(left, scope) + self.magnitude(right, scope)
            case ir.Map("*" | "/" as op, (left, right)) if expr.type.kind == "real":
                one, other = self.magnitude(left, scope), abs(self.real(super().value(right, scope)))
                return one * other if op == "*" else one / other
            case ir.Map("neg", (inner,)):
                return self.magnitude(inner, scope)
            case ir.Reduce("sum" | "mean", _, body):
                return self.real(super().value(replace(expr, body=_absolute(body)), scope))
            case _:
                return abs(self.real(super().value(expr, scope)))


def _absolute(expr: ir.Expr) -> ir.Expr:
    """The magnitude of a term: that of each factor of a product."""
    if isinstance(expr, ir.Map) and expr.op == "*":
        left, right = expr.arguments
        return ir.Map("*", (_absolute(left), _absolute(right)), expr.type, expr.span)
    return ir.Map("abs", (expr,), expr.type, expr.span)


# ---------------------------------------------------------------- what is supposed


def suppositions(steps: Steps, bound: Bound, dtype: Dtype) -> Iterator[Supposition]:
    """The usual deviations from the relation, the simplest first."""
    if any(softmax.guard is not None for softmax, _ in steps.softmaxes):
        yield from _masks(steps, bound, dtype)
    if steps.products:
        yield from _scales(steps)
    for format in _NARROWER.get(dtype, (dtype,)):
        yield from _rounded_steps(steps, format)
    wide = [array for array in bound.arrays.values() if array.dtype.kind == "f" and array.size]
    for format in ("TF32", "bf16", "f16"):
        if any((rounded(array.astype(np.float64), format) != array).any() for array in wide):
            words = f"inputs are rounded to {format} before they are multiplied"
            yield Supposition("inputs", words, reads_in=format)


def _masks(steps: Steps, bound: Bound, dtype: Dtype) -> Iterator[Supposition]:
    yield Supposition("mask", "the mask is left out: masked keys are heard", mask=Mask(added=0.0))
    words = "a row that hears nobody is NaN: -inf is added everywhere, and its softmax has no value"
    yield Supposition("mask", words, mask=Mask(added=-math.inf))
    yield Supposition("mask", "the mask is turned round: what it hides is heard", mask=Mask(turned=True))
    places = {1: "one place further: a key too few is heard", -1: "one place back: a key too many is heard"}
    guarded = [softmax for softmax, _ in steps.softmaxes if softmax.guard is not None]
    lengths = {bound.sizes[c] for softmax in guarded for c in softmax.body.type.coordinates if c in bound.sizes}
    for more in sorted({a - b for a in lengths for b in lengths} - {0, 1, -1}):
        places[more] = f"{abs(more)} places {'further' if more > 0 else 'back'}, as if it were aligned at the other end"
    for moved, words in places.items():
        yield Supposition("mask", f"the mask is {words}", mask=Mask(moved=moved))
    least = {"f16": -65504.0, "bf16": -3.3895313892515355e38, "f32": -3.4028234663852886e38}.get(dtype, -1e308)
    for added, name in ((-1e4, "-1e4"), (least, f"{least:.6g}, the least {dtype},"), (-1e9, "-1e9"), (-100.0, "-100")):
        words = f"a masked key leaks: {name} is added in place of a mask, and that is not enough"
        yield Supposition("mask", words, mask=Mask(added=added, dtype=dtype))
        if dtype != "f32":
            yield Supposition("mask", f"{words} (in f32)", mask=Mask(added=max(added, -3.4e38), dtype="f32"))


def _leak(added: float) -> Supposition:
    words = f"a masked key leaks: about {added:.3g} is added in place of a mask, and that is not enough"
    return Supposition("mask", words, mask=Mask(added=added))


def _scaled(steps: Steps, factor: float, words: str = "") -> Supposition:
    words = words or f"scores are about {factor:.3g} times those of the program"
    return Supposition("scale", words, factors={id(part): factor for part in steps.products})


def _scales(steps: Steps) -> Iterator[Supposition]:
    for width in steps.widths:
        root = math.sqrt(width)
        if width < 2:
            continue
        yield _scaled(steps, root, f"scores are √{width} times as large: a scale of 1/√{width} is left out")
        yield _scaled(steps, 1 / root, f"scores are √{width} times too small: a scale of 1/√{width} too many")
        yield _scaled(steps, 1 / width, f"scores are {width} times too small")
        yield _scaled(steps, width, f"scores are {width} times as large")
        for format in ("bf16", "f16"):
            near = float(rounded(np.asarray(1 / root), format)) * root
            if near != 1:
                yield _scaled(steps, near, f"the scale 1/√{width} is rounded to {format}")
    yield _scaled(steps, math.log(2), "powers of 2 are taken in place of powers of e")
    yield _scaled(steps, 1 / math.log(2), "scores are multiplied by log2(e), and e is raised to them all the same")


def _rounded_steps(steps: Steps, format: str) -> Iterator[Supposition]:
    """Steps that are rounded to a format."""
    weights = {id(softmax): format for softmax, _ in steps.softmaxes}
    scores = {id(softmax.body): format for softmax, _ in steps.softmaxes}
    products = {id(part): format for part in steps.products}
    names = ", ".join(dict.fromkeys(name for _, name in steps.softmaxes))
    if weights:
        gathered = "before they are gathered with"
        yield Supposition("weights", f"the weights ({names}) are rounded to {format} {gathered}", rounds=weights)
        words = f"exponentials are rounded to {format} {gathered}, and divided by their sum afterwards"
        yield Supposition("weights", words, raises_in=format)
        yield Supposition("scores", f"the scores are rounded to {format} before the softmax", rounds=scores)
        if products:
            words = f"the scores are rounded to {format} before they are scaled"
            yield Supposition("scores", words, rounds=products)
            words = f"the scores are rounded to {format} before they are scaled, and after"
            yield Supposition("scores", words, rounds={**products, **scores})
        words = f"the scores and the weights are rounded to {format}"
        yield Supposition("scores and weights", words, rounds={**products, **scores, **weights})
    every = {id(part): format for part in steps.every}
    yield Supposition("every step", f"every step is rounded to {format}, as it is written", rounds=every)
    for words, sums in (("the sums that gather", steps.gathers), ("the sums of products", steps.products),
                        ("all sums", (*steps.products, *steps.gathers))):  # fmt: skip
        if sums:
            adds = {id(part): format for part in sums}
            yield Supposition("accumulation", f"{words} are added up in {format}, term by term", adds_in=adds)


def _single_steps(steps: Steps, dtype: Dtype) -> Iterator[tuple[str, Supposition]]:
    """Each kind of step alone, in the dtype of the output."""
    groups: dict[str, Any] = {
        "the sums of products": {"adds_in": {id(part): dtype for part in steps.products}},
        "the scores": {"rounds": {id(softmax.body): dtype for softmax, _ in steps.softmaxes}},
        "the weights": {"rounds": {id(softmax): dtype for softmax, _ in steps.softmaxes}},
        "the sums that gather": {"adds_in": {id(part): dtype for part in steps.gathers}},
    }
    for words, options in groups.items():
        if any(options.values()):
            yield words, Supposition("", words, **options)
