"""The attention kernels of some variants compiled for a Hopper GPU, which need not be there: one JSON line a kernel.

Run in a process of its own: `python -m tests.backends.triton.compiling 128 window "soft cap"`. All reals have 16 bits,
but for those that a word behind the name of a variant gives 32: "ALiBi; scores", "ALiBi; queries" or "ALiBi; values".
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import triton
from tests.backends.triton.attending import VARIANTS, drawn, is_learned, together
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import indexical as ix
from indexical.backends.kernels import triton_tape
from indexical.backends.kernels.torch_chunks import chunk_products
from indexical.backends.kernels.triton_chunks import chunk_kernels
from indexical.run.kernel import load

HOPPER = GPUTarget("cuda", 90, 32)
POINTERS = {
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.bool: "*i1",
}
SIZES = {"i": 512, "j": 512, "r": 1023}
WIDE: dict[str, dict[str, torch.dtype]] = {
    "": {"": torch.bfloat16},
    "scores": {"Q": torch.bfloat16, "K": torch.bfloat16, "V": torch.bfloat16, "": torch.float32},
    "queries": {"Q": torch.float32, "": torch.bfloat16},
    "values": {"V": torch.float32, "": torch.bfloat16},
}


def compiled(
    kernel: Any, grid: Any, arguments: Any, constants: Any, warps: int, stages: int, registers: int = 0
) -> None:
    """Compile a kernel instead of launching it, and say what became of it."""
    types, known, divisible = {}, {}, {}
    fixed = {parameter.name for parameter in kernel.params if parameter.do_not_specialize}
    for place, (name, value) in enumerate(zip(kernel.arg_names, (*arguments, *constants), strict=True)):
        plain = isinstance(value, int) and name not in fixed and place < len(arguments)
        if place >= len(arguments) or (plain and (value == 1 or name.endswith("_step"))) or value is None:
            types[name], known[place,] = "constexpr", value
        elif torch.is_tensor(value):
            types[name], divisible[place,] = POINTERS[value.dtype], [["tt.divisibility", 16]]
        else:
            types[name] = "fp32" if isinstance(value, float) else "i32"
            if plain and value % 16 == 0:
                divisible[place,] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, types, known, divisible)
    options = {"num_warps": warps, "num_stages": stages} | ({"maxnreg": registers} if registers else {})
    found = triton.compile(source, target=HOPPER, options=options)
    line = {"kernel": kernel.__name__, "shared": found.metadata.shared}
    if not kernel.__name__.endswith("_again"):  # It runs where a result is not finite, and may be slow.
        text, code = found.asm["ptx"], machine_code(found.asm["cubin"])
        line |= {
            "spilled": spilled(code),
            "waits": code.count("WARPGROUP.DEPBAR"),
            "matrix": text.count("wgmma.mma_async"),
            "ahead": text.count("cp.async.cg") + text.count("cp.async.ca"),
        }
    print(json.dumps(line), flush=True)


@cache
def machine_code(binary: bytes) -> str:
    """The instructions of a kernel. To list them takes longer than to compile a small one."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        return subprocess.run([tool, "-sass", file.name], capture_output=True, text=True, check=True).stdout


def spilled(code: str) -> int:
    """How often the last loop with matrix products, over tiles without a mask, goes to memory for a register."""
    lines = [(int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,})\*/ +(.*?);", code)]
    found = 0
    for end, text in lines:
        jump = re.search(r"BRA\S* .*?0x([0-9a-f]+)", text)
        if jump and int(jump[1], 16) < end:
            body = [text for at, text in lines if int(jump[1], 16) <= at <= end]
            if any("HGMMA" in text for text in body):
                found = sum(text.split()[0].startswith(("LDL", "STL")) for text in body)
    return found


def main(width: str, *names: str) -> None:
    warnings.simplefilter("ignore")
    triton_tape.launch = compiled
    if "chunks" in names:
        made = [torch.ones(2, 2, 100, int(width), dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        rate = torch.ones(2, 1, 1, requires_grad=True)
        chunk_products(*made, rate=rate, kernels=chunk_kernels).sum().backward()
    for asked in names if names != ("chunks",) else ():
        name, _, wide = asked.partition("; ")
        program = ix.compile(VARIANTS[name].text)
        given = drawn(name, WIDE[wide], {**SIZES, "d": int(width), "e": int(width)})
        call = replace(program._engine.prepare(given, "torch"), device="cuda")
        wanted = program.wanted(None)
        module = program._engine.emitted(call, wanted, False)[1]
        values = [array.requires_grad_() if is_learned(array) else array for array in call.values.values()]
        together(load(module.linked(), wanted, ()).function(*values)).sum().backward()


if __name__ == "__main__":
    main(*sys.argv[1:])
