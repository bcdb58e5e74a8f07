"""What operations keep for the way back, and what they need on it, where gradients are asked for.

The table of workspaces says it of functions; contractions keep their factors, and a kernel says it itself, in a trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..records import dataclass
from .counted import Counted
from .ledger import TILED_BACK, There, is_affine, key_of, tile_bytes
from .ops import Carried, Contract, Input, Iota, Loop, Map, Opaque, Plan, Read, Result, Tiles, Value
from .products import Order, is_pair
from .show import Statements
from .workspace import Workspace

_NOTHING = Workspace()


@dataclass(frozen=True, slots=True)
class Taken:
    """What a kernel takes, found in a trial: bytes for itself while it runs and on its way back; bytes of its own that
    it keeps between the two, and its operands and definitions that it keeps beside them: by their places among these,
    and by name."""

    there: int = 0
    back: int = 0
    kept: int = 0
    places: frozenset[int] = frozenset()
    names: frozenset[str] = frozenset()


# What a kernel takes of operands that lie in these orders, where gradients to those of these names are asked for.
Trial = Callable[[Value, frozenset[str], tuple[Order, ...]], Taken]


class Keeping(There):
    """The facts of the operations of a call of which gradients to some inputs are asked for: the same whatever is
    there."""

    def __init__(
        self, plan: Plan, counted: Counted, library: str, text: Statements, learned: frozenset[str], trial: Trial
    ) -> None:
        super().__init__(plan, counted, library, text)
        self.trial, self.learned = trial, learned
        self.learns: dict[Value, bool] = {}

    def is_learned(self, one: Value) -> bool:
        """Whether a gradient goes through a value."""
        if one not in self.learns:
            waiting = [one]
            while waiting:
                part = waiting[-1]
                some = [] if part.kind != "real" else [each for each in part.parts if each not in self.learns]
                if some:
                    waiting += some
                    continue
                self.learns[waiting.pop()] = part.kind == "real" and self._is_learned(part)
        return self.learns[one]

    def _is_learned(self, one: Value) -> bool:
        if isinstance(one.op, Input):
            return one.op.name in self.learned
        if isinstance(one.op, Carried):
            return bool(self.learned)
        return any(self.learns[part] for part in one.parts)

    def keeps(self, one: Value) -> list[Value]:
        """The arrays of operands and of the result that are kept."""
        match one.op:
            case Opaque(operands=given):
                made = {part.op.name: part for part in self.made_with(one) if isinstance(part.op, Opaque)}
                return [part for name, part in (*given, *made.items()) if name in self.once(self.taken, one).names]
            case Contract(factors):
                others = self._facing(one, factors)
                return [part for part in others if part not in self.once(self.copied, one)]
            case Map("*", factors):
                return self._facing(one, factors)
            case Map("/", (above, below)):
                return [below, *([above] if self.is_learned(below) else [])]
            case Read(index=index) if not is_affine(one):
                return [at for _, at in index]
        keeps = self.need(one).keeps
        parts = [one] if "result" in keeps else []
        if "operands" in keeps:
            parts += [part for part in one.parts if not part.is_host]
        if "test" in keeps:
            parts.append(one.parts[0])
        return parts

    def _facing(self, one: Value, factors: Sequence[Value]) -> list[Value]:
        """The factors beside those that are learned."""
        learned = [n for n, part in enumerate(factors) if self.is_learned(part)]
        return [part for n, part in enumerate(factors) if any(n != other for other in learned) and not part.is_host]

    def kept_beside(self, one: Value) -> int:
        """The bytes of arrays that are kept and have no name."""
        match one.op:
            case Opaque():
                return self.once(self.taken, one).kept
            case Contract(factors):
                kept = self.once(self.copied, one) & set(self._facing(one, factors))
                return sum(map(self.counted.bytes, kept))
        need = self.need(one)
        return int(need.kept * self.counted.bytes(one) + need.kept_a_cell * self.counted.cells(one.axes))

    def need(self, one: Value) -> Workspace:
        return self.memory.workspace.get(key_of(one), _NOTHING)

    def taken(self, one: Value) -> Taken:
        assert isinstance(one.op, Opaque)
        learned = frozenset(name for name, part in one.op.operands if self.is_learned(part))
        return self.trial(one, learned, tuple(self.lies(part) for _, part in one.op.operands))

    def copied(self, one: Value) -> set[Value]:
        """Also a stack of matrices: where a gradient goes to what it is multiplied by, the library makes it one."""
        found = super().copied(one)
        if isinstance(one.op, Contract) and is_pair(one.op):
            way = self.way(one)
            if way.stack and self.is_learned(way.left):
                found.add(way.right)
        return found

    def lies(self, one: Value) -> Order:
        """The order of the axes of a value in memory."""
        if not isinstance(one.op, Contract) or not is_pair(one.op):
            return self.order.get(one, tuple(axis.name for axis in one.axes))
        way = self.way(one)
        if way.stack and self.is_learned(way.left):
            return (*way.batch, *way.stack, *way.columns, *way.rows)
        return way.axes

    def workspace(self, one: Value) -> int:
        if isinstance(one.op, Opaque):
            return self.once(self.taken, one).there if one not in self.storage else 0
        if isinstance(one.op, Contract) and self.is_learned(one):
            return sum(map(self.counted.bytes, self.once(self.copied, one) - set(self._facing(one, one.op.factors))))
        return super().workspace(one)

    def reached(self, one: Value) -> list[Value]:
        """The operands that a gradient is made for; of a loop, the rows that it stores."""
        parts = rows_of(one.op.loop) if isinstance(one.op, Result) else one.parts
        return [part for part in dict.fromkeys(parts) if self.is_learned(part) and not part.is_host]

    def passes(self, one: Value, part: Value) -> bool:
        """Whether an operand has the gradient of the result as it is, or a view of it."""
        match one.op:
            case Map("+"):
                return part.axes == one.axes and part.dtype == one.dtype
            case Map("-", (first, second)):
                return part is first and part is not second and part.axes == one.axes
            case Map(fn) if fn.startswith(("as ", "some ")):
                return part.dtype == one.dtype
            case Read(index=index, outside="never"):
                return self.counted.cells(part.axes) <= self.counted.cells(one.axes) and all(
                    isinstance(at.op, Iota) for _, at in index
                )
            case Read():
                return is_affine(one) and self.counted.cells(part.axes) <= self.counted.cells(one.axes)
            case Result():
                return True
        return key_of(one) == "sum"

    def workspace_back(self, one: Value) -> int:
        """The bytes that an operation needs for itself on the way back."""
        if isinstance(one.op, Opaque):
            return self.once(self.taken, one).back
        if isinstance(one.op, Tiles):
            return tile_bytes(one, self.counted, TILED_BACK)
        largest = max(self.counted.bytes(part) for part in (one, *one.parts))
        more = int(self.need(one).back * largest)
        if isinstance(one.op, Map):
            # What is repeated has the gradient of every point first, and then their sum.
            more += self.counted.bytes(one) * any(part.axes != one.axes for part in self.reached(one))
            if one.op.fn == "/" and self.is_learned(one.op.args[1]):
                more += 3 * self.counted.bytes(one)
        return more


def rows_of(loop: Loop) -> list[Value]:
    """What a loop stores."""
    return [part for item in loop.body for part in (rows_of(item) if isinstance(item, Loop) else [item.value])]
