"""The scan itself: every lag, axis and direction; in graphs, under maps, pasted into a file of its own."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from indexical.backends.kernels import numpy_scan, torch_scan
from indexical.plan.linear import Linear
from indexical.plan.scans import FEW, Scan, steps_of

Array = np.ndarray[Any, Any]


def by_loop(start: Array, times: Array, plus: Array) -> Array:
    rows = list(start)
    for t in range(len(plus)):
        rows.append(times[t] * rows[t] + plus[t])
    return np.stack(rows)


def operands(n: int, lag: int, shape: tuple[int, ...], wide: bool) -> tuple[Array, Array, Array]:
    numbers = np.random.default_rng(n + lag)
    factors = shape if wide else (1,) * len(shape)
    return (
        numbers.normal(size=(lag, *shape)),
        numbers.uniform(-1, 1, (n, *factors)),
        numbers.normal(size=(n, *shape)),
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("n", [0, 1, 5, FEW - 1, FEW, FEW + 1, 100, 257])
@pytest.mark.parametrize("lag", [1, 2, 3])
def test_every_axis_both_ways(n: int, lag: int) -> None:
    for shape, wide, backward in product([(), (3,), (2, 3)], [True, False], [False, True]):
        start, times, plus = operands(n, lag, shape, wide)
        expected = by_loop(start, times, plus)
        for axis in range(len(shape) + 1):
            laid = [np.moveaxis(x[::-1] if backward else x, 0, axis).copy() for x in (start, times, plus, expected)]
            given = [torch.from_numpy(x) for x in laid[:3]]
            found = numpy_scan.scan(*laid[:3], axis, backward=backward)
            np.testing.assert_allclose(found, laid[3], rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(
                torch_scan.scan(*given, axis, backward=backward), laid[3], rtol=1e-10, atol=1e-12
            )
            last = numpy_scan.last_of_scan(*laid[:3], axis, backward=backward)
            np.testing.assert_allclose(last, expected[-1], rtol=1e-10, atol=1e-12)
            end = torch_scan.last_of_scan(*given, axis, backward=backward)
            np.testing.assert_allclose(end, expected[-1], rtol=1e-10, atol=1e-12)


def test_steps_that_follow_one_another_are_as_many_as_the_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is one call of `addcmul`: those of all blocks from 0, those from block to block, those once more."""
    made = 0
    plain = torch.addcmul

    def counted(*operands: Any) -> torch.Tensor:
        nonlocal made
        made += 1
        return plain(*operands)

    monkeypatch.setattr(torch, "addcmul", counted)
    for n in (40, 100, 999, 10_000):
        made = 0
        torch_scan.scan(torch.zeros(1), torch.zeros(n - 1), torch.zeros(n - 1))
        # The first step of each block from 0 needs no product.
        assert made + 1 == steps_of(n, Scan(0, 1, True, (), (Linear(None, None),)))


def test_a_scan_is_one_graph_and_can_be_mapped() -> None:
    start, times, plus = (torch.from_numpy(x) for x in operands(40, 1, (3,), True))
    expected = torch_scan.scan(start, times, plus)
    graph = torch.compile(torch_scan.scan, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(graph(start, times, plus), expected)
    pairs = [torch.stack((x, 2 * x)) for x in (start, plus)]
    mapped = torch.func.vmap(lambda s, p: torch_scan.scan(s, times, p))(*pairs)
    torch.testing.assert_close(mapped, torch.stack((expected, 2 * expected)))
    slope = torch.func.grad(lambda x: torch_scan.scan(start, times, x).sum())(plus)
    assert slope.shape == plus.shape


@pytest.mark.sampled(3)
@pytest.mark.parametrize("module", [numpy_scan, torch_scan])
def test_the_text_stands_alone(module: Any, tmp_path: Path) -> None:
    library = "torch" if module is torch_scan else "numpy as np"
    ones = "torch.ones" if module is torch_scan else "np.ones"
    text = Path(module.__file__).read_text(encoding="utf-8")
    use = f"import sys\nimport {library}\nassert 'indexical' not in sys.modules\n"
    use += f"assert float(scan({ones}(1), 1.0, {ones}(99))[-1]) == 100\n"
    (tmp_path / "pasted.py").write_text(f"{text}\n\n{use}", encoding="utf-8")
    subprocess.run([sys.executable, "-I", "-W", "error", str(tmp_path / "pasted.py")], check=True)
