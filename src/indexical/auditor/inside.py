"""The attentions inside a model, each audited as a module: its arguments, axes and contract come from its calls."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..diagnostics import CallError
from .attention_laws import VAGUE
from .auditing import audit
from .calling import borrow
from .contract import read_contract
from .discovery import Site, find_sites
from .guessing import mask_axes
from .intercept import role_of
from .outer import EXCHANGED
from .positions import NOT_ROTATED
from .promises import Contracts, contract_for, settings_of
from .reports import Finding, Report

Tell = Callable[[str], None]
_KEYS = re.compile(r"key|value|context|encoder|memory|cond|source|kv", re.IGNORECASE)
_CACHES = re.compile(r"past|cache")
_PLACES = re.compile(r"layer|idx|index|name|^_|training")
_SCALES = ("scaling", "scale", "softmax_scale", "attn_scale", "inv_norm_factor")
_CAPS = ("attn_logit_softcapping", "softcap", "logit_softcapping", "logit_cap", "attn_logit_softcap")


@dataclass
class Call:
    """A run of the model: how, how many examples it has, which tokens are real, and whether later ones are hidden."""

    run: Callable[[], Any]
    examples: int
    real: Any = None  # Over (example, token), where some are padded.
    causal: bool = False


PADDED = "the module: how it is told which tokens are padded is not known"


@dataclass
class Question:
    """A module, and what is asked of it."""

    site: Site
    example: dict[str, Any]
    axes: dict[str, str]
    contract: dict[str, Any]
    unread: list[str] = field(default_factory=list)
    declared: dict[str, Any] = field(default_factory=dict)  # What somebody says of it.

    @property
    def key(self) -> Any:
        """What equal modules share."""
        module = self.site.module
        shapes = tuple((name, tuple(p.shape)) for name, p in module.named_parameters())
        given = tuple((name, tuple(value.shape)) for name, value in self.example.items() if hasattr(value, "shape"))
        said = tuple((type(part), _plain_attributes(part)) for part in module.modules())
        return shapes, given, said, str(self.contract)


def _plain_attributes(module: Any) -> str:
    """What a module is set to, beside its number among its like, and the functions that it holds."""
    kept: dict[str, Any] = {}
    for name, value in vars(module).items():
        if callable(value):
            held = value.func if isinstance(value, partial) else value
            kept[name] = id(getattr(held, "__code__", held))
        elif not _PLACES.search(name) and isinstance(value, str | int | float | bool | tuple | None):
            kept[name] = value
    return str(sorted(kept.items(), key=str))


def calls_of(model: Any, inputs: Mapping[str, Any], causal: bool) -> list[Call]:
    """Runs of a model that show what its attentions are called with: one with padding where it takes a mask, and one
    without. `causal` says whether later tokens are to be hidden."""
    import torch

    inputs = _fewer(inputs)
    takes = inspect.signature(model.forward).parameters
    if "use_cache" in takes:
        inputs["use_cache"] = False
    first = next((value for value in inputs.values() if getattr(value, "ndim", 0)), None)
    if first is None:
        return []

    def call(inputs: dict[str, Any], real: Any = None) -> Call:
        return Call(partial(model, **inputs), first.shape[0], real, causal)

    calls = [call(inputs)]
    if "attention_mask" in takes and first.ndim == 2 and first.shape[1] > 3:
        real = torch.ones(first.shape, dtype=torch.long)
        real[1:, -2:] = 0
        calls.insert(0, call({**inputs, "attention_mask": real}, real))
    return calls


def _fewer(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of two examples, where there are more."""
    counts = [value.shape[0] for value in inputs.values() if getattr(value, "ndim", 0)]
    most = max(counts, default=0)
    return {
        name: value[:2] if getattr(value, "ndim", 0) and value.shape[0] == most > 2 else value
        for name, value in inputs.items()
    }


def audit_inside(
    model: Any, calls: list[Call], contracts: Contracts | None = None, tell: Tell | None = None
) -> tuple[Report, ...]:
    """A report for each attention that the calls make; equal modules are audited once, under the name of the first.
    `contracts`, by patterns of module names (`layers.*.attn`), add to what the calls tell."""
    found = _questions(model, calls)
    groups: dict[Any, list[tuple[Site, Question | str]]] = {}
    for site, asked in found:
        if isinstance(asked, str):
            groups.setdefault((type(site.module), asked), []).append((site, asked))
            continue
        asked.declared = contract_for(contracts or {}, site.name)
        asked.contract.update(asked.declared)
        groups.setdefault(asked.key, []).append((site, asked))
    return tuple(_report(group, tell or (lambda name: None)) for group in groups.values())


def _questions(model: Any, calls: list[Call]) -> list[tuple[Site, Question | str]]:
    """The modules that attend, each with what is asked of it by the first call that tells enough."""
    asked: dict[str, tuple[Site, Question | str]] = {}
    restore = borrow(model, double=False)
    try:
        for call in calls:
            try:
                found = find_sites(model, call.run)
            except Exception:  # Foreign code may raise anything: another call may show the same.
                continue
            for site in found:
                if site.name not in asked or isinstance(asked[site.name][1], str):
                    asked[site.name] = site, question(site, call)
    finally:
        restore()
    return list(asked.values())


def _report(group: list[tuple[Site, Question | str]], tell: Tell) -> Report:
    (site, first), names = group[0], [site.name or type(site.module).__name__ for site, _ in group]
    empty = Report(names[0], equal=tuple(names[1:]), found={"module": type(site.module).__name__})
    if isinstance(first, str):
        return replace(empty, unread=(first,))
    tell(names[0])
    try:
        made = audit(site.module, first.example, first.axes, read_contract(first.contract))
        if any(finding.cause == NOT_ROTATED for finding in made.findings) and "rotary" not in first.declared:
            del first.contract["rotary"]  # Layers without positions are handed the tables of the others.
            made = audit(site.module, first.example, first.axes, read_contract(first.contract))
    except CallError as problem:
        if first.declared:  # Somebody's word is at fault, and not ours.
            raise
        return replace(empty, unread=(f"the module: {problem.diagnostics[0].message}",))
    sure = [finding for finding in made.findings if not _by_design(finding, site.module)]
    findings = tuple(replace(finding, module=site.name) for finding in sure)
    doubts = [f"{x.law}: {x.message}, which may be meant: {x.witness}" for x in made.findings if x not in sure]
    told = (*made.unread, *first.unread, *doubts)
    found = {**empty.found, **made.found}
    broken = {finding.law for finding in findings}
    settings = {name: x for name, x in settings_of(first.contract, made.found).items() if name not in broken}
    return replace(
        made, subject=names[0], equal=empty.equal, found=found, unread=told, findings=findings, settings=settings
    )


def _by_design(finding: Finding, module: Any) -> bool:
    """Whether what was found may be meant, where nobody declared the opposite: heads that talk to each other, a norm
    over all of them, something between heads and the output, parameters that only some inputs need."""
    if finding.law == "dead parameter":
        dead = re.findall(r"`(.+?)`", finding.message)
        used = {role_of(name) for name, weight in module.named_parameters() if weight.ndim > 1 and name not in dead}
        return all(role_of(name) in used or role_of(name) in (None, "out") for name in dead)
    if finding.cause == EXCHANGED:
        return True
    return finding.law in ("heads", "layout", "rows") and finding.confidence != "proved" and finding.cause in VAGUE


# ----------------------------------------------------------------------------------------------- what is asked


def question(site: Site, call: Call) -> Question | str:
    """What to ask of a module that attends, or why nothing can be asked."""
    if site.unnamed:
        return "the module: its arguments have no names"
    if len(site.events) > 1 and len(site.events[0].weights) > 3:  # Those of one head each are one attention.
        return "the module: it makes several attentions in one call"
    example: dict[str, Any] = {
        name: None if _CACHES.search(name) else value for name, value in site.given.items()
    }
    for examples in _batches(example, call):
        heads = _heads(site, examples)
        axes, queries, keys = _sequences(site, example, examples)
        if axes and heads is not None:
            break
    else:
        return "the module: which of its arguments are `(example, position, feature)`, and its heads, is not known"
    out = _out_axes(site, axes[queries], example[queries])
    if out is None:
        return "the module: what it returns has other axes than what it is given"
    asked = Question(site, example, {**axes, "out": out}, {"heads": heads})
    size = {"b": examples, "h": heads, "i": site.events[0].weights[-2], "j": site.events[0].weights[-1]}
    masked = False
    for name, value in example.items():
        if example.get("is_causal") is True:  # The flag stands for the mask, whose values are not looked at.
            break
        if name not in axes and getattr(value, "ndim", 0) > 1:
            layout, kind = mask_axes(name, tuple(value.shape), size), _polarity(value, call)
            if layout is not None and kind is not None:
                asked.axes[name] = layout
                asked.contract.setdefault("masks", {})[name] = kind
            masked |= "masks" in asked.contract or "mask" in name
            if kind is None and "mask" in name:
                asked.unread.append(f"mask `{name}`: what it keeps is not known")
    if call.real is not None and "masks" not in asked.contract and example.get("is_causal") is not True:
        return PADDED
    cross = keys != queries
    said = example.get("is_causal", getattr(site.module, "is_causal", None))
    pairs = any({"i", "j"} <= set(asked.axes[name].split()) for name in asked.contract.get("masks", ()))
    unknown = masked and "masks" not in asked.contract
    if not pairs and not unknown and not cross and (said if isinstance(said, bool) else call.causal):
        asked.contract["causal"] = True
    if site.events[0].scored > site.events[0].weights[-1]:
        asked.contract["rows"] = "<=1"
    asked.contract.update(_declared_by(site.module, example, site.events[0].values[-1]))
    return asked


def _batches(example: Mapping[str, Any], call: Call) -> Iterator[int]:
    """How many examples there may be: as many as the model is given, or the second axis of a sequence."""
    yield call.examples
    second = (value.shape[1] for value in example.values() if hasattr(value, "ndim") and value.ndim == 3)
    yield from dict.fromkeys(size for size in second if size != call.examples)


def _heads(site: Site, examples: int) -> int | None:
    """How many heads attend: by the shape of the weights, or by how many attentions of one shape there are."""
    shapes = {event.weights for event in site.events}
    if len(shapes) != 1:
        return None
    (shape,) = shapes
    lanes = math.prod(shape[:-2]) * len(site.events)
    return lanes // examples if lanes % examples == 0 else None


def _sequences(site: Site, example: Mapping[str, Any], examples: int) -> tuple[dict[str, str], str, str]:
    """The axes of what queries, and of what keys and values, are made of, and their names."""
    real = [
        name
        for name, value in example.items()
        if hasattr(value, "dtype") and value.is_floating_point() and value.ndim == 3 and "mask" not in name
    ]
    found = {name: axes for name in real if (axes := _rank_three(example[name], examples, "i"))}
    if not found:
        return {}, "", ""
    queries = next(iter(found))
    asks, answers = site.events[0].weights[-2:]
    keys = queries
    chosen = {queries: found[queries]}
    for name, axes in found.items():
        length = example[name].shape[axes.split().index("i")]
        if name != queries and _KEYS.search(name) and length == answers:
            keys = name
            chosen[name] = axes.replace("i", "j").replace("c", "c" if _wide(example, name, queries) else "f")
    length = example[queries].shape[found[queries].split().index("i")]
    return (chosen, queries, keys) if length == asks else ({}, "", "")


def _wide(example: Mapping[str, Any], name: str, other: str) -> bool:
    return bool(example[name].shape[-1] == example[other].shape[-1])


def _rank_three(value: Any, examples: int, position: str) -> str:
    """The axes of an array of sequences: examples first, or positions."""
    if value.shape[0] == examples:
        return f"b {position} c"
    return f"{position} b c" if value.shape[1] == examples else ""


def _out_axes(site: Site, axes: str, given: Any) -> str | None:
    """The axes of the output: those of the queries, perhaps of another width."""
    returned = site.returned
    if isinstance(returned, tuple | list):
        returned = next((value for value in returned if hasattr(value, "dtype")), None)
    shape = tuple(getattr(returned, "shape", ()))
    if len(shape) != 3 or tuple(shape[:2]) != tuple(given.shape[:2]):
        return None
    return axes if shape[2] == given.shape[2] else axes.replace("c", "o")


def _polarity(value: Any, call: Call) -> str | None:
    """What a mask means: told by what it has, for the first token's query, at the first token and at padded ones."""
    if value.is_complex():
        return None
    values = value.unique()
    if value.is_floating_point() and bool((values <= 0).all()):
        return "additive" if bool(((values == 0) | (values < -1e3)).all()) else None
    if not bool(((values == 0) | (values == 1)).all()):
        return None
    if call.real is None or call.real.shape != (value.shape[0], value.shape[-1]):
        return None
    dropped = value.reshape(value.shape[0], -1, value.shape[-1])[:, 0][~call.real.bool()].unique()
    kept = value.reshape(value.shape[0], -1)[:, 0].unique()
    if dropped.numel() != 1 or kept.numel() != 1 or bool(dropped) == bool(kept):
        return None
    return "keep" if bool(kept) else "drop"


def _declared_by(module: Any, example: Mapping[str, Any], width: int) -> dict[str, Any]:
    """What a module says of itself: its scale, where it is the usual one, its cap, tables by which it rotates."""
    made: dict[str, Any] = {}
    tables = [value for value in example.values() if _is_rotary(value)]
    if tables:
        made["rotary"] = "relative"
    scale = _number(module, _SCALES)
    if scale is not None and math.isclose(scale, width**-0.5, rel_tol=1e-4) and all(map(_keeps_length, tables)):
        made["scale"] = scale
    cap = _number(module, _CAPS)
    if cap is not None:
        made["softcap"] = cap
    return made


def _number(module: Any, names: tuple[str, ...]) -> float | None:
    values = (getattr(module, name, None) for name in names)
    return next((value for value in values if isinstance(value, float) and value > 0), None)


def _turns(value: Any) -> Any:
    """Cosines and sines as complex numbers of length 1; None for anything else."""
    import torch

    if not isinstance(value, tuple | list) or len(value) != 2:
        return None
    if not all(hasattr(x, "ndim") and x.ndim >= 2 and x.is_floating_point() for x in value):
        return None
    cos, sin = value
    return torch.complex(cos.double(), sin.double()) if cos.shape == sin.shape else None


def _is_rotary(value: Any) -> bool:
    """Whether a value is a pair of cosines and sines whose angles grow by as much with every position."""
    import torch

    turns = _turns(value)
    if turns is None or turns.shape[-2] < 3:
        return False
    step = turns[..., 1:, :] * turns[..., :-1, :].conj()
    return bool(torch.allclose(step, step[..., :1, :], atol=1e-4)) and bool((step.imag.abs() > 1e-6).any())


def _keeps_length(value: Any) -> bool:
    """Whether a rotation is one: some tables are multiplied by a number, which belongs to the scale."""
    import torch

    lengths = _turns(value).abs()
    return bool(torch.allclose(lengths, torch.ones_like(lengths), atol=1e-4))
