"""Figures as people print them: one table of spellings, for prose, rows, tables, lists and formulas.

What is spelled in none of these ways is an `Odd`, with the reason: it is never passed over, and never taken for another
number.
"""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal, InvalidOperation, localcontext
from typing import Any

from ..records import dataclass
from .forms import VULGAR, form, to_latex
from .plain import CODE, END, FRACTION, MATH, QUOTED, Plain


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a number is written: the places of its digits, its sign and its power of ten, and the signs between."""

    number: Decimal
    places: int
    shift: int
    digits: tuple[int, int]
    sign: tuple[int, int]
    power: tuple[int, int] | None
    point: str
    grouping: str
    raised: bool

    @property
    def unit(self) -> Decimal:
        """One unit of the last digit."""
        return Decimal(1).scaleb(self.shift - self.places)


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as it is printed, from `start` up to `end` of the page, and what it claims: the right side of an
    `expect`. `relation` is `>` and the like, `…` for digits that go on, or the sign of a quotation in front of it,
    which may be meant as `>`."""

    start: int
    end: int
    claim: str
    relation: str = ""
    spelling: Spelling | None = None
    is_formula: bool = False


@dataclass(frozen=True, slots=True)
class Odd:
    """What stands where a figure should, and is read as none. With `digits` it looks like one."""

    start: int
    end: int
    reason: str
    digits: bool = True


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of figures, or of lists; None is a cell that claims nothing."""

    start: int
    end: int
    items: tuple[Listed | Figure | Odd | None, ...]

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The lengths, from the outside; None where rows differ."""
        shapes = {item.shape if isinstance(item, Listed) else () for item in self.items}
        inner = shapes.pop() if len(shapes) == 1 else None
        return None if inner is None else (len(self.items), *inner)

    @property
    def cells(self) -> list[Figure | Odd | None]:
        found: list[Figure | Odd | None] = []
        for item in self.items:
            found += item.cells if isinstance(item, Listed) else [item]
        return found


Item = Figure | Odd | Listed

# --------------------------------------------------------------------- spellings

THIN = "\u00a0\u2007\u2009\u202f"
SPACE = f"[ {THIN}]"
MINUS = "-−–‑‐﹣－"
MONEY = "$€£¥₹"
_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"
# The digits of a number; `listed` are those among others, where a comma or a space comes between two of them.
_LISTED_DIGITS = (
    rf"[0-9]{{1,3}}(?:[{THIN}'’][0-9]{{3}})+(?:\.[0-9]+)?",
    r"[0-9]+(?:_[0-9]{3})+(?:\.[0-9]+)?",
    r"[0-9]+\.[0-9]+",
    r"\.[0-9]+",
    r"[0-9]+\.(?![0-9.])",
    r"[0-9]+",
)
_DIGITS = (
    r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?",
    r"[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}(?![0-9])(?:\.[0-9]+)?",
    rf"[1-9][0-9]{{0,2}}(?:[ {THIN}'’][0-9]{{3}})+(?:[.,][0-9]+)?",
    r"[1-9][0-9]{0,2}(?:\.[0-9]{3})+,[0-9]+",
    r"[1-9][0-9]{0,2}(?:\.[0-9]{3}){2,}",
    r"[0-9]+,[0-9]+",
    *_LISTED_DIGITS[1:4],
    _LISTED_DIGITS[5],
)
_POWER = (
    rf"(?:[eE](?P<e{{n}}>[-−+]?[0-9]+)|{SPACE}?[×·⋅∙*xX]{SPACE}?10"
    rf"(?:\^\(?(?P<power{{n}}>[{MINUS}+]?[0-9]+)\)?|(?P<raised{{n}}>[⁺⁻]?[{_RAISED}]+)))"
)
_PARTS = rf"{SPACE}?(?P<parts{{n}}>%|‰|per ?cent\b)"
_SIGN = rf"(?P<sign{{n}}>[{MINUS}+])?(?P<money{{n}}>[{MONEY}]{SPACE}?)?"
_WITHIN = r"\s?(?:±|\+/-|\+-)\s?"


def _pattern(digits: tuple[str, ...]) -> str:
    """A number, with all that may belong to it: in parentheses where a power of ten or a percent sign follows."""
    numeral = "|".join(digits)
    tolerance = rf"(?:{_WITHIN}(?P<within{{n}}>(?:{numeral})(?:[eE][-+−]?[0-9]+)?))"
    plain = (
        rf"{_SIGN}(?P<digits{{n}}>{numeral})(?:(?P<goes_on{{n}}>…|\.\.\.)|\((?P<last{{n}}>[0-9]{{1,2}})\))?{_POWER}?"
        rf"(?:{_PARTS})?{tolerance}?(?:{_PARTS.replace('parts', 'after')})?"
    )
    grouped = rf"\(\s?{_SIGN}(?P<digits{{n}}>{numeral}){tolerance}\s?\)(?:{_POWER}|{_PARTS})"

    def numbered(pattern: str, n: int) -> str:
        return re.sub(r"\{n\}", str(n), pattern)

    return f"(?:{numbered(grouped, 1)}|{numbered(plain, 2)})"


NUMBER = re.compile(_pattern(_DIGITS))
_IN_LIST = re.compile(_pattern(_LISTED_DIGITS))
QUOTIENT = re.compile(rf"[{MINUS}]?[0-9]+\s?[/⁄]\s?[0-9]+")
MIXED = re.compile(rf"(?P<sign>[{MINUS}])?(?:(?P<whole>[0-9]+)[ \u00a0\u2009]?)?(?P<rest>[{''.join(VULGAR)}])")
TEN = re.compile(rf"10(?:\^\(?[{MINUS}+]?[0-9]+\)?|[⁺⁻]?[{_RAISED}]+)")
ENDLESS = re.compile(rf"(?P<sign>[{MINUS}+])?(?:∞|inf(?:inity)?\b)", re.IGNORECASE)
SIDES = re.compile(r"(?<![-=−])>=?|<=?(?!-)|[≤≥≲≳]|(?<![<>!=:≠])==?(?![=>])|:=|[≈≃≅∼→⇒≡]|->|=>|(?<=\s)~|:(?=\s|$)")
# What may stand behind a figure in its cell: signs, and a remark in parentheses that has no number in it.
_REMARK = re.compile(rf"\s*[{re.escape(MONEY)}*†‡§¶.,;↑↓→✓✔✗✘★☆]*(?:\s*\([^()0-9]*\))?")
_BOUNDS = (">", "<", ">=", "<=", "≥", "≤", "≳", "≲")
_NEARLY = "≈~∼≃≅"
# What is said of a number in words, longer ones first.
_IN_WORDS = {
    "≤": r"(?:no|not) (?:more|greater|larger|higher) than|at most|up to",
    "≥": r"(?:no|not) (?:less|smaller|lower|fewer) than|at least",
    ">": r"(?:more|greater|larger|higher) than|above|exceeds",
    "<": r"(?:less|smaller|lower|fewer) than|below",
    "≈": r"about|approximately|approx\.|roughly|around|circa|ca\.|nearly|almost",
}
_WORDS = re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(f'({words})' for words in _IN_WORDS.values())})\s+$")
# Signs that may stand around a figure, and say nothing of it.
AROUND = f" \t\n\r*_\"'“”„‘’«»()[]{{}},;:.≈~=!?†‡§¶{MONEY}{CODE}{MATH}{END}{QUOTED}{THIN}"
NOTHING = re.compile(r"[-–—−\s*_`]*|[·.]")
_DIGIT = re.compile("[0-9]")
# More than this is no figure that anybody prints.
MOST_TENS = 9999


def in_words(before: str) -> str:
    """The relation that words right before a number say; "" for none."""
    words = _WORDS.search(before)
    return "" if words is None or words.lastindex is None else list(_IN_WORDS)[words.lastindex - 1]


def _groups(found: re.Match[str]) -> dict[str, tuple[str, int, int]]:
    """The named parts of a number that are there, each with its place."""
    parts = {}
    for name in found.re.groupindex:
        if found[name] is not None:
            parts[name.rstrip("12")] = (found[name], found.start(name), found.end(name))
    return parts


def figure_of(plain: Plain, found: re.Match[str], relation: str, is_formula: bool) -> Figure | Odd:
    """A number, and what it claims."""
    parts = _groups(found)
    start, end = plain.part(found.start(), found.end()).span
    text, first, last = parts["digits"]
    digits, point, grouping = _decimal(text)
    digits = re.sub("^0+(?=[0-9])", "", digits)
    sign = parts.get("sign", ("", found.start(), found.start()))[0]
    power = parts.get("e") or parts.get("power") or parts.get("raised")
    tens = int(power[0].translate(_ASCII)) if power else 0
    percent = parts.get("parts", parts.get("after", ("",)))[0]
    shift = tens - (0 if not percent else 3 if percent == "‰" else 2)
    if abs(shift) > MOST_TENS:
        return Odd(start, end, "its power of ten is beyond all that is printed")
    if "after" in parts and "parts" not in parts and "within" in parts and not _alike(parts["within"][0], text):
        return Odd(start, end, "the percent sign may be that of the tolerance alone: write (45.7 ± 0.1) %")
    places = len(digits.partition(".")[2])
    number = Decimal(("-" if sign and sign in MINUS else "") + digits)
    with localcontext(prec=100_000):
        number = number.scaleb(shift)
    at = ("sign" in parts and parts["sign"][1:]) or (first, first)
    spelling = Spelling(
        number,
        places,
        shift,
        (plain.starts[first], plain.ends[last - 1]),
        (plain.starts[at[0]], plain.ends[at[1] - 1]) if at[1] > at[0] else (start, start),
        None if power is None else (plain.starts[power[1]], plain.ends[power[2] - 1]),
        point,
        grouping,
        "raised" in parts,
    )
    grouped = found["digits1"] is not None
    tolerance = _tolerance(parts, shift if grouped else shift - tens, shift - places)
    relation = "…" if "goes_on" in parts else relation
    if tolerance is None and relation in tuple(_NEARLY) and "." not in digits and not shift:
        # A whole number that is said to be near: half a unit of its last digit that is not 0.
        tolerance = Decimal(5).scaleb(len(digits) - len(digits.rstrip("0") or digits) - 1)
    relation = "" if relation in tuple(_NEARLY) else relation
    claim = _claim(spelling, digits, tolerance, "e" in parts and not percent)
    return Figure(start, end, claim, relation, spelling, is_formula)


def _alike(one: str, other: str) -> bool:
    """Whether two numbers are written to as many places, as in `45.7 ± 0.1 %`."""
    if "e" in one.lower():
        return False
    return len(_decimal(one)[0].partition(".")[2]) == len(_decimal(other)[0].partition(".")[2])


_ASCII = str.maketrans(f"−–‑‐﹣－{_RAISED}⁺⁻", "------" + "0123456789+-")


def _decimal(text: str) -> tuple[str, str, str]:
    """Digits as the language has them, and which signs were the decimal point and the sign between thousands."""
    marks = [sign for sign in text if not sign.isdigit()]
    if not marks:
        return text, ".", ""
    last = marks[-1]
    groups = re.split(r"\D", text)
    if last in ".," and (len(set(marks)) > 1 or len(marks) == 1):
        is_grouped = len(groups[-1]) == 3 and len(groups[0]) <= 3 and not text.startswith("0")
        if last == "." or len(set(marks)) > 1 or not is_grouped:
            whole = "".join(groups[:-1]) or "0"
            grouping = marks[0] if len(marks) > 1 else ""
            return f"{whole}.{groups[-1]}", last, grouping
    return "".join(groups), "," if last == "." else ".", last


def _tolerance(parts: dict[str, tuple[str, int, int]], shift: int, last: int) -> Decimal | None:
    """How far off a number may be: `0.457(1)` is off by one of its last digits."""
    if "last" in parts:
        return Decimal(int(parts["last"][0])).scaleb(last)
    if "within" in parts:
        digits, _, tens = parts["within"][0].lower().partition("e")
        return Decimal(_decimal(digits)[0]).scaleb(shift + int((tens or "0").translate(_ASCII)))
    return None


def _claim(spelling: Spelling, digits: str, tolerance: Decimal | None, is_literal: bool) -> str:
    """A number as the language has it. One that is scaled claims half a unit of its last digit, as one with a point,
    unless it is a literal of the language, `5e-3`, which is exact."""
    sign = "-" if spelling.number.is_signed() and spelling.number else ""
    literal = f"{sign}{digits}"
    if is_literal:
        literal = f"{literal}e{spelling.shift}"
    elif spelling.shift:
        literal = f"{literal}e{spelling.shift}"
        if "." not in digits and spelling.shift >= -20:
            literal = f"{spelling.number:f}" if spelling.shift < 0 else literal
        if "." not in digits and "." not in literal and tolerance is None:
            tolerance = spelling.unit / 2
    return literal if tolerance is None else f"{literal} ± {_plainly(tolerance)}"


def _plainly(number: Decimal) -> str:
    return f"{number:f}" if abs(number.adjusted()) < 40 else f"{number:E}".replace("E+", "e").replace("E", "e")


# -------------------------------------------------------------------- one figure


def one_in(plain: Plain, listed: bool = False, words: bool = False) -> Figure | Odd | None:
    """The figure that a cell of a table or a piece of a list is; None where it claims nothing. With `words` some may
    stand in front of it, and of `1/3 ≈ 0.333` it is the last."""
    is_formula = MATH in plain.text
    is_marked = is_formula or CODE in plain.text
    plain = plain.without(CODE + MATH + END)
    nearly = ""
    if words:
        sides = [found for found in SIDES.finditer(plain.text) if plain.text[found.end() :].strip()]
        if sides:
            nearly, side, first = sides[-1][0], plain.text[: sides[-1].start()], plain.part(0, sides[0].start())
            plain = plain.part(sides[-1].end(), len(plain.text))
            if nearly in _BOUNDS and re.search(r"[0-9)%]\s*$", side):
                return Odd(*plain.span, "it bounds the number before it")
            if nearly in _BOUNDS and sides[0][0] in _BOUNDS and sides[0] is not sides[-1] and _DIGIT.search(first.text):
                return Odd(first.span[0], plain.span[1], "a range is no figure")
    plain = plain.part(0, len(plain.text))
    if NOTHING.fullmatch(plain.text):
        return None
    start, end = plain.span
    text = plain.text
    if text.strip("*_") in ("masked", "(masked)"):
        return Figure(start, end, "masked", is_formula=is_formula)
    if text in ("true", "false", "True", "False"):
        return Figure(start, end, text.lower())
    endless = ENDLESS.fullmatch(_closed_up(plain).text)
    if endless is not None:
        return infinite(endless, start, end, is_formula)
    number = _whole_number(plain, listed, nearly, is_formula)
    if number is not None:
        return number
    exact = exact_claim(text)
    if exact is not None and nearly in _BOUNDS:
        return Odd(start, end, "a bound is written as a decimal")
    if exact is not None and (is_marked or not _SEVERAL.fullmatch(text)):
        return Figure(start, end, exact, is_formula=is_formula)
    if words:
        worded = re.match(r"(?:[^\W\d_]+[ \u00a0.]+)+(?=\S*\d)", text)
        if worded is not None and not re.search("minus|negative", worded[0], re.IGNORECASE):
            said = in_words(worded[0]) or nearly
            number = _whole_number(plain.part(worded.end(), len(text)), listed, said, is_formula)
            if number is not None:
                return number
    return Odd(start, end, reason_for(text), any(sign.isdigit() for sign in text))


def _whole_number(plain: Plain, listed: bool, nearly: str, is_formula: bool) -> Figure | Odd | None:
    """A text that is one number and signs that say nothing of it."""
    plain = _closed_up(plain)
    text = plain.text
    leading = re.match(rf"(?P<relation>>=|<=|[<>≤≥{_NEARLY}≲≳])?\s*", text)
    assert leading is not None
    relation = leading["relation"] or (nearly if nearly in (*_NEARLY, *_BOUNDS) else "")
    for opening, closing in (("", ""), *zip("(«“\"", ")»”\"", strict=True)):
        if text.startswith(opening, leading.end()):
            found = (_IN_LIST if listed else NUMBER).match(text, leading.end() + len(opening))
            rest = "" if found is None else text[found.end() :].strip()
            if found is not None and rest.startswith(closing) and _REMARK.fullmatch(rest, len(closing)):
                return figure_of(plain, found, relation, is_formula)
    return None


def _closed_up(plain: Plain) -> Plain:
    """`- 0.46` without its space: where nothing stands in front, the dash can be but a sign."""
    gap = re.match(rf"[<>≤≥=\s]*[{MINUS}+](?P<space>\s+)(?=[0-9.∞])", plain.text)
    if gap is None:
        return plain
    kept = [at for at in range(len(plain.text)) if not gap.start("space") <= at < gap.end("space")]
    text = "".join(plain.text[at] for at in kept)
    return Plain(text, [plain.starts[at] for at in kept], [plain.ends[at] for at in kept])


def exact_claim(text: str) -> str | None:
    mixed = MIXED.fullmatch(text)
    if mixed is not None:
        whole = f"({mixed['whole'] or 0}.0 + {form(mixed['rest'])})"
        return f"(-{whole})" if mixed["sign"] else whole
    return None if _UNSURE.search(text) else form(text)


# What may be a sum or two figures, `1 1/2`; a range, `3–5`; and a power or a note, `0.46²`.
_UNSURE = re.compile(
    rf"^[0-9]+\s+[0-9]+\s?[/⁄]|^[0-9.,]+[{MINUS}][0-9.,]+$|^(?!10[⁺⁻{_RAISED}])[0-9.,]+[⁺⁻{_RAISED}]+$"
)


# What is one number in code and in a formula, and may be two in a cell: `3 - 5`, `0.46 / 0.54`.
_SEVERAL = re.compile(rf"[0-9.,]+(?:\s*[{MINUS}+]\s*[0-9.,]+)+|[0-9]*\.[0-9]+\s*/.*|.*/\s*[0-9]*\.[0-9]+")


def infinite(found: re.Match[str], start: int, end: int, is_formula: bool) -> Figure:
    negative = (found["sign"] or "+") in MINUS
    return Figure(start, end, "masked" if negative else "1.0 / 0", is_formula=is_formula)


def reason_for(text: str) -> str:
    """Why a text is no figure, where that can be said."""
    for pattern, reason in _REASONS:
        if re.search(pattern, text, re.IGNORECASE):
            return reason
    return ""


_REASONS = (
    (r"\bnan\b", "what is no number cannot be claimed"),
    (r"…|\.\.\.", "figures are left out here"),
    (
        rf"[0-9]\s*[{FRACTION}{''.join(VULGAR)}]|^[0-9]+\s+[0-9]+\s?[/⁄]",
        "this may be a sum or a product: write 2.5 or 5/2",
    ),
    (rf"[0-9][{MINUS}][0-9]", "a range is no figure"),
    (rf"[0-9](?:[⁺⁻{_RAISED}]|\^)", "this may be a power or a note: write what it is, or the note apart"),
)


# ------------------------------------------------------------------------ writing


def respelled(figure: Figure, value: Any, text: str, offset: int) -> str | None:
    """The figure with the digits of a value in place of its own; None where it has no such spelling. `text` is that of
    the page from `offset` on."""
    if value.masked:
        return r"\text{masked}" if figure.is_formula else "masked"
    if isinstance(value.number, bool):
        word = str(value.number)
        return word if text[figure.start - offset].isupper() else word.lower()
    spelling = figure.spelling
    if spelling is None or value.symbols:
        canonical = str(value.canonical())
        plain = canonical.isascii() and "\\" not in text and "^" not in canonical
        return to_latex(canonical) if figure.is_formula and not plain else canonical
    if figure.relation not in ("", "…", QUOTED):
        return None
    try:
        written = _written(spelling, value, ROUND_DOWN if figure.relation == "…" else ROUND_HALF_EVEN)
    except (InvalidOperation, OverflowError, ValueError):
        return None
    if written is None:
        return None
    whole, part, tens, negative = written
    # The signs between its digits, as the page writes them: `&#8239;` and `{,}` too.
    between = re.findall(r"(?:&[^;\s]*;|[^0-9&])+", text[spelling.digits[0] - offset : spelling.digits[1] - offset])
    grouping = between[0] if spelling.grouping and between else ""
    point = between[-1] if between and between[-1:] != [grouping] else spelling.point
    groups = [whole[max(0, end - 3) : end] for end in range(len(whole), 0, -3)] if grouping else [whole]
    pieces = [(spelling.digits, grouping.join(reversed(groups)) + (f"{point}{part}" if part else ""))]
    if spelling.power is not None and tens is not None:
        pieces.append((spelling.power, _raised(tens) if spelling.raised else str(tens)))
    if negative != spelling.number.is_signed():
        pieces.append((spelling.sign, ("−" if spelling.raised else "-") if negative else ""))
    found, at = "", figure.start
    for (first, last), new in sorted(pieces):
        found += text[at - offset : first - offset] + new
        at = last
    return found + text[at - offset : figure.end - offset]


def _written(spelling: Spelling, value: Any, rounding: str) -> tuple[str, str, int | None, bool] | None:
    """The digits of a value, its power of ten where that changes, and whether it is negative."""
    near = Decimal(value.decimal(30 + spelling.places))
    with localcontext(prec=200 + spelling.places):
        scaled = near.scaleb(-spelling.shift)
        tens = None
        if spelling.power is not None and scaled and not 0 <= scaled.adjusted() < 1:
            # The power of ten is another one: the percent sign, if there is one, stays.
            moved = scaled.adjusted()
            scaled = scaled.scaleb(-moved)
            tens = moved + spelling.shift
        if not spelling.places and not spelling.shift and scaled != scaled.to_integral_value():
            return None
        rounded = scaled.quantize(Decimal(1).scaleb(-spelling.places), rounding)
    if abs(rounded.adjusted()) > 60:
        return None
    whole, _, part = f"{abs(rounded):f}".partition(".")
    return whole, part, tens, rounded < 0


def _raised(tens: int) -> str:
    return str(tens).translate(str.maketrans("0123456789-", f"{_RAISED}⁻"))
