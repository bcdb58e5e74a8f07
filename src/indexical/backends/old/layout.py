"""Statements → lines: unused values are left out, those used once are inlined, long lines are broken.

Every right-hand side is a value without effects, so that it may be moved down to its use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from ...engine.show.lines import LONGEST, brackets_of, plain, wrapped
from ...ir.functions import FUNCTIONS
from ...ir.types import Coordinate, Dtype
from ...records import dataclass, field, replace
from .code import (
    ATOM,
    Call,
    Comprehension,
    Index,
    Infix,
    Name,
    Node,
    Tuple,
    binding,
    names,
    parts,
    renamed,
    show,
    with_parts,
    within,
)

# A step that was moved to its use makes no line longer than this.
COMFORTABLE = 92
MOVED = 64

# A `temporary` may be moved to its use and renamed, an `assign` may only be left out; a `store` changes a part of its
# target; an `if`, `elif`, `else`, `for` or `def` opens a block of what stands further in; all else stays as it is.
Kind: TypeAlias = Literal[
    "temporary",
    "assign",
    "unpack",
    "store",
    "augment",
    "do",
    "return",
    "del",
    "if",
    "elif",
    "else",
    "for",
    "def",
    "raise",
    "comment",
    "blank",
]
OPENING = frozenset(("if", "elif", "else", "for", "def"))


@dataclass(frozen=True, slots=True)
class Statement:
    """One line before it is laid out: `target = code`, or what its kind says. Of a `for` loop, `code` is what it runs
    over, of a `def` its parameters; of a comment `target` is the text. `subject` is the definition that it is for, and
    `axes` and `dtype` are those of an array that gets a name."""

    indent: int
    block: int
    kind: Kind
    target: str = ""
    code: Node | None = None
    place: Node | None = None
    subject: str = ""
    axes: tuple[Coordinate, ...] | None = None
    dtype: Dtype | None = None
    # Found once, by `words`.
    read: tuple[str, ...] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(part for part in (self.place, self.code) if part is not None)

    @property
    def words(self) -> tuple[str, ...]:
        """The variables that are read here, as often as they are."""
        if self.read is None:
            found = tuple(word for part in self.nodes for word in names(part))
            object.__setattr__(self, "read", found)
            return found
        return self.read

    @property
    def shown(self) -> str:
        """The line, however long."""
        code = "" if self.code is None else show(self.code)
        match self.kind:
            case "temporary" | "assign":
                return f"{self.target} = {code}"
            case "store":
                assert self.place is not None
                return f"{show(self.place)} = {code}"
            case "unpack":
                assert self.place is not None
                assert self.code is not None
                return f"{_bare(self.place)} = {_bare(self.code)}"
            case "augment":
                return f"{self.target} += {code}"
            case "return":
                assert self.code is not None
                return f"return {_bare(self.code)}"
            case "del":
                assert isinstance(self.code, Tuple)
                return f"del {', '.join(map(show, self.code.items))}"
            case "if" | "elif":
                return f"{self.kind} {code}:"
            case "else":
                return "else:"
            case "for":
                return f"for {self.target} in {code}:"
            case "def":
                return f"def {self.target}{code}:"
            case "raise":
                return f"raise {code}"
            case "comment":
                return f"# {self.target}".rstrip()
            case "blank":
                return ""
            case _:
                return code


def _bare(code: Node) -> str:
    """Several values side by side, without the brackets of a tuple."""
    if isinstance(code, Tuple):
        return ", ".join(map(show, code.items)) + ("," if len(code.items) == 1 else "")
    return show(code)


Block: TypeAlias = "list[Statement | Block]"


def modules_of(statements: Iterable[Statement]) -> dict[str, None]:
    """The modules of which statements name a part."""
    return dict.fromkeys(word.partition(".")[0] for one in statements for word in one.words if "." in word)


def written(statements: Iterable[Statement]) -> list[str]:
    """Statements as lines."""
    return [line for statement in statements for line in _lines(statement)]


def arranged(statements: Iterable[Statement | Block], taken: set[str]) -> list[Statement]:
    """The statements of a function's body as they are written."""
    return _renamed(_merged(_moved(used(flattened(statements)))), taken)


def flattened(statements: Iterable[Statement | Block]) -> Iterable[Statement]:
    """Statements, and those of blocks among them."""
    for statement in statements:
        if isinstance(statement, Statement):
            yield statement
        else:
            yield from flattened(statement)


def used(statements: Iterable[Statement]) -> list[Statement]:
    """Without assignments that nothing reads, and without blocks in which nothing is left."""
    needed: set[str] = set()
    kept: list[Statement] = []
    for statement in reversed(list(statements)):
        if statement.kind in ("temporary", "assign") and statement.target not in needed:
            continue
        if statement.kind in OPENING and not (kept and kept[-1].indent > statement.indent):
            continue
        kept.append(statement)
        needed.update(statement.words)
        if statement.kind == "augment":
            needed.add(statement.target)
    return kept[::-1]


# ------------------------------------------------------------- moving to the use


def _moved(statements: list[Statement]) -> list[Statement]:
    """Inline what is used once in its own block, where the line stays short enough."""
    words = [list(statement.words) for statement in statements]
    uses = Counter(word for read in words for word in read)
    reads = [set(read) for read in words]
    current: list[Statement | None] = [*statements]
    for number, statement in enumerate(statements):
        step = current[number]
        if step is not None and statement.kind == "temporary" and uses[statement.target] == 1:
            user = _user(current, reads, number)
            if user is not None:
                using = current[user]
                assert using is not None
                moved = _put(using, step)
                if moved is not None:
                    current[user], current[number] = moved, None
                    reads[user] = (reads[user] - {step.target}) | reads[number]
    return [statement for statement in current if statement is not None]


def _user(statements: list[Statement | None], reads: list[set[str]], number: int) -> int | None:
    """The statement that uses another one's target, where nothing that it reads changes in between."""
    step = statements[number]
    assert step is not None
    for place in range(number + 1, len(statements)):
        statement = statements[place]
        if statement is None:
            continue
        if step.target in reads[place]:
            return place if statement.block == step.block and not any(map(_repeats, statement.nodes)) else None
        if statement.kind in ("store", "augment") and statement.target in reads[number]:
            return None
        if statement.indent < step.indent:
            return None
    return None


def _repeats(code: Node) -> bool:
    """Whether a part of this is computed again and again."""
    waiting = [code]
    while waiting:
        code = waiting.pop()
        if isinstance(code, Comprehension):
            return True
        waiting += parts(code)
    return False


def _put(user: Statement, step: Statement) -> Statement | None:
    """A step in the place of its name; None where that would be hard to read."""
    assert step.code is not None
    if user.code == Name(step.target) and user.kind in ("temporary", "assign", "store"):
        return replace(user, code=step.code)
    if len(show(step.code)) > MOVED:
        return None
    place, code = (part and _placed(part, step.target, step.code) for part in (user.place, user.code))
    if (place is None) != (user.place is None) or (code is None) != (user.code is None):
        return None
    moved = replace(user, place=place, code=code)
    shown = moved.shown
    width = 4 * user.indent + len(shown) - 2 * shown.count("__")
    return moved if width <= COMFORTABLE else None


_WRITES_OVER = {row.torch.call: f"{row.torch.call}_" for row in FUNCTIONS.values() if row.torch.in_place}
_FRESH = frozenset(("torch.addmm", "torch.addmv", "torch.addcmul"))


def _placed(code: Node, target: str, step: Node) -> Node | None:
    """The code with a step in the place of its name; None where an index would stand behind brackets."""
    match code:
        case Name(text):
            return step if text == target else code
        case Call(Name(function), (Name(text),), ()) if text == target and function in _WRITES_OVER and _is_fresh(step):
            return Call(Name(_WRITES_OVER[function]), (step,))  # a new array, used here alone: PyTorch writes over it
        case Index(Name(text)) if text == target and binding(step) < ATOM:
            return None
    for at, part in enumerate(before := parts(code)):
        placed = _placed(part, target, step)
        if placed is not part:  # It is read once.
            return placed and with_parts(code, (*before[:at], placed, *before[at + 1 :]))
    return code


def _is_fresh(code: Node) -> bool:
    return isinstance(code, Call) and isinstance(code.function, Name) and code.function.text in _FRESH


# ------------------------------------------------------------------------ names


def _merged(statements: list[Statement]) -> list[Statement]:
    """The statements without `x = y`, where `y` is made in this block for that alone: it is called `x` at once."""
    places: dict[str, list[int]] = {}
    for number, statement in enumerate(statements):
        for word in {statement.target, *statement.words}:
            places.setdefault(word, []).append(number)
    found: dict[str, str] = {}
    touched: set[str] = set()
    for number, statement in enumerate(statements):
        if statement.kind == "assign" and isinstance(statement.code, Name):
            pair = statement.code.text, statement.target
            if touched.isdisjoint(pair) and _is_made_for(number, pair[0], statements, places):
                found[pair[0]] = pair[1]
                touched.update(pair)
    if not found:
        return statements
    copies = set(found.items())
    kept = [each for each in statements if (getattr(each.code, "text", None), each.target) not in copies]
    return _merged([_with_names(each, found) if found.keys() & {each.target, *each.words} else each for each in kept])


def _is_made_for(number: int, source: str, statements: list[Statement], places: Mapping[str, list[int]]) -> bool:
    """Whether a variable is assigned in the block of the copy of it that stands here, read there alone, and nothing
    has read the copy's own name yet."""
    copy, first = statements[number], places[source][0]
    made = [statements[place] for place in places[source][:-1]]
    earlier = [place for place in places[copy.target] if place < number]
    return (
        places[source][-1] == number
        and bool(made)
        and all(each.kind in ("temporary", "assign") and source not in each.words for each in made)
        and all(place < first and copy.target not in statements[place].words for place in earlier)
        and all(each.indent >= copy.indent and each.kind != "def" for each in statements[first:number])
    )


def _renamed(statements: list[Statement], taken: set[str]) -> list[Statement]:
    """The statements with short names for the steps that stayed: `scores`, `scores_2`, …"""
    known = taken | {word for statement in statements for word in statement.words}
    known |= {statement.target for statement in statements if statement.kind != "comment"}
    found: dict[str, str] = {}
    last: dict[str, int] = {}
    for statement in statements:
        if statement.kind == "temporary":
            base = statement.target.rsplit("__", 1)[0]
            number = last.get(base, 1)
            name = base if number == 1 else f"{base}_{number}"
            while name in known:
                number += 1
                name = f"{base}_{number}"
            known.add(name)
            found[statement.target] = name
            last[base] = number
    return [_with_names(statement, found) for statement in statements] if found else statements


def _with_names(statement: Statement, known: Mapping[str, str]) -> Statement:
    if known.keys().isdisjoint((statement.target, *statement.words)):
        return statement
    place = None if statement.place is None else renamed(statement.place, known)
    code = None if statement.code is None else renamed(statement.code, known)
    return replace(statement, target=known.get(statement.target, statement.target), code=code, place=place)


# ------------------------------------------------------------------------ lines


def _lines(statement: Statement) -> list[str]:
    margin = "    " * statement.indent
    if statement.kind == "blank":
        return [""]
    if statement.kind == "comment":
        return wrapped(margin + statement.shown)
    if (
        statement.kind in ("if", "elif")
        and isinstance(statement.code, Infix)
        and len(margin + statement.shown) > LONGEST
    ):
        return _condition(statement.kind, statement.code, margin)
    return broken(statement.shown, margin)


def _condition(kind: Kind, code: Infix, margin: str) -> list[str]:
    """A long condition in brackets, each part on a line of its own."""
    first, *others = _operands(code, code.op)
    level = binding(code) + 1
    parts = [within(first, level), *(f"{code.op} {within(part, level)}" for part in others)]
    return [f"{margin}{kind} (", *(f"{margin}    {part}" for part in parts), f"{margin}):"]


def _operands(code: Node, op: str) -> list[Node]:
    """The operands of a chain with one sign between them."""
    if isinstance(code, Infix) and code.op == op:
        return [*_operands(code.left, op), code.right]
    return [code]


def broken(text: str, margin: str) -> list[str]:
    """A statement on several lines where one is too long: the largest bracket is opened."""
    if len(margin) + len(text) <= LONGEST:
        return [margin + text]
    if text.startswith("return ") and len(_parts(text)) > 1:
        text = f"return ({text.removeprefix('return ')})"
    brackets = list(brackets_of(text))
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


def _parts(text: str) -> list[str]:
    """Split the inside of a bracket at its commas. A comprehension and a key with its value stay together."""
    signs = plain(text)
    if " for " in signs:
        return [text]
    parts: list[str] = []
    depth = start = 0
    for place, sign in enumerate(signs):
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts
