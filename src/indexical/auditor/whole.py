"""Whole models, from inputs to outputs: laws of the whole, and the module in which one is broken first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from .bisecting import Blame, bisect
from .calling import Unusable, _reported, borrow, stopped
from .inside import audit_inside, calls_of
from .layout import refusal
from .places import owned
from .promises import Contracts, with_unmatched
from .randomness import randomness
from .reports import RUNS, Finding, Report, name_of, place_of, ranked
from .rotations import Fault, rotation_fault
from .running import Run, Side, difference, same, tolerance_of
from .sides import is_causal, sides_of
from .trials import Comparison, Trial, heard, mask_fault, trials

Tell = Callable[[str], None]
_LATER = ("right padding", "left padding", "cached decoding")  # Laws that a wrong rotation breaks as well.


def audit_model(
    model: Any,
    inputs: Mapping[str, Any] | None = None,
    *,
    causal: bool | None = None,
    length: int = 7,
    tell: Tell | None = None,
    vocabulary: int | None = None,
    contracts: Contracts | None = None,
) -> Report:
    """Test the laws of a model from its inputs to its outputs, and those of every attention inside it.

    Inputs are drawn for what the model takes, or `inputs` has examples of them by name. An encoder and a decoder are
    judged apart. Whether tokens may see the future is what the model says of itself, unless `causal` says it.
    `contracts` declares what the attentions inside are, by a pattern of their module's name.
    """
    import torch

    started = time.monotonic()
    if isinstance(model, tuple | list):
        model = model[0]
    if not isinstance(model, torch.nn.Module):
        raise refusal(f"{name_of(model)} is no module of PyTorch", "name a function that builds the model")
    if length < 3:
        raise refusal(f"{length} tokens are too few", "3 or more: `--length 7`")
    audit = Audit(model, tell or (lambda words: None), causal)
    problem: Unusable | None = None
    for single in (True, False) if _is_half(model) else (False,):
        with _borrowed(model, single):
            try:
                audit.go(inputs, length, vocabulary)
                problem = None
                break
            except Unusable as raised:
                problem = problem or raised
    if problem is not None:
        return stopped(model, problem, calls=audit.calls, seconds=time.monotonic() - started)
    parts = audit_inside(model, calls_of(model, audit.inputs, audit.hides_future), contracts, audit.tell)
    held = {law.rpartition(": ")[2] for law in audit.laws} - {finding.law for finding in audit.findings}
    parts = tuple(_agreeing(part, held & {"batch", "causal"}) for part in parts)
    findings = ranked([_sharpened(finding, parts) for finding in audit.findings])
    laws, unread = tuple(dict.fromkeys(audit.laws)), tuple(dict.fromkeys(audit.unread))
    seconds = time.monotonic() - started
    report = Report(name_of(model), findings, audit.found, laws, unread, audit.calls, seconds, parts=parts)
    return owned(with_unmatched(report, contracts or {}), model)


def _agreeing(part: Report, held: set[str]) -> Report:
    """The report of an attention, without what the whole model would show and does not: that examples mix, or that the
    future is heard. It was then asked with arguments that do not belong together."""
    doubted = [finding for finding in part.findings if finding.law in held]
    told = tuple(f"{finding.law}: {finding.message}, which the model as a whole does not show" for finding in doubted)
    kept = tuple(finding for finding in part.findings if finding not in doubted)
    return replace(part, findings=kept, unread=(*part.unread, *told)) if doubted else part


def _sharpened(finding: Finding, parts: tuple[Report, ...]) -> Finding:
    """The finding with the cause that was found in the attention where it is broken first."""
    for part in parts:
        names = (part.subject, *part.equal)
        if part.findings and any(name == finding.module or name.startswith(f"{finding.module}.") for name in names):
            inner = part.findings[0]
            cause = f"{finding.cause.partition(': ')[0]}: {inner.cause}"
            return replace(finding, cause=cause, mend=inner.mend, span=inner.span)
    return finding


def _is_half(model: Any) -> bool:
    return any(each.is_floating_point() and each.dtype.itemsize < 4 for each in model.parameters())


@contextmanager
def _borrowed(model: Any, single: bool) -> Iterator[None]:
    """The model in evaluation mode, and in single precision where that is wanted. It is changed in place: functions
    that were put into it know it, and not a copy. Afterwards it is what it was, and so are PyTorch's random numbers."""
    import torch

    restore = borrow(model, double=False)
    try:
        if single:
            for each in (*model.parameters(), *model.buffers()):
                if each.is_floating_point():
                    each.data = each.data.float()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        restore()


class Audit:
    """One audit of a whole model."""

    def __init__(self, model: Any, tell: Tell, causal: bool | None) -> None:
        self.model, self.tell, self.causal = model, tell, causal
        self.laws: list[str] = []
        self.unread: list[str] = []
        self.findings: list[Finding] = []
        self.found: dict[str, str] = {}
        self.calls = 0
        self.inputs: dict[str, Any] = {}  # Those on which the model runs.
        self.hides_future = False  # Whether tokens are not to see the future, and whether that was judged.

    def go(self, given: Mapping[str, Any] | None, length: int, vocabulary: int | None) -> None:
        self.tell("inputs")
        try:
            kind, sides = sides_of(self.model, given, length, vocabulary, self.tell)
        except LookupError as problem:
            raise _reported(_cause(problem), self.model) from None
        self.found["inputs"] = f"{kind}: " + ", ".join(
            f"{name} {tuple(value.shape[1:])}" if hasattr(value, "shape") else name
            for name, value in sides[-1].inputs.items()
        )
        self.inputs = dict(sides[-1].inputs)
        if self._is_steady(sides[-1]):
            for side in sides:
                self._judge_side(side, kind)
        self.calls = sum(side.calls for side in sides)

    def _is_steady(self, side: Side) -> bool:
        """Whether two runs are the same, and their numbers finite."""
        import torch

        if any(each.is_meta for each in self.model.parameters()):
            mend = "load its numbers, or build it on the CPU"
            raise Unusable("runs", "the parameters of the model have no numbers", "they are on the meta device", mend)
        self.laws.append("deterministic")
        run = Run(side.ids)
        first, again = side(run), side.go(run)
        if not same(first, again, 1e-5 * float(torch.nan_to_num(first).abs().max())):
            worst = float(difference(first, again).max())
            finding, reason = randomness(side, run, worst)
            self.findings += [finding] if finding else []
            self.unread += [reason] if reason else []
            return False
        if not torch.isfinite(first).any():
            empty = any(not torch.isfinite(each).all() for each in self.model.parameters())
            message = "the parameters of the model are not finite" if empty else "the output is not finite"
            if empty:
                raise Unusable(RUNS, message, "it was not initialised", "load its numbers, or initialise it")
            witness = "NaN or infinity on random inputs"
            self.findings.append(Finding("finite", message, witness, span=place_of(self.model)))
            return False
        return True

    def _judge_side(self, side: Side, kind: str) -> None:
        side.tolerance = tolerance_of(side, Run(side.ids))
        of = f"{side.label}: " if side.label else ""
        is_heard = side.label == "decoder" and not side.aligned
        side.causal = self.causal if self.causal is not None else is_causal(self.model, side.label)
        if side.label == "encoder":
            side.causal = False
        if not side.aligned and not is_heard:
            self.unread.append(f"{of}the future, padding and cached decoding: {_no_positions(kind)}")
        elif side.module is not None:
            name = next(name for name, part in self.model.named_modules() if part is side.module)
            self.found["judged at"] = f"the output of `{name}`: what the model returns has not every position"
        broken: set[str] = set()
        for trial in heard(side) if is_heard else trials(side, self.unread):
            if trial.law in broken:
                continue
            side.doing = f"{of}{trial.law}"
            self.tell(side.doing)
            trial.together &= not broken
            try:
                finding = self._judge(side, trial)
            except Unusable as problem:
                self.unread.append(f"{of}{trial.law}: {problem.message}")
                continue
            self.laws.append(f"{of}{trial.law}")
            self.hides_future |= trial.law == "causal" and not isinstance(finding, str)
            if isinstance(finding, str):
                self.unread.append(f"{of}{trial.law}: {finding}")
                self.laws.remove(f"{of}{trial.law}")
                broken.add(trial.law)
            elif finding is not None:
                broken.add(trial.law)
                self.findings.append(finding)
            if trial.law == "causal":
                side.causal = finding is None
                if isinstance(finding, Finding):
                    self.unread.append(f"{of}padding and cached decoding: they rest on tokens that see no future")
                    break
        if side.aligned and not side.label and not side.is_slow and "relative positions" not in broken:
            self._judge_rotations(side)

    def _judge_rotations(self, side: Side) -> None:
        side.doing = "rotary"
        self.tell(side.doing)
        try:
            fault = rotation_fault(side)
        except Unusable:
            return
        if isinstance(fault, Fault):
            where = f"first broken in `{fault.name}` ({type(fault.module).__name__})"
            cause = f"{where}: {fault.cause}"
            follow = [each for each in self.findings if each.law in _LATER and each.cause.startswith(where)]
            self.findings = [each for each in self.findings if each not in follow]
            mend = "rotate q and k with the same function, each by its own position"
            message = "a query and a key at the same position are not rotated alike"
            self.findings.append(Finding("rotary", message, fault.witness, cause, mend, place_of(fault.module)))
        if fault:
            self.laws.append("rotary")

    # ------------------------------------------------------------------ one law

    def _judge(self, side: Side, trial: Trial) -> Finding | str | None:
        """What breaks a law, why it is not judged, or nothing."""
        broken = _broken(side, trial)
        if broken is None:
            return None
        comparison, words = broken
        if comparison is None:
            return trial.doubt or self._finding(side, trial, words, Blame())
        if trial.doubt and trial.law != "causal":
            return trial.doubt
        if trial.chains and _takes_one(side):
            return "one token after another is the full pass; with a cache, the model takes no several at once"
        blame = bisect(side, comparison, trial.without)
        if trial.doubt and not blame.mixes:
            return trial.doubt
        if trial.of_attention and not blame.attends:
            where = f"`{blame.name}` ({type(blame.module).__name__})" if blame.module is not None else "the model"
            return f"{where} does not weigh each key for each query: it is no attention to which this law applies"
        if not self._is_broken_again(side, trial):
            return "it is broken for some inputs and holds for others: no more than rounding is seen"
        if blame.over_queries:
            trial.cause = "the softmax is over the queries, and not over the keys"
            trial.mend = "normalise over the keys: `softmax(dim=-1)` of scores whose last axis is the key"
        elif trial.law == "causal" and blame.inverted:
            trial.cause = "the mask is inverted: what comes later is heard, and what came before is not"
            trial.mend = "invert the mask"
        elif trial.law == "causal" or trial.of_attention:
            trial.cause, trial.mend = mask_fault(side) or (trial.cause, trial.mend)
        return self._finding(side, trial, words, blame)

    def _is_broken_again(self, side: Side, trial: Trial) -> bool:
        """Whether other inputs break the law too."""
        turned = {
            name: value.roll(1, 0) if getattr(value, "ndim", 0) and len(value) == len(side.inputs[side.name]) else value
            for name, value in side.inputs.items()
        }
        other = replace(side, inputs=turned, known={}, calls=0)
        again = heard(other) if side.label == "decoder" and not side.aligned else trials(other, [])
        alike = [each for each in again if (each.law, each.cause) == (trial.law, trial.cause)]
        found = any(_broken(other, each) is not None for each in alike)
        side.calls += other.calls
        return found

    def _finding(self, side: Side, trial: Trial, witness: str, blame: Blame) -> Finding:
        module = blame.module
        where = "in the model itself"
        if module is not None:
            where = f"first broken in `{blame.name}` ({type(module).__name__})"
        message = f"{trial.message}, in the {side.label}" if side.label and side.aligned else trial.message
        place = place_of(module if module is not None else self.model)
        return Finding(trial.law, message, witness, f"{where}: {trial.cause}", trial.mend, place, module=blame.name)


def _takes_one(side: Side) -> bool:
    """Whether a model that fills a cache takes one token at a time, and no more even at the beginning."""
    whole, run = side(Run(side.ids)), Run(side.ids)
    if same(whole, side.call(run, keep=True)[1], side.tolerance):
        return False
    return same(whole, side.chained(side.ids, list(range(1, side.ids.shape[1]))), side.tolerance)


def _cause(problem: BaseException) -> Exception:
    return problem.__cause__ if isinstance(problem.__cause__, Exception) else LookupError(str(problem))


def _no_positions(kind: str) -> str:
    if kind == "pixels":
        return "images have no order of positions"
    return "the output has no position for each of the input's"


def _broken(side: Side, trial: Trial) -> tuple[Comparison | None, str] | None:
    """The first comparison that fails, with its words; `None` where all hold."""
    import torch

    rows: list[Any] = []
    if trial.chains:
        whole = side(Run(side.ids))
        if all(same(whole, side.chained(side.ids, places), side.tolerance) for places in trial.chains):
            return None
    if trial.together:
        runs = [comparison.second for comparison in trial.comparisons]
        rows = list(side(Run(torch.cat([run.ids for run in runs]), mates=(0,) * len(runs))).split(1))
    for number, comparison in enumerate(trial.comparisons):
        left = comparison.left(side(comparison.first))
        right = comparison.right(rows[number] if rows else side(comparison.second))
        if same(left, right, side.tolerance):
            continue
        if left.shape != right.shape:
            return comparison, f"the output has the shape {tuple(right.shape)}, and not {tuple(left.shape)}"
        change = difference(left, right)
        change = change.amax((0, *range(2, change.ndim))) if change.ndim > 1 else change
        row = int((change > side.tolerance).nonzero()[0])
        return comparison, f"{comparison.words.format(row=row)} (by {float(change[row]):.3g})"
    return (None, "decoding in several steps gives another output") if trial.chains else None
