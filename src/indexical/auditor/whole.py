"""Whole models, from tokens to logits: laws of the whole, and the module in which one is broken first."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from .bisecting import bisect, same
from .calling import Unusable, stopped
from .layout import refusal
from .places import owned
from .promises import Contracts, with_unmatched
from .reports import Finding, Report, name_of, place_of, ranked
from .running import Tokens, chained, draw, go, in_double, key_of, known_run, tokens_of
from .trials import Trial, trials

Tell = Callable[[str], None]


def audit_model(
    model: Any,
    *,
    causal: bool | None = None,
    length: int = 7,
    tell: Tell | None = None,
    vocabulary: int | None = None,
    contracts: Contracts | None = None,
) -> Report:
    """Test the laws of a model from tokens to logits, and find the module that breaks one first.

    `contracts` declares what the attentions inside are, by a pattern of their module's name.
    """
    import torch

    started = time.monotonic()
    if isinstance(model, tuple | list):
        model = model[0]
    if not isinstance(model, torch.nn.Module):
        raise refusal(f"{name_of(model)} is no module of PyTorch", "name a function that builds the model")
    if length < 3:
        raise refusal(f"{length} tokens are too few", "3 or more: `--length 7`")
    for double in (True, False):
        tokens = tokens_of(model, vocabulary)
        with in_double(tokens, double):
            report = _audited(tokens, causal, length, tell or (lambda name: None), started)
        if not (tokens.double and report.failure is not None):
            break
    return owned(with_unmatched(report, contracts or {}), model)


def _audited(tokens: Tokens, causal: bool | None, length: int, tell: Tell, started: float) -> Report:
    import torch

    model = tokens.model
    laws: list[str] = []
    unread: list[str] = []
    findings: list[Finding] = []
    try:
        ids = draw(tokens, length)
        out, again = tokens(ids), tokens(ids)
        tokens.known[key_of(ids, {})] = out
        laws.append("deterministic")
        if not same(torch.nan_to_num(out), torch.nan_to_num(again), 1e-9):
            findings.append(_random(model, float((out - again).abs().max())))
        elif not torch.isfinite(out).all():
            findings.append(
                Finding("finite", "logits are not finite", "NaN or infinity on random tokens", span=place_of(model))
            )
        future = causal if causal is not None else _is_causal(model)
        for trial in trials(tokens, ids, future, unread) if not findings else ():
            tell(trial.law)
            laws.append(trial.law)
            trial.together &= not findings
            found = _judge(tokens, trial)
            if found is not None:
                findings.append(found)
                if trial.law == "causal":
                    unread.append("padding and cached decoding: both rest on tokens that do not see the future")
                    break
    except Unusable as problem:
        return stopped(model, problem, calls=tokens.calls, seconds=time.monotonic() - started)
    seconds = time.monotonic() - started
    words = {"tokens": f"{length} of {tokens.vocabulary}"}
    return Report(name_of(model), ranked(findings), words, tuple(laws), tuple(unread), tokens.calls, seconds)


def _random(model: Any, worst: float) -> Finding:
    cause = "dropout, or other randomness, is on in evaluation mode"
    mend = "`F.dropout(x, p, training=self.training)`, or `nn.Dropout`"
    message = "two calls with the same tokens give different logits"
    return Finding("deterministic", message, f"they differ by {worst:.3g}", cause, mend, place_of(model))


def _is_causal(model: Any) -> bool:
    """Whether the attention modules of a model call themselves causal; causal where they say nothing."""
    said = [module.is_causal for module in model.modules() if isinstance(getattr(module, "is_causal", None), bool)]
    return any(said) if said else not _is_encoder(model)


def _is_encoder(model: Any) -> bool:
    config = getattr(model, "config", None)
    name = type(model).__name__
    encoder = any(word in name for word in ("MaskedLM", "Bert", "BERT", "Encoder"))
    return encoder and not getattr(config, "is_decoder", False) and "CausalLM" not in name


def _judge(tokens: Tokens, trial: Trial) -> Finding | None:
    import torch

    rows: list[Any] = []
    ids = trial.comparisons[0][1].first[0]
    if trial.chains:
        whole = known_run(tokens, ids, {})
        if all(same(whole, chained(tokens, ids, places), tokens.tolerance) for places in trial.chains):
            return None
    if trial.together:
        batch = tokens(torch.cat([comparison.second[0] for _, comparison in trial.comparisons]))
        rows = list(batch.split(1))
    for number, (words, comparison) in enumerate(trial.comparisons):
        first = known_run(tokens, *comparison.first)
        second = rows[number] if rows else known_run(tokens, *comparison.second)
        left, right = comparison.left(first), comparison.right(second)
        if same(left, right, tokens.tolerance):
            continue
        change = (left.double() - right.double()).abs().amax((0, 2))
        row = int((change > tokens.tolerance * max(1.0, float(left.abs().max()))).nonzero()[0])
        runs = (partial(go, tokens, *comparison.first), partial(go, tokens, *comparison.second))
        parts = (comparison.left, comparison.right)
        name, module = bisect(tokens.model, runs, parts, tokens.tolerance, trial.without)
        return _broken(tokens, trial, f"{words.format(row=row)} (by {float(change[row]):.3g})", name, module)
    return _broken(tokens, trial, "decoding in several steps gives other logits", "", None) if trial.chains else None


def _broken(tokens: Tokens, trial: Trial, witness: str, name: str, module: Any) -> Finding:
    where = f"first broken in `{name}` ({type(module).__name__})" if module is not None else "in the model itself"
    place = place_of(module or tokens.model)
    return Finding(trial.law, trial.message, witness, f"{where}: {trial.cause}", trial.mend, place, module=name)
