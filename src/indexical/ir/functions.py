"""The table of elementwise functions, one row each, and where all other layers ask about them.

To add a function is to add a row: the checker, the derivatives, the printers and the number types know it by then.
What has no column stands elsewhere, by name: functions of numbers of the host (`engine/show/numbers.py`), memory
(`engine/workspace.py`) and what foreign code calls them (`lift/`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from . import elementary
from .operations import (
    CAST,
    EVERY,
    FIRST,
    INF,
    NONE,
    OPERATORS,
    REALS,
    UNKNOWN,
    Function,
    Operation,
    Spelling,
)

F = TypeVar("F")

_RSQRT = '''
def rsqrt(x):
    """1 / sqrt(x): infinite at 0, whatever its sign."""
    return np.abs(1 / np.sqrt(x))
'''
_SIGMOID = '''
def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)
'''
_SILU = '''
def silu(x):
    """x times its sigmoid."""
    small = np.exp(-np.abs(x))
    return x * (np.where(x >= 0, 1, small) / (1 + small))
'''
_LOG_SIGMOID = '''
def log_sigmoid(x):
    """log(1 / (1 + exp(-x))), without overflow."""
    return -np.logaddexp(-x, 0)
'''
_ERF = '''
def erf(x):
    """The error function. NumPy has none, so it goes number by number."""
    x = np.asarray(x)
    return np.vectorize(math.erf, otypes=[float])(x).astype(x.dtype)
'''
_GELU = '''
def gelu(x):
    """x · Φ(x). NumPy has no error function, so it goes number by number."""
    x = np.asarray(x)
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)).astype(x.dtype))
'''

_FUNCTIONS = (
    Function(
        name="exp", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(0, INF), finite=False, nonfinite_at=(INF,),
        present=FIRST, undefined=NONE, steep=NONE, unsettled_at=(INF,), trend="rising", parity="neither",
        value=elementary.guarded(math.exp), definition=None,
        slope="y",
        unstable=(),
        numpy=Spelling("np.exp"), torch=Spelling("torch.exp"),
        jax=Spelling("jnp.exp"), triton=Spelling("tl.exp", fast="tl.exp2", binary=True), javascript="Math.exp",
    ),
    Function(
        name="log", arity=1, keeps_whole=False, exact=False,
        domain=(0, INF), values=REALS, finite=False, nonfinite_at=REALS,
        present=FIRST, undefined=FIRST, steep=FIRST, unsettled_at=(), trend="rising", parity="neither",
        value=elementary.guarded(elementary.log), definition=None,
        slope="1 / x",
        unstable=(
            ("log(sigmoid(x))", "log_sigmoid(x)"),
            ("log(1 - sigmoid(x))", "log_sigmoid(-x)"),
            ("log(1 + exp(x))", "softplus(x)"),
            ("log(1 / (1 + exp(x)))", "-softplus(x)"),
            ("log(1 - 1 / (1 + exp(x)))", "log_sigmoid(x)"),
        ),
        numpy=Spelling("np.log"), torch=Spelling("torch.log", once=True),
        jax=Spelling("jnp.log"), triton=Spelling("tl.log"), javascript="Math.log",
    ),
    Function(
        name="sqrt", arity=1, keeps_whole=False, exact=False,
        domain=(0, INF), values=(0, INF), finite=False, nonfinite_at=REALS,
        present=NONE, undefined=NONE, steep=FIRST, unsettled_at=(), trend="rising", parity="neither",
        value=elementary.guarded(math.sqrt), definition=None,
        slope="0.5 / y",
        unstable=(),
        numpy=Spelling("np.sqrt"), torch=Spelling("torch.sqrt"),
        jax=Spelling("jnp.sqrt"), triton=Spelling("tl.sqrt"), javascript="Math.sqrt",
    ),
    Function(
        name="rsqrt", arity=1, keeps_whole=False, exact=False,
        domain=(0, INF), values=(0, INF), finite=False, nonfinite_at=(-INF,),
        present=FIRST, undefined=FIRST, steep=FIRST, unsettled_at=(), trend="falling", parity="neither",
        value=elementary.guarded(elementary.rsqrt), definition=None,
        slope="-0.5 * y / x",
        unstable=(),
        numpy=Spelling("rsqrt", helper=_RSQRT), torch=Spelling("torch.rsqrt({0}).abs()"),
        jax=Spelling("jnp.abs(jax.lax.rsqrt({0}))"), triton=Spelling("tl.rsqrt"), javascript="(x) => 1 / Math.sqrt(x)",
    ),
    Function(
        name="tanh", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(-1, 1), finite=True, nonfinite_at=(),
        present=NONE, undefined=NONE, steep=NONE, unsettled_at=(), trend="rising", parity="odd",
        value=math.tanh, definition=None,
        slope="1 - y * y",
        unstable=(),
        numpy=Spelling("np.tanh"), torch=Spelling("torch.tanh", in_place=True),
        jax=Spelling("jnp.tanh"), triton=Spelling("tanh", fast="fast_tanh"), javascript="Math.tanh",
    ),
    Function(
        name="sigmoid", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(0, 1), finite=True, nonfinite_at=(),
        present=FIRST, undefined=NONE, steep=NONE, unsettled_at=(), trend="rising", parity="neither",
        value=elementary.sigmoid, definition=None,
        slope="y * (1 - y)",
        unstable=(),
        numpy=Spelling("sigmoid", helper=_SIGMOID), torch=Spelling("torch.sigmoid", in_place=True),
        jax=Spelling("jax.nn.sigmoid"), triton=Spelling("tl.sigmoid", fast="fast_sigmoid", binary=True),
        javascript="sigmoid",
    ),
    Function(
        name="relu", arity=1, keeps_whole=True, exact=True,
        domain=REALS, values=(0, INF), finite=True, nonfinite_at=(INF,),
        present=NONE, undefined=NONE, steep=NONE, unsettled_at=(), trend="rising", parity="neither",
        value=elementary.relu, definition=None,
        slope=(("1", "x > 0"),),
        unstable=(),
        numpy=Spelling("np.maximum({0}, 0)"), torch=Spelling("torch.relu", in_place=True),
        jax=Spelling("jax.nn.relu"), triton=Spelling("larger({0}, 0)"), javascript="(x) => Math.max(0, x)",
    ),
    Function(
        name="gelu", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(-0.17, INF), finite=True, nonfinite_at=REALS,
        present=NONE, undefined=NONE, steep=NONE, unsettled_at=REALS, trend=UNKNOWN, parity="neither",
        value=elementary.gelu, definition=None,
        slope="(1 + erf(x / sqrt(2))) / 2 + x * exp(-(x * x) / 2) / sqrt(6.283185307179586)",
        unstable=(),
        numpy=Spelling("gelu", helper=_GELU), torch=Spelling("torch.nn.functional.gelu", once=True),
        jax=Spelling("jax.nn.gelu({0}, approximate=False)"),
        triton=Spelling("0.5 * {0} * (1 + tl.erf({0} * 0.7071067811865476))"),
        javascript="(x) => 0.5 * x * (1 + erf(x / Math.SQRT2))",
    ),
    Function(
        name="silu", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(-0.279, INF), finite=True, nonfinite_at=REALS,
        present=NONE, undefined=NONE, steep=NONE, unsettled_at=REALS, trend=UNKNOWN, parity="neither",
        value=lambda x: x * elementary.sigmoid(x), definition=None,
        slope="sigmoid(x) * (1 + x * (1 - sigmoid(x)))",
        unstable=(),
        numpy=Spelling("silu", helper=_SILU), torch=Spelling("torch.nn.functional.silu", once=True),
        jax=Spelling("jax.nn.silu"), triton=Spelling("{0} * tl.sigmoid({0})"), javascript="(x) => x * sigmoid(x)",
    ),
    Function(
        name="softplus", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(0, INF), finite=True, nonfinite_at=(INF,),
        present=FIRST, undefined=NONE, steep=NONE, unsettled_at=(), trend="rising", parity="neither",
        value=elementary.softplus, definition="log(1 + exp(x))",
        slope="sigmoid(x)",
        unstable=(),
        numpy=Spelling("np.logaddexp({0}, 0)"),
        torch=Spelling("torch.nn.functional.softplus({0}, threshold=40)", once=True),
        jax=Spelling("jax.nn.softplus"),
        triton=Spelling(
            "tl.maximum({0}, 0.0) + tl.log(1.0 + tl.exp(-tl.abs({0})))",
            fast="(tl.maximum({0}, 0.0) + tl.log2(1.0 + tl.exp2(-tl.abs({0})))) * LN_2", binary=True,
        ),
        javascript="(x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)))",
    ),
    Function(
        name="log_sigmoid", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(-INF, 0), finite=True, nonfinite_at=(-INF,),
        present=FIRST, undefined=NONE, steep=NONE, unsettled_at=(), trend="rising", parity="neither",
        value=lambda x: -elementary.softplus(-x), definition="-log(1 + exp(-x))",
        slope="sigmoid(-x)",
        unstable=(),
        numpy=Spelling("log_sigmoid", helper=_LOG_SIGMOID), torch=Spelling("torch.nn.functional.logsigmoid"),
        jax=Spelling("jax.nn.log_sigmoid"),
        triton=Spelling(
            "tl.minimum({0}, 0.0) - tl.log(1.0 + tl.exp(-tl.abs({0})))",
            fast="(tl.minimum({0}, 0.0) - tl.log2(1.0 + tl.exp2(-tl.abs({0})))) * LN_2", binary=True,
        ),
        javascript="(x) => Math.min(x, 0) - Math.log1p(Math.exp(-Math.abs(x)))",
    ),
    Function(
        name="exp2", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(0, INF), finite=False, nonfinite_at=(INF,),
        present=FIRST, undefined=NONE, steep=NONE, unsettled_at=(INF,), trend="rising", parity="neither",
        value=elementary.guarded(math.exp2), definition="exp(x * log(2))",
        slope="y * log(2)",
        unstable=(),
        numpy=Spelling("np.exp2"), torch=Spelling("torch.exp2"),
        jax=Spelling("jnp.exp2"), triton=Spelling("tl.exp2"), javascript="(x) => 2 ** x",
    ),
    Function(
        name="expm1", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(-1, INF), finite=False, nonfinite_at=(INF,),
        present=NONE, undefined=NONE, steep=NONE, unsettled_at=(INF,), trend="rising", parity="neither",
        value=elementary.guarded(math.expm1), definition="exp(x) - 1",
        slope="exp(x)",
        unstable=(),
        numpy=Spelling("np.expm1"), torch=Spelling("torch.expm1"),
        jax=Spelling("jnp.expm1"), triton=UNKNOWN, javascript="Math.expm1",
    ),
    Function(
        name="log1p", arity=1, keeps_whole=False, exact=False,
        domain=(-1, INF), values=REALS, finite=False, nonfinite_at=REALS,
        present=NONE, undefined=NONE, steep=FIRST, unsettled_at=(), trend="rising", parity="neither",
        value=elementary.guarded(elementary.log1p), definition="log(1 + x)",
        slope="1 / (1 + x)",
        unstable=(("log1p(exp(x))", "softplus(x)"), ("log1p(-sigmoid(x))", "log_sigmoid(-x)")),
        numpy=Spelling("np.log1p"), torch=Spelling("torch.log1p"),
        jax=Spelling("jnp.log1p"), triton=UNKNOWN, javascript="Math.log1p",
    ),
    Function(
        name="abs", arity=1, keeps_whole=True, exact=True,
        domain=REALS, values=(0, INF), finite=True, nonfinite_at=REALS,
        present=NONE, undefined=NONE, steep=NONE, unsettled_at=(), trend=UNKNOWN, parity="even",
        value=abs, definition=None,
        slope=(("1", "x > 0"), ("-1", "x < 0")),
        unstable=(),
        numpy=Spelling("np.abs"), torch=Spelling("torch.abs"),
        jax=Spelling("jnp.abs"), triton=Spelling("tl.abs"), javascript="Math.abs",
    ),
    Function(
        name="sin", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(-1, 1), finite=True, nonfinite_at=REALS,
        present=NONE, undefined=NONE, steep=NONE, unsettled_at=REALS, trend=UNKNOWN, parity="odd",
        value=elementary.guarded(math.sin), definition=None,
        slope="cos(x)",
        unstable=(),
        numpy=Spelling("np.sin"), torch=Spelling("torch.sin"),
        jax=Spelling("jnp.sin"), triton=Spelling("tl.sin"), javascript="Math.sin",
    ),
    Function(
        name="cos", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(-1, 1), finite=True, nonfinite_at=REALS,
        present=FIRST, undefined=NONE, steep=NONE, unsettled_at=REALS, trend=UNKNOWN, parity="even",
        value=elementary.guarded(math.cos), definition=None,
        slope="-sin(x)",
        unstable=(
            ("1 - cos(x)", "2 * sin(0.5 * x) * sin(0.5 * x)"),
            ("cos(x) - 1", "-2 * sin(0.5 * x) * sin(0.5 * x)"),
        ),
        numpy=Spelling("np.cos"), torch=Spelling("torch.cos"),
        jax=Spelling("jnp.cos"), triton=Spelling("tl.cos"), javascript="Math.cos",
    ),
    Function(
        name="erf", arity=1, keeps_whole=False, exact=False,
        domain=REALS, values=(-1, 1), finite=True, nonfinite_at=(),
        present=NONE, undefined=NONE, steep=NONE, unsettled_at=(), trend="rising", parity="odd",
        value=math.erf, definition=None,
        slope="2 * exp(-(x * x)) / sqrt(3.141592653589793)",
        unstable=(),
        numpy=Spelling("erf", helper=_ERF), torch=Spelling("torch.erf"),
        jax=Spelling("jax.lax.erf"), triton=Spelling("tl.erf"), javascript="erf",
    ),
    Function(
        name="floor", arity=1, keeps_whole=False, exact=True,
        domain=REALS, values=REALS, finite=True, nonfinite_at=REALS,
        present=NONE, undefined=NONE, steep=NONE, unsettled_at=(), trend="rising", parity="neither",
        value=elementary.keep_unbounded(math.floor), definition=None,
        slope="0",
        unstable=(),
        numpy=Spelling("np.floor"), torch=Spelling("torch.floor"),
        jax=Spelling("jnp.floor"), triton=Spelling("tl.floor"), javascript="Math.floor",
    ),
    Function(
        name="ceil", arity=1, keeps_whole=False, exact=True,
        domain=REALS, values=REALS, finite=True, nonfinite_at=REALS,
        present=NONE, undefined=NONE, steep=NONE, unsettled_at=(), trend="rising", parity="neither",
        value=elementary.keep_unbounded(math.ceil), definition=None,
        slope="0",
        unstable=(),
        numpy=Spelling("np.ceil"), torch=Spelling("torch.ceil"),
        jax=Spelling("jnp.ceil"), triton=Spelling("tl.ceil"), javascript="Math.ceil",
    ),
    Function(
        name="round", arity=1, keeps_whole=False, exact=True,
        domain=REALS, values=REALS, finite=True, nonfinite_at=REALS,
        present=NONE, undefined=NONE, steep=NONE, unsettled_at=(), trend="rising", parity="odd",
        value=elementary.keep_unbounded(round), definition=None,
        slope="0",
        unstable=(),
        numpy=Spelling("np.round"), torch=Spelling("torch.round"),
        jax=Spelling("jnp.round"), triton=UNKNOWN, javascript="roundEven",
    ),
    Function(
        name="clamp", arity=3, keeps_whole=True, exact=True,
        domain=REALS, values=REALS, finite=True, nonfinite_at=REALS,
        present=EVERY, undefined=NONE, steep=NONE, unsettled_at=(), trend=UNKNOWN, parity="neither",
        value=elementary.clamp, definition=None,
        slope=None,
        unstable=(),
        numpy=Spelling("np.minimum(np.maximum({0}, {1}), {2})"), torch=Spelling("torch.clamp"),
        jax=Spelling("jnp.minimum(jnp.maximum({0}, {1}), {2})"),
        triton=Spelling("smaller(larger({0}, {1}), {2})"),
        javascript="(x, low, high) => Math.min(Math.max(x, low), high)",
    ),
    Function(
        name="max", arity=None, keeps_whole=True, exact=True,
        domain=REALS, values=REALS, finite=True, nonfinite_at=REALS,
        present=EVERY, undefined=NONE, steep=NONE, unsettled_at=(), trend="rising", parity="neither",
        value=elementary.largest, definition=None,
        slope=None,
        unstable=(),
        numpy=Spelling("np.maximum"), torch=Spelling("torch.maximum"),
        jax=Spelling("jnp.maximum"), triton=Spelling("larger"), javascript="Math.max",
    ),
    Function(
        name="min", arity=None, keeps_whole=True, exact=True,
        domain=REALS, values=REALS, finite=True, nonfinite_at=REALS,
        present=EVERY, undefined=NONE, steep=NONE, unsettled_at=(), trend="rising", parity="neither",
        value=elementary.smallest, definition=None,
        slope=None,
        unstable=(),
        numpy=Spelling("np.minimum"), torch=Spelling("torch.minimum"),
        jax=Spelling("jnp.minimum"), triton=Spelling("smaller"), javascript="Math.min",
    ),
)

FUNCTIONS: Final[Mapping[str, Function]] = {row.name: row for row in _FUNCTIONS}
# The functions with which a formula may lose digits.
UNSTABLE: Final = frozenset(name for name, row in FUNCTIONS.items() if row.unstable)
_OPERATIONS: Final[Mapping[str, Operation]] = {**OPERATORS, **FUNCTIONS}


def operation(op: str) -> Operation:
    """The row of an operator, a cast or a function, by what an `ir.Map` has as its `op`."""
    return CAST if op.startswith("as ") else _OPERATIONS[op]


def registered(layer: str, own: Mapping[str, F], derived: Callable[[str], F]) -> dict[str, F]:
    """A function of one number type for every row: its `own`, or one `derived` from the formula that defines it."""
    unknown = own.keys() - FUNCTIONS.keys()
    missing = [name for name, row in FUNCTIONS.items() if row.definition is None and name not in own]
    if unknown or missing:
        raise LookupError(f"{layer}: {', '.join([*unknown, *missing])} must stand here and in the table of functions")
    return {
        name: own[name] if name in own or row.definition is None else derived(row.definition)
        for name, row in FUNCTIONS.items()
    }
