"""Many spellings of one attention, composed at random from ways to say each part.

The scale stands before, after, on one side or split over both; softmax is said by name or made by hand, with or
without a shift; the guard is a relation, a name, a large negative number, or a mask that is divided out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from tests.plan.families import Family


@dataclass(frozen=True)
class Spelling:
    """A program text whose definition `out` is, or has in it, one attention; and the ways that were drawn.

    `divides` says that a row without keys is 0 / 0. `same` says that `out` is the attention itself.
    """

    family: Family
    text: str
    ways: tuple[str, ...]
    divides: bool
    same: bool


@dataclass
class _Writing:
    """A spelling as it is written: definitions so far, and what was drawn."""

    family: Family
    chance: Random
    lets: list[str] = field(default_factory=list)
    ways: list[str] = field(default_factory=list)
    j: str = "j"
    divides: bool = False
    held: bool = True  # Whether the guard is still to be said.

    def draw(self, what: str, *ways: str) -> str:
        way = self.chance.choice(ways)
        self.ways.append(f"{what} {way}")
        return way

    def let(self, home: str, body: str) -> None:
        self.lets.append(f"let {home} = {body};")

    def at(self, text: str, j: str | None = None, d: str = "d") -> str:
        return text.format(j=j or self.j, d=d)

    @property
    def row(self) -> str:
        return self.family.lead

    @property
    def pair(self) -> str:
        return f"{self.family.lead}, {self.j}"

    @property
    def ranged(self) -> str:
        return f"{self.family.lead}, {self.j} in 0..size({self.family.key_size})"

    def paired(self, j: str) -> str:
        return f"{self.family.lead}, {j}"


def spelling(family: Family, seed: int) -> Spelling:
    """One spelling of a family, drawn by its seed."""
    w = _Writing(family, Random(f"{family.name} {seed}"))
    w.j = w.draw("key", "j", "j", "k", "t")
    if family.before:
        w.lets.append(family.before)
    scores = _scores(w)
    weights = _weights(w, scores)
    body, same = _gather(w, weights)
    w.let(f"out[{family.home}]", body)
    order = list(w.lets)
    if w.draw("order", "as is", "shuffled") == "shuffled":
        w.chance.shuffle(order)
    text = f"input {family.inputs};\n" + "\n".join(order) + "\noutput out;\n"
    if same and not family.before and w.draw("function", "no", "no", "yes") == "yes":
        text = _wrapped(family, order)
    return Spelling(family, text, tuple(w.ways), w.divides, same)


# ----------------------------------------------------------------------------- scores


def _scores(w: _Writing) -> Callable[[str], str]:
    """How a score reads at a key."""
    family = w.family
    way = w.draw("scale", "/", "rsqrt", "power", "first", "on Q", "on K", "split", "named", "inside", "twice")
    query, key = family.query, family.key
    if way in ("on Q", "split"):
        query = _scaled(w, "Qs", family.query, way)
    if way in ("on K", "split"):
        key = _scaled(w, "Ks", family.key, way)
    if way == "named":
        w.let("scale", w.chance.choice(("1 / sqrt(size(d))", "size(d) ** -0.5", "rsqrt(size(d))")))

    def score(j: str) -> str:
        d = w.chance.choice(("d", "d", "c"))
        sides = [query.format(j=j, d=d), key.format(j=j, d=d)]
        if w.chance.random() < 0.5:
            sides.reverse()
        if way == "inside":
            sides.insert(w.chance.randrange(3), f"rsqrt(size({d}))")
        total = f"sum[{d}]({' * '.join(sides)})"
        dots = {
            "/": f"{total} / sqrt(size(d))",
            "rsqrt": f"{total} * rsqrt(size(d))",
            "power": f"{total} * size(d) ** -0.5",
            "first": f"1 / sqrt(size(d)) * {total}",
            "named": f"scale * {total}",
            "twice": f"{total} / size(d) ** 0.25 / sqrt(sqrt(size(d)))",
        }.get(way, total)
        return _finished(w, dots, j)

    if w.draw("product", "in place", "in place", "named") == "named" and way not in ("inside",):
        return _named_product(w, query, key, way)
    if w.draw("scores", "named", "named", "in place") == "named":
        w.let(f"scores[{w.pair}]", score(w.j))
        return lambda j: f"scores[{w.paired(j)}]"
    return score


def _named_product(w: _Writing, query: str, key: str, way: str) -> Callable[[str], str]:
    w.let(f"products[{w.pair}, d]", f"{query.format(j=w.j, d='d')} * {key.format(j=w.j, d='d')}")
    total = f"sum[d](products[{w.pair}, d])"
    if way not in ("on Q", "on K", "split"):
        total = f"{total} * scale" if way == "named" else f"{total} / sqrt(size(d))"
    w.let(f"scores[{w.pair}]", _finished(w, total, w.j))
    return lambda j: f"scores[{w.paired(j)}]"


def _scaled(w: _Writing, name: str, side: str, way: str) -> str:
    """One side with the scale, or its root, on it; under a name of its own."""
    bracket = side[side.index("[") + 1 : side.rindex("]")]
    slots = [part.strip() for part in bracket.split(",")]
    named = [slot.format(j=w.j, d="d") for slot in slots]
    home = ["h" if "/" in slot else slot for slot in named]
    power = "-0.25" if way == "split" else "-0.5"
    w.let(f"{name}[{', '.join(home)}]", f"{side.format(j=w.j, d='d')} * size(d) ** {power}")
    return f"{name}[{', '.join('h' if '/' in slot else slot for slot in slots)}]"


def _finished(w: _Writing, dots: str, j: str) -> str:
    """A scaled product with what the family adds to it."""
    family = w.family
    if family.bias is not None:
        bias = family.bias.format(j=j)
        dots = f"{dots} + {bias}" if w.chance.random() < 0.5 else f"({bias}) + {dots}"
    if family.cap is not None:
        spelled = ("{c} * tanh(({x}) / {c})", "tanh(1 / {c} * ({x})) * {c}")
        dots = w.chance.choice(spelled).format(c=family.cap, x=dots)
    return dots


# ----------------------------------------------------------------------------- guards


def _relation(w: _Writing, j: str, every: str = " && ") -> str:
    """The guard of a family as one condition, its parts in any order and turned around at will."""
    facts = [_turned(w, fact).format(j=j) for fact in w.family.guard]
    w.chance.shuffle(facts)
    joined = every.join(f"({fact})" if len(facts) > 1 or every != ", " else fact for fact in facts)
    if every == " && " and w.chance.random() < 0.2:
        return f"!(!({joined}))"
    return joined


def _turned(w: _Writing, fact: str) -> str:
    spelled = {
        "{j} <= i": ("{j} <= i", "i >= {j}", "!({j} > i)", "{j} < i + 1", "i - {j} >= 0", "0 <= i - {j}"),
        "i - {j} < 2": ("i - {j} < 2", "{j} > i - 2", "i <= {j} + 1", "!(i - {j} >= 2)"),
        "{j} < 2 || {j} <= i": ("{j} < 2 || {j} <= i", "i >= {j} || {j} <= 1", "!({j} > i && {j} >= 2)"),
        "i - w < {j}": ("i - w < {j}", "{j} > i - w", "i - {j} < w"),
    }
    return w.chance.choice(spelled.get(fact, (fact,)))


def _clauses(w: _Writing, j: str) -> str:
    """The guard after `where`."""
    if w.draw("relation", "written", "written", "named") == "named":
        name = "allowed"
        if not any(line.startswith(f"let {name}[") for line in w.lets):
            w.let(f"{name}[{w.ranged}]", _relation(w, w.j))
        return f"{name}[{w.paired(j)}]"
    return _relation(w, j, w.chance.choice((" && ", ", ")))


# ----------------------------------------------------------------------------- weights


def _weights(w: _Writing, score: Callable[[str], str]) -> Callable[[str], str]:
    """How the weights read at a key."""
    masked = _masked_scores(w, score)
    by_hand = ("plain quotient", "shifted", "top", "hidden", "logsumexp", "late")
    way = w.draw("softmax", "by name", "by name", "log", *by_hand)
    makers = {
        "by name": _by_name,
        "log": _by_logarithm,
        "logsumexp": _by_logsumexp,
        "late": _late,
    }
    return makers.get(way, _quotient)(w, masked, way)


def _masked_scores(w: _Writing, score: Callable[[str], str]) -> Callable[[str], str]:
    """The scores, with the guard as a large negative number where that is drawn."""
    if not w.family.guard or not w.family.certain:
        return score
    way = w.draw("mask", "guard", "guard", "guard", "if", "otherwise", "added", "named", "times")
    if way == "guard":
        return score
    w.held = False
    low = w.chance.choice(("-1e9", "-1e30", "-1000000000"))

    def masked(j: str) -> str:
        keep = _relation(w, j)
        if way == "if":
            return f"(if {keep} {{ {score(j)} }} else {{ {low} }})"
        if way == "otherwise":
            return f"(if !({keep}) {{ {low} }} else {{ {score(j)} }})"
        if way == "times":
            return f"{score(j)} + (1.0 - (if {keep} {{ 1.0 }} else {{ 0.0 }})) * {low}"
        return f"{score(j)} + (if {keep} {{ 0.0 }} else {{ {low} }})"

    if way == "named":
        w.let(f"lowered[{w.pair}]", masked(w.j))
        return lambda j: f"lowered[{w.paired(j)}]"
    return masked


def _where(w: _Writing, j: str) -> str:
    return f" where {_clauses(w, j)}" if w.held and w.family.guard else ""


def _by_name(w: _Writing, score: Callable[[str], str], way: str) -> Callable[[str], str]:
    if w.held and w.family.guard and w.draw("masking", "first", "after") == "after":
        return _renormalized(w, score)
    inside = w.draw("guard", "inside", "after")

    def weights(j: str) -> str:
        where = _where(w, j)
        return f"softmax[{j}]({score(j)}{where})" if inside == "inside" else f"softmax[{j}]({score(j)}){where}"

    if inside == "after" or w.draw("weights", "named", "in place") == "named":
        w.let(f"weights[{w.pair}]", weights(w.j))
        return lambda j: f"weights[{w.paired(j)}]"
    return weights


def _renormalized(w: _Writing, score: Callable[[str], str]) -> Callable[[str], str]:
    """Softmax over everything, multiplied by a mask, and divided by what is left."""
    w.let(f"all[{w.pair}]".replace("all", "open"), f"softmax[{w.j}]({score(w.j)})")
    way = w.draw("mask after", "if", "named", "cast", "guard")
    if way == "guard":
        w.let(f"left[{w.pair}]", f"(open[{w.pair}]) where {_relation(w, w.j)}")
    elif way == "if":
        w.let(f"left[{w.pair}]", f"if {_relation(w, w.j)} {{ open[{w.pair}] }} else {{ 0.0 }}")
    else:
        mask = f"(if {_relation(w, w.j)} {{ 1.0 }} else {{ 0.0 }})"
        if way == "cast":
            w.let(f"allowed[{w.ranged}]", _relation(w, w.j))
            mask = f"(allowed[{w.pair}] as f64)"
        if way == "named":
            w.let(f"mask[{w.ranged}]", mask)
            mask = f"mask[{w.pair}]"
        w.let(f"left[{w.pair}]", f"open[{w.pair}] * {mask}")
    w.divides = way != "guard"
    w.let(f"weights[{w.pair}]", f"left[{w.pair}] / sum[s](left[{w.paired('s')}])")
    return lambda j: f"weights[{w.paired(j)}]"


def _by_logarithm(w: _Writing, score: Callable[[str], str], way: str) -> Callable[[str], str]:
    w.let(f"logs[{w.pair}]", f"log_softmax[{w.j}]({score(w.j)}{_where(w, w.j)})")
    if w.draw("weights", "named", "in place") == "named":
        w.let(f"weights[{w.pair}]", f"exp(logs[{w.pair}])")
        return lambda j: f"weights[{w.paired(j)}]"
    return lambda j: f"exp(logs[{w.paired(j)}])"


def _by_logsumexp(w: _Writing, score: Callable[[str], str], way: str) -> Callable[[str], str]:
    if w.draw("logsumexp", "plain", "shifted") == "plain":
        w.let(f"total[{w.row}]", f"log(sum[s](exp({score('s')}){_where(w, 's')}))")
    else:
        w.let(f"top[{w.row}]", f"max[s]({score('s')})")
        w.let(f"total[{w.row}]", f"top[{w.row}] + log(sum[s](exp({score('s')} - top[{w.row}]){_where(w, 's')}))")
    w.let(f"weights[{w.pair}]", f"(exp({score(w.j)} - total[{w.row}])){_where(w, w.j)}")
    return lambda j: f"weights[{w.paired(j)}]"


def _share(w: _Writing, score: Callable[[str], str], way: str) -> Callable[[str], str]:
    """e to the score, as it is shifted."""
    if way == "shifted":
        return lambda j: f"exp({score(j)} - max[u]({score('u')}))"
    if way == "top":
        w.let(f"top[{w.row}]", f"max[u]({score('u')})")
        return lambda j: f"exp({score(j)} - top[{w.row}])"
    if way == "hidden":
        w.let(f"shifted[{w.pair}]", f"{score(w.j)} - max[u]({score('u')})")
        return lambda j: f"exp(shifted[{w.paired(j)}])"
    return lambda j: f"exp({score(j)})"


def _quotient(w: _Writing, score: Callable[[str], str], way: str) -> Callable[[str], str]:
    """e to the score over its sum."""
    share = _share(w, score, way)
    kept = w.draw("kept", "guard", "if", "both sums") if w.held and w.family.guard else "none"
    if kept == "guard":
        w.let(f"share[{w.pair}]", f"({share(w.j)}) where {_clauses(w, w.j)}")
    elif kept == "if":
        w.divides = True
        w.let(f"share[{w.pair}]", f"if {_relation(w, w.j)} {{ {share(w.j)} }} else {{ 0.0 }}")
    elif kept == "both sums":
        w.let(f"share[{w.pair}]", share(w.j))
        total = f"sum[s](share[{w.paired('s')}]{_where(w, 's')})"
        w.let(f"weights[{w.pair}]", f"(share[{w.pair}] / {total}){_where(w, w.j)}")
        return lambda j: f"weights[{w.paired(j)}]"
    else:
        w.let(f"share[{w.pair}]", share(w.j))
    total = f"sum[s](share[{w.paired('s')}])"
    if w.draw("total", "named", "in place") == "named":
        w.let(f"total[{w.row}]", total)
        total = f"total[{w.row}]"
    quotient = w.draw("quotient", "/", "power", "first").join(("", ""))
    body = {"/": f"share[{w.pair}] / {total}", "power": f"share[{w.pair}] * {total} ** -1"}.get(
        quotient, f"1 / {total} * share[{w.pair}]"
    )
    if kept == "guard" and quotient != "/":
        body = f"share[{w.pair}] / {total}"
    w.let(f"weights[{w.pair}]", body)
    return lambda j: f"weights[{w.paired(j)}]"


def _late(w: _Writing, score: Callable[[str], str], way: str) -> Callable[[str], str]:
    """Gathered first and divided then: weights that are not weights yet."""
    share = _share(w, score, w.draw("shift", "plain", "top"))
    w.let(f"share[{w.pair}]", f"({share(w.j)}){_where(w, w.j)}")
    w.let(f"total[{w.row}]", f"sum[s](share[{w.paired('s')}])")
    w.divides = bool(w.held and w.family.guard)
    w.ways.append("divided late")
    return lambda j: f"share[{w.paired(j)}]"


# ----------------------------------------------------------------------------- gathers


def _gather(w: _Writing, weights: Callable[[str], str]) -> tuple[str, bool]:
    """The body of `out`, and whether it is the attention itself."""
    family = w.family
    j = w.j
    over = f" / total[{w.row}]" if w.ways[-1] == "divided late" else ""
    sides = [weights(j), family.value.format(j=j)]
    if w.chance.random() < 0.5:
        sides.reverse()
    way = w.draw("gather", "plain", "plain", "weighted", "residual", "scaled", "inside", "function of it")
    if way == "weighted":
        w.let(f"weighted[{w.pair}, {family.carry}]", " * ".join(sides))
        return f"sum[{j}](weighted[{w.pair}, {family.carry}]){over}", True
    gathered = f"sum[{j}]({' * '.join(sides)}){over}"
    if way == "residual":
        return f"{family.residual} + {gathered}", False
    if way == "scaled":
        return f"0.5 * ({gathered})", False
    if way == "inside":
        return f"sum[{j}](2.0 * {' * '.join(sides)}){over}", False
    if way == "function of it":
        return f"tanh({gathered}) - 1.0", False
    return gathered, True


def _wrapped(family: Family, lets: list[str]) -> str:
    """The whole in a function of its inputs."""
    parameters = ", ".join(part.split(" : ")[0] for part in _inputs(family))
    names = ", ".join(part.split("[")[0].split(" : ")[0] for part in _inputs(family))
    out = next(line for line in lets if line.startswith("let out["))
    rest = "\n    ".join(line for line in lets if line is not out)
    body = out.split(" = ", 1)[1].rstrip(";")
    return (
        f"fn attend({parameters}) -> [{family.home}] {{\n    {rest}\n    {body}\n}}\n"
        f"input {family.inputs};\nlet out = attend({names});\noutput out;\n"
    )


def _inputs(family: Family) -> Iterator[str]:
    depth, part = 0, ""
    for character in family.inputs + ",":
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += character
