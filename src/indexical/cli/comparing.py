"""`ix audit --compare`: two targets, or one model in several settings."""

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from ..auditor import Report, compare
from ..auditor.contract import read_contract
from .auditing import declared_keys, example_of, teller
from .targets import called, load_target, missing_arguments
from .words import Usage, names_in

# What settings are called in a few letters, where a model has longer names for them.
_LONG = {"flex": "flex_attention", "flash": "flash_attention_2"}


def compare_targets(options: Namespace) -> Iterator[Report]:
    """The first target, or setting, with each of the others."""
    first, *others = _sides(options)
    if not others:
        raise Usage("--compare takes two targets, or one and --settings eager,sdpa")
    contract = read_contract(declared_keys(options, {}))
    example = None if options.example is None else example_of(options.example, first[1], options.library)
    for name, target in others:
        names = first[0], name
        yield compare(first[1], target, example, options.axes, contract, names=names, tell=teller(True))


def _sides(options: Namespace) -> list[tuple[str, Any]]:
    """What is compared, each with its name."""
    settings = names_in(options.settings)
    if settings is None:
        return [(text, _made(text, options)) for text in options.targets]
    if len(options.targets) != 1:
        raise Usage("--settings goes with one target, which is built once for each of them")
    return [(f"{options.targets[0]} ({name})", _set(options.targets[0], name)) for name in settings]


def _made(text: str, options: Namespace) -> Any:
    """A module or a function: what is a function without arguments builds one, unless there is an example."""
    given = load_target(text)
    if options.example is not None and not isinstance(given, type) and missing_arguments(given, 0):
        return given
    return called(given)


def _set(text: str, setting: str) -> Any:
    """A model that attends in one of its ways: as its builder is told, else as the model itself is."""
    given = load_target(text)
    missing = missing_arguments(given, 0)
    if len(missing) == 1:
        return called(given, setting)
    if not missing and not isinstance(given, type) and _takes_setting(given):
        return called(given, setting)
    model = called(given)
    choose = getattr(model, "set_attn_implementation", None)
    if choose is None:
        raise Usage(f"--settings {setting}: {text} takes no argument, and what it builds has no such settings")
    try:
        choose(_LONG.get(setting, setting))
    except Exception as problem:  # Foreign code may raise anything.
        words = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise Usage(f"--settings {setting}: {text} refuses it: {words}") from None
    return model


def _takes_setting(given: Any) -> bool:
    """Whether the only argument of a builder has a default that is a word."""
    parameters = list(inspect.signature(given).parameters.values()) if callable(given) else []
    return len(parameters) == 1 and isinstance(parameters[0].default, str)
