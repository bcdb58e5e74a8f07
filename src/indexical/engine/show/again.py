"""Definitions that are computed again on the way back: a function inside of the emitted one, and its call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ops import Input, Value
from ..order import roots_of
from .code import call, tupled

if TYPE_CHECKING:
    from .printer import Printer


class Part:
    """Some definitions apart, while they are printed. The function takes the arrays that they read, and reads numbers
    where they are; it gives the arrays that are read after it."""

    def __init__(self, p: Printer, definitions: tuple[str, ...]) -> None:
        self.last = definitions[-1]
        told = " … ".join(dict.fromkeys((definitions[0], self.last)))
        p.add("")
        p.add(f"# {told}: not kept, computed again on the way back")
        p.add("")  # The head of the function, once it is known what it reads.
        self.start = len(p.lines)
        self.names, self.numbers, self.apart, self.read = dict(p.names), dict(p.numbers), p.apart, p.read
        p.read, p.apart, p.held = set(), {}, frozenset(p.names)
        p.depth += 1

    def close(self, p: Printer) -> None:
        """Print what it gives, and the call; what only it reads has no name any more."""
        taken = [one for one in (*self.names, *p.names) if one in p.read and (one in self.names or _is_input(one))]
        takes = [p.names[one] for one in dict.fromkeys(taken) if not p.is_number(one)]
        kept = set(roots_of(p.plan))
        new = [one for one in p.names if one not in self.names and not _is_input(one) and not p.is_number(one)]
        given = [one for one in new if one in kept or not p.readers(one) <= p.emitted]
        gives = list(dict.fromkeys(p.names[one] for one in given))
        function = p.fresh(f"{gives[-1] if gives else self.last}_again")
        results = tupled(gives)
        p.add(f"return {results}")
        p.depth -= 1
        p.lines[self.start - 1] = f"{'    ' * p.depth}def {function}({', '.join(dict.fromkeys(takes))}):"
        p.add("")
        code = call(p.d.again[1][0], function, *dict.fromkeys(takes))
        p.add(f"{results} = {code}" if gives else str(code))
        p.parts.append(function)
        inputs = {one: name for one, name in p.names.items() if _is_input(one)}
        p.names = {**self.names, **inputs, **{one: p.names[one] for one in given}}
        p.numbers, p.apart, p.read, p.held = self.numbers, self.apart, self.read, frozenset()


def _is_input(one: Value) -> bool:
    return isinstance(one.op, Input)
