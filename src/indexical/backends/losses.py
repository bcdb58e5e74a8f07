"""Losses → calls of the library's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import nodes as ir
from ..plan.losses import CrossEntropy
from .code import Node, String, call, infix, method
from .indexing import Index
from .state import Stored

if TYPE_CHECKING:
    from .attention import Attending


def write_cross_entropy(emitter: Attending, let: ir.Let, loss: CrossEntropy, covers: tuple[str, ...]) -> None:
    """PyTorch's cross-entropy, of a row of logits for each target."""
    emitter.begin(let, [emitter.lets[name] for name in covers])
    clause = let.clauses[0]
    outer = emitter.scope_of(clause, {})
    inner = outer if loss.reduction == "none" else emitter.bind(loss.rows, outer)
    rows = inner.sort(inner.places)
    scope = emitter.bind((loss.classes,), inner)
    axes = (*rows, loss.classes.coordinate)
    logits = emitter.strong(emitter.real(emitter.value(loss.logits, scope)))
    logits = emitter.spread(emitter.turned(logits, axes), axes, scope)
    message = f"an index of `{loss.log_softmax}` is out of bounds"
    target = emitter.text.keep(emitter.strong(emitter.value(loss.target, inner)), "target")
    emitter.checked_place(Index(loss.target, loss.classes.upper, None), target, message, inner)
    target = emitter.spread(emitter.turned(target, rows), rows, inner)
    if loss.reduction == "mean":
        for row in rows:
            if not emitter.is_filled(row, inner):
                test = infix("==", emitter.length(row, inner), 0)
                emitter.refuse_once(test, "IX310", "`mean` over no points has no value")
    if target.dtype != "i64":
        target = target.but(method(target.code, "long"), dtype="i64")
    given = [logits.code, target.code]
    if len(rows) != 1:
        count = emitter.product_of_lengths(rows, inner)
        width = emitter.length(loss.classes.coordinate, scope)
        given = [method(logits.code, "reshape", count, width), method(target.code, "reshape", count)]
    words: dict[str, Node] = {} if loss.reduction == "mean" else {"reduction": String(loss.reduction)}
    code = call("torch.nn.functional.cross_entropy", *given, **words)
    if loss.reduction == "none" and len(rows) != 1:
        code = method(code, "reshape", emitter.shape(rows, inner))
    value = logits.but(code, axes=rows if loss.reduction == "none" else ())
    variable = emitter.text.fresh(let.name)
    emitter.text.assign(variable, emitter.finished(let, value, clause, {}))
    emitter.stored[let.name] = Stored(variable, emitter.dtypes[let.name])
