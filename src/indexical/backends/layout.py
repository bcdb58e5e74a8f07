"""Statements → lines: what nobody uses is left out, what is used once goes where it is used, long lines are broken.

Every right-hand side is a value without effects, so that it may be moved down to its use.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..ir.functions import FUNCTIONS

# How tightly a text binds, so that parentheses stand only where they are needed.
ATOM, POWER, UNARY, PRODUCT, SUM, AND, OR, COMPARISON, NOT, BOTH, EITHER, TERNARY = range(11, -1, -1)

# A line is at most this long; a step that was moved to its use makes none longer than the second.
LONGEST = 110
COMFORTABLE = 92
MOVED = 64

_WORD = re.compile(r"[^\W\d]\w*")
_QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True, slots=True)
class Statement:
    """One line before it is laid out. Of an assignment `text` is the right-hand side.

    A `temporary` may be moved to its use and renamed, an `assign` may only be left out; a `store` changes a part of
    its target; all else stays as it is.
    """

    indent: int
    block: int
    text: str
    kind: str
    target: str = ""
    binds: int = ATOM

    @property
    def words(self) -> list[str]:
        return [] if self.kind in ("comment", "raise", "blank") else _WORD.findall(_QUOTED.sub("", self.text))

    @property
    def shown(self) -> str:
        return f"{self.target} = {self.text}" if self.kind in ("temporary", "assign") else self.text


def render(statements: Iterable[Statement | list[Statement]], taken: set[str]) -> list[str]:
    """The lines of a function's body."""
    flat = list(_flattened(statements))
    used = _moved(_used(flat))
    named = _renamed(used, taken)
    return [line for statement in named for line in _lines(statement)]


def _flattened(statements: Iterable[Statement | list[Statement]]) -> Iterable[Statement]:
    for statement in statements:
        if isinstance(statement, Statement):
            yield statement
        else:
            yield from _flattened(statement)


def _used(statements: list[Statement]) -> list[Statement]:
    """Without assignments that nothing reads, and without blocks in which nothing is left."""
    needed: set[str] = set()
    kept: list[Statement] = []
    for statement in reversed(statements):
        if statement.kind in ("temporary", "assign") and statement.target not in needed:
            continue
        opens = statement.text.endswith(":") and statement.kind == "line"
        if opens and not (kept and kept[-1].indent > statement.indent):
            continue
        kept.append(statement)
        needed.update(statement.words)
    return kept[::-1]


# ------------------------------------------------------------- moving to the use


def _moved(statements: list[Statement]) -> list[Statement]:
    """With what is used once in its own block standing there, where the line stays comfortable."""
    uses = Counter(word for statement in statements for word in statement.words)
    current = list(statements)
    for number, statement in enumerate(current):
        if statement.kind == "temporary" and uses[statement.target] == 1:
            user = _user(current, number)
            if user is not None:
                moved = _put(current[user], statement)
                if moved is not None:
                    current[user] = moved
                    current[number] = replace(statement, kind="gone")
    return [statement for statement in current if statement.kind != "gone"]


def _user(statements: list[Statement], number: int) -> int | None:
    """The statement that uses another one's target, where nothing that it reads changes in between."""
    step = statements[number]
    reads = set(step.words)
    for place in range(number + 1, len(statements)):
        statement = statements[place]
        if statement.kind == "gone":
            continue
        if step.target in statement.words:
            return place if statement.block == step.block and " for " not in statement.text else None
        if statement.kind == "store" and statement.target in reads:
            return None
        if statement.indent < step.indent:
            return None
    return None


def _put(user: Statement, step: Statement) -> Statement | None:
    """A step in the place of its name; None where that would be hard to read."""
    if user.text == step.target:
        return replace(user, text=step.text, binds=step.binds)
    if user.kind == "store" and user.text.endswith(f"] = {step.target}"):
        return replace(user, text=user.text.removesuffix(step.target) + step.text)
    found = re.search(rf"\b{step.target}\b", user.text)
    assert found is not None
    before, after = user.text[: found.start()], user.text[found.end() :]
    if _FRESH.match(step.text) and _WRITES_OVER.search(before) and after.startswith(")"):
        before = f"{before[:-1]}_("  # a new array, used here alone: PyTorch writes over it
    needed = max(_left_needs(before), _right_needs(after))
    if step.binds < needed and after.startswith("["):
        return None
    shown = step.text if step.binds >= needed else f"({step.text})"
    text = before + shown + after
    moved = replace(user, text=text)
    width = 4 * user.indent + len(moved.shown) - 2 * moved.shown.count("__")
    return moved if width <= COMFORTABLE and len(step.text) <= MOVED else None


_FRESH = re.compile(r"torch\.add(mm|mv|cmul)\(")
_WRITING = (re.escape(row.torch.call) for row in FUNCTIONS.values() if row.torch.in_place)
_WRITES_OVER = re.compile(rf"\b({'|'.join(_WRITING)})\($")

_LEFT = (
    (re.compile(r"\*\* ?$"), UNARY),
    (re.compile(r"(\*|/|//|%|@) ?$"), PRODUCT + 1),
    (re.compile(r"(^|[(\[,=:] ?|[*/%@+\-<>&|] |return )-$"), UNARY),
    (re.compile(r"~$"), UNARY),
    (re.compile(r"[+-] $"), SUM + 1),
    (re.compile(r"& $"), AND + 1),
    (re.compile(r"\| $"), OR + 1),
    (re.compile(r"(<|>|<=|>=|==|!=) $"), COMPARISON + 1),
    (re.compile(r"\bnot $"), NOT),
    (re.compile(r"\band $"), BOTH + 1),
    (re.compile(r"\bor $"), EITHER + 1),
    (re.compile(r"\b(if|else) $"), EITHER),
)
_RIGHT = (
    (re.compile(r"[.\[(]"), ATOM),
    (re.compile(r" \*\* "), ATOM),
    (re.compile(r" (\*|/|//|%|@) "), PRODUCT),
    (re.compile(r" [+-] "), SUM),
    (re.compile(r" & "), AND),
    (re.compile(r" \| "), OR),
    (re.compile(r" (<|>|<=|>=|==|!=) "), COMPARISON + 1),
    (re.compile(r" and "), BOTH),
    (re.compile(r" or "), EITHER),
    (re.compile(r" (if|else) "), EITHER),
)


def _left_needs(before: str) -> int:
    return next((level for pattern, level in _LEFT if pattern.search(before)), TERNARY)


def _right_needs(after: str) -> int:
    return next((level for pattern, level in _RIGHT if pattern.match(after)), TERNARY)


# ------------------------------------------------------------------------ names


def _renamed(statements: list[Statement], taken: set[str]) -> list[Statement]:
    """With short names for the steps that stayed: `scores`, `scores_2`, …"""
    known = taken | {word for statement in statements for word in (statement.target, *statement.words)}
    names: dict[str, str] = {}
    for statement in statements:
        if statement.kind == "temporary":
            name = base = statement.target.rsplit("__", 1)[0]
            number = 1
            while name in known:
                number += 1
                name = f"{base}_{number}"
            known.add(name)
            names[statement.target] = name
    return [_with_names(statement, names) for statement in statements] if names else statements


def _with_names(statement: Statement, names: Mapping[str, str]) -> Statement:
    if statement.kind in ("comment", "raise", "blank"):
        return statement
    text = _WORD.sub(lambda word: names.get(word[0], word[0]), statement.text)
    return replace(statement, text=text, target=names.get(statement.target, statement.target))


# ------------------------------------------------------------------------ lines


def _lines(statement: Statement) -> list[str]:
    margin = "    " * statement.indent
    if statement.kind == "blank":
        return [""]
    if statement.kind == "comment":
        return _comment(statement.text, margin)
    return broken(statement.shown, margin)


def _comment(text: str, margin: str) -> list[str]:
    """A comment, broken between words; what follows stands a little further in."""
    lines = [margin + text]
    while len(lines[-1]) > LONGEST:
        line = lines.pop()
        place = line.rfind(" ", len(margin) + 8, LONGEST)
        if place < 0:
            return [*lines, line]
        lines += [line[:place], f"{margin}#     {line[place + 1 :]}"]
    return lines


def broken(text: str, margin: str) -> list[str]:
    """A statement on several lines where one is too long: the largest bracket is opened."""
    if len(margin) + len(text) <= LONGEST:
        return [margin + text]
    if text.startswith("return ") and len(_parts(text)) > 1:
        text = f"return ({text.removeprefix('return ')})"
    brackets = _brackets(text)
    if not brackets:
        return [margin + text]
    start, end = max(brackets, key=lambda pair: pair[1] - pair[0])
    inner, deeper = text[start + 1 : end], margin + "    "
    parts = _parts(inner)
    if len(deeper) + len(inner) <= LONGEST:
        middle = [deeper + inner]
    elif len(parts) > 1:
        middle = _packed(parts, deeper)
    else:
        middle = broken(inner, deeper)
    return [margin + text[: start + 1], *middle, margin + text[end:]]


def _packed(parts: list[str], margin: str) -> list[str]:
    """Arguments one below the other; numbers side by side."""
    if not all(len(part) <= 24 and not set(part) & set("([{") for part in parts):
        return [line for part in parts for line in broken(part + ",", margin)]
    lines = [margin + parts[0] + ","]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 2 <= LONGEST:
            lines[-1] += f" {part},"
        else:
            lines.append(f"{margin}{part},")
    return lines


def _brackets(text: str) -> list[tuple[int, int]]:
    """The outermost brackets with something in them, but for those of an index."""
    found: list[tuple[int, int]] = []
    depth = start = 0
    for place, sign in enumerate(text):
        if sign in "([{":
            start = place if depth == 0 else start
            depth += 1
        elif sign in ")]}":
            depth -= 1
            index = text[start] == "[" and start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_)]")
            if depth == 0 and place > start + 1 and not index:
                found.append((start, place))
    return found


def _parts(text: str) -> list[str]:
    """What stands between the commas of a bracket. A comprehension and a key with its value stay together."""
    if " for " in text:
        return [text]
    parts: list[str] = []
    depth = start = 0
    for place, sign in enumerate(text):
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts
