"""`docs/catalogue.md`, made from `examples/variants/`: `python -m tests.variants.catalogue` writes it anew.

Who hears whom is found by a run: which values have a gradient from which results. Cost, kernels and memory are those
that the program tells of itself. Read the difference before it is committed.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import torch
from tests.variants import roster
from tests.variants.heard import Cost

from indexical.facts.view import View
from indexical.ir import nodes as ir
from indexical.ir import whole
from indexical.plan.steps import extent_of
from indexical.views.plan import PlanSheet

PAGE = roster.ROOT / "docs" / "catalogue.md"

FAMILIES = {
    "classic": "Who asks whom",
    "masks": "Who hears whom",
    "positions": "Positions",
    "weights": "Scores, weights and values",
    "linear": "Without a softmax over pairs",
    "layouts": "Images, compression and caches",
}

# The sizes of cost and memory: N positions, 8 heads, 64 features each. An image has N pixels.
N = 1024
SIDES = {"h": 8, "d": 64, "e": 64, "m": 512, "n": 64, "a": 64, "c": 64, "k": 32, "r": 64, "p": 64, "q": 8, "s": 16}
OTHERS = {"g": 8, "b": 16, "f": 64}
# Windows, and what stays at the start of a row, where they are inputs.
WIDTHS = {"w": 64, "s": 4, "g": 4, "p": 16}
# What else grows with N, where a letter does not say so.
GROWING: Mapping[str, Mapping[str, Callable[[int], int]]] = {
    "bigbird": {"p": lambda n: n // 3 + 1, "q": lambda n: n // 3 + 1},
    "grouped_query": {"g": lambda n: 2},
    "multi_head": {"n": lambda n: 512},
    "multi_token": {"p": lambda n: 6, "q": lambda n: 11},
    "paged_decode": {"n": lambda n: n // 16, "g": lambda n: n},
    "perceiver": {"a": lambda n: 64},
    "simplicial": {"k": lambda n: n},
    "slots": {"s": lambda n: 8},
    "transformer_xl": {"r": lambda n: 2 * n},
    "tree": {"i": lambda n: 16, "k": lambda n: 16},
    "rotary_cache": {"i": lambda n: 16},
    "quantised_cache": {"i": lambda n: 16},
}

# The sizes of the pictures, and whose part in the result they show: an input with the coordinates of its keys, and
# the coordinates of the result that ask. Usually it is `V`, position by position.
PICTURED = {"i": 8, "j": 8, "t": 8}
FRAMES: Mapping[str, Mapping[str, int]] = {
    "axial": {"y": 3, "x": 4},
    "bigbird": {"i": 15, "j": 15},
    "compressed_blocks": {"i": 9, "j": 9},
    "dilated_segments": {"i": 12, "j": 12},
    "documents": {"i": 9},
    "fixed_sparse": {"i": 12, "j": 12},
    "hashed_buckets": {"i": 9},
    "log_sparse": {"i": 10, "j": 10},
    "memory_compressed": {"j": 9},
    "neighbourhood": {"y": 3, "x": 4},
    "nystrom": {"i": 8, "j": 8},
    "paged_decode": {"s": 2},
    "pointer": {"i": 5, "j": 7},
    "quantised_cache": {"i": 3},
    "reduced_keys": {"i": 6, "y": 4, "x": 4},
    "rotary_cache": {"i": 3},
    "strided_sparse": {"i": 12, "j": 12},
    "streaming": {"i": 10, "j": 10},
    "swin": {"y": 3, "x": 4},
    "transformer_xl": {"i": 5, "j": 8},
    "tree": {"i": 5, "j": 9},
}
HEARD = {
    "cross": ("Y", "j"),
    "graph": ("X", "i"),
    "hopfield": ("stored", "j"),
    "induced_points": ("X", "i"),
    "latent": ("C", "j"),
    "multi_head": ("X", "i"),
    "no_positions": ("X", "i"),
    "paged_decode": ("V", "gs"),
    "pointer": ("K", "j"),
    "quantised_cache": ("V_zero", "j"),
    "reduced_keys": ("X", "yx"),
    "state_space_duality": ("X", "i"),
    "tensor_product": ("B_V", "j"),
    "cross_covariance": ("V", "d"),
}
ASKING = {"class_attention": "", "cross_covariance": "c", "paged_decode": "b", "perceiver": "a", "slots": "s"}


@dataclass(frozen=True)
class Header:
    """The comment at the top of a variant: what it is called, who published it, and what is different."""

    title: str
    source: str
    differs: str
    program: str


@cache
def header(name: str) -> Header:
    lines = (roster.ROOT / "examples" / "variants" / f"{name}.ix").read_text("utf-8").splitlines()
    count = next(n for n, line in enumerate(lines) if not line.startswith("// "))
    title, *rest = (line.removeprefix("// ") for line in lines[:count])
    found = re.fullmatch(r"(.* \(\d{4}\)\. .*?\.) (.*)", " ".join(rest))
    assert found is not None, f"{name}: the second line names authors, year and title; the third what is different"
    return Header(title, found[1], found[2], "\n".join(lines[count:]).strip())


# ------------------------------------------------------------- who hears whom


def picture(name: str) -> list[str]:
    """A row for each query, a column for each key: ■ where the result depends on it."""
    program = roster.compiled(name)
    given = roster.arrays(name, sizes={**PICTURED, **FRAMES.get(name, {})})
    out = program(**given)
    heard, keys = HEARD.get(name, ("V", "ijtyx"))
    (tensor,) = [tensor for tensor in program.ir.inputs if tensor.name == heard]
    answering = [n for n, axis in enumerate(tensor.axes) if axis.coordinate.name in keys]
    (let,) = [let for let in program.ir.lets if let.name == "out"]
    asking = [n for n, axis in enumerate(let.axes) if axis.coordinate.name in ASKING.get(name, "ityx")]
    arriving = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(0))
    rows = torch.where(torch.isfinite(out), out * arriving, 0.0).movedim(asking, tuple(range(len(asking))))
    rows = rows.reshape(math.prod(rows.shape[: len(asking)]), -1).sum(-1)
    found = []
    for row in rows:
        (slope,) = torch.autograd.grad(row, [given[heard]], retain_graph=True)
        slope = slope.movedim(answering, tuple(range(len(answering))))
        some = slope.reshape(math.prod(slope.shape[: len(answering)]), -1).ne(0).any(-1)
        found.append(" ".join("■" if cell else "·" for cell in some.tolist()))
    return found


# ------------------------------------------------------------ cost and memory


def sizes_at(name: str, positions: int) -> dict[str, int]:
    """The size of every coordinate of the inputs where there are so many positions."""
    known = {axis.coordinate.name for tensor in roster.compiled(name).ir.inputs for axis in tensor.axes}
    side = math.isqrt(positions)
    usual = {**SIDES, **OTHERS, "i": positions, "j": positions, "t": positions, "y": side, "x": positions // side}
    own = {letter: size(positions) for letter, size in GROWING.get(name, {}).items()}
    return {letter: size for letter, size in {**usual, **own}.items() if letter in known}


@cache
def cost(name: str) -> Callable[[int], int]:
    """The multiply-adds of the relation for so many positions, of the pairs that are heard."""
    view = View(roster.compiled(name).ir)

    def lookup(positions: int) -> whole.Lookup:
        sizes = sizes_at(name, positions)

        def found(leaf: ir.Size | ir.Read) -> int:
            if isinstance(leaf, ir.Size):
                return sizes[leaf.coordinate.name]
            if leaf.tensor in view.lets:
                return whole.value(view.lets[leaf.tensor].clauses[0].body, found)
            if leaf.tensor not in WIDTHS:
                raise whole.Unknown
            return WIDTHS[leaf.tensor]

        return found

    return cache(Cost(view, lookup).at)


def built(name: str, plan: PlanSheet, positions: int) -> dict[str, int]:
    """The numbers in each definition that a call builds."""
    sizes = sizes_at(name, positions)
    known = {
        axis.coordinate: sizes[axis.coordinate.name]
        for x in plan.program.inputs
        for axis in x.axes
        if axis.coordinate.name in sizes
    }
    lets = plan.program.definitions
    names = [made for step in plan.steps for made in (step.definition, *step.beside)]
    return {made: math.prod(extent_of(axis, known) or 1 for axis in lets[made].axes) for made in names}


def growth(at: Callable[[int], int]) -> str:
    """How a figure grows with N, from two large ones."""
    halves = round(math.log2(at(1 << 24) / at(1 << 22)))
    return ("1", "√N", "N", "N√N", "N²", "N²√N", "N³")[halves]


# --------------------------------------------------------------------- the page


@dataclass(frozen=True)
class Entry:
    """What the page says of a variant."""

    hears: str
    kernels: tuple[tuple[str, str], ...]
    unbuilt: tuple[str, ...]
    cost: int
    cost_growth: str
    largest: str
    memory: int
    memory_growth: str


@cache
def entry(name: str) -> Entry:
    program = roster.compiled(name)
    plan = program.plan(**roster.arrays(name))
    sizes = built(name, plan, N)
    largest = max(sizes, key=lambda made: sizes[made])
    hears = [roles.hears or "all" for roles in program.roles if roles.kind == "attention"]
    return Entry(
        "; ".join(dict.fromkeys(hears)) or "–",
        tuple((step.definition, step.kernel) for step in plan.steps),
        tuple(plan.unbuilt),
        cost(name)(N),
        growth(cost(name)),
        f"{largest}[{', '.join(str(axis.coordinate) for axis in plan.program.definitions[largest].axes)}]",
        sizes[largest],
        growth(lambda n: max(built(name, plan, n).values())),
    )


def show(count: int) -> str:
    """A count in three digits: `1.10 G`."""
    for power, unit in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if count >= 10**power:
            figure = count / 10**power
            return f"{figure:.{max(0, 2 - int(math.log10(figure)))}f} {unit}"
    return str(count)


def kernel(name: str) -> str:
    """The kernels of a variant, each once; arrays only where there is nothing else."""
    found = [kernel for _, kernel in entry(name).kernels if kernel != "arrays"]
    return ", ".join(dict.fromkeys(found)) or "arrays"


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def row(name: str) -> str:
    """The line of a variant in the table."""
    about, told = header(name), entry(name)
    first = about.source.partition(",")[0].partition(" (")[0]
    year = re.search(r"\((\d{4})\)", about.source)
    assert year is not None
    hears = told.hears if told.hears in ("all", "–") else f"`{told.hears}`".replace("|", "\\|")
    source = f"{first} {year[1]}"
    cells = (
        f"[{about.title}](#{anchor(about.title)})",
        source,
        hears,
        kernel(name),
        told.cost_growth,
        told.memory_growth,
    )
    return f"| {' | '.join(cells)} |"


def section(name: str) -> str:
    """The part of the page that tells of a variant."""
    about, told = header(name), entry(name)
    rows = picture(name)
    shown = ["", "```md", *rows, "```"] if any("·" in row for row in rows) else ["", "Everyone hears everyone."]
    others = [definition for definition, kernel in told.kernels if kernel == "arrays"]
    steps = [f"`{definition}` by {kernel}" for definition, kernel in told.kernels if kernel != "arrays"]
    steps += [f"with arrays {', '.join(f'`{other}`' for other in others)}"] if others else []
    unbuilt = f"; never built: {', '.join(f'`{never}`' for never in told.unbuilt)}" if told.unbuilt else ""
    return "\n".join(
        (
            f"### {about.title}",
            "",
            wrapped(about.differs),
            "",
            wrapped(f"*{about.source}* [{name}.ix](../examples/variants/{name}.ix)"),
            "",
            f"```ix {name}.ix",
            about.program,
            "```",
            *shown,
            "",
            wrapped(f"- Kernels: {'; '.join(steps)}{unbuilt}.", "  "),
            f"- Cost: {show(told.cost)} multiply-adds, {grows(told.cost_growth)}.",
            f"- Memory: the largest array is `{told.largest}`, {show(told.memory)} numbers,"
            f" {grows(told.memory_growth)}.",
            "",
        )
    )


def grows(power: str) -> str:
    return "whatever N is" if power == "1" else f"grows as {power}"


def wrapped(text: str, indent: str = "") -> str:
    return "\n".join(textwrap.wrap(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def names_of(family: str) -> list[str]:
    (module,) = [module for module in roster.MODULES if module.__name__.rpartition(".")[2] == family]
    own = [name for name in roster.NAMES if getattr(getattr(module, name, None), "__module__", "") == module.__name__]
    return sorted(own, key=lambda name: header(name).title)


INTRODUCTION = f"""# Catalogue

Published variants of attention, each a program of at most a screen. Find yours, copy it, change a line. Every one is
checked, and compared with an implementation in plain PyTorch, values and gradients, by the tests.

This page is made from `examples/variants/` by `python -m tests.variants.catalogue`, and a test fails when it is out of
date.

- **Who hears whom** in the table is the relation between query and key that the checker finds; `–` where it finds no
  weights that are normalised over keys. In the pictures a row is a query and a column a key: ■ where the result depends
  on it, found by a run.
- **Kernel** is how a call with PyTorch's tensors on a CPU gathers; the plan of your own call says it for your arrays.
- **Cost** counts the multiply-adds of the relation as it is written, of the pairs that are heard: for N = {N:,}
  positions, 8 heads of 64 features, windows of 64 where they are inputs. Conditions on data, such as documents, are
  taken to hold.
- **Memory** is the largest definition that a call builds, for the same sizes; what it never builds is not counted.
"""


def page() -> str:
    parts = [
        INTRODUCTION,
        "| variant | source | who hears whom | kernel | cost | memory |\n| --- | --- | --- | --- | --- | --- |",
    ]
    parts[-1] += "".join(f"\n{row(name)}" for family in FAMILIES for name in names_of(family)) + "\n"
    for family, title in FAMILIES.items():
        parts += [f"## {title}\n", *(section(name) for name in names_of(family))]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
