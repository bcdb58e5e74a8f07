"""Few queries over many keys without a GPU: by Triton's interpreter, and compiled for a card that is not there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests.backends.triton.decoding import CASES, draw  # noqa: E402

import indexical as ix  # noqa: E402
from indexical.backends.kernels import triton_decode  # noqa: E402

LATER = (
    *(
        "grouped",
        "lengths",
        "total",
        "alibi",
        "every head",
        "two tiles",
        "gate",
        "mask",
        "relative",
        "documents",
        "bias",
    ),
    *(
        "capped",
        "one head of keys",
        "prefix",
        "pages",
        "total of none",
        "one query, total",
        "one query, alibi",
        "one query, capped",
        "one query, softmax off by one",
    ),
)
FEW = [name for name in CASES if name not in LATER]
ROUGH = {"f32": 2e-5, "f16": 2e-3}


@pytest.mark.parametrize("names", [FEW, pytest.param(LATER, marks=pytest.mark.sampled(0))], ids=["few", "others"])
def test_interpreted_kernels_compute_the_relation(names: Sequence[str]) -> None:
    """The interpreter is chosen when Triton is loaded, so it has a process of its own, one for all cases."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.backends.triton.decoding", *names]
    run = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    results: dict[str, dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    assert set(results) == set(names)
    for name, result in results.items():
        assert result["plan"], f"{name}: the plan does not say it"
        assert result["called"] == 1, f"{name}: the kernel was not called"
        assert result["same"], f"{name}: a NaN or an infinity is elsewhere"
        assert result["error"] <= ROUGH[CASES[name].dtype], name
        assert bool(result["odd"]) == CASES[name].odd, name


# Heads, those that share keys, queries, the widths of what is compared and carried.
SIZES = [
    (32, 8, 4, 128, 128, "bf16"),
]
OTHER_SIZES = [
    (32, 4, 16, 64, 128, "bf16"),
    (4, 4, 1, 256, 256, "bf16"),
    (6, 2, 3, 80, 40, "bf16"),
    (32, 8, 1, 128, 128, "f32"),
]


@pytest.mark.parametrize(
    "sizes", [*SIZES, *(pytest.param(sizes, marks=pytest.mark.sampled(0)) for sizes in OTHER_SIZES)], ids=str
)
def test_compiled_kernel_fits_the_card(sizes: tuple[Any, ...], tmp_path: Path) -> None:
    heads, shared, rows, width, carried, dtype = sizes
    of = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    program = ix.compile(CASES["alibi"].program)
    drawn = draw(CASES["alibi"])
    text = program.imagine({name: x.numpy() for name, x in drawn.items()}, dtype, "torch", "cuda")[1]  # type: ignore[arg-type]
    given: dict[str, Any] = {
        "Q": torch.empty(2, heads, rows, width, dtype=of, device="meta"),
        "K": torch.empty(2, shared, 4096, width, dtype=of, device="meta"),
        "V": torch.empty(2, shared, 4096, carried, dtype=of, device="meta"),
        "slope": torch.empty(heads, dtype=of, device="meta"),
    }
    launched = _launched(text, given)
    assert [name for name, *_ in launched] == ["out_decode", "merge_splits", "merge_splits"]
    for name, form in launched:
        compiled = _compiled(form)
        assert compiled.metadata.shared <= 227 << 10
        (tmp_path / "kernel.cubin").write_bytes(compiled.asm["cubin"])
        usage = _resources(tmp_path / "kernel.cubin")
        assert usage["STACK"] <= 16, f"{name} keeps registers in memory: {usage}"
        if name == "out_decode":
            # The matrix units have no f32.
            assert (dtype == "f32") == ("mma" not in compiled.asm["ptx"])
            assert "cp.async" in compiled.asm["ptx"]


def _launched(text: str, given: dict[str, Any]) -> list[tuple[str, Any]]:
    """The kernels that a call launches, each with its types and constants, where nothing is computed; one that takes no
    totals once more with them."""
    from indexical.backends.kernels.triton_launch import Form
    from indexical.run.kernel import load

    launches: list[tuple[str, Any]] = []

    def launch(kernel: Any, grid: Any, arguments: Any, constants: Any, warps: int, stages: int) -> None:
        types = {torch.bfloat16: "*bf16", torch.float32: "*fp32"}
        missing = {type(None): "constexpr"}
        kinds = [types[x.dtype] if torch.is_tensor(x) else missing.get(type(x), "i32") for x in arguments]
        fixed = [p.do_not_specialize for p in kernel.params[: len(kinds)]]
        whole = [x if isinstance(x, int) else 0 for x in arguments]
        divisible = tuple(x % 16 == 0 and not f for x, f in zip(whole, fixed, strict=True))
        for given in dict.fromkeys([tuple(kinds), tuple("*fp32" if k == "constexpr" else k for k in kinds)]):
            launches.append((kernel.__name__, Form(kernel, given, divisible, constants, warps, stages)))

    function = load(text, ("out",), ()).function
    space = function.__globals__
    made = triton_decode.decoding("attend_few_compiled", launch, space["out_decode"], 1, along=("h",))
    space["attend_few_out"] = made
    function(*given.values())
    return launches


def _compiled(form: Any) -> Any:
    options = {"enable_fp_fusion": True, "num_warps": form.warps, "num_stages": form.stages}
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    return triton.compile(form.source(), target=target, options=options)


def _resources(path: Path) -> dict[str, int]:
    """What a kernel needs of registers and memory."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    shown = subprocess.run([tool, "--dump-resource-usage", path], capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in re.findall(r"(REG|STACK):(\d+)", shown)}
