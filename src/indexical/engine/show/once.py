"""What is computed once: before all calls of known sizes, views of arrays that stay, and coordinates; before a loop,
views of arrays that it does not change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ...ir import nodes as ir
from ...records import dataclass, field
from ..constants import POINTS
from ..ops import Axis, Input, Value
from .code import Code
from .numbers import extent

# Axes of an array, by their numbers, that lie one inside the other in a view of it.
Groups: TypeAlias = Sequence[Sequence[int]]


@dataclass
class Once:
    """The codes that are computed once, each with its name and the input that it is a view of, "" for none. `is_held`
    says whether an input with its axes in another order, and some groups of them as one axis, may be; `handed` is what
    results may share memory with, where coordinates may be kept, too."""

    is_held: Callable[[str, Groups], bool] | None = None
    handed: set[Value] | None = None
    codes: dict[Code, tuple[str, str]] = field(default_factory=dict)

    def view(self, p: Any, one: Value, code: Code, groups: Groups) -> Code:
        """The code of a value with groups of its axes as one each; its name where it is made before all calls."""
        variable = p.variables[one.op.name] if isinstance(one.op, Input) else ""
        if not variable or self.is_held is None or code == variable or not self.is_held(variable, groups):
            return code
        return self._name(p, code, variable)

    def coordinates(self, p: Any, one: Value, axis: Axis) -> Code:
        """The places of an axis, made once where they are few and nobody is handed them."""
        code: Code = p.d.arange(p, extent(p, axis))
        is_few = isinstance(axis.extent, ir.Const) and int(axis.extent.value) <= POINTS
        return code if self.handed is None or one in self.handed or not is_few else self._name(p, code, "")

    def _name(self, p: Any, code: Code, variable: str) -> Code:
        if code not in self.codes:
            self.codes[code] = p.fresh("kept"), variable
        return Code(self.codes[code][0])


@dataclass
class Before:
    """What stands before the outermost loop: the arrays that have names there, and the views of them that are named."""

    named: frozenset[Value]
    views: dict[Code, str] = field(default_factory=dict)

    def view(self, p: Any, one: Value, code: Code) -> Code:
        """The code of a view; its name where it is made before the loop."""
        if one not in self.named or code.isidentifier():
            return code
        if code not in self.views:
            self.views[code] = p.fresh(f"{p.names[one]}_matrix")
        return Code(self.views[code])
