"""Attention in a test suite, in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .auditor import Contract, Report, audit

__all__ = ["assert_attention", "assert_model"]


def assert_attention(
    target: Callable[..., Any],
    example: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
    axes: Mapping[str, str] | str,
    contract: Contract | Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
) -> Report:
    """Fail with the text of the report where a law of attention is broken, and with `strict` where something that is
    declared was not judged; return the report where none is."""
    __tracebackhide__ = True
    report = audit(target, example, axes, contract)
    report.check(strict)
    return report


def assert_model(model: Any, *, strict: bool = False, **rest: Any) -> Report:
    """The same for a model from tokens to logits, and every attention inside it: see `audit_model` for the rest."""
    from .auditor.whole import audit_model

    __tracebackhide__ = True
    report = audit_model(model, **rest)
    report.check(strict)
    return report
