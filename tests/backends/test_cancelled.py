"""Inputs that cancel, as what all keys of a softmax share does: kernels do not read them, and their gradients are 0."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

DOT = "sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d))"
ANSWER = "let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);"
SIZES = {"h": 2, "i": 5, "j": 5, "d": 3, "e": 4}


def attention(score: str, more: str, guard: str = " where j <= i") -> str:
    head = f"input Q[h, i, d], K[h, j, d], V[h, j, e], {more};"
    return f"{head} let weights[h, i, j] = softmax[j]({score}){guard}; {ANSWER}"


# What cancels in `out`, by the text of a program.
PROGRAMS = {
    "a query's own": (attention(f"{DOT} + c[h, i]", "c[h, i]"), ("c",)),
    "one number": (attention(f"c + {DOT}", "c"), ("c",)),
    "without a guard": (attention(f"{DOT} - c[i] * c[i]", "c[i]", ""), ("c",)),
    "a window": (attention(f"{DOT} + c[h]", "c[h]", " where j <= i, i - j < 3"), ("c",)),
    "two": (attention(f"w[h] + {DOT} - c[i]", "c[i], w[h]"), ("c", "w")),
    "by a definition": (
        f"input Q[h, i, d], K[h, j, d], V[h, j, e], w[h, i]; let c[i, h] = exp(w[h, i]) * 2;"
        f"let weights[h, i, j] = softmax[j]({DOT} + c[i, h]) where j <= i; {ANSWER}",
        ("w",),
    ),
    "a product": (attention(f"{DOT} + sum[d](Q[h, i, d] * r[h, d])", "r[h, d]"), ("r",)),
    "by hand": (
        f"input Q[h, i, d], K[h, j, d], V[h, j, e], c[i]; let s[h, i, j] = {DOT} + c[i];"
        "let out[h, i, e] = sum[j](exp(s[h, i, j]) * V[h, j, e]) / sum[j](exp(s[h, i, j]));",
        ("c",),
    ),
    "read elsewhere": (
        attention(f"{DOT} + c[i]", "c[i]") + " let twice[h, i, e] = out[h, i, e] * c[i]; output twice;",
        (),
    ),
    "a key's own": (attention(f"{DOT} + c[h, j]", "c[h, j]"), ()),
    "distances": (attention(f"{DOT} - c[h] * (i - j)", "c[h]"), ()),
    "no softmax": (
        f"input Q[h, i, d], K[h, j, d], V[h, j, e], c[i];"
        f"let weights[h, i, j] = sigmoid({DOT} + c[i]) where j <= i; {ANSWER}",
        (),
    ),
    "the total, too": (
        f"input Q[h, i, d], K[h, j, d], V[h, j, e], c[i]; let s[h, i, j] = {DOT} + c[i];"
        f"let weights[h, i, j] = softmax[j](s[h, i, j]) where j <= i; {ANSWER}"
        "let total[h, i] = log(sum[j](exp(s[h, i, j]) where j <= i)); output out, total;",
        ("c",),
    ),
}


def drawn(program: ix.Program) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    shapes = [[SIZES[str(axis.coordinate)] for axis in tensor.axes] for tensor in program.ir.inputs]
    return [torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True) for shape in shapes]


def summed(results: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    every = results if isinstance(results, tuple) else (results,)
    return sum(((result**2).sum() for result in every), torch.zeros((), dtype=torch.float64))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_the_relation(name: str) -> None:
    text, cancelled = PROGRAMS[name]
    program = ix.compile(text)
    arrays = drawn(program)
    told = str(program.plan(*arrays)).count("cancels and is not read")
    assert told == len(cancelled)
    mine = torch.autograd.grad(summed(program(*arrays)), arrays)
    plain = torch.autograd.grad(summed(program(*arrays, isolate=True)), arrays)
    for place, (found, right) in enumerate(zip(mine, plain, strict=True)):
        torch.testing.assert_close(found, right)
        if program.inputs[place] in cancelled and len(program.outputs) == 1:
            assert not found.any()


def test_transforms_of_pytorch_take_what_cancels() -> None:
    program = ix.compile(PROGRAMS["a window"][0])
    arrays = [array.detach() for array in drawn(program)]
    places = tuple(range(len(arrays)))
    right = torch.func.grad(lambda *xs: summed(program(*xs, isolate=True)), argnums=places)(*arrays)
    for found, wanted in zip(torch.func.grad(lambda *xs: summed(program(*xs)), places)(*arrays), right, strict=True):
        torch.testing.assert_close(found, wanted)
    several = [torch.stack((array, array * 2)) for array in arrays]
    each = torch.func.vmap(torch.func.grad(lambda *xs: summed(program(*xs)), places))(*several)
    torch.testing.assert_close(each[0][0], right[0])
    assert each[3].shape == several[3].shape
    assert not each[3].any()


def test_what_is_compiled_has_zeros_for_what_cancels() -> None:
    program = ix.compile(PROGRAMS["one number"][0])
    arrays = [array.detach().float().requires_grad_() for array in drawn(program)]
    compiled = torch.compile(lambda *xs: program(*xs) ** 2, fullgraph=True, backend="aot_eager")
    *_, found = torch.autograd.grad(compiled(*arrays).sum(), arrays)
    assert found == 0


def test_a_result_keeps_its_dtype_and_what_cancels_may_be_infinite() -> None:
    program = ix.compile(PROGRAMS["a query's own"][0])
    *others, c = (array.detach().to(torch.bfloat16) for array in drawn(program))
    c = c.fill_(torch.inf).requires_grad_()
    result = program(*others, c)
    assert result.dtype == torch.bfloat16
    assert result.isfinite().all()
    (found,) = torch.autograd.grad(result.sum(), [c])
    assert not found.any()
