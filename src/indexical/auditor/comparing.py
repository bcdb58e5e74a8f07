"""Two implementations of one thing: whether they compute the same numbers from the same weights and inputs, and where
and why they do not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from .calling import Foreign, Unusable, _module, stopped
from .contract import Contract
from .differing import first_apart, told_apart, unlike_buffers
from .drawing import Case, cases_of, drawn_example
from .inquiry import number
from .layout import refusal
from .numerics import at_precision
from .places import owned
from .reports import Finding, Report, name_of, place_of

Tell = Callable[[str], None]
SAME = "same numbers"
_DOUBLE, _SINGLE, _HALF = 1e-5, 2e-4, 5e-2  # The difference, in parts of the largest number, that is always rounding.
_NOISE = 8.0  # How often the error of each against its own doubles may be what is between them,
_MOST = 2e-2  # and no more than this.


def compare(
    first: Any,
    second: Any,
    example: Mapping[str, Any] | None = None,
    axes: Mapping[str, str] | str | None = None,
    contract: Contract | Mapping[str, Any] | None = None,
    *,
    names: tuple[str, str] | None = None,
    tell: Tell | None = None,
) -> Report:
    """Compare two modules, functions or models: the second is given the weights of the first, both are given the same
    inputs, and where their numbers differ by more than rounding explains, the first layer and the cause are found.

    A module needs no `example` where inputs can be drawn on which it runs.
    """
    started = time.monotonic()
    names = names or _names(first, second)
    tell = tell or (lambda name: None)
    agreed = contract if isinstance(contract, Contract) else Contract(**(contract or {}))
    with ExitStack() as stack:
        found = {}
        if _module(first) is not None and _module(second) is not None:
            restore, taken = share(first, second, names)
            stack.callback(restore)
            if taken:
                found["buffers"] = f"{', '.join(taken)} of {names[1]} differed, and were taken from {names[0]}"
        elif any(_weights(each) for each in (first, second)):
            raise refusal("one of the two has weights, and the other is no module", "compare modules, or functions")
        pair = _pair(first, second, example, axes, names)
        try:
            report = _compared(pair, names, agreed, found, tell)
        except Unusable as problem:
            report = stopped(pair.failing or first, problem)
        finally:
            pair.close()
    seconds = time.monotonic() - started
    subject = f"{names[0]} and {names[1]}"
    done = Report(subject, report.findings, report.found, report.laws, failure=report.failure, seconds=seconds)
    return owned(owned(done, second), first)


def _names(first: Any, second: Any) -> tuple[str, str]:
    one, two = name_of(first), name_of(second)
    return (one, two) if one != two else (f"the first {one}", f"the second {two}")


def _weights(target: Any) -> bool:
    return _module(target) is not None and next(iter(target.parameters()), None) is not None


# ------------------------------------------------------------------- weights


def share(first: Any, second: Any, names: tuple[str, str]) -> tuple[Callable[[], None], list[str]]:
    """Give one module the weights of another, and the buffers that are saved with them but for masks: what it computes
    itself, such as masks and angles, stays its own. Returned are what gives it back its own, and the names of the
    buffers that were not the same."""
    ours, theirs = (dict(each.named_parameters()) for each in (first, second))
    words = [
        f"only {name} has {_listed(sorted(mine.keys() - yours.keys()))}"
        for name, mine, yours in ((names[0], ours, theirs), (names[1], theirs, ours))
        if mine.keys() - yours.keys()
    ]
    both = [name for name in ours if name in theirs and ours[name].shape != theirs[name].shape]
    words += [f"`{name}` is {_size(ours[name])} in one and {_size(theirs[name])} in the other" for name in both[:3]]
    if words:
        raise refusal(
            f"{names[0]} and {names[1]} cannot have the same weights: {'; '.join(words)}",
            "compare modules whose parameters have the same names and shapes",
        )
    kept = [(value, value.data) for value in theirs.values()]
    for name, value in theirs.items():
        value.data = ours[name].data.to(value.dtype).clone()
    taken = []
    held, saved = dict(first.named_buffers()), second.state_dict().keys()
    for name, value in second.named_buffers():
        source = held.get(name)
        if source is None or name not in saved or source.shape != value.shape or _is_mask(source) or _is_mask(value):
            continue
        if not bool((source.to(value.dtype) == value).all()):
            taken.append(f"`{name}`")
            kept.append((value, value.data))
            value.data = source.data.to(value.dtype).clone()

    def restore() -> None:
        for value, data in kept:
            value.data = data

    return restore, taken


def _is_mask(value: Any) -> bool:
    """Whether a buffer says who hears whom, and is no number that was learned or drawn."""
    if not value.is_floating_point():
        return True
    return bool(((value == 0) | (value == 1) | (value < -1e3)).all())


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def _size(value: Any) -> str:
    return "×".join(map(str, value.shape)) or "one number"


# ---------------------------------------------------------------------- sides


@dataclass
class Pair:
    """Both of what is compared, and the cases that they are run on."""

    foreign: tuple[Foreign, Foreign]
    axes: Any = None
    cases: list[Case] = field(default_factory=list)
    failing: Any = None

    @property
    def targets(self) -> tuple[Any, Any]:
        return self.foreign[0].original, self.foreign[1].original

    def prepare(self) -> None:
        """Call both on the example, and draw the other cases."""
        for each in self.foreign:
            self.failing = each.original
            each.prepare()
        self.cases = cases_of(self.foreign[0], self.axes)

    def outputs(self, side: int, double: bool) -> list[Any] | None:
        """The output of each case in double precision, or in that which the target has; None where it has it not."""
        foreign = self.foreign[side]
        self.failing = foreign.original
        if double:
            return [_seeded(partial(foreign, case.arrays)) for case in self.cases] if foreign.precise else None
        if not foreign.precise:
            return [_seeded(partial(foreign, case.arrays)) for case in self.cases]
        other = at_precision(foreign, kind_of(foreign.original))
        try:
            return None if other is None else [_seeded(partial(other, case.arrays)) for case in self.cases]
        except Unusable:
            return None

    def layer(self, case: Case) -> tuple[str, Any, Any]:
        """The first module that takes the same and gives something else, and its counterpart."""
        if any(_module(each.original) is None for each in self.foreign):
            return "", None, None
        given = [{name: each.convert(name, x) for name, x in case.arrays.items()} for each in self.foreign]
        runs = [partial(each.raw, values) for each, values in zip(self.foreign, given, strict=True)]
        tolerance = _DOUBLE if all(each.precise for each in self.foreign) else _SINGLE
        name = first_apart([each.target for each in self.foreign], runs, tolerance, partial(_real, case.rows))
        first, second = (dict(target.named_modules()).get(name) if name else None for target in self.targets)
        return name, first, second

    def close(self) -> None:
        for each in self.foreign:
            each.restore()


def _seeded(run: Callable[[], Any]) -> Any:
    """A run whose draws are the same every time, of what draws on purpose."""
    torch = sys.modules.get("torch")
    if torch is None:
        return run()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return run()


def _real(rows: Any, array: Any) -> Any:
    """What lies at positions that are no padding."""
    if rows is None or tuple(array.shape[:2]) != tuple(rows.shape):
        return array
    return array[rows]


def kind_of(target: Any) -> str:
    """The kind of number of most weights of a target."""
    module = _module(target)
    kinds = [str(value.dtype) for value in module.parameters() if value.is_floating_point()] if module else []
    kind = max(set(kinds), key=kinds.count).removeprefix("torch.") if kinds else "float32"
    return kind if kind in ("float16", "bfloat16") else "float32"


def _pair(first: Any, second: Any, example: Any, axes: Any, names: tuple[str, str]) -> Pair:
    if example is None:
        if _module(first) is None:
            raise refusal(f"{names[0]} needs an example", "give one of its arguments: --example inputs.npz")
        try:
            example = drawn_example(first)
        except LookupError as problem:
            reason = f"{type(problem.__cause__).__name__}: {problem.__cause__}".splitlines()[0]
            told = f"{names[0]} needs an example: it runs on no inputs that were drawn ({reason})"
            raise refusal(told, "give one of its arguments: --example inputs.npz") from None
    return Pair((Foreign(first, example), Foreign(second, example)), axes)


# ------------------------------------------------------------------- comparing


def _compared(pair: Pair, names: tuple[str, str], contract: Contract, found: dict[str, str], tell: Tell) -> Report:
    tell("the same weights and inputs")
    pair.prepare()
    doubles = [pair.outputs(side, True) for side in (0, 1)]
    singles = [pair.outputs(side, False) for side in (0, 1)]
    precise = all(map(_is_finite, doubles, [pair.cases] * 2))
    seen = doubles if precise else singles
    if any(each is None for each in seen):
        seen = [double if single is None else single for single, double in zip(singles, doubles, strict=True)]
    kinds = [kind_of(target) for target in pair.targets]
    always = _DOUBLE if precise else _SINGLE if set(kinds) == {"float32"} else _HALF
    worst = 0.0
    for place, case in enumerate(pair.cases):
        one, two = (each[place] for each in seen if each is not None)
        if one.shape != two.shape:
            words = f"{_size(one)} from {names[0]}, {_size(two)} from {names[1]}"
            message = "the two give arrays of other shapes"
            span = place_of(pair.targets[1])
            finding = Finding(SAME, message, words, "the output is laid out otherwise", span=span)
            return Report("", (finding,), found, (SAME,))
        size = _largest(one, two, case)
        apart = _apart(one, two, case) / size
        noise = [
            _apart(double[place], single[place], case) / size
            for double, single in zip(doubles, singles, strict=True)
            if double is not None and single is not None
        ]
        allowed = always + min(_NOISE * sum(each for each in noise if np.isfinite(each)), _MOST)
        if precise and len(noise) == 2:
            found[kinds[0]] = " and ".join(
                f"{number(float(f'{each:.2g}'))} from its own doubles ({name})"
                for each, name in zip(noise, names, strict=True)
            )
        if not apart <= allowed:
            tell("the layer and the cause")
            return Report("", (_broken(pair, names, case, (one, two), allowed, contract),), found, (SAME,))
        worst = max(worst, apart)
    kind = "double precision" if precise else kinds[0]
    found["apart"] = f"at most {number(float(f'{worst:.2g}'))} of the largest number, in {kind}, {len(pair.cases)} runs"
    return Report("", found=found, laws=(SAME,))


def _is_finite(outputs: list[Any] | None, cases: list[Case]) -> bool:
    return outputs is not None and all(
        np.isfinite(_real(case.rows, output)).all() for output, case in zip(outputs, cases, strict=True)
    )


def _largest(one: Any, two: Any, case: Case) -> float:
    real = [_real(case.rows, each) for each in (one, two)]
    return max(1e-30, *(float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in real))


def _apart(one: Any, two: Any, case: Case) -> float:
    """The largest difference; infinite where one is a number and the other is none."""
    one, two = _real(case.rows, one), _real(case.rows, two)
    if (np.isfinite(one) != np.isfinite(two)).any():
        return float("inf")
    return float(np.abs(one - two)[np.isfinite(one)].max(initial=0.0))


def _broken(
    pair: Pair, names: tuple[str, str], case: Case, outputs: tuple[Any, Any], allowed: float, contract: Contract
) -> Finding:
    one, two = outputs
    gap = np.where(np.isfinite(one) & np.isfinite(two), np.abs(one - two), np.where(one == two, 0.0, np.inf))
    if case.rows is not None and gap.shape[:2] == tuple(case.rows.shape):
        gap[~case.rows] = 0.0
    at = np.unravel_index(int(np.nanargmax(gap)), gap.shape)
    place = ", ".join(map(str, at))
    witness = (
        f"{case.words}: out[{place}] is {one[at]:.6g} from {names[0]} and {two[at]:.6g} from {names[1]}; rounding "
        f"explains {allowed * _largest(one, two, case):.2g}"
    )
    random = _random(pair, case, names)
    if random is not None:
        return random
    name, module, other = pair.layer(case)
    where = f"first in `{name}` ({type(module).__name__})" if name else "outside of the modules that both have"
    flipped = _flipped(pair, case, one, allowed)
    cause, mend = flipped or told_apart(pair, names, contract)
    cause = cause or unlike_buffers(module, other)
    message = f"{names[1]} gives other numbers than {names[0]}"
    hints = (r"scaled_dot_product_attention.*", r"softmax.*")
    span = place_of(other if name and other is not None else pair.targets[1], hints)
    words = f"{where}: {cause}" if cause else f"{where}; no law tells them apart"
    return Finding(SAME, message, witness, words, mend, span, module=name)


def _random(pair: Pair, case: Case, names: tuple[str, str]) -> Finding | None:
    """A finding where one of the two is not the same twice."""
    for foreign, name in zip(pair.foreign, names, strict=True):
        one, two = foreign(case.arrays), foreign(case.arrays)
        if _apart(one, two, case) > 1e-6 * _largest(one, two, case):
            cause = "dropout, or other randomness, is on in evaluation mode"
            mend = "`F.dropout(x, p, training=self.training)`, or `nn.Dropout`"
            words = f"{case.words}: two calls differ by {_apart(one, two, case):.3g}"
            message = f"{name} gives other numbers when it is called again"
            return Finding("deterministic", message, words, cause, mend, place_of(foreign.original))
    return None


def _flipped(pair: Pair, case: Case, one: Any, allowed: float) -> tuple[str, str] | None:
    """The mask that the second reads the other way round, where it then gives what the first does."""
    for name, value in case.arrays.items():
        if getattr(value, "dtype", None) == np.bool_:
            try:
                other = pair.foreign[1]({**case.arrays, name: ~value})
            except Unusable:
                continue
            if one.shape == other.shape and _apart(one, other, case) <= allowed * _largest(one, other, case):
                return f"one keeps where `{name}` is true, the other drops there", f"invert `{name}` in one of them"
    return None
