"""Constants that have a name, as the numbers that floats have for them."""

from __future__ import annotations

import math
from fractions import Fraction

from ..records import replace
from . import build
from .nodes import Expr, Map, Program
from .walk import functions_of, rebuild, walk


def in_digits(program: Program) -> Program:
    """The program with the float nearest to `pi` in its place: for what floats compute, and for nothing exact."""
    named = {let.name for let in program.lets if "pi" in functions_of(let)}
    asserts = tuple(replace(claim, condition=_digits(claim.condition)) for claim in program.asserts)
    if not named and asserts == program.asserts:
        return program
    lets = [
        replace(
            let,
            clauses=tuple(
                replace(clause, body=_digits(clause.body), guard=clause.guard and _digits(clause.guard))
                for clause in let.clauses
            ),
        )
        if let.name in named
        else let
        for let in program.lets
    ]
    return replace(program, lets=tuple(lets), asserts=asserts)


def names_pi(program: Program) -> bool:
    """Whether a program says `pi` anywhere."""
    claimed = (part for claim in program.asserts for part in walk(claim.condition))
    return any("pi" in functions_of(let) for let in program.lets) or any(map(_is_pi, claimed))


def _is_pi(part: Expr) -> bool:
    return isinstance(part, Map) and part.op == "pi"


def _digits(expr: Expr) -> Expr:
    if _is_pi(expr):
        return build.real(Fraction(math.pi), expr.span)
    return rebuild(expr, _digits)
