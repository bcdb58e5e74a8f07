"""Those who take part in a row on a GPU, built for one shape, and the same in float64 to compare with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

import indexical as ix

from .gpu_rows import Extras, Points, Row, Shape
from .timing import once

# Scores of one block of queries of the exact evaluation, and the most that compiled eager code may build.
BLOCK, MOST = 1 << 26, 1 << 32
Call = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class Inputs:
    q: Tensor
    k: Tensor
    v: Tensor
    extras: Extras
    cotangent: Tensor

    def leaves(self, row: Row) -> tuple[Tensor, ...]:
        return self.q, self.k, self.v, *(self.extras[name] for name in row.learned)


def draw(row: Row, shape: Shape, dtype: torch.dtype, device: str, tracked: bool) -> Inputs:
    """Fresh random numbers. Matrices are rounded to the dtype. Slopes, biases, gates and the like, which have
    fewer than four axes, are float32, as people pass them."""
    torch.manual_seed(shape.keys + shape.queries)

    def place(tensor: Tensor, learned: bool = False) -> Tensor:
        own = dtype if tensor.dim() == 4 else torch.float32
        tensor = tensor.to(device, own if tensor.is_floating_point() else None)
        return tensor.requires_grad_(learned and tracked)

    def normal(heads: int, rows: int) -> Tensor:
        return torch.randn(shape.batch, heads, rows, shape.width, device=device)

    q = place(normal(shape.heads, shape.queries), True)
    k, v = (place(normal(shape.groups, shape.keys), True) for _ in range(2))
    extras = {name: place(array, name in row.learned) for name, array in row.extras(shape).items()}
    return Inputs(q, k, v, extras, place(normal(shape.heads, shape.queries)))


# ------------------------------------------------------------------------------------ written out


def written_out(
    row: Row, shape: Shape, heads: int, rows: slice, q: Tensor, k: Tensor, v: Tensor, given: Extras
) -> Tensor:
    """The row for some queries of the first heads, in the dtype of the arrays. Nothing is clever here."""
    device = q.device
    i = torch.arange(shape.queries, device=device)[rows, None]
    b, h = (torch.arange(n, device=device) for n in (shape.batch, heads))
    at = Points(given, shape, b[:, None, None, None], h[:, None, None], i, torch.arange(shape.keys, device=device))
    repeats = shape.heads // shape.groups
    k, v = (x if repeats == 1 else x.repeat_interleave(repeats, 1) for x in (k, v))
    scores = q[:, :, rows] @ k.mT * shape.width**-0.5
    if row.change is not None:
        scores = row.change(scores, at)
    allowed = None if row.guard is None else row.guard(at)
    match row.normaliser:
        case "sigmoid":
            weights = _kept(scores.sigmoid(), allowed, 0)
        case "none":
            weights = _kept(scores, allowed, 0)
        case "softmax":
            weights = _kept(scores, allowed, -torch.inf).softmax(-1)
            weights = _kept(weights, allowed, 0) if row.silent else weights
        case "sink":
            scores = _kept(scores, allowed, -torch.inf)
            sink = given["sink"][at.h].expand(*scores.shape[:-1], 1).to(scores.dtype)
            weights = torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
        case "differential":
            other = given["R"][:, :heads, rows] @ given["L"][:, :heads].mT * shape.width**-0.5
            first, second = (_kept(x, allowed, -torch.inf).softmax(-1) for x in (scores, other))
            weights = first - given["part"][at.h] * second
    return weights.to(v.dtype) @ v


def _kept(scores: Tensor, allowed: Tensor | None, otherwise: float) -> Tensor:
    return scores if allowed is None else scores.masked_fill(~allowed, otherwise)


def exactly(row: Row, shape: Shape, inputs: Inputs, backward: bool) -> tuple[Tensor, ...]:
    """The output of the first group of heads in float64, and its gradients."""
    heads = shape.heads // shape.groups
    first = Shape(shape.batch, heads, 1, shape.queries, shape.keys, shape.width)
    given = {
        name: (x[:, :heads] if x.dim() == 4 else x).detach().double() if x.is_floating_point() else x
        for name, x in inputs.extras.items()
    }
    q, k, v = (x.detach().double() for x in (inputs.q[:, :heads], inputs.k[:, :1], inputs.v[:, :1]))
    leaves = (q, k, v, *(given[name] for name in row.learned)) if backward else ()
    for leaf in leaves:
        leaf.requires_grad_()
    totals = [torch.zeros_like(leaf) for leaf in leaves]
    step = max(1, BLOCK // (shape.batch * heads * shape.keys))
    found = []
    for n in range(ceil(shape.queries / step)):
        rows = slice(n * step, min((n + 1) * step, shape.queries))
        out = written_out(row, first, heads, rows, q, k, v, given)
        found.append(out.detach())
        if leaves:
            for total, part in zip(
                totals, torch.autograd.grad(out, leaves, inputs.cotangent[:, :heads, rows].double()), strict=True
            ):
                total += part
    return torch.cat(found, 2), *totals


def error(found: tuple[Tensor, ...], exact: tuple[Tensor, ...], row: Row, shape: Shape) -> list[float]:
    """‖found − exact‖ ÷ ‖exact‖ of the output and of each gradient, over the heads that were evaluated."""
    heads = shape.heads // shape.groups
    result = []
    for got, want in zip(found, exact, strict=False):
        if got.dim() == 4:
            part = got[:, : want.shape[1]]
        else:
            part, want = got[:heads], want[:heads]
        wanted = want.norm()
        result.append(float((part.detach().double() - want).norm() / wanted.clamp(min=1e-300)))
    return result


# ------------------------------------------------------------------------------------------- peers


def ours(row: Row, shape: Shape, inputs: Inputs) -> Call:
    program = ix.compile(row.program)
    arrays = (inputs.q, inputs.k, inputs.v, *(inputs.extras[name] for name in program.inputs[3:]))
    return lambda: program(*arrays)  # type: ignore[no-any-return]


def direct(row: Row, shape: Shape, inputs: Inputs) -> Call | None:
    if row.direct is None:
        return None
    q, k, v, is_grouped = inputs.q, inputs.k, inputs.v, shape.heads != shape.groups
    is_causal = row.direct == "causal"
    return lambda: sdpa(q, k, v, is_causal=is_causal, enable_gqa=is_grouped)


def eager(row: Row, shape: Shape, inputs: Inputs) -> Call | None:
    """Compiled; None where its scores would be too many."""
    if shape.batch * shape.heads * shape.queries * shape.keys > MOST:
        return None
    torch._dynamo.reset()
    attend = torch.compile(partial(written_out, row, shape, shape.heads, slice(None)), dynamic=False)
    return lambda: attend(inputs.q, inputs.k, inputs.v, inputs.extras)  # type: ignore[no-any-return]


def block_mask(row: Row, shape: Shape, inputs: Inputs, device: str) -> Any:
    """FlexAttention's, over the batch only where the guard asks for it."""
    from torch.nn.attention.flex_attention import create_block_mask

    guard = row.guard
    if guard is None:
        return None

    def keeps(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Any:
        return guard(Points(inputs.extras, shape, b, h, i, j))

    batch = shape.batch if {"document", "length"} & inputs.extras.keys() else None
    return create_block_mask(keeps, batch, None, shape.queries, shape.keys, device=device)


def flex(row: Row, shape: Shape, inputs: Inputs, mask: Any) -> Call | None:
    """Compiled FlexAttention with its blocks found beforehand, compiled anew for the row, sizes fixed."""
    from torch.nn.attention.flex_attention import flex_attention

    if not row.flex:
        return None
    change, extras = row.change, inputs.extras
    options: dict[str, Any] = {"enable_gqa": shape.heads != shape.groups, "block_mask": mask}
    if change is not None:

        def changed(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Any:
            return change(score, Points(extras, shape, b, h, i, j))

        options["score_mod"] = changed
    torch._dynamo.reset()
    q, k, v = inputs.q, inputs.k, inputs.v
    if row.normaliser == "sink":

        def with_sink(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
            out, lse = flex_attention(q, k, v, return_lse=True, **options)
            return (out * torch.sigmoid(lse - sink[:, None])[..., None]).to(out.dtype)  # type: ignore[no-any-return]

        attend = torch.compile(with_sink, dynamic=False)
        return lambda: attend(q, k, v, extras["sink"])  # type: ignore[no-any-return]
    if row.normaliser == "differential":

        def subtracted(q: Tensor, k: Tensor, v: Tensor, r: Tensor, s: Tensor, part: Tensor) -> Tensor:
            first, second = (flex_attention(x, y, v, **options) for x, y in ((q, k), (r, s)))
            return first - part[:, None, None] * second

        attend = torch.compile(subtracted, dynamic=False)
        return lambda: attend(q, k, v, extras["R"], extras["L"], extras["part"])  # type: ignore[no-any-return]
    attend = torch.compile(flex_attention, dynamic=False)
    return lambda: attend(q, k, v, **options)  # type: ignore[no-any-return]


def mask_seconds(row: Row, shape: Shape, inputs: Inputs, device: str) -> tuple[float, Any]:
    """The time to make a block mask, and the mask."""
    runs = [once(lambda: block_mask(row, shape, inputs, device), device) for _ in range(3)]
    return median(seconds for seconds, _ in runs), runs[-1][1]


def warm_up(device: str) -> None:
    """Load the compiler, which takes some seconds, before anything is timed."""
    torch.compile(lambda x: x.exp(), dynamic=False)(torch.ones(2, device=device))
