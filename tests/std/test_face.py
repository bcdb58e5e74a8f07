"""The Python face: every function of the library by its name, called by place or by name."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from tests.std.plain import agree, draw, norm

import indexical as ix


def test_dir_lists_every_function_and_all_can_be_had() -> None:
    names = dir(ix.std)
    assert {"attention", "layer_norm", "causal", "lstm", "convolve_2d", "cross_entropy"} <= set(names)
    assert names == sorted(names)
    for name in names:
        function = getattr(ix.std, name)
        assert callable(function)
        assert function.__name__ == name
        assert list(inspect.signature(function).parameters)


def test_function_is_made_once() -> None:
    assert ix.std.layer_norm is ix.std.layer_norm
    from indexical.std import layer_norm

    assert layer_norm is ix.std.layer_norm


def test_signature_and_doc() -> None:
    assert str(inspect.signature(ix.std.layer_norm)) == "(x, gain, bias, eps=1e-05)"
    assert str(inspect.signature(ix.std.rotary_halves)) == "(x, base=10000.0)"
    assert str(inspect.signature(ix.std.causal_from)) == "(i, j, offset=0)"
    doc = inspect.getdoc(ix.std.layer_norm)
    assert doc is not None
    assert doc.startswith("Mean 0 and variance 1 over `m`, then a gain and a bias for each feature.\nWhere all")
    assert "use std::norms::{layer_norm};" in doc
    assert doc.endswith("layer_norm(x[..r, m], gain[m], bias[m], eps) -> [..r, m]")
    conv = inspect.getdoc(ix.std.convolve_1d)
    assert conv is not None
    assert "convolve_1d(signal[..r, c, i], kernel[o, c, k], stride) -> [..r, o, i in 0..(size(i)" in conv


def test_by_place_and_by_name() -> None:
    x, gain, bias = draw(1, (2, 3), (3,), (3,))
    wanted = norm(x, gain, bias, 1e-5)
    agree(ix.std.layer_norm(x, gain, bias), wanted)
    agree(ix.std.layer_norm(x, bias=bias, gain=gain), wanted)
    agree(ix.std.layer_norm(bias=bias, eps=1e-5, gain=gain, x=x), wanted)
    agree(ix.std.layer_norm(x.tolist(), gain.tolist(), tuple(bias)), wanted)


def test_unknown_function() -> None:
    with pytest.raises(AttributeError, match=r"no function 'layer_nrom'\. Did you mean 'layer_norm'"):
        ix.std.layer_nrom  # noqa: B018
    with pytest.raises(AttributeError, match=r"Did you mean 'attention'\?"):
        ix.std.attnetion  # noqa: B018
    with pytest.raises(AttributeError, match=r"no function 'zzz'$"):
        ix.std.zzz  # noqa: B018
    assert not hasattr(ix.std, "softmax")


def test_too_many_too_few_and_wrong_names() -> None:
    x = np.ones((2, 3))
    with pytest.raises(ix.CallError, match="`rms_norm` takes 3 arguments, and 4 are given") as caught:
        ix.std.rms_norm(x, x, 1, 2)
    assert "rms_norm(x, gain, eps=1e-05)" in str(caught.value)
    with pytest.raises(ix.CallError, match="`layer_norm` needs `gain`, `bias` as well"):
        ix.std.layer_norm(x)
    with pytest.raises(ix.CallError, match="no parameter `gian`") as caught:
        ix.std.layer_norm(x, gian=x)
    assert "did you mean `gain`?" in str(caught.value)
    with pytest.raises(ix.CallError, match="`x` is given twice to `rms_norm`"):
        ix.std.rms_norm(x, x=x)


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(ix.Error, match="`m` has 2 points here and 3 there"):
        ix.std.rms_norm(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ix.Error, match="`gain`"):
        ix.std.rms_norm(np.ones((2, 3)), np.ones((1, 3)))
    with pytest.raises(ix.Error, match="`x`"):
        ix.std.rms_norm("abc", np.ones(3))
    with pytest.raises(ix.Error, match="`x` cannot be made an array"):
        ix.std.rms_norm([[1, 2], [3]], np.ones(2))
    with pytest.raises(ix.Error, match="`eps` cannot be made an array"):
        ix.std.rms_norm(np.ones((2, 3)), np.ones(3), [[1, 2], [3]])
    with pytest.raises(ix.Error, match="`eps`"):
        ix.std.rms_norm(np.ones((2, 3)), np.ones(3), np.ones(4))
    with pytest.raises(ix.Error, match="true or false"):
        ix.std.guarded_softmax(np.ones(3), np.ones(3))


def test_scalar_functions_broadcast() -> None:
    i, j = np.arange(3), np.arange(4)
    assert ix.std.causal(i[:, None], j).shape == (3, 4)
    assert ix.std.causal(i[:, None, None], j[:1]).shape == (3, 1, 1)
    assert ix.std.causal(i[:0, None], j).shape == (0, 4)
    assert ix.std.causal([0, 1], 1).tolist() == [False, True]
    assert ix.std.causal([0, 1], [1]).tolist() == [False, True]
    assert ix.std.causal([0, 1], [[[1]]]).tolist() == [[[False, True]]]
    assert ix.std.causal(1, 1).shape == ()
    assert ix.std.causal(i, j[:3]).dtype == bool
    with pytest.raises(ix.Error, match=r"`i` \(3,\) and `j` \(4,\)"):
        ix.std.causal(i, j)


def test_many_axes_keep_their_order() -> None:
    """More than ten axes: names of coordinates do not sort as numbers do."""
    shape = (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3)
    x = np.arange(6.0).reshape(shape)
    agree(ix.std.soft_cap(x, 4.0), 4 * np.tanh(x / 4))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_python_numbers_have_no_dtype(dtype: str) -> None:
    x = np.ones((2, 4), dtype)
    assert ix.std.rms_norm(x, x[0]).dtype == dtype
    assert ix.std.soft_cap(x, 2.0).dtype == dtype
    assert ix.std.soft_cap(x, 2).dtype == dtype
    assert ix.std.soft_cap(x, np.float64(2)).dtype == np.float64


def test_small_eps_survives_half_precision() -> None:
    x = np.zeros((1, 4), np.float16)
    assert ix.std.layer_norm(x, x[0], x[0], eps=1e-12).tolist() == x.tolist()


def test_whole_numbers_become_real() -> None:
    agree(ix.std.softmax_last(np.array([[0, 0], [5, 5]])), np.full((2, 2), 0.5))


def test_torch_tensors() -> None:
    x, gain = draw(2, (2, 3), (3,), dtype="float32")
    found = np.asarray(ix.std.rms_norm(torch.from_numpy(x), torch.from_numpy(gain)))
    assert found.dtype == np.float32
    agree(found, ix.std.rms_norm(x, gain))
    mask = np.asarray(ix.std.causal(torch.arange(3)[:, None], torch.arange(3)))
    assert np.array_equal(mask, np.tri(3, dtype=bool))


class OnlyDLPack:
    """An array of a library that NumPy does not know."""

    def __init__(self, array: np.ndarray) -> None:  # type: ignore[type-arg]
        self._array = array

    def __dlpack__(self, **options: object) -> object:
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class OnlyArray:
    def __init__(self, array: np.ndarray) -> None:  # type: ignore[type-arg]
        self._array = array

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:  # type: ignore[type-arg]
        return self._array


@pytest.mark.parametrize("wrap", [OnlyDLPack, OnlyArray])
def test_anything_that_is_an_array(wrap: type) -> None:
    (x,) = draw(3, (2, 3))
    agree(ix.std.softmax_last(wrap(x)), ix.std.softmax_last(x))
    agree(ix.std.attention(wrap(x), wrap(x), wrap(x)), ix.std.attention(x, x, x))
