"""The inside of a callable of `x`: the queries, keys and values that it projects."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..lift.arguments import held_weights
from .access import Direct, Extras, Port
from .calling import Foreign, Unusable, _is_torch
from .contract import Contract
from .declared import check_groups
from .diagnosis import groups_in_turn
from .inquiry import Inquiry
from .intercept import Projection, Watch, by_heads, find_roles, watching
from .layout import Layout, parse_layout, refusal
from .outer import Outer
from .reports import Finding
from .sanity import plain
from .settings import Settings


@dataclass
class Outcome:
    """The findings so far."""

    findings: list[Finding] = field(default_factory=list)
    found: dict[str, str] = field(default_factory=dict)
    laws: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


class Inner(Direct):
    """The same callable, asked by the queries, keys and values that it projects."""

    projected = True

    def __init__(
        self,
        foreign: Foreign,
        ports: Mapping[str, Port],
        sizes: Mapping[str, int],
        names: Mapping[str, str],
        outer: Outer,
        weights: Mapping[int, str],
        parts: Mapping[str, tuple[str, ...]],
    ) -> None:
        super().__init__(foreign, ports, sizes)
        self.names, self.outer, self.weights, self.parts = dict(names), outer, weights, parts

    def forward(self, q: Any, k: Any, v: Any, extras: Extras) -> Any:
        import torch

        watch = Watch(self.weights)
        packed = self.arrays(q, k, v, {})
        for name, value in packed.items():
            heads = self.parts.get(name) or (name,)
            for head, part in zip(heads, np.split(value, len(heads), -1), strict=True):
                watch.inject[head] = torch.from_numpy(np.ascontiguousarray(part))
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


def inside(
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

    seen = _seen(foreign, outer.base, weights)
    roles = find_roles(seen)
    later = {event.name: event.given for event in _seen(foreign, _one_row_changed(outer), weights)}
    events = {event.name: replace(event, after=later.get(event.name)) for event in seen}
    if not roles:
        outcome.unread.append("what is inside: the projections are not known by name")
        return None
    _forget_biases(foreign.target, torch)
    if _wrong_source(outer, roles, events, inquiry):
        return None
    heads = contract.heads or _attribute(foreign.target, _HEADS)
    first = events[next(iter(roles.values()))].given
    if contract.heads and first.shape[-1] == sizes[outer.ports["q"].feature]:  # Else a weight is that of one head.
        _check_heads(contract, roles, events, _gathered(outer, roles, events, sizes))
    if not heads:
        heads = _found_heads(foreign, outer, roles, events, sizes, contract, weights)
    if heads is None:
        outcome.unread.append("what is inside: the number of heads is not declared")
        return None
    readings = _inner_ports(outer, roles, events, int(heads), sizes, contract)
    if not readings:
        outcome.unread.append("what is inside: the projections have other shapes than `b i (h d)`")
        return None
    inquiries = []
    beside = _beside_attention(seen, roles)
    for ports, inner_sizes in readings:
        inner = Inner(foreign, ports, inner_sizes, roles, outer, weights, _parts(events))
        inner_layouts = {**layouts, **{port.name: port.layout for port in ports.values()}}
        settings = Settings(inner, contract, inner_layouts, _beside(foreign, outer, weights))
        each = inner.count["v"] * inner.J <= 120
        made = Inquiry(inner, settings, contract, foreign.original, foreign.tolerance, each)
        made.beside = beside
        inquiries.append(made)
    try:
        inquiries[0].forward(*inquiries[0].inputs(), inquiries[0].settings.plain())
    except Unusable:
        outcome.unread.append("what is inside: the projections cannot be replaced")
        return None
    if len(inquiries) > 1:
        return _grouped_packing(inquiries, contract, inquiry, outcome)
    if "qkv" in roles:
        return _packing(inquiries[0], contract, inquiry, outcome)
    return inquiries[0]


def _beside_attention(seen: list[Projection], roles: Mapping[str, str]) -> tuple[str, ...]:
    """Weights that take part beside queries, keys and values before the output is projected: a gate, a mix of heads."""
    names = [event.name for event in seen]
    end = names.index(roles["out"]) if "out" in roles else len(names)
    return tuple(name for name in names[:end] if name not in roles.values())


def _check_heads(
    contract: Contract, roles: Mapping[str, str], events: Mapping[str, Projection], gathered: int
) -> None:
    """Refuse heads and groups that the widths of the projections contradict."""
    heads = int(contract.heads or 1)
    wide = {role: events[name].width for role, name in roles.items()}
    for words, width in (("the queries are", wide.get("q", 0)), ("the outputs of all heads are", gathered)):
        if width % heads:
            raise refusal(
                f"the contract says {heads} heads, and {words} {width} wide",
                f"{width} features are not {heads} heads of one width: correct `heads`",
            )
    each = wide["q"] // heads if "q" in wide else gathered // heads
    fused = (wide.get("qkv", 0) - gathered) // 2 if "q" not in wide else 0
    keys = wide.get("k", wide.get("kv", 0) // 2) or fused
    if keys and keys % each == 0:
        check_groups(contract, heads, keys // each)


def _beside(foreign: Foreign, outer: Outer, weights: Mapping[int, str]) -> dict[str, Any]:
    """The arguments that are neither sequences nor weights."""
    taken = {outer.ports[role].name for role in "qkv"} | set(weights.values())
    return {name: plain(value) for name, value in foreign.example.items() if name not in taken}


def _parts(events: Mapping[str, Projection]) -> dict[str, tuple[str, ...]]:
    return {name: event.parts for name, event in events.items()}


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
            if _order_in(given, other) is not None and _order_in(given, mine) is None:
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


def _order_in(given: Any, array: Any) -> tuple[int, ...] | None:
    """The order of the axes of an array, its features last, in which it is what was given, perhaps merged into one."""
    for order in itertools.permutations(range(array.ndim - 1)):
        turned = array.transpose(*order, array.ndim - 1)
        for shaped in (turned, turned.reshape(-1, array.shape[-1])):
            if given.shape == shaped.shape and np.allclose(given, shaped, atol=1e-6):
                return order
    return None


def _seen(foreign: Foreign, arrays: Mapping[str, Any], weights: Mapping[int, str]) -> list[Projection]:
    """The projections of one run."""
    watch = Watch(weights)
    values = {name: foreign.convert(name, arrays[name]) for name in foreign.example}
    watch.weights = {**weights, **{id(values[name]): name for name in values if name in weights.values()}}
    with watching(watch):
        foreign.raw(values)
    return by_heads(watch.seen)


def _one_row_changed(outer: Outer) -> dict[str, Any]:
    changed = dict(outer.base)
    for name in {outer.ports[role].name for role in "qkv"}:
        array = changed[name] = outer.base[name].copy()
        if array.ndim == 3 and array.shape[1] > 1:
            array[0, 1] = 1.5 * array[0, 1, ::-1] + np.linspace(0.0, 1.0, array.shape[2])
    return changed


def _order_seen(event: Projection, array: Any) -> tuple[int, ...] | None:
    """The order of two axes of an array in what was made of it, as by a norm: by which of its rows is another."""
    if event.after is None or event.after.shape != event.given.shape or array.ndim != 3 or min(array.shape[:2]) < 2:
        return None
    changed = (event.given != event.after).any(-1)
    for order in ((0, 1), (1, 0)):
        lengths = tuple(array.shape[axis] for axis in order)
        if changed.any() and changed.shape in (lengths, (lengths[0] * lengths[1],)):
            rows = changed.reshape(lengths).nonzero()
            # Those that changed are of one example, or of one position: that of the row at 0, 1.
            if any((rows[:, order.index(axis)] == axis).all() for axis in (0, 1)):
                return order
    return None


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

    whole = _gathered(outer, roles, events, sizes) if "qkv" in roles else events[roles["q"]].width
    for heads in [size for size in range(1, whole) if whole % size == 0 and whole // size > 1]:
        for made in _inner_ports(outer, roles, events, heads, sizes, contract):
            inner = Inner(foreign, made[0], made[1], roles, outer, weights, _parts(events))
            settings = Settings(inner, contract, {}, _beside(foreign, outer, weights))
            inquiry = Inquiry(inner, settings, contract, foreign.original, foreign.tolerance)
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
    else:
        found = held_weights(foreign.original)
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


_HEADS = "num_heads n_heads heads n_head nhead num_attention_heads h nheads head_count".split()


def _attribute(target: Any, names: list[str]) -> int | None:
    """A number that a module, or its configuration, has under one of some names."""
    for owner in (target, getattr(target, "config", None)):
        for name in names:
            value = getattr(owner, name, None)
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


Reading = tuple[dict[str, Port], dict[str, int]]  # The ports inside, and the sizes with those of heads and features.


def _inner_ports(
    outer: Outer,
    roles: Mapping[str, str],
    events: Mapping[str, Projection],
    heads: int,
    sizes: Mapping[str, int],
    contract: Contract,
) -> list[Reading]:
    """Layouts of what is projected: those of `x`, its feature replaced by heads and features. Several, where queries,
    keys and values that are not as wide as each other may stand in one projection in several ways."""
    x = _seen_layout(outer, outer.ports["q"], events[roles.get("q", roles.get("qkv", ""))])
    if "qkv" in roles and "q" not in roles:
        gathered = _gathered(outer, roles, events, sizes)
        width, packing = events[roles["qkv"]].width, _packing_text(contract.packing)
        found = list(_fused_ports(x, roles["qkv"], width, heads, gathered // heads, packing))
    else:
        same = outer.ports["k"].name == x.name
        keys = x if same else _seen_layout(outer, outer.ports["k"], events[roles.get("k", roles.get("kv", ""))])
        found = _separate_ports(x, keys, roles, events, heads)
    readings = []
    for ports, inner in found:
        carried = ports["v"].feature
        if "out" not in roles and sizes[outer.ports["out"].feature] != heads * inner["e"]:
            continue
        whole = outer.ports["out"] if "out" not in roles else replace(x, name="out")
        ports["out"] = Port("out", _repacked(whole, f"h {carried}"), x.position, carried)
        readings.append((ports, {**sizes, "h": heads, **inner}))
    return readings


def _gathered(
    outer: Outer, roles: Mapping[str, str], events: Mapping[str, Projection], sizes: Mapping[str, int]
) -> int:
    """How wide the outputs of all heads are together."""
    if "out" not in roles:
        return int(sizes[outer.ports["out"].feature])
    given, merged = events[roles["qkv" if "qkv" in roles else "q"]].given, events[roles["out"]].given
    return int(merged.numel() * given.shape[-1] // given.numel())


def _repacked(port: Port, packed: str) -> Layout:
    """The layout of a port, with other factors in its feature."""
    text = " ".join(f"({packed})" if dim == (port.feature,) else f"({' '.join(dim)})" for dim in port.layout.dims)
    return parse_layout("projection", text)


def _fused_ports(x: Port, name: str, width: int, heads: int, each: int, packing: str) -> Iterator[Reading]:
    """Queries, keys and values of one projection, and the width of a head; heads may share keys and values."""
    if width == 3 * heads * each:
        layout = _repacked(x, packing)
        ports = {role: Port(name, layout, x.position, "d", ("3", number)) for number, role in enumerate("qkv")}
        yield ports, {"d": each, "e": each}
        return
    groups = (width // each - heads) // 2 if each else 0
    if groups < 1 or heads % groups or width != (heads + 2 * groups) * each:
        return
    for columns in _grouped_columns(heads, groups, each).values():
        ports = {
            role: Port(name, _repacked(x, f"{letter} d"), x.position, "d", columns=columns[role])
            for role, letter in zip("qkv", "hgg", strict=True)
        }
        yield ports, {"d": each, "e": each, "g": groups}


def _grouped_columns(heads: int, groups: int, each: int) -> dict[str, dict[str, tuple[int, ...]]]:
    """Where queries, keys and values stand in a fused projection, in the ways that are usual, by name."""
    share = heads // groups
    numbers = np.arange((heads + 2 * groups) * each).reshape(-1, each)
    by_group = numbers.reshape(groups, share + 2, each)
    pairs = numbers[heads:].reshape(groups, 2, each)
    ways = {
        "all queries, all keys, all values": (numbers[:heads], *np.split(numbers[heads:], 2)),
        "for each group its queries, key and value": (by_group[:, :share], by_group[:, share], by_group[:, share + 1]),
        "all queries, then a key and a value for each group": (numbers[:heads], pairs[:, 0], pairs[:, 1]),
    }
    return {
        name: {role: tuple(int(at) for at in part.ravel()) for role, part in zip("qkv", parts, strict=True)}
        for name, parts in ways.items()
    }


def _separate_ports(
    x: Port, y: Port, roles: Mapping[str, str], events: Mapping[str, Projection], heads: int
) -> list[Reading]:
    """Queries of one projection, keys and values of one or of two; heads may share those."""
    total = events[roles["q"]].width
    if total % heads:
        return []
    compared = total // heads
    apart = "kv" not in roles
    wide = {role: events[roles[role if apart else "kv"]].width // (1 if apart else 2) for role in "kv"}
    groups = wide["k"] // compared
    if wide["k"] % compared or groups == 0 or heads % groups or wide["v"] % groups:
        return []
    letter = "h" if groups == heads else "g"
    inner = {"d": compared, "e": wide["v"] // groups, **({"g": groups} if letter == "g" else {})}
    ports = {"q": Port(roles["q"], _repacked(x, "h d"), x.position, "d")}
    for role, feature in (("k", "d"), ("v", "d" if inner["e"] == compared else "e")):
        packed = f"{letter} {feature}" if apart else f"2 {letter} {feature}"
        part = None if apart else ("2", "kv".index(role))
        ports[role] = Port(roles[role if apart else "kv"], _repacked(y, packed), y.position, feature, part)
    return [(ports, inner)]


def _seen_layout(outer: Outer, port: Port, event: Projection) -> Port:
    """The port with the axes in the order in which they go into a projection: found by comparing the numbers."""
    given, raw = plain(event.given), outer.base[port.name]
    if len(port.layout.dims) != raw.ndim or port.layout.dims[-1] != (port.feature,):
        return port
    order = _order_in(given, raw) or _order_seen(event, raw)
    if order is None:
        return port
    dims = tuple(port.layout.dims[axis] for axis in order)
    if given.ndim < raw.ndim:
        dims = (tuple(factor for dim in dims for factor in dim),)
    return replace(port, layout=Layout((*dims, port.layout.dims[-1])))


def _packing_text(packing: str | None) -> str:
    if packing is None:
        return "3 h d"
    return packing.replace("qkv", "3").replace("(", " ").replace(")", " ").replace("c", "").strip()


def _grouped_packing(
    inquiries: list[Inquiry], contract: Contract, outer: Inquiry, outcome: Outcome
) -> Inquiry | None:
    """How a fused projection is split whose heads share keys and values: the way in which values and queries go where
    they belong; else one in which whole heads do."""
    from .layouts import _queries_stay, _values_arrive

    def access(inquiry: Inquiry) -> Inner:
        assert isinstance(inquiry.access, Inner)
        return inquiry.access

    sizes = access(inquiries[0]).sizes
    names = list(_grouped_columns(sizes["h"], sizes["g"], sizes["d"]))
    arriving = [inquiry for inquiry in inquiries if _values_arrive(inquiry, access(inquiry))]
    fitting = [inquiry for inquiry in arriving if _queries_stay(inquiry, access(inquiry))]
    order = None if fitting else _other_order(inquiries[0], access(inquiries[0]))
    if order is not None:
        words = ", ".join({"q": "queries", "k": "keys", "v": "values"}[role] for role in order)
        outer.report(
            "roles",
            f"the fused weight is split into {words}, in this order",
            "values, queries and keys go where they belong in this order alone",
            "the parts of the fused projection are taken in another order than queries, keys, values",
            "split it into queries, keys and values, in the order in which the weights stand",
            (r"chunk.*|split.*|unbind.*",),
        )
        return None
    chosen = next(iter(fitting or arriving), None)
    if chosen is None:
        chosen = next((inquiry for inquiry in inquiries if _whole_heads_arrive(inquiry)), None)
    if chosen is None:
        outcome.unread.append("what is inside: how queries, keys and values stand in the fused projection is not known")
        return None
    outer.tested("packing")
    outer.found["packing"] = names[inquiries.index(chosen)]
    apart = contract.packing is not None and not contract.packing.lstrip("( ").startswith(("3", "q"))
    if contract.packing is not None and apart != (inquiries.index(chosen) == 1):
        outer.report(
            "packing",
            f"the fused weight is split as {outer.found['packing']}, and not as ({contract.packing})",
            f"values arrive where they belong with {outer.found['packing']}",
            "the fused projection is reshaped or split in another order than its weights have",
            "split it in the order in which the weights stand",
            (r"chunk.*|split.*|reshape.*|view.*|rearrange.*",),
        )
        return None
    return chosen


def _other_order(inquiry: Inquiry, access: Inner) -> tuple[str, ...] | None:
    """The order of queries, keys and values in a fused projection, where it is another than this, and they fit so."""
    from .layouts import _queries_stay, _values_arrive

    wide = {role: len(access.ports[role].columns) for role in "qkv"}
    for order in itertools.permutations("qkv"):
        ends = dict(zip(order, itertools.accumulate(wide[role] for role in order), strict=True))
        other = copy.copy(access)
        other.ports = {
            role: replace(port, columns=tuple(range(ends[role] - wide[role], ends[role]))) if role in wide else port
            for role, port in access.ports.items()
        }
        if order != ("q", "k", "v") and _values_arrive(inquiry, other) and _queries_stay(inquiry, other):
            return order
    return None


def _whole_heads_arrive(inquiry: Inquiry) -> bool:
    """Whether the value of a group arrives in its own features of some heads, and in no others."""
    q, k, _ = inquiry.inputs()
    draw = inquiry.observe(q, k, inquiry.settings.plain())
    reached = np.nan_to_num(np.abs(draw.full)).max((1, 3)) > 0
    lanes = np.arange(inquiry.access.count["v"])
    orders = [maps["v"] for _, maps in groups_in_turn(inquiry.access) if "v" in maps]
    return draw.astray <= 1e-6 and any(np.array_equal(reached, lanes == order[:, None]) for order in orders)


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
