"""Calls of Triton kernels that are run again, without a GPU: a driver writes down what it is asked to launch."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.backends.triton.decoding import CASES, Case, draw  # noqa: E402
from tests.backends.triton.driving import Driver, loaded  # noqa: E402

import indexical as ix  # noqa: E402
from indexical.backends.kernels import triton_attend, triton_decode, triton_operands  # noqa: E402
from indexical.backends.kernels.triton_launch import Form  # noqa: E402
from indexical.backends.kernels.triton_tape import Tape, Tapes  # noqa: E402
from indexical.run.kernel import Engine  # noqa: E402


def test_a_tape_runs_again_with_other_tensors(driver: Driver, compiled: list[Form]) -> None:
    """Arrays that the call made are made anew, and each launch gets the addresses of its own tensors."""
    kernel, first, second = loaded()[0], torch.zeros(8), torch.zeros(8)
    tape = Tape([first])
    made = tape.keep(torch.zeros(4, 8).t(), zero=True)
    tape.launch(kernel, (3,), (first, made, 0.5, 7, 1), (64,), 4, 2)
    tape.run()
    assert tape.is_whole
    tapes = Tapes()
    tapes.add([first], (7,), tape, [made, first])
    assert tapes.find([first], (7,)) is None  # A call that does not come again is not written out.
    tapes.add([first], (7,), tape, [made, first])
    assert tapes.find([first], (8,)) is None
    assert tapes.find([torch.zeros(9)], (7,)) is None
    for _ in range(2):  # by its layout, then as the latest
        again = tapes.find([second], (7,))
        driver.failures = [0, 201]
        found, same = again(second)
        assert same is second
        assert found.stride() == made.stride()
        assert not found.any()
        assert driver.numbers("QQfiQQ") == (second.data_ptr(), found.data_ptr(), 0.5, 7, 0, 0)
        config = struct.unpack("@7IPPI", ctypes.string_at(driver.launches[-1][0].value, 52))
        assert config == (3, 1, 1, 128, 1, 1, 1024, 77, 0, 0)
    assert len(driver.launches) == 3
    assert again(torch.zeros(9)[1:]) is None
    driver.failures = [1]
    with pytest.raises(RuntimeError, match=r"scale over \(3, 1, 1\) programs"):
        again(second)
    driver.failures = [0]
    tape.launch(kernel, (1,), (torch.zeros(8), made, 0.5, 7, 1), (64,), 4, 2)
    tape.run()
    assert not tape.is_whole


def test_small_arrays_of_a_tape_lie_in_one(driver: Driver, compiled: list[Form]) -> None:
    """At addresses of their own, each on a boundary, and beside a view of what is given."""
    kernel, first, made, result = (
        loaded()[0],
        torch.zeros(1, 8),
        [torch.zeros(n) for n in (5, 70, 3, 9)],
        torch.zeros(8),
    )
    tape = Tape([first])
    view = tape.view(first.expand(4, 8), first)
    for array in (*made, result):
        tape.keep(array)
    for array in (*made[:3], result):  # Nobody reads the last of those that were made.
        tape.launch(kernel, (3,), (view, array, 0.5, 7, 1), (64,), 4, 2)
    tape.run()
    driver.launches = []
    (found,) = tape.written([result])(first)
    addresses = []
    for launch in list(driver.launches):
        driver.launches = [launch]
        given, written, *_ = driver.numbers("QQfiQQ")
        assert given == first.data_ptr()
        addresses.append(written)
    assert addresses.pop() == found.data_ptr()
    assert [after - before for before, after in pairwise(addresses)] == [256, 512]


def test_threads_and_streams_have_records_of_their_own(
    driver: Driver, compiled: list[Form], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the driver still reads is not written to, and a record is for the stream that it was made for."""
    kernel, given = loaded()[0], [torch.zeros(8) for _ in range(3)]
    tape = Tape(given[:1])
    for _ in range(2):
        tape.launch(kernel, (3,), (given[0], given[0], 0.5, 7, 1), (64,), 4, 2)
    tape.run()
    streams, seen = [5, 5, 6], []
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: streams[0])
    again = tape.written([])

    def reading(config: Any, _: Any, pointers: Any, *__: Any) -> None:
        if len(given) > 1:  # The next one comes while this one is read.
            streams.pop(0)
            thread = threading.Thread(target=again, args=[given.pop()])
            thread.start()
            thread.join()
        stream = struct.unpack_from("@P", ctypes.string_at(config.value, 40), 32)[0]
        seen.append((stream, ctypes.c_uint64.from_address(pointers[0]).value))

    expected = [(6, given[1].data_ptr())] * 2 + [(5, given[2].data_ptr())] * 2 + [(5, given[0].data_ptr())] * 2
    driver.cuLaunchKernelEx.run = reading
    again(given[0])
    assert sorted(seen) == sorted(expected)
    driver.cuLaunchKernelEx.run = driver.launch
    free = again.__globals__["records"].free
    assert {stream: len(records) for stream, records in free.items()} == {5: 2, 6: 1}


def test_tensors_that_are_given_twice_are_known(driver: Driver, compiled: list[Form]) -> None:
    """PyTorch's guards refuse those that come twice."""
    kernel, x, y = loaded()[0], torch.zeros(8), torch.ones(8)
    tape = Tape([x, x])
    tape.launch(kernel, (1,), (x, tape.keep(torch.zeros(8)), 0.5, 7, 1), (64,), 4, 2)
    tape.run()
    tapes = Tapes()
    for _ in range(2):
        tapes.add([x, x], ([7], []), tape, [])
    for given in ([x, x], [y, y], [x, y], [y, x]) * 2:
        assert tapes.find(given, ([7], [])) is not None
    assert len(tapes.recent) == 2
    assert tapes.latest([x, torch.zeros(9)], ([7], [])) is None
    assert tapes.latest([x, y], ([8], [])) is None
    assert tapes.latest([x], ([7], [])) is None


# ---------------------------------------------------------------------------------------------- attention

SLOPES = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], slope[h], doc[b, i] : i64;
let weights[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) - slope[h] * (i - j))
    where doc[b, i] == doc[b, j];
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
"""


@pytest.fixture
def attend(driver: Driver, compiled: list[Form], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The emitted function of an attention, as on a card. What it computes is left out."""
    engine = Engine(ix.compile(SLOPES).ir)
    shapes = {"Q": (2, 3, 32, 64), "K": (2, 3, 32, 64), "V": (2, 3, 32, 64), "slope": (3,), "doc": (2, 32)}
    kinds = {name: torch.zeros(shape).numpy() for name, shape in shapes.items()}
    kinds["doc"] = kinds["doc"].astype("int64")
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    return engine.kernel(engine.imagine(kinds, "f32", "torch", "cuda"), ("out",), False).function


def drawn(learned: bool) -> list[Any]:
    arrays = [torch.zeros(2, 3, 32, 64), torch.zeros(2, 3, 32, 64), torch.zeros(2, 3, 32, 64), torch.zeros(3)]
    return [*(x.requires_grad_(learned) for x in arrays), torch.zeros(2, 32, dtype=torch.int64)]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls at which somebody took another look."""
    found: list[Any] = []
    is_plain = triton_attend.is_plain
    monkeypatch.setattr(triton_attend, "is_plain", lambda tensors: found.append(tensors) or is_plain(tensors))
    return found


def test_calls_like_recent_ones_are_not_looked_at_again(attend: Any, looks: list[Any], driver: Driver) -> None:
    given = drawn(True)
    for recorded in (False, True):
        with torch.set_grad_enabled(recorded):
            for _ in range(4):
                assert attend(*given).requires_grad == recorded
        assert len(looks) == 3 * (recorded + 1)  # One to run it, one to write it out, one to know it again.
    for recorded in (False, True, False):
        with torch.set_grad_enabled(recorded):
            assert attend(*drawn(True)).requires_grad == recorded
    assert len(looks) == 6
    assert not attend(*drawn(False)).requires_grad
    assert len(looks) == 7


def test_gradients_have_the_axes_of_their_arrays(attend: Any) -> None:
    for _ in range(4):
        given = drawn(True)
        attend(*given).sum().backward()
        assert [x.grad.shape for x in given[:4]] == [x.shape for x in given[:4]]


def test_what_reads_a_call_is_asked_each_time(attend: Any, looks: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A transform, a mode, a tangent, or a tuning that was changed: none of them may be passed by."""
    given = drawn(False)
    for _ in range(4):
        attend(*given)
    before = len(looks)
    with monkeypatch.context() as patch:
        patch.setattr(torch.autograd.forward_ad, "_current_level", 0)
        attend(*given)
    torch.func.grad(lambda q: attend(q, *given[1:]).sum())(given[0])
    with monkeypatch.context() as patch:  # A mode that guards do not see, such as that of `make_fx`.
        patch.setattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
        attend(*given)
    assert len(looks) == before + 3
    monkeypatch.setattr(triton_operands, "choices", SimpleNamespace(epoch=-5, tilings=lambda *given: given[2]))
    attend(*given)
    assert len(looks) == before + 4


# -------------------------------------------------------------------------------------------- few queries


@pytest.fixture
def slow(driver: Driver, compiled: list[Form], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of few queries that were put together, and not run from a record."""
    found: list[Any] = []
    runs = triton_decode.Few.run
    monkeypatch.setattr(triton_decode.Few, "run", lambda *given: found.append(given) or runs(*given))
    monkeypatch.setattr(triton_decode, "_slots", lambda _: 264)
    return found


def attending_few(case: Case) -> Callable[..., Any]:
    """The emitted function of an attention of few queries, as on a card. What it computes is left out."""
    program = ix.compile(case.program)
    engine = Engine(program.ir)
    kinds = {name: array.numpy() for name, array in draw(case).items()}
    kernel = engine.kernel(engine.imagine(kinds, case.dtype, "torch", "cuda"), program.wanted(None), False)
    return lambda given: kernel.function(*(given[name] for name in program.inputs))


def launched(driver: Driver, call: Callable[[], Any]) -> tuple[list[int], list[tuple[bytes, list[int]]]]:
    """The addresses of the results of a call, and how each of its kernels was launched: the record, and 32 bits of each
    parameter."""
    found: list[tuple[bytes, list[int]]] = []

    def reading(config: Any, _: Any, pointers: Any, *__: Any) -> None:
        words = [ctypes.c_uint32.from_address(place).value for place in pointers]
        found.append((ctypes.string_at(config.value, 28), words))

    driver.cuLaunchKernelEx.run = reading
    results = call()
    return [low_bits(x) for x in (results if isinstance(results, tuple) else (results,))], found


def low_bits(array: Any) -> int:
    return int(array.data_ptr()) & 0xFFFFFFFF


@pytest.mark.parametrize("name", ["grouped", "one head of keys", "lengths", "total", "pages", "pages, alibi"])
def test_calls_of_few_queries_are_recorded_where_their_sizes_come_often(
    name: str, slow: list[Any], driver: Driver
) -> None:
    """The recorded launches are those that were made, with the addresses of the tensors of each call."""
    case, often = CASES[name], triton_decode._OFTEN
    attend = attending_few(case)
    for count in range(often):
        given = {key: array.clone() for key, array in draw(case).items()}
        results, usual = launched(driver, lambda given=given: attend(given))
        assert len(slow) == count + 1
    for _ in range(3):
        others = {key: array.clone() for key, array in given.items()}
        more, again = launched(driver, lambda given=others: attend(given))
        assert len(slow) == often
        assert [config for config, _ in again] == [config for config, _ in usual]
        moved = {low_bits(array): low_bits(others[key]) for key, array in given.items()}
        moved |= dict(zip(results, more, strict=True)) | {usual[1][1][0]: again[1][1][0]}  # What the splits found.
        for (_, before), (_, after) in zip(usual, again, strict=True):
            assert [moved.get(word, word) for word in before] == after


def test_other_sizes_of_few_queries_and_copies_are_not_recorded(slow: list[Any], driver: Driver) -> None:
    case, often = CASES["grouped"], triton_decode._OFTEN
    attend = attending_few(case)
    b, h, g, i, j, d, e = case.sizes
    for keys in range(j, j + often + 3):  # Keys that grow are new each time.
        attend(draw(replace(case, sizes=(b, h, g, i, keys, d, e))))
    given = draw(case)
    given["K"] = given["K"].mT.contiguous().mT
    for _ in range(often + 3):  # What is copied for the kernel lies elsewhere each time.
        attend(given)
    assert len(slow) == 2 * (often + 3)
