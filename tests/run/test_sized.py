"""Functions for arrays of known sizes: they say what the emitted function says, and say it of these arrays alone."""

from __future__ import annotations

import inspect
import threading
from dataclasses import replace
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.backends.test_few import TEXTS, attention  # noqa: E402
from tests.laws.agreement import is_within  # noqa: E402
from tests.laws.programs import random_case  # noqa: E402
from tests.run.test_engine import refused  # noqa: E402

import indexical as ix  # noqa: E402
from indexical.api import Program  # noqa: E402
from indexical.engine.constants import Facts  # noqa: E402
from indexical.run import calling, emitting, sizes, tensors  # noqa: E402
from indexical.run.kernel import Engine, Kernel  # noqa: E402

pytestmark = pytest.mark.sampled(4)

WINDOW = attention(guard="i - 5 < j <= i")
PARTS = {"part": (2, 9), "allowed": (9, 9), "slope": (3,), "bias": (3, 9, 9)}


def drawn(further: tuple[str, ...] = (), length: int = 9, learns: bool = False) -> list[Any]:
    torch.manual_seed(length)
    arrays = [torch.randn(2, 3, length, 8) for _ in range(3)]
    for name in further:
        shape = PARTS[name]
        if name == "part":
            arrays.append(torch.randint(3, shape))
        elif name == "allowed":
            arrays.append((torch.rand(shape) < 0.5) | torch.eye(9, dtype=torch.bool))
        else:
            arrays.append(torch.randn(shape))
    return [array.requires_grad_() if learns and array.is_floating_point() else array for array in arrays]


def settle(program: Program, arrays: list[Any]) -> Any:
    """Call a program until it has a function for these sizes."""
    for _ in range(4000):
        result = program(*arrays)
        caller = program._caller
        assert caller is not None
        if any(each.sized and each.is_alike(*arrays) for each in caller._expected):
            return result
    raise AssertionError("no function is made for these sizes")


def gradients(out: Any, arrays: list[Any]) -> list[Any]:
    return list(torch.autograd.grad(out.square().sum(), [array for array in arrays if array.requires_grad]))


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_values_and_gradients_stay(name: str, learns: bool) -> None:
    text, further = TEXTS[name]
    program = ix.compile(text)
    arrays = drawn(further, learns=learns)
    first = program(*arrays)
    settle(program, arrays)
    # Other numbers in arrays of the same sizes.
    others = [array.detach().flip(0).clone() if array.is_floating_point() else array for array in arrays]
    others = [array.requires_grad_() if learns and array.is_floating_point() else array for array in others]
    for given in (arrays, others):
        fresh, found = ix.compile(text)(*given), program(*given)
        assert torch.equal(fresh, found)
        if learns:
            assert all(map(torch.equal, gradients(fresh, given), gradients(found, given)))
    assert torch.equal(first, program(*arrays))


@pytest.mark.parametrize("learned", [(0, 1, 2), (0,), (0, 1, 2, 3)])
@pytest.mark.parametrize("name", TEXTS)
def test_no_call_is_bound_again(name: str, learned: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever arrays learn, and whether gradients are on or not: binding takes longer than a small call."""
    text, further = TEXTS[name]
    program = ix.compile(text)
    arrays = drawn(further)
    for n in learned:
        if n < len(arrays) and arrays[n].is_floating_point():
            arrays[n].requires_grad_()
    settle(program, arrays)
    with torch.no_grad():
        program(*arrays)

    def bind(*_: Any) -> Any:
        raise AssertionError("a call that is known is bound again")

    monkeypatch.setattr(calling.Caller, "bind", bind)
    for is_on in (True, False, True):
        with torch.set_grad_enabled(is_on):
            program(*arrays)


def text_for(program: Program, arrays: list[Any]) -> str:
    """The function that is made for these sizes."""
    settle(program, arrays)
    assert program._caller is not None
    return inspect.getsource(program._caller._expected[0].known.function)


@pytest.mark.parametrize("text", [attention(guard="j <= i"), WINDOW])
def test_nothing_but_the_kernel_is_left(text: str) -> None:
    found = text_for(ix.compile(text), drawn())
    assert "if" not in found.split()
    assert "arange" not in found
    assert ".shape" not in found


def test_one_query_goes_straight_to_the_library() -> None:
    text = """input Q[b, h, d], K[b, h, j, d], V[b, h, j, e];
let w[b, h, j] = softmax[j](sum[d](Q[b, h, d] * K[b, h, j, d]));
let out[b, h, e] = sum[j](w[b, h, j] * V[b, h, j, e]);"""
    arrays = [torch.randn(2, 3, 8), *drawn()[:2]]
    found = text_for(ix.compile(text), arrays)
    assert "torch.nn.functional.scaled_dot_product_attention(Q" in found
    expected = ix.compile(text)(*(array.double() for array in arrays), backend="reference")
    assert torch.allclose(ix.compile(text)(*arrays), torch.as_tensor(expected).float(), atol=1e-6)


def test_other_arrays_have_their_own_function() -> None:
    program = ix.compile(WINDOW)
    settle(program, drawn())
    for length in (1, 5, 12, 300):
        arrays = drawn(length=length)
        assert torch.equal(program(*arrays), ix.compile(WINDOW)(*arrays))
    spread = [array.mT.contiguous().mT for array in drawn()]
    assert torch.allclose(program(*spread), program(*drawn()), atol=1e-6)
    assert program(*(array.double() for array in drawn())).dtype == torch.float64
    wrong = [drawn()[0], drawn(length=8)[1], drawn()[2]]
    assert str(refused(program, *wrong)) == str(refused(ix.compile(WINDOW), *wrong))


def test_gradients_may_be_on_or_off() -> None:
    """A guard sees that an array requires a gradient, not whether gradients are on."""
    text, further = TEXTS["learned bias"]
    program, arrays = ix.compile(text), drawn(further, learns=True)
    with torch.no_grad():
        settle(program, arrays)
    out = program(*arrays)
    assert all(map(torch.equal, gradients(out, arrays), gradients(ix.compile(text)(*arrays), arrays)))
    with torch.no_grad():
        assert not program(*arrays).requires_grad


def test_what_is_kept_in_inference_mode_serves_outside() -> None:
    program = ix.compile(WINDOW)
    with torch.inference_mode():
        settle(program, drawn())
    arrays = drawn(learns=True)
    settle(program, arrays)
    assert len(gradients(program(*arrays), arrays)) == 3


def test_a_mask_that_is_an_output_is_not_shared() -> None:
    for text in (
        "input x[i, d]; let near[i, j in 0..size(i)] = i - j < 2;",
        "input x[i, d]; let near[i, j in 0..size(i)] = (i - j) as f64;",
        "input x[i, d]; let near[i] = i + 1;",
    ):
        program = ix.compile(text)
        arrays = [torch.randn(5, 3)]
        expected = program(*arrays).clone()
        for _ in range(40):
            found = program(*arrays)
            assert torch.equal(found, expected)
            found.zero_()


TABLES = """input Q[i, d]; let K[j in 0..4, d in 0..3] = (j + d) as f32; let V[j in 0..4, e in 0..2] = (j - e) as f32;
let w[i, j in 0..4] = softmax[j](sum[d in 0..3](Q[i, d] * K[j, d])) where i - 3 < j <= i + 1;
let out[i, e in 0..2] = sum[j](w[i, j] * V[j, e]);"""


def test_a_kernel_is_given_what_is_kept_but_not_what_it_may_hand_out() -> None:
    """Truths are kept from call to call; numbers that it may return as they are, it gets anew in each."""
    program, arrays = ix.compile(TABLES), [torch.randn(5, 3)]
    expected = program(*arrays).clone()
    settle(program, arrays).zero_()
    for _ in range(3):
        found = program(*arrays)
        assert torch.equal(found, expected)
        found.zero_()
    assert "kept_" in text_for(program, arrays).partition("= attended(")[2]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_transforms_and_graphs_go_their_own_way() -> None:
    program, arrays = ix.compile(WINDOW), drawn()
    plain = settle(program, arrays)
    stacked = [torch.stack([array, 2 * array]) for array in arrays]
    mapped = torch.func.vmap(program)(*stacked)
    assert torch.allclose(mapped[0], plain, atol=1e-6)
    _, tangent = torch.func.jvp(lambda v: program(*arrays[:2], v), (arrays[2],), (arrays[2],))
    assert torch.allclose(tangent, plain, atol=1e-6)
    slope = torch.func.grad(lambda q: program(q, *arrays[1:]).square().sum())(arrays[0])
    q = arrays[0].clone().requires_grad_()
    assert torch.allclose(slope, gradients(program(q, *arrays[1:]), [q])[0], atol=1e-5)
    graph = torch.compile(program, backend="eager", fullgraph=True)
    assert torch.allclose(graph(*arrays), plain, atol=1e-6)


def test_modes_make_nothing_that_is_kept() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    program = ix.compile(WINDOW)
    with FakeTensorMode():
        for _ in range(40):
            assert program(*(torch.empty(2, 3, 9, 8) for _ in range(3))).shape == (2, 3, 9, 8)
    assert program._caller is not None
    assert not any(each.sized for each in program._caller._expected)
    assert torch.equal(settle(program, drawn()), ix.compile(WINDOW)(*drawn()))


def test_few_are_kept_and_few_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    make = sizes.for_sizes

    def counted(engine: Engine, kernel: Kernel, values: tuple[Any, ...]) -> Any:
        made.append(values)
        return make(engine, kernel, values)

    monkeypatch.setattr(sizes, "for_sizes", counted)
    program = ix.compile("input x[i], y[i]; let z[i] = x[i] * y[i];")
    for size in range(1000):
        program(torch.ones(size), torch.ones(size))
    assert 2 <= len(made) <= 8
    assert program._caller is not None
    assert sum(each.sized for each in program._caller._expected) <= calling._MOST_SIZED


def test_several_threads_of_several_sizes() -> None:
    program = ix.compile(WINDOW)
    drawings = {length: drawn(length=length) for length in (3, 9, 17)}
    expected = {length: ix.compile(WINDOW)(*arrays) for length, arrays in drawings.items()}
    wrong: list[int] = []

    def call(length: int) -> None:
        arrays = drawings[length]
        for n in range(60):
            given = arrays if n % 3 else [array.double() for array in arrays]
            if not torch.allclose(program(*given).float(), expected[length], atol=1e-6):
                wrong.append(length)

    threads = [threading.Thread(target=call, args=(length,)) for length in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def same(one: Any, other: Any) -> bool:
    return bool(one.dtype == other.dtype and one.shape == other.shape) and torch.equal(
        torch.nan_to_num(one), torch.nan_to_num(other)
    )


def is_no_worse(one: Any, other: Any) -> bool:
    """Whether a gradient is another one. What sizes leave out is not read: then there is none instead of 0, or a number
    in the place of the NaN of a cell that is not asked for. What several readers of an array send back, autograd adds
    in the order of their nodes, of which there are fewer here: that is rounded otherwise."""
    if one is None or other is None:
        return not any(x is not None and bool(x.any()) for x in (one, other))
    known = torch.where(one.isnan(), torch.nan, other)
    rounding = 4 * torch.finfo(one.dtype).eps
    beside = float(one.nan_to_num(0.0, 0.0, 0.0).abs().sum())
    near = torch.allclose(known, one, rtol=rounding, atol=rounding * beside, equal_nan=True)
    return bool(one.dtype == other.dtype) and near


def compare(seed: int) -> bool:
    """Compare a generated program with its function for the sizes of a call: values, twice, with what comes out
    written over in between; and gradients. False where there is nothing to compare."""
    case = random_case(seed)
    if not is_within(case):
        return False
    program = ix.compile(case.text)
    given = {name: torch.from_numpy(np.array(array)) for name, array in case.arrays.items()}
    for learns in (False, True):
        arrays = {n: x.clone().requires_grad_(learns and x.is_floating_point()) for n, x in given.items()}
        call = program._engine.prepare(arrays, "torch")
        kernel = program._engine.kernel(call, program.definitions, learns)
        values = tuple(call.values[name] for name in program.inputs)
        try:
            expected = kernel.function(*values)
        except kernel.refused:
            return False
        made = sizes.for_sizes(program._engine, kernel, values)
        assert made is not None
        for _ in range(2):
            found = made.function(*values)
            one, other = ([x] if len(kernel.wanted) == 1 else list(x) for x in (expected, found))
            assert all(map(same, one, other)), case.text
            leaves = [value for value in values if value.requires_grad]
            for a, b in zip(one, other, strict=True):
                assert a.requires_grad == b.requires_grad, case.text
                if a.requires_grad and leaves:
                    both = [torch.autograd.grad(x.sum(), leaves, retain_graph=True, allow_unused=True) for x in (a, b)]
                    assert all(map(is_no_worse, *both)), case.text
            for array in other:
                array.detach().zero_()
    return True


@pytest.mark.sampled(5)
@pytest.mark.parametrize("start", range(0, 100, 25))
def test_generated_programs_say_the_same(start: int) -> None:
    assert sum(map(compare, range(start, start + 25))) > 5


@pytest.mark.parametrize("learns", [False, True])
def test_axes_that_are_put_in_are_views(learns: bool) -> None:
    """Of arrays with any strides, and without points."""
    program = ix.compile("input x[b, h, i], s[b, i]; let y[b, h, i] = x[b, h, i] * s[b, i] + s[b, i];")
    for size in (3, 0):
        x = torch.randn(4, 2, size).permute(1, 0, 2).requires_grad_(learns)
        s = torch.randn(size, 4)[:, ::2].t().requires_grad_(learns)
        found, expected = settle(program, [x, s]), x * s[:, None] + s[:, None]
        assert program._caller is not None
        known = program._caller._expected[0].known.function
        assert known.__code__.co_names == ("view",)  # type: ignore[attr-defined]
        assert torch.equal(program(x, s), expected)
        assert torch.equal(found, expected)
        if learns:
            assert all(map(torch.equal, gradients(program(x, s), [x, s]), gradients(expected, [x, s])))


def test_groups_of_axes_are_views_where_the_library_makes_no_copy() -> None:
    whole = torch.empty(2, 3, 4, 1)
    for x in (whole, whole[:, :2], whole[:, :, ::2], whole[:1].expand(5, 3, 4, 1), whole[:1, :1].expand(5, 1, 4, 1)):
        for order in permutations(range(4)):
            for end in range(5):
                groups = order[:end], order[end:]
                made = x.permute(order).reshape([prod(x.shape[axis] for axis in group) for group in groups])
                is_view = made.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
                assert tensors.merges(x, groups) == is_view


def test_kernels_for_a_gpu_are_not_compiled_again_for_known_sizes() -> None:
    """The function for known sizes calls those that are there: its text has none."""
    q, k, v = (torch.randn(1, 2, 20, 16, dtype=torch.bfloat16) for _ in "QKV")
    score = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) - slope[h] * (i - j)"
    program = ix.compile(f"""input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], slope[h];
    let w[b, h, i, j] = softmax[j]({score}) where j <= i;
    let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);""")
    call = program._engine.prepare({"Q": q, "K": k, "V": v, "slope": torch.rand(2)}, "torch")
    call = replace(call, device="cuda")
    plan, module = emitting.emitted(call, ("out",), isolate=False, recompute=True)
    facts = Facts({}, frozenset(), learns=False, keeps=False)
    text = emitting.sized(plan, call.arguments, call.bound.sizes, (), facts, module.linked()).text
    assert "@triton.jit" in module.text
    assert "@triton.jit" not in text
    assert "def program(" in text
