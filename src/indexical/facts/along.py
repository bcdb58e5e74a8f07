"""The axes that run over the positions of one attention, so that reading them may be reading the future."""

from __future__ import annotations

from ..checker.spaces import tied
from ..ir import nodes as ir
from ..ir.needs import read_in
from ..ir.walk import walk
from ..records import dataclass
from .attention import Gather, Ungathered
from .positions import counted_from, is_declared
from .view import View
from .wording import plain


@dataclass(frozen=True)
class Along:
    """The axes that run over positions: the spaces of query and key, and the names they go by.

    `answering` are the inputs that keys and values are made of. Where the key counts `offsets`, no axis of these
    stands at it.
    """

    spaces: frozenset[object]
    names: frozenset[str]
    answering: frozenset[str]
    offsets: bool


def positions_of(view: View, let: ir.Let, asks: int, gather: Gather | Ungathered) -> Along:
    """The positions of an attention, whose query is this axis of a definition."""
    key = gather.coordinate
    spaces = {view.space_of(let.name, asks)}
    names = {plain(let.axes[asks].coordinate.name)} | (set() if gather.site.let.hidden else {plain(key.name)})
    answering = [f for comparison in view.comparisons(gather) for f in comparison.key_side]
    for factor in (*answering, *gather.values):
        for part in walk(factor.expr):
            if isinstance(part, ir.Read):
                for number, index in enumerate(part.indices):
                    if tied(index) == key:
                        tensor = view.program.tensors[part.tensor]
                        spaces.add(view.space_of(part.tensor, number))
                        if not (isinstance(tensor, ir.Let) and tensor.hidden):
                            names.add(plain(tensor.axes[number].coordinate.name))
    reads = read_in(*(factor.expr for factor in (*answering, *gather.values)))
    made_of = frozenset(name for name in view.made_of(*reads) if name not in view.lets)
    place = gather.key.range.span if isinstance(gather, Gather) else None
    at_key = any(
        (coordinate := tied(index)) is not None
        and (coordinate == key or any(r.coordinate == coordinate and r.span == place for r in scan.ranges))
        for scan in view.influence.of(let.name)
        if scan.tensor in made_of
        for index in scan.indices
    )
    return Along(frozenset(spaces), frozenset(names), made_of, not at_key)


def is_position(view: View, tensor: str, number: int, index: ir.Expr, positions: Along) -> bool:
    """Whether an axis runs over positions: by its space, or by the name of its home. One that nothing ties to them, and
    that is of no declared space, does where a key or a value is read at what is counted along it: not at a distance,
    such as `min(i - j, 7)`, unless the key itself counts offsets."""
    space = view.space_of(tensor, number)
    if space in positions.spaces or (is_declared(space) and any(map(is_declared, positions.spaces))):
        return space in positions.spaces
    home = view.program.tensors[tensor].axes[number].coordinate
    if home.space is None and plain(home.name) in positions.names:
        return True
    if isinstance(index, ir.Coord) or tensor not in positions.answering:
        return False
    counted = {c for c in counted_from(index) if plain(c.name) in positions.names}
    return len(counted) == 1 or (positions.offsets and bool(counted))
