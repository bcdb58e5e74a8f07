"""Commands that look at code written elsewhere."""

from __future__ import annotations

import json
import sys
import time
import tomllib
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..auditor import Contract, Report, audit
from ..auditor.contract import read_contract
from ..auditor.formats import FORMATS
from .inputs import load
from .targets import arrays_for, built, called, load_target
from .words import Usage, write

_NUMBERS = ("window", "heads", "groups", "softcap", "logit_range")
_WORDS = ("documents", "rotary", "rows", "kernel", "empty", "attends", "packing", "scale")


def audit_command(options: Namespace) -> int:
    """0 where no law is broken, 1 where one is, 2 where the command is at fault or the code does not run."""
    target = load_target(options.target)
    if options.model:
        report = _audit_model(target, options)
    else:
        target = built(target)
        report = audit(target, _example(options, target), _axes(options), contract_of(options), tell=_tell(options))
    text = FORMATS[options.format]([report.with_proofs()])
    write(text if text.endswith("\n") else text + "\n", options.output)
    return 0 if report.ok else 2 if report.failure is not None else 1


def _audit_model(target: Any, options: Namespace) -> Report:
    from ..auditor.whole import audit_model

    causal = False if options.bidirectional else True if options.causal else None
    return audit_model(called(target), causal=causal, tell=_tell(options), length=options.length)


# --------------------------------------------------------------------- examples


def _example(options: Namespace, target: Any) -> dict[str, Any]:
    if options.example is None:
        raise Usage("--example inputs.npz: an array for every argument is needed")
    if ":" in options.example and not Path(options.example).exists():
        made = load_target(options.example)
        example = made(0) if callable(made) else made
        if not isinstance(example, Mapping):
            raise Usage(f"--example {options.example}: it gives {type(example).__name__}, and no arrays by name")
        return dict(example)
    loaded = load(options.example)
    if not isinstance(loaded, dict):
        raise Usage(f"--example {options.example}: a .npz file has an array for every argument, by name")
    return arrays_for(target, loaded, options.library)


def _axes(options: Namespace) -> str:
    if not options.axes:
        raise Usage("--axes 'x=b i c, out=b i c': say what the axes of each array are")
    return str(options.axes)


def contract_of(options: Namespace) -> Contract:
    """The contract of a TOML file, with what the command line adds."""
    values: dict[str, Any] = {}
    if options.contract is not None:
        try:
            values = tomllib.loads(Path(options.contract).read_text(encoding="utf-8"))
        except OSError as problem:
            raise Usage(f"--contract {options.contract}: {problem.strerror}") from None
        except RecursionError:
            raise Usage(f"--contract {options.contract}: it nests values too deeply to be read") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            raise Usage(f"--contract {options.contract}: {problem}") from None
        values = values.get("contract", values)
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
    return read_contract(values)


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


def _tell(options: Namespace) -> Callable[[str], None]:
    """A function that shows the current test on the standard error: on a terminal, or for a whole model."""
    started = time.monotonic()
    patience = 1.0 if sys.stderr.isatty() else 5.0 if options.model else float("inf")

    def tell(name: str) -> None:
        if time.monotonic() - started > patience:
            print(f"ix: testing {name}", file=sys.stderr, flush=True)

    return tell
