"""Emitted functions for arrays of known sizes: what sizes decide is decided once.

An emitted function takes arrays of any size. In every call it reads their shapes, refuses those that disagree, chooses
among ways and makes the masks that follow from coordinates. Where arrays of the same sizes come again and again, all of
that comes out the same: here it is computed, and the rest of the function is kept.

A mask that is kept is shared by later calls. So it may be an operand of arithmetic, or an argument of a kernel that
only reads it; it is never returned, and never written to. Everywhere else it is made anew in each call.

Of a step of decoding, what is past grows along an axis from call to call, and weights are the same arrays in all calls:
of the first all but that axis is known, of the second views are made once. A view has the numbers that its weight has,
also after these were changed; what would be a copy is made anew in each call.
"""

from __future__ import annotations

import ast
import linecache
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from types import FunctionType
from typing import Any

from ..records import dataclass
from . import tensors
from .decided import Decided, dotted

# Points of all arrays that one function keeps: some masks.
_ALL_POINTS = 1 << 18

_LINEAR = "torch.nn.functional.linear"
# Kernels that read the arrays they are given, and return none of them.
_READERS = frozenset(
    "attend_masked attend_scores rounded take torch.nn.functional.scaled_dot_product_attention torch.where".split()
)
_PLAIN = (int, float, bool, str, type(None))


def for_sizes(
    function: Callable[..., Any],
    values: tuple[Any, ...],
    growing: Mapping[int, int] | None = None,
    held: Collection[int] = (),
    keeps: Collection[str] = ("cpu",),
) -> Callable[..., Any] | None:
    """The emitted function for tensors that have the types, sizes, strides and devices of these and require gradients
    as these do; None where it stays as it is. Those at the places `growing` may have another size along an axis, which
    is counted from the end, and other strides but along the last; those at the places `held` are these themselves.
    Small arrays are kept on devices of the types that it `keeps`."""
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
    names = [argument.arg for argument in defined.args.args]
    inputs = {name: value for name, value in zip(names, values, strict=True) if tensors.is_tensor(value)}
    written = _written(defined)
    sizing = _Sizing(function.__globals__, torch, frozenset(keeps if written is not None else ()), inputs)
    sizing.growing = {names[place]: values[place].ndim + axis for place, axis in (growing or {}).items()}
    sizing.views = {names[place]: values[place] for place in held if names[place] not in (written or ())}
    # What is made in inference mode could not be used outside of it.
    with torch.inference_mode(False), torch.set_grad_enabled(torch.is_grad_enabled()):
        defined.body = sizing.block(defined.body)
    _drop_unread(defined, sizing.folded)
    space = {**function.__globals__, **sizing.kept}
    exec(compile(ast.Module([defined], []), name, "exec"), space)
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
class _Sizing(Decided):
    """The statements of a function, with what is known computed. `folded` are the assignments of known values; `kept`
    the values that have no literal, by the names they are given."""

    folded: set[ast.stmt] = field(default_factory=set)
    kept: dict[str, Any] = field(default_factory=dict)
    points: int = 0

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self.statement(statement)]

    def statement(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        """The statements that one statement becomes for known sizes: a branch that is decided, with views and sizes put
        in."""
        match statement:
            case ast.Assign([ast.Name(target)], value):
                self.assigned(statement, target, value)
                yield statement
            case ast.Assign([ast.Tuple(targets)], value) if all(isinstance(target, ast.Name) for target in targets):
                yield from self.unpacked(statement, targets, value)
            case ast.If(test, body, orelse):
                found = self.value(test)
                if found is not None:
                    yield from self.block(body if found[0] else orelse)
                    return
                statement.test, before = self.rewritten(test), self.facts()
                assigned = _stored([statement])
                statement.body = self.block(body)
                self.inputs, self.growing, self.views, self.known = before
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

    def assigned(self, statement: ast.Assign, target: str, value: ast.expr) -> None:
        """`n = n_d + 1`, and `V_all = V_past`, of which all is known that is known of the input."""
        found, view = self.value(value), self.view(value)
        other = dotted(value)
        facts = [(of, of[other]) for of in (self.inputs, self.growing) if other in of]
        statement.value = self.rewritten(value)
        self.forget({target})
        for of, fact in facts:
            of[target] = fact
        if found is not None:
            self.known[target] = found[0]
        if view is not None:
            self.views[target] = view
        if found is not None or view is not None:
            self.folded.add(statement)

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
            target = ast.copy_location(ast.Name(name, ast.Store()), statement)
            new = ast.copy_location(ast.Assign([target], self.literal(part, value)), statement)
            self.folded.add(new)
            yield new

    def is_plain(self, value: Any) -> bool:
        """Whether a value is a number, a device, a dtype or a tuple of these: nothing that anybody could write to."""
        if isinstance(value, tuple):
            return all(map(self.is_plain, value))
        return type(value) in _PLAIN or isinstance(value, self.torch.device | self.torch.dtype)

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
            view = None if isinstance(node, ast.Name) and node.id in self.inputs else self.view(node)
            if view is not None:
                return self.named(view, node)
        match node:
            case ast.Call(function, [rows, matrix], []) if self.views and dotted(function) == _LINEAR:
                return self.linear(node, rows, matrix)
            case ast.BinOp() | ast.Compare() | ast.UnaryOp() if self.value(node) is None:
                return self.inside(node, self.operand)
            case ast.BoolOp(op, parts):
                # Those that decide nothing; the last is what comes out.
                idle = isinstance(op, ast.And)
                rest = [part for part in parts[:-1] if (found := self.value(part)) is None or found[0] is not idle]
                node.values = [self.rewritten(part) for part in (*rest, parts[-1])]
                return node if rest else node.values[0]
            case ast.Call(function, arguments, keywords) if self.only_reads(function):
                node.args = [self.operand(argument) for argument in arguments]
                for keyword in keywords:
                    keyword.value = self.operand(keyword.value)
                return node
            case ast.Subscript(ast.Name(name), index) if name in self.inputs and name not in self.growing:
                return self.spaced(node, self.inputs[name].shape, index)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return node
            case _:
                return self.inside(node, self.rewritten)

    def spaced(self, node: ast.Subscript, shape: tuple[int, ...], index: ast.expr) -> Any:
        """`x[:, None, None]` as a view of this shape, which the library makes in half the time."""
        sizes, found = iter(shape), []
        for part in index.elts if isinstance(index, ast.Tuple) else [index]:
            match part:
                case ast.Constant(None):
                    found.append(1)
                case ast.Slice(None, None, None):
                    found.append(next(sizes))
                case _:
                    return self.inside(node, self.rewritten)
        view = ast.Attribute(node.value, "view", ast.Load())
        new = ast.Call(view, [ast.Constant(size) for size in (*found, *sizes)], [])
        return ast.fix_missing_locations(ast.copy_location(new, node))

    def linear(self, node: ast.Call, rows: ast.expr, matrix: ast.expr) -> Any:
        """The product with a matrix that is the same in all calls: what the library would turn in each is turned."""
        view = self.view(matrix)
        if view is None or view.ndim != 2:
            return self.inside(node, self.rewritten)
        turned = self.named(view.t(), matrix)
        return ast.copy_location(ast.BinOp(self.rewritten(rows), ast.MatMult(), turned), node)

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
        return dotted(function) in _READERS

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


def _parts(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """All nodes in these: what `ast.walk` gives, in less time."""
    found = list(nodes)
    for node in found:
        for name in node._fields:
            part = getattr(node, name, None)
            if isinstance(part, list):
                found += [one for one in part if isinstance(one, ast.AST)]
            elif isinstance(part, ast.AST) and name not in ("ctx", "op"):
                found.append(part)
    return found


def _written(defined: ast.FunctionDef) -> set[str] | None:
    """The inputs that the function changes in place; None where it changes other arrays too: then none is known, since
    what is known may be a part of it."""
    parts = _parts(defined.body)
    stored = Counter(part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
    stored.update(part.arg for part in parts if isinstance(part, ast.arg))
    given = {argument.arg: argument.arg for argument in defined.args.args if not stored[argument.arg]}
    names = dict(given)
    for part in parts:
        match part:
            case ast.Assign([ast.Name(name)], ast.Name(other)) if stored[name] == 1 and other in given:
                names[name] = other
    found = set()
    for part in parts:
        match part:
            case ast.Subscript(ast.Name(name), ctx=ast.Store()) if name in names:
                found.add(names[name])
            case ast.AugAssign() | ast.keyword("out") | ast.Subscript(ctx=ast.Store()):
                return None
            case ast.Call(ast.Attribute(_, name)) if name.endswith("_"):
                return None
    return found


def _stored(nodes: list[Any]) -> set[str]:
    """The variables that are assigned or deleted somewhere in here, and all that a function in here calls its own."""
    found = set()
    for part in _parts(nodes):
        match part:
            case ast.arg(name) | ast.FunctionDef(name) | ast.Name(name, ast.Store() | ast.Del()):
                found.add(name)
    return found


def _drop_unread(defined: ast.FunctionDef, folded: set[ast.stmt]) -> None:
    """Leave out the variables that nothing reads, where only known values are assigned to them."""
    while True:
        parts = _parts(defined.body)
        names = [part for part in parts if isinstance(part, ast.Name)]
        read = {part.id for part in names if isinstance(part.ctx, ast.Load)}
        stored = Counter(part.id for part in names if isinstance(part.ctx, ast.Store))
        assigned = [part for part in parts if isinstance(part, ast.Assign) and part in folded]
        known = Counter(target.id for part in assigned for target in part.targets if isinstance(target, ast.Name))
        unread = {name for name, times in known.items() if name not in read and stored[name] == times}
        if not unread:
            return
        for part in (defined, *parts):
            for name in ("body", "orelse"):
                block = getattr(part, name, None)
                if isinstance(block, list):
                    block = list(_without(block, unread))
                    setattr(part, name, block if block or name == "orelse" else [ast.copy_location(ast.Pass(), part)])


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
