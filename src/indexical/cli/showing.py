"""Commands that show: pages of programs, lessons and weights, and words for weights."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from ..api import compile_anyway
from ..pages import WebPage, show, show_lesson
from ..weights import patterns
from .inputs import as_numbers, drawn_arrays, load, rounded
from .readings import read_exactly
from .words import Usage, text_of

# Options that belong to programs.
_OF_PROGRAMS = ("beside", "value", "input", "random", "sizes", "labels")


def show_command(options: Namespace) -> int:
    if sum(given is not None for given in (options.file, options.weights, options.model)) != 1:
        raise Usage("show takes one of these: a program or a lesson, --weights, --model")
    for name, owner in {"name": "weights", "text": "model"}.items():
        if getattr(options, owner) is None and getattr(options, name) is not None:
            raise Usage(f"--{name} is for --{owner}")
    for name in ("layers", "tokens"):
        if options.file is not None and getattr(options, name) is not None:
            raise Usage(f"--{name} is for --weights and --model")
    if options.weights is not None:
        page = _page_of_weights(options)
    else:
        page = _page_of_file(options) if options.model is None else _page_of_model(options)
    page.save(options.output)
    return 0


def _page_of_file(options: Namespace) -> WebPage:
    if options.file.lower().endswith(".md"):
        _only_of_programs(options, "a lesson has its own programs and figures")
        return show_lesson(options.file, options.title)
    program = compile_anyway(text_of(options.file))
    arrays, sizes = read_exactly(program, options)
    if options.random is not None:
        arrays = {name: as_numbers(value, rounded) for name, value in arrays.items()}
        arrays.update(drawn_arrays(program, arrays, options))
    beside = None if options.beside is None else compile_anyway(text_of(options.beside))
    labels = {name.strip(): texts.split(",") for name, _, texts in (part.partition("=") for part in options.labels)}
    return show(program, beside=beside, sizes=sizes, title=options.title, labels=labels, **arrays)


def _only_of_programs(options: Namespace, reason: str) -> None:
    """Refuse options that would do nothing."""
    odd = [name for name in _OF_PROGRAMS if getattr(options, name) not in (None, [], "" if name == "sizes" else None)]
    if odd:
        raise Usage(f"{reason}: --{odd[0]} is for programs")


def _page_of_weights(options: Namespace) -> WebPage:
    _only_of_programs(options, "weights have their numbers")
    weights, tokens = _weights(options.weights, options.name)
    if options.layers is not None:
        weights = _layers(np.asarray(weights), options.layers)
    given = tokens if options.tokens is None else _tokens(options.tokens)
    return patterns(weights, tokens=given).page(options.title or Path(options.weights).stem)


def _page_of_model(options: Namespace) -> WebPage:
    _only_of_programs(options, "a model has its numbers")
    if bool(options.text) == (options.tokens is not None):
        raise Usage('--model needs something to read: --text "…", or --tokens that its tokenizer knows')
    try:
        from ..watching.models import watch_text
    except ImportError:
        raise Usage("--model needs PyTorch and transformers: pip install 'indexical[models]'") from None
    layers = None if options.layers is None else _places(options.layers)
    given = options.text if options.tokens is None else _tokens(options.tokens)
    return watch_text(options.model, given, options.download, layers).page(options.title or Path(options.model).stem)


def _weights(path: str, name: str | None) -> tuple[Any, list[str] | None]:
    """The weights of a file, and its tokens where it has an array of that name."""
    loaded = load(path)
    if not isinstance(loaded, dict):
        if name is not None:
            raise Usage(f"--name {name}: {path} has one array, without a name")
        return loaded, None
    tokens = loaded.pop("tokens", None)
    wanted = name or ("weights" if "weights" in loaded else next(iter(loaded), ""))
    if wanted not in loaded or (name is None and len(loaded) > 1 and wanted != "weights"):
        raise Usage(f"{path}: say which array with --name; it has {', '.join(loaded) or 'none'}")
    return loaded[wanted], None if tokens is None else [str(token) for token in np.ravel(tokens)]


def _layers(weights: np.ndarray[Any, Any], text: str) -> np.ndarray[Any, Any]:
    """The points of the first axis that a text names."""
    places = _places(text)
    if weights.ndim < 3 or not all(place < len(weights) for place in places) or not places:
        raise Usage(f"--layers {text}: the first of the leading axes has no such points; the shape is {weights.shape}")
    return weights[places]


def _places(text: str) -> list[int]:
    """`0,4-7` as numbers."""
    places: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None:
            raise Usage(f"--layers {text}: places look like 0,4-7")
        places += range(int(match[1]), int(match[2] or match[1]) + 1)
    return places


def _tokens(text: str) -> list[str]:
    """The tokens of a file, a list in JSON or one a line; or the words that stand there, with commas between them."""
    file = Path(text)
    if not file.is_file():
        return text.split(",")
    try:
        content = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise Usage(f"--tokens {text}: it cannot be read as text ({type(problem).__name__})") from None
    if file.suffix != ".json":
        return content.splitlines()
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise Usage(f"--tokens {text}: it is no list in JSON")
    return [str(token) for token in found]


def patterns_command(options: Namespace) -> int:
    weights, tokens = _weights(options.file, options.name)
    found = patterns(weights, causal=True if options.causal else None, tokens=tokens)
    print(json.dumps(found.to_json()) if options.format == "json" else found.text(options.rows, options.sort))
    return 0
