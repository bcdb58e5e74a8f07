"""The module in which two runs of a model first differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from .hooks import told_of_calls
from .inputs import is_whole
from .running import Run, Side, difference, is_small, nudged
from .trials import Comparison, Cuts, Part

Laid = tuple[Any, Part]  # An activation, or `None` for all else, and the part of it that counts.


@dataclass
class Call:
    """One call of a module: what went in and came out, as far as it lies along examples and positions."""

    name: str
    module: Any
    given: list[Laid]
    returned: list[Laid] = field(default_factory=list)
    attends: bool = False  # Each of the queries was weighed against all keys in it.
    over_queries: bool = False  # And the weights of a key, over the queries, were made to sum to 1.
    blurs: bool = False  # Positions were mixed otherwise, by a convolution; or it gives another number of them.


@dataclass
class Blame:
    """The module in which two runs first differ; none where the model itself does what differs."""

    name: str = ""
    module: Any = None
    attends: bool = False
    over_queries: bool = False
    inverted: bool = False  # What comes later moved it, and what came before did not.
    mixes: bool = False  # A module before it moved later positions, and no earlier one: it was causal so far.


def bisect(side: Side, comparison: Comparison, without: Callable[[Any], bool] | None = None) -> Blame:
    """The module whose inputs are the same in the parts that count, and whose output is not: the first, innermost.
    Modules that it is to do `without` may differ, and so may what they return wherever it is handed on."""
    (one, left), (two, right) = comparison.cuts
    numbered = without is None  # Whole numbers, such as positions, count among the inputs.
    first, second = _calls(side, one, left, numbered), _calls(side, two, right, numbered)
    rough = _calls(side, one, left, numbered, rounded=True) if is_small(side.model) else first
    if without is not None:
        first, second, rough = (_without(calls, without) for calls in (first, second, rough))
    mixes = False
    for key, call in first.items():
        other, nearly = second.get(key), rough.get(key)
        if other is None or nearly is None or not call.name:
            continue
        given = _agree(call.given, other.given, nearly.given)
        if given and not _agree(call.returned, other.returned, nearly.returned):
            inside = [each for each in first.values() if f"{each.name}.".startswith(f"{call.name}.")]
            over = any(each.over_queries for each in inside)
            inverted = _hears_later_alone(call, other)
            return Blame(call.name, call.module, _is_attention(inside), over, inverted, mixes)
        mixes |= _moves_later(call, other)
    return Blame(attends=_is_attention(list(first.values())), mixes=mixes)


def _is_attention(calls: list[Call]) -> bool:
    """Whether positions are mixed by attention, and by nothing else."""
    return any(call.attends for call in calls) and not any(call.blurs for call in calls)


def _hears_later_alone(one: Call, two: Call) -> bool:
    """Whether a change of one position moved earlier ones, and none after it but the last, which may hear nothing."""
    given, returned = (_moved(*pair) for pair in ((one.given, two.given), (one.returned, two.returned)))
    length = next((x.shape[1] for x, _ in one.returned if x is not None), 0)
    if len(given) != 1 or not returned or min(returned) >= min(given):
        return False
    later = set(range(min(given) + 1, length - 1))
    return bool(later) and not later & returned


def _moves_later(one: Call, two: Call) -> bool:
    """Whether a change of some positions moved others, and only later ones."""
    given, returned = (_moved(*pair) for pair in ((one.given, two.given), (one.returned, two.returned)))
    return bool(given and returned - given and min(returned) >= min(given))


def _moved(first: list[Laid], second: list[Laid]) -> set[int]:
    """The positions at which arrays differ clearly."""
    found: set[int] = set()
    for (one, _), (two, _) in zip(first, second, strict=False):
        if one is not None and two is not None and one.shape == two.shape and one.numel():
            change = difference(one, two).flatten(2).amax(-1).amax(0)
            found |= set((change > 1e-4 * float(one.abs().max())).nonzero().flatten().tolist())
    return found


def _calls(side: Side, run: Run, cuts: Cuts, numbered: bool, rounded: bool = False) -> dict[tuple[str, int], Call]:
    """The calls of one run, by the module's name and how often it was called before, in the order in which they end."""
    calls: list[Call] = []
    with ExitStack() as stack:
        if rounded:
            stack.enter_context(nudged(side.model))
        start = stack.enter_context(_recorded(side, run, cuts, numbered, calls))
        side.go(run, start)
    found: dict[tuple[str, int], Call] = {}
    times: dict[str, int] = {}
    for call in calls:
        times[call.name] = times.get(call.name, 0) + 1
        found[call.name, times[call.name]] = call
    return found


def _without(calls: dict[Any, Call], left_out: Callable[[Any], bool]) -> dict[Any, Call]:
    free = [x for call in calls.values() if left_out(call.module) for x, _ in call.returned if x is not None]
    kept = {key: call for key, call in calls.items() if not left_out(call.module)}
    for call in kept.values():
        call.given = [
            (None if any(x is not None and x.shape == y.shape and bool((x == y).all()) for y in free) else x, part)
            for x, part in call.given
        ]
    return kept


def _agree(first: list[Laid], second: list[Laid], rough: list[Laid]) -> bool:
    """Whether arrays are the same in the parts that count, but for what rounding may change."""
    import torch

    for (one, left), (two, right), (nearly, _) in zip(first, second, rough, strict=False):
        if one is None or two is None or nearly is None:
            continue
        kept, other = left(one), right(two)
        if kept.shape != other.shape or not kept.numel():
            continue
        noise = difference(kept, left(nearly)) if nearly.shape == one.shape else torch.zeros(1)
        least = 16 * torch.finfo(kept.dtype).eps * float(torch.nan_to_num(kept).abs().max())
        if float(difference(kept, other).max()) > max(least, 32 * float(noise.max())):
            return False
    return True


@contextmanager
def _recorded(
    side: Side, run: Run, cuts: Cuts, numbered: bool, calls: list[Call]
) -> Iterator[Callable[[], None]]:
    """The calls of all modules, in the order in which they end; what it gives forgets those made so far."""
    from torch.overrides import TorchFunctionMode

    running: list[Call] = []
    rows = run.ids.shape[0]

    def arrays(values: Any) -> list[Laid]:
        """Copies of activations: (example, position, …), each with the part of it that counts."""
        shown = [_as_activation(value) if numbered else value for value in values]
        laid = [(_laid(value, rows, length), part) for value in shown for length, part in cuts.items()]
        return [(None if value is None else value.detach().clone(), part) for value, part in laid]

    def begin(name: str, module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        running.append(Call(name, module, arrays([*arguments, *named.values()])))

    def end(name: str, returned: Any) -> None:
        call = running.pop()
        values = returned if isinstance(returned, tuple | list) else [returned]
        call.returned = arrays(values)
        call.blurs |= any(_is_pooled(value, rows, set(cuts)) for value in values)
        calls.append(call)

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            named, name = named or {}, getattr(function, "__name__", "")
            if running and _convolves(name, given):
                running[-1].blurs = True
            elif running and attends(name, given, set(cuts)):
                running[-1].attends = True
                axis = named.get("dim", given[1] if len(given) > 1 else None)
                running[-1].over_queries |= isinstance(axis, int) and axis in (-2, given[0].ndim - 2)
            return function(*given, **named)

    with told_of_calls(side.model, begin, end), Mode():
        yield calls.clear


def attends(name: str, given: Any, lengths: set[int]) -> bool:
    """Whether a call of a function of PyTorch weighs each of the keys for each of so many queries."""
    if not given or not hasattr(given[0], "shape"):
        return False
    if name == "scaled_dot_product_attention":
        return given[0].shape[-2] in lengths
    if name == "multi_head_attention_forward" or "_transformer_encoder_layer" in name:
        return True
    if name != "softmax" or given[0].ndim < 3:
        return False
    queries, keys = given[0].shape[-2:]
    return bool(queries in lengths and keys >= queries)


def _as_activation(value: Any) -> Any:
    """Whole numbers, one for each position, as an activation with one feature; all else as it is."""
    if hasattr(value, "is_floating_point") and value.ndim == 2 and is_whole(value):
        return value.double()[..., None]
    return value


def _laid(value: Any, rows: int, length: int) -> Any:
    """An activation with its examples first and its positions second; `None` for all else. The length 0 is any."""
    if not hasattr(value, "is_floating_point") or not value.is_floating_point() or value.ndim < 2:
        return None
    first, second = value.shape[:2]
    if not length:
        return value if first == rows else value.transpose(0, 1) if second == rows else None
    if value.ndim not in (3, 4):
        return None
    if (first, second) == (rows, length):
        return value
    if first == rows and value.ndim == 4 and value.shape[2] == length:
        return value.transpose(1, 2)
    if first == rows and value.ndim == 3 and value.shape[2] == length:
        return value.transpose(1, 2)
    return value.transpose(0, 1) if (first, second) == (length, rows) else None


def _convolves(name: str, given: Any) -> bool:
    """Whether a call of a function of PyTorch mixes neighbours."""
    if name in ("unfold", "fft", "rfft", "fft2"):
        return True
    if not name.startswith("conv") or len(given) < 2 or not hasattr(given[1], "shape"):
        return False
    return any(size > 1 for size in given[1].shape[2:])


def _is_pooled(value: Any, rows: int, lengths: set[int]) -> bool:
    """Whether an activation lies along another number of positions than inputs and outputs do."""
    is_real = hasattr(value, "is_floating_point") and value.is_floating_point()
    return bool(is_real and value.ndim == 3 and value.shape[0] == rows and not lengths & {0, *value.shape[:2]})
