"""Right attention in many shapes: one head, a batch, many heads, groups, across two rows, a sub-layer, a block."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

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


def right() -> dict[str, str]:
    """Every shape without and with its contract."""
    texts = {}
    for shape in SHAPES.values():
        flags = ("causal",) if shape.guard else ()
        texts[shape.name] = shape.text
        groups = ("groups contiguous G",) if shape is GROUPED else ()
        texts[f"{shape.name}_claimed"] = replace(shape, contract=shape.claim(*flags, *groups)).text
    return texts
