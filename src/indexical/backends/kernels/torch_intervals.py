"""Attention in which each query hears a few intervals of keys, in linear memory, forward and backward.

Nothing here is ever as large as queries × keys. A plan lists the tiles, each is a call of the library's fused kernel,
and pieces over disjoint keys are merged exactly through the logarithm of their total weight. This text needs PyTorch
and nothing else.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .torch_fused import attend_fused, attend_fused_backward
from .torch_operator import define_operator, is_transformed, map_one_by_one, row_totals, sink_gradient
from .torch_pieces import Scores, TileScore, pieces_of, score_reach
from .torch_plans import Plan, recalled_plans
from .torch_selected import hear_selected

# ---- All tiles of a plan --------------------------------------------------------------------------------------------


def _width(query: Tensor, value: Tensor) -> int:
    """One width for queries, keys and values, as the library's kernels take it."""
    width = max(query.shape[-1], value.shape[-1], 1)
    return width if query.device.type == "cpu" else -(-width // 8) * 8


def _hear(plan: Plan, inputs: Sequence[Tensor], scale: float, scores: Scores | None) -> tuple[Tensor, ...]:
    """Result and logarithm of the total weight; +inf where every key is masked, so that all weights come out 0."""
    query, key, value = inputs
    width, wide = _width(query, value), torch.promote_types(query.dtype, torch.float32)
    rows = plan.of(query, plan.row_order, width)
    keys, values = (plan.of(tensor, plan.key_order, width) for tensor in (key, value))
    if rows.device.type == "cpu":  # The library rounds weights and each piece to 16 bits there, and pieces may cancel.
        rows, keys, values = rows.to(wide), keys.to(wide), values.to(wide)
    tiles = plan.tiles()
    out = rows.new_empty(rows.shape, dtype=rows.dtype if all(tile.fresh for tile in tiles) else wide)
    total = rows.new_full(rows.shape[:3], -math.inf, dtype=wide)
    if sum(tile.height * tile.repeats for tile in tiles if tile.fresh) < rows.shape[2]:
        out.zero_()
    reach = score_reach(rows, keys, scale, scores) if scores and scores.relative else math.inf
    for tile, key_part, value_part, mask, causal, empty in pieces_of(plan, keys, values, scores, reach):
        part, weight = attend_fused(tile.rows_of(rows), key_part, value_part, mask, causal, scale)
        if empty is not None:
            part, weight = part.masked_fill(empty.unsqueeze(-1), 0.0), weight.masked_fill(empty, -math.inf)
        _merge(tile.rows_of(out), tile.rows_of(total), part, weight, tile.fresh)
    total.masked_fill_(total == -math.inf, math.inf)
    return _back(out[..., : value.shape[-1]].to(query.dtype), plan.row_order), _back(total, plan.row_order)


def _merge(out: Tensor, total: Tensor, part: Tensor, weight: Tensor, fresh: bool) -> None:
    """Take in what rows hear of further keys: each side counts by its share of the total weight."""
    if fresh:
        out.copy_(part)
        total.copy_(weight)
        return
    both = torch.logaddexp(total, weight)
    level = both.masked_fill(both == -math.inf, 0.0)
    out.mul_((total - level).exp_().unsqueeze(-1)).addcmul_(part.to(out.dtype), (weight - level).exp_().unsqueeze(-1))
    total.copy_(both)


def _back(tensor: Tensor, order: Tensor | None) -> Tensor:
    """Rows or keys back from the order of their groups to where they were."""
    return tensor if order is None else torch.empty_like(tensor).index_copy_(2, order, tensor)


def _hear_backward(
    plan: Plan, gradient: Tensor, saved: Sequence[Tensor], scale: float, scores: Scores | None
) -> tuple[Tensor, ...]:
    """Gradients to query, key and value."""
    query, key, value, out, total = saved
    width = _width(query, value)
    given, rows, result = (plan.of(tensor, plan.row_order, width) for tensor in (gradient, query, out))
    keys, values = (plan.of(tensor, plan.key_order, width) for tensor in (key, value))
    totals = plan.of(total.unsqueeze(-1), plan.row_order, 1).squeeze(-1)
    once = all(tile.fresh for tile in plan.tiles())
    to_rows = rows.new_zeros(rows.shape, dtype=rows.dtype if once else total.dtype)
    to_keys, to_values = (tensor.new_zeros(tensor.shape, dtype=total.dtype) for tensor in (keys, values))
    if rows.device.type == "cpu":  # The library's kernel there rounds to 16 bits once for each of its blocks.
        given, rows, result, keys, values = (x.to(total.dtype) for x in (given, rows, result, keys, values))
    reach = score_reach(rows, keys, scale, scores)
    for tile, key_part, value_part, mask, causal, _ in pieces_of(plan, keys, values, scores, reach):
        inputs = [tile.rows_of(rows), key_part, value_part, tile.rows_of(result), tile.rows_of(totals)]
        parts = attend_fused_backward(tile.rows_of(given), inputs, mask, causal, scale)
        tile.rows_of(to_rows).add_(parts[0])
        tile.add_to_keys(to_keys, parts[1])
        tile.add_to_keys(to_values, parts[2])
    to_query = _back(to_rows[..., : query.shape[-1]].to(query.dtype), plan.row_order)
    to_key = _back(to_keys[..., : key.shape[-1]].to(key.dtype), plan.key_order)
    del to_rows, to_keys
    return to_query, to_key, _back(to_values[..., : value.shape[-1]].to(value.dtype), plan.key_order)


# ---- The operators --------------------------------------------------------------------------------------------------


def _run(
    tile_score: TileScore | None, relative: bool, blocked: bool, backward: bool, *given: Any
) -> tuple[Tensor, ...]:
    """The body of an operator. A sink changes result and total; from these the gradients are what they are without."""
    *tensors, lower, upper, query_group, key_group, sink, scale, arrays = given
    bounds, found = (lower, upper, query_group, key_group), None
    if blocked and tile_score is not None:
        *arrays, size = arrays
        found = hear_selected(tile_score, backward, tensors, bounds, scale, arrays, int(size))
    if found is None:
        found = _filled(tile_score, relative, backward, tensors, bounds, scale, arrays)
    return found if backward or sink is None else _sunk(found[0], found[1], sink)


def _sunk(out: Tensor, total: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """Result and total of rows beside whose keys a sink of this score is weighed; it carries nothing."""
    finite = total.masked_fill(total == math.inf, -math.inf)
    both = torch.logaddexp(finite, sink.to(total.dtype))
    both = both.masked_fill(both == -math.inf, math.inf)  # No weight at all, not even that of the sink.
    return out.mul_((finite - both).exp_().unsqueeze(-1).to(out.dtype)), both


def _filled(
    tile_score: TileScore | None,
    relative: bool,
    backward: bool,
    tensors: Sequence[Tensor],
    bounds: Sequence[Tensor | None],
    scale: float,
    arrays: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Plan, then fill in the results plan by plan."""
    query, key, value = tensors[1:4] if backward else tensors
    results = (_shapes_backward if backward else _shapes)(*tensors)
    if math.prod(query.shape[:3]) * math.prod(value.shape) == 0:
        return (*(result.zero_() for result in results[:-1]), results[-1].fill_(0.0 if backward else math.inf))
    scores = None if tile_score is None else Scores(tile_score, relative, arrays, query.dtype)
    extent = None if scores is None else scores.extent()
    hearing = [tensor for tensor in bounds if tensor is not None]
    for plan in recalled_plans(query, key, _width(query, value), hearing, extent):
        if backward:
            found = _hear_backward(plan, tensors[0], tensors[1:], scale, scores)
        else:
            found = _hear(plan, tensors, scale, scores)
        if plan.batch == slice(0, query.shape[0]) and plan.head == slice(0, query.shape[1]):
            return tuple(part.contiguous() for part in found)
        for result, part in zip(results, found, strict=True):
            result[plan.batch, plan.head] = part
    return results


def _shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, ...]:
    wide = torch.promote_types(query.dtype, torch.float32)
    return query.new_empty(*query.shape[:3], value.shape[-1]), query.new_empty(query.shape[:3], dtype=wide)


def _shapes_backward(gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _define(name: str, inputs: str, outputs: int, *functions: Callable[..., Any]) -> Callable[..., Any]:
    """A new operator of these and further inputs."""
    inputs += "Tensor lower, Tensor upper, Tensor? query_group, Tensor? key_group, Tensor? sink, "
    inputs += "float scale, Tensor[] arrays"
    return define_operator(name, f"({inputs}) -> ({', '.join(['Tensor'] * outputs)})", *functions)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale, arrays = inputs
    ctx.save_for_backward(*tensors[:3], *output, *tensors[3:], *arrays)
    ctx.set_materialize_grads(False)


def _flowing(
    gradient: Tensor | None, gain: Tensor | None, saved: Sequence[Any]
) -> tuple[Tensor, list[Any]] | tuple[None, None]:
    """The gradient that arrives, and query, key, value, result and all else. `gain`, the gradient of the totals, takes
    a column of its own, where values are 0 and results are -1: so it is added to what flows back to each score."""
    query, key, value, out, *rest = saved
    if gradient is None and gain is None:
        return None, None
    given = torch.zeros_like(out) if gradient is None else gradient
    if gain is not None:
        given = torch.cat([given, gain.unsqueeze(-1).to(given.dtype)], -1)
        value = torch.nn.functional.pad(value, (0, 1))
        out = torch.nn.functional.pad(out, (0, 1), value=-1.0)
    return given, [query, key, value, out, *rest]


def _returned(found: Sequence[Tensor], value: Tensor) -> list[Tensor]:
    """The gradients to query, key and value, this one with its own columns."""
    return [*found[:2], found[2][..., : value.shape[-1]]]


def _refuse(ctx: Any, *_: Any) -> None:
    raise RuntimeError(
        "attention within intervals has no second derivative: call the program with `isolate=True`, which has"
    )


# ---- Under `torch.func` ---------------------------------------------------------------------------------------------


def _folded(tensor: Tensor, dim: int | None, axis: int, count: int, batches: int) -> Tensor:
    """A tensor with all that is mapped over among its batches, which stand at `axis`; 1 of these serves all."""
    if dim is None and tensor.shape[axis] == 1:
        return tensor
    if dim is None:
        tensor = tensor.unsqueeze(axis).expand(*tensor.shape[:axis], count, *tensor.shape[axis:])
    else:
        tensor = tensor.movedim(dim, axis)
    return tensor.expand(*tensor.shape[: axis + 1], batches, *tensor.shape[axis + 2 :]).flatten(axis, axis + 1)


def _map_batches(function: Any, count: int, dims: Sequence[int | None], given: Sequence[Any]) -> tuple[Any, Any]:
    """`torch.func.vmap` over a scale, tensors (batch, …), two bounds, two groups and a sink: there are more batches."""
    places = [None, *[0] * (len(given) - 6), 1, 1, 0, 0, 0]
    query = len(given) - 8
    batches = given[query].movedim(dims[query] or 0, 0).shape[0 if dims[query] is None else 1]
    passed: list[Any] = []
    for tensor, dim, axis in zip(given, dims, places, strict=True):
        if axis == 0 and len(passed) < len(given) - 5 and dim is None:
            tensor, dim = tensor.expand(count, *tensor.shape), 0
        passed.append(tensor if tensor is None or axis is None else _folded(tensor, dim, axis, count, batches))
    found = function.apply(*passed)
    return tuple(part.unflatten(0, (count, batches)) for part in found), (0,) * len(found)


def _functions(name: str, forward: Any, backward: Any, folds: bool) -> tuple[Any, Any]:
    """The operators as functions that `torch.func` reads: of a scale, tensors, bounds, groups, sink, further arrays."""
    mapped = _map_batches if folds else map_one_by_one

    class Returning(torch.autograd.Function):
        @staticmethod
        def forward(scale: float, *tensors: Any) -> Any:
            return backward(*tensors[:11], scale, list(tensors[11:]))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            pass

        backward = staticmethod(_refuse)

        @staticmethod
        def jvp(ctx: Any, *_: Any) -> None:
            _refuse(ctx)

        @staticmethod
        def vmap(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
            return mapped(Returning, info.batch_size, dims, given)

    class Attending(torch.autograd.Function):
        @staticmethod
        def forward(scale: float, *tensors: Any) -> Any:
            return forward(*tensors[:8], scale, list(tensors[8:]))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
            ctx.scale, *tensors = inputs
            ctx.save_for_backward(*tensors[:3], *output, *tensors[3:])
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor | None, gain: Tensor | None) -> tuple[Any, ...]:
            saved = ctx.saved_tensors
            if any(ctx.needs_input_grad[9:]):
                raise RuntimeError(f"{name} gives no gradient to the arrays of biases and masks: use `isolate=True`")
            given, tensors = _flowing(gradient, gain, saved)
            if given is None or tensors is None:
                return (None,) * (len(saved) - 1)
            found = _returned(Returning.apply(ctx.scale, given, *tensors), saved[2])  # type: ignore[no-untyped-call]
            to_sink = None
            if ctx.needs_input_grad[8]:
                to_sink = sink_gradient(given, tensors[3], tensors[4], tensors[9])
            return None, *found, None, None, None, None, to_sink, *[None] * (len(saved) - 10)

        @staticmethod
        def jvp(ctx: Any, *_: Any) -> None:
            raise NotImplementedError(f"{name} has no forward mode: call the program with `isolate=True`, which has")

        @staticmethod
        def vmap(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
            return mapped(Attending, info.batch_size, dims, given)

    return Attending, Returning


def with_tiles(
    name: str, tile_score: TileScore | None, relative: bool = False, blocked: bool = False
) -> Callable[..., Any]:
    """`attend_within` with biases and masks that are made tile by tile from further `arrays`.

    `tile_score(arrays, batch, head, rows, keys)` is given two slices and the places of the rows and keys, each a slice
    or, where groups have changed the order, a tensor of indices. It gives a bias to add to the scores and a Boolean
    tensor of what is allowed, either None for none; they broadcast to (batch, head, rows, keys) and are not written to.
    There is no gradient to `arrays`. A bias alone that depends on row and key by their difference is `relative`: it may
    be asked for once, at other places the same distance apart, beyond the last too. A mask alone that is the same for
    all keys of a block is `blocked`: the last of the arrays is the number of keys of one.
    """
    tensors = "Tensor query, Tensor key, Tensor value, "
    saved = f"Tensor gradient, {tensors}Tensor out, Tensor total, "
    run = functools.partial(_run, tile_score, relative, blocked)
    def derive(ctx: Any, gradient: Tensor | None, gain: Tensor | None) -> tuple[Any, ...]:
        saved, arrays = ctx.saved_tensors[:10], list(ctx.saved_tensors[10:])
        given, tensors = _flowing(gradient, gain, saved)
        if given is None or tensors is None:
            return *[None] * 9, [None] * len(arrays)
        found = _returned(backward(given, *tensors, ctx.scale, arrays), saved[2])
        to_sink = None
        if ctx.needs_input_grad[7]:
            to_sink = sink_gradient(given, tensors[3], tensors[4], tensors[9])
        return *found, None, None, None, None, to_sink, None, [None] * len(arrays)

    forward = _define(name, tensors, 2, functools.partial(run, False), _shapes, derive, _save)
    backward = _define(f"{name}_backward", saved, 3, functools.partial(run, True), _shapes_backward, _refuse)
    attending, returning = _functions(name, forward, backward, tile_score is None)

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lower: Tensor,
        upper: Tensor,
        scale: float,
        query_group: Tensor | None = None,
        key_group: Tensor | None = None,
        arrays: Sequence[Tensor] = (),
        sink: Tensor | None = None,
        totals: bool = False,
    ) -> Any:
        """Softmax attention in which query n hears the keys in the union of the intervals [lower, upper) at n.

        Query, key and value are (batch, head, place, width), the bounds (interval, batch or 1, head or 1, query). With
        groups, (batch or 1, head or 1, place), only keys of the query's group are allowed. A query without keys gets 0.
        A sink (batch or 1, head or 1, query or 1) is the score of a further key that carries 0. With `totals`, also the
        logarithm of the sum that the weights of each query are divided by, (batch, head, query).
        """
        if torch.is_grad_enabled() and any(array.requires_grad for array in arrays):
            raise RuntimeError(f"{name} gives no gradient to the arrays of biases and masks: stream the scores instead")
        if is_transformed():
            found = attending.apply(scale, query, key, value, lower, upper, query_group, key_group, sink, *arrays)
        else:
            found = forward(query, key, value, lower, upper, query_group, key_group, sink, scale, list(arrays))
        return (found[0], row_totals(found[1])) if totals else found[0]

    def back(
        gradient: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lower: Tensor,
        upper: Tensor,
        scale: float,
        query_group: Tensor | None = None,
        key_group: Tensor | None = None,
        arrays: Sequence[Tensor] = (),
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients to query, key and value, where `gradient` arrives, on a forward pass that is computed again."""
        found: tuple[Tensor, Tensor, Tensor]
        if is_transformed():
            hearing = (lower, upper, query_group, key_group, None, *arrays)
            out, total = attending.apply(scale, query, key, value, *hearing)
            found = returning.apply(scale, gradient, query, key, value, out, total, *hearing)
            return found
        further = (lower, upper, query_group, key_group, None, scale, list(arrays))
        out, total = forward(query, key, value, *further)
        found = backward(gradient, query, key, value, out, total, *further)
        return found

    attend.backward = back  # type: ignore[attr-defined]
    return attend


attend_within = with_tiles("attend_within", None)
