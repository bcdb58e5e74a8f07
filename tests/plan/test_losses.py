"""Cross-entropy runs as the library's kernel in every spelling of it, less it and means of some of it too, and nothing
else does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

NAMED = "let p[b, i, c] = log_softmax[c](x[b, i, c]); {}"
SPELLINGS = {
    "of std": "let loss = cross_entropy(x, t);",
    "of std, at each point": "let loss = surprise(x, t);",
    "a mean": NAMED.format("let loss = mean[b, i](-p[b, i, t[b, i]]);"),
    "less a mean": NAMED.format("let loss = -mean[b, i](p[b, i, t[b, i]]);"),
    "a sum": NAMED.format("let loss = sum[b, i](-p[b, i, t[b, i]]);"),
    "at each point": NAMED.format("let loss[b, i] = -p[b, i, t[b, i]];"),
    "turned": NAMED.format("let loss[i, b] = -p[b, i, t[b, i]];"),
    "summed the other way": NAMED.format("let loss = mean[i, b](-p[b, i, t[b, i]]);"),
    "classes in the midst": """
        let p[b, c, i] = log_softmax[c](x[b, i, c]);
        let s[i, b] = -p[b, t[b, i], i];
        let loss = mean[b, i](s[i, b]);""",
    "of a sum": """
        let p[b, i, c] = log_softmax[c](x[b, i, c] * 2 + g[c]);
        let loss = mean[b, i](-p[b, i, t[b, i]]);""",
    "the next class": NAMED.format("let loss = mean[b, i](-p[b, i, (t[b, i] + 1) % size(c)]);"),
    "by hand": "let loss = mean[b, i](log(sum[c](exp(x[b, i, c]))) - x[b, i, t[b, i]]);",
    "by hand, at each point": "let loss[b, i] = -(x[b, i, t[b, i]] - log(sum[c](exp(x[b, i, c]))));",
    "less the largest": """
        let top[b, i] = max[c](x[b, i, c]);
        let total[b, i] = top[b, i] + log(sum[c](exp(x[b, i, c] - top[b, i])));
        let loss = mean[b, i](total[b, i] - x[b, i, t[b, i]]);""",
    "less the largest, twice": """
        let top[b, i] = max[c](x[b, i, c]);
        let loss[i, b] = log(sum[k in 0..size(c)](exp(x[b, i, k] - top[b, i]))) - (x[b, i, t[b, i]] - top[b, i]);""",
    "less another": "let loss[b, i] = g[0] + log(sum[c](exp(x[b, i, c] - g[0]))) - x[b, i, t[b, i]];",
    "shifted by name": """
        let y[b, i, c] = x[b, i, c] * 2 - g[c];
        let loss = sum[b, i](log(sum[c](exp(y[b, i, c]))) - y[b, i, t[b, i]]);""",
    "of a softmax": "let p[b, i, c] = softmax[c](x[b, i, c]); let loss = -mean[b, i](log(p[b, i, t[b, i]]));",
    "of weights by hand": """
        let p[b, i, c] = exp(x[b, i, c]) / sum[c](exp(x[b, i, c]));
        let loss = sum[b, i](-log(p[b, i, t[b, i]]));""",
    "logarithms by hand": """
        let p[b, i, c] = x[b, i, c] - log(sum[c](exp(x[b, i, c])));
        let loss = mean[b, i](-p[b, i, t[b, i]]);""",
    "the row of another by hand": """
        let p[b, i, c] = x[b, i, c] - log(sum[c](exp(x[b, i, c])));
        let loss = mean[b, i](-p[b, size(i) - 1 - i, t[b, i]]);""",
    "the row of another": NAMED.format("let loss = mean[b, i](-p[b, size(i) - 1 - i, t[b, i]]);"),
    "a part of the rows": NAMED.format("let loss = mean[b, i in 0..2](-p[b, i, t[b, i]]);"),
    "not less": NAMED.format("let loss = mean[b, i](p[b, i, t[b, i]]);"),
    "the mean of some": NAMED.format("let loss[b] = mean[i](-p[b, i, t[b, i]]);"),
}
OTHERS = {
    "written out": """
        let loss[b, i] = log(sum[c](exp(x[b, i, c] + g[c]))) - g[t[b, i]] - x[b, i, t[b, i]];""",
    "guarded": NAMED.format("let loss = mean[b, i](-p[b, i, t[b, i]] where t[b, i] > 0);"),
    "over some classes": """
        let p[b, i, c] = log_softmax[c](x[b, i, c] where c < 3);
        let loss[b, i] = -p[b, i, t[b, i] % 3];""",
    "one class for all": NAMED.format("let loss = mean[b, i](-p[b, i, 2]);"),
    "some classes by hand": """
        let loss = mean[b, i](log(sum[k in 0..3](exp(x[b, i, k]))) - x[b, i, t[b, i]]);""",
    "guarded classes by hand": """
        let loss[b, i] = log(sum[c](exp(x[b, i, c]) where c < 4)) - x[b, i, t[b, i]];""",
    "of other logits": "let loss[b, i] = log(sum[c](exp(x[b, i, c]))) - g[t[b, i]];",
    "scaled": "let loss[b, i] = log(sum[c](exp(2 * x[b, i, c]))) - x[b, i, t[b, i]];",
    "of other rows": "let loss[b, i] = log(sum[c](exp(x[b, i, c]))) - x[b, size(i) - 1 - i, t[b, i]];",
    "and more": "let loss[b, i] = log(sum[c](exp(x[b, i, c] - g[1]))) + x[b, i, 0] - x[b, i, t[b, i]];",
    "weighed": "let loss[b, i] = log(sum[c](g[c] ** 2 * exp(x[b, i, c]))) - x[b, i, t[b, i]];",
    "less twice": "let loss[b, i] = log(sum[c](exp(x[b, i, c]))) - 2 * x[b, i, t[b, i]];",
    "its total too": """
        let total[b, i] = log(sum[c](exp(x[b, i, c])));
        let loss = mean[b, i](total[b, i] - x[b, i, t[b, i]]); output loss, total;""",
    "its square": NAMED.format("let loss = mean[b, i](p[b, i, t[b, i]] ** 2);"),
    "its logarithms too": NAMED.format("let loss = mean[b, i](-p[b, i, t[b, i]]); output loss, p;"),
}


def arrays(dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x, g = (torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype) for shape in ((2, 3, 5), (5,)))
    return [x, g, torch.tensor([[0, 4, 2], [1, 1, 3]])]


def program(body: str) -> ix.Program:
    head = "use std::losses::{cross_entropy, surprise}; input x[b, i, c], g[c], t[b, i] : i64;"
    return ix.compile(f"{head} {body}{'' if 'output' in body else ' output loss;'}")


def first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*SPELLINGS, *OTHERS])
def test_values_and_gradients_are_those_of_the_relation(name: str) -> None:
    made = program({**SPELLINGS, **OTHERS}[name])
    given = arrays()
    kernels = [step.kernel for step in made.plan(*given).steps if step.definition == "loss"]
    assert (kernels == ["cross_entropy"]) == (name in SPELLINGS)
    right = first(made(*(array.numpy() for array in given), backend="reference"))
    leaves = [array.clone().requires_grad_() for array in given[:2]]
    np.testing.assert_allclose(first(made(*leaves, given[2])).detach(), right, rtol=1e-12, atol=1e-12)
    flows = [
        torch.autograd.grad((first(made(*leaves, given[2], isolate=isolate)) ** 2).sum(), leaves, allow_unused=True)
        for isolate in (False, True)
    ]
    for mine, plain in zip(*flows, strict=True):
        assert (mine is None) == (plain is None)
        if mine is not None:
            torch.testing.assert_close(mine, plain)


@pytest.mark.parametrize("target", [-100, -1, 5])
def test_a_target_that_is_no_class_is_refused(target: int) -> None:
    """PyTorch leaves out the rows whose target is -100: here it is out of bounds like any other."""
    x, g, t = arrays()
    t[1, 2] = target
    for name in ("a mean", "by hand", "less the largest"):
        with pytest.raises(ix.Error, match="out of bounds"):
            program(SPELLINGS[name])(x, g, t)


def test_what_cancels_is_refused_where_it_is_out_of_bounds() -> None:
    x, g, t = arrays()
    shifted = "log(sum[c](exp(x[b, i, c] - g[t[b, i] + 2]))) + g[t[b, i] + 2]"
    with pytest.raises(ix.Error, match="out of bounds for axis 0 of `g`"):
        program(f"let loss[b, i] = {shifted} - x[b, i, t[b, i]];")(x, g, t)


def test_a_mean_over_no_points_is_refused_and_a_sum_is_0() -> None:
    x, g, t = torch.zeros(2, 0, 5), torch.zeros(5), torch.zeros(2, 0, dtype=torch.int64)
    with pytest.raises(ix.Error, match="`mean` over no points has no value"):
        program(SPELLINGS["a mean"])(x, g, t)
    assert program(SPELLINGS["a sum"])(x, g, t) == 0
    assert program(SPELLINGS["at each point"])(x, g, t).shape == (2, 0)


def test_narrow_targets_and_narrow_logits() -> None:
    made = program(SPELLINGS["a mean"])
    x, g, t = arrays(torch.float32)
    right = torch.nn.functional.cross_entropy(x.reshape(6, 5), t.reshape(6))
    torch.testing.assert_close(made(x, g, t), right)
    narrow = ix.compile(f"input x[b, i, c], t[b, i] : i32; {SPELLINGS['a mean']}")
    torch.testing.assert_close(narrow(x, t.to(torch.int32)), right)
    assert made.plan(x.bfloat16(), g.bfloat16(), t).steps[-1].kernel == "arrays"


def test_it_is_differentiated_twice_and_mapped() -> None:
    made = program(SPELLINGS["a mean"])
    x, g, t = arrays()
    x.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: made(x, g, t), (x,))
    several = torch.stack([x.detach(), x.detach() * 2])
    mapped = torch.func.vmap(torch.func.grad(lambda x: made(x, g, t)))(several)
    for row, found in zip(several, mapped, strict=True):
        leaf = row.clone().requires_grad_()
        torch.testing.assert_close(found, torch.autograd.grad(made(leaf, g, t, isolate=True), leaf)[0])


def test_classes_are_looked_at_and_not_picked() -> None:
    """A place among the classes is itself, where it is one."""
    text = "use std::losses::{cross_entropy}; input x[b, c], t[b] : i64; let loss = cross_entropy(x, t);"
    program, x = ix.compile(text), torch.randn(4, 5)
    source = program.source(x, torch.tensor([0, 4, 2, 1]))
    assert "arange" not in source
    assert 'cross_entropy(x, t, reduction="mean")' in source
    for wrong in (-1, 5):
        with pytest.raises(ix.CallError, match="out of bounds"):
            program(x, torch.tensor([0, wrong, 2, 1]))
