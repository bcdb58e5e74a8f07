"""Contractions as Python source: products of matrices, of views of the factors wherever they lie so."""

from __future__ import annotations

from typing import Any

from ..ops import Contract, Map, Value
from ..products import Order, Product, is_pair, product_of
from .code import Code, closed, infix
from .numbers import extent


def contract(p: Any, one: Value) -> Code:
    """The sum of a product of two arrays, in the order of the value's axes."""
    assert isinstance(one.op, Contract), one
    assert is_pair(one.op), one
    way = product_of(one.op, p.order, p.order[one])
    return _in_order(p, _product(p, way), way, p.order[one])


def added(p: Any, one: Value) -> Code | None:
    """A contraction and an array that is added to it, in one call; None where the library has none for them, or where
    the contraction is read elsewhere, too."""
    assert isinstance(one.op, Map)
    first, second = one.op.args
    for product, addend in ((first, second), (second, first)):
        if not p.d.added or not _stands_here(p, product) or product.dtype != addend.dtype or not addend.axes:
            continue
        way = product_of(product.op, p.order, p.order[product])  # type: ignore[arg-type]
        if not way.batch and not way.stack and way.rows and addend.names == frozenset(way.columns):
            p.computed(product)
            p.absorbed.add(product)
            return _in_order(p, _product(p, way, _matrices(p, addend, (), way.columns, ())), way, p.order[one])
        call = p.d.added.get((len(way.batch), len(way.rows), len(way.columns)))
        if call is not None and not way.stack and addend.names == product.names:
            p.computed(product)
            p.absorbed.add(product)
            parts = (
                _permuted(p, addend, way.axes),
                _matrices(p, way.left, way.batch, way.rows, way.over),
                _matrices(p, way.right, way.batch, way.over, way.columns),
            )
            return _in_order(p, p.d.call(p, call, *parts), way, p.order[one])
    return None


def _stands_here(p: Any, one: Value) -> bool:
    """Whether a contraction is computed where it is read, and nowhere else."""
    single = p.uses[one] <= 1 and one not in p.names and one not in p.definition_of
    return single and isinstance(one.op, Contract) and is_pair(one.op)


def _in_order(p: Any, code: Code, way: Product, own: Order) -> Code:
    result: Code = code if way.axes == own else p.d.permute(code, tuple(map(way.axes.index, own)))
    return result


def _product(p: Any, way: Product, addend: Code | None = None) -> Code:
    """The product of two arrays, and where one is given, of a vector that is added to every row."""
    keeps, right_lies = way.keeps_rows and (p.d.folds_rows or len(way.rows) < 2), p.order[way.right]
    left = _matrices(p, way.left, (*way.batch, *way.rows) if keeps else way.batch, () if keeps else way.rows, way.over)
    if way.stack:
        code = p.d.matmul(left, p.code(way.right))
    elif not way.columns or not way.rows:
        code = _vectors(p, way, left)
    elif way.batch:
        right = _matrices(p, way.right, way.batch, way.over, way.columns)
        code = p.d.bmm(p, left, right) if len(way.batch) == 1 else p.d.matmul(left, right)
    elif addend is None and (turned := _turned(p, way)) is not None:
        code = p.d.matmul(left, turned)
    elif right_lies == (*way.columns, *way.over) or (addend is not None and keeps and len(way.rows) > 1):
        code = p.d.linear(p, left, _matrices(p, way.right, (), way.columns, way.over), addend)
    else:
        right = _matrices(p, way.right, (), way.over, way.columns)
        code = p.d.matmul(left, right) if addend is None else p.d.call(p, p.d.added[0, 1, 1], addend, left, right)
    if len(way.columns) < 2 and (keeps or len(way.rows) < 2):
        return code  # type: ignore[no-any-return]
    sizes = {axis.name: axis for axis in (*way.left.axes, *way.right.axes)}
    return Code(f"{closed(code)}.reshape({', '.join(extent(p, sizes[name]) for name in way.axes)})")


def _turned(p: Any, way: Product) -> Code | None:
    """The matrix on the right side, where it was turned before all calls, or before a loop."""
    if p.once.is_held is None and (p.before is None or way.right not in p.before.named):
        return None
    right = _matrices(p, way.right, (), way.over, way.columns)
    return right if right.isidentifier() else None


def _vectors(p: Any, way: Product, left: Code) -> Code:
    """Matrices by vectors, or vectors by matrices: one of each batch is a matrix of one column or row."""
    right = _matrices(p, way.right, way.batch, way.over, way.columns)
    if not way.batch:
        return p.d.matmul(left, right)  # type: ignore[no-any-return]
    single = -2 if way.columns else -1
    if way.columns:
        left = p.d.unsqueeze(left, single)
    else:
        right = p.d.unsqueeze(right, single)
    code = p.d.bmm(p, left, right) if len(way.batch) == 1 else p.d.matmul(left, right)
    return p.d.squeeze(code, single)  # type: ignore[no-any-return]


def _matrices(p: Any, one: Value, batch: Order, rows: Order, columns: Order) -> Code:
    """An array as a batch of matrices, with several rows or columns as one axis."""
    code, lies = _permuted(p, one, (*batch, *rows, *columns)), p.order[one]
    groups = [[lies.index(name) for name in group] for group in (rows, columns)]
    if len(rows) < 2 and len(columns) < 2:
        return _once(p, one, code, groups)
    sizes = {axis.name: axis for axis in one.axes}
    shape = [extent(p, sizes[name]) for name in batch]
    for group in (rows, columns):
        if group:
            size = extent(p, sizes[group[0]])
            for name in group[1:]:
                size = infix("*", size, extent(p, sizes[name]))
            shape.append(size)
    code = Code(f"{closed(code)}.reshape({', '.join(shape)})")
    return _once(p, one, code, groups)


def _once(p: Any, one: Value, code: Code, groups: list[list[int]]) -> Code:
    """A view, or the name of one that is made before all calls, or before a loop."""
    code = p.once.view(p, one, code, groups)
    return code if p.before is None else p.before.view(p, one, code)


def _permuted(p: Any, one: Value, axes: Order) -> Code:
    lies, code = p.order[one], p.code(one)
    result: Code = code if lies == axes else p.d.permute(code, tuple(map(lies.index, axes)))
    return result
