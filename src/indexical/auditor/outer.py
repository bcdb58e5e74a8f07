"""A callable of `x`, asked by `x` alone: whom it reaches, its residual, its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .access import Direct, Extras, Port, _role
from .calling import Foreign, Unusable
from .contract import Contract
from .hearing import leak
from .inquiry import Inquiry, letter_law
from .layout import Layout, refusal
from .observing import moved
from .settings import Setting


def outer_ports(foreign: Foreign, layouts: Mapping[str, Layout], contract: Contract) -> dict[str, Port]:
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


def outer_laws(inquiry: Inquiry) -> list[tuple[str, str, str, str, str]]:
    """The laws of `x` alone: which outputs move when one position of it moves."""
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
        chosen = _some(length, 24)
        for lane in _some(lanes, 4):
            for position in chosen:
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
                    found_leak = leak(inquiry, at, query, position, setting, f"row of `{name}`")
                    cause, mend = (
                        "the mask is missing, late, turned round or at the wrong place",
                        "mask the scores with -inf before the softmax",
                    )
                    found.append((found_leak["law"], found_leak["message"], found_leak["witness"], cause, mend))
                heard[:, :, position] |= touched & related[:, None]
                if setting is settings[0]:
                    moves[:, position] |= (touched & related[:, None]).any(0)
    seen: set[str] = set()
    left_out = sorted(set(range(length)) - set(chosen))
    moves[:, left_out] = inquiry.settings.declared(settings[0]).any(0)[:, left_out]
    _gaps(inquiry, moves, found)
    named = _mistake(inquiry, patterns, cross) if found and not left_out and lanes <= 4 else None
    if named is not None:
        witness = next((item[2] for item in found if item[0] == named[0]), found[0][2])
        return [(named[0], named[1], witness, named[2], named[3])]
    return [item for item in found if not (item[0] in seen or seen.add(item[0]))]  # type: ignore[func-returns-value]


def _some(count: int, most: int) -> list[int]:
    """Numbers below a count: all of them, or a few, the first and the last among them."""
    return sorted({round(at) for at in np.linspace(0, count - 1, min(count, most))})


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
