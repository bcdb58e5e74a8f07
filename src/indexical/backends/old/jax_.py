"""The spelling of operations in JAX: the table of another library, in one file.

Arrays are not changed in place, and a call may be traced by `jax.jit`, `jax.grad` or `jax.vmap`: a store makes a new
array, no condition asks an array, and checks of values are made where there are values.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...engine.dialects import dialect
from ...engine.show.number_helpers import HELPERS as NUMBERS
from ...ir.operations import Function, Spelling
from ...ir.types import LIBRARY_NAMES, Dtype
from ...plan.target import FUSED, Target
from .base import Text, Value
from .code import ZERO, Attribute, Index, Name, Node, call, method
from .numpy_ import NumPy
from .numpy_helpers import HELPERS as _OTHERS
from .torch_ import one_or_all

HELPERS = {
    **NUMBERS,
    **dialect("jax").helpers,
    "pick_some": _OTHERS["pick_some"].replace("np.", "jnp."),
    "in_blocks": '''
def in_blocks(turn, arrays, size, points, wholes, axes):
    """The results of `turn(first, last, *arrays)`, which has some rows, for all `size` rows of so many points, along
    these axes; where there is none, summed."""
    rows = max(1, 2**20 // max(1, points))
    turns = [turn(start, min(start + rows, size), *arrays) for start in range(0, max(1, size), rows)]
    parts = zip(wholes, axes, zip(*turns))
    return [whole + sum(some) if axis is None else jnp.concatenate(some, axis) for whole, axis, some in parts]
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
    helpers: Mapping[str, str] = HELPERS

    has_bfloat16 = True
    rounds_once: frozenset[str] = frozenset()
    updates_in_place = False
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
    flips_by_copying = True
    contracts_by_copying = False
    adds_products = False
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

    def flatten(self, code: Node, first: int, last: int) -> Node:
        return call("jax.lax.collapse", code, first, *([last + 1] if last != -1 else []))

    def unflatten(self, code: Node, axis: int, shape: Node, text: Text) -> Node:
        return call(text.helper("unflatten"), code, axis, shape)

    def store(self, array: Node, slots: tuple[Node, ...], code: Node) -> Node:
        return method(Index(Attribute(array, "at"), slots), "set", code)

    def scan(self, name: str, kernels: dict[str, set[str]], text: Text) -> None:
        text.helper(name)

    def copy(self, code: Node) -> Node:
        return code


DIALECT = Jax()
