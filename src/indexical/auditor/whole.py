"""Whole models, from tokens to logits: laws of the whole, and the module in which one is broken first."""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .calling import Unusable, _reported
from .layout import refusal
from .reports import Finding, Report, name_of, place_of, ranked

Tell = Callable[[str], None]
_LARGE = 30_000_000  # Parameters, beyond which a model stays in the precision it has.


@dataclass
class Tokens:
    """A model that takes tokens, and what it takes beside them."""

    model: Any
    takes: frozenset[str]
    vocabulary: int
    tolerance: float
    calls: int = 0
    ids: Any = None

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


@dataclass(frozen=True)
class Comparison:
    """Two runs, and which parts of them have to be the same."""

    first: tuple[Any, dict[str, Any]]
    second: tuple[Any, dict[str, Any]]
    left: Callable[[Any], Any]
    right: Callable[[Any], Any]


@dataclass
class Trial:
    """A law, its comparisons, and what to say where one fails."""

    law: str
    message: str
    cause: str
    mend: str
    comparisons: list[tuple[str, Comparison]] = field(default_factory=list)
    together: bool = False  # The second runs may be rows of one batch.


def audit_model(
    model: Any, *, causal: bool | None = None, length: int = 7, tell: Tell | None = None, vocabulary: int | None = None
) -> Report:
    """Test the laws of a model from tokens to logits, and find the module that breaks one first."""
    import torch

    started = time.monotonic()
    if isinstance(model, tuple | list):
        model = model[0]
    if not isinstance(model, torch.nn.Module):
        raise refusal(f"{name_of(model)} is no module of PyTorch", "name a function that builds the model")
    if length < 3:
        raise refusal(f"{length} tokens are too few", "3 or more: `--length 7`")
    training = model.training
    tokens = _tokens(model, vocabulary)
    name = name_of(model)
    laws: list[str] = []
    unread: list[str] = []
    findings: list[Finding] = []
    try:
        ids = _draw(tokens, length)
        out, again = tokens(ids), tokens(ids)
        if not torch.equal(torch.nan_to_num(out), torch.nan_to_num(again)) and not _same(out, again, 1e-9):
            worst = float((out - again).abs().max())
            cause = "dropout, or other randomness, is on in evaluation mode"
            mend = "`F.dropout(x, p, training=self.training)`, or `nn.Dropout`"
            message = "two calls with the same tokens give different logits"
            findings.append(
                Finding("deterministic", message, f"they differ by {worst:.3g}", cause, mend, place_of(model))
            )
            return Report(name, tuple(findings), {}, ("deterministic",), calls=tokens.calls)
        laws.append("deterministic")
        if not torch.isfinite(out).all():
            findings.append(
                Finding("finite", "logits are not finite", "NaN or infinity on random tokens", span=place_of(model))
            )
            return Report(name, tuple(findings), {}, tuple(laws), calls=tokens.calls)
        future = causal if causal is not None else _is_causal(model)
        for trial in _trials(tokens, ids, future, unread):
            (tell or (lambda name: None))(trial.law)
            laws.append(trial.law)
            trial.together &= not findings
            found = _judge(tokens, trial)
            if found is not None:
                findings.append(found)
                if trial.law == "causal":
                    unread.append("padding and cached decoding: both rest on tokens that do not see the future")
                    break
    except Unusable as problem:
        findings.append(Finding(problem.law, problem.message, "", problem.cause, problem.mend, place_of(model)))
    finally:
        model.train(training)
    seconds = time.monotonic() - started
    words = {"tokens": f"{length} of {tokens.vocabulary}"}
    return Report(name, ranked(findings), words, tuple(laws), tuple(unread), tokens.calls, seconds)


def _tokens(model: Any, vocabulary: int | None) -> Tokens:
    import torch

    large = sum(parameter.numel() for parameter in model.parameters()) > _LARGE
    kept = model.eval() if large else copy.deepcopy(model).eval()
    precise = not large
    if precise:
        kept = kept.to("cpu").double()
    parameters = inspect.signature(model.forward).parameters
    takes = frozenset(parameters)
    if vocabulary is None:
        config = getattr(model, "config", None)
        tables = [module.num_embeddings for module in model.modules() if isinstance(module, torch.nn.Embedding)]
        vocabulary = getattr(config, "vocab_size", None) or (max(tables) if tables else 50)
    return Tokens(kept, takes, int(vocabulary), 1e-5 if precise else 1e-4)


def _is_causal(model: Any) -> bool:
    """Whether the attention modules of a model call themselves causal; causal where they say nothing."""
    said = [module.is_causal for module in model.modules() if isinstance(getattr(module, "is_causal", None), bool)]
    return any(said) if said else not _is_encoder(model)


def _is_encoder(model: Any) -> bool:
    config = getattr(model, "config", None)
    name = type(model).__name__
    encoder = any(word in name for word in ("MaskedLM", "Bert", "BERT", "Encoder"))
    return encoder and not getattr(config, "is_decoder", False) and "CausalLM" not in name


def _draw(tokens: Tokens, length: int, seed: int = 0, rows: int = 1) -> Any:
    import torch

    low = min(5, tokens.vocabulary - 2)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(max(low, 0), tokens.vocabulary, (rows, length), generator=generator)


def _same(first: Any, second: Any, tolerance: float) -> bool:
    if first.shape != second.shape:
        return False
    scale = max(1.0, float(first.abs().max()))
    return float((first.double() - second.double()).abs().max()) <= tolerance * scale


# ----------------------------------------------------------------------- trials


def _trials(tokens: Tokens, ids: Any, causal: bool, unread: list[str]) -> Iterator[Trial]:
    length = ids.shape[1]
    yield _batch(tokens, ids, length)
    if causal:
        yield _future(tokens, ids, length)
    masked = "attention_mask" in tokens.takes
    if masked or causal:
        yield _padding(tokens, ids, length, "right", masked)
    else:
        unread.append("padding on the right: the model takes no `attention_mask`")
    if masked and ("position_ids" in tokens.takes or "cache_position" in tokens.takes):
        yield _padding(tokens, ids, length, "left", True)
    else:
        unread.append("padding on the left: the model takes no `attention_mask` with `position_ids`")
    if causal and "past_key_values" in tokens.takes:
        yield _cached(tokens, ids, length)
    elif causal:
        unread.append("cached decoding: the model takes no `past_key_values`")


def _future(tokens: Tokens, ids: Any, length: int) -> Trial:
    trial = Trial(
        "causal",
        "a token sees the future",
        "a mask is missing, late or off by one, or something is normalised over positions",
        "mask the scores with -inf where `j > i`, before the softmax",
        together=True,
    )
    for at in range(1, length):
        other = ids.clone()
        other[0, at] = (ids[0, at] + 1 + at) % tokens.vocabulary
        words = f"the logits at position {{row}} move when token {at} is another; {at} > {{row}}"
        before = _rows(0, at)
        trial.comparisons.append((words, Comparison((ids, {}), (other, {}), before, before)))
    return trial


def _rows(start: int, stop: int, example: int = 0) -> Callable[[Any], Any]:
    return lambda value: value[example : example + 1, start:stop]


def _batch(tokens: Tokens, ids: Any, length: int) -> Trial:
    import torch

    trial = Trial(
        "batch",
        "one example of the batch sees another",
        "something is normalised, mixed or viewed across the batch",
        "attend within one example; transpose before `view`",
    )
    others = _draw(tokens, length, 1, 2)
    rows = torch.cat([ids, others])
    whole = _rows(0, length)
    mixed = torch.cat([ids, _draw(tokens, length, 2, 2)])
    trial.comparisons.append(
        (
            "the logits of example 0 at position {row} move when the others are others",
            Comparison((rows, {}), (mixed, {}), whole, whole),
        )
    )
    trial.comparisons.append(
        (
            "the logits at position {row} are others in a batch than alone",
            Comparison((ids, {}), (rows, {}), whole, whole),
        )
    )
    turned = rows.flip(0)
    trial.comparisons.append(
        (
            "the logits at position {row} are others at another place in the batch",
            Comparison((rows, {}), (turned, {}), whole, _rows(0, length, 2)),
        )
    )
    return trial


def _padding(tokens: Tokens, ids: Any, length: int, side: str, masked: bool) -> Trial:
    import torch

    pads = 3
    filler = _draw(tokens, pads, 3)
    left = side == "left"
    padded = torch.cat([filler, ids] if left else [ids, filler], 1)
    mask = torch.ones_like(padded)
    mask[:, slice(0, pads) if left else slice(length, None)] = 0
    rest: dict[str, Any] = {"attention_mask": mask} if masked else {}
    if left and "position_ids" in tokens.takes:
        rest["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    start = pads if left else 0
    trial = Trial(
        f"{side} padding",
        f"padding on the {side} changes what is real",
        "the mask of padding does not reach every attention, or positions count the padding",
        "mask padded keys in every layer, and count positions from the first real token",
    )
    alone: dict[str, Any] = {"attention_mask": torch.ones_like(ids)} if masked else {}
    comparison = Comparison((ids, alone), (padded, rest), _rows(0, length), _rows(start, start + length))
    trial.comparisons.append(
        (f"the logits of real token {{row}} move when 3 tokens are padded on the {side}", comparison)
    )
    return trial


def _cached(tokens: Tokens, ids: Any, length: int) -> Trial:
    trial = Trial(
        "cached decoding",
        "decoding with a cache is not the full pass",
        "positions or masks do not count the cached keys, or the cache is filled wrongly",
        "query i of a step is at position i + the cached length: in the mask, and in the positions",
    )
    for split in range(1, length):
        later: dict[str, Any] = {"past": ids[:, :split]}
        words = f"the logits at position {split} + {{row}} differ when the first {split} tokens are cached"
        comparison = Comparison((ids, {}), (ids[:, split:], later), _rows(split, length), _rows(0, length - split))
        trial.comparisons.append((words, comparison))
    return trial


# ---------------------------------------------------------------------- judging


def _go(tokens: Tokens, ids: Any, rest: dict[str, Any], prepare: Callable[[], None] = lambda: None) -> Any:
    """The logits of a run; with `past`, after a run that fills the cache."""
    past = rest.get("past")
    if past is None:
        prepare()
        return tokens(ids, **rest)
    filled = tokens.run(past, use_cache=True) if "use_cache" in tokens.takes else tokens.run(past)
    cache = filled.get("past_key_values") if isinstance(filled, Mapping) else getattr(filled, "past_key_values", None)
    if cache is None and isinstance(filled, tuple):
        cache = filled[1]
    if cache is None:
        raise Unusable(
            "shape", "the model takes `past_key_values`, and gives none back", "", "return the cache with the logits"
        )
    prepare()
    more = {"use_cache": True} if "use_cache" in tokens.takes else {}
    return tokens(ids, past_key_values=cache, **more)


def _judge(tokens: Tokens, trial: Trial) -> Finding | None:
    import torch

    seen: dict[int, Any] = {}
    rows: list[Any] = []
    if trial.together:
        batch = tokens(torch.cat([comparison.second[0] for _, comparison in trial.comparisons]))
        rows = list(batch.split(1))
    for number, (words, comparison) in enumerate(trial.comparisons):
        ids, rest = comparison.first
        if not rest:
            first = seen[id(ids)] if id(ids) in seen else seen.setdefault(id(ids), _go(tokens, ids, rest))
        else:
            first = _go(tokens, ids, rest)
        second = rows[number] if rows else _go(tokens, *comparison.second)
        left, right = comparison.left(first), comparison.right(second)
        if _same(left, right, tokens.tolerance):
            continue
        change = (left.double() - right.double()).abs().amax((0, 2))
        row = int((change > tokens.tolerance * max(1.0, float(left.abs().max()))).nonzero()[0])
        name, module = _bisect(tokens, comparison)
        witness = f"{words.format(row=row)} (by {float(change[row]):.3g})"
        where = f"first broken in `{name}` ({type(module).__name__})" if module is not None else "in the model itself"
        return Finding(
            trial.law, trial.message, witness, f"{where}: {trial.cause}", trial.mend, place_of(module or tokens.model)
        )
    return None


@dataclass
class Call:
    """One call of a module: what went in and came out, as far as it lies along examples and positions."""

    name: str
    module: Any
    given: list[Any]
    returned: list[Any] = field(default_factory=list)


def _bisect(tokens: Tokens, comparison: Comparison) -> tuple[str, Any]:
    """The module whose inputs are the same, and whose output is not: the first one, and the innermost."""
    runs = []
    for ids, rest in (comparison.first, comparison.second):
        calls: list[Call] = []
        with _recorded(tokens.model, calls) as start:
            _go(tokens, ids, rest, start)
        runs.append(calls)
    first, second = runs
    if [call.name for call in first] != [call.name for call in second]:
        return "", None
    for one, two in zip(first, second, strict=True):
        if not one.name or not _agree(one.given, two.given, comparison, tokens.tolerance):
            continue
        if not _agree(one.returned, two.returned, comparison, tokens.tolerance):
            return one.name, one.module
    return "", None


def _agree(first: list[Any], second: list[Any], comparison: Comparison, tolerance: float) -> bool:
    for one, two in zip(first, second, strict=False):
        left, right = comparison.left(one), comparison.right(two)
        if left.shape == right.shape and left.numel() and not _same(left, right, tolerance):
            return False
    return True


@contextmanager
def _recorded(model: Any, calls: list[Call]) -> Iterator[Callable[[], None]]:
    """The calls of all modules, in the order in which they end; what it gives forgets those made so far."""
    handles = []
    running: list[Call] = []

    def before(name: str) -> Callable[..., None]:
        def hook(module: Any, arguments: Any, named: Any) -> None:
            running.append(Call(name, module, _arrays([*arguments, *named.values()])))

        return hook

    def after(module: Any, arguments: Any, named: Any, returned: Any) -> None:
        call = running.pop()
        call.returned = _arrays(returned if isinstance(returned, tuple | list) else [returned])
        calls.append(call)

    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(before(name), with_kwargs=True))
        handles.append(module.register_forward_hook(after, with_kwargs=True))
    try:
        yield calls.clear
    finally:
        for handle in handles:
            handle.remove()


def _arrays(values: Any) -> list[Any]:
    """Copies of activations: (example, position, feature)."""
    found = []
    for value in values:
        if hasattr(value, "is_floating_point") and value.is_floating_point() and value.ndim == 3:
            found.append(value.detach().clone())
    return found
