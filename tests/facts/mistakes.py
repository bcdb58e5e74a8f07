"""Broken attention: mistakes that leave every shape as it is, each with what must be said of it.

A mistake changes a right program of `shapes.py` in one place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.facts.shapes import (
    BARE,
    BATCHED,
    BLOCK,
    CROSS,
    GROUPED,
    HEADS,
    MULTI_QUERY,
    PROJECTED,
    SHAPES,
    SINGLE,
    SPLIT,
    Shape,
)
from tests.facts.spelling import Names

from indexical.diagnostics import Diagnostic


@dataclass(frozen=True)
class Mistake:
    """A change to a shape (None where it cannot be made), the code that names it, and what its first place,
    its second or its message must speak of: names of the first text, alternatives side by side."""

    name: str
    code: str
    change: Callable[[Shape], Shape | None]
    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    message: tuple[str, ...] = ()
    also: frozenset[str] = frozenset()
    kept: tuple[str, ...] = ()


def _at(text: str, old: str, new: str) -> str:
    """One index in place of another, whole words only."""
    return re.sub(rf"\b{old}\b", new, text)


def _has_heads(shape: Shape) -> bool:
    return "h" in shape.coordinates


def normalised_over_query(shape: Shape) -> Shape | None:
    return replace(shape, over="i", guard="")


def weights_transposed(shape: Shape) -> Shape | None:
    """Read the other way round, so that what was shared out among the keys is gathered over the queries."""
    return None if shape is CROSS else replace(shape, guard="", gather="sum[j](weights[{plain}j, i] * {value})")


def normalised_over_head(shape: Shape) -> Shape | None:
    return replace(shape, over="h", guard="") if _has_heads(shape) else None


def value_at_query(shape: Shape) -> Shape | None:
    # Across two rows of different spaces this is an error of another kind.
    return None if shape is CROSS else replace(shape, value=_at(shape.value, "j", "i"))


def value_of_mirrored_head(shape: Shape) -> Shape | None:
    if not _has_heads(shape) or shape is MULTI_QUERY:
        return None
    total = "H" if shape is SPLIT else "size(h)"
    return replace(shape, value=_at(shape.value.format(lead="b, h, "), "h", f"({total} - 1 - h)"))


def value_of_next_head(shape: Shape) -> Shape | None:
    if not _has_heads(shape) or shape is MULTI_QUERY:
        return None
    total = "H" if shape is SPLIT else "size(h)"
    return replace(shape, value=_at(shape.value.format(lead="b, h, "), "h", f"((h + 1) % {total})"))


def value_of_first_head(shape: Shape) -> Shape | None:
    if shape.name not in ("heads", "bare", "sublayer", "cross", "block"):
        return None
    return replace(shape, value="V[b, 0, j, e]")


def guarded_late(shape: Shape) -> Shape | None:
    return None if shape is CROSS else replace(shape, guard="", late="j <= i")


def guarded_late_by_factor(shape: Shape) -> Shape | None:
    factor = "sum[j](weights[{plain}i, j] * (if j <= i {{ 1.0 }} else {{ 0.0 }}) * {value})"
    return None if shape is CROSS else replace(shape, guard="", gather=factor)


def guarded_late_by_name(shape: Shape) -> Shape | None:
    if shape is CROSS:
        return None
    plain = shape.plain or shape.lead
    before = f"let kept[{plain}i, j] = weights[{plain}i, j] where j <= i;"
    return replace(
        shape,
        guard="",
        before=f"{shape.before}\n{before}" if shape.before else before,
        gather=shape.gather.replace("weights", "kept"),
    )


def guarded_late_by_cast(shape: Shape) -> Shape | None:
    factor = "sum[j](weights[{plain}i, j] * {value} * ((j <= i) as f64))"
    return None if shape is CROSS else replace(shape, guard="", gather=factor)


def guarded_late_by_choice(shape: Shape) -> Shape | None:
    if shape is CROSS:
        return None
    choice = "sum[j]((if j <= i {{ weights[{plain}i, j] }} else {{ 0.0 }}) * {value})"
    return replace(shape, guard="", gather=choice)


def guarded_later_still(shape: Shape) -> Shape | None:
    """A guard before, and a narrower one behind."""
    return None if shape is CROSS else replace(shape, guard="j <= i", late="i - j < 3")


def compared_apart(shape: Shape) -> Shape | None:
    if shape is SPLIT:
        return replace(shape, key="K[b, j, h * D + f]", compared="d in 0..D, f in 0..D")
    inside = replace(shape, spaces=shape.spaces.replace("feature(d, e)", "feature(d, f, e)"))
    other = "s" if shape is BLOCK else "f"
    inside = replace(inside, spaces=inside.spaces.replace("feature(d, f", "feature(d, s")) if other == "s" else inside
    return replace(inside, key=_at(shape.key, "d", other), compared=f"d, {other}")


def summed_apart(shape: Shape) -> Shape | None:
    return replace(shape, score="sum[{compared}]({query}) * sum[{compared}]({key}) / {scale}")


def nothing_compared(shape: Shape) -> Shape | None:
    return replace(shape, score="(sum[{compared}]({query}) + sum[{compared}]({key})) / {scale}")


def one_number_each(shape: Shape) -> Shape | None:
    if shape not in (SINGLE, BATCHED, HEADS, BARE):
        return None
    inputs = shape.inputs.replace("i, d]", "i]").replace("j, d]", "j]")
    bare = {"query": shape.query.replace(", d", ""), "key": shape.key.replace(", d", "")}
    return replace(shape, inputs=inputs, score="{query} * {key}", spaces=shape.spaces.replace("d, ", ""), **bare)


def added_features(shape: Shape) -> Shape | None:
    return replace(shape, score="sum[{compared}]({query} + {key}) / {scale}")


def split_apart(shape: Shape) -> Shape | None:
    return replace(shape, query="Q[b, i, d * H + h]") if shape is SPLIT else None


def split_apart_on_keys(shape: Shape) -> Shape | None:
    return replace(shape, key="K[b, j, d * H + h]") if shape is SPLIT else None


def packed_apart(shape: Shape) -> Shape | None:
    return replace(shape, after=shape.after.replace("n / D, i, n % D", "n % H, i, n / H")) if shape is SPLIT else None


def scaled_by_model(shape: Shape) -> Shape | None:
    if "model" not in shape.spaces:
        return None
    return replace(shape, scale="sqrt(size(n))" if shape is SPLIT else "sqrt(size(m))")


def scaled_by_keys(shape: Shape) -> Shape | None:
    return None if "X[" in shape.inputs else replace(shape, scale="sqrt(size(j))")


def scaled_twice(shape: Shape) -> Shape | None:
    return replace(shape, score=f"{shape.score} / {{scale}}")


def scaled_twice_on_query(shape: Shape) -> Shape | None:
    if "let Q" not in shape.before:
        return None
    return replace(shape, before=re.sub(r"(let Q.*);", rf"\1 / {shape.scale};", shape.before))


def scaled_twice_on_both(shape: Shape) -> Shape | None:
    return replace(shape, score="sum[{compared}]({query} / {scale} * ({key} / {scale}))")


def masked_by_number(shape: Shape) -> Shape | None:
    if shape is CROSS:
        return None
    return replace(shape, guard="", masked="if j <= i {{ {scores} }} else {{ -1e9 }}")


def masked_by_sum(shape: Shape) -> Shape | None:
    if shape is CROSS:
        return None
    return replace(shape, guard="", masked="{scores} + (if j <= i {{ 0.0 }} else {{ -1e9 }})")


def masked_by_input(shape: Shape) -> Shape | None:
    if shape is CROSS or shape.inputs.startswith("use"):
        return None
    inputs = shape.inputs.replace(";", ", blocked[i, j];") if "j" in re.findall(r"\w+", shape.inputs) else ""
    return replace(shape, guard="", inputs=inputs, masked="{scores} - 1e9 * blocked[i, j]") if inputs else None


def masked_by_named_number(shape: Shape) -> Shape | None:
    if shape is CROSS:
        return None
    before = f"{shape.before}\nlet low = -1e9;" if shape.before else "let low = -1e9;"
    return replace(shape, guard="", before=before, masked="if j <= i {{ {scores} }} else {{ low }}")


def masked_by_product(shape: Shape) -> Shape | None:
    if shape is CROSS:
        return None
    return replace(shape, guard="", masked="{scores} - 1e4 * (if j <= i {{ 0.0 }} else {{ 1.0 }})")


def masked_by_weak_number(shape: Shape) -> Shape | None:
    if shape is CROSS:
        return None
    return replace(shape, guard="", masked="if j > i {{ -10000.0 }} else {{ {scores} }}")


def guard_reversed(shape: Shape) -> Shape | None:
    return None if shape is CROSS else replace(shape, guard="j >= i", contract=shape.claim("causal"))


def guard_reversed_by_function(shape: Shape) -> Shape | None:
    if shape is CROSS:
        return None
    inputs = "use std::masks::{causal};\n" + shape.inputs
    return replace(shape, inputs=inputs, guard="causal(j, i)", contract=shape.claim("causal"))


def guard_one_too_far(shape: Shape) -> Shape | None:
    return None if shape is CROSS else replace(shape, guard="j <= i + 1", contract=shape.claim("causal"))


def guard_missing(shape: Shape) -> Shape | None:
    return None if shape is CROSS else replace(shape, guard="", contract=shape.claim("causal"))


def guard_on_batch_and_head(shape: Shape) -> Shape | None:
    if shape is CROSS or not _has_heads(shape):
        return None
    return replace(shape, guard="h <= b", contract=shape.claim("causal"))


def guard_on_head_and_query(shape: Shape) -> Shape | None:
    if shape is CROSS or not _has_heads(shape):
        return None
    return replace(shape, guard="h <= i", contract=shape.claim("causal"))


def guard_on_key_and_batch(shape: Shape) -> Shape | None:
    return replace(shape, guard="j <= b", contract=shape.claim("causal")) if shape is BATCHED else None


def swapped(shape: Shape) -> Shape | None:
    if shape in (CROSS, GROUPED, MULTI_QUERY):
        return None
    return replace(
        shape, query=_at(shape.query, "i", "j"), key=_at(shape.key, "j", "i"), contract=shape.claim("causal")
    )


def transposed_key(shape: Shape) -> Shape | None:
    if not shape.spaces or "K[" not in shape.key or "b" not in shape.coordinates:
        return None
    key = shape.key.format(lead="b, h, " if _has_heads(shape) else "b, ")
    mixed = key.translate(str.maketrans("bj", "jb"))
    return replace(shape, key=mixed)


def groups_interleaved(shape: Shape) -> Shape | None:
    if shape is not GROUPED:
        return None
    return replace(
        shape,
        key="K[b, h % G, j, d]",
        value="V[b, h % G, j, e]",
        contract=shape.claim("causal", "groups contiguous G"),
    )


def groups_mixed(shape: Shape) -> Shape | None:
    return replace(shape, value="V[b, h % G, j, e]") if shape is GROUPED else None


def groups_contiguous(shape: Shape) -> Shape | None:
    if shape is not GROUPED:
        return None
    return replace(shape, contract=shape.claim("causal", "groups interleaved G"))


def residual_under_sum(shape: Shape) -> Shape | None:
    if shape is not PROJECTED:
        return None
    gather = "sum[j](weights[b, i, j] * {value} + X[b, j, e])"
    spaces = "space batch(b), position(i, j), model(m, e), feature(d);"
    return replace(shape, spaces=spaces, gather=gather, contract=shape.claim())


def residual_summed(shape: Shape) -> Shape | None:
    if shape is not PROJECTED:
        return None
    gather = "sum[j](weights[b, i, j] * {value}) + sum[j](X[b, j, e])"
    spaces = "space batch(b), position(i, j), model(m, e), feature(d);"
    return replace(shape, spaces=spaces, gather=gather, contract=shape.claim())


MISTAKES = {
    mistake.name: mistake
    for mistake in (
        Mistake("normalised_over_query", "IX402", normalised_over_query, message=("i", "j")),
        Mistake("weights_transposed", "IX402", weights_transposed, message=("i", "j")),
        Mistake("normalised_over_head", "IX402", normalised_over_head, message=("h", "j")),
        Mistake("value_at_query", "IX403", value_at_query, first=("V",)),
        Mistake("value_of_mirrored_head", "IX404", value_of_mirrored_head, first=("V",)),
        Mistake("value_of_next_head", "IX404", value_of_next_head, first=("V",)),
        Mistake("value_of_first_head", "IX404", value_of_first_head, first=("V",)),
        Mistake("guarded_late", "IX405", guarded_late, first=("j",)),
        Mistake("guarded_late_by_factor", "IX405", guarded_late_by_factor, first=("j",)),
        Mistake("guarded_late_by_name", "IX405", guarded_late_by_name, first=("j",)),
        Mistake("guarded_late_by_cast", "IX405", guarded_late_by_cast, first=("j",)),
        Mistake("guarded_late_by_choice", "IX405", guarded_late_by_choice, first=("j",)),
        Mistake("guarded_later_still", "IX405", guarded_later_still, first=("j",)),
        Mistake("compared_apart", "IX406", compared_apart, first=("Q", "K"), second=("Q", "K")),
        Mistake("summed_apart", "IX406", summed_apart, first=("Q", "K")),
        Mistake("nothing_compared", "IX406", nothing_compared),
        Mistake("one_number_each", "IX406", one_number_each, first=("Q", "K"), second=("Q", "K")),
        Mistake("added_features", "IX406", added_features),
        Mistake("split_apart", "IX407", split_apart, first=("h",), second=("h",)),
        Mistake("split_apart_on_keys", "IX407", split_apart_on_keys, first=("h",), second=("h",)),
        Mistake("packed_apart", "IX407", packed_apart, first=("n",)),
        Mistake("scaled_by_model", "IX408", scaled_by_model, first=("size(m)", "size(n)")),
        Mistake("scaled_by_keys", "IX408", scaled_by_keys, first=("size(j)",)),
        Mistake("scaled_twice", "IX409", scaled_twice),
        Mistake("scaled_twice_on_query", "IX409", scaled_twice_on_query),
        Mistake("scaled_twice_on_both", "IX409", scaled_twice_on_both),
        Mistake("masked_by_number", "IX411", masked_by_number),
        Mistake("masked_by_sum", "IX411", masked_by_sum),
        Mistake("masked_by_input", "IX411", masked_by_input),
        Mistake("masked_by_named_number", "IX411", masked_by_named_number),
        Mistake("masked_by_product", "IX411", masked_by_product),
        Mistake("masked_by_weak_number", "IX411", masked_by_weak_number),
        Mistake("guard_reversed", "IX423", guard_reversed),
        Mistake("guard_reversed_by_function", "IX423", guard_reversed_by_function),
        Mistake("guard_one_too_far", "IX423", guard_one_too_far),
        Mistake("guard_missing", "IX423", guard_missing),
        Mistake("guard_on_batch_and_head", "IX423", guard_on_batch_and_head),
        Mistake("guard_on_head_and_query", "IX423", guard_on_head_and_query),
        Mistake("guard_on_key_and_batch", "IX423", guard_on_key_and_batch),
        Mistake("swapped", "IX422", swapped, first=("Q", "K"), second=("Q", "K"), kept=("Q", "K")),
        Mistake("transposed_key", "IX303", transposed_key),
        Mistake("groups_interleaved", "IX425", groups_interleaved, first=("h",)),
        Mistake("groups_mixed", "IX404", groups_mixed, first=("V",)),
        Mistake("groups_contiguous", "IX425", groups_contiguous, first=("h",)),
        Mistake("residual_under_sum", "IX424", residual_under_sum, first=("X",)),
        Mistake("residual_summed", "IX424", residual_summed, first=("X",)),
    )
}


@dataclass(frozen=True)
class Broken:
    """A shape with a mistake in it."""

    shape: str
    mistake: Mistake
    text: str

    def __str__(self) -> str:
        return f"{self.mistake.name}-{self.shape}"


def broken() -> list[Broken]:
    found = []
    for mistake in MISTAKES.values():
        for shape in SHAPES.values():
            changed = mistake.change(shape)
            if changed is not None:
                found.append(Broken(shape.name, mistake, changed.text))
    return found


def tells(mistake: Mistake, finding: Diagnostic, tensors: Names, coordinates: Names) -> bool:
    """Whether a finding speaks of what is wrong."""

    def speaks(text: str, of: tuple[str, ...]) -> bool:
        words = set(re.findall(r"\w+", text))
        names = frozenset().union(*(tensors.get(one, frozenset()) | coordinates.get(one, frozenset()) for one in of))
        return not of or bool(words & names)

    def place(number: int) -> str:
        return finding.labels[number].span.text if number < len(finding.labels) else ""

    said = re.findall(r"`([^`]*)`", finding.message)
    message = all(any(speaks(word, (one,)) for word in said) for one in mistake.message)
    return speaks(place(0), mistake.first) and speaks(place(1), mistake.second) and message
