"""Where and why two implementations differ: the first layer that does; the law that one breaks and the other does not,
or what was found of one alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..diagnostics import Error
from .auditing import audit
from .contract import Contract
from .hooks import told_of_calls
from .reports import Report
from .running import difference
from .whole import audit_model

if TYPE_CHECKING:
    from .comparing import Pair

# What is told of numbers and of how it was asked, and not of what is computed.
_ASIDE = ("float32", "float16", "bfloat16", "weights", "inputs", "precision", "added", "axes", "judged at")
Calls = dict[tuple[str, int], tuple[list[Any], list[Any]]]


# ------------------------------------------------------------------------ where


def first_apart(
    modules: Sequence[Any], runs: Sequence[Callable[[], Any]], tolerance: float, real: Callable[[Any], Any]
) -> str:
    """The first module that both have, innermost, that is given the same by both and gives something else."""
    first, second = (_calls(module, run) for module, run in zip(modules, runs, strict=True))
    for key, (given, returned) in first.items():
        if key[0] and key in second:
            other = second[key]
            if _agree(given, other[0], tolerance, real) and not _agree(returned, other[1], tolerance, real):
                return key[0]
    return ""


def _agree(first: list[Any], second: list[Any], tolerance: float, real: Callable[[Any], Any]) -> bool:
    for one, two in zip(first, second, strict=False):
        left, right = real(one), real(two)
        if left.shape != right.shape or not left.numel():
            continue
        if float(difference(left, right).max()) > tolerance * max(float(left.nan_to_num().abs().max()), 1e-30):
            return False
    return True


def _calls(module: Any, run: Callable[[], Any]) -> Calls:
    """What each module inside was given and returned, by its name and how often it was called, in the order of the
    ends."""
    found: Calls = {}
    times: dict[str, int] = {}
    begun: list[list[Any]] = []

    def begin(name: str, _: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        begun.append(_arrays([*arguments, *named.values()]))

    def end(name: str, returned: Any) -> None:
        times[name] = times.get(name, 0) + 1
        values = returned if isinstance(returned, tuple | list) else [returned]
        found[name, times[name]] = begun.pop(), _arrays(values)

    with told_of_calls(module, begin, end):
        run()
    return found


def _arrays(values: Any) -> list[Any]:
    real = [x for x in values if hasattr(x, "is_floating_point") and x.is_floating_point() and x.ndim > 1]
    return [x.detach().clone() for x in real]


# -------------------------------------------------------------------------- why


def told_apart(pair: Pair, names: tuple[str, str], contract: Contract) -> tuple[str, str]:
    """The cause and the mend, from the audits of both; empty where those say the same."""
    modules = all(hasattr(target, "named_modules") for target in pair.targets)
    examples = [each.example for each in pair.foreign]
    try:
        if modules and any(_is_tokens(value) for value in examples[0].values()):
            return _cause([audit_model(target) for target in pair.targets], names)
        agreed = _with_heads(contract, pair.targets)
        reports = [
            audit(target, example, pair.axes, agreed) for target, example in zip(pair.targets, examples, strict=True)
        ]
    except Error:
        return "", ""
    return _cause(reports, names)


def unlike_buffers(first: Any, second: Any) -> str:
    """The buffers of two modules that have other numbers; empty where there are none."""
    if first is None or second is None:
        return ""
    ours, theirs = (dict(module.named_buffers()) for module in (first, second))
    unlike = [
        f"`{name}`"
        for name, value in ours.items()
        if name in theirs and (value.shape != theirs[name].shape or bool((value != theirs[name]).any()))
    ]
    return f"its {', '.join(unlike)} {'has' if len(unlike) == 1 else 'have'} other numbers" if unlike else ""


def _is_tokens(value: Any) -> bool:
    return getattr(value, "ndim", 0) == 2 and str(value.dtype) == "torch.int64"


def _with_heads(contract: Contract, targets: tuple[Any, Any]) -> Contract:
    """The contract with the number of heads that both modules say they have."""
    if contract.heads is not None:
        return contract
    said = [
        {
            value
            for name, value in vars(target).items()
            if "head" in name and not any(word in name for word in ("dim", "key", "kv", "size")) and type(value) is int
        }
        if hasattr(target, "named_modules")
        else set()
        for target in targets
    ]
    both = said[0] & said[1]
    return Contract(**{**contract.declared, "heads": both.pop()}) if len(both) == 1 else contract


def _cause(reports: list[Report], names: tuple[str, str]) -> tuple[str, str]:
    """What one of two reports has, and the other has not: a law that is broken, else a setting, else a fact."""
    laws = [{(part.subject, finding.law): finding for part, finding in report.told} for report in reports]
    for mine, yours, name in ((laws[1], laws[0], names[1]), (laws[0], laws[1], names[0])):
        for key, finding in mine.items():
            if key not in yours:
                cause = f"{finding.message}; {finding.cause}" if finding.cause else finding.message
                return f"{name} breaks the law `{finding.law}`: {cause}", finding.mend
    for one, two in zip(*(_facts(report) for report in reports), strict=False):
        words = _fact(one, two, names)
        if words:
            return words, ""
    return "", ""


def _facts(report: Report) -> list[Mapping[str, Any]]:
    return [each for part in report.everything for each in (part.settings, part.found)]


def _fact(one: Mapping[str, Any], two: Mapping[str, Any], names: tuple[str, str]) -> str:
    told = [
        f"{name}: {one.get(name, 'none')} in {names[0]}, {two.get(name, 'none')} in {names[1]}"
        for name in dict.fromkeys((*one, *two))
        if name not in _ASIDE and one.get(name) != two.get(name)
    ]
    return "; ".join(told)
