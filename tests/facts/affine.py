"""Programs with affine guards, drawn at random: windows, prefixes, shifts, branches, products, functions.

All tensors lie over positions, `n` of them; a statement that the checker refuses is left out.
"""

from __future__ import annotations

from random import Random

import indexical as ix
from indexical.diagnostics import Error

HEAD = "input x[i], y[i], A[i, j], p[i] : i64, g[i] : i64, ok[i, j] : bool, s;\n"
GUARD_FUNCTION = "fn near(a, c, w) {\n    c <= a && a - c < w\n}\n"
SHIFT_FUNCTION = "fn shift(v[..r, k]) -> [..r, k] {\n    if k >= 1 { v[..r, k - 1] } else { 0.0 }\n}\n"


class Drawing:
    """The text so far, and the names that stand in it."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.vectors = ["x", "y"]
        self.matrices = ["A"]
        self.guards: list[str] = []
        self.fresh = 0

    # ------------------------------------------------------------------- guards

    def one(self, i: str) -> str:
        """A guard on one position."""
        k = self.chance.randint(1, 3)
        return self.chance.choice((f"{i} >= {k}", f"{i} < size(i) - 1", f"{i} % 2 == 0", f"{i} != {k}", f"g[{i}] > 1"))

    def two(self, i: str, j: str, depth: int = 1) -> str:
        """A guard on two positions."""
        w = self.chance.randint(1, 3)
        plain = [
            f"{j} <= {i}",
            f"{j} >= {i}",
            f"{j} < {i}",
            f"{i} - {w} < {j} <= {i}",
            f"({j} < {w} || {j} <= {i})",
            f"({i} - {j}) % 2 == 0",
            f"abs({i} - {j}) < {w}",
            f"{i} + {j} < size(i)",
            f"{i} / 2 == {j} / 2",
            f"near({i}, {j}, {w})",
            f"g[{i}] == g[{j}]",
            f"ok[{i}, {j}]",
            *(f"{word}[{i}, {j}]" for word in self.guards),
        ]
        if depth and self.chance.random() < 0.3:
            form = self.chance.choice(("!({})", "({} && {})", "({} || {})"))
            return form.format(*(self.two(i, j, 0) for _ in range(form.count("{}"))))
        return self.chance.choice(plain)

    # -------------------------------------------------------------- expressions

    def vector(self, i: str, depth: int) -> str:
        """An expression at one position."""
        word = self.chance.choice(self.vectors)
        k = self.chance.randint(1, 2)
        if depth <= 0:
            return self.chance.choice((f"{word}[{i}]", f"{word}[{i}]", f"{word}[size(i) - 1 - {i}]"))
        inner = [self.vector(i, depth - 1) for _ in range(2)]
        bound = f"k{depth}"
        return self.chance.choice(
            (
                f"{word}[{i} / 2]",
                f"{word}[{i} % 2]",
                f"{word}[p[{i}]]",
                f"(if {i} >= {k} {{ {word}[{i} - {k}] }} else {{ {inner[0]} }})",
                f"(if {self.one(i)} {{ {inner[0]} }} else {{ {inner[1]} }})",
                f"({inner[0]} * {inner[1]})",
                f"({inner[0]} + {inner[1]})",
                f"(-{inner[0]})",
                f"tanh({inner[0]})",
                f"({inner[0]} / (2.0 + cos({inner[1]})))",
                f"sum[{bound}]({self.matrix(i, bound, depth - 1)} where {self.two(i, bound)})",
                f"sum[{bound} in 0..={i}]({self.matrix(i, bound, depth - 1)})",
                f"sum[{bound} in 0..3]({word}[{i} + {bound} - 1] where 0 <= {i} + {bound} - 1 < size(i))",
                f"max[{bound}]({self.matrix(i, bound, depth - 1)} where {bound} <= {i})",
                f"mean[{bound}]({self.vector(bound, depth - 1)} where {bound} <= {i})",
            )
        )

    def matrix(self, i: str, j: str, depth: int) -> str:
        """An expression at two positions."""
        word = self.chance.choice(self.matrices)
        if depth <= 0:
            return self.chance.choice((f"{word}[{i}, {j}]", f"{word}[{j}, {i}]", f"{self.vector(j, 0)}"))
        inner = [self.matrix(i, j, depth - 1) for _ in range(2)]
        return self.chance.choice(
            (
                f"{word}[{i}, {j}]",
                f"({self.vector(i, depth - 1)} * {self.vector(j, depth - 1)})",
                f"({inner[0]} * {inner[1]})",
                f"({inner[0]} * {self.vector(j, 0)})",
                f"({inner[0]} + {inner[1]})",
                f"(if {self.two(i, j)} {{ {inner[0]} }} else {{ {inner[1]} }})",
                f"(if {j} <= {i} {{ {self.chance.choice(self.vectors)}[{i} - {j}] }} else {{ {inner[0]} }})",
                f"(-{inner[0]})",
            )
        )

    # --------------------------------------------------------------- statements

    def statement(self) -> tuple[str, str, str]:
        """The text of a definition, its name, and what it is."""
        self.fresh += 1
        word = f"t{self.fresh}"
        draw, depth = self.chance, self.chance.randint(0, 2)
        where = f" where {self.two('i', 'j')}" if draw.random() < 0.7 else ""
        alone = f" where {self.one('i')}" if draw.random() < 0.3 else ""
        matrix = draw.choice(self.matrices)
        vector = draw.choice(self.vectors)
        scan = draw.choice(("softmax", "softmax", "log_softmax", "cumsum", "rank"))
        # The evaluator asks the guard of a running total at all points, also at those that come later.
        held = "" if scan == "cumsum" and any(word in where for word in ("g[", "ok[", *self.guards)) else where
        texts = [
            (f"let {word}[i] = {self.vector('i', depth)}{alone};", "vectors"),
            (f"let {word}[i, j] = {self.matrix('i', 'j', depth)}{where};", "matrices"),
            (f"let {word}[i, j] = {scan}[j]({self.matrix('i', 'j', depth)}{held});", "matrices"),
            (f"let {word}[i] = sum[j]({matrix}[i, j] * {self.vector('j', depth)}{where});", "vectors"),
            (f"let {word}[i] = sum[j]({matrix}[i, j] * {vector}[j]);", "vectors"),
            (f"let {word}[i, j] = sum[k]({matrix}[i, k] * {draw.choice(self.matrices)}[k, j]);", "matrices"),
            (f"let {word}[i] = sum[j](softmax[j]({self.matrix('i', 'j', depth)}{where}) * {vector}[j]);", "vectors"),
            (f"let {word}[i, j] = {self.two('i', 'j')};", "guards"),
            (f"let {word} = shift({matrix});", "matrices"),
            (f"let {word}[i] = shift({vector})[i] * {vector}[i];", "vectors"),
            (f"let {word}[0] = {vector}[0];\nlet {word}[i in 1..size(i)] = {vector}[i - 1] * s;", "vectors"),
            (f"let {word}[i, j] = s * {matrix}[i, j] where {self.two('i', 'j')}, {self.one('j')};", "matrices"),
        ]
        text, kind = draw.choice(texts)
        return text, word, kind


def draw_program(seed: int, count: int = 4) -> str:
    """A program that the checker accepts."""
    drawing = Drawing(Random(seed))
    text = GUARD_FUNCTION + SHIFT_FUNCTION + HEAD
    kept = 0
    while kept < count:
        line, word, kind = drawing.statement()
        try:
            ix.compile(f"{text}{line}\noutput {word};\n")
        except Error:
            continue
        text += line + "\n"
        getattr(drawing, kind).append(word)
        kept += 1
    return text


ATTENTION = """fn allow(a, c, w) {{
    {function}
}}
input Q[..r, i, d], K[..r, j, d], V[..r, j, e], g[j] : i64, p : i64;
let w = 2;
let allowed[i, j] = {named};
let scores[..r, i, j] = sum[d](Q[..r, i, d] * K[..r, j, d]) / sqrt(size(d));
let weights[..r, i, j] = softmax[j](scores[..r, i, j]) where {guard};
let out[..r, i, e] = sum[j](weights[..r, i, j] * V[..r, j, e]{late});
let pooled[..r, e] = sum[i](out[..r, i, e] where i % 2 == 0);
output out, pooled;
"""


def draw_attention(seed: int) -> str:
    """An attention with a guard from a list, in the weights and perhaps in the gather again."""
    chance = Random(seed)
    guards = (
        "j <= i",
        "j >= i",
        "i - w < j <= i",
        "j < p || j <= i",
        "(i - j) % 2 == 0, j <= i",
        "allowed[i, j]",
        "allow(i, j, w)",
        "g[i] == g[j]",
        "j <= i, g[i] == g[j]",
        "!(j > i)",
        "j < i",
        "i / w == j / w",
        "j <= i + p",
        "abs(i - j) <= 1",
    )
    return ATTENTION.format(
        function=chance.choice(("c <= a && a - c < w", "a - w < c <= a", "c / w == a / w")),
        named=chance.choice(("j <= i", "j <= i && i - j < 2", "j < p || j <= i", "(i + j) % 2 == 0")),
        guard=chance.choice(guards),
        late=chance.choice(("", "", "", " where j != 1", " where j <= i")),
    )


RECURRENCES = (
    """input x[t, m], A[m, n], start[m];
let h[0, m] = start[m];
let h[t in 1..size(t), m] = tanh(sum[n](A[m, n] * h[t - 1, n]) + x[t, m]);
let out[t, m] = h[t, m] * x[t, m];
""",
    """input x[t];
let y[0] = x[0];
let y[1] = x[1];
let y[t in 2..size(t)] = y[t - 1] + y[t - 2] * x[t];
""",
    """input x[t];
let y[size(t) - 1] = x[size(t) - 1];
let y[t in 0..size(t) - 1] = y[t + 1] * x[t];
""",
    """input x[t, m], W[g in 0..2, m, n];
let gate[t in 0..size(t), g, m] = sum[n](W[g, m, n] * state[t, n]) + x[t, m];
let state[0, m] = 0.0;
let state[s in 1..=size(t), m] = sigmoid(gate[s - 1, 0, m]) * state[s - 1, m] + gate[s - 1, 1, m];
output state;
""",
    """input a[i], c[j];
let score[i in 0..=size(i), 0] = 0.0;
let score[0, j in 1..=size(j)] = 0.0;
let score[i in 1..=size(i), j in 1..=size(j)] =
    max(score[i - 1, j - 1] + a[i - 1] * c[j - 1], score[i - 1, j], score[i, j - 1]);
""",
    """input x[t, m];
let top[0, m] = x[0, m];
let top[t in 1..size(t), m] = max(top[t - 1, m], x[t, m]);
let out[t, m] = exp(x[t, m] - top[t, m]);
""",
)
