"""Runs emitted texts where Indexical cannot be imported: `python -I alone.py CASES BACKEND`.

The file of cases holds names, texts and NumPy arrays; what comes out, and the gradients of its sum, go beside it.
"""

import pickle
import sys
from pathlib import Path


class Absent:
    """Finds nothing of ours."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "indexical":
            raise ModuleNotFoundError(name)


def tensor(array):
    import torch

    return torch.from_numpy(array).requires_grad_(array.dtype.kind == "f") if hasattr(array, "dtype") else array


def run(place, text, arrays, backend):
    """The results of an emitted function, and the gradients of their sum."""
    scope = {"__name__": f"emitted_{place.stem}"}
    place.write_text(text, encoding="utf-8")
    exec(compile(text, str(place), "exec"), scope)
    if backend == "torch":
        arrays = [tensor(array) for array in arrays]
    found = scope["program"](*arrays)
    found = found if isinstance(found, tuple) else (found,)
    if backend == "numpy":
        return found, []
    import torch

    learned = [array for array in arrays if getattr(array, "requires_grad", False)]
    real = [result for result in found if result.requires_grad]
    flows = torch.autograd.grad(sum(result.sum() for result in real), learned, allow_unused=True) if real else []
    return [result.detach().numpy() for result in found], [None if flow is None else flow.numpy() for flow in flows]


if __name__ == "__main__":
    sys.meta_path.insert(0, Absent())
    cases, chosen = Path(sys.argv[1]), sys.argv[2]
    results = {}
    for number, (case, source, given) in enumerate(pickle.loads(cases.read_bytes())):
        try:
            results[case] = run(cases.with_name(f"case_{number}.py"), source, given, chosen)
        except Exception as problem:
            problem.add_note(f"in {case}")
            raise
    assert "indexical" not in sys.modules
    assert chosen == "torch" or "torch" not in sys.modules
    cases.with_suffix(".out").write_bytes(pickle.dumps(results))
