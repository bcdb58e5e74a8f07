"""A model from tokens to logits, and its runs: whole, in steps with a cache, each made once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .calling import Unusable, _reported, borrow
from .inputs import inputs_of as inputs_of

_LARGE = 30_000_000  # Parameters, beyond which a model stays in the precision it has.


@dataclass
class Tokens:
    """A model that takes tokens, and what it takes beside them."""

    model: Any
    takes: frozenset[str]
    vocabulary: int
    tolerance: float
    double: bool = False
    calls: int = 0
    known: dict[Any, Any] = field(default_factory=dict)  # The logits of runs that were made.

    def __call__(self, ids: Any, **rest: Any) -> Any:
        """The logits: (example, position, token)."""
        return self.logits(self.run(ids, **rest))

    def run(self, ids: Any, **rest: Any) -> Any:
        import torch

        self.calls += 1
        try:
            with torch.no_grad():
                if "use_cache" in self.takes:
                    rest.setdefault("use_cache", False)
                return self.model(ids, **rest)
        except Exception as problem:  # Foreign code may raise anything: it is reported, never hidden.
            raise _reported(problem, self.model) from None

    @staticmethod
    def logits(returned: Any) -> Any:
        for name in ("logits", "last_hidden_state"):
            value = returned.get(name) if isinstance(returned, Mapping) else getattr(returned, name, None)
            if value is not None:
                return value
        if isinstance(returned, tuple | list):
            returned = returned[0]
        if getattr(returned, "ndim", 0) != 3:
            shape = tuple(getattr(returned, "shape", ()))
            message = (
                f"the model gives {type(returned).__name__} {shape}, and not logits over (example, position, token)"
            )
            raise Unusable("shape", message, "", "return the logits, or something with `.logits`")
        return returned


def tokens_of(model: Any, vocabulary: int | None) -> Tokens:
    import torch

    if vocabulary is None:
        config = getattr(model, "config", None)
        tables = [module.num_embeddings for module in model.modules() if isinstance(module, torch.nn.Embedding)]
        vocabulary = getattr(config, "vocab_size", None) or (max(tables) if tables else 50)
    return Tokens(model, frozenset(inspect.signature(model.forward).parameters), int(vocabulary), 1e-4)


@contextmanager
def in_double(tokens: Tokens, wanted: bool) -> Iterator[None]:
    """The model in evaluation mode, and in double precision where that is wanted and the model is small and runs so.
    It is changed in place: functions that were put into it know it, and not a copy. Afterwards it is what it was."""
    small = sum(parameter.numel() for parameter in tokens.model.parameters()) <= _LARGE
    restore = borrow(tokens.model, double=True) if wanted and small else _evaluating(tokens.model)
    try:
        if wanted and small:
            try:
                tokens(draw(tokens, 3))
                tokens.tolerance, tokens.double = 1e-5, True
            except Unusable:
                restore()
                restore = _evaluating(tokens.model)
        yield
    finally:
        restore()


def _evaluating(model: Any) -> Callable[[], None]:
    training = {module: module.training for module in model.modules()}
    model.eval()

    def restore() -> None:
        for module, was in training.items():
            module.training = was

    return restore


def draw(tokens: Tokens, length: int, seed: int = 0, rows: int = 1) -> Any:
    import torch

    low = min(5, tokens.vocabulary - 2)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(max(low, 0), tokens.vocabulary, (rows, length), generator=generator)


def go(tokens: Tokens, ids: Any, rest: dict[str, Any], prepare: Callable[[], None] = lambda: None) -> Any:
    """The logits of a run; with `past`, after a run that fills the cache."""
    past = rest.get("past")
    if past is None:
        prepare()
        return tokens(ids, **rest)
    cache = _cache(tokens, _step(tokens, past))
    prepare()
    return tokens.logits(_step(tokens, ids, cache))


def _step(tokens: Tokens, ids: Any, cache: Any = None) -> Any:
    rest = {"use_cache": True} if "use_cache" in tokens.takes else {}
    return tokens.run(ids, **rest, **({} if cache is None else {"past_key_values": cache}))


def _cache(tokens: Tokens, filled: Any) -> Any:
    cache = filled.get("past_key_values") if isinstance(filled, Mapping) else getattr(filled, "past_key_values", None)
    if cache is None and isinstance(filled, tuple) and len(filled) > 1:
        cache = filled[1]
    if cache is None:
        raise Unusable(
            "shape", "the model takes `past_key_values`, and gives none back", "", "return the cache with the logits"
        )
    return cache


def chained(tokens: Tokens, ids: Any, places: list[int]) -> Any:
    """The logits of decoding in steps, with the cache from step to step."""
    import torch

    found, cache = [], None
    for start, stop in pairwise((0, *places, ids.shape[1])):
        returned = _step(tokens, ids[:, start:stop], cache)
        found.append(tokens.logits(returned))
        cache = _cache(tokens, returned)
    return torch.cat(found, 1)


def key_of(ids: Any, rest: Mapping[str, Any]) -> Any:
    return str(ids.tolist()), *((name, str(value.tolist())) for name, value in sorted(rest.items()))


def known_run(tokens: Tokens, ids: Any, rest: dict[str, Any]) -> Any:
    """The logits of a run, made once."""
    key = key_of(ids, rest)
    if key not in tokens.known:
        tokens.known[key] = go(tokens, ids, rest)
    return tokens.known[key]
