"""Every plan that is rewritten when a test of the engine compiles a program is verified, whatever the test is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from indexical.engine import spec, trace
from indexical.engine.ops import Plan
from indexical.engine.rules import LEGAL, table
from indexical.run import emitting


@pytest.fixture(autouse=True)
def _every_rewrite_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (table, trace):
        monkeypatch.setattr(module, "rewrite", _verified(module.rewrite, lambda plan, rules, *_: rules is LEGAL))
        monkeypatch.setattr(module, "share_alike", _verified(module.share_alike))
    for after in (trace, emitting):
        monkeypatch.setattr(after, "specialise", _verified(after.specialise))


def _verified(rewrite: Callable[..., Plan], is_legal: Callable[..., bool] = lambda *_: True) -> Callable[..., Plan]:
    def verified(*given: Any, **named: Any) -> Plan:
        made = rewrite(*given, **named)
        return made if made is given[0] else spec.check(made, is_legal(*given))

    return verified
