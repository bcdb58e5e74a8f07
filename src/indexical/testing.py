"""Attention in a test suite, in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .auditor import Contract, Report, audit

__all__ = ["assert_attention"]


def assert_attention(
    target: Callable[..., Any],
    example: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
    axes: Mapping[str, str] | str,
    contract: Contract | Mapping[str, Any] | None = None,
) -> Report:
    """Fail with the text of the report where a law of attention is broken; return the report where none is."""
    __tracebackhide__ = True
    report = audit(target, example, axes, contract)
    report.check()
    return report
