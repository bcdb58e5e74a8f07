"""The laws of a callable that takes only `x`: first through `x`, then through the queries, keys and values inside."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .access import Direct, Extras, Port, _role
from .attention_laws import _leak, judge
from .calling import Foreign, Unusable, _is_torch
from .contract import Contract
from .inquiry import Inquiry, letter_law
from .intercept import Projection, Watch, find_roles, watching, width
from .layout import Layout, parse_layout, refusal
from .observing import moved
from .reports import Finding, place_of
from .sanity import plain
from .settings import Setting, Settings


@dataclass
class Outcome:
    """What was found."""

    findings: list[Finding] = field(default_factory=list)
    found: dict[str, str] = field(default_factory=dict)
    laws: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def judge_projected(
    foreign: Foreign,
    layouts: Mapping[str, Layout],
    sizes: dict[str, int],
    contract: Contract,
    tell: Callable[[str], None],
) -> Outcome:
    ports = _outer_ports(foreign, layouts, contract)
    example = {name: plain(value) for name, value in foreign.example.items()}
    outer = Outer(foreign, ports, sizes, example)
    inquiry = Inquiry(outer, Settings(outer, contract, layouts, example), contract, foreign.original, foreign.tolerance)
    outcome = Outcome()
    tell("what `x` reaches")
    violations = _outer_laws(inquiry)
    _residual_law(inquiry)
    inner_findings: list[Finding] = []
    tell("what is projected")
    _dead_parameters(inquiry)
    dead = any(finding.law == "dead parameter" for finding in inquiry.findings)
    inner = None if dead else _inner(foreign, outer, layouts, sizes, contract, inquiry, outcome)
    if inner is not None:
        judge(inner)
        inner_findings = inner.findings
        outcome.found.update(inner.found)
        outcome.laws += inner.laws
    outcome.findings = [*inquiry.findings, *inner_findings]
    if not inner_findings and not any(finding.law in ("packing", "layout") for finding in outcome.findings):
        for law, message, witness, cause, mend in violations:
            outcome.findings.append(
                Finding(law, message, witness, cause, mend, place_of(foreign.original, (r"softmax.*|mask.*|tril.*",)))
            )
    outcome.laws = list(dict.fromkeys([*inquiry.laws, *outcome.laws]))
    outcome.found = {**inquiry.found, **outcome.found}
    return outcome


def _outer_ports(foreign: Foreign, layouts: Mapping[str, Layout], contract: Contract) -> dict[str, Port]:
    """`x` as queries, keys and values at once; a second sequence, where there is one, as keys and values."""
    position = contract.attends if contract.attends else "i"
    skip = {*contract.masks, contract.documents}
    inputs = [name for name in foreign.example if name in layouts and name not in skip]
    if all(any(_role(name) == role for name in inputs) for role in "qkv"):
        chosen = {role: next(name for name in inputs if _role(name) == role) for role in "qkv"}
        letters = {"q": position, "k": "j" if "j" in layouts[chosen["k"]].factors else position}
        letters["v"] = letters["k"]
        ports = {role: _outer_port(name, layouts[name], letters[role]) for role, name in chosen.items()}
        return {**ports, "out": _outer_port("out", layouts["out"], position)}
    asking = [
        name
        for name in inputs
        if position in layouts[name].factors and len(layouts[name].factors) > 1 and _is_sequence(foreign, name)
    ]
    answering = [name for name in inputs if "j" in layouts[name].factors and _is_sequence(foreign, name)]
    if not asking or "out" not in layouts:
        raise refusal(
            "nothing in `axes` is a query",
            "name the queries `i`: `x=b i c`, or `q=b h i d`; and the output, `out=b i c`",
        )
    x = _outer_port(asking[0], layouts[asking[0]], position)
    y = _outer_port(answering[0], layouts[answering[0]], "j") if answering else x
    out = _outer_port("out", layouts["out"], position)
    return {"q": x, "k": y, "v": y, "out": out}


def _is_sequence(foreign: Foreign, name: str) -> bool:
    return "float" in str(getattr(foreign.example[name], "dtype", ""))


def _outer_port(name: str, layout: Layout, position: str) -> Port:
    rest = [factor for factor in layout.factors if factor != position]
    if position not in layout.factors or not rest:
        raise refusal(
            f"`{name}` has the axes `{layout}`, and no `{position}`", "the queries are in `x` and in the output"
        )
    feature = next((letter for letter in ("c", "d", "e") if letter in rest), rest[-1])
    return Port(name, layout, position, feature)


class Outer(Direct):
    """A callable of `x`, asked by `x` alone."""

    def __init__(
        self, foreign: Foreign, ports: Mapping[str, Port], sizes: Mapping[str, int], example: Mapping[str, Any]
    ) -> None:
        self.base = example
        super().__init__(foreign, ports, sizes)

    def run(self, arrays: Mapping[str, Any], extras: Extras) -> Any:
        """The output for arrays of (lane, position, feature), by the names of inputs."""
        made: dict[str, Any] = {**self.base, **extras}
        for role in "qkv":
            port = self.ports[role]
            if port.name in arrays:
                order = (*port.lanes, port.position, port.feature)
                made[port.name] = port.layout.join(
                    arrays[port.name].reshape([self.size(f) for f in order]), self.sizes, order
                )
        return self.read_out(self.foreign({name: made[name] for name in self.order}))

    def read_out(self, out: Any) -> Any:
        port = self.ports["out"]
        expected = port.layout.shape(self.sizes)
        if out.shape != expected:
            raise Unusable("shape", f"the output has the shape {out.shape}, and `{port.layout}` makes it {expected}")
        parts = port.layout.split(out, self.sizes, (*port.lanes, port.position, port.feature))
        return parts.reshape(self.count["out"], self.I, -1)


# ------------------------------------------------------------------- outer laws


def _outer_laws(inquiry: Inquiry) -> list[tuple[str, str, str, str, str]]:
    """Who moves when one position of `x` moves."""
    access = inquiry.access
    assert isinstance(access, Outer)
    inquiry.tested("reach")
    inquiry.tested("independence of batch")
    rng = np.random.default_rng(3)
    settings = [inquiry.settings.plain()]
    if settings[0].keeps or inquiry.contract.documents:
        settings += [inquiry.settings.draw(inquiry.rng) for _ in range(2)]
    cross = access.ports["k"].name != access.ports["q"].name
    arrays = {access.ports["q"].name: rng.normal(size=(access.count["q"], access.I, access.D))}
    if cross:
        for role in "kv":
            port = access.ports[role]
            arrays[port.name] = rng.normal(size=(access.count[role], access.J, access.size(port.feature)))
    found: list[tuple[str, str, str, str, str]] = []
    moves = np.zeros((access.I, access.J), bool)
    patterns: list[tuple[Setting, Any]] = []
    for setting in settings:
        allowed = inquiry.settings.declared(setting)
        before = access.run(arrays, setting.arrays)
        heard = np.zeros((access.count["out"], access.I, access.J), bool)
        patterns.append((setting, heard))
        if np.isnan(before).any() and allowed.any(2).all():
            lane, query = (int(x) for x in np.argwhere(np.isnan(before).any(2))[0])
            found.append(
                (
                    "finite",
                    "an output is NaN though its query may hear keys",
                    f"{inquiry.out_at(lane, query)} is NaN",
                    "a mask leaves a query no key",
                    "every query has to hear some key",
                )
            )
        name = access.ports["k"].name
        lanes, length = arrays[name].shape[:2]
        for lane in range(lanes):
            for position in range(length):
                changed = {}
                for each in {name, access.ports["v"].name}:
                    changed[each] = arrays[each].copy()
                    changed[each][lane, position] = rng.normal(size=arrays[each].shape[2])
                after = access.run({**arrays, **changed}, setting.arrays)
                touched = moved(before, after, inquiry.tolerance)
                related = access.related["k"][:, lane]
                if (touched & ~related[:, None]).any():
                    at, query = (int(x) for x in np.argwhere(touched & ~related[:, None])[0])
                    letter = next(
                        (
                            x
                            for x in access.lanes["out"]
                            if x in access.lanes["k"] and access.lanes["out"][x][at] != access.lanes["k"][x][lane]
                        ),
                        "b",
                    )
                    law = letter_law(letter)
                    exchanged = _exchanged(touched, access, lane, position, letter)
                    what = (
                        "one example of the batch moves another"
                        if law == "batch"
                        else f"one point of `{letter}` moves another"
                    )
                    found.append(
                        (
                            law,
                            what,
                            f"{inquiry.out_at(at, query)} moves when `{name}` at {access.lane_name('k', lane)}, "
                            f"{position} moves",
                            exchanged or "something is normalised, mixed or viewed across the batch",
                            "attend over positions alone; transpose before `view`",
                        )
                    )
                forbidden = touched & related[:, None] & ~allowed[:, :, position]
                if not cross:
                    forbidden[:, position] = False
                if forbidden.any():
                    at, query = (int(x) for x in np.argwhere(forbidden)[0])
                    leak = _leak(inquiry, at, query, position, setting, f"row of `{name}`")
                    cause, mend = (
                        "the mask is missing, late, turned round or at the wrong place",
                        "mask the scores with -inf before the softmax",
                    )
                    found.append((leak["law"], leak["message"], leak["witness"], cause, mend))
                heard[:, :, position] |= touched & related[:, None]
                if setting is settings[0]:
                    moves[:, position] |= (touched & related[:, None]).any(0)
    seen: set[str] = set()
    _gaps(inquiry, moves, found)
    named = _mistake(inquiry, patterns, cross) if found else None
    if named is not None:
        witness = next((item[2] for item in found if item[0] == named[0]), found[0][2])
        return [(named[0], named[1], witness, named[2], named[3])]
    return [item for item in found if not (item[0] in seen or seen.add(item[0]))]  # type: ignore[func-returns-value]


def _mistake(inquiry: Inquiry, patterns: list[tuple[Setting, Any]], cross: bool) -> tuple[str, str, str, str] | None:
    """The mistake in a mask that explains who moved, in every setting and every row that hears some key by it."""
    access = inquiry.access
    components = inquiry.settings.components()
    for number, component in enumerate(components):
        others = [other.relation for at, other in enumerate(components) if at != number]
        for mistake in component.mistakes:
            some, fits = False, True
            for setting, heard in patterns:
                allowed = inquiry.settings.together([*others, mistake.relation], setting)
                rows = allowed.any(2)
                diagonal = np.arange(access.I)[:, None] == np.arange(access.J)[None, :]
                itself = diagonal & (not cross)
                fits &= bool(np.array_equal((heard | itself)[rows], (allowed | itself)[rows]))
                some |= bool(rows.any())
            if fits and some:
                law = "mask" if component.name.startswith("mask") else component.name
                return law, f"who hears whom is not what {component.name} says", mistake.cause, mistake.mend
    return None


def _exchanged(touched: Any, access: Outer, lane: int, position: int, letter: str) -> str:
    """Whether only the same position of every example moves: attention runs over the batch."""
    others = touched.copy()
    others[:, position] = False
    if letter != "b" or others.any() or not touched[:, position].all():
        return ""
    return "batch and positions are exchanged: attention runs over the batch (`batch_first` is not what the arrays are)"


def _gaps(inquiry: Inquiry, moves: Any, found: list[tuple[str, str, str, str, str]]) -> None:
    allowed = inquiry.settings.declared(inquiry.settings.plain()).any(0)
    contract = inquiry.contract
    gap = allowed & ~moves
    if gap.any() and (
        contract.causal or contract.window or contract.causal is False or not contract.declared.get("causal", True)
    ):
        query, key = (int(x) for x in np.argwhere(gap)[0])
        found.append(
            (
                "gap",
                "a query does not hear a key that it may",
                f"out[{inquiry.access.ports['out'].position} = {query}] does not move when position {key} moves",
                "the mask drops too much",
                "compare the mask with the relation that is declared",
            )
        )
    elif not contract.causal and not contract.window:
        square = moves.shape[0] == moves.shape[1]
        lower = np.tril(np.ones_like(moves))
        inquiry.found["reach"] = (
            "every key" if moves.all() else "causal: j <= i" if square and np.array_equal(moves, lower) else "irregular"
        )


def _residual_law(inquiry: Inquiry) -> None:
    """A residual is added where one is declared: without any weights, what comes out is what went in."""
    access, contract = inquiry.access, inquiry.contract
    assert isinstance(access, Outer)
    torch_module = access.foreign.target
    if (
        not hasattr(torch_module, "named_parameters")
        or access.ports["q"].layout.factors != access.ports["out"].layout.factors
    ):
        return
    import torch

    kept = {}
    with torch.no_grad():
        for name, parameter in torch_module.named_parameters():
            kept[name] = parameter.detach().clone()
            if parameter.ndim > 1 or name.rpartition(".")[2].startswith("b"):
                parameter.zero_()
    try:
        rng = np.random.default_rng(3)
        name = access.ports["q"].name
        x = rng.normal(size=(access.count["q"], access.I, access.D))
        out = access.run({name: x}, inquiry.settings.plain().arrays)
    finally:
        with torch.no_grad():
            for name, parameter in torch_module.named_parameters():
                parameter.copy_(kept[name])
    centred = x - x.mean(2, keepdims=True)
    spread = centred.std(2, keepdims=True)
    norms = (x, centred / spread, x / np.sqrt((x**2).mean(2, keepdims=True)))
    same = any(np.allclose(out, expected, atol=1e-3) for expected in norms)
    nothing = np.abs(np.nan_to_num(out)).max() < 1e-9
    if contract.residual:
        inquiry.tested("residual")
        if not same:
            words = "nothing comes out" if nothing else "something else than `x` comes out"
            inquiry.report(
                "residual",
                "the residual is missing: `x` is not added to the output",
                f"with all weights 0, {words}",
                "`x` is not added, or not the `x` that came in",
                "return `x + attention(x)`",
                (r"return.*",),
            )
    elif contract.residual is False and same:
        inquiry.report(
            "residual",
            "a residual is added where none is declared",
            "with all weights 0, `x` comes out",
            "`x` is added to the output",
            "return the attention alone",
            (r"return.*",),
        )
    elif same:
        inquiry.found["residual"] = "`x` is added to the output"


def _dead_parameters(inquiry: Inquiry) -> None:
    """Every matrix of weights moves the output."""
    access = inquiry.access
    assert isinstance(access, Outer)
    module = access.foreign.target
    if not hasattr(module, "named_parameters"):
        return
    import torch

    inquiry.tested("parameters")
    plain_setting = inquiry.settings.plain()
    settings = [plain_setting]
    if plain_setting.keeps:
        settings.append(inquiry.settings.draw(inquiry.rng))
    rng = np.random.default_rng(5)
    arrays = {
        port.name: rng.normal(size=(access.count[role], access.size(port.position), access.size(port.feature)))
        for role, port in access.ports.items()
        if role in "qkv"
    }
    before = [access.run(arrays, setting.arrays) for setting in settings]
    if not np.isfinite(before[0]).any():
        return
    for name, parameter in module.named_parameters():
        if parameter.ndim < 2 or min(parameter.shape) < 2:
            continue
        with torch.no_grad():
            kept = parameter.detach().clone()
            generator = torch.Generator().manual_seed(1)
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter.dtype)
                * (kept.std() + 0.1)
            )
        try:
            after = [access.run(arrays, setting.arrays) for setting in settings]
        finally:
            with torch.no_grad():
                parameter.copy_(kept)
        if not any(moved(*pair, inquiry.tolerance).any() for pair in zip(before, after, strict=True)):
            inquiry.report(
                "dead parameter",
                f"`{name}` has no effect on the output",
                "it was replaced, and nothing moved",
                "the projection is made and not used, or never made",
                "use it, or remove it",
                (rf"{name.split('.')[0]}.*",),
            )


# --------------------------------------------------------------------- the inside


class Inner(Direct):
    """The same callable, asked by the queries, keys and values that it projects."""

    def __init__(
        self,
        foreign: Foreign,
        ports: Mapping[str, Port],
        sizes: Mapping[str, int],
        names: Mapping[str, str],
        outer: Outer,
        weights: Mapping[int, str],
    ) -> None:
        super().__init__(foreign, ports, sizes)
        self.names, self.outer, self.weights = dict(names), outer, weights

    def forward(self, q: Any, k: Any, v: Any, extras: Extras) -> Any:
        import torch

        watch = Watch(self.weights)
        packed = self.arrays(q, k, v, {})
        for name, value in packed.items():
            watch.inject[name] = torch.from_numpy(np.ascontiguousarray(value))
        made = {**self.outer.base, **extras}
        values = {name: self.foreign.convert(name, made[name]) for name in self.foreign.example}
        watch.weights = {**self.weights, **{id(values[name]): name for name in values if name in self.weights.values()}}
        with watching(watch):
            returned = self.foreign.raw(values)
        if "out" in self.names:
            event = next((event for event in watch.seen if event.name == self.names["out"]), None)
            if event is None:
                raise Unusable("shape", "the output projection is not made")
            return self.read_out(plain(event.given).reshape(self.ports["out"].layout.shape(self.sizes)))
        return self.read_out(plain(self.foreign.first(returned)).astype(float))

    def arrays(self, q: Any, k: Any, v: Any, extras: Extras) -> dict[str, Any]:
        self.order = tuple(dict.fromkeys(self.ports[role].name for role in "qkv"))
        return super().arrays(q, k, v, extras)


def _inner(
    foreign: Foreign,
    outer: Outer,
    layouts: Mapping[str, Layout],
    sizes: dict[str, int],
    contract: Contract,
    inquiry: Inquiry,
    outcome: Outcome,
) -> Inquiry | None:
    """An inquiry into the queries, keys and values inside, where they can be got at."""
    weights = _weights(foreign, layouts)
    if not weights:
        outcome.unread.append("what is inside: no weights of PyTorch were found to reach queries, keys and values by")
        return None
    import torch

    watch = Watch(weights)
    values = {name: foreign.convert(name, outer.base[name]) for name in foreign.example}
    watch.weights = {**weights, **{id(values[name]): name for name in values if name in weights.values()}}
    with watching(watch):
        foreign.raw(values)
    roles = find_roles(watch.seen)
    events = {event.name: event for event in watch.seen}
    if not roles:
        outcome.unread.append("what is inside: the projections are not known by name")
        return None
    _forget_biases(foreign.target, torch)
    if _wrong_source(outer, roles, events, inquiry):
        return None
    heads = (
        contract.heads
        or _heads(foreign.target)
        or _found_heads(foreign, outer, roles, events, sizes, contract, weights)
    )
    if heads is None:
        outcome.unread.append("what is inside: the number of heads is not declared")
        return None
    made = _inner_ports(outer, roles, events, int(heads), sizes, contract)
    if made is None:
        outcome.unread.append("what is inside: the projections have other shapes than `b i (h d)`")
        return None
    ports, inner_sizes = made
    inner = Inner(foreign, ports, inner_sizes, roles, outer, weights)
    inner_layouts = {**layouts, **{port.name: port.layout for port in ports.values()}}
    example = {
        name: plain(value)
        for name, value in foreign.example.items()
        if name not in {outer.ports[role].name for role in "qkv"} and name not in weights.values()
    }
    settings = Settings(inner, contract, inner_layouts, example)
    each = inner.count["v"] * inner.J <= 120
    other = Inquiry(inner, settings, contract, foreign.original, foreign.tolerance, each)
    try:
        other.forward(*other.inputs(), settings.plain())
    except Unusable:
        outcome.unread.append("what is inside: the projections cannot be replaced")
        return None
    if "qkv" in roles:
        return _packing(other, contract, inquiry, outcome)
    return other


def _wrong_source(outer: Outer, roles: Mapping[str, str], events: Mapping[str, Projection], inquiry: Inquiry) -> bool:
    """Whether, of two sequences, one is projected where the other is meant."""
    x, y = outer.ports["q"], outer.ports["k"]
    if x.name == y.name:
        return False
    names = {"q": "queries", "k": "keys", "v": "values", "kv": "keys and values"}
    for role, name in roles.items():
        if role in names:
            given = plain(events[name].given)
            mine, other = (outer.base[(x if (role == "q") == first else y).name] for first in (True, False))
            if given.shape == other.shape and np.allclose(given, other, atol=1e-6) and not _is_same(given, mine):
                wrong, right = (y.name, x.name) if role == "q" else (x.name, y.name)
                message = f"the {names[role]} are projected from `{wrong}`, and not from `{right}`"
                inquiry.report(
                    "source",
                    message,
                    f"what goes into `{name}` is `{wrong}`",
                    "the two sequences are exchanged",
                    f"project the {names[role]} from `{right}`",
                    (name.split(".")[0],),
                )
                return True
    return False


def _is_same(first: Any, second: Any) -> bool:
    return first.shape == second.shape and bool(np.allclose(first, second, atol=1e-6))


def _found_heads(
    foreign: Foreign,
    outer: Outer,
    roles: Mapping[str, str],
    events: Mapping[str, Projection],
    sizes: Mapping[str, int],
    contract: Contract,
    weights: Mapping[int, str],
) -> int | None:
    """The number of heads under which heads are apart."""
    from .layouts import _queries_stay, _values_arrive

    whole = width(events[roles.get("q", roles.get("qkv", ""))]) // (1 if "q" in roles else 3)
    for heads in [size for size in range(1, whole) if whole % size == 0 and whole // size > 1]:
        made = _inner_ports(outer, roles, events, heads, sizes, contract)
        if made is None:
            continue
        inner = Inner(foreign, made[0], made[1], roles, outer, weights)
        example = {
            name: plain(value)
            for name, value in foreign.example.items()
            if name not in {outer.ports[role].name for role in "qkv"} and name not in weights.values()
        }
        inquiry = Inquiry(inner, Settings(inner, contract, {}, example), contract, foreign.original, foreign.tolerance)
        try:
            if _values_arrive(inquiry, inner) and _queries_stay(inquiry, inner):
                return heads
        except Unusable:
            return None
    return None


def _weights(foreign: Foreign, layouts: Mapping[str, Layout]) -> dict[int, str]:
    """The weights by identity: parameters of a module, and arguments that are weights by their axes."""
    found = {}
    if hasattr(foreign.target, "named_parameters"):
        found = {id(parameter): name for name, parameter in foreign.target.named_parameters() if parameter.ndim >= 2}
    for name, value in foreign.example.items():
        layout = layouts.get(name)
        if (
            layout is not None
            and _is_torch(value)
            and "c" in layout.factors
            and not {"i", "j", "b"} & set(layout.factors)
        ):
            found[id(value)] = name
    return found


def _heads(target: Any) -> int | None:
    for name in (
        "num_heads",
        "n_heads",
        "heads",
        "n_head",
        "nhead",
        "num_attention_heads",
        "h",
        "nheads",
        "head_count",
    ):
        value = getattr(target, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _forget_biases(target: Any, torch: Any) -> None:
    if hasattr(target, "named_parameters"):
        with torch.no_grad():
            for name, parameter in target.named_parameters():
                if (
                    parameter.ndim == 1
                    and name.rpartition(".")[2].startswith(("bias", "b_", "in_proj_bias"))
                    and "norm" not in name
                ):
                    parameter.zero_()


def _inner_ports(
    outer: Outer,
    roles: Mapping[str, str],
    events: Mapping[str, Projection],
    heads: int,
    sizes: Mapping[str, int],
    contract: Contract,
) -> tuple[dict[str, Port], dict[str, int]] | None:
    """Layouts of what is projected: those of `x`, its feature replaced by heads and features."""
    x = _seen_layout(outer, outer.ports["q"], events[roles.get("q", roles.get("qkv", ""))])
    y = (
        x
        if outer.ports["k"].name == x.name
        else _seen_layout(outer, outer.ports["k"], events[roles.get("k", roles.get("kv", ""))])
    )
    inner_sizes = {**sizes, "h": heads}
    i, j = x.position, y.position

    def layout(port: Port, packed: str) -> Layout:
        text = " ".join(f"({packed})" if dim == (port.feature,) else f"({' '.join(dim)})" for dim in port.layout.dims)
        return parse_layout("projection", text)

    ports: dict[str, Port] = {}
    if "qkv" in roles and "q" not in roles:
        whole = width(events[roles["qkv"]])
        if whole % (3 * heads):
            return None
        inner_sizes["d"] = whole // (3 * heads)
        packing = _packing_text(contract.packing)
        for number, role in enumerate("qkv"):
            ports[role] = Port(roles["qkv"], layout(x, packing), i, "d", ("3", number))
        inner_sizes["e"] = inner_sizes["d"]
        out_feature = "d"
    else:
        total = width(events[roles["q"]])
        if total % heads:
            return None
        inner_sizes["d"] = total // heads
        ports["q"] = Port(roles["q"], layout(x, "h d"), i, "d")
        for role in ("k", "v"):
            name = roles.get(role, roles.get("kv", ""))
            each = width(events[name]) // (1 if role in roles else 2)
            groups = each // inner_sizes["d"]
            if each % inner_sizes["d"] or groups == 0 or heads % groups:
                return None
            letter = "h" if groups == heads else "g"
            if letter == "g":
                inner_sizes["g"] = groups
            packed = f"{letter} d" if role in roles else f"2 {letter} d"
            part = None if role in roles else ("2", "kv".index(role))
            ports[role] = Port(name, layout(y, packed), j, "d", part)
        inner_sizes["e"] = inner_sizes["d"]
        out_feature = "d"
    ports["out"] = Port(
        "out",
        layout(outer.ports["out"] if "out" not in roles else replace(x, name="out"), f"h {out_feature}"),
        i,
        out_feature,
    )
    if "out" not in roles and sizes[outer.ports["out"].feature] != heads * inner_sizes["d"]:
        return None
    return ports, inner_sizes


def _seen_layout(outer: Outer, port: Port, event: Projection) -> Port:
    """The port with the axes in the order in which they go into a projection: found by comparing the numbers."""
    given, raw = plain(event.given), outer.base[port.name]
    if len(port.layout.dims) != raw.ndim or port.layout.dims[-1] != (port.feature,):
        return port
    for order in itertools.permutations(range(raw.ndim - 1)):
        moved_axes = raw.transpose(*order, raw.ndim - 1)
        dims = tuple(port.layout.dims[axis] for axis in order)
        if given.shape == moved_axes.shape and np.allclose(given, moved_axes, atol=1e-6):
            return replace(port, layout=Layout((*dims, port.layout.dims[-1])))
        merged = moved_axes.reshape(-1, raw.shape[-1])
        if given.shape == merged.shape and np.allclose(given, merged, atol=1e-6):
            joined = tuple(factor for dim in dims for factor in dim)
            return replace(port, layout=Layout((joined, port.layout.dims[-1])))
    return port


def _packing_text(packing: str | None) -> str:
    if packing is None:
        return "3 h d"
    return packing.replace("qkv", "3").replace("(", " ").replace(")", " ").replace("c", "").strip()


_PACKINGS = ("3 h d", "h 3 d", "3 d h", "h d 3", "d 3 h", "d h 3")


def _packing(inquiry: Inquiry, contract: Contract, outer: Inquiry, outcome: Outcome) -> Inquiry | None:
    """How a fused projection is split: as declared, or as it is found to be."""
    from .layouts import _queries_stay, _values_arrive

    access = inquiry.access
    assert isinstance(access, Inner)
    outer.tested("packing")

    def fits(packing: str, merged: tuple[str, ...]) -> bool:
        factors = access.ports["q"].layout.factors
        fused = iter(packing.split())
        order = tuple(next(fused) if factor in ("3", "h", "d") else factor for factor in factors)
        out = iter(merged)
        out_order = tuple(
            next(out) if factor in ("h", "d") else factor for factor in access.ports["out"].layout.factors
        )
        other = access.reread({"q": order, "k": order, "v": order, "out": out_order})
        return _values_arrive(inquiry, other) and _queries_stay(inquiry, other)

    declared = _packing_text(contract.packing)
    if fits(declared, ("h", "d")):
        outer.found["packing"] = f"({declared})"
        return inquiry
    found = next(
        ((packing, merged) for packing in _PACKINGS for merged in (("h", "d"), ("d", "h")) if fits(packing, merged)),
        None,
    )
    if found is None:
        return inquiry
    packing, merged = found
    outer.found["packing"] = f"({packing})"
    consistent = merged == tuple(letter for letter in packing.split() if letter != "3")
    if contract.packing is not None and packing != declared:
        outer.report(
            "packing",
            f"the fused weight is split as ({packing}), and not as ({declared})",
            f"values arrive where they belong under ({packing}) alone",
            "the fused projection is reshaped or chunked in another order than its weights have",
            f"split it as ({declared}): reshape to that first",
            (r"chunk.*|split.*|reshape.*|view.*|rearrange.*",),
        )
        return None
    if not consistent:
        outer.report(
            "layout",
            f"heads are split as ({packing}), and merged as ({' '.join(merged)})",
            "values leave in another order than they came",
            "heads are merged in the wrong order",
            "merge them in the order in which they were split",
            (r"reshape.*|view.*|rearrange.*",),
        )
        return None
    factors = access.ports["q"].layout.factors
    fused = iter(packing.split())
    order = tuple(next(fused) if factor in ("3", "h", "d") else factor for factor in factors)
    out = iter(merged)
    out_order = tuple(next(out) if factor in ("h", "d") else factor for factor in access.ports["out"].layout.factors)
    inquiry.access = access.reread({"q": order, "k": order, "v": order, "out": out_order})
    return inquiry
