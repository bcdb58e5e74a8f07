"""Few queries over many keys by the kernel that splits keys, run by Triton's interpreter: the errors as JSON.

    TRITON_INTERPRET=1 python -m tests.backends.triton.decoding

In a process of its own, since Triton reads that variable when it is imported. Each program is planned for a GPU, and
its emitted module is run on the CPU beside the same relation in float64.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tests.backends.triton.interpreter import patch_once

import indexical as ix

HEAD = "space batch(b), head(h), group(g), position(i, j), feature(d, e);\n"
DOT = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))"
SHARED = "h / (size(h) / size(g))"
LATE = "j <= i + size(j) - size(i)"


def attention(score: str = DOT, guard: str = "", further: str = "") -> str:
    where = f" where {guard}" if guard else ""
    return (
        f"{HEAD}input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]{further};\n"
        f"let weights[b, h, i, j] = softmax[j]({score}){where};\n"
        "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);\n"
    )


def grouped(score: str = DOT, guard: str = "", further: str = "") -> str:
    text = attention(score, guard, further).replace("K[b, h, j, d]", f"K[b, {SHARED}, j, d]")
    text = text.replace("V[b, h, j, e]", f"V[b, {SHARED}, j, e]")
    inputs, _, rest = text.partition(";\nlet")
    return f"{inputs.replace(SHARED, 'g')};\nlet{rest}"


def _total(keys: str, guard: str) -> str:
    return (
        f"let scores[b, h, i, j] = {DOT.replace('K[b, h, j, d]', keys)};\n"
        f"let lse[b, h, i] = log(sum[j](exp(scores[b, h, i, j]) where {guard}));\n"
    )


def together(results: Any) -> torch.Tensor:
    """The result, or all of several in one row."""
    return results if torch.is_tensor(results) else torch.cat([result.flatten() for result in results])


def alone(score: str, guard: str = "", further: str = "") -> str:
    """One query for each head, without a coordinate of its own."""
    where = f" where {guard}" if guard else ""
    return (
        f"{HEAD}input Q[b, h, d], K[b, g, j, d], V[b, g, j, e]{further};\n"
        f"let weights[b, h, j] = softmax[j]({score}){where};\n"
        f"let out[b, h, e] = sum[j](weights[b, h, j] * V[b, {SHARED}, j, e]);\n"
    )


def paged(score: str, guard: str, further: str = "") -> str:
    """Keys and values in pages, which a table names: places in a page before heads."""
    page = "table[b, j / size(p)], j % size(p)"
    return (
        f"{HEAD.replace('position', 'page(n), slot(p), place(t), position')}"
        f"input Q[b, h, i, d], K[n, p, g, d], V[n, p, g, e], table[b, t] : i64, length[b] : i64{further};\n"
        "let scores[b, h, i, j in 0..size(t) * size(p)] = "
        f"sum[d](Q[b, h, i, d] * K[{page}, {SHARED}, d]) / sqrt(size(d)){score};\n"
        f"let weights[b, h, i, j in 0..size(t) * size(p)] = softmax[j](scores[b, h, i, j]) where {guard};\n"
        f"let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[{page}, {SHARED}, e]);\n"
    )


ONE = f"sum[d](Q[b, h, d] * K[b, {SHARED}, j, d]) / sqrt(size(d))"


@dataclass(frozen=True)
class Case:
    """A program and its sizes; `odd` marks a value that is infinite, others that are NaN, and whom they reach; a query
    that has biases has those that are -inf."""

    program: str
    sizes: tuple[int, ...] = (2, 6, 2, 3, 150, 20, 36)
    dtype: str = "f32"
    odd: bool = False


CASES = {
    "grouped": Case(grouped(), (1, 6, 2, 3, 1100, 20, 36)),
    "window": Case(grouped(guard=f"{LATE}, j > i + size(j) - size(i) - 40")),
    "alibi": Case(grouped(f"{DOT} + slope[h] * (j - i)", LATE, ", slope[h]")),
    "capped": Case(grouped(f"30 * tanh({DOT} / 30)", LATE), dtype="f16"),
    "lengths": Case(grouped(guard="j < length[b]", further=", length[b] : i64")),
    "every head": Case(attention(guard=LATE), (1, 3, 3, 7, 97, 32, 16)),
    "one head of keys": Case(
        f"{HEAD}input Q[b, h, i, d], K[b, j, d], V[b, j, e], slope[h];\n"
        f"let weights[b, h, i, j] = softmax[j]({DOT.replace('K[b, h,', 'K[b,')} + slope[h] * j) where {LATE};\n"
        "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, j, e]);\n"
    ),
    "two tiles": Case(grouped(guard=LATE), (1, 6, 1, 5, 70, 16, 24)),
    "prefix": Case(attention(guard=f"j < 9 || {LATE}, j > i + 60"), (2, 2, 2, 4, 130, 16, 16)),
    "documents": Case(
        attention(guard="of_query[b, i] == of_key[b, j]", further=", of_query[b, i] : i64, of_key[b, j] : i64"),
        (2, 2, 2, 5, 90, 24, 16),
    ),
    "mask": Case(attention(guard="allowed[i, j]", further=", allowed[i, j] : bool"), (2, 2, 2, 5, 90, 24, 16)),
    "bias": Case(grouped(f"{DOT} + bias[h, i, j]", further=", bias[h, i, j]")),
    "gate": Case(
        attention(f"{DOT} * gate[b, h, i] + near[b, h, j]", LATE, ", gate[b, h, i], near[b, h, j]"),
        (2, 3, 3, 3, 80, 20, 36),
    ),
    "relative": Case(grouped(f"{DOT} + far[h, i + size(j) - size(i) - j]", LATE, ", far[h, r]")),
    "sink": Case(
        f"""{HEAD}input Q[b, h, i, d], K[b, g, j, d], V[b, g, j, e], sink[h];
let scores[b, h, i, j] = {DOT.replace("K[b, h,", f"K[b, {SHARED},")};
let share[b, h, i, j] = exp(scores[b, h, i, j]) where {LATE};
let total[b, h, i] = exp(sink[h]) + sum[j](share[b, h, i, j] where {LATE});
let out[b, h, i, e] = sum[j](share[b, h, i, j] / total[b, h, i] * V[b, {SHARED}, j, e] where {LATE});
""",
        (1, 4, 2, 3, 90, 20, 36),
        odd=True,
    ),
    "total": Case(grouped(guard=LATE) + _total(f"K[b, {SHARED}, j, d]", LATE)),
    "total of none": Case(attention(guard="j < i") + _total("K[b, h, j, d]", "j < i"), (2, 2, 2, 2, 5, 16, 16)),
    "one query, total": Case(
        alone(ONE, "j < length[b]", ", length[b] : i64")
        + f"let scores[b, h, j] = {ONE};\nlet lse[b, h] = log(sum[j](exp(scores[b, h, j]) where j < length[b]));\n"
    ),
    "one query, softmax off by one": Case(
        f"""{HEAD}input Q[b, h, d], K[b, g, j, d], V[b, g, j, e];
let share[b, h, j] = exp({ONE});
let out[b, h, e] = sum[j](share[b, h, j] * V[b, {SHARED}, j, e]) / (1 + sum[j](share[b, h, j]));
"""
    ),
    "one query": Case(alone(ONE, "j < length[b]", ", length[b] : i64")),
    "one query, alibi": Case(alone(f"{ONE} + slope[h] * (j - size(j))", "j > 3", ", slope[h]")),
    "one query, capped": Case(alone(f"5 * tanh({ONE} / 5)", "j + 33 > size(j)")),
    "pages": Case(paged("", "j < length[b]")),
    "pages, alibi": Case(paged(" + slope[h] * j", "length[b] - 30 < j < length[b]", ", slope[h]"), dtype="f16"),
    "silent": Case(
        attention(f"{DOT} + bias[h, i, j]", "j < length[b], j > 1", ", bias[h, i, j], length[b] : i64"),
        (2, 2, 2, 3, 90, 20, 36),
        odd=True,
    ),
    "odd values": Case(grouped(guard=f"{LATE}, j > i + size(j) - size(i) - 40"), odd=True),
    "short": Case(attention(guard=LATE), (2, 2, 2, 1, 5, 16, 16)),
    "no keys": Case(attention(guard="j < i"), (2, 2, 2, 1, 5, 16, 16)),
}


def draw(case: Case) -> dict[str, torch.Tensor]:
    b, h, g, i, j, d, e = case.sizes
    torch.manual_seed(sum(case.sizes))
    alone = "Q[b, h, d]" in case.program
    found = {
        "Q": torch.randn(b, h, d) if alone else torch.randn(b, h, i, d),
        "K": torch.randn(b, g, j, d),
        "V": torch.randn(b, g, j, e),
        "slope": torch.rand(h),
        "sink": torch.randn(h),
        "length": torch.tensor([j // 3, 0, j][:b]),
        "of_query": torch.randint(0, 4, (b, i)),
        "of_key": torch.randint(0, 3, (b, j)),
        "allowed": torch.rand(i, j) < 0.5,
        "bias": torch.randn(h, i, j),
        "gate": torch.rand(b, h, i),
        "near": torch.randn(b, h, j),
        "far": torch.randn(h, j),
    }
    head = case.program.partition("let ")[0]
    if " table[" in head:
        found |= {
            "K": torch.randn(40, 8, g, d),
            "V": torch.randn(40, 8, g, e),
            "table": torch.randint(0, 40, (b, j // 8)),
        }
    if " K[b, j" in head:
        found |= {"K": torch.randn(b, j, d), "V": torch.randn(b, j, e)}
    found = {name: array for name, array in found.items() if f" {name}[" in head}
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[case.dtype]
    found = {name: x.to(dtype) if x.is_floating_point() else x for name, x in found.items()}
    if case.odd:  # The first is in the windows of some queries, the last in that of one, the other in none.
        found["V"][:, :, j - 41, 1] = torch.inf
        found["V"][:, :, j - 1, 2] = torch.nan
        found["V"][:, :, 3, 3] = torch.nan
        if "bias" in found:  # Of one query all scores are -inf, while others of the same tile hear somebody, or nobody.
            found["bias"][:, 1] = -torch.inf
    return found


def load(text: str, name: str, folder: Path) -> ModuleType:
    """The text as a module: the source of a kernel has to lie in a file."""
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run(name: str, case: Case, folder: Path) -> dict[str, Any]:
    """The largest error against float64, and whether the kernel was called."""
    given = draw(case)
    program = ix.compile(case.program)
    plan, text = program.imagine({n: x.numpy() for n, x in given.items()}, case.dtype, "torch", "cuda")  # type: ignore[arg-type]
    module = load(text, f"case_{list(CASES).index(name)}", folder)
    calls: list[int] = []
    maker = next(n for n in vars(module) if n.startswith("attend_few_"))
    inner = getattr(module, maker)
    setattr(module, maker, lambda *a: calls.append(1) or inner(*a))
    found = together(module.program(*(given[n] for n in program.inputs))).double()
    exact = {n: x.double() if x.is_floating_point() else x for n, x in given.items()}
    right = together(program(*(exact[n] for n in program.inputs), isolate=True))
    same = torch.equal(found.isnan(), right.isnan()) and torch.equal(found.isinf(), right.isinf())
    finite = right.isfinite() & found.isfinite()
    return {
        "called": len(calls),
        "same": same,
        "error": float((found - right)[finite].abs().max()) if finite.any() else 0.0,
        "odd": int((right.isnan() | (right == torch.inf)).sum()),
        "plan": "split over the card" in str(plan),
    }


def main() -> None:
    patch_once()
    names = sys.argv[1:] or list(CASES)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({name: run(name, CASES[name], Path(folder)) for name in names}))


if __name__ == "__main__":
    main()
