"""Expressions of an emitted function that sizes decide, and views of arrays that are the same in all calls.

Nothing here reads the numbers in an array that is given: those of another call are others.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable
from dataclasses import field
from typing import Any

from ..records import dataclass

# Points of one array that is kept: a mask of 256 queries by 256 keys.
_POINTS = 1 << 16

# A guard on type, dtype, sizes, strides, device and on whether a gradient is required decides these of an input.
_ATTRIBUTES = frozenset(("shape", "device", "dtype", "ndim", "is_cpu"))
_QUESTIONS = frozenset(("is_contiguous", "stride", "numel"))
_LEARNS = "learns"

# Functions and methods whose result follows from their arguments, and that change none of them.
_FUNCTIONS = frozenset(("max", "min", "len", "abs", "math.sqrt", "math.prod", "math.isfinite", "torch.arange"))
_METHODS = frozenset(("to", "abs"))
# Methods that give a view of an array where one can be had.
_VIEWS = frozenset(("reshape", "permute", "view", "transpose", "t", "unsqueeze", "expand", "movedim", "flatten"))

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_UNCOMPUTABLE = (ArithmeticError, ValueError, TypeError, LookupError, RuntimeError)


class _Undecided(Exception):
    """A value that sizes alone do not decide."""


@dataclass
class Decided:
    """The known variables of a function at a point: `known` are values; `inputs` arrays like those that are
    given, `growing` the axis of one that may have any size, and any strides but along the last axis; `views` are the
    arrays that are the same in all calls, and views of them."""

    globals: dict[str, Any]
    torch: Any
    keeps: frozenset[str]  # The types of devices whose arrays may be kept.
    inputs: dict[str, Any]
    growing: dict[str, int] = field(default_factory=dict)
    views: dict[str, Any] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> tuple[dict[str, Any], ...]:
        return dict(self.inputs), dict(self.growing), dict(self.views), dict(self.known)

    def forget(self, names: set[str]) -> None:
        for of in (self.inputs, self.growing, self.views, self.known):
            for name in names:
                of.pop(name, None)

    def value(self, node: ast.expr) -> tuple[Any] | None:
        """The value of an expression, in a tuple; None where it takes more than sizes to say."""
        try:
            found = self._value(node)
        except (_Undecided, *_UNCOMPUTABLE):
            return None
        return (found,) if self._is_small(found) else None

    def view(self, node: ast.expr) -> Any:
        """The view of an array that is the same in all calls; None where an expression is none, or would copy."""
        match node:
            case ast.Name(name):
                return self.views.get(name)
            case ast.Call(ast.Attribute(of, method), arguments, []) if method in _VIEWS:
                found = self.view(of)
            case ast.Subscript(of, index):
                found, method, arguments = self.view(of), "__getitem__", [index]
            case _:
                return None
        if found is None:
            return None
        try:
            new = getattr(found, method)(*map(self._value, arguments))
        except (_Undecided, *_UNCOMPUTABLE):
            return None
        return new if new.untyped_storage().data_ptr() == found.untyped_storage().data_ptr() else None

    def _is_small(self, value: Any) -> bool:
        """Whether a value may be known: any number, and an array that is where some are kept and has few points."""
        if not isinstance(value, self.torch.Tensor):
            return True
        return value.device.type in self.keeps and value.numel() <= _POINTS

    def _value(self, node: ast.expr | None) -> Any:
        """The value of an expression of emitted source, where sizes and what is known decide it; `_Undecided` where
        not."""
        match node:
            case None:
                return None
            case ast.Constant(value):
                return value
            case ast.Name(name) if name in self.known:
                return self.known[name]
            case ast.Attribute(ast.Name(name), attribute):
                return self._attribute(name, attribute)
            case ast.Call(function, arguments, keywords):
                return self._called(function, arguments, keywords)
            case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self._value(left), self._value(right))
            case ast.UnaryOp(op, operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self._value(operand))
            case ast.Compare(left, [op], [right]) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self._value(left), self._value(right))
            case ast.BoolOp(op, parts):
                return self._chained(isinstance(op, ast.And), parts)
            case ast.Tuple(parts):
                return tuple(self._all(parts))
            case ast.IfExp(test, then, otherwise):
                return self._value(then if self._value(test) else otherwise)
            case ast.Subscript(ast.Attribute(ast.Name(name), "shape"), ast.Constant(int(axis))) if name in self.growing:
                if axis != self.growing[name]:
                    return self.inputs[name].shape[axis]
            case ast.Subscript(value, index):
                return self._value(value)[self._value(index)]
            case ast.Slice(lower, upper, step):
                return slice(self._value(lower), self._value(upper), self._value(step))
        raise _Undecided

    def _all(self, nodes: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self._value(node.value)
            else:
                found.append(self._value(node))
        return found

    def _chained(self, is_and: bool, parts: list[ast.expr]) -> Any:
        found = None
        for part in parts:
            found = self._value(part)
            if bool(found) != is_and:
                break
        return found

    def _attribute(self, name: str, attribute: str) -> Any:
        if name in self.inputs:
            if attribute in _ATTRIBUTES and not (attribute == "shape" and name in self.growing):
                return getattr(self.inputs[name], attribute)
        elif name == "math":
            return getattr(math, attribute)
        elif name == "torch":
            found = getattr(self.torch, attribute, None)
            if isinstance(found, self.torch.dtype):
                return found
        raise _Undecided

    def _called(self, function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Any:
        """The result of a call that follows from its arguments; of inputs, what a guard decides."""
        name = dotted(function)
        if name == _LEARNS:
            return self._learns(arguments)
        values = self._all(arguments)
        named = {keyword.arg: self._value(keyword.value) for keyword in keywords if keyword.arg is not None}
        if len(named) < len(keywords):
            raise _Undecided
        match function:
            case ast.Attribute(ast.Name(array), method) if array in self.inputs:
                if method in _QUESTIONS and (array not in self.growing or (method == "stride" and values == [-1])):
                    return getattr(self.inputs[array], method)(*values, **named)
            case _ if name in _FUNCTIONS:
                space, _, called = name.rpartition(".")
                found = {"math": math, "torch": self.torch, "": builtins}[space]
                return getattr(found, called)(*values, **named)
            case ast.Attribute(value, method) if method in _METHODS:
                return getattr(self._value(value), method)(*values, **named)
        raise _Undecided

    def _learns(self, arguments: list[ast.expr]) -> Any:
        """Whether a gradient is recorded for arrays. Where one requires it, that depends on whether gradients are on,
        which no guard asks."""
        arrays = [self.inputs.get(part.id) if isinstance(part, ast.Name) else None for part in arguments]
        if any(array is None or array.requires_grad for array in arrays):
            raise _Undecided
        return self.globals[_LEARNS](*arrays)


def dotted(node: ast.expr) -> str:
    """A name with the modules that it is in; nothing where an expression is none."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""
