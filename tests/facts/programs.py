"""Attention in many shapes, right and wrong: what the lints and contracts are held against.

A `Shape` is a family of programs (one head, a batch, many heads, groups, across two rows, a sub-layer, a
block). A mistake changes a shape in one place, and knows what must be said of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.facts.spelling import Names

from indexical.diagnostics import Diagnostic

ROLES = {"i": "query", "j": "key", "d": "compare", "e": "carry", "h": "head", "b": "batch"}


@dataclass(frozen=True)
class Shape:
    """The pieces of an attention; `{lead}` is what stands before the positions."""

    name: str
    lead: str
    spaces: str
    inputs: str
    before: str = ""
    after: str = ""
    query: str = "Q[{lead}i, d]"
    key: str = "K[{lead}j, d]"
    value: str = "V[{lead}j, e]"
    compared: str = "d"
    score: str = "sum[{compared}]({query} * {key}) / {scale}"
    scale: str = "sqrt(size(d))"
    masked: str = "{scores}"
    home: str = "{lead}i, j"
    over: str = "j"
    guard: str = "j <= i"
    late: str = ""
    gather: str = "sum[j](weights[{plain}i, j] * {value})"
    out: str = "{lead}i, e"
    outer: str = ""
    kept: tuple[str, ...] = ()
    contract: str = ""
    plain: str = ""

    @property
    def text(self) -> str:
        plain = self.plain or self.lead
        holes = {"lead": plain, "plain": plain, "scale": self.scale, "compared": self.compared}
        holes |= {"query": self.query.format(**holes), "key": self.key.format(**holes)}
        holes["value"] = self.value.format(**holes)
        home = self.home.format(lead=self.lead)
        read = f"{plain}i, j"
        where = f" where {self.guard}" if self.guard else ""
        late = f" where {self.late}" if self.late else ""
        scores = self.masked.format(scores=f"scores[{read}]", **holes)
        lines = [
            self.spaces,
            self.inputs,
            self.before,
            f"let scores[{home}] = {self.score.format(**holes)};",
            f"let weights[{read}] = softmax[{self.over}]({scores}{where});",
            f"let {self.result}[{self.out.format(**holes)}] = {self.gather.format(**holes)}{late};",
            self.after,
            self.contract,
        ]
        return "\n".join(line for line in lines if line) + "\n"

    @property
    def result(self) -> str:
        return "heads" if self.after else "out"

    @property
    def coordinates(self) -> set[str]:
        return set(re.findall(r"\b[a-z]\b", self.lead)) | set("ijde")

    def claim(self, *flags: str) -> str:
        """The contract of this shape's attention."""
        roles = [f"{role} {c}" for c, role in ROLES.items() if c in self.coordinates]
        return f"attention {self.result}({', '.join([*roles, *flags])});"


SINGLE = Shape("single", "", "space position(i, j), feature(d, e);", "input Q[i, d], K[j, d], V[j, e];")
BATCHED = Shape(
    "batched", "b, ", "space batch(b), position(i, j), feature(d, e);", "input Q[b, i, d], K[b, j, d], V[b, j, e];"
)
HEADS = Shape(
    "heads",
    "b, h, ",
    "space batch(b), head(h), position(i, j), feature(d, e);",
    "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];",
)
BARE = replace(HEADS, name="bare", spaces="")
GROUPED = Shape(
    "grouped",
    "b, h, ",
    "space batch(b), head(h), group(g), position(i, j), feature(d, e);",
    "input Q[b, h, i, d], K[b, g, j, d], V[b, g, j, e];",
    before="let G = size(h) / size(g);",
    key="K[b, h / G, j, d]",
    value="V[b, h / G, j, e]",
)
MULTI_QUERY = replace(
    HEADS,
    name="multi_query",
    inputs="input Q[b, h, i, d], K[b, j, d], V[b, j, e];",
    key="K[b, j, d]",
    value="V[b, j, e]",
)
PROJECTED = Shape(
    "projected",
    "b, ",
    "space batch(b), position(i, j), model(m), feature(d, e);",
    "input X[b, i, m], W_Q[m, d], W_K[m, d], W_V[m, e];",
    before="""let Q[b, i, d] = sum[m](X[b, i, m] * W_Q[m, d]);
let K[b, j, d] = sum[m](X[b, j, m] * W_K[m, d]);
let V[b, j, e] = sum[m](X[b, j, m] * W_V[m, e]);""",
)
CROSS = Shape(
    "cross",
    "b, h, ",
    "space batch(b), head(h), question(i), answer(j), model(m, l), feature(d, e);",
    "input X[b, i, m], Y[b, j, l], W_Q[h, m, d], W_K[h, l, d], W_V[h, l, e], W_O[h, e, m];",
    before="""let Q[b, h, i, d] = sum[m](X[b, i, m] * W_Q[h, m, d]);
let K[b, h, j, d] = sum[l](Y[b, j, l] * W_K[h, l, d]);
let V[b, h, j, e] = sum[l](Y[b, j, l] * W_V[h, l, e]);""",
    after="let out[b, i, m] = X[b, i, m] + sum[h, e](heads[b, h, i, e] * W_O[h, e, m]);",
    guard="",
)
SUBLAYER = Shape(
    "sublayer",
    "b, h, ",
    "space batch(b), head(h), position(i, j), model(m), feature(d, e);",
    "input X[b, i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e], W_O[h, e, m];",
    before="""let Q[b, h, i, d] = sum[m](X[b, i, m] * W_Q[h, m, d]);
let K[b, h, j, d] = sum[m](X[b, j, m] * W_K[h, m, d]);
let V[b, h, j, e] = sum[m](X[b, j, m] * W_V[h, m, e]);""",
    after="let out[b, i, m] = X[b, i, m] + sum[h, e](heads[b, h, i, e] * W_O[h, e, m]);",
)
SPLIT = Shape(
    "split",
    "b, h in 0..H, ",
    "space batch(b), head(h), position(i, j), model(m, n), feature(d, e);",
    "input X[b, i, m], W_Q[m, n], W_K[m, n], W_V[m, n], W_O[n, m];",
    before="""let H = 4;
let D = size(n) / H;
let Q[b, i, n] = sum[m](X[b, i, m] * W_Q[m, n]);
let K[b, j, n] = sum[m](X[b, j, m] * W_K[m, n]);
let V[b, j, n] = sum[m](X[b, j, m] * W_V[m, n]);""",
    query="Q[b, i, h * D + d]",
    key="K[b, j, h * D + d]",
    value="V[b, j, h * D + e]",
    compared="d in 0..D",
    scale="sqrt(D)",
    out="b, h, i, e in 0..D",
    after="""let packed[b, i, n] = heads[b, n / D, i, n % D];
let out[b, i, m] = X[b, i, m] + sum[n](packed[b, i, n] * W_O[n, m]);""",
    plain="b, h, ",
)
BLOCK = replace(
    SUBLAYER,
    name="block",
    spaces="space batch(b), head(h), position(i, j), model(m), hidden(f), feature(d, e);",
    inputs="""use std::norms::{layer_norm};
input X[b, i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e], W_O[h, e, m];
input gain[m], bias[m], gain_2[m], bias_2[m], W_in[m, f], W_out[f, m];""",
    before="let N = layer_norm(X, gain, bias, 1e-5);\n" + SUBLAYER.before.replace("X[", "N["),
    after="""let Y[b, i, m] = X[b, i, m] + sum[h, e](heads[b, h, i, e] * W_O[h, e, m]);
let N_2 = layer_norm(Y, gain_2, bias_2, 1e-5);
let inner[b, i, f] = gelu(sum[m](N_2[b, i, m] * W_in[m, f]));
let out[b, i, m] = Y[b, i, m] + sum[f](inner[b, i, f] * W_out[f, m]);""",
)
SHAPES = {
    shape.name: shape
    for shape in (
        SINGLE,
        BATCHED,
        HEADS,
        BARE,
        GROUPED,
        MULTI_QUERY,
        PROJECTED,
        CROSS,
        SUBLAYER,
        SPLIT,
        BLOCK,
    )
}


# --------------------------------------------------------------------------- mistakes

Reason = Callable[[Diagnostic, Names], bool]


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


def masked_by_weak_number(shape: Shape) -> Shape | None:
    if shape is CROSS:
        return None
    return replace(shape, guard="", masked="if j > i {{ -10000.0 }} else {{ {scores} }}")


def guard_reversed(shape: Shape) -> Shape | None:
    return None if shape is CROSS else replace(shape, guard="j >= i", contract=shape.claim("causal"))


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
        Mistake("normalised_over_head", "IX402", normalised_over_head, message=("h", "j")),
        Mistake("value_at_query", "IX403", value_at_query, first=("V",)),
        Mistake("value_of_mirrored_head", "IX404", value_of_mirrored_head, first=("V",)),
        Mistake("value_of_next_head", "IX404", value_of_next_head, first=("V",)),
        Mistake("value_of_first_head", "IX404", value_of_first_head, first=("V",)),
        Mistake("guarded_late", "IX405", guarded_late, first=("j",)),
        Mistake("guarded_late_by_factor", "IX405", guarded_late_by_factor, first=("j",)),
        Mistake("guarded_late_by_name", "IX405", guarded_late_by_name, first=("j",)),
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
        Mistake("masked_by_weak_number", "IX411", masked_by_weak_number),
        Mistake("guard_reversed", "IX423", guard_reversed),
        Mistake("guard_one_too_far", "IX423", guard_one_too_far),
        Mistake("guard_missing", "IX423", guard_missing),
        Mistake("guard_on_batch_and_head", "IX423", guard_on_batch_and_head),
        Mistake("guard_on_head_and_query", "IX423", guard_on_head_and_query),
        Mistake("guard_on_key_and_batch", "IX423", guard_on_key_and_batch),
        Mistake("swapped", "IX422", swapped, first=("Q", "K"), second=("Q", "K"), kept=("Q", "K")),
        Mistake("transposed_key", "IX303", transposed_key),
        Mistake("groups_interleaved", "IX425", groups_interleaved, first=("h",)),
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


def right() -> dict[str, str]:
    """Every shape without and with its contract."""
    texts = {}
    for shape in SHAPES.values():
        flags = ("causal",) if shape.guard else ()
        texts[shape.name] = shape.text
        groups = ("groups contiguous G",) if shape is GROUPED else ()
        texts[f"{shape.name}_claimed"] = replace(shape, contract=shape.claim(*flags, *groups)).text
    return texts


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
