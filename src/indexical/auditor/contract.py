"""Contracts: what an attention is meant to be, as plain data."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..ir.functions import FUNCTIONS
from .layout import refusal

_CHOICES: dict[str, tuple[Any, ...]] = {
    "causal": (None, False, True, "square", "bottom-right"),
    "rotary": (None, "half", "pair", "relative"),
    "rows": (1, 1.0, "1", "<=1", "free"),
    "empty": (None, "zero"),
}
_POLARITIES = ("keep", "drop", "additive")


@dataclass(frozen=True)
class Contract:
    """The declared properties of an attention. What is not declared is not judged, but is reported as it is found."""

    causal: bool | str | None = None
    window: int | None = None
    documents: str | None = None
    regions: list[int] | None = None
    masks: Mapping[str, str] = field(default_factory=dict)
    scale: float | str | None = None
    softcap: float | None = None
    alibi: list[float] | None = None
    rotary: str | None = None
    rows: int | str = 1
    kernel: str | None = None
    empty: str | None = None
    logit_range: float = 1e3
    attends: str | None = None
    heads: int | None = None
    groups: int | None = None
    packing: str | None = None
    residual: bool | str | None = None
    prefill: Any = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                shown = ", ".join(repr(choice) for choice in choices if choice is not None)
                raise refusal(f"`{name}={getattr(self, name)!r}` is no part of a contract", f"it is one of {shown}")
        if isinstance(self.scale, int | float) and not self.scale > 0:
            raise refusal(f"`scale={self.scale!r}` is no scale", "it is positive: `scale=0.125`, or `1/sqrt(d)`")
        window: Any = self.window
        if window is not None and (not isinstance(window, int) or window < 1):
            raise refusal(f"`window={self.window!r}` is no number of keys", "`window=4`: itself and the 3 keys before")
        for name, polarity in dict(self.masks).items():
            if polarity not in _POLARITIES:
                raise refusal(f"the mask `{name}` is {polarity!r}", f"a mask is one of {', '.join(_POLARITIES)}")
        if self.heads and self.groups and self.heads % self.groups:
            raise refusal(
                f"`groups={self.groups}` does not divide `heads={self.heads}`",
                "`groups` is the number of query heads that share a key head",
            )
        if self.kernel is not None and self.kernel.replace(" ", "") not in KERNELS:
            raise refusal(f"`kernel={self.kernel!r}` is not known", f"it is one of {', '.join(KERNELS)}")

    @property
    def declared(self) -> dict[str, Any]:
        """The keys that were set to something else than what they are by default."""
        plain = Contract()
        return {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if getattr(self, item.name) != getattr(plain, item.name)
        }


def read_contract(values: Mapping[str, Any]) -> Contract:
    """A contract from a table of TOML, or from the command line."""
    known = {item.name for item in fields(Contract)}
    for name in values:
        if name not in known:
            raise refusal(f"a contract has no key `{name}`", f"it has {', '.join(sorted(known))}")
    return Contract(**values)


# ---------------------------------------------------------------- expressions

_OPERATIONS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}


def evaluate(expression: float | str, sizes: Mapping[str, int]) -> float:
    """A number, or an expression of sizes like `1/sqrt(d)`."""
    if not isinstance(expression, str):
        return float(expression)
    try:
        return float(_value(ast.parse(expression.strip(), mode="eval").body, sizes))
    except (SyntaxError, KeyError, TypeError, ZeroDivisionError, OverflowError, ValueError):
        known = ", ".join(sorted(name for name in sizes if name.isidentifier()))
        raise refusal(
            f"`{expression}` cannot be evaluated", f"an expression of sizes like `1/sqrt(d)`: {known}"
        ) from None


def _value(node: ast.AST, sizes: Mapping[str, int]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            return sizes[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATIONS[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATIONS[type(op)](_value(operand, sizes))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            return FUNCTIONS[name].value(_value(argument, sizes))
    raise SyntaxError


# -------------------------------------------------------------------- kernels


def _elu_plus_one(x: Any) -> Any:
    import numpy as np

    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def _each(name: str) -> Callable[[Any], Any]:
    """A function of the table, at each number of an array."""

    def of_array(x: Any) -> Any:
        import numpy as np

        return np.vectorize(FUNCTIONS[name].value, otypes=[float])(x)

    return of_array


KERNELS: dict[str, Callable[[Any], Any]] = {
    "elu+1": _elu_plus_one,
    **{name: _each(name) for name in "relu exp softplus".split()},
    "relu^2": lambda x: _each("relu")(x) ** 2,
    "identity": lambda x: x,
}
