"""A callable of `x`, asked by `x` alone: whom it reaches, its residual, its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .access import Direct, Extras, Port, role_of_name
from .calling import Foreign, Unusable
from .contract import Contract
from .diagnosis import mask_mistake
from .hearing import leak, position_shapes
from .inquiry import Inquiry, letter_law
from .layout import Layout, refusal
from .observing import moved
from .settings import Setting


def outer_ports(foreign: Foreign, layouts: Mapping[str, Layout], contract: Contract) -> dict[str, Port]:
    """`x` as queries, keys and values at once; a second sequence, where there is one, as keys and values."""
    position = contract.attends if contract.attends else "i"
    skip = {*contract.masks, contract.documents}
    inputs = [name for name in foreign.example if name in layouts and name not in skip]
    if all(any(role_of_name(name) == role for name in inputs) for role in "qkv"):
        chosen = {role: next(name for name in inputs if role_of_name(name) == role) for role in "qkv"}
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


EXCHANGED = "batch and positions are exchanged: attention runs over the batch (`batch_first` is not what arrays are)"
Broken = tuple[str, str, str, str, str]  # The law, the message, the witness, the cause and the mend.


def outer_laws(inquiry: Inquiry) -> list[Broken]:
    """The laws of `x` alone: which outputs move when one position of it moves."""
    access = inquiry.access
    assert isinstance(access, Outer)
    inquiry.tested("reach")
    inquiry.tested("independence of batch")
    plain = inquiry.settings.plain()
    arrays = _drawn(access)
    lanes, length = arrays[access.ports["k"].name].shape[:2]
    places = [(lane, position) for lane in _some(lanes, 4) for position in _some(length, 24)]
    found: list[Broken] = []
    faint = np.zeros((access.I, access.J), bool)
    patterns = [(plain, _heard(inquiry, arrays, plain, places, found, faint))]
    moves = patterns[0][1].any(0) | faint
    left_out = sorted(set(range(length)) - {position for _, position in places})
    moves[:, left_out] = inquiry.settings.declared(plain).any(0)[:, left_out]
    inquiry.settings.heard = np.broadcast_to(moves, (access.count["out"], *moves.shape))
    if plain.keeps or inquiry.contract.documents:
        drawn = [inquiry.settings.draw(inquiry.rng) for _ in range(2)]
        patterns += [(setting, _heard(inquiry, arrays, setting, places, found, faint)) for setting in drawn]
    _gaps(inquiry, moves, found)
    if found and not left_out and lanes <= 4:
        named = mask_mistake(inquiry.settings, patterns, itself=not _is_cross(access))
        if named is not None:
            witness = next((item[2] for item in found if item[0] == named.law), found[0][2])
            return [(named.law, named.message, witness, named.cause, named.mend)]
    return list({item[0]: item for item in reversed(found)}.values())[::-1]


def _is_cross(access: Outer) -> bool:
    return access.ports["k"].name != access.ports["q"].name


def _drawn(access: Outer) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        port.name: rng.normal(size=(access.count[role], access.size(port.position), access.size(port.feature)))
        for role, port in access.ports.items()
        if role != "out"
    }


def _heard(
    inquiry: Inquiry,
    arrays: Mapping[str, Any],
    setting: Setting,
    places: list[tuple[int, int]],
    found: list[Broken],
    faint: Any,
) -> Any:
    """Which rows of the output move with which positions of their own lane; what may not move is added to `found`, and
    what moves by little to `faint`."""
    access = inquiry.access
    assert isinstance(access, Outer)
    rng = np.random.default_rng(4)
    allowed = inquiry.settings.declared(setting)
    before = access.run(arrays, setting.arrays)
    heard = np.zeros((access.count["out"], access.I, access.J), bool)
    if np.isnan(before).any() and inquiry.settings.hears(setting):
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
    for lane, position in places:
        changed = {name: arrays[name].copy() for name in {access.ports[role].name for role in "kv"}}
        for each in changed.values():
            each[lane, position] = rng.normal(size=each.shape[2])
        after = access.run({**arrays, **changed}, setting.arrays)
        touched = moved(before, after, inquiry.tolerance)
        faint[:, position] |= moved(before, after, inquiry.tolerance * 1e-6).any(0)
        related = access.related["k"][:, lane][:, None]
        if (touched & ~related).any():
            found.append(_mixing(inquiry, access, touched, lane, position))
        forbidden = touched & related & ~allowed[:, :, position]
        if not _is_cross(access):
            forbidden[:, position] = False
        if forbidden.any():
            at, query = (int(x) for x in np.argwhere(forbidden)[0])
            told = leak(inquiry, at, query, position, setting, f"row of `{access.ports['k'].name}`")
            cause = "the mask is missing, late, turned round or at the wrong place"
            mend = "mask the scores with -inf before the softmax"
            found.append((told["law"], told["message"], told["witness"], cause, mend))
        heard[:, :, position] |= touched & related
    return heard


def _mixing(inquiry: Inquiry, access: Outer, touched: Any, lane: int, position: int) -> Broken:
    """One example of the batch, or one point of another axis, moves another."""
    at, query = (int(x) for x in np.argwhere(touched & ~access.related["k"][:, lane][:, None])[0])
    mine, theirs = access.lanes["out"], access.lanes["k"]
    letter = next((x for x in mine if x in theirs and mine[x][at] != theirs[x][lane]), "b")
    law = letter_law(letter)
    return (
        law,
        "one example of the batch moves another" if law == "batch" else f"one point of `{letter}` moves another",
        f"{inquiry.out_at(at, query)} moves when `{access.ports['k'].name}` at {access.lane_name('k', lane)}, "
        f"{position} moves",
        _exchanged(touched, access, lane, position, letter)
        or "something is normalised, mixed or viewed across the batch",
        "attend over positions alone; transpose before `view`",
    )


def _some(count: int, most: int) -> list[int]:
    """Numbers below a count: all of them, or a few, the first and the last among them."""
    return sorted({round(at) for at in np.linspace(0, count - 1, min(count, most))})


def _exchanged(touched: Any, access: Outer, lane: int, position: int, letter: str) -> str:
    """Whether only the same position of every example moves: attention runs over the batch."""
    others = touched.copy()
    others[:, position] = False
    if letter != "b" or others.any() or not touched[:, position].all():
        return ""
    return EXCHANGED


def _drops(inquiry: Inquiry, heard: Any) -> str:
    name = next((name for name, shape in position_shapes(inquiry) if np.array_equal(heard, shape[0])), None)
    return f"the mask drops too much: what is heard is {name}" if name else "the mask drops too much"


def _gaps(inquiry: Inquiry, moves: Any, found: list[Broken]) -> None:
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
                _drops(inquiry, moves),
                "compare the mask with the relation that is declared",
            )
        )
    elif not contract.causal and not contract.window:
        square = moves.shape[0] == moves.shape[1]
        lower = np.tril(np.ones_like(moves))
        inquiry.found["reach"] = (
            "every key" if moves.all() else "causal: j <= i" if square and np.array_equal(moves, lower) else "irregular"
        )


def residual_law(inquiry: Inquiry) -> None:
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


def dead_parameters(inquiry: Inquiry) -> None:
    """Every parameter takes part in the output."""
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
    arrays = _drawn(access)
    before = [access.run(arrays, setting.arrays) for setting in settings]
    if not np.isfinite(before[0]).any():
        return
    dead = []
    known = dict(module.named_parameters())
    for name, parameter in known.items():
        matrix = parameter.ndim > 1 and min(parameter.shape) > 1
        beside = getattr(known.get(name.replace("bias", "weight")), "ndim", 0) >= 2 or "sink" in name
        if not matrix and not beside:
            continue  # A norm that some mode of a block leaves out is no mistake.
        if matrix and "bias" in name:
            continue  # What is made of a table of biases may be kept from call to call.
        kept = parameter.detach().clone()
        noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        with torch.no_grad():
            # The bias of keys moves nothing by right, but NaN in it does: only what is not looked at is dead.
            parameter.copy_(noise.to(parameter.dtype) * (kept.std() + 0.1) if matrix else torch.full_like(kept, np.nan))
        try:
            after = [access.run(arrays, setting.arrays) for setting in settings]
        finally:
            with torch.no_grad():
                parameter.copy_(kept)
        if not any(moved(*pair, inquiry.tolerance).any() for pair in zip(before, after, strict=True)):
            dead.append(name)
    if dead:
        several = len(dead) > 1
        inquiry.report(
            "dead parameter",
            f"{', '.join(f'`{name}`' for name in dead)} {'have' if several else 'has'} no effect on the output",
            f"{'each' if several else 'it'} was replaced, and nothing moved",
            "the projection is made and not used, or never made",
            "use it, or remove it",
            (rf"{dead[0].split('.')[0]}.*",),
        )
