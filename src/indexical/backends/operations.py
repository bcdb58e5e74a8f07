"""The array operations of an emitted function, read from its statements: what the plan lists is what runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache

from ..engine.listing import Operation
from ..ir.functions import FUNCTIONS
from .code import Attribute, Call, Infix, Name, Node, parts
from .layout import Statement

# The operation by what is called: functions of a library without its name, methods, and helpers.
_CALLS = {
    "constant": "zeros full tensor array asarray as_scalar bool bool_ int32 int64 float16 float32 float64",
    "iota": "arange",
    "apply": "where fmod div maximum minimum clamp rsqrt sqrt round_bf16 rounded add_scaled quotient add subtract "
    "multiply magnitude power checked_power fitting fitting_32 truncated addcmul nan_to_num clip with_zeros",
    "cast": "to astype long",
    "view": "permute transpose swapaxes reshape flatten unflatten collapse flip unbind unstack squeeze "
    "broadcast_to broadcast_tensors windows detach",
    "pad": "padded",
    "copy": "clone copy contiguous turned forward",
    "join": "stack stacked cat concatenate joint",
    "reduce": "sum any all amax amin max min prod mean argmax argmin largest smallest checked_sum checked_prod",
    "normalize": "softmax log_softmax guarded_softmax guarded_log_softmax",
    "sort": "rank guarded_rank top guarded_top among_first guarded_among_first",
    "contract": "@ linear tensordot addmm addmv by_place products_by_place",
    "gather": "pick take take_checked take_or_zero",
    "scatter": "scattered put put_rows add_at add_ set",
    "convolve": "convolved",
    "scan": "scan last_of_scan cumsum checked_cumsum cumprod checked_cumprod cummax cummin accumulate running_max "
    "running_min running_argmax running_argmin",
    "chunks": "chunk_products delta_products",
    "blocks": "in_blocks",
    "attend": "attend attend_within attend_blocks attend_backward scaled_dot_product_attention",
    "fused": "layer_norm rms_norm cross_entropy",
    "branch": "learns stride all_take_part learns_nothing pages_inside",
    "check": "check check_places",
}
_KIND = {call: name for name, calls in _CALLS.items() for call in calls.split()}

# Plain Python, about sizes: no array takes part.
_HOST = frozenset("int float getattr as_whole max min abs range reversed Refused slice block_rows".split())
_HOST_METHODS = frozenset("fromkeys pop get indices".split())


@cache
def _elementwise() -> frozenset[str]:
    """The names that spell the functions of the table, without the name of the library."""
    spelled = [spelling.call for row in FUNCTIONS.values() for spelling in (row.numpy, row.torch, row.jax)]
    plain = {call for call in spelled if "{" not in call}
    trees = [ast.walk(ast.parse(call)) for call in spelled if "{" in call]
    found = {ast.unparse(part.func) for tree in trees for part in tree if isinstance(part, ast.Call)}
    return frozenset(call.rpartition(".")[2] for call in plain | found)


def kind_of(call: str, is_host: bool = False) -> str | None:
    """The operation that a call is; None for plain Python. A call that no table knows is a kernel's own name."""
    module, _, last = call.rpartition(".")
    if module == "math" or (not module and is_host):
        return None
    if module.startswith("attend") and last == "backward":
        return "attend_backward"
    if last in _KIND:
        return _KIND[last]
    if last.removesuffix("_") in _elementwise():  # with `_`, it writes over its argument
        return "apply"
    return "attend" if last.startswith("attend_") else "unknown"


def operations_of(statements: Iterable[Statement]) -> Iterator[Operation]:
    """The operations of a function's body, in the order in which they run."""
    for statement in statements:
        target = statement.target if statement.kind in ("temporary", "assign", "store", "augment") else ""
        for code in statement.nodes:
            for called, is_host in _called(code):
                name = kind_of(called, is_host)
                if name is not None:
                    yield Operation(statement.subject, name, called, target, statement.axes, statement.dtype)


def _called(code: Node) -> Iterator[tuple[str, bool]]:
    """The calls in an expression, arguments first; and whether each is one of plain Python's functions."""
    for part in parts(code):
        yield from _called(part)
    match code:
        case Call(Name(function)):
            yield function, function in _HOST
        case Call(Attribute(Name(of), name)) if of.startswith("attend"):
            yield f"{of}.{name}", False
        case Call(Attribute(_, name)):
            yield name, name in _HOST_METHODS
        case Infix("@"):
            yield "@", False
        case _:
            pass
