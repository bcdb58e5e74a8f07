"""All figures of a text: in prose, in code and formulas, and in lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..records import replace
from .forms import VULGAR
from .plain import CODE, END, MARK, MATH, QUOTED, Plain
from .spellings import (
    ENDLESS,
    MINUS,
    MIXED,
    MONEY,
    NUMBER,
    QUOTIENT,
    SIDES,
    SPACE,
    TEN,
    Figure,
    Item,
    Listed,
    Odd,
    exact_claim,
    figure_of,
    in_words,
    infinite,
    one_in,
    reason_for,
)

_BEFORE = re.compile(rf"(?P<relation>>=|<=|(?<![-=−])>|[<≤≥≈~∼≃≅≲≳{QUOTED}])\s*$")
# What may follow a number; other signs make it another thing: `12k`, `1.2.3`, `3:45`, `0.46²`.
_FOLLOWED = re.compile(r"\w|[.:/^'’][0-9(^√π]|,[0-9]|…|√|\s?[/⁄]\s?[0-9]")
# `0.457 12`, as some write many digits.
_GROUPS = re.compile(rf"(?:{SPACE}[0-9]{{3}}(?![0-9.,]))*{SPACE}[0-9]{{1,3}}(?![0-9.,%])")
_SEPARATED = re.compile(r",[0-9]*\.[0-9]")
# What belongs to something before it: to a product, a sum, a range, or a sign that stands apart.
_EXPRESSION = re.compile(
    rf"(?:[\w)%]{SPACE}?[×·⋅*/÷^]|[0-9)%]{SPACE}?[−+]|[0-9]{SPACE}?[xX]|[0-9][{MINUS}]|[±∓]|\w{SPACE}−(?={SPACE})){SPACE}?\(?$"
    rf"|{MATH}\s*[{MINUS}]\s*{END}$|[=≈~∼<>≤≥(\[,;:]{SPACE}*[{MINUS}]{SPACE}$"
    rf"|[\w)%]{SPACE}[{MINUS}]{SPACE}$|(?i:\b(?:minus|negative|plus|times)|[0-9]{SPACE}over){SPACE}$|(?:^|[\s(=]){SPACE}*—$|(?:[≠≪≫∝]=?|!=)\s*$"
)
_BELONGS = "it belongs to what stands before it: put what comes out behind =, a sign by it"
# The lower end of a range, before the upper one: `between 0.4 and 0.5`, `0.4 < w < 0.5`.
_BETWEEN = re.compile(r"(?i)\bbetween\s+\S+\s+and\s+$|[0-9]\s*[<>≤≥]=?\s*[^\W\d][^<>≤≥]{0,12}[<>≤≥]=?\s*$")
# Roots and multiples of π, which prose has as code has them.
_ROOT = re.compile(rf"[{MINUS}]?(?:[0-9]+{SPACE}?)?(?:√(?:[0-9]+|\([^()]*\))|π)(?:[·*/^][0-9√π]+)*")
# Lists are not nested deeper than this.
_DEEPEST = 32
_GOES_ON = re.compile(
    rf"(?:[^\s,;|{CODE}{MATH}{END}]|,(?=[0-9]))*(?:[^\s,;.|!?)\]*_{CODE}{MATH}{END}])"
)
# So far back is looked for what belongs to a number.
_BACK = 40
_WORD = re.compile(rf"[^\W\d_](?:\w|{MARK})*(?:\^\([^()]*\))?|_+")


def figures_in(plain: Plain) -> list[Item]:
    """All figures and lists of a text, in their order; what looks like one and is none is odd."""
    return list(_scanned(plain, 0, len(plain.text)))


def _scanned(plain: Plain, first: int, last: int) -> Iterator[Item]:
    text, at = plain.text, first
    while at < last:
        sign = text[at]
        if sign in (CODE, MATH):
            closing = text.find(END, at)
            closing = last if closing < 0 else closing
            before = text[max(0, at - _BACK) : at]
            apart = _EXPRESSION.search(before) or before.endswith(tuple(MINUS))
            for item in _region(plain, at, closing):
                yield Odd(item.start, item.end, _BELONGS) if apart and isinstance(item, Figure) else item
            at = closing + 1
            continue
        found: Item | None = None
        end = at + 1
        if sign in "[(":
            found, end = _bracket(plain, at, last)
        elif sign.isdigit() or sign in VULGAR or sign in f".∞√π{MINUS}+{MONEY}":
            found, end = _number_at(plain, at, last)
        else:
            word = _WORD.match(text, at)
            end = word.end() if word is not None else end
            if word is not None and word[0] == "masked":
                found = Figure(plain.starts[at], plain.ends[end - 1], "masked")
        if found is not None:
            yield found
        at = end


def _number_at(plain: Plain, at: int, last: int) -> tuple[Item | None, int]:
    """The number that begins here, and where it ends; None for signs that begin none."""
    text, before = plain.text, plain.text[max(0, at - _BACK) : at]
    if text[at] in f"{MINUS}+." and re.search(r"[\w)\]%]$", before):
        return None, at + 1
    endless = ENDLESS.match(text, at, last)
    if endless is not None:
        return infinite(endless, plain.starts[at], plain.ends[endless.end() - 1], False), endless.end()
    exact = next((m for m in (p.match(text, at, last) for p in (_ROOT, QUOTIENT, MIXED, TEN)) if m is not None), None)
    found = exact or NUMBER.match(text, at, last)
    if found is None:
        return (None, at + 1) if not text[at].isdigit() else _odd(plain, at, at + 1, "")
    end = found.end()
    if _FOLLOWED.match(text, end) and not _SEPARATED.match(text, end):
        return _odd(plain, at, end, "")
    grouped = _GROUPS.match(text, end) if re.search(r"[.,][0-9]{3}$", found[0]) else None
    if grouped is not None:
        return _odd(plain, at, grouped.end(), "this may be one number or two: write its digits without spaces")
    if _EXPRESSION.search(before) or _is_glued(before):
        return _odd(plain, at, end, _BELONGS)
    if _BETWEEN.search(before):
        return _odd(plain, at, end, "a range is no figure")
    relation = _relation(before)
    if exact is not None:
        claim = exact_claim(exact[0])
        start, stop = plain.part(at, end).span
        if claim is None or re.search(r"[0-9][ \u00a0]$", before):
            return _odd(plain, at, end, "this may be a sum or two figures: write 3/2")
        if relation and relation in "<=>=≤≥≲≳":
            return _odd(plain, at, end, "a bound is written as a decimal")
        return Figure(start, stop, claim), end
    return figure_of(plain, found, relation, False), end


def _relation(before: str) -> str:
    """What is said of a number right before it, in a sign or in words."""
    said = _BEFORE.search(before)
    if said is not None:
        return "" if re.search(r"[0-9%]\s*$", before[: said.start()]) else said["relation"]
    return in_words(before)


def _is_glued(before: str) -> bool:
    """Whether what stands right before a number, with no space between, makes it a part of something else."""
    if before.endswith((".", ",")):
        return not before[-2:-1].isalpha() and not (before.endswith(",") and before[-2:-1].isalnum())
    if before[-1:].isalnum() or before.endswith(tuple("×·⋅^√%∞±∓…\\/")):
        return True
    opened = before.rstrip("([{\"'“‘*_")
    if opened != before:
        return opened[-1:].isdigit() or opened.endswith(tuple(f".%∞…{END}"))
    return before.endswith(END) or (before.endswith((")", "]", "}")) and any(s.isdigit() for s in before.split()[-1]))


def _odd(plain: Plain, at: int, end: int, reason: str) -> tuple[Odd, int]:
    """What begins like a number and goes on as something else, up to the next space."""
    more = _GOES_ON.match(plain.text, end)
    end = end if more is None else more.end()
    found = plain.part(at, end)
    return Odd(*found.span, reason or reason_for(found.text)), end


def _region(plain: Plain, at: int, closing: int) -> Iterator[Item]:
    """The figures of code or a formula: what stands behind its last `=`, of each of its lines and parts."""
    inside, kind = plain.part(at + 1, closing), plain.text[at]
    whole = _piece(inside, kind)
    if isinstance(whole, Odd) and kind == CODE:
        inside = _opened(inside)
    parts = [found for part in _parts(inside, _PIECES) if (found := _piece(part, kind)) is not None]
    if len(parts) > 1 and (whole is None or isinstance(whole, Odd) or not any(isinstance(part, Odd) for part in parts)):
        yield from parts
    elif isinstance(whole, Odd) and kind == CODE:
        yield from _lists(plain, at + 1, closing) or [whole]
    elif whole is not None:
        yield whole


# Between two pieces: a comma, a new line, or a space in `a = 0.46 b = -1.08`.
_PIECES = r"[,;](?=\s)|\n|(?<=[0-9)\]%])\s+(?=[^\W\d]\w*(?:\[[0-9]+\])?\s?(?:=[^=]|:\s))"


def _opened(plain: Plain) -> Plain:
    """What stands in a dict or a tuple, as Python prints it."""
    text = plain.text
    is_one = text[:1] in ("{", "(") and _closing(text, 0, len(text)) == len(text) - 1
    return plain.part(1, len(text) - 1) if is_one else plain


def _lists(plain: Plain, at: int, last: int) -> list[Item]:
    """The lists of a dict or a tuple, as Python prints it."""
    found: list[Item] = []
    while (at := plain.text.find("[", at, last)) >= 0:
        each, end = None, at + 1
        if _BEFORE_LIST.search(plain.text[max(0, at - _BACK) : at]):
            each, end = _bracket(plain, at, last)
        found += [each] if isinstance(each, Listed) else []
        at = end
    return found


def _piece(plain: Plain, kind: str) -> Item | None:
    sides = _parts(plain, SIDES.pattern)
    side = next((side for side in reversed(sides) if side.text), None)
    if side is None:
        return None
    listed = _whole_list(side, kind == CODE)
    if listed is not None:
        return listed
    if kind == CODE and _SCALAR.fullmatch(side.text):
        return _cell(side)
    cells, spaced = _row(side)
    spaced = spaced and kind == CODE and not any(isinstance(cell, Odd) for cell in cells)
    if spaced and _APART.search(side.text):
        return Listed(*side.span, tuple(cells))
    marked = Plain(kind + plain.text, [plain.span[0], *plain.starts], [plain.span[0], *plain.ends])
    found = one_in(marked, words=True)
    if not isinstance(found, Odd):
        return found
    if spaced:
        return Listed(*side.span, tuple(cells))
    return replace(found, digits=False) if re.search(r"[^\W\d]|[()\[\]]", side.text) else found


def _parts(plain: Plain, pattern: str) -> list[Plain]:
    """The parts of a text between separators that stand in no bracket."""
    parts, first, depth = [], 0, 0
    found = re.compile(pattern)
    at = 0
    while at < len(plain.text):
        depth += (plain.text[at] in "([{") - (plain.text[at] in ")]}")
        cut = found.match(plain.text, at) if depth <= 0 else None
        if cut is not None and cut.end() > at:
            parts.append(plain.part(first, at))
            at = first = cut.end()
            continue
        at += 1
    return [*parts, plain.part(first, len(plain.text))]


# -------------------------------------------------------------------------- lists

_PASTED = re.compile(r"(?:(?:\w+\.)*(?:tensor|\w*[aA]rray|matrix|Parameter|list|tuple)\()*")
# What may stand before a list among other things: its name in a dict, the commas of a tuple, the call that makes it.
_BEFORE_LIST = re.compile(rf"(?:^|[\s:,{{=]|(?<!\w)\(|(?<!\w){_PASTED.pattern[:-1]})$")
# `0.46 -1.08`, as Python prints two numbers; `0.46 - 1.08` is a difference.
_APART = re.compile(r"[0-9.]\s+-[0-9.]")
_SCALAR = re.compile(r"(?:\w+\.)*(?:tensor|[aA]rray|[bu]?float\d*|u?int\d*)\(([^()\[\],]*)(?:,[^()]*)?\)")
_CLOSES = {"[": "]", "(": ")", "{": "}"}


def _closing(text: str, at: int, last: int) -> int | None:
    """The place of the bracket that closes the one here."""
    depth = 0
    for n in range(at, last):
        depth += (text[n] in "([{") - (text[n] in ")]}")
        if not 0 < depth <= _DEEPEST:
            return n if not depth else None
    return None


def _bracket(plain: Plain, at: int, last: int) -> tuple[Item | None, int]:
    """The list that begins here, and where it ends. `w[2]` is an element, and none."""
    text = plain.text
    closing = _closing(text, at, last)
    if closing is None:
        return None, at + 1
    if text[at] == "[" and at and (text[at - 1].isalnum() or text[at - 1] in f"_{MARK}"):
        return None, closing + 1
    if text[at] == "(":
        grouped = NUMBER.match(text, at, last)
        if grouped is not None and grouped["digits1"] is not None:
            return figure_of(plain, grouped, "", False), grouped.end()
        inside = text[at + 1 : closing]
        is_tuple = "," in inside and (inside.count(",") > 1 or re.search(r",\s", inside))
        if not is_tuple or (at and text[at - 1].isalnum()):
            return None, at + 1
    pasted = bool(re.search(r"[\w.]\($", text[max(0, at - _BACK) : at]))
    found = _list(plain, at, closing, pasted)
    return (None, at + 1) if found is None else (found, closing + 1)


def _whole_list(plain: Plain, is_code: bool) -> Listed | None:
    """A text that is one list, with `tensor(…)` or parentheses around it."""
    text = plain.text.rstrip(" .,;")
    start = _PASTED.match(text)
    assert start is not None
    at = start.end()
    while text.startswith("(", at) and text[at + 1 :].lstrip().startswith(("[", "(")):
        at += 1 + len(text[at + 1 :]) - len(text[at + 1 :].lstrip())
    if not text.startswith(("[", "("), at) or (text.startswith("(", at) and "," not in text):
        return None
    closing = _closing(text, at, len(text))
    if closing is None or not re.fullmatch(r"(?:,[^\[\]]*)?\s*[)>\s]*", text[closing + 1 :]):
        return None
    return _list(plain, at, closing, bool(start[0]) if is_code else None)


def _list(plain: Plain, at: int, closing: int, pasted: bool | None) -> Listed | None:
    """The list between two brackets; None where what stands there is no list of figures. It is `pasted` where a library
    printed it, and None of a formula never is."""
    start, end = plain.starts[at], plain.ends[closing]
    inside = plain.part(at + 1, closing)
    items: list[Any] = []
    if "[" in inside.text or re.search(r"^\(.*,", inside.text, re.DOTALL):
        for part in _nested(inside):
            if part is None:
                return None
            first = part.text[:1]
            if first in _CLOSES and part.text.endswith(_CLOSES[first]):
                items.append(_list(part, 0, len(part.text) - 1, pasted))
            else:
                items.append(one_in(part, listed=True))
        if items and isinstance(items[-1], Listed) and not items[-1].items and len(items) > 1:
            items.pop()  # LaTeX may end the last row as all others.
    else:
        rows = _parts(inside, ";")
        cells = [_row(row) for row in rows]
        if len(rows) > 1 and any(len(found) > 1 for found, _ in cells):
            items = [Listed(*row.span, tuple(found)) for row, (found, _) in zip(rows, cells, strict=True)]
        else:
            items = [cell for found, _ in cells for cell in found]
        pasted = pasted if pasted is None else pasted or any(spaced for _, spaced in cells)
    found = Listed(start, end, tuple(items))
    known = [cell for cell in found.cells if isinstance(cell, Figure)]
    if not known:
        return found if not inside.text else None
    return _padded(found) if pasted else found


def _nested(inside: Plain) -> Iterator[Plain | None]:
    """The lists of a list; None for what stands between two of them and is no separator."""
    at = 0
    text = inside.text
    while at < len(text):
        if text[at] in ",; \n\t\r":
            at += 1
            continue
        if text[at] in _CLOSES:
            closing = _closing(text, at, len(text))
            if closing is None:
                yield None
                return
            yield inside.part(at, closing + 1)
            at = closing + 1
            continue
        if text.startswith(("…", "..."), at):
            size = 1 if text[at] == "…" else 3
            yield inside.part(at, at + size)
            at += size
            continue
        yield None
        return


def _row(row: Plain) -> tuple[list[Figure | Odd | None], bool]:
    """The cells of a row, and whether spaces alone stand between them."""
    if not row.text:
        return [], False
    parts = _parts(row, ",")
    spaced = len(parts) == 1 and bool(re.search(r"\S\s+\S", row.text))
    spaced = spaced and (isinstance(_cell(row), Odd) or bool(_APART.search(row.text)))
    if spaced:
        parts = _parts(row, r"\s+")
    return [_cell(part) for part in parts], spaced


def _cell(plain: Plain) -> Figure | Odd | None:
    """A cell of a list; libraries may print it as `np.float64(0.46)`."""
    scalar = _SCALAR.fullmatch(plain.text)
    return one_in(plain if scalar is None else plain.part(scalar.start(1), scalar.end(1)), listed=True)


def _padded(found: Listed) -> Listed:
    """A list as a library prints it: to as many places as its longest figure has, with zeros at the end left out."""
    known = [cell for cell in found.cells if isinstance(cell, Figure) and cell.spelling is not None]
    pointed = [cell for cell in known if "." in cell.claim and "e" not in cell.claim and "±" not in cell.claim]
    if not pointed:
        return found
    places = [cell.spelling.places for cell in pointed if cell.spelling]
    most = max(places) if min(places) else max(2, *places)

    def padded(item: Any) -> Any:
        if isinstance(item, Listed):
            return replace(item, items=tuple(map(padded, item.items)))
        if item in pointed:
            missing = "0" * (most - item.spelling.places)
            return replace(item, claim=item.claim + missing, spelling=replace(item.spelling, places=most))
        return item

    return replace(found, items=tuple(map(padded, found.items)))
