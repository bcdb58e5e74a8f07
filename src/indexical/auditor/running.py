"""A side of a model, the input whose positions it orders, and its runs: whole, in steps with a cache, each once."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ..lift.flex import flex_by_definition
from .calling import Unusable, _reported
from .inputs import inputs_of as inputs_of
from .reports import RUNS

_LARGE = 30_000_000  # Parameters, beyond which the rounding of a model is not measured.
_PATIENCE = 4.0  # Seconds between two words about what is being done.
_SLOW = 0.4  # Seconds for one call.
_NAMES = ("logits", "last_hidden_state")
CACHE = "past_key_values"


@dataclass(frozen=True, eq=False)
class Run:
    """One call of a model: the input that is varied, what is given beside it, and what was cached before it."""

    ids: Any
    more: Mapping[str, Any] = field(default_factory=dict)
    mates: tuple[int, ...] = (0,)  # The example whose other inputs each row has.
    past: Any = None

    @property
    def key(self) -> Any:
        given = {"ids": self.ids, "past": self.past, **self.more}
        return self.mates, *((name, str(value.tolist())) for name, value in given.items() if value is not None)


@dataclass
class Side:
    """A model by one of its inputs: what it is given beside that, and where the output is."""

    model: Any
    name: str
    inputs: Mapping[str, Any]  # By name, several examples.
    takes: frozenset[str]
    label: str = ""  # The encoder or the decoder, where a model has both.
    mask: str | None = None
    output: str | None = None  # The name of the output, where it has one.
    module: Any = None  # The module inside whose output is looked at: the model's own has no positions.
    aligned: bool = True  # The output has a position for each of the input.
    transposed: bool = False  # Positions come first, examples second.
    causal: bool | None = None  # `None` where nothing tells.
    tolerance: float = 1e-4
    calls: int = 0
    known: dict[Any, Any] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda words: None
    doing: str = "inputs and outputs"
    told: float = field(default_factory=time.monotonic)
    spent: float = 0.0  # Seconds in the model.

    @property
    def is_slow(self) -> bool:
        """Whether a call takes so long that few of them have to do."""
        return self.spent > _SLOW * max(self.calls, 1)

    @property
    def ids(self) -> Any:
        return self.inputs[self.name][:1]

    def mate(self, number: int) -> Any:
        return self.inputs[self.name][number : number + 1]

    def call(self, run: Run, cache: Any = None, keep: bool = False) -> Any:
        """What the model returns, and the output in it."""
        import torch

        self.calls += 1
        started = time.monotonic()
        if time.monotonic() - self.told > _PATIENCE:
            self.told = time.monotonic()
            self.tell(f"{self.doing}: call {self.calls}")
        given = self._rest(run.mates)
        given |= {self.name: run.ids.transpose(0, 1) if self.transposed else run.ids, **run.more}
        if "use_cache" in self.takes:
            given["use_cache"] = keep
        if cache is not None:
            given[CACHE] = cache
        inside: list[Any] = []
        handle = None
        if self.module is not None:
            handle = self.module.register_forward_hook(lambda module, _, returned: inside.append(returned))
        try:
            with torch.no_grad(), warnings.catch_warnings(), flex_by_definition():
                warnings.simplefilter("ignore")
                returned = self.model(**given)
        except Exception as problem:  # Foreign code may raise anything: it is reported, never hidden.
            raise _reported(problem, self.model) from None
        finally:
            self.spent += time.monotonic() - started
            if handle is not None:
                handle.remove()
        return returned, self._output(inside[-1] if inside else returned)

    def _rest(self, mates: tuple[int, ...]) -> dict[str, Any]:
        """The other inputs: those of an example for each row, where they have examples."""
        rows = len(self.inputs[self.name])
        rest = {name: value for name, value in self.inputs.items() if name != self.name}
        return {
            name: value[list(mates)] if getattr(value, "ndim", 0) and len(value) == rows else value
            for name, value in rest.items()
        }

    def _output(self, returned: Any) -> Any:
        arrays = dict(arrays_of(returned))
        value = arrays.get(self.output) if self.output else next(iter(arrays.values()), None)
        if value is None:
            raise Unusable(RUNS, f"the model gives {type(returned).__name__}, and no {self.output or 'array'}")
        return value.transpose(0, 1) if self.transposed and value.ndim > 1 else value

    def __call__(self, run: Run) -> Any:
        """The output of a run, made once."""
        key = run.key
        if key not in self.known:
            self.known[key] = self.go(run)
        return self.known[key]

    def go(self, run: Run, prepare: Callable[[], None] = lambda: None) -> Any:
        """The output of a run; with a past, after a run that fills the cache."""
        if run.past is None:
            prepare()
            return self.call(run)[1]
        cache = self.cache(self.call(Run(run.past), keep=True)[0])
        prepare()
        return self.call(run, cache, keep=True)[1]

    def cache(self, returned: Any) -> Any:
        cache = dict(_items(returned)).get(CACHE)
        if cache is None and isinstance(returned, tuple) and len(returned) > 1 and not hasattr(returned[1], "ndim"):
            cache = returned[1]
        if cache is None:
            raise Unusable(RUNS, f"the model takes `{CACHE}`, and gives none back")
        return cache

    def chained(self, ids: Any, places: list[int]) -> Any:
        """The output of decoding in steps, with the cache from step to step."""
        import torch

        found, cache = [], None
        for start, stop in pairwise((0, *places, ids.shape[1])):
            returned, output = self.call(Run(ids[:, start:stop]), cache, keep=True)
            found.append(output)
            cache = self.cache(returned)
        return torch.cat(found, 1)


def _items(returned: Any) -> list[tuple[str, Any]]:
    """What was returned, by name where it has names."""
    if isinstance(returned, Mapping):
        return list(returned.items())
    if hasattr(returned, "ndim"):
        return [("", returned)]
    if isinstance(returned, tuple | list):
        names = getattr(returned, "_fields", range(len(returned)))
        return [(str(name), value) for name, value in zip(names, returned, strict=True)]
    return list(vars(returned).items()) if hasattr(returned, "__dict__") else []


def arrays_of(returned: Any) -> list[tuple[str, Any]]:
    """The arrays of real numbers among what was returned, the output of the model first where its name tells."""
    found = [(name, x) for name, x in _items(returned) if hasattr(x, "is_floating_point") and x.is_floating_point()]
    return sorted(found, key=lambda item: _NAMES.index(item[0]) if item[0] in _NAMES else len(_NAMES))


# ------------------------------------------------------------------------ how near is the same


def difference(first: Any, second: Any) -> Any:
    """How far numbers are apart: 0 for two that are both NaN or the same infinity, infinite for one of them alone."""
    import torch

    one, two = first.double(), second.double()
    alike = (one == two) | (one.isnan() & two.isnan())
    return torch.where(alike, 0.0, torch.nan_to_num((one - two).abs(), nan=torch.inf))


def same(first: Any, second: Any, tolerance: float) -> bool:
    if first.shape != second.shape:
        return False
    return not first.numel() or float(difference(first, second).max()) <= tolerance


@contextmanager
def nudged(model: Any) -> Iterator[None]:
    """A model whose numbers are others by a rounding each, while this lasts."""
    import torch

    generator = torch.Generator().manual_seed(0)
    numbers = [each for each in model.parameters() if each.is_floating_point()]
    was = [each.data for each in numbers]
    for each in numbers:
        noise = torch.randn(each.shape, generator=generator).to(each) * torch.finfo(each.dtype).eps
        each.data = each.data * (1 + noise)
    try:
        yield
    finally:
        for each, value in zip(numbers, was, strict=True):
            each.data = value


def tolerance_of(side: Side, run: Run) -> float:
    """What rounding may change in the output: measured, by roundings of all numbers of the model."""
    import torch

    output = side(run)
    finite = output[torch.isfinite(output)]
    scale = float(finite.abs().max()) if finite.numel() else 1.0
    least = 16 * torch.finfo(output.dtype).eps * scale
    if not is_small(side.model):
        return max(least, 1e-4 * scale)
    with nudged(side.model):
        change = difference(output, side.go(run))
    change = change[torch.isfinite(change)]
    return max(least, 32 * float(change.max()) if change.numel() else 0.0)


def is_small(model: Any) -> bool:
    return bool(sum(each.numel() for each in model.parameters()) <= _LARGE)
