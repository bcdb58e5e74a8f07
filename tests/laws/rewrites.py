"""Ways to say the same program differently. Each gives another program with the same definitions, or None where it
does not apply; new definitions are called `new…`.

What is moved into another statement gets coordinates of its own, so that no name there changes its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tests.laws.programs import Case
from tests.laws.terms import (
    Apply,
    Binder,
    Block,
    Cast,
    Clause,
    Coordinate,
    Dim,
    Fn,
    Function,
    If,
    Input,
    Let,
    Number,
    Op,
    Paren,
    Place,
    Program,
    Read,
    Reduce,
    Rest,
    Scan,
    Short,
    Size,
    Tensor,
    bare_axes,
    change,
    free_in,
    tensors_in,
    walk,
)

Choose = Callable[[int], int]


# ------------------------------------------------------------------------------ substitution


def put(node: Any, values: Mapping[Any, Any]) -> Any:
    """The node with other things in place of these: terms for terms and coordinates, tensors for tensors."""
    if node in values:
        return values[node]
    match node:
        case Place(coordinate) if coordinate in values:
            new = values[coordinate]
            return Place(new) if isinstance(new, Coordinate) else new
        case Size(Coordinate() as coordinate, dim) if isinstance(values.get(coordinate), Coordinate):
            return Size(values[coordinate], dim)
    found = change(node, lambda part: put(part, values))
    match found:
        case Scan(coordinate=coordinate) if isinstance(values.get(coordinate), Coordinate):
            return replace(found, coordinate=values[coordinate])
        case Binder(coordinate) if isinstance(values.get(coordinate), Coordinate):
            return replace(found, coordinate=values[coordinate])
        case Read(tensor) if tensor in values:
            return replace(found, tensor=values[tensor])
        case Apply(arguments=arguments):
            return replace(found, arguments=tuple(values.get(a, a) if isinstance(a, Tensor) else a for a in arguments))
    return found


def plainly(node: Any) -> Any:
    """The node without abbreviations, its guards inside their brackets."""
    if isinstance(node, Short):
        return plainly(node.term)
    found = change(node, plainly)
    if isinstance(found, Reduce):
        return replace(found, after=False, shorts=())
    if isinstance(found, Clause):
        return replace(found, shorts=())
    return replace(found, after=False) if isinstance(found, Scan) else found


@dataclass
class Renewal:
    """Fresh names, and words for the sizes of the inputs' dimensions."""

    program: Program
    count: int = 0
    known: dict[Dim, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for input in self.program.inputs:
            for name, dim in zip(input.home, input.tensor.axes[input.tensor.open or 0 :], strict=True):
                self.known.setdefault(dim, Size(name, dim))

    def name(self, stem: str = "new") -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def extent(self, dim: Dim) -> Any:
        if dim in self.known:
            return self.known[dim]
        return dim.words[0] if dim.words else Number(str(dim.size))

    def renewed(self, node: Any) -> Any:
        """The node, everything bound in it under new names."""
        bound = {part.coordinate for part in walk(node) if isinstance(part, Binder)}
        ordered = [part.coordinate for part in walk(node) if isinstance(part, Binder)]
        fresh = {old: Coordinate(self.name("c"), old.dim, old.dependent, old.count) for old in dict.fromkeys(ordered)}
        assert len(fresh) == len(bound)
        return put(node, fresh)

    def clause(self, clause: Clause, own: Sequence[Tensor]) -> Clause:
        """A clause under new names, with ranges where nothing else says how many points there are."""
        return self.ranged(self.renewed(plainly(clause)), own)  # type: ignore[no-any-return]

    def ranged(self, node: Any, own: Sequence[Tensor], extent: Callable[[Dim], Any] | None = None) -> Any:
        """The node with every range stated that the axes in it do not say."""
        extent = extent or self.extent
        local = [part.tensor for part in walk(node) if isinstance(part, Let)]
        needing = [
            part
            for part in walk(node)
            if isinstance(part, Binder) and part.lower is None and not self.is_said(node, part, [*own, *local])
        ]
        return put(node, {part: Binder(part.coordinate, Number("0"), extent(part.coordinate.dim)) for part in needing})  # type: ignore[arg-type]

    def is_said(self, node: Any, binder: Binder, own: Sequence[Tensor]) -> bool:
        axes = bare_axes(_unread(node, own), binder.coordinate)
        return bool(axes) and all(axis is binder.coordinate.dim for axis in axes)


def _unread(node: Any, tensors: Sequence[Tensor]) -> Any:
    if isinstance(node, Read) and node.tensor in tensors:
        return replace(node, indices=())
    return change(node, lambda part: _unread(part, tensors))


def with_let(program: Program, old: Let, *new: Let) -> Program:
    """The program with other definitions in place of one; those that come first are on their own."""
    groups: list[tuple[Let, ...]] = []
    for group in program.groups:
        if old in group:
            groups += [(let,) for let in new[:-1]]
            groups.append(tuple(new[-1] if let is old else let for let in group))
        else:
            groups.append(group)
    return replace(program, groups=tuple(groups))


# ----------------------------------------------------------------------------------- rewrites


def permute_axes(case: Case, choose: Choose) -> Case | None:
    """The axes of an input in another order, and the array transposed."""
    program = case.program
    calls = [node for node in everything(program) if isinstance(node, Apply)]
    passed: set[Any] = {a for node in calls for a in node.arguments if isinstance(a, Tensor)}
    passed |= {let.whole for let in program.lets if isinstance(let.whole, Tensor)}
    led = {node.tensor for node in everything(program) if isinstance(node, Read) and node.rest is not None}
    fitting = [i for i in program.inputs if len(i.home) > 1 and i.tensor.open is None and i.tensor not in passed | led]
    if not fitting:
        return None
    input = fitting[choose(len(fitting))]
    order = list(range(len(input.home)))
    turn = 1 + choose(len(order) - 1)
    order = order[turn:] + order[:turn]
    tensor = replace_tensor(input.tensor, axes=tuple(input.tensor.axes[k] for k in order))

    def turned(node: Any) -> Any:
        found = change(node, turned)
        if isinstance(found, Read) and found.tensor is input.tensor:
            return Read(tensor, tuple(found.indices[k] for k in order))
        return found

    inputs = tuple(
        Input(tensor, tuple(input.home[k] for k in order), input.dtype, input.stated) if i is input else i
        for i in program.inputs
    )
    groups = tuple(tuple(turned(let) for let in group) for group in program.groups)
    arrays = {**case.arrays, tensor.name: np.transpose(case.arrays[tensor.name], order)}
    return Case(replace(program, inputs=inputs, groups=groups), arrays)


def replace_tensor(tensor: Tensor, **changes: Any) -> Tensor:
    return replace(tensor, **changes)


def everything(program: Program) -> Iterator[Any]:
    for let in program.lets:
        yield from walk(let)


def inline(case: Case, choose: Choose) -> Case | None:
    """A definition written out in another that reads it."""
    program = case.program
    options = [(let, reader) for let in program.lets if is_plain(let) for reader in program.lets if reads(reader, let)]
    if not options:
        return None
    let, reader = options[choose(len(options))]
    renewal = Renewal(program)
    group = next(group for group in program.groups if reader in group)
    own = [other.tensor for other in group]
    clauses = []
    for clause in reader.clauses:
        done = written_out(plainly(clause), let, renewal)
        clauses.append(renewal.clause(replace(done, inside=False), own))
    return Case(with_let(program, reader, replace(reader, clauses=tuple(clauses))), case.arrays)


def is_plain(let: Let) -> bool:
    """Whether a definition may be written out: one clause, no guard, not of itself, and nothing normalised over what
    its readers choose."""
    if len(let.clauses) != 1 or let.clauses[0].guard is not None:
        return False
    (clause,) = let.clauses
    if not all(isinstance(slot, Binder) for slot in clause.slots) or let.tensor in tensors_in(clause):
        return False
    body = plainly(clause.body)
    own = {slot.coordinate for slot in clause.slots if isinstance(slot, Binder)}
    fixed = (Scan, Size)
    if any(isinstance(p, fixed) and own & {getattr(p, "coordinate", None), getattr(p, "of", None)} for p in walk(body)):
        return False
    if any(isinstance(part, Binder) and part.lower is not None and own & set(free_in(part)) for part in walk(body)):
        return False
    return not any(isinstance(part, Rest) or (isinstance(part, Read) and part.rest) for part in walk(clause))


def reads(reader: Let, let: Let) -> bool:
    found = [part for part in walk(reader) if isinstance(part, Read) and part.tensor is let.tensor]
    handed = [a for part in walk(reader) if isinstance(part, Apply) for a in part.arguments if a is let.tensor]
    ranged = [part for b in walk(reader) if isinstance(b, Binder) for part in walk(b) if part in found]
    return bool(found) and not handed and not ranged and all(part.rest is None for part in found) and reader is not let


def written_out(node: Any, let: Let, renewal: Renewal) -> Any:
    found = change(node, lambda part: written_out(part, let, renewal))
    if not isinstance(found, Read) or found.tensor is not let.tensor:
        return found
    (clause,) = let.clauses
    # Everything that the body binds is bound anew at each place, and the slots become the indices.
    body = renewal.renewed(plainly(clause.body))
    slots = [slot.coordinate for slot in clause.slots if isinstance(slot, Binder)]
    return Paren(put(body, dict(zip(slots, found.indices, strict=True))))


def open_parts(term: Any, bound: tuple[Coordinate, ...] = ()) -> Iterator[tuple[Any, tuple[Coordinate, ...]]]:
    """The parts of a term that are evaluated at every point, with the coordinates that are bound around them."""
    yield term, bound
    inner: Sequence[Any] = ()
    match term:
        case Op(ops, terms):
            inner = terms[:1] if ops[0] in ("&&", "||") else terms
        case Function(_, terms):
            inner = terms
        case Cast(part) | Paren(part):
            inner = (part,)
        case If(condition):
            inner = (condition,)
        case Scan(body=body, guard=None):
            inner = (body,)
        case Reduce(binders=binders, body=body, guard=None):
            if all(isinstance(binder, Binder) and binder.coordinate.dim is not None for binder in binders):
                bound = (*bound, *(binder.coordinate for binder in binders))  # type: ignore[union-attr]
                inner = (body,)
    for part in inner:
        yield from open_parts(part, bound)


def split(case: Case, choose: Choose) -> Case | None:
    """A part of a definition as a definition of its own."""
    program = case.program
    options: list[tuple[Let, Clause, Any]] = []
    for group in program.groups:
        own = {let.tensor for let in group}
        for let in group:
            for clause in let.clauses:
                slots = [slot.coordinate for slot in clause.slots if isinstance(slot, Binder)]
                body = plainly(clause.body)
                around = replace(clause, body=body, shorts=(), inside=False)
                for part, bound in open_parts(body) if clause.guard is None else ():
                    if is_movable(part, (*slots, *bound)) and not own & tensors_in(part):
                        options.append((let, around, part))
    if not options:
        return None
    let, clause, part = options[choose(len(options))]
    renewal = Renewal(program)
    free = list(free_in(part))
    fresh = [Coordinate(c.name, c.dim) for c in free]
    tensor = Tensor(renewal.name(), tuple(c.dim for c in free), part.kind)  # type: ignore[misc]
    slots = tuple(Binder(c) for c in fresh)
    definition = Let(tensor, (Clause(slots, put(part, dict(zip(free, fresh, strict=True)))),))
    definition = replace(definition, clauses=(renewal.clause(definition.clauses[0], []),))
    own = [other.tensor for group in program.groups if let in group for other in group]
    body = put(clause.body, {part: Read(tensor, tuple(map(Place, free)))})
    index = next(k for k, old in enumerate(let.clauses) if old.slots is clause.slots)
    clauses = list(let.clauses)
    clauses[index] = renewal.clause(replace(clause, body=body), own)
    return Case(with_let(program, let, definition, replace(let, clauses=tuple(clauses))), case.arrays)


def is_movable(part: Any, around: Sequence[Coordinate]) -> bool:
    """Whether a part could stand in a statement of its own, whose coordinates run from 0 over all their points."""
    if isinstance(part, Place | Number | Size | Paren):
        return False
    if any(isinstance(p, Rest) or (isinstance(p, Read) and p.rest) for p in walk(part)):
        return False
    return all(c in around and c.dim is not None for c in free_in(part))


def wrap(case: Case, choose: Choose) -> Case | None:
    """A part of a definition as a function: what it reads and where it stands become parameters."""
    program = case.program
    options: list[tuple[Let, Clause, Any]] = []
    for group in program.groups:
        own = {let.tensor for let in group}
        for let in group:
            for clause in let.clauses:
                body = plainly(clause.body)
                around = replace(clause, body=body, shorts=(), inside=False)
                options += [(let, around, part) for part in any_parts(body) if is_wrappable(part, own)]
    if not options:
        return None
    let, clause, part = options[choose(len(options))]
    renewal = Renewal(program)
    fn, call = as_function(part, renewal)
    own_tensors = [other.tensor for group in program.groups if let in group for other in group]
    index = next(k for k, old in enumerate(let.clauses) if old.slots is clause.slots)
    clauses = list(let.clauses)
    clauses[index] = renewal.clause(replace(clause, body=put(clause.body, {part: call})), own_tensors)
    changed = with_let(program, let, replace(let, clauses=tuple(clauses)))
    return Case(replace(changed, functions=(*program.functions, fn)), case.arrays)


def any_parts(term: Any) -> Iterator[Any]:
    """The parts of a term, guards and branches included; not what stands in indices, ranges, blocks and calls."""
    yield term
    inner: Sequence[Any] = ()
    match term:
        case Op(_, terms) | Function(_, terms):
            inner = terms
        case Cast(part) | Paren(part):
            inner = (part,)
        case If(condition, then, otherwise):
            inner = (condition, then, otherwise)
        case Scan(body=body) | Reduce(body=body):
            inner = (body,)
    for part in inner:
        yield from any_parts(part)


def is_wrappable(part: Any, own: set[Tensor]) -> bool:
    if isinstance(part, Place | Number | Size | Paren) or own & tensors_in(part):
        return False
    outside = set(free_in(part))
    for inner in walk(part):
        match inner:
            case Rest() | Block() | Read(rest=Rest()):
                return False
            case Scan(coordinate=coordinate) if coordinate in outside:
                return False
            case Binder(_, lower) if lower is not None and outside & set(free_in(inner)):
                return False
    return True


def as_function(part: Any, renewal: Renewal) -> tuple[Fn, Apply]:
    """A function whose body is the part, and its call in place of it."""
    values: dict[Any, Any] = {}
    parameters: list[Tensor] = []
    homes: list[tuple[str, ...] | None] = []
    arguments: list[Any] = []

    def scalar(argument: Any) -> Read:
        parameters.append(Tensor(renewal.name("s"), (), argument.kind))
        homes.append(None)
        arguments.append(argument)
        return Read(parameters[-1])

    for coordinate in free_in(part):
        values[coordinate] = scalar(Place(coordinate))
    free = set(free_in(part))
    for inner in walk(part):
        if isinstance(inner, Size) and (isinstance(inner.of, str) or inner.of in free):
            values[inner] = scalar(inner)
    for tensor in sorted(tensors_in(part), key=lambda tensor: tensor.name):
        if tensor.axes:
            parameters.append(Tensor(renewal.name("g"), tensor.axes, tensor.kind))
            homes.append(tuple(renewal.name("p") for _ in tensor.axes))
            arguments.append(tensor)
            values[tensor] = parameters[-1]
        else:
            values[tensor] = parameters_of_scalar(tensor, scalar)

    said: dict[Dim, Read] = {}

    def extent(dim: Dim) -> Read:
        if dim not in said:
            said[dim] = scalar(renewal.extent(dim))
        return said[dim]

    body = renewal.renewed(put(part, values))
    body = renewal.ranged(body, [], extent)
    fn = Fn(renewal.name("f"), tuple(parameters), tuple(homes), (), None, body)
    return fn, Apply(fn, tuple(arguments))


def parameters_of_scalar(tensor: Tensor, scalar: Callable[[Any], Read]) -> Tensor:
    return scalar(Read(tensor)).tensor


def coordinate_names(program: Program) -> list[str]:
    """Every name of a coordinate, in the order of the program."""
    found = [name for input in program.inputs for name in input.home]
    found += [name for names in program.spaces.values() for name in names]
    for fn in program.functions:
        found += [name for home in fn.homes for name in home or ()]
    for node in (*program.functions, *program.lets):
        found += [part.coordinate.name for part in walk(node) if isinstance(part, Binder)]
    return list(dict.fromkeys(found))
