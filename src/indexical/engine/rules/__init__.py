"""Rewriting of plans: ordered tables of rules, and the pass that applies them."""

from __future__ import annotations

from .patterns import No, Rule, Target
from .rewrite import rewrite
from .table import FIRST, LEGAL, RULES, STORES, legalise, optimise

__all__ = ["FIRST", "LEGAL", "RULES", "STORES", "No", "Rule", "Target", "legalise", "optimise", "rewrite"]
