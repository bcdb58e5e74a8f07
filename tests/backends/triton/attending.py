"""Attention by Triton kernels in Triton's interpreter, beside the plain lowering in double precision.

Run in a process of its own, since Triton reads the environment when it is imported:
`TRITON_INTERPRET=1 python -m tests.backends.triton.attending f32 "soft cap" "window, odd"`. One line a variant: its
name, and the largest errors of its result and of each gradient, of their largest entry where that is more than 1.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from itertools import groupby
from types import ModuleType
from typing import Any, TypeAlias

import torch
from tests.backends.triton.interpreter import patch_once
from tests.backends.variants import DOT, SIZES, Variant, attention
from tests.backends.variants import VARIANTS as USUAL

import indexical as ix
from indexical.backends.kernels import triton_gradients, triton_operands
from indexical.backends.old import triton_kernels
from indexical.plan.target import TRITON
from indexical.run.kernel import load

# All sizes differ from each other and from those of the tiles, and no tile is filled.
LARGER = {"i": 45, "j": 45, "d": 20, "e": 12, "r": 89}
# For what is not finite, at these places: such tiles are computed row by row.
SMALLER = {"b": 1, "h": 1, "i": 18, "j": 18, "d": 4, "e": 3, "r": 35}
PLACES = {"V": 2, "K": 6, "Q": 11, "d_out": 15}
GROUPED = """input Q[b, i, h, d], K[b, j, g, d], V[b, j, g, e], slope[h], u[h, j], doc[b, i] : i64;
let weights[b, h, i, j] = softmax[j](
    4 * tanh(sum[d](Q[b, i, h, d] * K[b, j, h / 2, d]) / 8) - slope[h] * (i - j) + u[h, j]
) where j <= i, doc[b, i] == doc[b, j];
let out[b, i, h, e] = sum[j](weights[b, h, i, j] * V[b, j, h / 2, e]);
"""
THREE = """input Q[a, b, h, i, d], K[a, b, h, j, d], V[a, b, h, j, e], s[a, h];
let weights[a, b, h, i, j] = softmax[j](
    sum[d](Q[a, b, h, i, d] * K[a, b, h, j, d]) / 4 - s[a, h] * (i - j) * (b + 1) / 9.0
) where j <= i;
let out[a, b, h, i, e] = sum[j](weights[a, b, h, i, j] * V[a, b, h, j, e]);
"""
TWO = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], P[b, h, i, f], R[b, j, f];
let weights[b, h, i, j] = softmax[j](
    (sum[d](Q[b, h, i, d] * K[b, h, j, d]) + sum[f](P[b, h, i, f] * R[b, j, f])) / 5
) where j <= i, i - j < 20;
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
"""
SINK = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], sink[h], slope[h];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / 3 - slope[h] * (i - j);
let top[b, h, i] = max(sink[h] * slope[h], max[j](scores[b, h, i, j] where j <= i));
let share[b, h, i, j] = exp(scores[b, h, i, j] - top[b, h, i]) where j <= i;
let total[b, h, i] = exp(sink[h] * slope[h] - top[b, h, i]) + sum[j](share[b, h, i, j]);
let out[b, h, i, e] = sum[j](share[b, h, i, j] / total[b, h, i] * V[b, h, j, e]);
"""
# The first row hears nobody, and its largest score is -inf.
EPSILON = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / 3;
let top[b, h, i] = max[j](scores[b, h, i, j] where j < i);
let share[b, h, i, j] = exp(scores[b, h, i, j] - top[b, h, i]) where j < i;
let out[b, h, i, e] = sum[j](share[b, h, i, j] * V[b, h, j, e]) / (0.1 + sum[j](share[b, h, i, j]));
"""
PLAIN = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / 3;
let weights[b, h, i, j] = WEIGHTS where j < i;
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
"""
# Several pieces, names that a kernel has itself, times that no float32 tells apart, and windows without end.
GIVEN = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
input q[h], n[b] : i64, k[b, i] : i64, d_q[b, i] : i64, part[h, i];
let weights[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / 3
    * exp(-abs(q[h]) * abs(i - j) / 9.0 - 0.1 * abs(d_q[b, i] - d_q[b, j])) * part[h, i]
    where j <= i, i - j < n[b], k[b, i] == k[b, j] || j < 2 || i != j;
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
"""
# Scores that only these kernels are asked for: the kernel that the usual ones name for a CPU is of no interest here.
VARIANTS = {
    **USUAL,
    "grouped, with all": Variant(
        GROUPED, "", sizes={"h": 4}, given={"doc": lambda sizes: torch.arange(sizes["i"]).repeat(sizes["b"], 1) // 17}
    ),
    "three batch axes": Variant(THREE, ""),
    "two dot products": Variant(TWO, "", sizes={"f": 6}),
    "sink": Variant(SINK, ""),
    "epsilon": Variant(EPSILON, ""),
    "sink, queries bent": Variant(
        SINK.replace("slope[h] * (i - j)", "log_sigmoid(exp(-abs(u[b, h, i]) / 3))").replace(
            "slope[h];", "slope[h], u[b, h, i];", 1
        ),
        "",
    ),
    "softmax off by one": Variant(
        PLAIN.replace("WEIGHTS", "exp(scores[b, h, i, j]) / (1 + sum[j](exp(scores[b, h, i, j]) where j < i))"), ""
    ),
    "sigmoid": Variant(
        PLAIN.replace("WEIGHTS", "sigmoid(scores[b, h, i, j] - shift[h] + u[b, h, j])").replace(
            "V[b, h, j, e];\nlet", "V[b, h, j, e], shift[h], u[b, h, j];\nlet", 1
        ),
        "",
    ),
    "retention": Variant(
        PLAIN.replace("WEIGHTS", "scores[b, h, i, j] * exp(slope[h] * (j - i) / 9.0)").replace(
            "V[b, h, j, e];\nlet", "V[b, h, j, e], slope[h];\nlet", 1
        ),
        "",
    ),
    "total": Variant(
        PLAIN.replace("WEIGHTS", "softmax[j](scores[b, h, i, j])")
        + "let lse[b, h, i] = log(sum[j](exp(scores[b, h, i, j]) where j < i));",
        "",
    ),
    "total beside a sink": Variant(SINK + "let lse[h, i, b] = top[b, h, i] + log(total[b, h, i]);", ""),
    "total alone": Variant(
        """input Q[b, h, i, d], K[b, h, j, d], slope[h];
        let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / 3 - slope[h] * (i - j);
        let lse[b, h, i] = log(sum[j](exp(scores[b, h, i, j]) where j < i));""",
        "",
    ),
    "uneven slopes": Variant(
        attention("j <= i + 2", f"({DOT} - slope[h] * gain[h] * (2 * i - 3 * j + 5)) / 9", ", slope[h], gain[h]"), ""
    ),
    "curved slopes": Variant(
        attention("j <= i", f"{DOT} + log_sigmoid(slope[h] * (i - j) / 9.0)", ", slope[h]"), "", sizes={"h": 2}
    ),
    "poles at keys ahead": Variant(
        attention(
            "j <= i",
            f"{DOT} / sqrt(i - j + 1) + (slope[h] + bias[h, i - j]) / (i - j + 1) + gain[h] * log(i - j + 1)",
            ", slope[h], gain[h], bias[h, r]",
        ),
        "",
    ),
    "divided by a distance": Variant(attention("j <= i", f"{DOT} + slope[h] / (i - j + 1)", ", slope[h]"), ""),
    "rising with keys": Variant(
        attention("i - 9 < j", f"-(slope[b] * (i - j) - {DOT}) + (j - i + size(j)) / 50.0", ", slope[b]"), ""
    ),
    "relative bias, sloping": Variant(
        attention(
            "j <= i", f"{DOT} + bias[h, i - j] - slope[h] * (size(j) + 2 * i - 3 * j) / 9", ", bias[h, r], slope[h]"
        ),
        "",
    ),
    "mask in tiles": Variant(
        attention("mask[i, j], j > 2", more=", mask[i, j] : bool"),
        "",
        given={"mask": lambda sizes: torch.arange(sizes["i"])[:, None] // 8 >= torch.arange(sizes["j"]) // 16},
    ),
    "some queries": Variant(
        attention("ask[b, i], i - j < 9, j <= i", f"{DOT} - slope[h] * (i - j)", ", ask[b, i] : bool, slope[h]"),
        "",
        given={"ask": lambda sizes: (torch.arange(sizes["i"]) % 17 % 6 != 5).repeat(sizes["b"], 1)},
    ),
    "lengths of queries": Variant(
        attention("i < n[b], j < n[b]", f"{DOT} + bias[h, i - j + size(j) - 1]", ", n[b] : i64, bias[h, r]"),
        "",
        given={"n": lambda sizes: torch.tensor([sizes["i"] - 2, sizes["i"] - 19, 2**40][-sizes["b"] :])},
        sizes={"b": 3},
    ),
    "branches": Variant(
        attention(
            "j <= i, i - j < 9",
            f"if m[b, i] {{ min(c[h], u[b, h, j]) }} else {{ max({DOT}, c[h], -0.5) }}",
            ", c[h], u[b, h, j], m[b, i] : bool",
        ),
        "",
        given={"m": lambda sizes: (torch.arange(sizes["i"]) % 3 == 2).repeat(sizes["b"], 1)},
    ),
    "gate": Variant(
        attention("j <= i", f"{DOT} + log_sigmoid(g[b, h, i] + f[b, h, j])", ", g[b, h, i], f[b, h, j]"), ""
    ),
    "two tables": Variant(
        attention("j <= i", f"{DOT} * c[h, min(i - j, 5)] + bias[h, i - j]", ", c[h, a], bias[h, r]"),
        "",
        sizes={"a": 6},
    ),
    "relative bias, far": Variant(
        attention("j <= i, i - j < 40", f"{DOT} / 3 + bias[h, i - j]", ", bias[h, r]"),
        "",
        sizes={"b": 1, "h": 1, "i": 130, "j": 130, "r": 40},
    ),
    "relative bias, parts": Variant(
        attention("j < 5 || i <= j", f"{DOT} / 3 + bias[h, i - j + size(j) - 1]", ", bias[h, r]"), ""
    ),
    "given numbers": Variant(
        GIVEN,
        "",
        sizes={"h": 1},
        given={
            "n": lambda _: torch.tensor([2**63 - 1, 7]),
            "k": lambda sizes: torch.arange(sizes["i"]).repeat(sizes["b"], 1) * 7 % 3,
            "d_q": lambda sizes: 1_700_000_000 + torch.arange(sizes["i"]).repeat(sizes["b"], 1) * 5 % 13,
        },
    ),
    "numbers compared": Variant(
        attention(
            "j < (if n[b] == m[b] { i - 3 } else { i + 1 }), i != n[b]",
            f"{DOT} + u[h, j]",
            ", n[b] : i64, m[b] : i64, u[h, j]",
        ),
        "",
        given={"n": lambda _: torch.tensor([2**40, 11]), "m": lambda _: torch.tensor([2**41, 11])},
    ),
    "relative bias in documents": Variant(
        attention("j <= i, doc[b, i] == doc[b, j]", f"{DOT} + bias[h, i - j]", ", bias[h, r], doc[b, i] : i64"),
        "",
        given={"doc": lambda sizes: torch.arange(sizes["i"]).repeat(sizes["b"], 1) // 17},
    ),
}
# Behind the name of a variant: values that are not finite are tried too, all at once or one by one; or a query whose
# scores are all -inf.
ODD, EACH, SILENT = ", odd", ", each odd", ", silent"
# Or a kernel of its own sums diagonals; or the one for queries does, head by head, or of other tiles.
DIAGONALS, TURNS, SQUARE, TALL = ", by diagonals", ", by heads", ", by square tiles", ", by tall tiles"
# Or the program is its derivative; or keys and values alone want a gradient.
DERIVED, KEYS = ", derived", ", keys alone"
# The dtype of all arrays of reals; or of some by their names, and of all others by none.
Dtypes: TypeAlias = "torch.dtype | Mapping[str, torch.dtype]"
DTYPES: dict[str, Dtypes] = {
    "f32": torch.float32,
    "f16": torch.float16,
    "f16, scores in f32": {"Q": torch.float16, "K": torch.float16, "V": torch.float16, "": torch.float32},
    "f16, queries in f32": {"Q": torch.float32, "": torch.float16},
    "f16, values in f32": {"V": torch.float32, "": torch.float16},
}


def dtype_of(array: str, dtypes: Dtypes) -> torch.dtype:
    """The dtype of an array of reals by its name."""
    return dtypes if isinstance(dtypes, torch.dtype) else dtypes.get(array, dtypes[""])


def drawn(name: str, dtype: Dtypes, larger: dict[str, int] | None = None) -> dict[str, Any]:
    """The arrays of a variant."""
    torch.manual_seed(1)
    variant = VARIANTS[name]
    sizes = {**SIZES, **(larger or LARGER), **variant.sizes}
    if torch.float16 in (dtype_of("Q", dtype), dtype_of("K", dtype)):  # The widths that matrix units take.
        sizes |= {"d": 64, "e": 128}
    found: dict[str, Any] = {}
    for tensor in ix.compile(variant.text).ir.inputs:
        if tensor.name in variant.given:
            found[tensor.name] = variant.given[tensor.name](sizes)
        else:
            found[tensor.name] = torch.randn([sizes[axis.coordinate.name] for axis in tensor.axes]).to(
                dtype_of(tensor.name, dtype)
            )
    return found


def is_learned(array: Any) -> bool:
    return torch.is_tensor(array) and array.is_floating_point()


def errors(
    name: str,
    dtype: Dtypes,
    odd: Sequence[dict[str, int]] = (),
    sizes: dict[str, int] | None = None,
    learned: str = "",
) -> list[float]:
    """The errors of the result and of every gradient, or of those of the `learned` arrays alone; the emitted module is
    the one for a GPU. Values that are not finite are tried at `odd` places."""
    program = ix.compile(VARIANTS[name].text)
    given = drawn(name, dtype, SMALLER if odd else sizes)
    call = replace(program._engine.prepare(given, "torch"), device="cuda")
    wanted = program.wanted(None)
    plan, module = program._engine.emitted(call, wanted, False)
    assert any(step.kernel == TRITON for step in plan.steps), name
    reals = [key for key, array in call.values.items() if is_learned(array)]
    leaves = [key for key in reals if not learned or key in learned]
    given = {**call.values, **{key: call.values[key].clone().requires_grad_(key in leaves) for key in reals}}
    exact = {**given, **{key: given[key].detach().double().requires_grad_(key in leaves) for key in reals}}
    function = load(module.linked(), wanted, ()).function
    for places in odd:
        check_odd_values(program, function, call.values, places)
    out = together(function(*(given[tensor.name] for tensor in program.ir.inputs)))
    right = together(program(**exact, isolate=True))
    assert torch.equal(out == -torch.inf, right == -torch.inf)
    out, right = out[right.isfinite()], right[right.isfinite()]
    weight = torch.randn(right.shape, dtype=torch.float64)
    assert out.dtype == reduce(torch.promote_types, (given[key].dtype for key in reals))
    found = torch.autograd.grad((out * weight.to(out.dtype)).sum(), [given[key] for key in leaves])
    assert [one.dtype for one in found] == [given[key].dtype for key in leaves]
    expected = torch.autograd.grad((right * weight).sum(), [exact[key] for key in leaves])
    pairs = [(out, right), *zip(found, expected, strict=True)]
    return [float((a.double() - b).abs().max() / max(1.0, float(b.detach().abs().max()))) for a, b in pairs]


def together(results: Any) -> torch.Tensor:
    """The result, or all of several in one row."""
    if torch.is_tensor(results):
        return results
    return torch.cat([result.flatten() for result in (results.values() if isinstance(results, dict) else results)])


def check_odd_values(program: ix.Program, function: Any, given: dict[str, Any], places: dict[str, int]) -> None:
    """What is NaN, among values, keys, queries and what flows back, reaches those who may hear it, and no others:
    neither a result nor a gradient. A query whose biases are all -inf is NaN, and not 0 like one that hears nobody."""
    names = [name for name, array in given.items() if is_learned(array)]
    flowing = torch.randn(program(**given).shape).to(given["V"])
    mine = {key: x.clone() if torch.is_tensor(x) else x for key, x in {**given, "d_out": flowing}.items()}
    for name, place in places.items():
        if name == "bias":
            mine[name][..., place, :] = -torch.inf
        else:
            mine[name][:, :, place, 0] = torch.nan
    exact = {key: array.double() if is_learned(array) else array for key, array in mine.items()}
    gradients = ix.grad(program, "out", names)(**exact, isolate=True)
    del exact["d_out"]
    wanted = [program(**exact, isolate=True), *gradients]
    flowing = mine.pop("d_out")
    arrays = [array.requires_grad_() if is_learned(array) else array for array in mine.values()]
    out = function(*arrays)
    found = [out, *torch.autograd.grad(out, list(filter(is_learned, arrays)), flowing)]
    for name, one, right in zip(("out", *names), found, wanted, strict=True):
        differs = one.isfinite() != right.isfinite()
        assert not differs.any(), f"with odd values at {places}, {name} differs at {differs.nonzero()[:6].tolist()}"


def derived_errors(name: str, dtype: Dtypes) -> list[float]:
    """The errors of the gradients of queries, keys and values by a program that is the derivative."""
    program = ix.compile(VARIANTS[name].text)
    derivative = ix.grad(program, "out", ["Q", "K", "V"])
    given = drawn(name, dtype)
    given["d_out"] = torch.randn(program(**given).shape).to(dtype_of("d_out", dtype))
    call = replace(derivative._engine.prepare(given, "torch"), device="cuda")
    wanted = derivative.wanted(None)
    plan, module = derivative._engine.emitted(call, wanted, False)
    assert any(step.kernel == f"the backward of {TRITON}" for step in plan.steps), plan.steps
    found = load(module.linked(), wanted, ()).function(*(call.values[name] for name in derivative.inputs))
    doubled = {key: array.double() if is_learned(array) else array for key, array in given.items()}
    right = derivative(**doubled, isolate=True)
    pairs = zip(found, right, strict=True)
    return [float((a.double() - b).abs().max() / max(1.0, float(b.abs().max()))) for a, b in pairs]


def changes(name: str) -> list[float]:
    """The differences that `torch.compile` of the whole makes to the result and to every gradient."""
    program = ix.compile(VARIANTS[name].text)
    call = replace(program._engine.prepare(drawn(name, torch.float32), "torch"), device="cuda")
    wanted = program.wanted(None)
    function = load(program._engine.emitted(call, wanted, False)[1].linked(), wanted, ()).function
    given = [array.requires_grad_() if is_learned(array) else array for array in call.values.values()]
    found = []
    for run in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
        out = run(*given)
        found.append([out, *torch.autograd.grad(out.square().sum(), list(filter(is_learned, given)))])
    return [float((a - b).abs().max()) for a, b in zip(*found, strict=True)]


def tilings(rows: int, keys: int) -> Any:
    """The usual tiles, but for these of queries."""
    usual = triton_operands._tilings
    return lambda *about: (usual(*about)[0], triton_operands.Tiling(rows, keys, 4, 1), usual(*about)[2])


@contextmanager
def changed(module: ModuleType, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def main(*words: str) -> None:
    """Words: a dtype and names of variants, and more of them behind `--`."""
    patch_once()
    # Of four heads two or three are taken at a time, and then the rest.
    triton_kernels.TOGETHER = triton_kernels.MANY_TOGETHER = 6
    warnings.simplefilter("ignore")
    for is_end, group in groupby(words, "--".__eq__):
        if not is_end:
            dtype, *names = group
            for name in names:
                numbers = numbers_of(dtype, name)
                print(f"{name}: {' '.join(f'{number:.2e}' for number in numbers)}", flush=True)


def numbers_of(dtype: str, name: str) -> list[float]:
    """The errors of a variant, computed as the end of its name says."""
    if dtype == "compiled":
        return changes(name)
    if name.endswith(DERIVED):
        return derived_errors(name.removesuffix(DERIVED), DTYPES[dtype])
    if name.endswith(KEYS):
        return errors(name.removesuffix(KEYS), DTYPES[dtype], learned="KV")
    if name.endswith(ODD):
        return errors(name.removesuffix(ODD), DTYPES[dtype], [PLACES])
    if name.endswith(SILENT):
        return errors(name.removesuffix(SILENT), DTYPES[dtype], [{"bias": 7}])
    if name.endswith(EACH):
        return errors(name.removesuffix(EACH), DTYPES[dtype], [{n: place} for n, place in PLACES.items()])
    if name.endswith(DIAGONALS):
        with changed(triton_gradients, "_STRIPS", 0.0):
            return errors(name.removesuffix(DIAGONALS), DTYPES[dtype], sizes=SMALLER)
    if name.endswith(TURNS):
        with changed(triton_gradients, "_STRIPS", 0.05):
            return errors(name.removesuffix(TURNS), DTYPES[dtype])
    if name.endswith((SQUARE, TALL)):
        with changed(triton_operands, "_tilings", tilings(16, 16) if name.endswith(SQUARE) else tilings(64, 32)):
            return errors(name.removesuffix(SQUARE).removesuffix(TALL), DTYPES[dtype])
    return errors(name, DTYPES[dtype])


if __name__ == "__main__":
    main(*sys.argv[1:])
