"""Programs that Python functions declare, and what Python's tools see of every program."""

from __future__ import annotations

import copy
import functools
import importlib.util
import inspect
import io
import multiprocessing
import pickle
import pydoc
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from tests import typed

import indexical as ix
from indexical.diagnostics import Sink
from indexical.source import Source
from indexical.syntax.embedded import programs_in

X = np.random.default_rng(0).standard_normal((5, 3))
Key = Annotated[np.ndarray, "j d"]


@ix.program
def attention(Q: "i d", K: Key, V: Annotated[np.ndarray, "j e : f64"], *, window: int = 256):  # noqa: F722
    """
    let w[i, j]   = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))) where i - window < j <= i;

    let out[i, e] = sum[j](w[i, j] * V[j, e]);
    """


TEXT = """input Q[i, d], K[j, d], V[j, e] : f64, window : i64;
let w[i, j]   = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))) where i - window < j <= i;

let out[i, e] = sum[j](w[i, j] * V[j, e]);
"""


def test_the_annotations_are_the_inputs_and_the_docstring_is_the_program() -> None:
    assert str(attention) == TEXT
    plain = ix.compile(TEXT)
    for window in (1, 2, 256):
        assert np.array_equal(attention(X, X, X, window=window), plain(X, X, X, window))
    assert np.array_equal(attention(X, X, V=X), plain(X, X, X, 256))
    weights = attention(X, X, X, outputs="w", backend="reference")
    np.testing.assert_allclose(weights, plain(X, X, X, 256, outputs="w"), rtol=1e-14)


def test_what_asks_for_arguments_knows_the_defaults() -> None:
    assert "w[i, j]" in str(attention.plan(X, X, X))
    assert "def program(" in attention.source(X, X, X)
    figures = [[1, 0], [0, 1]]
    assert ix.exact(attention, figures, figures, figures)["out"].shape == (2, 2)
    assert ix.accuracy(attention, X, X, X)["out"]
    module = ix.nn.Module(attention, {"K": torch.tensor(X)})
    tensor = torch.tensor(X)
    assert torch.equal(module(tensor, tensor), module(Q=tensor, V=tensor, window=256))
    assert list(inspect.signature(module).parameters) == ["Q", "V", "window", "outputs", "isolate"]
    with pytest.raises(ix.CallError, match="did you mean `window`"):
        module(tensor, tensor, windw=3)
    gradient = ix.grad(attention, by="Q")
    assert gradient.__name__ == "gradient_of_attention"
    assert np.array_equal(gradient(X, X, X, d_out=X), gradient(X, X, X, d_out=X, window=256))
    assert ix.batch(attention, b=("Q", "K", "V"))(X[None], X[None], X[None]).shape == (1, 5, 3)


# ------------------------------------------------------------------------------ what Python's tools see

OPTIONS = ", outputs: 'str | Iterable[str] | None' = None, backend: 'str | None' = None, "
OPTIONS += "isolate: 'bool' = False, recompute: 'bool' = True, memory: 'str | int | None' = None)"


def test_signatures_are_true() -> None:
    shown = "(Q: 'i d', K: 'j d', V: 'j e : f64', *, window: int = 256"
    assert str(inspect.signature(attention)) == shown + OPTIONS
    inspect.signature(attention).bind(X, X, X, window=2)
    assert str(inspect.signature(ix.compile("input x[i], n : i64; let y[i] = n * x[i];"))) == (
        "(x: 'i', n: int, *" + OPTIONS
    )
    odd = inspect.signature(ix.compile("input lambda, outputs, x[i]; let y[i] = lambda * x[i] + outputs;"))
    assert str(odd) == "(lambda_: float, outputs_: float, /, x: 'i', *" + OPTIONS


def test_names_and_words(tmp_path: Path) -> None:
    assert (attention.__name__, attention.__qualname__, attention.__module__) == ("attention", "attention", __name__)
    assert attention.__doc__ == f"attention(Q[i, d], K[j, d], V[j, e], *, window = 256) -> out[i, e]\n\n{TEXT}"
    assert "window = 256) -> out[i, e]" in pydoc.render_doc(attention)
    assert (ix.Program.__doc__ or "").startswith("A compiled program.")
    assert "A compiled program." in pydoc.render_doc(ix.Program)
    file = tmp_path / "twice.ix"
    file.write_text("input x[i];\nlet y[i] = 2 * x[i];\n")
    assert ix.compile(file).__name__ == "twice"
    assert (ix.compile(file).__doc__ or "").startswith("twice(x[i]) -> y[i]\n\ninput x[i];\n")
    assert ix.compile("let y = 1;").__name__ == "program"


def saved(program: Any) -> Any:
    file = io.BytesIO()
    torch.save(program, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, saved, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_are_whole(again: Any) -> None:
    other = again(attention)
    assert inspect.signature(other) == inspect.signature(attention)
    assert (other.__doc__, other.__qualname__) == (attention.__doc__, attention.__qualname__)
    assert np.array_equal(other(X, X, X, window=2), attention(X, X, X, window=2))
    with pytest.raises(ix.CallError, match=r"test_declared\.py:\d+:\d+\n *\d+ \| def attention\(Q: ") as caught:
        other(X, X, X[:2])
    assert "^" in str(caught.value)


def test_a_pickle_has_no_more_of_the_file_than_the_function() -> None:
    assert b"test_a_pickle_has_no_more" not in pickle.dumps(attention)


def test_its_source_is_that_of_the_function(tmp_path: Path) -> None:
    assert inspect.getsource(attention).startswith("@ix.program\ndef attention(")
    text = "import indexical as ix\n@ix.program\ndef f(x: 'i'):\n    'let y[i] = {} * x[i];'\n"
    module = load(tmp_path / "again.py", text.format(2))
    assert module.f([1.0]) == [2.0]
    module = load(tmp_path / "again.py", "# More.\n" + text.format(30))
    assert module.f([1.0]) == [30.0]
    with pytest.raises(ix.CallError, match=r"again\.py:4:7"):
        module.f()


def test_a_file_with_many_programs_is_read_once(tmp_path: Path) -> None:
    one = "@ix.program\ndef f{}(x: 'i'):\n    'let y[i] = {} * x[i];'\n"
    many = load(tmp_path / "many.py", "import indexical as ix\n" + "".join(one.format(n, n) for n in range(20)))
    assert [getattr(many, f"f{n}")([1.0])[0] for n in (0, 7, 19)] == [0, 7, 19]
    assert many.f3.ir.source.origin.file is many.f9.ir.source.origin.file


def test_the_habits_of_functools() -> None:
    one = functools.partial(attention, window=1)
    assert np.array_equal(one(X, X, X), X)
    assert inspect.signature(one).parameters["window"].default == 1

    @functools.wraps(attention)
    def wrapped(*arrays: Any, **named: Any) -> Any:
        return attention(*arrays, **named)

    assert wrapped.__name__ == "attention"
    assert inspect.signature(wrapped) == inspect.signature(attention)
    assert list(map(functools.cache(lambda n: attention(X, X, X, window=n).shape), [1, 1])) == [(5, 3), (5, 3)]


def test_torch_exports_it() -> None:
    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return attention(x, x, x) + attention(x, x, x, window=1)

    tensor = torch.tensor(X)
    exported = torch.export.export(Layer(), (tensor,)).module()
    assert torch.allclose(exported(tensor), Layer()(tensor))


def test_a_process_that_is_spawned_has_it(tmp_path: Path) -> None:
    """By the ways of multiprocessing, without the time that a new interpreter takes to load the tests."""
    context = multiprocessing.get_context("spawn")
    packed = multiprocessing.reduction.ForkingPickler.dumps(attention)
    assert context.get_start_method() == "spawn"
    script = "import pickle, sys; p = pickle.loads(sys.stdin.buffer.read()); print(p([[1.]], [[1.]], [[3.]], window=1))"
    done = subprocess.run([sys.executable, "-c", script], input=bytes(packed), capture_output=True, cwd=tmp_path)
    assert done.stdout.decode().split() == ["[[3.]]"], done.stderr.decode()


def test_type_checkers_and_calls_agree() -> None:
    """`tests/typed.py` is read by mypy; what it says of these calls is also what they do."""
    assert np.array_equal(typed.doubled(X[:, 0]), 2 * X[:, 0])
    assert typed.attention(X, X, X, outputs="w").shape == (5, 5)
    for wrong in (((X, X), {}), ((X, X, X, 3), {}), ((X, X, X), {"windows": 3}), ((X, X, X), {"window": "wide"})):
        with pytest.raises(ix.CallError):
            typed.attention(*wrong[0], **wrong[1])  # type: ignore[call-overload]


# ---------------------------------------------------------------------------------------- places

MANY = '''
import indexical as ix
from indexical import program as declared, compile

def outer(n):
    class Box:
        @staticmethod
        @ix.program
        def inner(x: "i d",
                  gain: "d", *, n: int = 2):
            """// naïve
            let y[i] = sum[d](x[i, d] * gain[q]) * n;
              let z[i] = Y[i];"""
    return Box
@declared()
def escaped(x: 'i'): r"let y[i] = \\x[i];"
text = compile("input x[i];\\n" "let y[i] = x[k];")
@other.program
def not_ours(x: 3): "let"
'''


def load(path: Path, text: str) -> ModuleType:
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_findings_point_into_the_python_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = MANY.partition("@declared")[0]
    module = load(tmp_path / "nested.py", whole)
    with pytest.raises(ix.CompileError) as caught:
        module.outer(1)
    text = str(caught.value)
    assert "  --> nested.py:12:46\n  12 |             let y[i] = sum[d](x[i, d] * gain[q]) * n;\n" in text
    assert "  --> nested.py:13:26\n  13 |               let z[i] = Y[i];" in text
    assert "did you mean `y`?" in text
    assert text.splitlines()[3].index("^") == text.splitlines()[2].index("[q]") + 1
    # What is read and what is run say the same.
    source = Source("nested.py", whole)
    (found,) = programs_in(source, Sink())
    assert [str(each) for each in ix.api.check_source(found.source)] == [str(each) for each in caught.value.diagnostics]
    fixes = [each.to_json()["fix"] for each in caught.value.diagnostics]
    assert fixes[1] is not None
    assert {"line": 13, "column": 26, "end_column": 27, "replacement": "y"}.items() <= fixes[1].items()


def test_a_file_is_read_and_not_run() -> None:
    sink = Sink()
    found = [each.source for each in programs_in(Source("many.py", MANY), sink)]
    assert len(sink) == 0
    assert [each.text.count("\n") for each in found] == [4, 2, 1]
    places = [[str(label.span) for label in each.labels[:1]] for one in found for each in ix.api.check_source(one)]
    assert places == [["many.py:12:46"], ["many.py:13:26"], ["many.py:16:35"], ["many.py:17:46"]]


REFUSED = {
    'def f(x: "i"): f"let y[i] = {n} * x[i];"': "an f-string is computed when the function runs",
    'def f(x: "i"): return x': "`f` has no docstring",
    'def f(x: "i"):\n    "let y[i] = x[i];"\n    return x': "this part of `f` would never run",
    'async def f(x: "i"): "let y[i] = x[i];"': "this part of `f` would never run",
    'def f(self, x: "i"): "let y[i] = x[i];"': "leave `self` out",
    'def f(x): "let y[i] = x[i];"': "nothing says which axes `x` has",
    'def f(x: object): "let y[i] = x[i];"': "nothing says which axes `x` has",
    'def f(*x: "i", **y: "i"): "let y[i] = x[i];"': "`y` is no single input",
    'def f(outputs: "i"): "let y[i] = outputs[i];"': "an input cannot be called `outputs`",
    'def f(x: "i" = 3): "let y[i] = x[i];"': "`x` has axes, and so no default",
    'def f(x: float = None): "let y = x;"': "the default of `x` is None, and no number",
    'def f(max: "i"): "let y[i] = 1;"': "`max` is a word of the language",
    'def f(x: "i -"): "let y[i] = x[i];"': "expected an expression",
    'def f(x: "i : f31"): "let y[i] = x[i];"': "f31",
}


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.parametrize("kept", [True, False], ids=["file", "prompt"])
def test_what_is_no_program_is_refused_at_its_place(text: str, kept: bool, tmp_path: Path) -> None:
    if not kept and "return" in text:
        return  # Of what is not kept, nothing but its docstring and its parameters is known.
    whole = f"import indexical as ix\nn = 3\n@ix.program\n{text}\n"
    run = functools.partial(load, tmp_path / "refused.py", whole) if kept else functools.partial(exec, whole, {})
    with pytest.raises(ix.CompileError) as caught:
        run()
    assert (REFUSED[text] if kept or "f-string" not in REFUSED[text] else "no docstring") in str(caught.value)
    assert ("refused.py:" if kept else "<f>:") in str(caught.value)


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_at_a_prompt_there_is_no_file(future: str) -> None:
    names: dict[str, Any] = {}
    text = f'''{future}import indexical as ix
from typing import Annotated
Row = Annotated[list, "i"]
@ix.program
def f(x: "i d : f32", y: Row, n: int = 2, *, s: "bool" = True, t: ": i32" = 3, u=-1.5):
    """let z[i] = sum[d](x[i, d]) * y[i] * n * t * u; // a \\\\ and "quotes"

    let out[i] = if s {{ z[i] }} else {{ 0 }};
    """
'''
    exec(text, names)
    program = names["f"]
    assert program.source_text.startswith("input x[i, d] : f32, y[i], n : i64, s : bool, t : i32, u;\nlet z[i]")
    assert program.source_text.endswith('// a \\ and "quotes"\n\nlet out[i] = if s { z[i] } else { 0 };\n')
    assert program(np.ones((2, 2), np.float32), np.ones(2)).tolist() == [-18.0, -18.0]
    assert inspect.signature(program).parameters["t"].annotation == ": i32"


def test_what_is_no_function_is_refused() -> None:
    for wrong in (print, ix.Program, 3, lambda x: x):
        with pytest.raises(ix.CompileError, match="IX109"):
            ix.program(wrong)  # type: ignore[call-overload]


def test_modules_beside_the_file_are_found(tmp_path: Path) -> None:
    (tmp_path / "helpers.ix").write_text("fn twice(x) { 2 * x }\n")
    text = 'import indexical as ix\n@ix.program\ndef f(x: "i"):\n    """use helpers::{twice};\n'
    module = load(tmp_path / "beside.py", text + '    let y[i] = twice(x[i]);"""\n')
    assert module.f([1.0, 2.0]).tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    ("annotation", "declared"),
    [
        ('"i d"', "x[i, d]"),
        ('"i, d"', "x[i, d]"),
        ('"[i, d] : f32"', "x[i, d] : f32"),
        ('" i  d f32 "', "x[i, d] : f32"),
        ('"..r i"', "x[..r, i]"),
        ('"t in 0..4"', "x[t in 0..4]"),
        ('"t in 0..4, d : bf16"', "x[t in 0..4, d] : bf16"),
        ('""', "x"),
        ('": i32"', "x : i32"),
        ('"f64"', "x : f64"),
        ('"int"', "x : i64"),
        ("float", "x"),
        ("bool", "x : bool"),
        ('Annotated[object, "i d"]', "x[i, d]"),
        ('jaxtyping.Float[Array, "i d"]', "x[i, d]"),
        ("Row", "x[i, d]"),
        ("box.Row", "x[i, d]"),
        ("Kept", "x[i, d]"),
    ],
)
@pytest.mark.parametrize("kept", [True, False], ids=["file", "prompt"])
def test_annotations(annotation: str, declared: str, kept: bool, tmp_path: Path) -> None:
    text = f"""from __future__ import annotations
import indexical as ix
from types import SimpleNamespace
from typing import Annotated
Row = Annotated[list, "i d"]
box = SimpleNamespace(Row=Row)
Kept = SimpleNamespace(dim_str="i d")  # As jaxtyping keeps them.
@ix.program
def f(x: {annotation}):
    "let y = 1;"
"""
    names: dict[str, Any] = {}
    if kept:
        names = vars(load(tmp_path / "annotated.py", text))
    else:
        exec(text, names)
    assert str(names["f"]) == f"input {declared};\nlet y = 1;\n"


def test_a_program_of_a_python_file_is_compiled_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is read, and not run."""
    monkeypatch.chdir(tmp_path)
    one = "@ix.program\ndef {}(x: 'i', *, n: int = -2):\n    'let y[i] = n * x[i];'\n"
    whole = "import indexical as ix\nraise SystemExit\n" + one.format("first")
    Path("one.py").write_text(whole)
    Path("two.py").write_text(whole + one.format("second"))
    Path("none.py").write_text("import indexical\n")
    assert ix.compile("one.py")([1.0]).tolist() == [-2.0]
    second = ix.compile(Path("two.py:second"))
    assert str(inspect.signature(second)).startswith("(x: 'i', *, n: int = -2, outputs")
    assert second.__name__ == "second"
    for text, told in {
        "two.py": "`two.py` has 2 programs\n    = help: say which: `two.py:first`, `two.py:second`",
        "two.py:secnd": "`two.py` has no program `secnd`\n    = help: did you mean `second`?",
        "none.py": "`none.py` has 0 programs",
        "tow.py:first": "did you mean `two.py`?",
    }.items():
        with pytest.raises(ix.CompileError) as caught:
            ix.compile(text)
        assert told in str(caught.value)
