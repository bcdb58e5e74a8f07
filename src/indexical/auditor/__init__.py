"""Foreign code against a contract: what is tested, what was found, and why."""

from __future__ import annotations

from .auditing import audit
from .comparing import compare
from .contract import Contract
from .reports import AuditFailed, Finding, Report

__all__ = ["AuditFailed", "Contract", "Finding", "Report", "audit", "compare"]
