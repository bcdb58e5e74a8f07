"""Compilation and launch of Triton kernels without a GPU: the interpreter, binaries for a card that is not there, and a
driver that only writes down what it is asked to launch."""

from __future__ import annotations

import ast
import ctypes
import json
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests.backends.triton.driving import KERNELS, Driver, Entry, loaded  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402

from indexical.backends.kernels import triton_launch, triton_operands  # noqa: E402
from indexical.backends.kernels.triton_launch import Binary, Family, Form, launch  # noqa: E402
from indexical.engine.carried import ALONE, carried  # noqa: E402
from indexical.engine.show.imports import imported  # noqa: E402
from indexical.run.store import Store  # noqa: E402

FOLDER = Path(triton_launch.__file__).parent
HOPPER = GPUTarget("cuda", 90, 32)
SCRIPT = Path(__file__).with_name("launching.py")


def form(kernel: Any = None, divisible: bool = True, **changed: Any) -> Form:
    types = ("*fp32", "*fp32", "fp32", "i32", "i32")
    given = Form(kernel or loaded()[0], types, (divisible,) * 2 + (False,) * 3, (64,), 4, 2)
    return given._replace(**changed)


# ---------------------------------------------------------------------------------------------- interpreter

CHECKS = [node.name for node in ast.parse(SCRIPT.read_text()).body if getattr(node, "name", "")[:6] == "check_"]


def test_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, encoding="utf-8")
    assert run.returncode == 0, run.stderr
    outcomes: dict[str, str] = json.loads(run.stdout)
    assert set(outcomes) == set(CHECKS)
    failed = [f"{check}: {problem}" for check, problem in outcomes.items() if problem]
    assert not failed, "\n".join(failed)


# ---------------------------------------------------------------------------------------------- binaries


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(triton_launch, "_driver_version", lambda: 13000)
    monkeypatch.setattr(triton_launch, "binaries", None)


def test_kernels_without_a_file_are_compiled() -> None:
    binary = form().compiled(HOPPER)
    assert binary.name == "scale"
    assert binary.image.startswith(b"\x7fELF")
    assert binary.threads == 128
    assert (binary.scratch, binary.descriptors) == (0, [])
    assert Binary.read(binary.written()) == binary


def test_stages_make_what_triton_makes() -> None:
    assert triton.__version__.startswith(triton_launch._STAGED)
    scale, copy, _, _ = loaded()
    tiles = Form(copy, ("tensordesc<fp16[32, 64]>",) * 2, (False, False), (32,), 4, 2)
    for given in (form(scale), form(scale, divisible=False, warps=8), tiles):
        own, usual = given.compiled(HOPPER, own=True), given.compiled(HOPPER)
        assert own == usual


def test_descriptors_are_part_of_a_binary() -> None:
    _, copy, described, _ = loaded()
    types = ("tensordesc<fp16[32, 64]>",) * 2
    binary = Form(copy, types, (False, False), (32,), 4, 2).compiled(HOPPER)
    assert [about["block_size"] for about in binary.descriptors] == [[32, 64]] * 2
    binary = Form(described, ("*fp32", "i32"), (True, False), (16, 32), 4, 2).compiled(HOPPER)
    assert binary.scratch >= 128


LINKED = KERNELS.replace("import triton\n", "from indexical.backends.kernels import triton_jit as triton\n", 1)


def test_linked_kernels_are_read_when_they_are_compiled() -> None:
    plain, linked = loaded()[0], loaded(LINKED)[0]
    assert type(plain) is triton.JITFunction
    given = form(linked)
    assert given.key(HOPPER) == form(loaded(LINKED)[0]).key(HOPPER)
    assert given.key(HOPPER) != form(loaded(LINKED.replace("x * FACTOR", "x + FACTOR"))[0]).key(HOPPER)
    assert given.key(HOPPER) != given._replace(kernel=loaded(LINKED)[1]).key(HOPPER)
    fixed, usual = ([(p.name, p.do_not_specialize) for p in kernel.params] for kernel in (linked, plain))
    assert fixed == usual
    assert not hasattr(type(linked), "raw_src")
    assert "raw_src" not in vars(linked)
    made, theirs = (form(kernel).compiled(HOPPER, own=True) for kernel in (linked, plain))
    assert made._replace(image=b"") == theirs._replace(image=b"")
    assert linked.raw_src == plain.raw_src
    with pytest.raises(AttributeError, match="nothing"):
        linked.nothing  # noqa: B018


def test_keys_tell_all_that_a_binary_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    other = [
        form(types=("*fp16", "*fp32", "fp32", "i32", "i32")),
        form(divisible=False),
        form(constants=(128,)),
        form(constants=(64.0,)),
        form(warps=8),
        form(stages=3),
        form(loaded(KERNELS.replace("x * FACTOR", "x + FACTOR"))[0]),
        form(loaded(KERNELS.replace("constexpr(2)", "constexpr(3)"))[0]),
        form(loaded()[1]),
    ]
    keys = [form().key(HOPPER), form().key(GPUTarget("cuda", 80, 32)), *(each.key(HOPPER) for each in other)]
    assert form().key(HOPPER) == keys[0]  # loaded again, as another module
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    keys.append(form().key(HOPPER))
    monkeypatch.setattr(triton_launch, "_driver_version", lambda: 12000)
    keys.append(form().key(HOPPER))
    assert len(set(keys)) == len(keys)


def test_binaries_are_kept_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IX_CACHE", str(tmp_path / "kept"))
    first = form().binary(HOPPER)
    monkeypatch.setattr(Form, "compiled", lambda *_, own: pytest.fail("it is compiled again"))
    assert form().binary(HOPPER) == first
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    content = kept.read_bytes()
    kept.write_bytes(content.replace(b"scale", b"scalf"))
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        form().binary(HOPPER)


def test_loading_a_text_lends_it_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IX_CACHE", str(tmp_path / "kept"))
    loaded()
    assert triton_launch.binaries == Store(str(tmp_path / "kept"))
    monkeypatch.setenv("IX_CACHE", "0")
    loaded()
    assert triton_launch.binaries is None


# ---------------------------------------------------------------------------------------------- launches


def test_parameters_reach_the_driver(driver: Driver, compiled: list[Form]) -> None:
    kernel, x, y = loaded()[0], torch.zeros(64), torch.zeros(64, dtype=torch.float16)
    launch(kernel, (3, 2), (x, y, 0.5, -7, 1 << 40), (64,), 4, 2)
    config = ctypes.string_at(driver.launches[0][0].value, 52)
    assert struct.unpack("@7IPPI", config) == (3, 2, 1, 128, 1, 1, 1024, 77, 0, 0)
    assert driver.numbers("QQfiqQQ") == (x.data_ptr(), y.data_ptr(), 0.5, -7, 1 << 40, 0, 0)
    assert compiled[0].types == ("*fp32", "*fp16", "fp32", "i32", "i64")
    assert compiled[0].divisible == (True, True, False, False, True)


def test_many_lengths_compile_once(driver: Driver, compiled: list[Form]) -> None:
    kernel, x = loaded()[0], torch.zeros(64)
    for size in range(1000, 1064):
        launch(kernel, (size,), (x, x, 0.1 * size, size, 16 * size), (64,))
    assert len(compiled) == driver.loads == 1
    assert len(driver.launches) == 64


def test_few_alignments_are_compiled(driver: Driver, compiled: list[Form]) -> None:
    kernel, x = loaded()[0], torch.zeros(64)
    for first in (x, x[1:], x, x[2:]):
        for second in (x, x[1:]):
            for step in (3, 16):
                launch(kernel, (1,), (first, second, 1.0, 5, step), (64,))
    assert len(compiled) == triton_launch.MOST_ALIGNMENTS + 1
    assert not any(compiled[-1].divisible)
    assert compiled[0].divisible == (True, True, False, False, False)


def test_few_steps_from_row_to_row_are_constant(driver: Driver, compiled: list[Form]) -> None:
    """Of one that was seen the kernel is compiled for that number, and then one kernel serves all others."""
    text = KERNELS.replace("size, step, BLOCK", "size, x_step, BLOCK").replace("at * step,", "at * x_step,")
    kernel, x = loaded(text)[0], torch.zeros(64)
    for step in (24, 32, 24, 40, 48, 56, 64, 24):
        launch(kernel, (1,), (x, x, 0.5, 7, step), (64,))
    assert [each.types[4] for each in compiled] == ["=24", "=32", "=40", "=48", "i32"]
    assert driver.numbers("QQfiQQ") == (x.data_ptr(), x.data_ptr(), 0.5, 7, 0, 0)


def test_whole_numbers_that_are_1_are_constant(driver: Driver, compiled: list[Form]) -> None:
    """The stride of a last axis: without it there are no vector loads. The layout of the others is the same."""
    kernel, x = loaded()[0], torch.zeros(64)
    for step in (1, 3, 1):
        launch(kernel, (1,), (x, x, 0.5, 1, step), (64,))
    assert [each.types[3:] for each in compiled] == [("i32", "=1"), ("i32", "i32")]
    assert driver.numbers("QQfiQQ") == (x.data_ptr(), x.data_ptr(), 0.5, 1, 0, 0)
    assert compiled[0].key(HOPPER) != compiled[1].key(HOPPER)


def test_strides_of_1_are_loaded_as_vectors() -> None:
    """Four numbers at a time, as `BLOCK` over 128 threads allows."""
    for step, wanted in (("=1", True), ("i32", False)):
        given = Form(loaded()[3], ("*fp32", "*fp32", step), (True, True, False), (512,), 4, 2)
        text = triton.compile(given.source(), target=HOPPER, options={"enable_fp_fusion": True}).asm["ptx"]
        assert ("ld.global.v4.b32" in text) == wanted


def test_constants_of_other_types_are_other_kernels(driver: Driver, compiled: list[Form]) -> None:
    kernel, x = loaded()[0], torch.zeros(64)
    for block in (1, True, 1.0, 1):
        launch(kernel, (1,), (x, x, 1.0, 5, 1), (block,))
    assert [type(each.constants[0]) for each in compiled] == [int, bool, float]


def test_threads_do_not_share_parameters(driver: Driver, compiled: list[Form]) -> None:
    kernel, x = loaded()[0], torch.zeros(64)
    launch(kernel, (1,), (x, x, 1.0, 5, 1), (64,))
    under_way = []

    def launching(*given: Any) -> None:
        under_way.append(given[2])
        if len(under_way) < 3:  # the driver is still reading when the next one comes
            thread = threading.Thread(target=launch, args=(kernel, (1,), (x, x, 1.0, 5, 1), (64,)))
            thread.start()
            thread.join()

    driver.cuLaunchKernelEx.run = launching
    launch(kernel, (1,), (x, x, 1.0, 5, 1), (64,))
    assert len({id(pointers) for pointers in under_way}) == 3


def test_thread_without_a_context_enters_it(driver: Driver, compiled: list[Form]) -> None:
    kernel, x = loaded()[0], torch.zeros(64)
    driver.failures = [0, 201]
    launch(kernel, (1,), (x, x, 1.0, 5, 1), (64,))
    assert len(driver.launches) == 1
    driver.failures = [1]
    with pytest.raises(RuntimeError, match=r"scale over \(1, 1, 1\) programs.*CUDA error 1"):
        launch(kernel, (1,), (x, x, 1.0, 5, 1), (64,))


def test_scratch_memory_is_for_all_programs(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Form, "compiled", lambda *_: Binary("described", b"", 128, 0, 256, []))
    asked = []
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda size, dtype, device: asked.append(size) or empty(size, dtype=dtype))
    launch(loaded()[2], (5, 3), (torch.zeros(64), 4), (16, 32))
    assert asked == [256 * 15]
    assert driver.numbers("QiQQ")[2] != 0


def test_descriptors_reach_the_driver(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [32, 64], "fp4_padded": False}
    monkeypatch.setattr(Form, "compiled", lambda *_: Binary("copy", b"", 128, 0, 0, [about, about]))
    encoded = []
    driver.cuTensorMapEncodeTiled = Entry(lambda *given: encoded.append(given))  # type: ignore[attr-defined]
    x = torch.zeros(100, 64, dtype=torch.bfloat16)
    tile = SimpleNamespace(base=x, shape=[100, 64], strides=[64, 1], block_shape=[32, 64], padding="zero")
    launch(loaded()[1], (4,), (tile, tile), (32,))
    _, dtype, rank, address, lengths, steps, box, ones, *rest = encoded[0]
    assert (dtype, rank, address.value, rest) == (9, 2, x.data_ptr(), [0, 3, 2, 0])
    assert (list(lengths), list(steps), list(box), list(ones)) == ([64, 100], [128, 0], [64, 32], [1, 1])
    pointers = driver.launches[0][2]
    offsets = [place - pointers[0] for place in pointers]
    assert offsets == [0, 128, 132, 136, 144, 192, 320, 324, 328, 336, 344, 352]


def test_what_cannot_be_launched_is_said(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x = loaded()[0], torch.zeros(64)
    with pytest.raises(TypeError, match="scale takes 6 arguments and constants, not 3 and 1"):
        launch(kernel, (1,), (x, x, 1.0), (64,))
    with pytest.raises(TypeError, match=r"no tensor of torch\.complex64"):
        launch(kernel, (1,), (x.to(torch.complex64), x, 1.0, 5, 1), (64,))
    with pytest.raises(TypeError, match="scale is given no tensor"):
        launch(kernel, (1,), (1, 2, 1.0, 5, 1), (64,))
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: len(tensor) // 64)
    with pytest.raises(ValueError, match="several devices"):
        launch(kernel, (1,), (x, x[1:], 1.0, 5, 1), (64,))
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: -1)
    with pytest.raises(ValueError, match="scale runs on a GPU"):
        launch(kernel, (1,), (x, x, 1.0, 5, 1), (64,))
    launch(kernel, (0,), (x, x, 1.0, 5, 1), (64,))
    assert driver.launches == []


def test_types_that_are_annotated_are_kept() -> None:
    text = KERNELS.replace("factor, size, step", "factor: tl.float32, size: tl.int64, step")
    tensor = torch.Tensor
    family = Family(loaded(text)[0], (64,), (4, 2), (tensor, tensor, float, int, int))
    assert family.form((0, None, (0,), None, (torch.float32,) * 2, ())).types[2:] == ("fp32", "i64", "i32")


def test_text_stands_alone(tmp_path: Path) -> None:
    """Pasted in front of kernels into a file that cannot see Indexical, it runs."""
    kernels = KERNELS[KERNELS.index("class Refused") :]
    kernels = "import triton\nimport triton.language as tl\n\n\n" + kernels
    use = (
        "x, y = torch.ones(50), torch.zeros(50)\nlaunch(scale, (2,), (x, y, 1.5, 50, 1), (32,))\nassert y.eq(3).all()\n"
    )
    place, above = tmp_path / "alone.py", carried([("triton_launch", ["launch"])])
    place.write_text("\n\n".join([imported(above.imports), above.text, kernels, use]), encoding="utf-8")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment.pop("PYTHONPATH", None)
    subprocess.run([sys.executable, "-s", str(place)], check=True, cwd=tmp_path, env=environment)


def test_operators_do_not_load_the_compiler() -> None:
    """It takes seconds to load, and only `torch.compile` needs it."""
    made = "differentiable('same', lambda x, *_: [x[0] + 0], None, None, None, 1)"
    lines = [
        "import sys, torch",
        "from indexical.backends.kernels.torch_operator import differentiable",
        f"found = {made}([torch.ones(3, requires_grad=True)])[0]",
        "assert found.requires_grad",
        "assert 'torch._dynamo' not in sys.modules",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, env=environment)


def defined(text: str) -> set[str]:
    """The functions, classes and variables of a module."""
    own = [node for node in ast.parse(text).body if not isinstance(node, ast.Import | ast.ImportFrom)]
    inside = [part for node in own if isinstance(node, ast.Assign | ast.AnnAssign) for part in ast.walk(node)]
    stored = {part.id for part in inside if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return stored | {node.name for node in own if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize("file", ["triton_launch", "torch_operator"])
def test_names_are_those_of_no_other_text(file: str) -> None:
    """Kernel files are pasted into one module."""
    texts = [path for path in FOLDER.glob("t*.py") if path.stem not in ALONE.values()]  # These stand for others.
    names = {path.stem: defined(path.read_text(encoding="utf-8")) for path in texts}
    own = names.pop(file)
    assert {other: sorted(found & own) for other, found in names.items() if found & own} == {}


def test_kernels_of_a_call_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that is missing once, and at the same time: none gets past the barrier alone. Texts are read one after the
    other, first what takes longest to compile, also behind one that was not to be read."""
    both = threading.Barrier(2, timeout=10)
    made: list[str] = []

    class Family:
        def __init__(self, name: str, effort: tuple[bool, int], known: bool = False) -> None:
            self.name, self.launchers, self.effort = name, {"key": None} if known else {}, effort

        def read(self, arguments: Any) -> tuple[str, list[Any]]:
            return "key", []

        def add(self, key: str) -> None:
            if self.name != "kept":
                source = SimpleNamespace(language=None, make_ir=lambda *_: made.append(self.name))
                triton_launch._staged(source, HOPPER, {})
                both.wait()

    kinds = {"first": (False, 9), "kept": (True, 5), "second": (True, 9), "known": (True, 7)}
    families = {name: Family(name, effort, name == "known") for name, effort in kinds.items()}
    backend = SimpleNamespace(parse_options=lambda _: SimpleNamespace(), load_dialects=id, add_stages=lambda *_: None)
    backend.get_codegen_implementation, backend.get_module_map = id, dict
    monkeypatch.setattr(triton_launch, "make_backend", lambda _: backend)
    monkeypatch.setattr(triton_launch, "_family", lambda kernel, arguments, constants, *how: families[constants[0]])
    monkeypatch.setattr(triton_launch, "JITFunction", object)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    kernel = object()
    launches = [(kernel, (1,), (), (name,), 4, 1) for name in ("first", "kept", "known", "second", "first")]
    triton_launch.compile_together([*launches, (kernel, (0,), (), ("no points",), 4, 1)])
    assert made == ["second", "first"]


def test_products_of_32_bits_are_as_exact_as_pytorch_takes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_operands, "INTERPRETED", False)
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    try:
        for allowed, wanted in ((False, "bf16x6"), (True, "bf16x3")):
            matmul.allow_tf32 = allowed
            assert triton_operands.products_of(4) == wanted
            assert triton_operands.products_of(2) == "ieee"
            assert triton_operands.settings_for([torch.zeros(1)])[1] == wanted
    finally:
        matmul.allow_tf32 = before
