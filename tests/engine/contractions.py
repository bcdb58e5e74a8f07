"""Contraction programs, drawn: axes of a batch, rows, columns and summed ones, in any order, some on one side alone."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import indexical as ix
from indexical.ir import nodes as ir

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Contraction:
    """The sum of a product, and perhaps a vector that is added to it."""

    text: str
    factors: tuple[tuple[str, ...], ...]
    over: tuple[str, ...]
    result: tuple[str, ...]
    added: str | None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for factor in self.factors for name in factor))

    @property
    def program(self) -> ir.Program:
        return ix.compile(self.text).ir

    def arrays(self, draw: Random, sizes: tuple[int, ...], dtype: str = "float64") -> list[Array]:
        """Arrays for the inputs, of axes of drawn sizes."""
        size = {name: draw.choice(sizes) for name in self.names}
        numbers = np.random.default_rng(draw.randrange(1 << 30))
        homes = [*self.factors, *([(self.added,)] if self.added else [])]
        return [numbers.normal(size=[size[name] for name in home]).astype(dtype) for home in homes]

    def expected(self, arrays: list[Array]) -> Array:
        """What NumPy's `einsum` says, in 64 bits."""
        letters = {name: chr(ord("a") + n) for n, name in enumerate(self.names)}
        spec = ",".join("".join(letters[name] for name in factor) for factor in self.factors)
        factors = [array.astype("float64") for array in arrays[: len(self.factors)]]
        found: Array = np.einsum(f"{spec}->{''.join(letters[name] for name in self.result)}", *factors)
        if self.added is None:
            return found
        place = [-1 if name == self.added else 1 for name in self.result]
        return found + arrays[-1].astype("float64").reshape(place)


def drawn(seed: int, several: bool = False) -> Contraction:
    """A contraction of two factors, or of `several`."""
    draw = Random(seed)
    kinds = {kind: [f"{kind}{n}" for n in range(draw.choice(counts))] for kind, counts in _COUNTS.items()}
    if several:
        every = [name for names in kinds.values() for name in names] or ["k0"]
        chosen = [draw.sample(every, draw.randint(1, len(every))) for _ in range(draw.choice((3, 3, 4)))]
        over = [name for name in every if any(name in one for one in chosen) and draw.random() < 0.5]
    else:
        over = kinds["k"]
        left = [name for name in kinds["b"] if draw.random() > 0.2]
        right = [name for name in kinds["b"] if draw.random() > 0.2 or name not in left]
        chosen = [left + kinds["i"] + over, right + kinds["j"] + over]
    for one in chosen if several or draw.random() < 0.6 else ():
        draw.shuffle(one)
    kept = list(dict.fromkeys(name for one in chosen for name in one if name not in over))
    if draw.random() < 0.5:
        draw.shuffle(kept)
    added = draw.choice(kept) if kept and draw.random() < 0.4 else None
    return _written([tuple(one) for one in chosen], tuple(over), tuple(kept), added)


_COUNTS = {"b": (0, 0, 1, 1, 2, 3), "i": (0, 1, 1, 2), "j": (0, 1, 1, 2), "k": (1, 1, 1, 2)}


def _written(
    factors: list[tuple[str, ...]], over: tuple[str, ...], kept: tuple[str, ...], added: str | None
) -> Contraction:
    names = [f"x{n}" for n in range(len(factors))]
    reads = [f"{name}[{', '.join(axes)}]" for name, axes in zip(names, factors, strict=True)]
    lines = [f"input {read};" for read in reads] + ([f"input z[{added}];"] if added else [])
    body = " * ".join(reads)
    body = f"sum[{', '.join(over)}]({body})" if over else body
    home = f"out[{', '.join(kept)}]" if kept else "out"
    lines.append(f"let {home} = {body}{f' + z[{added}]' if added else ''};")
    return Contraction("\n".join(lines), tuple(factors), over, kept, added)
