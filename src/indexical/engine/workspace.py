"""What an operation of a library needs for itself while it runs, beside its operands and its result.

One table for each library, the `memory` of its dialect, by the name of the operation: in bytes for every cell of its
largest operand or its result, whichever has more. A function that is not in the table needs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Workspace:
    """Arrays that an operation makes for itself: `times` as many bytes as its largest array has, so many bytes for each
    cell (`a_cell`) of it, and so many for each place (`a_place`) that it reads or writes at.

    Where a gradient goes through it, it `keeps` words: its "operands", its "result", the "test" that comes first; and
    beside them `kept` times as many bytes as its result has, or so many for each cell of that. On the way `back` it
    needs so many times the bytes of its largest array."""

    times: float = 0.0
    a_cell: float = 0.0
    a_place: float = 0.0
    keeps: tuple[str, ...] = ()
    kept: float = 0.0
    kept_a_cell: float = 0.0
    back: float = 0.0


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


OPERANDS, RESULT = ("operands",), ("result",)

NUMPY = Memory(
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
)

# As NumPy's: an array is never written over, and none is copied to have the dtype that it has.
_COMPILED = {"erf": Workspace(), "gelu": Workspace(2.0)}
JAX = replace(NUMPY, workspace={**NUMPY.workspace, **_COMPILED}, reuses=0, casts_in_place=True, stacks=True)

TORCH = Memory(
    {
        **dict.fromkeys(("exp", "tanh", "sigmoid", "relu", "exp2", "expm1"), Workspace(keeps=RESULT)),
        **dict.fromkeys(("gelu", "silu", "softplus", "log", "log1p"), Workspace(keeps=OPERANDS)),
        **dict.fromkeys(("sin", "cos", "erf", "abs", "clamp"), Workspace(keeps=OPERANDS, back=1.0)),
        "sqrt": Workspace(keeps=RESULT, back=1.0),
        "rsqrt": Workspace(1.0, keeps=RESULT, kept=1.0, back=2.0),
        "log_sigmoid": Workspace(1.0, keeps=OPERANDS, kept=1.0),
        "**": Workspace(keeps=OPERANDS, back=2.0),
        "where": Workspace(keeps=("test",)),
        "max": Workspace(keeps=(*OPERANDS, *RESULT), back=1.25),
        "min": Workspace(keeps=(*OPERANDS, *RESULT), back=1.25),
        "prod": Workspace(keeps=(*OPERANDS, *RESULT), back=1.0),
        "softmax": Workspace(keeps=RESULT),
        "log_softmax": Workspace(keeps=RESULT),
        "cumsum": Workspace(back=2.0),
        "cumprod": Workspace(keeps=(*OPERANDS, *RESULT), back=3.0),
        "cummax": Workspace(kept_a_cell=8.0),
        "cummin": Workspace(kept_a_cell=8.0),
        "rank": Workspace(1.0, 24.0),
        "scatter": Workspace(1.0, 8.0, keeps=("place",)),
        "layer_norm": Workspace(keeps=OPERANDS),
        "rms_norm": Workspace(keeps=OPERANDS, kept=1.0, back=1.0),
        "cross_entropy": Workspace(1.0, keeps=OPERANDS, kept=1.0),
        "convolution": Workspace(keeps=OPERANDS),
        "by_place": Workspace(keeps=OPERANDS),
        "products_by_place": Workspace(keeps=OPERANDS),
        "decayed": Workspace(keeps=(*OPERANDS, *RESULT)),
    },
    0,
    casts_in_place=True,
    stacks=True,
    flattens=True,
)
