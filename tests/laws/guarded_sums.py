"""Sums, convolutions, recurrences and chains of definitions that read what only a guard keeps in range."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from tests.laws.guarded_grids import Grid, Whole, compare
from tests.laws.guarded_tables import Tables

ENDS = {"i64": (2**63 - 1, -(2**63), 2**63 - 2, 1 - 2**63, 0, -1, 2**62), "i32": (2**31 - 1, -(2**31), 0, -1, 2**30)}


class Sums(Tables):
    """Draws programs without attention."""

    def square(self) -> Grid:
        self.sizes |= {"i": self.points()}
        self.sizes |= {"j": self.points() if self.chance(20) else self.sizes["i"]}
        return Grid({name: self.sizes[name] for name in "ij"})

    def factor(self, grid: Grid) -> str:
        found = self.table(grid, self.index(grid, "i", "j"), (), "R")
        return self.weighted((5, "{}"), (1, "tanh({})"), (1, "exp({} / 2)"), (1, "({} + 1)")).format(found)

    def plain_sum(self) -> str:
        grid = self.square()
        self.guard(grid, "i", "j")
        x, y = self.input("x", ("j",)), self.input("y", ("i",))
        factors = [self.factor(grid) for _ in range(1 + self.choose(2))]
        factors += [text for text in (x(), y()) if self.chance(60)]
        body = self.pick((" * ", " + ")).join(factors)
        where = self.where(grid, named=self.chance(15))
        if self.chance(20):
            where = "" if self.loose else where
        op = self.weighted((8, "sum"), (1, "max"), (1, "prod"), (1, "min"))
        if self.chance(30):
            return f"let out[i] = {op}[j]({body}){where};"
        return f"let out[i] = {op}[j]({body}{where}) + 0 * {y()};"

    def convolution(self) -> str:
        """Strides, dilations and padding, with channels."""
        self.sizes |= {"i": self.points(), "k": self.pick((3, 2, 1)), "c": self.pick((2, 1)), "n": self.points()}
        grid = Grid({name: self.sizes[name] for name in "ik"})
        i, k = grid.at["i"], grid.at["k"]
        index = self.pick((i + k, i - k, i * 2 + k, i + k * 2, i + k - 1, i * 2 + k - 1, i * 2 - k + 1, i - k * 2))
        weight, self.declared["y"] = self.input("W", ("k", "c")), "y[i]"
        self.arrays["y"] = self.reals(self.sizes["i"])
        if self.chance(50):
            x = self.input("x", ("n", "c"))
            grid.require(compare(0, "<=", index, "<", Whole("size(n)", np.int64(self.sizes["n"]))))  # type: ignore[arg-type]
            read = x(n=index.text)
        else:
            read = self.table(grid, index, ("c",), "x")
        where = self.where(grid)
        if self.chance(30):
            self.guard(grid, "i", "k")
            where = self.where(grid)
        return f"let out[i] = sum[k, c]({read} * {weight()}{where}) * y[i];"

    def prefix(self) -> str:
        grid = self.square()
        grid.require(self.clause(grid, "i", "j"))
        styles: list[Callable[[], str]] = [
            lambda: f"let out[i] = sum[j]({self.factor(grid)} * {self.input('x', ('j',))()}{self.where(grid)})"
            f" * {self.input('y', ('i',))()};",
            lambda: f"let out[i, j] = cumsum[j]({self.factor(grid)} * {self.input('x', ('j',))()}"
            f"{self.where(grid)}) * {self.input('y', ('i',))()};",
            lambda: f"let s[j] = {self.table(line, line.at['j'] + 1)} * {self.input('x', ('j',))()}"
            f"{self.where(line)};\n"
            "let out[j] = cumsum[j](s[j]);",
            lambda: f"let out[i] = sum[j in 0..=i]({self.table(lower, lower.at['i'] - lower.at['j'])}"
            f" * {self.table(lower, lower.at['j'] + 1)}) * {self.input('y', ('i',))()};",
        ]
        line = Grid({"j": self.sizes["j"]})
        line.require(compare(line.at["j"] + 1, "<", line.size("j")))
        lower = Grid({"i": self.sizes["i"], "j": self.sizes["i"]}, open=False)
        lower.holds = lower.at["j"].cells <= lower.at["i"].cells
        return self.pick(styles)()

    # ------------------------------------------------------------------------------------ recurrences

    def recurrence(self) -> str:
        self.sizes |= {"t": self.points() or int(not self.loose), "m": self.pick((2, 1)), "k": 2}
        x, a = self.input("x", ("t", "m")), self.input("a", ("m",))
        back = self.pick((2, 1, 3))
        extra = self.pick((
            f"(if t >= {back} {{ {x(t=f't - {back}')} }} else {{ 0 }})",
            "late[t, m]",
            f"sum[k in 0..3]({x(t='t - k')} * {a()} where k <= t)",
            f"sum[k]({x(t='t - k - 1')} * c[k] where k + 1 <= t)",
            f"{x(t='t - 1')}",
            f"{x(t='max(t - 2, 0)')}",
        ))
        if "late" in extra:
            self.lines.append(f"let late[t, m] = {x(t=f't - {back}')} * {a()} where t >= {back};")
        if "c[k]" in extra:
            self.input("c", ("k",))
        first = f"let out[0, m] = {x(t='0')};\n"
        body = self.pick((
            f"{a()} * out[t - 1, m] + {extra}",
            f"tanh({a()} * out[t - 1, m] + {extra})",
            f"out[t - 1, m] * {extra} / 2",
            f"{a()} * out[t - 1, m] + {extra} * (if t >= 2 {{ out[t - 2, m] }} else {{ 0.5 }})",
            f"sum[k in 0..=2](out[t - k, m] * {extra} / 4 where 1 <= k <= t)",
        ))
        return f"{first}let out[t in 1..size(t), m] = {body};"

    # ------------------------------------------------------------------------- definitions of definitions

    def inherited(self) -> str:
        """A guarded definition read by another under a guard of its own, or at moved points."""
        grid = self.square()
        self.guard(grid, "i", "j")
        x, y = self.input("x", ("j",)), self.input("y", ("i",))
        first = self.factor(grid)
        where = self.where(grid)
        start = f"let s[i, j] = {first} * {x()} * {y()}{where};\n"
        inner = Grid({name: self.sizes[name] for name in "ij"})
        inner.holds = grid.holds
        inner.clauses = list(grid.clauses)
        second, moved = partial(self.factor, inner), partial(self.where, inner)
        styles: list[Callable[[], str]] = [
            lambda: f"let out[i] = sum[j](s[i, j] * {x()});",
            lambda: f"let u[i, j] = s[i, j] * {second()}{moved()};\nlet out[i] = sum[j](u[i, j]);",
            lambda: f"let u[i, j] = s[i, j] + {second()}{moved()};\nlet out[j] = sum[i](u[i, j]);",
            lambda: "let u[i in 0..size(i) - 1, j] = s[i + 1, j] - s[i, j];\n"
            "let out[j] = sum[i in 0..size(i) - 1](u[i, j]);",
            lambda: f"let u[i] = sum[j](s[i, j] * {second()}{moved()});\nlet out[i] = u[i - 1] * u[i] where i >= 1;",
            lambda: f"let w[i, j] = softmax[j](s[i, j]{where});\nlet out[i] = sum[j](w[i, j] * {second()}{moved()});",
            lambda: f"let out[i, j] = exp(s[i, j]){where};",
        ]
        return start + self.pick(styles)()

    def ranges(self) -> str:
        """Named scalars and data as ranges."""
        size = self.sizes["i"] = self.points()
        x, back = self.input("x", ("i",)), self.pick((2, 1, 0))
        if self.chance(60):
            count = max(0, size - back)
            self.lines.append(f"let n = size(i) - {back};")
        else:
            count = int(self.noise.integers(0, size + 1))
            self.declare("n", (), "i64")
            self.arrays["n"] = np.asarray(count)
        grid, line = Grid({"t": count, "k": count}), Grid({"t": count}, open=False)
        shift = min(self.pick((2, 1)), size - count)
        moved = x(i=f"t + {shift}" if shift > 0 else "t")
        self.guard(grid, "t", "k")

        def pair() -> str:
            return f"{self.table(grid, self.index(grid, 't', 'k'))}{self.where(grid)}"

        def single() -> str:
            return self.table(line, line.at["t"] + self.pick((1, 2)))

        styles: list[Callable[[], str]] = [
            lambda: f"let y[t in 0..n] = {moved} - {x(i='t')};\nlet out[t in 0..n] = y[t] * {single()};",
            lambda: f"let y[t in 0..n] = {moved} * {single()};\nlet out[t in 0..n] = sum[k in 0..n](y[k] * {pair()});",
            lambda: f"let out[t in 0..n] = sum[k in 0..n]({pair()}) * {moved};",
            lambda: f"let y[t in 0..n] = {moved} * {x(i='t')};\nlet out = sum[t in 0..n](y[t] * {single()});",
            lambda: f"let out[i] = sum[t in 0..n]({moved} * {x()} where t < i);",
            lambda: f"let w[t in 0..n, k in 0..n] = softmax[k]({pair()});\n"
            f"let out[t in 0..n] = sum[k in 0..n](w[t, k] * {x(i='k')});",
        ]
        return self.pick(styles)()

    # -------------------------------------------------------------------------- whole numbers at their ends

    def extremes(self) -> str:
        """Whole numbers at the ends of their range, compared, added and read."""
        self.sizes |= {"i": self.points()}
        self.sizes |= {"j": self.sizes["i"]}
        dtype = self.pick(("i64", "i32"))
        x, size = self.input("x", ("j",)), self.sizes["i"]
        self.declare("c", ("i",), dtype)
        self.arrays["c"] = self.noise.choice(np.array(ENDS[dtype]), size).astype(f"int{dtype[1:]}")
        styles = (
            f"let out[i] = sum[j]({x()} where c[j] <= c[i]);",
            f"let out[i] = sum[j]({x()} where c[j] - 1 < c[i]);",
            "let k[i] = c[i] + 1 where c[i] < 9;\n"
            f"let out[i] = sum[j]({x()} where c[j] < 9 && c[i] < 9 && k[j] > k[i]);",
            f"let k[i] = max(c[i], -5);\nlet out[i] = sum[j]({x()} where abs(i - j) <= k[i]);",
            f"let out[i] = {x(j='clamp(c[i], 0, size(j) - 1)')};",
            f"let out[i] = sum[j]({x(j='c[i]')} * {x()} where 0 <= c[i] < size(j));",
            f"let top = max[i](c[i] where c[i] < 0);\nlet out[i] = sum[j]({x()} where c[i] > top);",
            f"let out[i] = sum[j]({x()} where abs(c[i]) >= c[j]);",
            f"let out[i] = {x(j='i')} * c[i];",
            f"let out[i] = sum[j]({x()} where c[i] - c[j] > 0);",
            f"let out[i] = sum[j]({x()} where i - j < c[i], c[j] * 2 >= i);",
        )
        return self.pick(styles)
