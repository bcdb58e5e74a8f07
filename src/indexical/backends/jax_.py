"""The spelling of operations in JAX: the table of another library, in one file.

Arrays are not changed in place, and a call may be traced by `jax.jit`, `jax.grad` or `jax.vmap`: a store makes a new
array, no condition asks an array, and checks of values are made where there are values.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.functions import FUNCTIONS
from ..ir.operations import Function, Spelling
from ..ir.types import LIBRARY_NAMES, Dtype
from ..plan.target import FUSED, Target
from .base import Text, Value
from .code import ZERO, Attribute, Index, Name, Node, Prefix, call, infix, method
from .numpy_ import NumPy
from .numpy_helpers import HELPERS as _OTHERS
from .torch_ import one_or_all

# These need no more than NumPy's names, which JAX has too, and one of its own.
_LARGEST_SO_FAR = ("np.maximum.accumulate", "jax.lax.cummax")
_SHARED = """truncated as_whole fitting fitting_32 add subtract magnitude multiply power checked_power checked_sum
checked_prod checked_cumsum checked_cumprod quotient padded pick argmax argmin running_argmax running_argmin""".split()

HELPERS = {
    **{name: row.jax.helper for name, row in FUNCTIONS.items() if row.jax.helper},
    **{name: _OTHERS[name].replace(*_LARGEST_SO_FAR).replace("np.", "jnp.") for name in _SHARED},
    "in_64_bits": '''
def in_64_bits(function):
    """Nothing is cut down to 32 bits here, whatever `jax_enable_x64` says. What is traced and has 64 bits needs it."""

    @functools.wraps(function)
    def wide(*arrays):
        with jax.enable_x64(True):
            return function(*arrays)

    return wide
''',
    "check": '''
def check(failed, code, message):
    """Refuse where a test fails somewhere. While `jax.jit` or `jax.vmap` traces a call there are no values to test."""
    try:
        failed = bool(failed.any())
    except jax.errors.TracerBoolConversionError:
        return
    if failed:
        raise Refused(code, message)
''',
    "guarded_softmax": '''
def guarded_softmax(x, kept, axis):
    """Softmax over the points that are kept; all 0 where none is."""
    nothing = jnp.where(kept.any(axis, keepdims=True), -math.inf, 0).astype(x.dtype)
    return jnp.where(kept, jax.nn.softmax(jnp.where(kept, x, nothing), axis), 0)
''',
    "guarded_log_softmax": '''
def guarded_log_softmax(x, kept, axis):
    """The logarithm of softmax over the points that are kept; -inf for all others."""
    nothing = jnp.where(kept.any(axis, keepdims=True), -math.inf, 0).astype(x.dtype)
    return jnp.where(kept, jax.nn.log_softmax(jnp.where(kept, x, nothing), axis), -math.inf)
''',
    "windows": '''
def windows(x, axis, count, length, step, dilation=1):
    """So many windows of some length along one axis, each a step on; the places within go last, some way apart."""
    if count == 0 or length == 0:
        return jnp.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :], length), x.dtype)
    places = np.arange(count)[:, None] * step + np.arange(length) * dilation
    return jnp.moveaxis(jnp.take(x, places, axis), axis + 1, -1)
''',
    "scattered": '''
def scattered(x, places, counts, kept=True):
    """x added up at places along its first axes, in zeros. What is not kept, or has a place that is not there, is
    added to a row that is then cut off."""
    at = 0
    for place, count in zip(places, counts):
        kept = kept & (place >= 0) & (place < count)
        at = at * count + place
    rows, rest = math.prod(counts), x.shape[jnp.ndim(at) :]
    at = jnp.where(kept, at, rows).ravel()
    flat = x.reshape(at.size, math.prod(rest))
    total = jnp.zeros((rows + 1, flat.shape[1]), x.dtype).at[at].add(flat)
    return total[:rows].reshape(*counts, *rest)
''',
    "put": '''
def put(x, axis, places, counts):
    """x at places along new axes, which begin at this one, and 0 elsewhere. What has a place that is not there is
    stored in a row that is then cut off."""
    at, kept, rows = 0, True, math.prod(counts)
    for place, count in zip(places, counts):
        kept = kept & (place >= 0) & (place < count)
        at = at * count + place
    at = jnp.expand_dims(jnp.broadcast_to(jnp.where(kept, at, rows), x.shape), axis)
    total = jnp.zeros((*x.shape[:axis], rows + 1, *x.shape[axis:]), x.dtype)
    total = jnp.put_along_axis(total, at, jnp.expand_dims(x, axis), axis, inplace=False)
    return total[(slice(None),) * axis + (slice(rows),)].reshape(*x.shape[:axis], *counts, *x.shape[axis:])
''',
    "rank": '''
def rank(x, axis):
    """The place of each number in decreasing order, the first of equal ones first and NaN last, by a stable sort."""
    order = jnp.argsort(-x if jnp.issubdtype(x.dtype, jnp.floating) else ~x, axis, stable=True)
    return jnp.argsort(order, axis).astype(jnp.int64)
''',
    "guarded_rank": '''
def guarded_rank(x, kept, axis):
    """The place of each number that is kept among those that are, in decreasing order, the first of equal ones first
    and NaN last, by a stable sort; how many are kept for all others."""
    order = jnp.argsort(-x if jnp.issubdtype(x.dtype, jnp.floating) else ~x, axis, stable=True)
    kept = jnp.take_along_axis(kept, order, axis)
    place = jnp.where(kept, kept.astype(jnp.int64).cumsum(axis) - 1, kept.sum(axis, keepdims=True))
    return jnp.take_along_axis(place, jnp.argsort(order, axis), axis).astype(jnp.int64)
''',
    "top": '''
def top(x, count, axis):
    """The places of so many numbers, the largest first, the first of equal ones first and NaN last; -1 where there are
    no more."""
    key = -x if jnp.issubdtype(x.dtype, jnp.floating) else ~x
    order = jnp.argsort(key, axis, stable=True).swapaxes(axis, -1)[..., :count]
    more = jnp.full((*order.shape[:-1], count - order.shape[-1]), -1)
    return jnp.concatenate((order, more), -1).swapaxes(axis, -1).astype(jnp.int64)
''',
    "guarded_top": '''
def guarded_top(x, kept, count, axis):
    """The places of so many numbers that are kept, the largest first, the first of equal ones first and NaN last; -1
    where there are no more."""
    x, kept = x.swapaxes(axis, -1), kept.swapaxes(axis, -1)
    order = jnp.argsort(-x if jnp.issubdtype(x.dtype, jnp.floating) else ~x, -1, stable=True)
    left = jnp.argsort(~jnp.take_along_axis(kept, order, -1), -1, stable=True)
    order = jnp.where(jnp.arange(x.shape[-1]) < kept.sum(-1, keepdims=True), jnp.take_along_axis(order, left, -1), -1)
    more = jnp.full((*order.shape[:-1], max(0, count - order.shape[-1])), -1)
    return jnp.concatenate((order[..., :count], more), -1).swapaxes(axis, -1).astype(jnp.int64)
''',
    "stacked": '''
def stacked(rows, counts, axes, empty):
    """The rows of a recurrence as one array, their steps as these axes; `empty` stands for what is not there."""
    steps = [()]
    for count in counts:
        steps = [(*step, n) for step in steps for n in range(count)]
    found = [rows.get(step if len(counts) > 1 else step[0], empty) for step in steps]
    whole = jnp.stack(found) if found else jnp.zeros((0, *empty.shape), empty.dtype)
    return jnp.moveaxis(whole.reshape(*counts, *empty.shape), tuple(range(len(counts))), axes)
''',
    "unflatten": '''
def unflatten(x, axis, shape):
    """x with several axes in the place of one."""
    axis %= x.ndim
    return x.reshape(*x.shape[:axis], *shape, *x.shape[axis + 1 :])
''',
    "scan": '''
def scan(start, times, plus, axis=0, kept=None, backward=False):
    """`y[t] = times[t] * y[t - k] + plus[t]`: the k steps of `start`, then those of `plus`; backward, from the last to
    the first. Where `kept` is False the earlier step is not looked at."""
    start, plus = jnp.moveaxis(start, axis, 0), jnp.moveaxis(plus, axis, 0)
    factors = (times, True if kept is None else kept)
    times, kept = (x if jnp.ndim(x) == 0 else jnp.moveaxis(x, axis, 0) for x in factors)
    n, lag = len(plus), len(start)
    if n == 0 or lag == 0:
        return jnp.moveaxis(start, 0, axis)
    given = [jnp.broadcast_to(x, plus.shape) for x in (jnp.asarray(times, plus.dtype), plus, kept)]
    if backward:
        start, given = start[::-1], [x[::-1] for x in given]

    def step(last, now):
        factor, more, keeps = now
        new = jnp.where(keeps, factor * jnp.where(keeps, last[0], 0) + more, more)
        return jnp.concatenate((last[1:], new[None])), new

    rows = jnp.concatenate((start, jax.lax.scan(step, start, tuple(given))[1]))
    return jnp.moveaxis(rows[::-1] if backward else rows, 0, axis)
''',
    "last_of_scan": '''
def last_of_scan(start, times, plus, axis=0, kept=None, backward=False):
    """The last step of a scan, or its first where it goes backward; 0 where it has none."""
    rows = jnp.moveaxis(scan(start, times, plus, axis, kept, backward), axis, 0)
    return (rows[:1] if backward else rows[-1:]).sum(0)
''',
    "attend": '''
def attend(query, key, value, is_causal=False, scale=1.0, enable_gqa=False):
    """JAX's own kernel, which wants heads behind rows, and values as wide as keys: zeros fill up the narrower side,
    which changes nothing. It knows by their number which heads share keys. Keys that are masked get -inf, for under
    `is_causal` it has a number there, which is larger than some. It is for 32 bits: it rounds wider weights, and lacks
    products of narrower ones on some devices. Those are made here, and so are those of empty arrays."""
    width, shared = value.shape[-1], query.shape[1] // max(1, key.shape[1])
    past = jnp.tri(query.shape[-2], key.shape[-2], dtype=bool) if is_causal else True
    bias = jnp.where(past, 0, -math.inf).astype(query.dtype)
    if query.dtype != jnp.float32 or 0 in (*query.shape, *key.shape, *value.shape):
        wide = jnp.promote_types(query.dtype, jnp.float32)
        key, value = (jnp.repeat(x, shared, 1) if enable_gqa else x for x in (key.astype(wide), value.astype(wide)))
        scores = query.astype(wide) @ key.swapaxes(-1, -2) * scale + bias
        return (jax.nn.softmax(scores, -1) @ value).astype(query.dtype)
    most = max(query.shape[-1], width)
    query, key, value = (
        jnp.pad(x, [(0, 0)] * 3 + [(0, most - x.shape[-1])]).swapaxes(1, 2) for x in (query, key, value)
    )
    bias = jnp.broadcast_to(bias, (1, 1, query.shape[1], key.shape[1])) if is_causal else None
    return jax.nn.dot_product_attention(query, key, value, bias, scale=scale).swapaxes(1, 2)[..., :width]
''',
}


class Jax(NumPy):
    """Arrays are `jax.Array`s, perhaps while they are traced. JAX has NumPy's names, of which these are spelled
    otherwise."""

    target = Target("jax", frozenset((FUSED,)), builds_scores=True)
    module = "jnp"
    header: tuple[str, ...] = ("import functools", "", "import jax", "import jax.numpy as jnp", "import numpy as np")
    decorators: tuple[str, ...] = ("@in_64_bits",)
    helpers: Mapping[str, str] = HELPERS

    has_devices = False
    has_bfloat16 = True
    rounds_once: frozenset[str] = frozenset()
    updates_in_place = False
    fills_rows = False
    differentiates = True
    checks_in_graphs = True
    branches_on_scalars = False
    numbers_are_f64 = False
    scalars_are_weak = False
    wholes_take_reals = True
    takes_numbers_first = True
    refuses_falling_ranges = False
    reads_scalar_indices = False
    gathers_along_one_axis = False
    takes_rows_apart = True
    flips_by_copying = True
    contracts_by_copying = False
    adds_products = False
    convolves = False
    recomputes_blocks = False
    streams_blocks = False
    selects_largest = False
    attention: Name | None = None

    def spelling(self, row: Function) -> Spelling:
        return row.jax

    def dtype(self, dtype: Dtype) -> Node:
        return Name(f"jnp.{LIBRARY_NAMES[dtype]}" if dtype != "bool" else "jnp.bool_")

    def arange(self, start: Node, stop: Node) -> Node:
        ends = (stop,) if start == ZERO else (start, stop)
        return call("jnp.arange", *ends, dtype=self.dtype("i64"))

    def cast(self, value: Value, dtype: Dtype) -> Value:
        code = self.constant(value.code, dtype) if value.python else self.narrow(value.code, dtype)
        return Value(code, value.axes, value.kind, dtype)

    def constant(self, code: Node, dtype: Dtype) -> Node:
        return call("jnp.asarray", code, self.dtype(dtype))

    def array(self, code: Node, dtype: Dtype) -> Node:
        return self.constant(code, dtype)

    def flip(self, code: Node, axis: int) -> Node:
        return call("jnp.flip", code, axis)

    def reduction(self, op: str, value: Value, axes: tuple[int, ...], text: Text, empty: bool = True) -> Node:
        if op in ("sum", "prod") and value.kind != "real":
            where = one_or_all(axes if axes != (len(value.axes) - 1,) else (-1,))
            return method(value.code, op, where, dtype=self.dtype("i64"))
        return super().reduction(op, value, axes, text, empty)

    def softmax(self, op: str, code: Node, axis: int, text: Text) -> Node:
        return call(f"jax.nn.{op}", code, axis)

    def unbind(self, code: Node, axis: int) -> Node:
        return call("jnp.unstack", code, axis=axis)

    def flatten(self, code: Node, first: int, last: int) -> Node:
        return call("jax.lax.collapse", code, first, *([last + 1] if last != -1 else []))

    def unflatten(self, code: Node, axis: int, shape: Node, text: Text) -> Node:
        return call(text.helper("unflatten"), code, axis, shape)

    def store(self, array: Node, slots: tuple[Node, ...], code: Node) -> Node:
        return method(Index(Attribute(array, "at"), slots), "set", code)

    def scalar(self, code: Node) -> Node:
        return code

    def scan(self, name: str, kernels: dict[str, set[str]], text: Text) -> None:
        text.helper(name)

    def running(self, op: str, value: Value, axis: int, text: Text) -> Node:
        match op:
            case "max" | "min":
                return call(f"jax.lax.cum{op}", value.code, axis)
            case "any":
                return infix(">", method(value.code, "cumsum", axis, dtype=self.dtype("i64")), 0)
            case "all":
                return infix("==", method(Prefix("~", value.code), "cumsum", axis, dtype=self.dtype("i64")), 0)
        dtype = {} if value.kind == "real" else {"dtype": self.dtype("i64")}
        return method(value.code, f"cum{op}", axis, **dtype)

    def copy(self, code: Node) -> Node:
        return code


DIALECT = Jax()
