"""The names in a program: what each one is, where it is bound, and where else it stands.

A coordinate is known by its name in a whole file, as its size and its space are, and in a function by its name there.
All other names follow the brackets and blocks that they are bound in. A text with mistakes has symbols too: what
could be read of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from ..records import dataclass, field
from ..source import Span
from ..syntax import tree
from ..syntax.vocabulary import FUNCTIONS

SymbolKind = Literal["input", "definition", "local", "parameter", "coordinate", "function", "space", "word"]


@dataclass(slots=True, eq=False)
class Symbol:
    """One thing with a name. `definitions` are the places that give it its meaning: of a recurrence each clause."""

    kind: SymbolKind
    name: str
    definitions: list[Span] = field(default_factory=list)
    places: list[Span] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Occurrence:
    """A name where it stands. `binder` is what binds it there: of a coordinate its bracket."""

    span: Span
    symbol: Symbol
    binder: Span | None


class Symbols:
    """All names of a file."""

    def __init__(self, file: tree.File) -> None:
        self.occurrences: list[Occurrence] = []
        self.spaces: dict[str, Symbol] = {}
        self._words: dict[str, Symbol] = {}
        self.unit = _Unit(self)
        self.units = [self.unit]
        _Reader(self).file(file)
        self.occurrences.sort(key=lambda found: found.span.start)

    def at(self, offset: int) -> Occurrence | None:
        """The name that an offset stands in, or directly behind."""
        near = [found for found in self.occurrences if found.span.start <= offset <= found.span.end]
        return min(near, key=lambda found: found.span.end == offset, default=None)

    def coordinates(self) -> list[str]:
        """The names of all coordinates, in the order in which the text brings them."""
        return list(dict.fromkeys(o.symbol.name for o in self.occurrences if o.symbol.kind == "coordinate"))

    def unit_at(self, offset: int) -> _Unit:
        """The function that an offset stands in, or the file."""
        inside = (unit for unit in self.units[1:] if unit.span and unit.span.start <= offset <= unit.span.end)
        return next(inside, self.unit)

    def taken(self, symbol: Symbol) -> Iterator[str]:
        """The names that `symbol` cannot have: those that mean something else in a file or function where it stands.
        Functions are known everywhere; spaces have names of their own."""
        units = [self.unit_at(span.start) for span in symbol.places]
        for found in self.occurrences:
            if found.symbol is symbol or (found.symbol.kind == "space") != (symbol.kind == "space"):
                continue
            if found.symbol.kind == "function" or self.unit_at(found.span.start) in units:
                yield found.symbol.name

    def word(self, name: str) -> Symbol:
        return self._words.setdefault(name, Symbol("word", name))


class _Unit:
    """A file or a function: the names that are one thing in all of it."""

    def __init__(self, symbols: Symbols, span: Span | None = None) -> None:
        self.span = span
        self.names: dict[str, Symbol] = {}
        self.coordinates: dict[str, Symbol] = {}
        # Where a coordinate is first bound, for those that stand where nothing binds them: `size(d)`.
        self.first: dict[str, Span] = {}


# What a name means at a place of the text, and what binds it there.
Scope = Mapping[str, tuple[Symbol, Span]]


class _Reader:
    """A walk over the tree with the names that are in force."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._unit = symbols.unit

    def file(self, file: tree.File) -> None:
        for statement in file.statements:
            self._declare(statement)
        for statement in file.statements:
            self._statement(statement)

    # ------------------------------------------------------------ declarations

    def _declare(self, statement: tree.Statement) -> None:
        """The names of a whole file: they may be read before the line that defines them."""
        names = self._unit.names
        match statement:
            case tree.Input(items):
                for item in items:
                    self._define(names.setdefault(item.name, Symbol("input", item.name)), item.name_span)
            case tree.Let():
                for name, span in _bound(statement):
                    self._define(names.setdefault(name, Symbol("definition", name)), span)
            case tree.Fn(name, span):
                self._define(names.setdefault(name, Symbol("function", name)), span)
            case tree.Use(names=used):
                for one in used:
                    self._define(names.setdefault(one.name, Symbol("function", one.name)), one.span)

    def _define(self, symbol: Symbol, span: Span) -> None:
        symbol.definitions.append(span)
        self._stand(span, symbol, span)

    def _stand(self, span: Span, symbol: Symbol, binder: Span | None) -> None:
        symbol.places.append(span)
        self._symbols.occurrences.append(Occurrence(span, symbol, binder))

    def _coordinate(self, name: str, span: Span, binder: Span | None = None) -> tuple[Symbol, Span]:
        """A coordinate where it stands; without a `binder` it is bound here."""
        symbol = self._unit.coordinates.setdefault(name, Symbol("coordinate", name))
        if binder is None:
            symbol.definitions.append(span)
        self._stand(span, symbol, binder or span)
        self._unit.first.setdefault(name, span)
        return symbol, binder or span

    # -------------------------------------------------------------- statements

    def _statement(self, statement: tree.Statement) -> None:
        match statement:
            case tree.Space(items):
                for space in items:
                    self._space(space)
            case tree.Input(items):
                for item in items:
                    self._slots(item.slots, {})
            case tree.Let():
                self._let(statement, {})
            case tree.Fn():
                self._function(statement)
            case tree.Contract(name, items):
                self._name(name, {})
                for part in items:
                    self._contract_item(part)
            case tree.Output(names):
                for name in names:
                    self._name(name, {})
            case tree.Use():
                pass
            case _:
                self._each(tree.children(statement), {})

    def _space(self, item: tree.SpaceItem) -> None:
        symbol = self._symbols.spaces.setdefault(item.name, Symbol("space", item.name))
        self._define(symbol, _head(item.span, item.name))
        for coordinate in item.coordinates:
            self._coordinate(coordinate.name, coordinate.span)

    def _contract_item(self, item: tree.RoleItem | tree.FlagItem) -> None:
        if isinstance(item, tree.RoleItem):
            coordinate = item.coordinate
            self._coordinate(coordinate.name, coordinate.span, self._unit.first.get(coordinate.name, coordinate.span))
        elif item.argument is not None:
            self._expression(item.argument, {})

    def _function(self, fn: tree.Fn) -> None:
        outer, self._unit = self._unit, _Unit(self._symbols, fn.span)
        self._symbols.units.append(self._unit)
        self._unit.names.update(outer.names)
        scope: dict[str, tuple[Symbol, Span]] = {}
        for parameter in fn.parameters:
            span = _head(parameter.span, parameter.name)
            symbol = Symbol("parameter", parameter.name)
            self._define(symbol, span)
            scope[parameter.name] = symbol, span
            self._unit.names[parameter.name] = symbol
            self._slots(parameter.slots, {})
        for home in fn.results:
            self._slots(home.slots, {})
        self._expression(fn.body, scope)
        self._unit = outer

    def _let(self, let: tree.Let, scope: Scope) -> None:
        inside = self._slots(let.slots, scope)
        self._guarded(let.body, let.where, inside)

    def _slots(self, slots: Iterable[tree.Slot] | None, scope: Scope) -> Scope:
        """The scope behind a bracket that binds coordinates; other places in it are read in that scope."""
        slots = tuple(slots or ())
        inside = self._binders([slot for slot in slots if isinstance(slot, tree.Binder)], scope)
        self._each((slot for slot in slots if not isinstance(slot, tree.Binder)), inside)
        return inside

    def _binders(self, binders: Iterable[tree.Binder], scope: Scope) -> Scope:
        inside = dict(scope)
        for binder in binders:
            start = binder.span.start + 2 * binder.rest
            span = Span(binder.span.source, start, start + len(binder.name))
            inside[binder.name] = self._coordinate(binder.name, span)
            if binder.range is not None:
                self._each((binder.range.lower, binder.range.upper), scope)
        return inside

    def _guarded(self, body: tree.Expr, where: tuple[tree.Clause, ...], scope: Scope) -> None:
        """A right-hand side with its guards: abbreviations are known in all of it."""
        inside = dict(scope)
        for clause in where:
            if isinstance(clause, tree.Abbreviation):
                span = _head(clause.span, clause.name)
                symbol = Symbol("local", clause.name)
                self._define(symbol, span)
                inside[clause.name] = symbol, span
        self._expression(body, inside)
        for clause in where:
            self._expression(clause.value if isinstance(clause, tree.Abbreviation) else clause.condition, inside)

    # ------------------------------------------------------------- expressions

    def _each(self, nodes: Iterable[tree.Node], scope: Scope) -> None:
        for node in nodes:
            self._expression(node, scope)

    def _expression(self, node: tree.Node, scope: Scope) -> None:
        match node:
            case tree.Name():
                self._name(node, scope)
            case tree.Rest(name, span):
                at = Span(span.source, span.start + 2, span.start + 2 + len(name))
                self._coordinate(name, at, self._bound_at(name, scope, at))
            case tree.Call("size", span, (tree.Name() as name,)):
                self._stand(span, self._symbols.word("size"), None)
                self._coordinate(name.name, name.span, self._bound_at(name.name, scope, name.span))
            case tree.Call(function, span, arguments):
                self._called(function, span)
                self._each(arguments, scope)
            case tree.Reduction():
                self._stand(node.operator_span, self._symbols.word(node.operator), None)
                self._guarded(node.body, node.where, self._binders(node.binders, scope))
            case tree.Block(lets, body, where):
                self._block(lets, body, where, scope)
            case _:
                self._each(tree.children(node), scope)

    def _block(self, lets: tuple[tree.Let, ...], body: tree.Expr, where: tuple[tree.Clause, ...], scope: Scope) -> None:
        own: dict[str, Symbol] = {}
        for name, span in (bound for let in lets for bound in _bound(let)):
            self._define(own.setdefault(name, Symbol("local", name)), span)
        inside = {**scope, **{name: (symbol, symbol.definitions[0]) for name, symbol in own.items()}}
        for let in lets:
            self._let(let, inside)
        self._guarded(body, where, inside)

    def _bound_at(self, name: str, scope: Scope, span: Span) -> Span:
        known = scope.get(name)
        if known is not None and known[0].kind == "coordinate":
            return known[1]
        return self._unit.first.get(name, span)

    def _called(self, function: str, span: Span) -> None:
        """A function where it is called: one of the file, or a word of the library, whatever else has its name."""
        known = self._unit.names.get(function)
        if function in FUNCTIONS and (known is None or known.kind != "function"):
            self._stand(span, self._symbols.word(function), None)
        else:
            self._name(tree.Name(function, span), {})

    def _name(self, name: tree.Name, scope: Scope) -> None:
        """A name that is read: bound around it, or known in all of the file; what nothing binds is a word."""
        if name.name in scope:
            symbol, binder = scope[name.name]
            self._stand(name.span, symbol, binder)
        elif name.name in self._unit.names:
            symbol = self._unit.names[name.name]
            self._stand(name.span, symbol, symbol.definitions[0])
        elif name.name in self._unit.coordinates:
            self._coordinate(name.name, name.span, self._unit.first[name.name])
        else:
            self._stand(name.span, self._symbols.word(name.name), None)


def _head(span: Span, name: str) -> Span:
    """The name that a longer span begins with."""
    return Span(span.source, span.start, span.start + len(name))


def _bound(let: tree.Let) -> list[tuple[str, Span]]:
    return [(name.name, name.span) for name in let.names] or [(let.name, let.name_span)]
