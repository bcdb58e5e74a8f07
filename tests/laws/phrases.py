"""Well-typed terms, drawn at random: what may stand in a right-hand side, given what is in scope there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.laws.scans import Scans
from tests.laws.scopes import BOLD, MEEK, MOST_POINTS, Scope, is_sayable, number, plus, size_of
from tests.laws.terms import (
    Cast,
    Cells,
    Coordinate,
    Dim,
    Function,
    If,
    Kind,
    Number,
    Op,
    Place,
    Read,
    Size,
    Term,
    Truth,
)


class Phrases(Scans):
    """Draws terms of each kind, up to a number of levels."""

    # -------------------------------------------------------------------------------- leaves

    def leaf(self, scope: Scope, kind: Kind) -> Term:
        if scope.present and kind == "real" and self.chance(70):
            fitting = [term for term in scope.present if term.kind == kind]
            if fitting:
                return self.pick(fitting)
        own = [(tensor, first) for tensor, first in scope.previous if tensor.kind == kind]
        if own and self.chance(60):
            tensor, first = self.pick(own)
            return Read(tensor, (*first, *(self.index(scope.strict(), dim) for dim in tensor.axes[len(first) :])))
        if not self.chance(25):
            found = self.read(scope, kind)
            if found is not None:
                return found
        return self.simple(scope, kind)

    def simple(self, scope: Scope, kind: Kind) -> Term:
        """A number, a coordinate or a size."""
        if kind == "bool":
            return self.comparison(scope, 0)
        if kind == "real":
            text = self.pick(("0.5", "1.0", "2.0", ".25", "1.5", "3e-1", "0.125"))
            return Number("pi") if self.chance(5) else Number(text, printed=self.chance(10))
        options: list[Term] = [number(self.choose(5))]
        options += [Place(coordinate) for coordinate in scope.coordinates]
        options += [Size(c, c.dim or c.count) for c in scope.coordinates if c.dim or c.count]  # type: ignore[arg-type]
        if self.chance(15):
            return number(-1 - self.choose(4))
        return self.pick(options)

    def term(self, scope: Scope, kind: Kind, level: int) -> Term:
        """A term of a kind, with at most so many levels of others inside it."""
        scope = self.with_products(scope) if self.products else scope
        if level <= 0:
            return self.leaf(scope, kind)
        return {"real": self.real, "whole": self.whole, "bool": self.boolean}[kind](scope, level)

    # --------------------------------------------------------------------------------- reals

    def real(self, scope: Scope, level: int) -> Term:
        wide = scope.points <= MOST_POINTS // 2
        choice = self.weighted(
            (2, self.leaf_of_real),
            (6, self.arithmetic),
            (4, self.function),
            (5 if wide else 0, self.reduction),
            (3 if self.scannable(scope) else 0, self.scan),
            (2, self.conditional),
            (2 if scope.coordinates else 0, self.shifted),
            (1, self.cast),
            (1, self.power),
            (1, self.figures),
            (1 if self.may_block(scope) else 0, self.block),
            (3 if scope.functions else 0, self.apply),
        )
        return choice(scope, level)

    def leaf_of_real(self, scope: Scope, level: int) -> Term:
        return self.leaf(scope, "real")

    def arithmetic(self, scope: Scope, level: int) -> Term:
        op = self.weighted((4, "*"), (4, "+"), (3, "-"), (2, "/"), (1, "%"), (1, "neg"))
        if op == "neg":
            return Op(("-",), (self.term(scope, "real", level - 1),), "real")
        if op in ("/", "%"):
            return Op((op,), (self.term(scope, "real", level - 1), self.divisor(scope, level)), "real")
        kinds: tuple[Kind, Kind] = self.weighted((6, ("real", "real")), (1, ("real", "whole")), (1, ("whole", "real")))
        left, right = (self.term(scope, kind, level - 1) for kind in kinds)
        return Op((op,), (left, right), "real")

    def divisor(self, scope: Scope, level: int) -> Term:
        """Something that is not 0, or almost never."""
        scope = scope.strict()
        options: list[Callable[[], Term]] = [lambda: Number("2.0"), lambda: Number("1.5")]
        options.append(lambda: self.positive(scope))
        full = [c for c in scope.coordinates if c.dim is not None]
        if full:
            options.append(lambda: Function("sqrt", (Size(full[0], full[0].dim),), "real"))  # type: ignore[arg-type]
        options.append(lambda: self.leaf(scope, "real"))
        return self.pick(options)()

    def function(self, scope: Scope, level: int) -> Term:
        name = self.pick(MEEK) if scope.zero and self.chance(60) else self.pick((*MEEK, *BOLD))
        inner = scope if name in MEEK else scope.strict()
        if name in ("max", "min"):
            count = 2 + self.chance(30)
            return Function(name, tuple(self.term(inner, "real", level - 1) for _ in range(count)), "real")
        argument = self.term(inner, self.weighted((6, "real"), (1, "whole")), level - 1)
        if name == "clamp":
            ends = self.pick((("0.25", "2.0"), ("0.5", "0.5"), ("0.0", "1.5")))
            low = Op(("-",), (Number(ends[0]),), "real") if self.chance(50) else Number(ends[0])
            return Function(name, (argument, low, Number(ends[1])), "real")
        if name == "exp":
            argument = Function(self.pick(("tanh", "sin")), (argument,), "real") if self.chance(60) else argument
        elif name in ("log", "sqrt", "rsqrt"):
            argument = Function("abs", (argument,), argument.kind)
            if name != "sqrt":
                argument = Op(("+",), (argument, Number(self.pick(("0.5", "1.0")))), "real")
        kind: Kind = argument.kind if name in ("abs", "relu") else "real"
        found: Term = Function(name, (argument,), kind)
        return found if kind == "real" else Op(("*",), (found, Number("0.5")), "real")

    def power(self, scope: Scope, level: int) -> Term:
        if self.chance(50):
            return Op(("**",), (self.term(scope, "real", level - 1), number(1 + self.choose(3))), "real")
        scope = scope.strict()
        inverse = Op(("-",), (Number("1.0"),), "real")
        exponent = self.pick((Number("0.5"), Number("1.5"), inverse, self.leaf(scope, "real")))
        return Op(("**",), (self.positive(scope), exponent), "real")

    def positive(self, scope: Scope) -> Term:
        return Op(("+",), (Function("abs", (self.leaf(scope, "real"),), "real"), Number("0.5")), "real")

    def cast(self, scope: Scope, level: int) -> Term:
        kind = self.weighted((4, "real"), (2, "whole"), (1, "bool"))
        dtype = self.weighted((3, "f64"), (3, "f32"), (1, "f16"), (1, "bf16"))
        return Cast(self.term(scope, kind, level - 1), dtype, "real")

    def figures(self, scope: Scope, level: int) -> Term:
        """An array literal, read where it stands."""
        dims = [dim for _, dim in scope.places if is_sayable(dim) and 0 < size_of(dim) <= 4]
        if not dims:
            return self.simple(scope, "real")
        dim = self.pick(dims)
        cells = tuple(f"{self.choose(30) / 8:.3f}" for _ in range(size_of(dim)))
        return Cells(cells, "real", (dim,), (self.index(scope.strict(), dim),), self.chance(20))

    # ------------------------------------------------------------------- branches and guards

    def conditional(self, scope: Scope, level: int, kind: Kind = "real") -> Term:
        condition, facts = self.guard(scope.strict(), scope.coordinates, level - 1)
        kinds = [kind, "whole" if kind == "real" and self.chance(15) else kind]
        if self.chance(50):
            kinds.reverse()
        then = self.term(scope.given(facts), kinds[0], level - 1)
        return If(condition, then, self.term(scope.given(()), kinds[1], level - 1), kind)

    def shifted(self, scope: Scope, level: int) -> Term:
        """`if i > 0 { x[i - 1] } else { … }`."""
        condition, facts = self.neighbour(scope, self.pick(scope.coordinates))
        reads = [
            self.read_at(replace(scope.strict(), places=facts or scope.places, facts=()), tensor)
            for tensor in scope.tensors
            if tensor.kind == "real" and not tensor.leaky and tensor.open is None
            if facts and any(axis is dim for axis in tensor.axes for _, dim in facts)
            if all(size_of(axis) for axis in tensor.axes)
        ]
        then = self.pick(reads) if reads else self.leaf(scope.given(facts), "real")
        return If(condition, then, self.leaf(scope, "real"), "real")

    def neighbour(self, scope: Scope, coordinate: Coordinate) -> tuple[Term, tuple[tuple[Term, Dim], ...]]:
        """A comparison under which a neighbour of a coordinate is in bounds, and that neighbour."""
        here = Place(coordinate)
        dims = [dim for term, dim in scope.places if isinstance(term, Place) and term.coordinate is coordinate]
        if not dims:
            return Op(("<",), (here, number(self.choose(4))), "bool"), ()
        dim = dims[0]
        others = [Place(other) for other in scope.coordinates if other is not coordinate]
        far = self.choose(3) == 2
        match self.choose(5 if others else 3):
            case 0:
                return Op((">",), (here, number(int(far))), "bool"), ((plus(here, -1 - far), dim),)
            case 1:
                ahead = plus(here, 1 + far)
                return Op(("<",), (ahead, self.extent(scope, dim)), "bool"), ((ahead, dim),)
            case 2:
                low = plus(here, -1)
                chain = Op(("<=", "<"), (number(0), low, self.extent(scope, dim)), "bool")
                return (chain, ((low, dim),)) if far else (Op((">=",), (low, number(0)), "bool"), ((low, dim),))
            case 3:
                other = self.pick(others)
                back = Op(("-",), (here, other), "whole")
                return Op(("<=",), (other, here), "bool"), ((back, dim),)
            case _:
                other = self.pick(others)
                ahead = Op(("+",), (here, other), "whole")
                return Op(("<",), (ahead, self.extent(scope, dim)), "bool"), ((ahead, dim),)

    def guard(
        self, scope: Scope, about: Sequence[Coordinate], level: int, safe: Coordinate | None = None, data: bool = True
    ) -> tuple[Term, tuple[tuple[Term, Dim], ...]]:
        """A condition, if possible about one of these coordinates, and the indices that it makes safe.

        It holds at the first point of `safe`, or else depends on data.
        """
        others = [c for c in scope.coordinates if c is not safe]
        if safe is not None:
            if others and (not data or self.chance(50)):
                return Op(("<=",), (Place(safe), Place(self.pick(others))), "bool"), ()
            if not data:
                return Op(("<",), (Place(safe), number(1 + self.choose(3))), "bool"), ()
            return self.data_condition(scope, level, sure=True), ()
        if not about:
            return self.data_condition(scope, level), ()
        first = self.pick(about)
        if any(fn.body.kind == "bool" for fn in scope.functions) and self.chance(25):
            return self.apply(scope, level, "bool"), ()
        match self.choose(7):
            case 0 | 1:
                if len(scope.coordinates) < 2:
                    return self.neighbour(scope, first)
                other = self.pick([c for c in scope.coordinates if c is not first])
                sign = self.pick(("<=", "<", ">=", ">", "!=", "=="))
                return Op((sign,), (Place(first), Place(other)), "bool"), ()
            case 2 | 3:
                return self.neighbour(scope, first)
            case 4:
                return self.data_condition(scope, level), ()
            case 5:
                left, facts = self.guard(scope, about, 0)
                right, more = self.guard(scope.given(facts), about, 0)
                return Op(("&&",), (left, right), "bool"), (*facts, *more)
            case _:
                ends = (number(self.choose(3)), Place(first), self.simple(scope, "whole"))
                return Op(("<", "<="), ends, "bool"), ()

    def data_condition(self, scope: Scope, level: int, sure: bool = False) -> Term:
        """A condition that the arrays decide, `sure` if nothing else may; or a named guard."""
        if sure:
            scope = replace(scope, tensors=tuple(tensor for tensor in scope.tensors if tensor.given), previous=())
        scope = scope.strict()
        # An absent Boolean is false, and a guard may well read it.
        found = self.read(replace(scope, zero=True), "bool") if self.chance(60) else None
        left = found or self.read(scope, "real") or Truth(True)
        if left.kind == "bool":
            return left
        return Op((self.pick(("<", "<=", ">", ">=", "==", "!=")),), (left, self.term(scope, "real", level - 1)), "bool")

    def comparison(self, scope: Scope, level: int) -> Term:
        scope = scope.strict()
        kind: Kind = self.weighted((2, "whole"), (2, "real"))
        sign = self.pick(("<", "<=", ">", ">=", "==", "!="))
        left = self.term(scope, kind, level - 1)
        if self.chance(15):
            middle = self.term(scope, kind, level - 1)
            signs = (self.pick(("<", "<=")), self.pick(("<", "<=")))
            return Op(signs, (left, middle, self.simple(scope, kind)), "bool")
        return Op((sign,), (left, self.term(scope, kind, level - 1)), "bool")

    # ---------------------------------------------------------------------- wholes, Booleans

    def whole(self, scope: Scope, level: int) -> Term:
        wide = scope.points <= MOST_POINTS // 2
        choice = self.weighted(
            (3, "leaf"),
            (5, "arithmetic"),
            (2, "divide"),
            (2, "function"),
            (2, "if"),
            (4 if wide else 0, "reduce"),
            (2 if self.scannable(scope) else 0, "scan"),
            (2, "cast"),
            (2 if any(fn.body.kind == "whole" for fn in scope.functions) else 0, "call"),
        )
        match choice:
            case "leaf":
                return self.leaf(scope, "whole")
            case "arithmetic":
                sides = [self.term(scope, "whole", level - 1) for _ in range(2)]
                if self.chance(15):
                    return Op(("**",), (sides[0], number(self.choose(4))), "whole") if scope.zero is False else sides[0]
                return Op((self.pick(("+", "-", "*")),), tuple(sides), "whole")
            case "divide":
                sides = [self.term(scope, "whole", level - 1), number(1 + self.choose(4))]
                return Op((self.pick(("/", "%")),), tuple(sides), "whole")
            case "function":
                return self.whole_function(scope, level)
            case "if":
                return self.conditional(scope, level, "whole")
            case "reduce":
                return self.reduction(scope, level, "whole")
            case "scan":
                return self.scan(scope, level, "whole")
            case "call":
                return self.apply(scope, level, "whole")
            case _:
                return self.whole_cast(scope, level)

    def whole_function(self, scope: Scope, level: int) -> Term:
        name = self.pick(("abs", "relu", "max", "min", "clamp"))
        inner = scope if name in ("abs", "relu") else scope.strict()
        arguments = [self.term(inner, "whole", level - 1)]
        if name == "clamp":
            arguments += [number(self.choose(2)), number(2 + self.choose(3))]
        elif name in ("max", "min"):
            arguments.append(self.term(inner, "whole", level - 1))
        return Function(name, tuple(arguments), "whole")

    def whole_cast(self, scope: Scope, level: int) -> Term:
        """A condition or a small real as a whole number."""
        dtype = self.weighted((3, "i64"), (1, "i32"))
        if self.chance(50):
            return Cast(self.term(scope.strict(), "bool", level - 1), dtype, "whole")
        small = Function("tanh", (self.term(scope, "real", level - 1),), "real")
        return Cast(Op(("*",), (small, Number("4.0")), "real"), dtype, "whole")

    def boolean(self, scope: Scope, level: int) -> Term:
        wide = scope.points <= MOST_POINTS // 2
        choice = self.weighted(
            (2, "leaf"),
            (4, "compare"),
            (3, "logic"),
            (1, "not"),
            (3 if wide else 0, "reduce"),
            (1, "if"),
            (1, "equal"),
            (2 if any(fn.body.kind == "bool" for fn in scope.functions) else 0, "call"),
        )
        match choice:
            case "leaf":
                return Truth(self.chance(50)) if self.chance(10) else self.leaf(scope, "bool")
            case "compare":
                return self.comparison(scope, level)
            case "logic":
                op = self.pick(("&&", "||"))
                left, facts = self.guard(scope, scope.coordinates, level - 1)
                inner = scope.given(facts if op == "&&" else ())
                return Op((op,), (left, self.term(inner, "bool", level - 1)), "bool")
            case "not":
                return Op(("!",), (self.term(scope, "bool", level - 1),), "bool")
            case "reduce":
                return self.reduction(scope, level, "bool")
            case "if":
                return self.conditional(scope, level, "bool")
            case "call":
                return self.apply(scope, level, "bool")
            case _:
                sides = tuple(self.term(scope.strict(), "bool", level - 1) for _ in range(2))
                return Op((self.pick(("==", "!=")),), sides, "bool")
