"""Programs to split, each with the coordinates to split it by, and what is held of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tests.variants import roster

import indexical as ix
from indexical.sharding.sheet import SpreadPlan, plan_of
from indexical.sharding.spread import Spread

# The letters of positions and of heads; a variant without positions is split by what it has in their place.
POSITIONS = ("i", "j", "t")
OTHERS = ("y", "x", "s", "b")
# The parts of all variants are more texts than a folder keeps, which then has none of them when it is asked again.
MOST_TEXTS = 1 << 16


@dataclass(frozen=True)
class Case:
    """A program, its whole arrays, and how it is split."""

    program: ix.Program
    arrays: Mapping[str, torch.Tensor]
    mesh: Mapping[str, int]
    options: Mapping[str, Any]

    def planned(self, spread: Spread) -> SpreadPlan:
        """The plan of the call that was made last."""
        from indexical.ir.dtypes import definition_dtypes

        ((layout, _),) = spread._layouts.values()
        names = {"torch.float32": "f32", "torch.float64": "f64", "torch.bool": "bool", "torch.int64": "i64"}
        names |= {"torch.int8": "i8", "torch.uint8": "u8", "torch.int32": "i32"}
        given = {name: names[str(x.dtype)] for name, x in self.arrays.items()}
        return plan_of(layout, {**given, **definition_dtypes(layout.program, given)[0]}, True)  # type: ignore[arg-type]


def case_of(name: str, ranks: int, options: Sequence[str]) -> Case:
    """A variant of the catalogue over so many ranks; `heads` splits those as well, `balanced` blocks from both ends. An
    option `j` splits that coordinate alone."""
    program = roster.compiled(name)
    letter = next((option for option in options if len(option) == 1), None)
    if letter is not None:
        return Case(program, roster.arrays(name), {"context": ranks}, {letter: "context"})
    letters = {axis.coordinate.name for tensor in program._program.inputs for axis in tensor.axes}
    found: dict[str, Any] = {letter: "context" for letter in POSITIONS if letter in letters}
    if not found:
        found = {next(letter for letter in OTHERS if letter in letters): "context"}
    mesh = {"context": ranks}
    if "heads" in options and "h" in letters and ranks > 1:
        found |= {letter: "tensor" for letter in ("h", "g") if letter in letters}
        mesh = {"context": ranks // 2, "tensor": 2}
    if "balanced" in options:
        found["balanced"] = "context"
    if "parameters" in options:
        found["parameters"] = "context"
    return Case(program, roster.arrays(name), mesh, found)


def check(case: Case, spread: Spread) -> None:
    """What ranks have of the outputs and gradients is what the whole program has there, and what they sent is what the
    plan says."""
    torch.manual_seed(0)
    parts = {name: spread.local(x.detach(), name) for name, x in case.arrays.items()}
    parts = {name: x.clone().requires_grad_(case.arrays[name].requires_grad) for name, x in parts.items()}
    found, expected = several(spread(**parts)), several(case.program(**case.arrays))
    shown = dict(zip(spread.outputs, expected, strict=True))
    cotangents = {name: torch.randn_like(x) for name, x in shown.items()}
    for name, x in zip(spread.outputs, found, strict=True):
        torch.testing.assert_close(x, spread.local(shown[name], name), rtol=1e-4, atol=1e-5)
    learned = [name for name, x in case.arrays.items() if x.requires_grad]
    there = torch.autograd.grad(
        expected, [case.arrays[name] for name in learned], [*cotangents.values()], allow_unused=True
    )
    given = [spread.local(cotangents[name], name) for name in spread.outputs]
    here = torch.autograd.grad(found, [parts[name] for name in learned], given)
    plan = case.planned(spread)
    for rank in {spread.carrier.rank(block) for block in spread.carrier.owned}:
        assert spread.carrier.sent.get(rank, 0) == sum(plan.bytes_of(rank)), rank
    for name, x in zip(spread.outputs, found, strict=True):
        torch.testing.assert_close(spread.whole(x, name), shown[name], rtol=1e-4, atol=1e-5)
    for name, one, other in zip(learned, here, there, strict=True):
        whole = torch.zeros_like(case.arrays[name]) if other is None else other
        torch.testing.assert_close(
            one, spread.local(whole, name), rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
        )


def several(found: Any) -> tuple[torch.Tensor, ...]:
    return tuple(found) if isinstance(found, tuple) else (found,)
