"""An audit: the callable, an example, the axes, the contract; in, and a report, out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .access import Direct, Port, find_ports, has_weights, role_of_name
from .attention_laws import judge
from .caching import prefill_law
from .calling import Foreign, Unusable, stopped
from .contract import Contract
from .declared import check_groups, check_sizes, not_judged, undecided
from .guessing import guess_axes
from .inquiry import Inquiry
from .keeping import kept
from .layout import Layout, check_ranks, infer_sizes, parse_axes, refusal
from .letters import cached_names, contract_in_our_letters, in_our_letters, retold
from .numerics import tell_accuracy, tell_limits
from .places import owned
from .projected import judge_projected
from .proofs import found_inside, proved, proved_laws
from .reports import Report, name_of, ranked
from .sanity import plain, sanity
from .settings import Settings
from .sizing import cut, other_sizes
from .steps import judge_step

Tell = Callable[[str], None]
_FEW = 120  # Calls for one recovery of the weights, beyond which all lanes are asked at once.


def audit(
    target: Callable[..., Any],
    example: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
    axes: Mapping[str, str] | str | None = None,
    contract: Contract | Mapping[str, Any] | None = None,
    *,
    tell: Tell | None = None,
) -> Report:
    """Test the laws of attention on a callable, and say which are broken, by which inputs, and why.

    `example` has an array for every argument (or is a function from a seed to that), `axes` a layout for each and for
    `"out"`; without `axes` they are guessed from names and shapes, and shown in `found["axes"]`. What `contract` does
    not declare is not judged, but is reported as it is found.
    """
    started = time.monotonic()
    given: Any = example(0) if callable(example) else example
    if not isinstance(given, Mapping) or not given:
        raise refusal("the example has no arrays", 'pass the arguments by name: `{"q": q, "k": k, "v": v}`')
    agreed = contract if isinstance(contract, Contract) else Contract(**(contract or {}))
    if axes is None:
        shown = guess_axes(target, given, None, agreed)
        assumed = ", ".join(f"{name}={layout}" for name, layout in shown.items())
    else:
        shown, assumed = parse_axes(axes), ""
    strange = [name for name in shown if name != "out" and name not in given]
    if strange:
        raise refusal(f"`axes` names `{strange[0]}`, which the example does not have", f"it has {', '.join(given)}")
    check_ranks(shown, {name: value.shape for name, value in given.items() if hasattr(value, "shape")})
    with kept(target):
        foreign = Foreign(target, given)
        letters = in_our_letters(shown, agreed, has_weights(foreign))
        try:
            agreed = contract_in_our_letters(agreed, letters)
            report = _audited(foreign, letters.layouts, agreed, tell or (lambda name: None), started)
        except Unusable as problem:
            report = stopped(target, problem, calls=foreign.calls, seconds=time.monotonic() - started)
        finally:
            foreign.restore()
    return owned(retold(report, letters, assumed or letters.assumed), target)


def _audited(foreign: Foreign, layouts: Mapping[str, Layout], contract: Contract, tell: Tell, started: float) -> Report:
    given = sizes = _sizes(foreign, layouts, contract)
    shape = layouts["out"].shape(sizes) if "out" in layouts else None
    foreign.out_shape = shape
    tell("the example")
    findings = sanity(foreign, shape)
    found: dict[str, str] = {}
    laws = ["shape", "deterministic", "pure"]
    if any(finding.law == "deterministic" for finding in findings):
        left = undecided(contract, laws, {}, findings, layouts, sizes)
        return Report(name_of(foreign.original), ranked(findings), {}, tuple(laws), left, foreign.calls, undecided=left)
    foreign.hurry()
    step = bool(cached_names(layouts)) and any(role_of_name(name) == "q" for name in layouts)
    sizes = sizes if step else cut(foreign, layouts, sizes, contract)
    layouts, guessed = _with_heads(layouts, sizes)
    ports = None if step else find_ports(layouts, tuple(foreign.example), contract)
    unread: list[str] = []
    reasons: dict[str, str] = {}
    if step:
        more = judge_step(foreign, layouts, sizes, contract, tell)
        findings += more.findings
        found, laws, unread = more.found, [*laws, *more.laws], more.unread
    elif ports is None or _projects(foreign, ports):
        more = judge_projected(foreign, layouts, sizes, contract, tell)
        findings += more.findings
        found, laws, unread, reasons = more.found, [*laws, *more.laws], more.unread, more.reasons
        if not findings:
            tell_accuracy(foreign, {name: plain(value) for name, value in foreign.example.items()}, found)
    else:
        for chosen in (sizes, other_sizes(foreign, layouts, sizes, contract)):
            if chosen is None or findings:
                continue
            tell(f"sizes {', '.join(f'{name} = {size}' for name, size in chosen.items())}")
            inquiry = _inquiry(foreign, ports, chosen, layouts, contract)
            foreign.out_shape = layouts["out"].shape(chosen)
            try:
                judge(inquiry)
                prefill_law(inquiry)
            except Unusable:
                if chosen is sizes:
                    raise
                continue
            if guessed and any(finding.law in ("layout", "heads", "batch") for finding in inquiry.findings):
                unread.append("the weights: `c` of the output is not `(h e)`; it seems to be projected")
                reasons["weights"] = unread[0]
                break
            findings += inquiry.findings
            if not findings and chosen is sizes:
                tell("numbers of fewer digits")
                draw = Direct(foreign, ports, chosen).arrays(*inquiry.inputs(), inquiry.settings.plain().arrays)
                tell_accuracy(foreign, draw, inquiry.found)
                tell_limits(inquiry)
            found = {**inquiry.found, **found}
            laws += [law for law in inquiry.laws if law not in laws]
            reasons = {**inquiry.reasons, **reasons}
    open_laws = {law for _, law in not_judged(contract, laws, layouts)}
    if not findings and (unread or open_laws):
        tell("the relation")
        foreign.restore()
        told_inside, claimed = found_inside(
            foreign.original, foreign.example, layouts, given, contract, open_laws, bool(unread)
        )
        findings += told_inside
        laws += [f"{law} of the relation" for law in claimed]
    elif findings:
        tell("proofs")
        foreign.restore()
        findings = proved(findings, foreign.original, foreign.example, layouts, given, contract)
    seconds = time.monotonic() - started
    told = ranked(findings)
    prove = partial(proved_laws, foreign.original, foreign.example, layouts, given, contract, tuple(laws))
    left = undecided(contract, laws, reasons, told, layouts, given)
    return Report(
        name_of(foreign.original),
        told,
        found,
        tuple(laws),
        (*unread, *left),
        foreign.calls,
        seconds,
        prove,
        undecided=left,
    )


def _sizes(foreign: Foreign, layouts: Mapping[str, Layout], contract: Contract) -> dict[str, int]:
    """The size of every axis, from the example, what the contract says, and the output where these do not tell."""
    shapes = {name: tuple(value.shape) for name, value in foreign.example.items() if hasattr(value, "shape")}
    check_sizes(contract, layouts, shapes)
    packed = any({"g", "h"} <= set(layout.factors) for layout in layouts.values())
    known = {"h": contract.heads} if contract.heads and not packed else {}
    for name in (contract.documents, *contract.masks):
        if name is not None and name not in foreign.example:
            raise refusal(
                f"the contract names `{name}`, which the example does not have", f"it has {', '.join(shapes)}"
            )
    sizes = infer_sizes(layouts, shapes, known)
    missing = [
        factor
        for layout in layouts.values()
        for factor in layout.factors
        if factor[0].isalpha() and factor not in sizes
    ]
    if missing:
        out = foreign.prepare()
        check_ranks({"out": layouts["out"]} if "out" in layouts else {}, {"out": out.shape})
        sizes = infer_sizes(layouts, {**shapes, "out": out.shape}, known)
    if "h" in sizes and "g" in sizes and not packed:
        check_groups(contract, sizes["h"], sizes["g"])
    return sizes


def _with_heads(layouts: Mapping[str, Layout], sizes: dict[str, int]) -> tuple[Mapping[str, Layout], bool]:
    """The layouts with `c` of the output read as heads and features, where values have those and the sizes agree."""
    value = next((layout for name, layout in layouts.items() if name != "out" and _is_value(name, layout)), None)
    out = layouts.get("out")
    if value is None or out is None or "c" not in out.factors or "h" in out.factors or "c" in value.factors:
        return layouts, False
    feature = "e" if "e" in value.factors else "d"
    if sizes.get("c") != sizes["h"] * sizes[feature]:
        return layouts, False
    dims = tuple(("h", feature) if dim == ("c",) else dim for dim in out.dims)
    return {**layouts, "out": Layout(dims)}, True


def _is_value(name: str, layout: Layout) -> bool:
    return name.lower().startswith("v") and "h" in layout.factors and bool({"d", "e"} & set(layout.factors))


def _projects(foreign: Foreign, ports: Mapping[str, Port]) -> bool:
    """Whether queries, keys and values are still as wide as the model, and are projected inside."""
    return has_weights(foreign) and not any(port.feature in ("d", "e") for port in ports.values())


def _inquiry(
    foreign: Foreign,
    ports: Mapping[str, Port],
    sizes: Mapping[str, int],
    layouts: Mapping[str, Layout],
    contract: Contract,
) -> Inquiry:
    q, k = ports["q"], ports["k"]
    if sizes[q.feature] != sizes[k.feature]:
        raise refusal(
            f"`{q.name}` has {sizes[q.feature]} features, `{q.feature}`, and `{k.name}` has {sizes[k.feature]}",
            "queries are compared with keys: both have the features `d`",
        )
    access = Direct(foreign, ports, sizes)
    settings = Settings(access, contract, layouts, {name: plain(value) for name, value in foreign.example.items()})
    each = access.count["v"] * access.J <= _FEW
    return Inquiry(access, settings, contract, foreign.original, foreign.tolerance, each)
