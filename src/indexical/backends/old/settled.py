"""Statements of a kernel for arrays of known sizes: numbers are computed, branches are decided, and masks are kept.

The printer hands over its statements before they are laid out. Whatever sizes, strides and the need of gradients
decide is decided here; arrays that follow from sizes alone go to statements of their own, which run once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...engine.constants import ALL_POINTS, POINTS, Facts
from ...records import dataclass, field, replace
from .code import (
    ALL,
    NONE,
    Attribute,
    Call,
    Index,
    Infix,
    List,
    Name,
    Node,
    Number,
    Prefix,
    Slice,
    Ternary,
    Tuple,
    method,
    names,
    parts,
    rebuilt,
    show,
)
from .evaluated import CONSTANTS, evaluated
from .layout import OPENING, Statement

TRUE, FALSE = Name("True"), Name("False")
_LEARNS = "learns"
# What numbers are made of.
_PLAIN: dict[str, Any] = {**CONSTANTS, "max": max, "min": min, "abs": abs, "int": int}
_PLAIN |= {f"math.{name}": getattr(math, name) for name in ("sqrt", "prod", "isfinite", "nan", "inf")}
# What a test of PyTorch's sees of an array that is given: of one that grows, less.
_ASKED, _ASKED_GROWING = frozenset(("shape", "stride", "is_contiguous", "is_cpu")), frozenset(("is_cpu",))
# Functions that make an array of others, methods of one, and what else they are given.
_MAKERS = frozenset(("torch.stack", "torch.broadcast_tensors", "torch.where", "checked_power"))
_METHODS = frozenset(("to", "abs", "any", "expand"))
_WORDS = frozenset(("device", "None", "True", "False"))
# Functions and kernels that read the arrays they are given, and return none of them.
_READERS = frozenset("add attend_masked_backward rounded subtract take torch.where".split())
_READERS |= {"torch.nn.functional.scaled_dot_product_attention"}


@dataclass
class Settling:
    """The statements of one function: `known` are variables that are numbers here, `made` those that are arrays of
    constants, each with the axes that it has; `kept` the statements that make what is kept, by their names."""

    facts: Facts
    taken: set[str]
    arrays: dict[str, str] = field(default_factory=dict)  # The name of the input that a variable is.
    known: dict[str, Node] = field(default_factory=dict)
    made: dict[str, dict[str, int]] = field(default_factory=dict)
    makers: dict[str, Statement] = field(default_factory=dict)
    kept: dict[str, Node] = field(default_factory=dict)
    points: int = 0

    def block(self, statements: list[Statement]) -> list[Statement]:
        """Statements of one depth, with what stands further in."""
        found: list[Statement] = []
        sides: list[tuple[Statement, list[Statement]]] = []
        for head, inner in groups(statements):
            if sides and head.kind not in ("elif", "else"):
                found += self.branches(sides)
                sides = []
            if head.kind in ("if", "elif", "else"):
                sides.append((head, inner))
            elif head.kind in OPENING:
                self.forget([head, *inner])
                found += [self.settled(head), *(inner if head.kind == "def" else self.block(inner))]
                self.forget([head, *inner])
            else:
                found.append(self.statement(head))
        return found + self.branches(sides)

    def branches(self, sides: list[tuple[Statement, list[Statement]]]) -> list[Statement]:
        """A choice without what is never chosen; its only side where one is."""
        found: list[Statement] = []
        for head, inner in sides:
            test = TRUE if head.kind == "else" or head.code is None else self.node(head.code)
            if test == FALSE:
                continue
            if test == TRUE and not found:
                return [replace(one, indent=one.indent - 1) for one in self.block(inner)]
            before = dict(self.known), dict(self.made)
            side = self.block(inner)
            self.known, self.made = before
            if test == TRUE:
                found += [replace(head, kind="else", code=None), *side]
                break
            found += [replace(head, kind="elif" if found else "if", code=self.read(test)), *side]
        self.forget([one for head, inner in sides for one in (head, *inner)])
        return found

    def statement(self, statement: Statement) -> Statement:
        """One statement; of what it assigns, it is remembered whether that is known."""
        new = self.settled(statement)
        self.forget([statement])
        is_assigned = new.kind in ("temporary", "assign", "store") and new.place in (None, Name(new.target))
        if new.code is None or not is_assigned:
            return new
        if _is_literal(new.code):
            self.known[new.target] = new.code
            return new
        axes = self.axes(new.code)
        if axes and new.target not in self.makers:
            self.made[new.target] = axes
            self.makers[new.target] = replace(new, indent=1, block=0, kind="assign", place=None)
            return new
        return replace(new, code=self.read(new.code))

    def settled(self, statement: Statement) -> Statement:
        """A statement with the numbers in it computed."""
        if statement.kind in ("def", "comment") or not statement.nodes:
            return statement
        code = None if statement.code is None else self.node(statement.code)
        is_variable = statement.place is None or isinstance(statement.place, Name)
        place = statement.place if is_variable or statement.place is None else self.node(statement.place)
        return replace(statement, code=code, place=place)

    def forget(self, statements: Iterable[Statement]) -> None:
        """Nothing is known of what is assigned in some statements any more."""
        for statement in statements:
            stored = [statement.target, *(names(statement.place) if statement.place is not None else ())]
            for name in [*stored, *(statement.words if statement.kind == "def" else ())]:
                self.known.pop(name, None)
                self.made.pop(name, None)

    # ---------------------------------------------------------------------- numbers

    def node(self, code: Node) -> Node:
        """An expression with the numbers in it computed, and choices made that they decide."""
        if isinstance(code, Name):
            return self.known.get(code.text, code)
        new = rebuilt(code, self.node)
        match new:
            case Infix("and" | "or" as op, left, right):
                decides, idle = (FALSE, TRUE) if op == "and" else (TRUE, FALSE)
                return right if left == idle else left if decides in (left, right) else left if right == idle else new
            case Ternary(then, condition, otherwise) if condition in (TRUE, FALSE):
                return then if condition == TRUE else otherwise
            case Call(Name(name)) if name == _LEARNS and not self.facts.learns:
                return FALSE
            case Index(Name(of), slots) if of in self.arrays and self.arrays[of] not in self.facts.growing:
                return self.spaced(new, self.facts.arrays[self.arrays[of]].shape, slots)
        return self.computed(new) if self.is_number(new) else new

    def spaced(self, code: Index, shape: Sequence[int], slots: tuple[Node, ...]) -> Node:
        """`x[:, None, None]` as a view of this shape, which the library makes in half the time."""
        if NONE not in slots or not all(slot in (NONE, ALL) for slot in slots):
            return code
        sizes = iter(shape)
        lengths = [1 if slot == NONE else next(sizes) for slot in slots]
        return method(code.of, "view", *lengths, *sizes)

    def is_number(self, code: Node) -> bool:
        """Whether sizes say what an expression is."""
        match code:
            case Number():
                return True
            case Name(text):
                return text in _PLAIN
            case Call(Attribute(Name(of), "stride"), (Prefix("-", Number("1")) | Number("-1"),)) if of in self.arrays:
                return True
            case Attribute(Name(of), name) if of in self.arrays:
                return name in (_ASKED_GROWING if self.arrays[of] in self.facts.growing else _ASKED)
            case Infix() | Prefix(("-" | "not "),) | Ternary() | Tuple() | Call() | Index():
                return all(map(self.is_number, parts(code)))
        return False

    def computed(self, code: Node) -> Node:
        """A number as a literal; the expression where it has no value, or one that is written otherwise."""
        if isinstance(code, Number | Name | Tuple):
            return code
        try:
            found = evaluated(code, {**_PLAIN, **{name: self.facts.arrays[of] for name, of in self.arrays.items()}})
        except (ArithmeticError, ValueError, TypeError, LookupError):
            return code
        if isinstance(found, bool):
            return TRUE if found else FALSE
        return Number(repr(found)) if isinstance(found, int | float) and math.isfinite(found) else code

    # ----------------------------------------------------------------------- arrays

    def axes(self, code: Node) -> dict[str, int] | None:
        """The lengths of an array that follows from sizes alone, by what made them: none of a number, None where it
        does not."""
        match code:
            case Number() | Slice(None, None, None):
                return {}
            case Name(text):
                return self.made.get(text, {} if "." in text or text in _WORDS else None)
            case Call(Name("torch.arange" | "torch.full" as maker), (size, *_)):
                inner = self.all_axes(parts(code)[1:])
                lengths = [size] if maker == "torch.arange" else [*parts(size)]
                if inner is None or not all(isinstance(length, Number) for length in lengths):
                    return None
                return {show(code): math.prod(int(length.text) for length in lengths if isinstance(length, Number))}
            case Call(Name(maker)) if maker in _MAKERS:
                return self.all_axes(parts(code)[1:])
            case Call(Attribute(of, name), arguments, keywords) if name in _METHODS:
                return self.all_axes((of, *arguments, *(part for _, part in keywords)))
            case Infix() | Prefix() | Index() | Tuple() | List():
                return self.all_axes(parts(code))
        return None

    def all_axes(self, codes: Iterable[Node]) -> dict[str, int] | None:
        found: dict[str, int] = {}
        for code in codes:
            inner = self.axes(code)
            if inner is None:
                return None
            found |= inner
        return found

    def read(self, code: Node) -> Node:
        """An expression with what is kept in the places where arrays are read and not handed on."""
        match code:
            case Infix() | Prefix():
                return rebuilt(code, self.operand)
            case Call(Name(name), arguments, keywords) if name in _READERS:
                named = tuple((key, self.operand(part)) for key, part in keywords)
                return Call(code.function, tuple(map(self.operand, arguments)), named)
        return rebuilt(code, self.read)

    def operand(self, code: Node) -> Node:
        """A value that is only read: an array of few points is kept."""
        if isinstance(code, List):
            return rebuilt(code, self.operand)
        axes = self.axes(code) if self.facts.keeps else None
        points = math.prod(axes.values()) if axes else 0
        if not 0 < points <= min(POINTS, ALL_POINTS - self.points):
            return self.read(code)
        name = next((name for name, other in self.kept.items() if other == code), None)
        if name is None:
            self.points += points
            name = next(name for n in range(len(self.taken) + 1) if (name := f"kept_{n}") not in self.taken)
            self.taken.add(name)
            self.kept[name] = code
        return Name(name)

    def keeping(self) -> list[Statement]:
        """The statements that make what is kept, and return it."""
        made = [Statement(1, 0, "assign", name, code) for name, code in self.kept.items()]
        given = Statement(1, 0, "return", code=Tuple(tuple(map(Name, self.kept))))
        return [*self.makers.values(), *made, given]


def groups(statements: list[Statement]) -> Iterator[tuple[Statement, list[Statement]]]:
    """Statements of one depth, each with those that stand further in."""
    at = 0
    while at < len(statements):
        end = at + 1
        while end < len(statements) and statements[end].indent > statements[at].indent:
            end += 1
        yield statements[at], statements[at + 1 : end]
        at = end


def _is_literal(code: Node) -> bool:
    return isinstance(code, Number) or code in (TRUE, FALSE)
