"""`ix.grad`, `ix.jvp` and `ix.batch` from Python: their arguments, what they give, how it shows itself, what they
refuse."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.test_notebook import read

import indexical as ix
from indexical.run.samples import random_arrays

ROOT = Path(__file__).resolve().parent.parent
CAUSAL = ROOT / "examples" / "causal_attention.ix"
TEXT = """input Q[i], K[i], n : i64, mask[i] : bool;
let s[i] = Q[i] * K[i] * n where mask[i];
let out = sum[i](s[i]);
"""
PROGRAM = ix.compile(TEXT)
TWO = ix.compile("input x[i], w; let a[i] = x[i] * w; let b = sum[i](x[i] ** 2);")

Deriving = Callable[..., ix.Program]


def codes(make: Callable[[], Any]) -> tuple[list[str], str]:
    """The codes of what is refused, and what is said."""
    with pytest.raises(ix.Error) as problem:
        make()
    return [found.code for found in problem.value.diagnostics], str(problem.value)


# ------------------------------------------------------------------- of and by


@pytest.mark.parametrize(
    ("by", "outputs"),
    [
        ("Q", ("d_Q",)),
        (("Q", "K"), ("d_Q", "d_K")),
        (["K", "Q"], ("d_K", "d_Q")),
        (iter("KQ"), ("d_K", "d_Q")),
        ({"Q": 1, "K": 2}, ("d_Q", "d_K")),
        (("Q", "Q"), ("d_Q",)),
        ("s", ("d_s",)),
        (("s", "Q"), ("d_s", "d_Q")),
        (None, ("d_Q", "d_K")),
    ],
    ids=lambda given: type(given).__name__,
)
def test_by_is_a_name_or_several(by: Any, outputs: tuple[str, ...]) -> None:
    assert ix.grad(PROGRAM, by=by).outputs == outputs


@pytest.mark.parametrize("of", ["s", ("s",), ["s"], {"s"}, ("s", "s")], ids=repr)
def test_of_is_a_name_or_several(of: Any) -> None:
    assert ix.grad(PROGRAM, of=of).inputs == ("Q", "K", "n", "mask", "d_s")
    assert ix.jvp(PROGRAM, of=of).outputs == ("dot_s",)


def test_of_and_by_in_the_order_of_the_call() -> None:
    assert ix.grad(PROGRAM, "out", "Q").outputs == ("d_Q",)
    assert ix.jvp(PROGRAM, "Q", "out").inputs == ("Q", "K", "n", "mask", "dot_Q")
    assert ix.jvp(TWO).outputs == ("dot_a", "dot_b")
    assert ix.jvp(TWO, of=(name for name in ("b", "a"))).outputs == ("dot_b", "dot_a")


def test_a_scalar_has_no_cotangent_and_a_tensor_has_one() -> None:
    assert ix.grad(PROGRAM).inputs == PROGRAM.inputs
    assert ix.grad(TWO, of=("a", "b")).inputs == ("x", "w", "d_a")


def test_a_program_is_given_as_such_as_text_or_as_a_file() -> None:
    assert str(ix.grad(TEXT)) == str(ix.grad(PROGRAM))
    assert str(ix.jvp(str(CAUSAL))) == str(ix.jvp(CAUSAL)) == str(ix.jvp(ix.compile(CAUSAL)))
    assert str(ix.batch(CAUSAL, n="Q")) == str(ix.batch(ix.compile(CAUSAL), n="Q"))


@pytest.mark.parametrize("derive", [ix.grad, ix.jvp])
@pytest.mark.parametrize("by", [(), [], 5, (5,), ("Q", None), ["Q", ["K"]], b"Q", object(), iter(())])
def test_by_that_names_nothing(derive: Deriving, by: Any) -> None:
    found, said = codes(lambda: derive(PROGRAM, by=by))
    assert found == ["IX515"]
    assert "inputs to differentiate by are given by name" in said
    assert 'pass `by="Q"`' in said


@pytest.mark.parametrize("derive", [ix.grad, ix.jvp])
@pytest.mark.parametrize("of", [(), 5, (None,), ["out", ["s"]]], ids=repr)
def test_of_that_names_nothing(derive: Deriving, of: Any) -> None:
    found, said = codes(lambda: derive(PROGRAM, of=of))
    assert found == ["IX515"]
    assert 'pass `of="out"`' in said


@pytest.mark.parametrize("derive", [ix.grad, ix.jvp])
def test_names_that_are_unknown(derive: Deriving) -> None:
    found, said = codes(lambda: derive(PROGRAM, by="nothing"))
    assert found == ["IX501"]
    assert "this program takes Q, K, n, mask, and defines s, out" in said
    assert "did you mean `Q`?" in codes(lambda: derive(PROGRAM, by=("K", "q")))[1]
    assert codes(lambda: derive(PROGRAM, by="Q,K"))[0] == ["IX501"]
    assert codes(lambda: derive(PROGRAM, of="nothing"))[0] == ["IX508"]
    found, said = codes(lambda: derive(PROGRAM, of="Q"))
    assert found == ["IX508"]
    assert "`Q` is an input" in said


@pytest.mark.parametrize("derive", [ix.grad, ix.jvp])
def test_what_is_whole_or_a_truth_value_has_no_derivative(derive: Deriving) -> None:
    for name, kind in (("n", "whole"), ("mask", "bool")):
        found, said = codes(lambda: derive(PROGRAM, by=("Q", name)))  # noqa: B023
        assert found == ["IX218"]
        assert f"`{name}` is {kind}: nothing can be differentiated by it" in said
    whole = ix.compile("input x[i]; let place = argmax[i](x[i]); let high = any[i](x[i] > 1);")
    for name, kind in (("place", "whole"), ("high", "bool")):
        found, said = codes(lambda: derive(whole, of=name))  # noqa: B023
        assert found == ["IX218"]
        assert f"`{name}` is {kind}" in said


def test_refusals_of_what_cannot_be_told() -> None:
    assert codes(lambda: ix.grad(TWO))[0] == ["IX515"]
    found, said = codes(lambda: ix.grad("let p[i] = [0.5, 0.5]; let q = sum[i](p[i] ** 2);"))
    assert found == ["IX218"]
    assert '`by="p"`' in said
    assert ix.grad("let p[i] = [0.5, 0.5]; let q = sum[i](p[i] ** 2);", by="p")().tolist() == [1, 1]
    assert codes(lambda: ix.grad("let n = 3;"))[0] == ["IX218"]
    found, said = codes(lambda: ix.grad("input x[..r]; let y = max[..r](x[..r]);"))
    assert found == ["IX218"]
    assert "has no name to be told by" in said


@pytest.mark.parametrize("nothing", [None, 5, object(), TEXT.encode(), ix.grad], ids=lambda given: type(given).__name__)
def test_what_is_no_program(nothing: Any) -> None:
    for make in (lambda: ix.grad(nothing), lambda: ix.jvp(nothing), lambda: ix.batch(nothing, b="x")):
        found, said = codes(make)
        assert found == ["IX515"]
        assert "is no program" in said
        assert "ix.compile" in said


def test_a_text_with_mistakes_says_them() -> None:
    assert codes(lambda: ix.grad("let y = x;"))[0] == ["IX201"]
    assert codes(lambda: ix.jvp(Path("missing.ix")))[0] == ["IX108"]


# ------------------------------------------------------------------- batches


@pytest.mark.parametrize("given", ["Q", ("Q",), ["Q"], {"Q"}, iter("Q"), ("Q", "Q")])
def test_a_batch_of_one_input_or_several(given: Any) -> None:
    derived = ix.batch(PROGRAM, b=given)
    assert "input Q[b, i], K[i], n : i64, mask[i] : bool;" in str(derived)
    assert "let out[b]" in str(derived)


def test_a_batch_computes_each_example() -> None:
    program = ix.compile(CAUSAL)
    rng = np.random.default_rng(0)
    Q, K, V = rng.standard_normal((3, 2, 1, 2, 4, 3))
    together = ix.batch(program, n=("Q", "V"))(Q, K[0], V)
    apart = np.stack([program(Q[k], K[0], V[k]) for k in range(2)])
    np.testing.assert_allclose(together, apart, rtol=1e-12)


def test_a_batch_of_a_gradient_is_a_gradient_for_each() -> None:
    derived = ix.grad("input x[m], w[m], y; let loss = (sum[m](x[m] * w[m]) - y) ** 2;", by="w")
    rng = np.random.default_rng(0)
    x, w, y = rng.standard_normal((5, 3)), rng.standard_normal(3), rng.standard_normal(5)
    np.testing.assert_allclose(ix.batch(derived, b=("x", "y"))(x, w, y), 2 * (x @ w - y)[:, None] * x, rtol=1e-12)


def test_batches_over_several_coordinates_and_over_other_kinds() -> None:
    assert "let out[c, b]" in str(ix.batch(PROGRAM, b="Q", c="K"))
    assert "n[b] : i64" in str(ix.batch(PROGRAM, b="n"))
    assert "where mask[b, i]" in str(ix.batch(PROGRAM, b="mask"))


def test_a_batch_keeps_what_was_said_of_the_program() -> None:
    assert "batch b, batch n, causal);" in str(ix.batch(CAUSAL, n=("Q", "K", "V")))
    said = str(ix.batch('input x[i]; let y = sum[i](x[i]); assert y > 0, "low"; expect y == 3;', b="x"))
    assert 'assert all[b](y[b] > 0), "low";' in said
    assert "expect" not in said
    assert "as in the program" in str(ix.batch("input x, z; let y = x;", b="z"))


@pytest.mark.parametrize("inputs", ["Q", "K", "V", ("Q", "K"), ("K", "V"), ("Q", "V")])
def test_a_batch_of_some_inputs_keeps_what_can_be_proved_of_it(inputs: Any) -> None:
    derived = ix.batch(CAUSAL, n=inputs)
    given = random_arrays(derived.ir, {}, {"n": 2}, 0)[0].arrays
    apart = [ix.compile(CAUSAL)(**{k: v[n] if k in inputs else v for k, v in given.items()}) for n in range(2)]
    np.testing.assert_allclose(derived(**given), np.stack(apart), rtol=1e-12)
    assert [found.code for found in derived.diagnostics] == []


def test_a_batch_of_values_alone_is_carried() -> None:
    assert "carry e, head h, batch b, carry n, causal);" in str(ix.batch(CAUSAL, n="V"))
    two = Path(CAUSAL).read_text(encoding="utf-8").replace("out", "more").split("let more")[1].split(";")[0]
    text = f"{Path(CAUSAL).read_text(encoding='utf-8')} let more{two}; attention more(query i, key j, causal);"
    assert str(ix.batch(text, n="V")).count("attention ") == 2


def test_a_coordinate_of_the_program_is_not_captured() -> None:
    derived = ix.batch("input x[i]; let y = sum[b](x[b] * b);", b="x")
    np.testing.assert_array_equal(derived(np.arange(6.0).reshape(2, 3)), [5, 14])


@pytest.mark.parametrize(
    ("coordinates", "code", "words"),
    [
        ({}, "IX515", "no coordinate to batch over is given"),
        ({"b": ()}, "IX515", "inputs that vary with `b` are given by name"),
        ({"b": 5}, "IX515", "inputs that vary with `b` are given by name, and 5 is none"),
        ({"b": None}, "IX515", "inputs that vary with `b` are given by name"),
        ({"b": ("Q", 5)}, "IX515", "inputs that vary with `b` are given by name"),
        ({"b": "s"}, "IX501", "no input is called `s`"),
        ({"b": ("Q", "nothing")}, "IX501", "this program takes Q, K, n, mask"),
        ({"i": "Q"}, "IX515", "an input has a coordinate `i` already"),
        ({"Q": "Q"}, "IX515", "`Q` is a tensor of this program"),
        ({"b": "Q", "s": "K"}, "IX515", "`s` is a tensor of this program"),
        ({"sum": "Q"}, "IX515", "`sum` is no name for a coordinate"),
        ({"where": "Q"}, "IX515", "`where` is no name for a coordinate"),
        ({"": "Q"}, "IX515", "`` is no name for a coordinate"),
        ({"a b": "Q"}, "IX515", "`a b` is no name for a coordinate"),
        ({"b;": "Q"}, "IX515", "`b;` is no name for a coordinate"),
    ],
    ids=repr,
)
def test_batches_that_are_none(coordinates: dict[str, Any], code: str, words: str) -> None:
    found, said = codes(lambda: ix.batch(PROGRAM, **coordinates))
    assert found == [code]
    assert words in said


# ------------------------------------------------------------------- what is given

DERIVED: dict[str, Callable[[], ix.Program]] = {
    "gradient": lambda: ix.grad(CAUSAL),
    "tangent": lambda: ix.jvp(CAUSAL, by="Q"),
    "batch": lambda: ix.batch(CAUSAL, n=("Q", "K", "V")),
    "second": lambda: ix.grad(ix.grad(CAUSAL, by="V"), by="Q"),
    "recurrence": lambda: ix.grad(ROOT / "examples" / "lstm.ix"),
    "language": lambda: ix.compile("input x[i]; let y[i] = x[i] ** 2; let slope = @y / @x;"),
}


@pytest.mark.parametrize("what", DERIVED)
def test_a_derived_program_is_a_program_like_any_other(what: str) -> None:
    derived = DERIVED[what]()
    assert [found for found in derived.diagnostics if found.severity != "note"] == []
    again = ix.compile(str(derived))
    assert (again.inputs, again.outputs) == (derived.inputs, derived.outputs)
    assert repr(derived) == f"<indexical program ({', '.join(derived.inputs)}) -> ({', '.join(derived.outputs)})>"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", DERIVED)
def test_a_derived_program_shows_itself_in_a_notebook(what: str) -> None:
    derived = DERIVED[what]()
    for sheet in (derived, derived.facts, derived.cost()):
        reader = read(sheet._repr_html_())
        assert "script" not in reader.tags
    text = unescape(read(derived._repr_html_()).text)
    assert all(output in text for output in derived.outputs)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", DERIVED)
def test_a_derived_program_can_be_pickled(what: str) -> None:
    derived = DERIVED[what]()
    again = pickle.loads(pickle.dumps(derived))
    assert str(again) == str(derived)
    given = random_arrays(derived.ir, {}, {}, 0)[0].arrays
    for output in derived.outputs:
        np.testing.assert_array_equal(again(**given, outputs=output), derived(**given, outputs=output))


@pytest.mark.parametrize("name", ["causal_attention", "convolution", "heat_equation", "lstm", "online_softmax"])
def test_forwards_and_backwards_are_transposes(name: str) -> None:
    program = ix.compile(ROOT / "examples" / f"{name}.ix")
    of = program.outputs[0]
    backwards, forwards = ix.grad(program, of=of), ix.jvp(program, of=of)
    given = random_arrays(backwards.ir, {}, {}, 0)[0].arrays
    shared = {input: given[input] for input in program.inputs}
    tangents = random_arrays(forwards.ir, shared, {}, 1)[0].arrays
    came_back = backwards(**given, outputs=backwards.outputs)
    slopes = dict(zip(backwards.outputs, came_back if len(backwards.outputs) > 1 else [came_back], strict=True))
    back = sum(np.sum(slopes[f"d_{input}"] * tangents[f"dot_{input}"]) for input in program.inputs)
    forth = np.sum(forwards(**shared, **tangents) * given[f"d_{of}"])
    np.testing.assert_allclose(back, forth, rtol=1e-10)


# ------------------------------------------------------------------- kinks, as the page on derivatives lists them


@pytest.mark.parametrize(
    ("body", "at", "slopes"),
    [
        ("relu(x)", [0], [0]),
        ("abs(x)", [0], [0]),
        ("abs(x)", [-2], [-1]),
        ("max(x, y)", [1, 1], [1, 0]),
        ("min(x, y)", [1, 1], [1, 0]),
        ("max(x, y, z)", [0, 2, 2], [0, 1, 0]),
        ("clamp(x, y, z)", [1, 1, 2], [1, 0, 0]),
        ("clamp(x, y, z)", [2, 1, 2], [1, 0, 0]),
        ("clamp(x, y, z)", [0, 1, 2], [0, 1, 0]),
        ("clamp(x, y, z)", [3, 1, 2], [0, 0, 1]),
        ("clamp(x, y, z)", [0, 2, 1], [0, 0, 1]),
        ("clamp(x, y, z)", [5, 2, 1], [0, 0, 1]),
        ("x % y", [7, 2], [1, -3]),
        ("x % y", [-7, 2], [1, 3]),
        ("x ** y", [0, 2], [0, 0]),
        ("x ** y", [0, 0], [0, 0]),
        ("if x > y { x ** 2 } else { 3 * y }", [1, 1], [0, 3]),
    ],
)
def test_slopes_at_a_kink(body: str, at: list[int], slopes: list[int]) -> None:
    names = "xyz"[: len(at)]
    derived = ix.grad(f"input {', '.join(names)}; let out = {body};")
    exact = ix.exact(derived, *at)
    assert all(exact[f"d_{name}"] == slope for name, slope in zip(names, slopes, strict=True))
    for backend in ("numpy", "torch", "reference"):
        found = derived(*map(float, at), backend=backend)
        assert [float(one) for one in (found if len(names) > 1 else [found])] == slopes


def test_of_ties_the_first_wins_and_a_product_has_its_zeros() -> None:
    largest = ix.grad("input x[i]; let y = max[i](x[i]);")
    assert largest([3.0, 5.0, 5.0]).tolist() == [0, 1, 0]
    pair = ix.grad("input x[i, j]; let y = min[i, j](x[i, j]);")
    assert pair([[2.0, 1.0], [1.0, 1.0]]).tolist() == [[0, 1], [0, 0]]
    product = ix.grad("input x[i]; let y = prod[i](x[i]);")
    assert product([3.0, 0.0, 5.0]).tolist() == [0, 15, 0]
    assert product([3.0, 0.0, 0.0]).tolist() == [0, 0, 0]


def test_a_root_is_steep_at_0() -> None:
    assert ix.grad("input x; let y = sqrt(x);")(0.0) == np.inf


# ------------------------------------------------------------------- claims


def test_a_derivative_may_be_claimed_and_asserted() -> None:
    text = """input x[i];
let y[i] = x[i] ** 2;
let s    = sum[i](y[i]);
assert all[i]((@s / @x)[i] > 0), "not uphill";
expect (@s / @x)[i] == [2, 4];
expect @s / @x == [2, 5];
"""
    program = ix.compile(text)
    assert program.outputs == ("s",)
    assert program.definitions == ("y", "s")
    verdicts = ix.verify(program, [1, 2])
    assert "3 hold, 1 fails" in str(verdicts)
    for backend in ("numpy", "torch", "reference"):
        assert program([1.0, 2.0], backend=backend) == 5
        assert codes(lambda: program([1.0, -2.0], backend=backend))[0] == ["IX506"]  # noqa: B023
    assert 'assert all[b](all[i](d_s_d_x[b, i] > 0)), "not uphill";' in str(ix.batch(program, b="x"))
    assert str(ix.grad(program)).endswith("output d_x;\n")


def test_a_function_with_definitions_may_be_claimed() -> None:
    text = "fn f(x[i]) -> [i] { let s = sum[i](x[i]); x[i] * s } input x[i]; let y = sum[i](x[i]);"
    program = ix.compile(f'{text} assert all[i](f(x)[i] > 0), "low"; expect f(x)[i] == [3, 6];')
    assert program([1.0, 2.0]) == 3
    assert codes(lambda: program([1.0, -2.0]))[0] == ["IX506"]
    assert "1 claim, 2 figures: 2 hold" in str(ix.verify(program, [1, 2]))
