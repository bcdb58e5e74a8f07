"""What a repository promises of its attention: targets and contracts, as tables of TOML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..diagnostics import Error
from .contract import Contract, evaluate, read_contract
from .layout import refusal
from .reports import Report

EVERY = "**"  # The pattern of every attention inside a model.
Contracts = Mapping[str, Mapping[str, Any]]  # Keys of a contract, by a pattern of the module's name.

_KEYS = tuple(item.name for item in fields(Contract))
_OWN: dict[str, type] = {"name": str, "example": str, "axes": str, "library": str, "length": int, "modules": dict}


@dataclass(frozen=True)
class Promise:
    """A target, how it is called, and what it is declared to be: itself, or the attentions inside it."""

    target: str
    contract: Mapping[str, Any] = field(default_factory=dict)
    modules: Contracts = field(default_factory=dict)
    example: str | None = None
    axes: str | None = None
    library: str | None = None
    length: int | None = None

    @property
    def contracts(self) -> Contracts:
        """What is declared of the attentions inside: of all of them, then of some. That no token hears the future is a
        law of the whole model: an attention from a decoder to an encoder inside it may hear everything."""
        every = {name: value for name, value in self.contract.items() if name != "causal"}
        return {**({EVERY: every} if every else {}), **self.modules}


@dataclass(frozen=True)
class Promises:
    """All targets of a repository, and how they are judged."""

    targets: tuple[Promise, ...] = ()
    baseline: str | None = None
    strict: bool = False


def read_promises(values: Mapping[str, Any]) -> Promises:
    """The table `[tool.indexical.audit]`."""
    known: dict[str, type] = {"target": list, "baseline": str, "strict": bool}
    _check(values, known, "the table of an audit")
    targets = tuple(map(_promise, values.get("target", ())))
    for number, promise in enumerate(targets):
        if promise.target in [each.target for each in targets[:number]]:
            raise refusal(f"the target `{promise.target}` is declared twice", "declare all of it in one table")
    return Promises(targets, values.get("baseline"), values.get("strict", False))


def _promise(values: Any) -> Promise:
    if not isinstance(values, Mapping) or "name" not in values:
        raise refusal("a target has no name", '`[[tool.indexical.audit.target]]` has a line `name = "model.py:build"`')
    target = str(values["name"])
    _check(values, {**dict.fromkeys(_KEYS, object), **_OWN}, f"the target `{target}`")
    contract = {name: value for name, value in values.items() if name in _KEYS}
    read_contract(contract)
    modules = values.get("modules", {})
    for pattern, keys in modules.items():
        if not isinstance(keys, Mapping):
            raise refusal(
                f"`{pattern}` of `{target}` is no table", f'`[tool.indexical.audit.target.modules."{pattern}"]`'
            )
        read_contract(keys)
    own = {name: values[name] for name in ("example", "axes", "library", "length") if name in values}
    if "axes" in own and "example" not in own:
        raise refusal(f"the target `{target}` has axes and no example", 'add one: `example = "inputs.npz"`')
    return Promise(target, contract, modules, **own)


def _check(values: Mapping[str, Any], known: Mapping[str, type], what: str) -> None:
    for name, value in values.items():
        if name not in known:
            raise refusal(f"{what} has no key `{name}`", f"it has {', '.join(sorted(known))}")
        kind = known[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            words = {str: "a text", list: "a list of tables", bool: "true or false", int: "a number", dict: "a table"}
            raise refusal(f"`{name}` of {what} is {value!r:.60}", f"it is {words[kind]}")


# ---------------------------------------------------------------- patterns


def fits(pattern: str, module: str) -> bool:
    """Whether a pattern is of a module: `*` stands for any text between two dots, `**` for any module."""
    if pattern == EVERY:
        return True
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^.]*"), module) is not None


def contract_for(contracts: Contracts, module: str) -> dict[str, Any]:
    """The keys that are declared of a module: by every pattern that fits it, later ones over earlier ones."""
    found: dict[str, Any] = {}
    for pattern, keys in contracts.items():
        if fits(pattern, module):
            found.update(keys)
    return found


def with_unmatched(report: Report, contracts: Contracts) -> Report:
    """The report, which tells of contracts that no attention inside is judged by: there is none of that name, or it
    could not be asked."""
    names = [name for part in report.parts for name in (part.subject, *part.equal)]
    missed = [pattern for pattern in contracts if not any(fits(pattern, name) for name in names)]
    parts = tuple(_unasked(part, contract_for(contracts, part.subject)) for part in report.parts)
    if not missed or report.failure is not None:
        return replace(report, parts=parts)
    has = f"it has {', '.join(names)}" if names else "none was found"
    told = tuple(
        f"{', '.join(contracts[pattern])} of {'the attentions inside' if pattern == EVERY else f'`{pattern}`'}: "
        f"the model has no such attention; {has}"
        for pattern in missed
    )
    unread, undecided = (*report.unread, *told), (*report.undecided, *told)
    return replace(report, unread=unread, undecided=undecided, parts=parts)


def _unasked(part: Report, declared: Mapping[str, Any]) -> Report:
    if part.laws or part.findings or not declared:
        return part
    reasons = "; ".join(part.unread) or "the module was not asked"
    return replace(part, undecided=(*part.undecided, f"{', '.join(declared)}: {reasons}"))


# ---------------------------------------------------------------- writing


def settings_of(contract: Mapping[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
    """What an attention is, in the words of a contract: what was declared of it, and what was found beside that and can
    be declared. Its masks are arguments, which a model hands to it."""
    made = {name: value for name, value in contract.items() if name != "masks"}
    reach = found.get("reach", "")
    window = re.fullmatch(r"a window of (\d+) keys, causal", reach)
    if window is not None:
        made.setdefault("window", int(window[1]))
    if window is not None or reach == "causal: j <= i":
        made.setdefault("causal", True)
    number, equals, expression = found.get("scale", "").partition(" = ")
    if equals and "scale" not in made:
        expression = expression.partition(",")[0]
        try:
            if math.isclose(evaluate(expression, {}), float(number), rel_tol=1e-4):
                made["scale"] = expression
        except (Error, ValueError):
            pass
    return made


def declared_from(report: Report, promise: Promise, head: str = "tool.indexical.audit.") -> str:
    """A table that declares what was found: of the callable itself, or of each attention inside a model. What is broken
    is a comment, and not declared."""
    lines = [f"[[{head}target]]", f"name = {_written(promise.target)}"]
    own = {name: getattr(promise, name) for name in ("example", "axes", "library", "length")}
    keys = {**own, **({} if report.findings else report.settings), **promise.contract}
    lines += [f"{name} = {_written(value)}" for name, value in keys.items() if value is not None]
    lines += [f"# broken: {' '.join(finding.line(report.subject).split())}" for finding in report.findings]
    names = [name for part in report.parts for name in (part.subject, *part.equal)]
    for part in report.parts:
        declared = {**({} if part.findings else part.settings), **contract_for(promise.modules, part.subject)}
        broken = [f"# broken: {' '.join(finding.line(part.subject).split())}" for finding in part.findings]
        for pattern in _patterns((part.subject, *part.equal), names):
            if declared or broken:
                lines += ["", f"[{head}target.modules.{_written(pattern)}]", *broken]
                lines += [f"{name} = {_written(value)}" for name, value in declared.items() if value is not None]
    return "\n".join(lines) + "\n"


def _patterns(names: Iterable[str], others: list[str]) -> list[str]:
    """Names of modules with their numbers left open, where that fits no others than these."""
    own = list(dict.fromkeys(names))
    found: dict[str, None] = {}
    for name in own:
        pattern = re.sub(r"(?<![^.])\d+(?![^.])", "*", name)
        found[pattern if all(other in own for other in others if fits(pattern, other)) else name] = None
    return list(found)


def _written(value: Any) -> str:
    """A value of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_written(str(name))} = {_written(each)}' for name, each in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False)
