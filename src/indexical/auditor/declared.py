"""What a contract declares: it fits the sizes, and each of its laws is judged, or listed with the reason why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .contract import Contract
from .layout import Layout, refusal
from .reports import Finding

# The law that judges a key of a contract, where it has another name.
_JUDGED_BY = {
    **dict.fromkeys(("causal", "window", "documents", "regions", "mask", "attends"), "reach"),
    **dict.fromkeys(("heads", "groups"), "values"),
    "empty": "empty rows",
    "logit_range": "mask strength",
}
# Why a law may have nothing to be judged by.
_USUAL = {
    "empty": "no mask of the contract can drop all keys of a query",
    "logit_range": "nothing is masked, or the scores are not a multiple of q·k",
    "packing": "no fused projection was found",
    "residual": "the callable is no module of `x`, or its output has other axes",
    "axes": "its axes are not given",
    "prefill": "queries and keys are not given apart",
}
_NOTHING = "nothing that was asked tells it"
_WEIGHTS = "weights"  # The law that most others rest on.


def check_sizes(contract: Contract, layouts: Mapping[str, Layout], shapes: Mapping[str, Sequence[int]]) -> None:
    """Refuse a contract whose heads and regions are not those of the arrays."""
    for name in layouts:
        if 0 in shapes.get(name, ()):
            raise refusal(f"`{name}` has an axis without points", f"its shape is {tuple(shapes[name])}")
    letters = {factor for layout in layouts.values() for factor in layout.factors}
    if contract.attends is not None and contract.attends not in letters:
        has = " ".join(sorted(letters))
        raise refusal(f"the contract attends `{contract.attends}`, which no array has", f"their axes are {has}")
    lengths = {
        length
        for name, layout in layouts.items()
        for dim, length in zip(layout.dims, shapes.get(name, ()), strict=False)
        if dim in (("i",), ("j",))
    }
    if contract.regions is not None and lengths and len(contract.regions) not in lengths:
        many = " or ".join(map(str, sorted(lengths)))
        raise refusal(f"the contract has {len(contract.regions)} regions, and there are {many} positions", "one each")
    for name, layout in layouts.items():
        for dim, length in zip(layout.dims, shapes.get(name, ()), strict=False):
            if contract.heads and dim == ("h",) and "g" not in layout.factors and length != contract.heads:
                raise refusal(
                    f"the contract says {contract.heads} heads, and `{name}` has {length}",
                    f"its axes are `{layout}`, its shape is {tuple(shapes[name])}: correct `heads`, or the axes",
                )


def check_groups(contract: Contract, heads: int, groups: int) -> None:
    """Refuse a contract whose groups are not those of the keys."""
    if contract.groups is not None and heads != contract.groups * groups:
        raise refusal(
            f"the contract says that {contract.groups} heads share a key head, and there are {heads} heads of queries "
            f"and {groups} of keys",
            "`groups` is the number of query heads of one key head",
        )


def undecided(
    contract: Contract,
    laws: Sequence[str],
    reasons: Mapping[str, str],
    findings: Sequence[Finding],
    layouts: Mapping[str, Layout],
    sizes: Mapping[str, int],
) -> tuple[str, ...]:
    """The declared laws that were not judged, each with its reason."""
    broken = f"left out, as `{findings[0].law}` is broken" if findings else ""
    keys = sizes.get("j", sizes.get("i", 0))
    hidden = contract.window is not None and contract.window >= keys and not findings
    short = (f"window: a window of {contract.window} shows from {contract.window} + 1 keys on, and there are {keys}",)
    return (short if hidden else ()) + tuple(
        f"{name}: {reasons.get(law) or broken or _USUAL.get(law) or reasons.get(_WEIGHTS, _NOTHING)}"
        for name, law in not_judged(contract, [*laws, *(finding.law for finding in findings)], layouts)
    )


def not_judged(contract: Contract, laws: Sequence[str], layouts: Mapping[str, Layout]) -> Iterator[tuple[str, str]]:
    """The declared laws that are not among those that were judged: as they are shown, and by name."""
    for law in contract.declared:
        if law == "masks":
            for name in contract.masks:
                if name not in layouts or "reach" not in laws:
                    yield f"mask `{name}`", "mask" if name in layouts else "axes"
        elif _JUDGED_BY.get(law, law) not in laws and f"{law} of the relation" not in laws:
            yield law, law
