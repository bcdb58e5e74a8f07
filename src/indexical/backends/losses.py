"""Losses → calls of the library's kernels."""

from __future__ import annotations

from ..ir import nodes as ir
from ..plan.losses import CrossEntropy
from . import arrays, binding, clauses, contraction, indexing, sizes
from .code import Node, String, call, infix, method
from .indexing import AxisIndex
from .lowering import Lowering, Stored


def write_cross_entropy(low: Lowering, let: ir.Let, loss: CrossEntropy, covers: tuple[str, ...]) -> None:
    """PyTorch's cross-entropy, of a row of logits for each target."""
    clauses.begin(low, let, [low.lets[name] for name in covers])
    clause = let.clauses[0]
    outer = clauses.scope_of(clause, {})
    inner = outer if loss.reduction == "none" else binding.bind(low, loss.rows, outer)
    rows = inner.sort(inner.places)
    scope = binding.bind(low, (loss.classes,), inner)
    axes = (*rows, loss.classes.coordinate)
    logits = arrays.as_array(low, arrays.as_real(low, low.value(loss.logits, scope)))
    logits = arrays.broadcast(low, arrays.in_order(low, logits, axes), axes, scope)
    message = f"an index of `{loss.read}` is out of bounds"
    target = low.text.keep(arrays.as_array(low, low.value(loss.target, inner)), "target")
    indexing.checked_place(low, AxisIndex(loss.target, loss.classes.upper, None), target, message, inner)
    target = arrays.broadcast(low, arrays.in_order(low, target, rows), rows, inner)
    if loss.reduction == "mean":
        for row in rows:
            if not sizes.is_filled(low, row, inner):
                test = infix("==", sizes.length(low, row, inner), 0)
                sizes.refuse_once(low, test, "IX310", "`mean` over no points has no value")
    if target.dtype != "i64":
        target = target.but(method(target.code, "long"), dtype="i64")
    given = [logits.code, target.code]
    if len(rows) != 1:
        count = contraction.product_of_lengths(low, rows, inner)
        width = sizes.length(low, loss.classes.coordinate, scope)
        given = [method(logits.code, "reshape", count, width), method(target.code, "reshape", count)]
    words: dict[str, Node] = {} if loss.reduction == "mean" else {"reduction": String(loss.reduction)}
    code = call("torch.nn.functional.cross_entropy", *given, **words)
    if loss.reduction == "none" and len(rows) != 1:
        code = method(code, "reshape", sizes.shape(low, rows, inner))
    value = logits.but(code, axes=rows if loss.reduction == "none" else ())
    variable = low.text.fresh(let.name)
    low.text.assign(variable, clauses.finished(low, let, value, clause, {}))
    low.stored[let.name] = Stored(variable, low.dtypes[let.name])
