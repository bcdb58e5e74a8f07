"""The memory of the backward pass of a program: what is recomputed, what is kept, and the other choice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..engine.budget import Budget
from ..ir import nodes as ir
from ..ir.needs import read_in
from ..ir.types import Coordinate
from ..ir.walk import reads_of
from ..plan.steps import Block, Gradient, Plan, Step, extent_of, size_of
from ..plan.target import GPU_POINTS, LEARNED, POINTS

Sizes = Mapping[Coordinate, int]


def show_bytes(count: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024  # type: ignore[assignment]
    raise AssertionError


def way_back(step: Step, plan: Plan, sizes: Sizes) -> list[str]:
    """Say what a step of the backward pass recomputes, in how much memory, and how much it would take to keep it."""
    lets = plan.program.definitions
    if step.gradient is not None:
        large = [name for name in step.covers if _is_large(lets[name], lets[step.gradient.weights])]
        made = _again(step.gradient, plan, sizes)
        said = f"`{step.gradient.weights}` is made again, tile by tile"
    elif step.block is not None:
        large = list(step.block.large)
        made, rows = _in_blocks(step.block, plan, sizes)
        several = f"{rows:,} rows" if rows is not None else "some rows"
        many = f"{len(large)} definitions as large as `{step.block.weights}`" if len(large) > 1 else f"`{large[0]}`"
        said = f"{many} for {several} of `{step.block.row.name}` at a time"
    else:
        return []
    whole = _total((lets[name] for name in large), plan, sizes)
    kept = []
    if step.block is not None and (plan.backend, plan.device) == ("torch", "cpu"):
        kept = [f"where a gradient is wanted: made again on the way back; up to {LEARNED:,} points are kept"]
    if made is None or whole is None:
        return [f"{said}; `recompute=False` keeps what is as large as `{(step.gradient or step.block).weights}`", *kept]  # type: ignore[union-attr]
    return [f"{said}: {show_bytes(made)}; `recompute=False` keeps all of it: {show_bytes(whole)}", *kept]


def _again(gradient: Gradient, plan: Plan, sizes: Sizes) -> int | None:
    """The result of the forward pass, and the logarithm of the total weight of each of its rows."""
    let = next(let for let in plan.program.lets if let.name == gradient.forward)
    result = size_of(let, plan, sizes)
    rows = [extent_of(axis, sizes) for axis in let.axes if axis.coordinate not in gradient.attend.layout.carry]
    return None if result is None or None in rows else result + 4 * math.prod(n or 0 for n in rows)


def _in_blocks(block: Block, plan: Plan, sizes: Sizes) -> tuple[int | None, int | None]:
    """The bytes of all that is as large as rows × keys for the rows of one block, and how many rows these are."""
    lets = plan.program.definitions
    axes = dict(block.inner)
    counts = [extent_of(a, sizes) for n, a in enumerate(lets[block.weights].axes) if n != axes[block.weights]]
    rows = extent_of(lets[block.weights].axes[axes[block.weights]], sizes)
    if rows is None or None in counts:
        return None, None
    points = GPU_POINTS if plan.device == "cuda" else POINTS
    height = min(rows, max(1, points // max(1, math.prod(n or 0 for n in counts))))
    whole = _total((lets[name] for name in block.large), plan, sizes)
    return None if whole is None else whole * height // max(1, rows), height


def _total(lets: Iterable[ir.Let], plan: Plan, sizes: Sizes) -> int | None:
    found = [size_of(let, plan, sizes) for let in lets]
    return None if None in found else sum(n or 0 for n in found)


def _is_large(let: ir.Let, weights: ir.Let) -> bool:
    return len(let.axes) >= len(weights.axes)


def kept_for_the_way_back(plan: Plan) -> list[str]:
    """The definitions of a forward pass that its derivative reads, by name, where the program has one: definitions
    `d_x` for an `x` that it has, too."""
    tensors = plan.program.tensors
    lets = plan.program.definitions

    def is_back(name: str) -> bool:
        return name.startswith("d_") and (name[2:] in tensors or lets[name].hidden or name[2:].startswith("d_"))

    built = {name for step in plan.steps for name in (step.definition, *step.beside)}
    read: set[str] = set()
    for step in plan.steps:
        members = {step.definition, *step.beside} | ({n for n, _ in step.block.inner} if step.block else set())
        if step.gradient is not None:
            attention = step.gradient.attend.attention
            parts = (attention.score, attention.value, *attention.guard, step.gradient.arriving)
            read.update(read_in(*parts))
        elif any(name in lets and is_back(name) for name in members):
            read |= {part.tensor for name in members for part in reads_of(lets[name])}
    return [n for n in lets if n in read & built and not is_back(n) and not lets[n].hidden and lets[n].axes]


def show_budget(budget: Budget) -> list[str]:
    """The memory of a call under a budget: how much, what is kept for the way back, and what is computed again."""
    peak, limit, inputs = (show_bytes(count) for count in (budget.peak, budget.limit, budget.inputs))
    way = "there and back" if budget.learns else "no gradient is asked for"
    lines = [f"memory: {peak} of {limit}, beside {inputs} of inputs; {way}"]
    if budget.room is not None:
        again = ", computed again on the way back" if budget.learns else ""
        lines.append(f"  blocks of rows have {budget.room:,} points{again}")
    if not budget.learns:
        return lines
    if not budget.again and budget.room is None:
        lines.append("  nothing is computed again")
    if budget.kept:
        lines += ["", f"kept for the way back: {show_bytes(sum(held.bytes for held in budget.kept))}"]
        lines += [f"  {held.definition}  {show_bytes(held.bytes)}" for held in budget.kept]
    if budget.again:
        work = sum(part.share for part in budget.again)
        lines += ["", f"computed again on the way back: {work:.0%} of the way there; else {show_bytes(budget.whole)}"]
        for part in budget.again:
            lines.append(f"  {_span(part.definitions)}  {show_bytes(part.bytes)} not kept, {part.share:.1%}")
    return lines


def _span(definitions: tuple[str, ...]) -> str:
    return definitions[0] if len(definitions) == 1 else f"{definitions[0]} … {definitions[-1]}"


def budget_json(budget: Budget) -> dict[str, object]:
    return {
        "limit": budget.limit,
        "peak": budget.peak,
        "without_a_budget": budget.whole,
        "inputs": budget.inputs,
        "points_of_a_block": budget.room,
        "gradients": budget.learns,
        "kept": [{"name": held.definition, "bytes": held.bytes} for held in budget.kept],
        "computed_again": [
            {"names": list(part.definitions), "bytes": part.bytes, "work": part.share} for part in budget.again
        ],
    }
