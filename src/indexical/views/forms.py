"""Exact forms, `e^(√2/2)/(1+e)`, as expressions of the language and as LaTeX."""

from __future__ import annotations

import re
from typing import Any

from .plain import FRACTION

Form = tuple[Any, ...]

_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
VULGAR = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5",
    "⅙": "1/6", "⅚": "5/6", "⅐": "1/7", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8", "⅑": "1/9", "⅒": "1/10",
}  # fmt: skip
_TOKEN = re.compile(rf"\d+(?:\.\d+)?|exp|sqrt|log|ln|[eπ√()+\-·*/^{FRACTION}]|\S")
_ALIKE = str.maketrans({"−": "-", "–": "-", "‑": "-", "×": "*", "⋅": "·", "⁄": "/", "÷": "/"})


def form(text: str) -> str | None:
    """An exact form as an expression of the language; None for what is none."""
    found = read(text)
    return None if found is None else _expression(found)


def to_latex(text: str) -> str | None:
    """An exact form as LaTeX; None for what is none."""
    found = read(text)
    return None if found is None else _latex(found)


def read(text: str) -> Form | None:
    """An exact form as a tree; None for what is none."""
    plain = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda found: f"^({found[0].translate(_RAISED)})", text.translate(_ALIKE))
    for sign, quotient in VULGAR.items():
        plain = plain.replace(sign, f"{FRACTION}(({quotient[0]})/({quotient[2:]}))")
    tokens = _TOKEN.findall(plain)
    reader = _Reader(tokens)
    try:
        found = reader.sum()
    except (ValueError, RecursionError):
        return None
    return found if reader.at == len(tokens) and tokens else None


class _Reader:
    """Reads an exact form; ValueError for what is none."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def sum(self) -> Form:
        found = self.product()
        while self.next() in ("+", "-"):
            found = (self.take(), found, self.product())
        return found

    def product(self) -> Form:
        found = self.power()
        while self.next() and (self.next() in "·*/" or self.next() in f"eπ√({FRACTION}" or self.next().isalpha()):
            sign = self.take() if self.next() in "·*/" else "*"
            is_written = self.tokens[self.at - 1] in ("·", "*", "/")
            if self.next() == FRACTION and found[0] == "number" and not is_written:
                raise ValueError  # `2½` is a sum, and in a formula it may be a product.
            found = ("/" if sign == "/" else "*", found, self.power())
        return found

    def power(self) -> Form:
        if self.next() == "-":
            self.take()
            return ("negative", self.power())
        if self.next() == "+":
            raise ValueError
        base = self.atom()
        if self.next() != "^":
            return base
        self.take()
        return ("^", base, self.power())

    def atom(self) -> Form:
        token = self.take()
        if token == FRACTION:
            return self.atom()
        if token == "(":
            found = self.sum()
            if self.take() != ")":
                raise ValueError
            return ("()", found)
        if token in ("√", "sqrt", "exp", "log", "ln"):
            return ({"sqrt": "√", "ln": "log"}.get(token, token), self.atom())
        if token in ("e", "π"):
            return (token,)
        if token[:1].isdigit() and token.isascii():
            return ("number", token)
        raise ValueError


def _bare(found: Form) -> Form:
    """A form without parentheses around it."""
    return _bare(found[1]) if found[0] == "()" else found


def _expression(found: Form) -> str:
    match found:
        case ("number", text):
            plain = text.lstrip("0") or "0"
            plain = f"0{plain}" if plain.startswith(".") else plain
            return plain if "." in plain else f"{plain}.0"
        case ("e",):
            return "exp(1.0)"
        case ("π",):
            return "pi"
        case ("()", inner):
            return f"({_expression(inner)})"
        case ("negative", inner):
            return f"(-{_expression(inner)})"
        case ("√" | "exp" | "log" as function, inner):
            return f"{'sqrt' if function == '√' else function}({_expression(inner)})"
        case ("^", ("e",), exponent):
            return f"exp({_expression(exponent)})"
        case ("^", base, exponent):
            return f"({_expression(base)}) ** ({_expression(exponent)})"
        case (sign, left, right):
            return f"{_expression(left)} {sign} {_expression(right)}"
    raise AssertionError(found)


def _latex(found: Form) -> str:
    match found:
        case ("number", text):
            return str(text)
        case ("e",):
            return "e"
        case ("π",):
            return r"\pi"
        case ("()", inner):
            return f"({_latex(inner)})"
        case ("negative", inner):
            return f"-{_latex(inner)}"
        case ("√", inner):
            return rf"\sqrt{{{_latex(_bare(inner))}}}"
        case ("exp" | "log" as function, inner):
            return rf"\{function}({_latex(_bare(inner))})"
        case ("/", left, right):
            return rf"\frac{{{_latex(_bare(left))}}}{{{_latex(_bare(right))}}}"
        case ("^", base, exponent):
            return f"{_latex(base)}^{{{_latex(_bare(exponent))}}}"
        case ("*", left, right):
            before, after = _latex(left), _latex(right)
            return before + (r" \cdot " if after[0].isdigit() or before[0] == "\\" else "") + after
        case (sign, left, right):
            return f"{_latex(left)} {sign} {_latex(right)}"
    raise AssertionError(found)
