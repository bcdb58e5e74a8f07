"""Hostile calls: whatever is passed, a call gives arrays or one `ix.CallError` that says everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import indexical as ix

DOUBLE = "input x[i]; let y[i] = 2 * x[i];"
PRODUCT = "input A[i, k], B[k, j]; let C[i, j] = sum[k](A[i, k] * B[k, j]);"
GATHER = "input x[i], p[k] : i64; let y[k] = x[p[k]];"
SEVERAL = "input x[i]; let scores[i] = x[i] + 1; let weights[i] = softmax[i](scores[i]); let total = sum[i](x[i]);"


def refused(text: str, *arrays: Any, **named: Any) -> ix.CallError:
    """The error of a call; every finding of it can be shown."""
    with pytest.raises(ix.CallError) as caught:
        ix.compile(text)(*arrays, **named)
    assert all(found.severity == "error" for found in caught.value.diagnostics)
    assert str(caught.value).count("error[IX") == len(caught.value.diagnostics)
    return caught.value


def codes(error: ix.CallError) -> list[str]:
    return [found.code for found in error.diagnostics]


# --------------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize("shape", [(), (2,), (2, 2, 2), (0, 0, 0)])
def test_a_wrong_rank(shape: tuple[int, ...]) -> None:
    error = refused(PRODUCT, np.zeros(shape), np.zeros((2, 2)))
    assert codes(error) == ["IX502"]
    assert "`A`" in str(error)
    assert "[i, k]" in str(error)
    assert str(shape) in str(error)


def test_a_scalar_where_an_array_is_needed_and_the_reverse() -> None:
    assert codes(refused(DOUBLE, 3.0)) == ["IX502"]
    assert codes(refused("input s; let y = s;", [1.0])) == ["IX502"]


def test_sizes_that_disagree_show_both_inputs() -> None:
    error = refused(PRODUCT, np.zeros((2, 3)), np.zeros((4, 5)))
    assert codes(error) == ["IX304"]
    (found,) = error.diagnostics
    shown = [(label.span.text, label.text) for label in found.labels]
    assert [text for text, _ in shown] == ["k", "k"]
    assert "4" in shown[0][1]
    assert "`B`" in shown[0][1]
    assert "3" in shown[1][1]
    assert "`A`" in shown[1][1]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    text = "input a[i], b[i], c[j], d[j]; let y = sum[i](a[i] * b[i]) + sum[j](c[j] * d[j]);"
    assert codes(refused(text, *(np.zeros(n) for n in (1, 2, 3, 4)))) == ["IX304", "IX304"]
    error = refused(text, "one", None, np.zeros((1, 1)), np.zeros(2, complex))
    assert sorted(codes(error)) == ["IX502", "IX504", "IX504", "IX504"]


def test_leading_axes_that_disagree() -> None:
    text = "input x[..r, i], y[..r, i]; let z[..r, i] = x[..r, i] + y[..r, i];"
    assert codes(refused(text, np.zeros((2, 3, 4)), np.zeros((3, 2, 4)))) == ["IX304"]
    assert codes(refused(text, np.zeros((2, 4)), np.zeros(4))) == ["IX304"]
    assert codes(refused(text, 1.0, np.zeros(4))) == ["IX502"]


@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (2, 0), (1, 2, 3, 1)])
def test_any_number_of_leading_axes(leading: tuple[int, ...]) -> None:
    x = np.arange(float(np.prod(leading, dtype=int) * 2)).reshape(*leading, 2)
    program = ix.compile("input x[..r, i]; let y[..r, i] = 2 * x[..r, i]; let s[..r] = sum[i](x[..r, i]);")
    y, s = program(x)
    assert y.shape == x.shape
    assert y.tolist() == (2 * x).tolist()
    assert s.tolist() == x.sum(-1).tolist()


def test_a_stated_size() -> None:
    text = "input x[d in 0..3]; let y[d] = x[d];"
    assert ix.compile(text)(np.ones(3)).shape == (3,)
    error = refused(text, np.ones(4))
    assert codes(error) == ["IX304"]
    assert "3" in str(error)
    assert "4" in str(error)


def test_a_size_that_only_the_arrays_decide() -> None:
    text = "input x[i], z[j]; let y[k] = x[k] * z[k];"
    assert ix.compile(text)([1.0, 2.0], [3.0, 4.0]).tolist() == [3.0, 8.0]
    assert codes(refused(text, [1.0, 2.0], [3.0])) == ["IX304"]


@pytest.mark.parametrize(("n", "shape"), [(0, (0,)), (-3, (0,)), (2, (2,))])
def test_a_scalar_that_says_a_size(n: int, shape: tuple[int, ...]) -> None:
    assert ix.compile("input n : i64; let y[k in 0..n] = k;")(n).shape == shape


def test_what_would_not_end_is_refused() -> None:
    absurd = refused("input n : i64; let y[k in 0..n] = k;", 10**14)
    assert codes(absurd) == ["IX507"]
    # Before anything is allocated: a system that promises more memory than it has would end the process.
    assert "more than this machine has bytes of memory" in str(absurd)
    assert codes(refused("input n : i64; let y = sum[i in 0..n, j in 0..n, k in 0..n](i * j * k);", 10**6)) == ["IX507"]


# --------------------------------------------------------------------------------------------- dtypes


@pytest.mark.parametrize(
    ("text", "value", "code"),
    [
        (DOUBLE, np.array([True, False]), "IX503"),
        (DOUBLE, [True, False], "IX503"),
        (DOUBLE, np.array([1 + 2j]), "IX504"),
        (DOUBLE, np.array([1.0, None], object), "IX504"),
        (DOUBLE, np.array([Fraction(1, 2)]), "IX504"),
        (DOUBLE, [Decimal("0.5")], "IX504"),
        (DOUBLE, "text", "IX504"),
        (DOUBLE, np.array(["a", "b"]), "IX504"),
        (DOUBLE, [b"a"], "IX504"),
        (DOUBLE, None, "IX504"),
        (DOUBLE, object(), "IX504"),
        (DOUBLE, {"a": 1.0}, "IX504"),
        (DOUBLE, {1.0, 2.0}, "IX504"),
        (DOUBLE, [[1.0], [2.0, 3.0]], "IX504"),
        (DOUBLE, [1.0, [2.0]], "IX504"),
        (DOUBLE, np.array(["2020-01-01"], "datetime64[D]"), "IX504"),
        (DOUBLE, np.array([1], "timedelta64[s]"), "IX504"),
        (DOUBLE, np.zeros(2, [("a", float)]), "IX504"),
        (DOUBLE, (value for value in (1.0, 2.0)), "IX504"),
        ("input p[k] : i64; let y[k] = p[k];", np.array([0.0, 1.0]), "IX503"),
        ("input p[k] : i64; let y[k] = p[k];", np.array([True]), "IX503"),
        ("input p[k] : i64; let y[k] = p[k];", np.array([2**63], np.uint64), "IX503"),
        ("input p[k] : i64; let y[k] = p[k];", [2**63], "IX503"),
        ("input p[k] : i32; let y[k] = p[k];", np.array([2**31]), "IX503"),
        ("input p[k] : i32; let y[k] = p[k];", np.array([-(2**31) - 1]), "IX503"),
        ("input p[k] : i32; let y[k] = p[k];", [2**31], "IX503"),
        ("input b[k] : bool; let y[k] = b[k];", np.array([0, 1]), "IX503"),
        ("input b[k] : bool; let y[k] = b[k];", [0.0, 1.0], "IX503"),
        ("input x[k] : f32; let y[k] = x[k];", np.array([0.1]), "IX503"),
        ("input x[k] : f16; let y[k] = x[k];", np.array([0.1], np.float32), "IX503"),
        ("input x[i], p[k]; let y[k] = x[p[k]];", np.array([0.5]), None),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_wrong_dtype(text: str, value: Any, code: str | None) -> None:
    if code is None:
        error = refused(text, np.zeros(3), value)
        assert codes(error) == ["IX503"]
        assert "`p`" in str(error)
    else:
        assert codes(refused(text, value)) == [code]


def test_more_than_64_bits() -> None:
    value = np.zeros(2, np.longdouble)
    if value.dtype == np.float64:
        pytest.skip("a long double has 64 bits here")
    assert codes(refused(DOUBLE, value)) == ["IX503"]


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        (DOUBLE, np.ones(2, np.float64), "float64"),
        (DOUBLE, np.ones(2, np.float32), "float32"),
        (DOUBLE, np.ones(2, np.float16), "float16"),
        (DOUBLE, np.ones(2, ">f8"), "float64"),
        (DOUBLE, np.ones(2, ">f4"), "float32"),
        (DOUBLE, np.ones(2, np.int64), "float64"),
        (DOUBLE, np.ones(2, np.int8), "float64"),
        (DOUBLE, np.ones(2, np.uint64), "float64"),
        (DOUBLE, [1, 2], "float64"),
        (DOUBLE, (1.0, 2.0), "float64"),
        (DOUBLE, range(2), "float64"),
        ("input p[k] : i64; let y[k] = p[k] + 1;", np.ones(2, np.uint8), "int64"),
        ("input p[k] : i64; let y[k] = p[k] + 1;", np.ones(2, ">i4"), "int64"),
        ("input p[k] : i32; let y[k] = p[k] + 1;", np.ones(2, np.int32), "int32"),
        ("input p[k] : i32; let y[k] = p[k] + 1;", np.ones(2, np.int8), "int32"),
        ("input p[k] : i32; let y[k] = p[k] + 1;", [1, 2], "int32"),
        ("input x[k] : f32; let y[k] = x[k];", np.ones(2, np.float16), "float32"),
        ("input x[k] : f32; let y[k] = x[k];", [0.5, 1.5], "float32"),
        ("input x[k] : f64; let y[k] = x[k];", np.ones(2, np.float32), "float64"),
        ("input x[k] : bf16; let y[k] = x[k];", np.ones(2, np.float32), "float32"),
        ("input b[k] : bool; let y[k] = !b[k];", [True, False], "bool"),
        ("input x[k]; let y[k] = x[k] > 0;", np.ones(2, np.float32), "bool"),
        ("input x[k]; let y[k] = argmax[j in 0..2](x[j]) + k;", np.ones(2, np.float32), "int64"),
    ],
    ids=str,
)
def test_dtypes_of_results(text: str, value: Any, dtype: str) -> None:
    result = ix.compile(text)(value)
    assert result.dtype == np.dtype(dtype)
    assert result.dtype.isnative


def test_the_widest_dtype_wins_and_weak_things_give_way() -> None:
    program = ix.compile("input x[i], z[i]; let a[i] = x[i] * z[i]; let b[i] = x[i] * 0.1 + i; let c[i] = 0.1 + i;")
    a, b, c = program(np.ones(2, np.float32), np.ones(2))
    assert (a.dtype, b.dtype, c.dtype) == (np.float64, np.float32, np.float64)
    a, b, _ = program(np.ones(2, np.float16), np.ones(2, np.float16))
    assert (a.dtype, b.dtype) == (np.float16, np.float16)


@pytest.mark.parametrize("value", [2.5, np.float64(2.5), np.array(2.5), np.float32(2.5), 2, np.int64(2), np.uint8(2)])
def test_scalars(value: Any) -> None:
    result = ix.compile("input s; let y = s * 2;")(value)
    assert isinstance(result, np.ndarray)
    assert result.shape == ()
    assert result == float(value) * 2


def test_a_narrow_result_that_overflows() -> None:
    assert np.isinf(ix.compile(DOUBLE)(np.array([60000.0], np.float16)))
    assert np.isinf(ix.compile(DOUBLE)(np.array([3e38], np.float32)))


# -------------------------------------------------------------------------------------------- layouts


def layouts() -> Mapping[str, np.ndarray[Any, Any]]:
    plain = np.arange(24.0).reshape(2, 3, 4)
    frozen = plain.copy()
    frozen.setflags(write=False)
    return {
        "plain": plain,
        "Fortran": np.asfortranarray(plain),
        "read-only": frozen,
        "every other": np.repeat(plain, 2, axis=1)[:, ::2],
        "backward": np.ascontiguousarray(plain[::-1, :, ::-1])[::-1, :, ::-1],
        "transposed": np.ascontiguousarray(plain.transpose(2, 0, 1)).transpose(1, 2, 0),
        "broadcast": np.broadcast_to(plain[:1], (2, 3, 4)),
        "unaligned": np.frombuffer(b"\0" + plain.tobytes(), np.float64, 24, offset=1).reshape(2, 3, 4),
        "other bytes": plain.astype(">f8"),
    }


@pytest.mark.parametrize("name", layouts())
def test_layouts_do_not_matter_and_inputs_stay_as_they_are(name: str) -> None:
    x = layouts()[name]
    before = x.copy()
    text = "input x[i, j, k]; let y[k, i] = sum[j](x[i, j, k]); let z = x; let w[i, j, k] = x[i, j, k] + 1;"
    program = ix.compile(text)
    y, z, w = program(x, outputs=["y", "z", "w"])
    assert y.tolist() == before.sum(1).T.tolist()
    assert z.tolist() == before.tolist()
    assert w.tolist() == (before + 1).tolist()
    for result in (y, z, w):
        assert not np.shares_memory(result, x)
        result += 1
    assert x.tobytes() == before.tobytes()


def test_lists_stay_as_they_are() -> None:
    x = [[1.0, 2.0], [3.0, 4.0]]
    ix.compile("input x[i, j]; let y = x;")(x)
    assert x == [[1.0, 2.0], [3.0, 4.0]]


def test_one_array_may_be_passed_twice() -> None:
    x = np.arange(4.0).reshape(2, 2)
    assert ix.compile(PRODUCT)(x, x).tolist() == (x @ x).tolist()


def test_calls_do_not_know_of_each_other() -> None:
    program = ix.compile(PRODUCT)
    first = program(np.ones((2, 3)), np.ones((3, 2)))
    second = program(np.ones((1, 1)), np.full((1, 4), 2.0))
    assert first.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert second.tolist() == [[2.0] * 4]


# ---------------------------------------------------------------------------- what speaks array protocols


class OnlyDLPack:
    """What a foreign library may hand over: no `__array__`, no buffer."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.inner = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.inner.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.inner.__dlpack_device__()


class BrokenDLPack:
    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("it is on another device")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


class OnlyArray:
    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.inner = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.inner if dtype is None else self.inner.astype(dtype)


@pytest.mark.parametrize("wrap", [OnlyDLPack, OnlyArray, memoryview, list])
def test_what_speaks_an_array_protocol(wrap: Any) -> None:
    x = np.arange(3.0)
    assert ix.compile(DOUBLE)(wrap(x)).tolist() == [0.0, 2.0, 4.0]
    assert x.tolist() == [0.0, 1.0, 2.0]


def test_what_speaks_it_badly() -> None:
    error = refused(DOUBLE, BrokenDLPack())
    assert codes(error) == ["IX504"]
    assert "`x`" in str(error)


def test_a_masked_array_is_refused_where_something_is_masked() -> None:
    """NumPy would drop the mask in silence."""
    x = np.ma.masked_array([1.0, 2.0], [False, True])
    assert codes(refused(DOUBLE, x)) == ["IX504"]
    assert ix.compile(DOUBLE)(np.ma.masked_array([1.0, 2.0])).tolist() == [2.0, 4.0]


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0, dtype=torch.float32).reshape(2, 3)
    for given in (x, x.T.contiguous().T, x.double().float(), x.clone().requires_grad_().detach()):
        result = np.asarray(ix.compile("input x[i, j]; let y[j] = sum[i](x[i, j]);")(given))
        assert result.dtype == np.float32
        assert result.tolist() == [3.0, 5.0, 7.0]
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    p = torch.tensor([2, 0])
    assert np.asarray(ix.compile(GATHER)(x[0], p)).tolist() == [2.0, 0.0]
    assert np.asarray(ix.compile("input s; let y = s * 2;")(torch.tensor(1.5))).tolist() == 3.0


# ------------------------------------------------------------------------------------------ arguments


def test_arguments_by_place_and_by_name() -> None:
    a, b = np.ones((2, 3)), np.full((3, 1), 2.0)
    program = ix.compile(PRODUCT)
    expected = [[6.0], [6.0]]
    assert program(a, b).tolist() == expected
    assert program(a, B=b).tolist() == expected
    assert program(B=b, A=a).tolist() == expected


def test_arguments_that_are_missing_too_many_or_twice() -> None:
    a = np.ones((2, 2))
    assert codes(refused(PRODUCT)) == ["IX501", "IX501"]
    error = refused(PRODUCT, a)
    assert codes(error) == ["IX501"]
    assert "`B`" in str(error)
    assert codes(refused(PRODUCT, a, a, a)) == ["IX501"]
    error = refused(PRODUCT, a, A=a, B=a)
    assert codes(error) == ["IX501"]
    assert "twice" in str(error)
    error = refused(PRODUCT, a, b=a)
    assert sorted(codes(error)) == ["IX501", "IX501"]
    assert "did you mean `B`?" in str(error)
    assert codes(refused("let y = 1;", a)) == ["IX501"]


@pytest.mark.parametrize("name", ["self", "arrays", "named", "cls", "text"])
def test_inputs_may_have_any_name(name: str) -> None:
    assert ix.compile(f"input {name}[i]; let y[i] = {name}[i] + 1;")(**{name: [1.0]}).tolist() == [2.0]


def test_a_program_without_inputs() -> None:
    assert ix.compile("let y[i in 0..3] = i * i;")().tolist() == [0, 1, 4]


# -------------------------------------------------------------------------------------------- outputs


def test_one_output_is_an_array_and_several_a_named_tuple() -> None:
    assert isinstance(ix.compile(DOUBLE)([1.0]), np.ndarray)
    found = ix.compile(SEVERAL)([1.0, 2.0])
    assert isinstance(found, tuple)
    assert found._fields == ("weights", "total")
    assert found.total == 3.0
    assert found[1] is found.total


@pytest.mark.parametrize("several", [("scores",), ["scores"], iter(["scores"]), dict.fromkeys(["scores"])])
def test_outputs_by_name(several: Any) -> None:
    program = ix.compile(SEVERAL)
    alone = program([1.0, 2.0], outputs="scores")
    assert isinstance(alone, np.ndarray)
    assert alone.tolist() == [2.0, 3.0]
    found = program([1.0, 2.0], outputs=several)
    assert found._fields == ("scores",)
    assert found.scores.tolist() == [2.0, 3.0]


def test_the_order_of_outputs_is_the_callers() -> None:
    program = ix.compile(SEVERAL)
    assert program([1.0, 2.0], outputs=["total", "scores"])._fields == ("total", "scores")
    assert program([1.0, 2.0], outputs=("weights", "total", "scores"))._fields == ("weights", "total", "scores")


def test_names_that_a_tuple_cannot_have() -> None:
    found = ix.compile("let _a = 1; let class = 2; let count = 3; let index = 4;")()
    assert [int(value) for value in found] == [1, 2, 3, 4]
    assert (found.count, found.index) == (3, 4)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ("wieghts", "did you mean `weights`?"),
        (["scores", "Total"], "did you mean `total`?"),
        ("x", "scores"),
        ("", "scores"),
        ([], "output"),
        ((), "output"),
        ([3], "3"),
        (7, "outputs"),
        ([["scores"]], "scores"),
        (["scores", "scores"], None),
    ],
)
def test_outputs_that_do_not_exist(outputs: Any, words: str | None) -> None:
    if words is None:
        assert ix.compile(SEVERAL)([1.0], outputs=outputs)._fields == ("scores",)
        return
    error = refused(SEVERAL, [1.0], outputs=outputs)
    assert codes(error) == ["IX508"]
    assert words in str(error)


def test_outputs_that_are_not_asked_for_are_not_computed() -> None:
    program = ix.compile("input x[i], p : i64; let good[i] = x[i] + 1; let bad = x[p];")
    assert program([1.0], 9, outputs="good").tolist() == [2.0]
    with pytest.raises(ix.CallError):
        program([1.0], 9, outputs="bad")


# ------------------------------------------------------------------------------- NaN, infinities, nothing


def test_nan_and_infinities_pass_through() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -1.0])
    text = """input x[i]; let double[i] = 2 * x[i]; let top = max[i](x[i]); let place = argmax[i](x[i]);
        let low[i] = min(x[i], 0); let positive[i] = x[i] > 0; let rectified[i] = relu(x[i]);
        let kept = max[i](x[i] where i > 0); let last = sum[i](x[i] where i == 3); let exponent[i] = exp(x[i]);
        let weights[i] = softmax[i](x[i]);"""
    program = ix.compile(text)
    found = program(x, outputs=list(program.definitions))
    np.testing.assert_array_equal(found.double, 2 * x)
    assert np.isnan(found.top)
    assert found.place == 0
    np.testing.assert_array_equal(found.low, [np.nan, 0.0, -np.inf, -1.0])
    assert found.positive.tolist() == [False, True, False, False]
    np.testing.assert_array_equal(found.rectified, [np.nan, np.inf, 0.0, 0.0])
    assert found.kept == np.inf
    assert found.last == -1.0
    np.testing.assert_array_equal(found.exponent, [np.nan, np.inf, 0.0, np.exp(-1.0)])
    assert np.isnan(found.weights).all()


def test_an_infinity_is_no_whole_number() -> None:
    for value in (np.inf, -np.inf, np.nan, 1e300):
        assert codes(refused("input x[i]; let y[i] = x[i] as i64;", [value])) == ["IX505"]


@pytest.mark.parametrize(
    ("op", "expected"),
    [("sum", 0.0), ("prod", 1.0), ("max", -np.inf), ("min", np.inf), ("any", False), ("all", True)],
)
def test_reductions_over_an_empty_axis(op: str, expected: Any) -> None:
    body = "x[i, j] > 0" if op in ("any", "all") else "x[i, j]"
    found = ix.compile(f"input x[i, j]; let y[i] = {op}[j]({body}); let z = {op}[i, j]({body});")(np.zeros((2, 0)))
    assert found.y.tolist() == [expected, expected]
    assert found.z == expected
    nothing = ix.compile(f"input x[i, j]; let y[i] = {op}[j]({body});")(np.zeros((0, 3)))
    assert nothing.shape == (0,)


@pytest.mark.parametrize("op", ["mean", "argmax", "argmin"])
def test_reductions_that_have_no_value_over_an_empty_axis(op: str) -> None:
    assert codes(refused(f"input x[j]; let y = {op}[j](x[j]);", np.zeros(0))) == ["IX310"]
    leading = ix.compile(f"input x[..r, j]; let y[..r] = {op}[j](x[..r, j]);")(np.zeros((2, 0, 0)))
    assert leading.shape == (2, 0)
    empty = ix.compile(f"input x[i, j]; let y[i] = {op}[j](x[i, j]);")(np.zeros((0, 0)))
    assert empty.shape == (0,)


@pytest.mark.parametrize("op", ["max", "min"])
def test_no_whole_number_is_the_largest_of_none(op: str) -> None:
    assert codes(refused(f"input p[j] : i64; let y = {op}[j](p[j]);", np.zeros(0, int))) == ["IX310"]


@pytest.mark.parametrize("op", ["mean", "argmax"])
def test_data_that_leave_no_points(op: str) -> None:
    found = ix.compile(f"input x[j], b[j] : bool; let y = {op}[j](x[j] where b[j]);")([1.0, 2.0], [False, False])
    assert found == -1 if op == "argmax" else np.isnan(found)


@pytest.mark.parametrize("op", ["softmax", "log_softmax", "cumsum", "cumprod", "cummax"])
def test_normalisers_over_an_empty_axis(op: str) -> None:
    program = ix.compile(f"input x[i, j]; let y[i, j] = {op}[j](x[i, j]);")
    assert program(np.zeros((2, 0))).shape == (2, 0)
    assert program(np.zeros((0, 2))).shape == (0, 2)


@pytest.mark.parametrize(
    ("op", "nothing"),
    [("softmax", 0.0), ("log_softmax", -np.inf), ("cumsum", 0.0), ("cumprod", 1.0), ("cummax", -np.inf)],
)
def test_normalisers_over_rows_that_a_guard_empties(op: str, nothing: float) -> None:
    x = np.array([[1.0, 2.0], [np.nan, np.inf]])
    b = np.array([[True, True], [False, False]])
    found = ix.compile(f"input x[i, j], b[i, j] : bool; let y[i, j] = {op}[j](x[i, j] where b[i, j]);")(x, b)
    assert np.isfinite(found[0]).all()
    assert found[1].tolist() == [nothing, nothing]


def test_an_absent_condition_is_false() -> None:
    text = """input x[i]; let b[i] = x[i] > 0 where i > 0; let some = any[i](b[i]); let every = all[i](b[i]);
        let n = sum[i](b[i] as i64); let y[i] = x[i] where b[i]; let z[i] = if !b[i] { 1 } else { 2 };"""
    program = ix.compile(text)
    found = program([5.0, 7.0, -1.0], outputs=list(program.definitions))
    assert found.b.tolist() == [False, True, False]
    assert (found.some, found.every, found.n) == (True, False, 1)
    assert found.y.tolist() == [0.0, 7.0, 0.0]
    assert found.z.tolist() == [1, 2, 1]


def test_nothing_is_gathered_by_weights_over_no_points() -> None:
    text = "input x[j], b[j] : bool; let w[j] = softmax[j](x[j] where b[j]); let y = sum[j](w[j] * x[j]);"
    assert ix.compile(text)([1.0, 2.0], [False, False]) == 0.0
    assert ix.compile(text)([1.0, np.nan], [True, False]) == 1.0
    assert ix.compile(text)([np.inf, np.nan], [False, False]) == 0.0


def test_softmax_over_one_point_is_exactly_1() -> None:
    text = "input x[i, j]; let w[i, j] = softmax[j](x[i, j]) where j == i;"
    assert ix.compile(text)([[1e308, 0.0], [0.0, -1e308]]).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_large_scores_do_not_overflow() -> None:
    found = ix.compile("input x[j]; let w[j] = softmax[j](x[j]); let l[j] = log_softmax[j](x[j]);")([1e300, 1e300])
    assert found.w.tolist() == [0.5, 0.5]
    assert found.l == pytest.approx([0.0, 0.0], abs=1e285)


# ------------------------------------------------------------------------------- checks during the run


@pytest.mark.parametrize("place", [-1, 3, -(2**62)])
def test_a_gather_out_of_bounds(place: int) -> None:
    error = refused(GATHER, np.arange(3.0), np.array([0, place]))
    assert codes(error) == ["IX305"]
    assert str(place) in str(error)
    assert "`k = 1`" in str(error)


def test_what_a_guard_excludes_is_not_read() -> None:
    text = "input x[i], p[k] : i64; let y[k] = x[p[k]] where 0 <= p[k] < size(i);"
    assert ix.compile(text)([1.0, 2.0], [0, -1, 5]).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "arrays"),
    [
        ("input p : i64, q : i64; let y = p / q;", (1, 0)),
        ("input p : i64, q : i64; let y = p % q;", (1, 0)),
        ("input p : i64; let y = p * p;", (2**40,)),
        ("input p : i64; let y = p + 1;", (2**63 - 1,)),
        ("input p : i64; let y = -p;", (-(2**63),)),
        ("input p : i64; let y = 2 ** p;", (64,)),
        ("input p : i64; let y = 2 ** p;", (-1,)),
        ("input p[j] : i64; let y = sum[j](p[j]);", ([2**62, 2**62],)),
        ("input p[j] : i64; let y = prod[j](p[j]);", ([2**32, 2**32],)),
        ("input p[j] : i64; let y[j] = cumsum[j](p[j]);", ([2**62, 2**62],)),
        ("input p[j] : i64; let y[j] = cumprod[j](p[j]);", ([2**62, 2, 0],)),
        ("input p : i32; let y = p * p;", (np.int32(2**20),)),
        ("input x; let y = x as i32;", (2.0**40,)),
    ],
)
def test_whole_numbers_that_cannot_be_computed(text: str, arrays: tuple[Any, ...]) -> None:
    assert codes(refused(text, *arrays)) == ["IX505"]


def test_whole_quotients_truncate_toward_zero() -> None:
    found = ix.compile("input p[i] : i64; let q[i] = p[i] / 3; let r[i] = p[i] % 3;")([-7, -3, -1, 0, 1, 7])
    assert found.q.tolist() == [-2, -1, 0, 0, 0, 2]
    assert found.r.tolist() == [-1, 0, -1, 0, 1, 1]


def test_an_assertion_that_does_not_hold() -> None:
    text = 'input x[i]; assert sum[i](x[i]) > 0, "there is something"; let y = sum[i](x[i]);'
    assert ix.compile(text)([1.0]) == 1.0
    error = refused(text, [-1.0])
    assert codes(error) == ["IX506"]
    assert "there is something" in str(error)


def test_an_error_of_a_call_is_an_error_of_indexical_and_a_value_error() -> None:
    error = refused(DOUBLE)
    assert isinstance(error, ix.Error)
    assert isinstance(error, ValueError)
    assert not isinstance(error, ix.CompileError)
