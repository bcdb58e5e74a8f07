"""Emitted functions for arrays of known sizes: what sizes decide is decided once.

An emitted function takes arrays of any size. In every call it reads their shapes, refuses those that disagree, chooses
among ways and makes the masks that follow from coordinates. Where arrays of the same sizes come again and again, all of
that comes out the same: here it is computed, and the rest of the function is kept.

A mask that is kept is shared by later calls. So it may be an operand of arithmetic, or an argument of a kernel that
only reads it; it is never returned, and never written to. Everywhere else it is made anew in each call.
"""

from __future__ import annotations

import ast
import linecache
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import field
from types import FunctionType
from typing import Any

from ..records import dataclass
from . import tensors

# Points of one array that is kept, and of all that one function keeps: a mask of 256 queries by 256 keys, and some.
_POINTS, _ALL_POINTS = 1 << 16, 1 << 18

# A guard on type, dtype, sizes, strides, device and on whether a gradient is required decides these of an input.
_ATTRIBUTES = frozenset(("shape", "device", "dtype", "ndim"))
_QUESTIONS = frozenset(("is_contiguous", "stride", "numel"))
_LEARNS = "learns"

# Functions and methods whose result follows from their arguments, and that change none of them.
_FUNCTIONS = frozenset(("max", "min", "len", "abs", "math.sqrt", "math.prod", "math.isfinite", "torch.arange"))
_METHODS = frozenset(("to", "abs"))
# Kernels that read the arrays they are given, and return none of them.
_READERS = frozenset(
    ("attend_masked", "attend_scores", "torch.nn.functional.scaled_dot_product_attention", "torch.where")
)
_PLAIN = (int, float, bool, str, type(None))
_UNCOMPUTABLE = (ArithmeticError, ValueError, TypeError, LookupError, RuntimeError)


def for_sizes(function: Callable[..., Any], values: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The emitted function for tensors that have the types, sizes, strides and devices of these and require gradients
    as these do; None where it stays as it is."""
    if not isinstance(function, FunctionType) or not _is_plain_moment():
        return None
    name = function.__code__.co_filename
    whole = ast.parse("".join(linecache.getlines(name)), name)
    defined = next(
        (part for part in whole.body if isinstance(part, ast.FunctionDef) and part.name == function.__name__), None
    )
    if defined is None:
        return None
    torch = tensors.load_torch()
    inputs = dict(zip([argument.arg for argument in defined.args.args], values, strict=True))
    sizing = _Sizing(function.__globals__, inputs, torch, not _writes(defined))
    # What is made in inference mode could not be used outside of it.
    with torch.inference_mode(False), torch.set_grad_enabled(torch.is_grad_enabled()):
        defined.body = sizing.block(defined.body)
    _drop_unread(defined, sizing.folded)
    space = {**function.__globals__, **sizing.kept}
    exec(compile(ast.fix_missing_locations(ast.Module([defined], [])), name, "exec"), space)
    found: Callable[..., Any] = space[function.__name__]
    return found


def _is_plain_moment() -> bool:
    """Whether arrays that are made now are plain ones: nothing traces, maps or replaces what PyTorch does."""
    core = tensors.load_torch()._C
    return not (
        core._are_functorch_transforms_active()
        or core._len_torch_dispatch_stack()
        or core._len_torch_function_stack()
        or core._get_tracing_state() is not None
    )


@dataclass
class _Sizing:
    """The statements of a function, with what is known computed. `known` are the variables that are, by their values;
    `folded` the assignments of known values; `kept` the values that have no literal, by the names they are given."""

    globals: dict[str, Any]
    inputs: dict[str, Any]
    torch: Any
    keeps_arrays: bool
    known: dict[str, Any] = field(default_factory=dict)
    folded: set[ast.stmt] = field(default_factory=set)
    kept: dict[str, Any] = field(default_factory=dict)
    points: int = 0

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self.statement(statement)]

    def statement(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        match statement:
            case ast.Assign([ast.Name(target)], value):
                found = self.value(value)
                statement.value = self.rewritten(value)
                self.forget({target})
                if found is not None:
                    self.known[target] = found[0]
                    self.folded.add(statement)
                yield statement
            case ast.Assign([ast.Tuple(targets)], value) if all(isinstance(target, ast.Name) for target in targets):
                yield from self.unpacked(statement, targets, value)
            case ast.If(test, body, orelse):
                found = self.value(test)
                if found is not None:
                    yield from self.block(body if found[0] else orelse)
                    return
                assigned = _stored([statement])
                statement.test, before = self.rewritten(test), dict(self.known)
                statement.body, self.known = self.block(body), before
                statement.orelse = self.block(orelse)
                self.forget(assigned)
                yield statement
            case ast.For(_, over, body):
                statement.iter = self.rewritten(over)
                assigned = _stored([statement])
                self.forget(assigned)
                statement.body = self.block(body)
                self.forget(assigned)
                yield statement
            case ast.Delete() | ast.FunctionDef():
                self.forget(_stored([statement]))
                yield statement
            case _:
                self.forget(_stored([statement]))
                yield self.rewritten(statement)

    def unpacked(self, statement: ast.Assign, targets: list[ast.expr], value: ast.expr) -> Iterator[ast.stmt]:
        """`n_i, n_d = Q.shape`, where it is known as an assignment for each."""
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        found = self.value(value)
        self.forget(set(names))
        if found is None:
            statement.value = self.rewritten(value)
            yield statement
            return
        for name, part in zip(names, found[0], strict=True):
            self.known[name] = part
            new = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], self.literal(part, value)), statement)
            self.folded.add(new)
            yield new

    def forget(self, names: set[str]) -> None:
        for name in names:
            self.known.pop(name, None)
            self.inputs.pop(name, None)

    # ------------------------------------------------------------------------------------ values

    def value(self, node: ast.expr) -> tuple[Any] | None:
        """The value of an expression, in a tuple; None where it takes more than sizes to say."""
        if not self.is_known(node):
            return None
        try:
            found = eval(compile(ast.Expression(node), "<sizes>", "eval"), self.globals, {**self.inputs, **self.known})
        except _UNCOMPUTABLE:
            return None
        return (found,) if self.is_small(found) else None

    def is_small(self, value: Any) -> bool:
        """Whether a value may be known: any number, and an array that is on the CPU and has few points."""
        if not isinstance(value, self.torch.Tensor):
            return True
        return self.keeps_arrays and value.device.type == "cpu" and value.numel() <= _POINTS

    def is_plain(self, value: Any) -> bool:
        """Whether a value is a number, a device, a dtype or a tuple of these: nothing that anybody could write to."""
        if isinstance(value, tuple):
            return all(map(self.is_plain, value))
        return type(value) in _PLAIN or isinstance(value, self.torch.device | self.torch.dtype)

    def is_known(self, node: ast.expr | None) -> bool:
        """Whether sizes decide the value of an expression."""
        match node:
            case None | ast.Constant():
                return True
            case ast.Name(name):
                return name in self.known
            case ast.Attribute(ast.Name(name), attribute) if name in self.inputs:
                return attribute in _ATTRIBUTES
            case ast.Attribute(ast.Name("math"), _):
                return True
            case ast.Attribute(ast.Name("torch"), attribute):
                return isinstance(getattr(self.torch, attribute, None), self.torch.dtype)
            case ast.Call(function, arguments, keywords):
                parts = [*arguments, *(keyword.value for keyword in keywords)]
                return self.is_decided(function, parts) and (_is_named(function, _LEARNS) or self.are_known(parts))
            case ast.BinOp(left, _, right):
                return self.are_known((left, right))
            case ast.UnaryOp(_, operand):
                return self.is_known(operand)
            case ast.Compare(left, _, others):
                return self.are_known((left, *others))
            case ast.BoolOp(_, parts) | ast.Tuple(parts):
                return self.are_known(parts)
            case ast.IfExp(test, then, otherwise):
                return self.are_known((test, then, otherwise))
            case ast.Subscript(value, index):
                return self.are_known((value, index))
            case ast.Slice(lower, upper, step):
                return self.are_known((lower, upper, step))
            case ast.Starred(value):
                return self.is_known(value)
            case _:
                return False

    def are_known(self, nodes: Any) -> bool:
        return all(map(self.is_known, nodes))

    def is_decided(self, function: ast.expr, arguments: list[ast.expr]) -> bool:
        """Whether a function gives what its arguments decide; of inputs, what a guard decides."""
        if _is_named(function, _LEARNS):
            # Of those that require one, it depends on whether gradients are on, which no guard asks.
            given = [self.inputs.get(part.id) if isinstance(part, ast.Name) else None for part in arguments]
            return all(array is not None and not array.requires_grad for array in given)
        match function:
            case ast.Attribute(ast.Name(name), method) if name in self.inputs:
                return method in _QUESTIONS
            case ast.Attribute(value, method) if method in _METHODS:
                return self.is_known(value)
            case _:
                return ast.unparse(function) in _FUNCTIONS

    # ---------------------------------------------------------------------------------- rewriting

    def rewritten(self, node: Any) -> Any:
        """A statement or an expression with what is known in it as literals."""
        if not isinstance(node, ast.AST):
            return node
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant | ast.Starred | ast.Slice):
            if not isinstance(getattr(node, "ctx", None), ast.Load | None):
                return node
            found = self.value(node)
            if found is not None and self.is_plain(found[0]):
                return self.literal(found[0], node)
        match node:
            case ast.BinOp() | ast.Compare() | ast.UnaryOp() if not self.is_known(node):
                return self.inside(node, self.operand)
            case ast.Call(function, arguments, keywords) if self.only_reads(function):
                node.args = [self.operand(argument) for argument in arguments]
                for keyword in keywords:
                    keyword.value = self.operand(keyword.value)
                return node
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return node
            case _:
                return self.inside(node, self.rewritten)

    def inside(self, node: Any, change: Callable[[Any], Any]) -> Any:
        """A node with its expressions changed."""
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, name, change(value))
            elif isinstance(value, list):
                setattr(node, name, [(change if isinstance(v, ast.expr) else self.rewritten)(v) for v in value])
        return node

    def only_reads(self, function: ast.expr) -> bool:
        """Whether a call reads the arrays it is given and returns none of them: a known kernel, or one that says so."""
        if isinstance(function, ast.Name) and getattr(self.globals.get(function.id), "only_reads", False):
            return True
        return ast.unparse(function) in _READERS

    def operand(self, node: ast.expr) -> Any:
        """A value that is read and not handed on: here an array may be kept too, also one of a list."""
        if isinstance(node, ast.List):
            node.elts = [self.operand(element) for element in node.elts]
            return node
        found = self.value(node)
        if found is None or not isinstance(found[0], self.torch.Tensor):
            return self.rewritten(node)
        if self.points + found[0].numel() > _ALL_POINTS:
            return self.rewritten(node)
        self.points += found[0].numel()
        return self.named(found[0], node)

    def literal(self, value: Any, node: ast.expr) -> ast.expr:
        plain: Any = value
        if isinstance(value, tuple) and all(type(part) in _PLAIN for part in value):
            plain = (*value,)  # A shape is a tuple of its own kind, which is no literal.
        elif type(value) not in _PLAIN:
            return self.named(value, node)
        return ast.copy_location(ast.Constant(plain), node)

    def named(self, value: Any, node: ast.expr) -> ast.expr:
        name = f"_kept_{len(self.kept)}"
        self.kept[name] = value
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def _is_named(function: ast.expr, name: str) -> bool:
    return isinstance(function, ast.Name) and function.id == name


def _writes(defined: ast.FunctionDef) -> bool:
    """Whether the function changes an array in place: then none is known, since what is known may be a part of it."""
    for part in ast.walk(defined):
        match part:
            case ast.AugAssign() | ast.keyword("out") | ast.Subscript(ctx=ast.Store()):
                return True
            case ast.Call(ast.Attribute(_, name)) if name.endswith("_"):
                return True
    return False


def _stored(nodes: list[Any]) -> set[str]:
    """The variables that are assigned or deleted somewhere in here, and all that a function in here calls its own."""
    parts = [part for node in nodes for part in ast.walk(node)]
    own = {part.arg for part in parts if isinstance(part, ast.arg)}
    own |= {part.name for part in parts if isinstance(part, ast.FunctionDef)}
    return own | {part.id for part in parts if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}


def _drop_unread(defined: ast.FunctionDef, folded: set[ast.stmt]) -> None:
    """Leave out the variables that nothing reads, where only known values are assigned to them."""
    while True:
        parts = list(ast.walk(defined))
        names = [part for part in parts if isinstance(part, ast.Name)]
        read = {part.id for part in names if isinstance(part.ctx, ast.Load)}
        stored = Counter(part.id for part in names if isinstance(part.ctx, ast.Store))
        assigned = [part for part in parts if isinstance(part, ast.Assign) and part in folded]
        known = Counter(target.id for part in assigned for target in part.targets if isinstance(target, ast.Name))
        unread = {name for name, times in known.items() if name not in read and stored[name] == times}
        if not unread:
            return
        for part in parts:
            for name in ("body", "orelse"):
                block = getattr(part, name, None)
                if isinstance(block, list):
                    block = list(_without(block, unread))
                    setattr(part, name, block if block or name == "orelse" else [ast.Pass()])


def _without(block: list[ast.stmt], unread: set[str]) -> Iterator[ast.stmt]:
    for statement in block:
        match statement:
            case ast.Assign([ast.Name(name)]) if name in unread:
                continue
            case ast.Delete(targets):
                statement.targets = [t for t in targets if not (isinstance(t, ast.Name) and t.id in unread)]
                if statement.targets:
                    yield statement
            case _:
                yield statement
