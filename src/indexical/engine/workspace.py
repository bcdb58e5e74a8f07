"""What an operation of a library needs for itself while it runs, beside its operands and its result.

One table for each library, by the name of the operation: in bytes for every cell of its largest operand or its result,
whichever has more. A function that is not in the table needs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..records import dataclass


@dataclass(frozen=True, slots=True)
class Workspace:
    """Arrays that an operation makes for itself: `times` as many bytes as its largest array has, so many bytes for each
    cell (`a_cell`) of it, and so many for each place (`a_place`) that it reads or writes at."""

    times: float = 0.0
    a_cell: float = 0.0
    a_place: float = 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """How a library uses memory. An infix operation of at least `reuses` bytes is written over an operand that has no
    name (0: never). A cast to the dtype that an array has is the array itself where `casts_in_place`. The rows of a
    recurrence are arrays of their own where it `stacks` them in the end, and else written into the result. Several
    batch axes of a product become one where it `flattens` them."""

    workspace: Mapping[str, Workspace]
    reuses: int
    casts_in_place: bool
    stacks: bool
    flattens: bool


MEMORY: Mapping[str, Memory] = {
    "numpy": Memory(
        {
            "softmax": Workspace(1.0),
            "log_softmax": Workspace(1.0),
            "rank": Workspace(1.0, 8.0),
            "rsqrt": Workspace(1.0),
            "clamp": Workspace(1.0),
            "log_sigmoid": Workspace(1.0),
            "sigmoid": Workspace(2.0),
            "silu": Workspace(2.0),
            "erf": Workspace(0.0, 66.0),  # By a Python function of each number.
            "gelu": Workspace(2.0, 66.0),
            "gather or zero": Workspace(1.0, a_place=11.0),
            "scatter": Workspace(1.0, 8.0),
        },
        256 * 1024,
        casts_in_place=False,
        stacks=False,
        flattens=False,
    ),
    "torch": Memory(
        {
            "rsqrt": Workspace(1.0),
            "log_sigmoid": Workspace(1.0),
            "rank": Workspace(1.0, 24.0),
            "scatter": Workspace(1.0, 8.0),
        },
        0,
        casts_in_place=True,
        stacks=True,
        flattens=True,
    ),
}
