"""Every attention against its meaning: the reference evaluator, and autograd through the same relation written out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

torch = pytest.importorskip("torch")

from tests.backends import variants  # noqa: E402
from tests.backends.drawing import as_numpy, compiled, distance, draw, gradients, grown, learning  # noqa: E402
from tests.backends.variants import VARIANTS  # noqa: E402

import indexical as ix  # noqa: E402

pytestmark = pytest.mark.sampled(6)

NAMES = list(VARIANTS)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small work is no faster with more, and much slower where others want the processor."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# ------------------------------------------------------------------------------------------ meaning


@pytest.mark.parametrize("name", NAMES)
def test_value_is_the_reference(name: str) -> None:
    program, arrays = compiled(name), draw(name)
    numbers = as_numpy(arrays)
    meaning = program(**numbers, backend="reference")
    assert distance(program(**numbers), meaning) <= 1e-12
    assert distance(program(**arrays), meaning) <= 1e-12
    assert distance(program(**arrays, isolate=True), meaning) <= 1e-12


@pytest.mark.parametrize(
    "name",
    [name for name in NAMES if name != "hand-made, strictly causal"],
)
def test_gradient_is_that_of_the_relation_written_out(name: str) -> None:
    program, arrays = compiled(name), draw(name)
    learned = learning(arrays)
    assert learned
    found = gradients(program(**arrays), learned)
    written = gradients(program(**arrays, isolate=True), learned)
    for ours, theirs in zip(found, written, strict=True):
        assert distance(ours, theirs) <= 1e-10


@pytest.mark.parametrize("name", NAMES)
def test_plan_names_the_kernel_and_what_is_never_built(name: str) -> None:
    program, arrays = compiled(name), draw(name)
    plan = program.plan(**arrays)
    assert [step.kernel for step in plan.steps if step.attend is not None] == [VARIANTS[name].kernel]
    assert plan.unbuilt == VARIANTS[name].unbuilt
    assert not {step.definition for step in plan.steps} & set(plan.unbuilt)
    shown = str(plan)
    assert f"by {VARIANTS[name].kernel}" in shown
    assert all(unbuilt in shown.partition("never built")[2] for unbuilt in plan.unbuilt)


@pytest.mark.parametrize("name", ["causal", "window", "ALiBi", "soft cap"])
def test_plan_of_other_calls(name: str) -> None:
    program, arrays = compiled(name), draw(name)
    (step,) = program.plan(**as_numpy(arrays)).steps
    assert step.kernel == variants.STREAM
    assert all(step.attend is None for step in program.plan(**arrays, isolate=True).steps)


def test_plan_says_why_a_better_kernel_was_refused() -> None:
    shown = {name: str(compiled(name).plan(**draw(name))) for name in ("full", "window", "ALiBi", "soft cap")}
    assert "not by" not in shown["full"]
    for name in ("window", "ALiBi", "soft cap"):
        assert f"not by {variants.FUSED}: " in shown[name]


# --------------------------------------------------------------------------------- sizes and layouts


@pytest.mark.parametrize(
    "name",
    """causal, three behind|the future|window|two-sided window|window for each query|prefix|sinks and window|dilated
    |documents, sorted|documents for each batch|documents and parts|lengths|key padding mask, causal|mask for each batch
    |ALiBi|relative bias|bias in documents|bias under a mask|soft cap in documents|soft cap under a mask|additive
    |grouped, windowed|cross, aligned at the end|keys from the third|projected, with a residual""".replace(
        "\n    ", ""
    ).split("|"),
)
def test_many_positions(name: str) -> None:
    """More rows and keys than one tile has, with and without gradients to what is added."""
    program, arrays = compiled(name), draw(name, **grown(name, 250))
    with torch.no_grad():
        plain = program(**arrays)
    learned = learning(arrays)
    out, written = program(**arrays), program(**arrays, isolate=True)
    assert distance(out, written) <= 1e-12
    assert distance(plain, written) <= 1e-12
    for ours, theirs in zip(gradients(out, learned), gradients(written, learned), strict=True):
        assert distance(ours, theirs) <= 1e-10


@pytest.mark.parametrize("name", ["causal, one ahead", "window", "documents for each batch", "soft cap"])
def test_positions_beyond_a_block(name: str) -> None:
    """Long runs of rows take another way through the kernels than short ones."""
    program, arrays = compiled(name), draw(name, **{**grown(name, 900), "b": 2, "h": 1})
    learned = learning(arrays)
    out, written = program(**arrays), program(**arrays, isolate=True)
    assert distance(out, written) <= 1e-12
    for ours, theirs in zip(gradients(out, learned), gradients(written, learned), strict=True):
        assert distance(ours, theirs) <= 1e-10
    assert distance(program(**as_numpy(arrays)), written) <= 1e-12


# Coordinates that keep apart, that ask, that are carried; and how the axes of an array stand.
LAYOUTS = {
    "none": ((), ("i",), ("e",), ""),
    "one": (("b",), ("i",), ("e",), ""),
    "three": (("a", "b", "h"), ("i",), ("e",), ""),
    "four": (("a", "b", "c", "h"), ("i",), ("e",), ""),
    "reversed": (("b", "h"), ("i",), ("e",), "reversed"),
    "rotated": (("b", "h"), ("i",), ("e",), "rotated"),
    "nothing carried": (("b",), ("i",), (), ""),
    "two carried": (("b",), ("i",), ("e", "f"), ""),
    "two ask": (("b",), ("i", "c"), ("e",), ""),
    "one query": (("b",), (), ("e",), ""),
    "one query alone": ((), (), (), ""),
}
DOT = "sum[d](Q{Q} * K{K}) / sqrt(size(d))"
KINDS = {
    "full": ("", DOT, ""),
    "interval": ("{j} < 5", DOT, ""),
    "window": ("j <= i, i - j < 3", DOT, ""),
    "documents": ("doc[{first}i] == doc[{first}j], j <= i", DOT, ", doc[{first}i] : i64"),
    "mask": ("mask[{last}{row}j]", DOT, ", mask[{last}{row}j] : bool"),
    "bias": ("", DOT + " + bias[{last}{row}j]", ", bias[{last}{row}j]"),
    "documents and bias": (
        "doc[{first}i] == doc[{first}j]",
        DOT + " + bias[{row}j]",
        ", doc[{first}i] : i64, bias[{row}j]",
    ),
    "soft cap": ("mask[{first}{row}j]", "5 * tanh((" + DOT + ") / 5)", ", mask[{first}{row}j] : bool"),
}


def lay_out(layout: str, kind: str) -> str:
    batch, rows, carry, order = LAYOUTS[layout]
    turn = {"reversed": lambda names: names[::-1], "rotated": lambda names: names[1:] + names[:1]}

    def bracket(*names: str) -> str:
        turned = turn[order](names) if order else names
        return f"[{', '.join(turned)}]" if turned else ""

    guard, score, more = KINDS[kind]
    homes = {
        "Q": bracket(*batch, *rows, "d"),
        "K": bracket(*batch, "j", "d"),
        "first": "".join(f"{name}, " for name in batch[:1]),
        "last": "".join(f"{name}, " for name in batch[-1:]),
        "row": "".join(f"{name}, " for name in rows),
        "j": "j",
    }
    weights = f"weights[{', '.join((*batch, *rows, 'j'))}]"
    values = f"V{bracket(*batch, 'j', *carry)}"
    where = f" where {guard.format(**homes)}" if guard else ""
    return (
        f"input Q{homes['Q']}, K{homes['K']}, {values}{more.format(**homes)};\n"
        f"let {weights} = softmax[j]({score.format(**homes)}){where};\n"
        f"let out{bracket(*batch, *rows, *carry)} = sum[j]({weights} * {values});\n"
    )


def makes_sense(layout: str, kind: str) -> bool:
    return "i" not in KINDS[kind][0].replace("{first}i", "i") or bool(LAYOUTS[layout][1])


@pytest.mark.parametrize(
    ("layout", "kind"),
    [pair for pair in product(LAYOUTS, KINDS) if makes_sense(*pair)],
)
def test_layout(layout: str, kind: str) -> None:
    """Any number of any coordinates, in any order, for every kernel."""
    program = ix.compile(lay_out(layout, kind))
    generator = torch.Generator().manual_seed(2)
    arrays = {}
    for tensor in program.ir.inputs:
        shape = [{**variants.SIZES, "i": 7, "j": 7}[axis.coordinate.name] for axis in tensor.axes]
        drawn = torch.randn(shape, dtype=torch.float64, generator=generator)
        arrays[tensor.name] = drawn > 0 if tensor.kind == "bool" else drawn
        if tensor.kind == "whole":
            arrays[tensor.name] = (2 * drawn).round().to(torch.int64)
    assert "weights" in program.plan(**arrays).unbuilt
    with torch.no_grad():
        plain = program(**arrays)
    learned = learning(arrays)
    out, written = program(**arrays), program(**arrays, isolate=True)
    assert distance(out, written) <= 1e-12
    assert distance(plain, written) <= 1e-12
    assert distance(program(**as_numpy(arrays)), written) <= 1e-12
    for ours, theirs in zip(gradients(out, learned), gradients(written, learned), strict=True):
        assert distance(ours, theirs) <= 1e-10


EMPTY = ["full", "causal", "window", "documents for each batch", "documents and parts", "mask", "bias", "soft cap"]
EMPTY += ["grouped", "packed heads", "projected, with a residual", "hand-made, windowed"]


@pytest.mark.parametrize(("name", "letter"), [pair for pair in product(EMPTY, "ije") if pair != ("packed heads", "e")])
def test_sizes_of_nothing(name: str, letter: str) -> None:
    program = compiled(name)
    together = {"i": "j", "j": "i"} if "doc" in program.inputs or "X" in program.inputs else {}
    sizes = {letter: 0, **({together[letter]: 0} if letter in together else {})}
    arrays = draw(name, **sizes)
    numbers = as_numpy(arrays)
    meaning = program(**numbers, backend="reference")
    learned = learning(arrays)
    out = program(**arrays)
    assert distance(out, meaning) == 0
    assert distance(program(**numbers), meaning) <= 1e-12
    assert distance(program(**arrays, isolate=True), meaning) <= 1e-12
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(out, learned))


@pytest.mark.parametrize(
    "name",
    [
        "scale from a number",
        "scale from a tensor, windowed",
        "slope from a tensor",
    ],
)
def test_nothing_compared_is_a_mean(name: str) -> None:
    text = VARIANTS[name].text.replace(" / sqrt(size(d))", "")
    arrays = draw(name, d=0)
    assert distance(ix.compile(text)(**arrays), ix.compile(text)(**as_numpy(arrays), backend="reference")) <= 1e-12
