"""Emitted modules that launch Triton kernels and run without Indexical: Triton launches them itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.plan.test_gpu import called  # noqa: E402

import indexical as ix  # noqa: E402
from indexical.run.emitting import emitted  # noqa: E402

HEAD = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
let s[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
"""
OUT = "let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);"
PROGRAMS = {
    "window": "let w[b, h, i, j] = softmax[j](s[b, h, i, j]) where j <= i, i - j < 9;",
    "slopes": "input m[h]; let w[b, h, i, j] = softmax[j](s[b, h, i, j] - m[h] * (i - j)) where j <= i;",
    "sigmoids": "let w[b, h, i, j] = sigmoid(s[b, h, i, j]) where j <= i;",
    "documents": "input n[b, i] : i64; let w[b, h, i, j] = softmax[j](s[b, h, i, j]) where j <= i, n[b, i] == n[b, j];",
    "table": "input t[h, r]; let w[b, h, i, j] = softmax[j](s[b, h, i, j] + t[h, i - j]) where j <= i;",
}
ROWS = {"there and back": 37, "few queries": 3}
# Reads arrays and a cotangent, and writes what the program of a module gives, with its gradients.
RUN = """
import sys, torch
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("emitted", sys.argv[1])
module = module_from_spec(spec)
spec.loader.exec_module(module)
assert "indexical" not in sys.modules
given, flow = torch.load(sys.argv[2])
out = module.program(**given)
learned = [x for x in given.values() if x.requires_grad]
torch.save([out.detach(), *(torch.autograd.grad(out, learned, flow) if learned else ())], sys.argv[3])
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_gives_what_the_program_gives(name: str, rows: str, tmp_path: Path) -> None:
    text, n = HEAD + PROGRAMS[name] + OUT, ROWS[rows]
    learns = rows != "few queries"
    draw = torch.Generator().manual_seed(n)
    shapes = {"m": (2,), "t": (2, n)}
    documents = torch.arange(n) // 7 + torch.arange(2)[:, None]
    program = ix.compile(text)
    given: dict[str, Any] = {
        letter: torch.randn(shapes.get(letter, (2, 2, n, 16)), generator=draw).requires_grad_(learns)
        if letter != "n"
        else documents
        for letter in program.inputs
    }
    module = emitted(called(text, torch.float32, **given), ("out",), False, True)[1]
    source, arrays, found = (tmp_path / file for file in ("emitted.py", "arrays.pt", "found.pt"))
    source.write_text(module.standing_alone(), encoding="utf-8")
    assert "ctypes" not in source.read_text(encoding="utf-8")
    flow = torch.randn((2, 2, n, 16), generator=draw)
    torch.save((given, flow), arrays)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": ""}
    subprocess.run([sys.executable, "-c", RUN, source, arrays, found], check=True, env=environment)
    out = program(**given, isolate=True)
    learned = [x for x in given.values() if x.requires_grad]
    wanted = [out.detach(), *(torch.autograd.grad(out, learned, flow) if learns else ())]
    for one, other in zip(torch.load(found), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)
