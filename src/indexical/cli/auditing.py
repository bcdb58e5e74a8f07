"""The command `ix audit`: the laws of attention on code written elsewhere."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..auditor import Report, audit, baseline
from ..auditor.contract import read_contract
from ..auditor.formats import FORMATS
from ..auditor.places import owned
from ..auditor.promises import Promise, Promises, declared_from
from ..diagnostics import Error, render
from ..records import replace
from ..saving import write_file
from .inputs import load
from .promises import FILE, found_promises, toml_of
from .targets import arrays_for, built, called, load_target
from .words import Usage, in_colour, write

_NUMBERS = ("window", "heads", "groups", "softcap", "logit_range")
_WORDS = ("documents", "rotary", "rows", "kernel", "empty", "attends", "packing", "scale")


def audit_command(options: Namespace) -> int:
    """0 where all was judged and no law is broken, 1 where one is, 2 where the code does not run or the command is at
    fault. Of several targets a broken law counts more than one that does not run."""
    try:
        return _answer(options)
    except Error as error:
        _refuse(error, options)
        return 2


def _answer(options: Namespace) -> int:
    if options.compare:
        from .comparing import compare_targets

        compared = {report.subject: report for report in compare_targets(options)}
        return _told(compared, options, Promises(), refused=False)
    declared = found_promises()
    wanted = _wanted(options, declared)
    reports, refused = {}, False
    for promise in wanted:
        try:
            reports[promise.target] = _audited(promise, options)
        except (Usage, Error) as problem:
            if len(wanted) == 1:
                raise
            refused = True
            if isinstance(problem, Error):
                _refuse(problem, options)
            else:
                print(f"ix: {problem}", file=sys.stderr)
    if options.init:
        _write_promises(reports, wanted, options)
    return _told(_apart(reports), options, declared, refused)


def _told(reports: Mapping[str, Report], options: Namespace, declared: Promises, refused: bool) -> int:
    """Write the reports, without what the baseline knows, and give the exit status."""
    known = options.baseline or declared.baseline
    if options.write_baseline is not None:
        write_file(options.write_baseline, baseline.written(reports))
        known = options.write_baseline
    if known is not None:
        reports = _without_known(reports, known)
    text = FORMATS[options.format]([report.with_proofs() for report in reports.values()])
    write(text if text.endswith("\n") or not text else text + "\n", options.output)
    return status(list(reports.values()), options.strict or declared.strict, refused)


def status(reports: Sequence[Report], strict: bool, refused: bool = False) -> int:
    """The exit status of reports, and of what was `refused` before there was one."""
    each = [part for report in reports for part in report.everything]
    if any(part.findings for part in each) or (strict and any(part.undecided for part in each)):
        return 1
    return 2 if refused or any(part.failure is not None for part in each) else 0


def _refuse(error: Error, options: Namespace) -> None:
    colour = in_colour(sys.stderr, options)
    for diagnostic in error.diagnostics:
        print(render(diagnostic, colour), end="\n\n", file=sys.stderr)


def _apart(reports: Mapping[str, Report]) -> dict[str, Report]:
    """Reports whose subjects have the same name, named by their targets."""
    names = [report.subject for report in reports.values()]
    return {
        target: replace(report, subject=target) if names.count(report.subject) > 1 else report
        for target, report in reports.items()
    }


# ---------------------------------------------------------------------- targets


def _wanted(options: Namespace, declared: Promises) -> list[Promise]:
    """The targets that are named, each with what is declared of it; where none is, all that are declared."""
    if not options.targets and not declared.targets:
        raise Usage(
            "name what to audit, like model.py:build; or declare it under [tool.indexical.audit] in pyproject.toml, "
            f"or in {FILE}: `ix audit --init model.py:build` writes that"
        )
    if not options.targets:
        return list(declared.targets)
    known = {promise.target: promise for promise in declared.targets}
    names = dict.fromkeys(Path(text).as_posix() if ".py:" in text else text for text in options.targets)
    return [known.get(name, Promise(name)) for name in names]


def _audited(promise: Promise, options: Namespace) -> Report:
    given = load_target(promise.target)
    contract = declared_keys(options, promise.contract)
    promise = replace(
        promise,
        contract=contract,
        example=options.example or promise.example,
        axes=options.axes or promise.axes,
        library=options.library or promise.library,
    )
    read_contract(contract)
    if options.model or promise.example is promise.axes is None:
        return _audit_model(given, promise, options)
    target = built(given)
    example = example_of(promise.example, target, promise.library)
    report = audit(target, example, promise.axes, read_contract(contract), tell=teller(False))
    return owned(report, target, given)


def _audit_model(given: Any, promise: Promise, options: Namespace) -> Report:
    from ..auditor.whole import audit_model

    model = called(given)
    causal = promise.contract.get("causal")
    causal = False if options.bidirectional else None if causal is None else bool(causal)
    length = options.length or promise.length or 7
    inputs = None if promise.example is None else example_of(promise.example, model, promise.library)
    contracts = promise.contracts
    report = audit_model(model, inputs, causal=causal, length=length, tell=teller(True), contracts=contracts)
    if report.failure is not None and not options.model:
        print(
            f"ix: {promise.target} runs on no inputs that were drawn for it: give some with --model --example "
            "inputs.npz; one attention is audited with --example inputs.npz and --axes 'x=b i c, out=b i c'",
            file=sys.stderr,
        )
    return owned(report, model, given)


# --------------------------------------------------------------------- examples


def example_of(given: str | None, target: Any, library: str | None) -> dict[str, Any]:
    """An array for every argument, by name: of a file, or from a function."""
    if given is None:
        raise Usage("--example inputs.npz: an array for every argument is needed")
    if ":" in given and not Path(given).exists():
        made = load_target(given)
        example = made(0) if callable(made) else made
        if not isinstance(example, Mapping):
            raise Usage(f"--example {given}: it gives {type(example).__name__}, and no arrays by name")
        return dict(example)
    loaded = load(given)
    if not isinstance(loaded, dict):
        raise Usage(f"--example {given}: a .npz file has an array for every argument, by name")
    return arrays_for(target, loaded, library)


def declared_keys(options: Namespace, promised: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a contract: what is promised, then those of a file, then those of the command line."""
    values = dict(promised)
    if options.contract is not None:
        read = toml_of(options.contract, f"--contract {options.contract}")
        values.update(read.get("contract", read))
    if options.causal is not None:
        values["causal"] = {"square": True, "none": False}.get(options.causal, options.causal)
    for name in (*_NUMBERS, *_WORDS):
        if getattr(options, name) is not None:
            values[name] = getattr(options, name)
    if options.residual:
        values["residual"] = True
    if options.prefill:
        values["prefill"] = True
    for name, option in (("alibi", options.alibi), ("regions", options.regions)):
        if option is not None:
            values[name] = _figures(name, option)
    if options.mask:
        values["masks"] = {**values.get("masks", {}), **dict(_masks(options.mask))}
    return values


def _figures(name: str, text: str) -> list[float]:
    try:
        kind = float if name == "alibi" else int
        return [kind(figure) for figure in json.loads(f"[{text}]")]
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise Usage(f"--{name} {text:.60}: numbers look like 0.5,0.25") from None


def _masks(texts: list[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    if any(not equals for _, equals, _ in pairs):
        raise Usage("--mask NAME=keep, NAME=drop or NAME=additive")
    return [(name.strip(), kind.strip()) for name, _, kind in pairs]


# ---------------------------------------------------------- what is kept in files


def _without_known(reports: Mapping[str, Report], path: str) -> dict[str, Report]:
    try:
        known = baseline.read(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Usage(f"--baseline {path}: there is no such file; `ix audit --write-baseline {path}` writes it") from None
    except OSError as problem:
        raise Usage(f"--baseline {path}: {problem.strerror}") from None
    except ValueError as problem:
        raise Usage(f"--baseline {path} is damaged: {problem}; `--write-baseline {path}` writes it again") from None
    found = {target: baseline.accepted(target, report, known) for target, report in reports.items()}
    for _, gone in found.values():
        for each in gone:
            print(f"ix: known to {path}, and not found any more: {each}", file=sys.stderr)
    return {target: report for target, (report, _) in found.items()}


def _write_promises(reports: Mapping[str, Report], wanted: Sequence[Promise], options: Namespace) -> None:
    if os.path.exists(FILE):
        raise Usage(f"--init: {FILE} is there already; remove it, or add what is new by hand")
    texts = [declared_from(reports[each.target], each, "") for each in wanted if each.target in reports]
    write_file(FILE, "# What `ix audit` holds this repository to.\n\n" + "\n".join(texts))
    print(f"ix: wrote {FILE}", file=sys.stderr)


def teller(model: bool) -> Callable[[str], None]:
    """A function that shows the current test on the standard error: on a terminal, or for a whole model."""
    started = time.monotonic()
    patience = 1.0 if sys.stderr.isatty() else 5.0 if model else float("inf")

    def tell(name: str) -> None:
        if time.monotonic() - started > patience:
            print(f"ix: testing {name}", file=sys.stderr, flush=True)

    return tell
