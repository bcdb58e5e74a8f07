"""Attention whose scores and values read what only a guard keeps in range."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.laws.guarded_grids import Grid
from tests.laws.guarded_tables import TILES, Tables, bracket


class Attentions(Tables):
    """Draws attention: axes, guards, a score of one to three terms, a normaliser, and what is carried."""

    def attention(self) -> str:
        self.lay_out()
        grid = Grid({name: self.sizes[name] for name in (*self.lead, "i", "j")})
        self.guard(grid, "i", "j")
        if self.few is TILES and not grid.clauses:
            grid.require(self.clause(grid, "i", "j"))
        score, value = self.score(grid), self.value(grid)
        return self.normalised(grid, score, value)

    def lay_out(self) -> None:
        """Which axes there are, and how long each is."""
        self.lead = self.pick(((), ("h",), ("b",), ("b", "h")))
        self.carried = ("e",) if self.chance(80) else ()
        self.sizes |= {"b": self.pick((2, 1, 3)), "h": self.pick((2, 4)), "i": self.points()}
        self.sizes |= {"j": self.points() if self.chance(20) else self.sizes["i"]}
        self.sizes |= {"d": self.pick((2, 1, 3)), "e": self.pick((2, 1))}
        self.grouped = {}
        if "h" in self.lead and self.chance(30):
            self.grouped = {"g": self.pick(("h / 2", "h % 2"))}
            self.sizes["g"] = 2 if self.grouped["g"] == "h % 2" else self.sizes["h"] // 2
        self.keyed = [{"h": "g"}.get(name, name) if self.grouped else name for name in self.lead]
        if self.lead and self.chance(15):
            self.keyed = self.keyed[:-1]
        self.Q = self.input("Q", (*self.lead, "i", "d"))
        self.K = self.input("K", (*self.keyed, "j", "d"))

    # ----------------------------------------------------------------------------------------- score

    def score(self, grid: Grid) -> str:
        terms = [self.term(grid) for _ in range(self.weighted((4, 1), (4, 2), (1, 3)))]
        text = self.joined(terms)
        wraps = ("{}", "tanh({})", "2 * tanh(({}) / 2)", "sigmoid({})", "({}) / sqrt(size(d))", "-({})", "sin({})")
        return self.weighted((6, wraps[0]), *((1, wrap) for wrap in wraps[1:])).format(text)

    def joined(self, terms: list[str]) -> str:
        sign = self.weighted((4, " + "), (1, " - "), (2, " * "))
        return sign.join(term if sign != " * " else f"({term})" for term in terms)

    def term(self, grid: Grid) -> str:
        def index() -> str:
            found = self.index(grid, "i", "j")
            axes = self.lead if self.lead and self.chance(30) else ()
            return self.table(grid, found, axes, "B")

        def row() -> str:
            axes = ("h", "d") if "h" in self.lead and self.chance(20) else ("d",)
            return self.table(grid, self.index(grid, "i", "j"), axes)

        options: list[tuple[int, Callable[[], str]]] = [
            (4, lambda: f"sum[d]({self.Q()} * {self.key(grid)})"),
            (4, lambda: f"sum[d]({self.Q()} * {row()})"),
            (3, lambda: f"sum[d]({self.key(grid)} * {row()})"),
            (4, index),
            (1, lambda: f"sum[d]({self.Q()} * {self.key(grid)} * {row()})"),
            (1, lambda: f"sum[d]({self.Q()} * ({self.key(grid)} + {row()}))"),
            (1, lambda: f"sum[d](tanh({self.Q()} + {row()}))"),
            (1, lambda: f"sum[d](({self.key(grid)} - {row()}) ** 2)"),
            (1, lambda: f"tanh({index()})"),
            (1, lambda: f"exp({index()} / 2)"),
            (1, lambda: f"(i - j) * {index()}"),
            (1, lambda: f"(if i == j {{ 0.5 }} else {{ {index()} }})"),
        ]
        return self.weighted(*options)()

    def key(self, grid: Grid) -> str:
        if self.chance(80):
            return self.K(**self.grouped)
        return self.table(grid, self.index(grid, "i", "j"), ("d",), "K")

    # ----------------------------------------------------------------------------------------- value

    def value(self, grid: Grid) -> str:
        def plain() -> str:
            if "V" not in self.declared:
                self.V = self.input("V", (*self.keyed, "j", *self.carried))
            return self.V(**self.grouped)

        def moved() -> str:
            axes = (*(name for name in self.lead if self.chance(30)), *self.carried)
            return self.table(grid, self.index(grid, "i", "j"), axes, "V")

        options: list[tuple[int, Callable[[], str]]] = [
            (5, plain),
            (5, moved),
            (1, lambda: f"({plain()} + {moved()})"),
            (1, lambda: f"{plain()} * {moved()}"),
            (1, lambda: f"tanh({moved()})"),
        ]
        return self.weighted(*options)()

    # ----------------------------------------------------------------------------------- normalisers

    def normalised(self, grid: Grid, score: str, value: str) -> str:
        pairs = (*self.lead, "i", "j")
        at = bracket(self.order(pairs))
        out = f"let out{bracket(self.order((*self.lead, 'i', *self.carried)))}"
        where = self.where(grid, named=bool(grid.clauses) and self.chance(15))
        carried = value if self.loose and self.chance(50) else f"{value}{where}"
        softmax = partial(self.by_softmax, where)
        named, total = f"let s{at} = {score}{where};\n", f"(sum[j](w{at}) + 0.5)"
        logs = self.pick((f"exp(w{at})", f"w{at}"))
        behind = self.pick(("", " where i >= 1", " where i + 1 < size(i)")) if self.chance(12) else ""
        styles: list[tuple[int, Callable[[], str]]] = [
            (5, lambda: f"let w{at} = {softmax('softmax', score)};\n{out} = sum[j](w{at} * {carried})"),
            (2, lambda: f"{named}let w{at} = {softmax('softmax', f's{at}')};\n{out} = sum[j](w{at} * {carried})"),
            (2, lambda: f"let w{at} = exp({score}){where};\n{out} = sum[j](w{at} * {carried}) / {total}"),
            (1, lambda: f"{named}{self.by_hand(at, where)}{out} = sum[j](w{at} * {carried}) / {total}"),
            (1, lambda: f"let w{at} = {softmax('log_softmax', score)};\n{out} = sum[j]({logs} * {value}{where})"),
            (2, lambda: f"{out} = sum[j](({score}) * {carried})"),
            (1, lambda: f"{out} = sum[j](softmax[j]({score}{where}) * {carried})"),
        ]
        return f"{self.weighted(*styles)()}{behind};"

    def by_softmax(self, where: str, name: str, score: str) -> str:
        return f"{name}[j]({score}{where})" if self.chance(40) else f"{name}[j]({score}){where}"

    def by_hand(self, at: str, where: str) -> str:
        """With the largest score taken off first."""
        rows = bracket((*self.lead, "i"))
        return f"let top{rows} = max[j](s{at}{where});\nlet w{at} = exp(s{at} - top{rows}){where};\n"
