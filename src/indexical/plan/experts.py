"""Rows times matrices that they choose, `sum[m](W[expert[t], n, m] * x[t, m])`: all rows of one matrix at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import Factor, factors_of, product_of
from ..ir.context import Trail, inside
from ..ir.types import Coordinate
from ..ir.walk import at, fresh_name, rebuild, walk
from ..records import dataclass
from .ordering import definition, preceded
from .steps import Chosen, Refusal
from .target import GROUPED


def group(
    program: ir.Program, needed: Collection[str], kept: Collection[str]
) -> tuple[ir.Program, dict[str, Chosen], dict[str, Refusal]]:
    """The program with a definition for every such sum of what is needed, what each of them is, and why others are
    not. Definitions that are `kept`, or made of themselves, stay as they are."""
    stepped = program.recurrent
    search = _Search(program)
    changed: dict[str, ir.Let] = {}
    before: dict[str, list[ir.Let]] = {}
    for let in program.lets:
        if let.name in stepped or let.name in kept or let.name not in needed or let.kind != "real":
            continue
        made = len(search.made)
        clauses = tuple(replace(clause, body=search.clause(let, clause)) for clause in let.clauses)
        if len(search.made) == made:
            continue
        if len(search.made) == made + 1 and _is_one(let, clauses, search.made[-1]):
            search.chosen[let.name] = search.chosen.pop(search.made.pop().name)
        else:
            changed[let.name] = replace(let, clauses=clauses)
            before[let.name] = search.made[made:]
    if not changed:
        return program, search.chosen, search.refusals
    return preceded(program, before, changed), search.chosen, search.refusals


def _is_one(let: ir.Let, clauses: tuple[ir.Clause, ...], made: ir.Let) -> bool:
    """Whether a definition only reads the one that was made for it, at its own coordinates."""
    body = clauses[0].body
    slots = frozenset(slot.coordinate for slot in clauses[0].slots if isinstance(slot, ir.Coord))
    whole = len(clauses) == 1 and len(slots) == len(let.axes)
    return whole and isinstance(body, ir.Read) and body.tensor == made.name and body.type.coordinates == slots


@dataclass
class _Search:
    program: ir.Program
    made: list[ir.Let] = field(default_factory=list)
    chosen: dict[str, Chosen] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lets = self.program.definitions
        self.taken = set(self.program.tensors)

    def clause(self, let: ir.Let, clause: ir.Clause) -> ir.Expr:
        if clause.guard is not None:
            sums = [part for part in walk(clause.body) if isinstance(part, ir.Reduce)]
            if any(_place(factor.expr) is not None for part in sums for factor in factors_of(part.body, divided=False)):
                reason = "its place may be out of bounds where a guard removes it"
                self.refusals[let.name] = Refusal(let.name, GROUPED, reason)
            return clause.body
        return self.rewritten(clause.body, clause.ranges, let)

    def rewritten(self, expr: ir.Expr, trail: Trail, let: ir.Let) -> ir.Expr:
        """The expression with a read in place of every such sum outside all guards: where a guard fails, the index may
        be out of bounds."""
        if not any(isinstance(part, ir.Reduce) for part in walk(expr)) or isinstance(expr, ir.Normalize):
            return expr
        if isinstance(expr, ir.Reduce) and expr.op == "sum" and expr.type.kind == "real" and expr.guard is None:
            found = self.total(expr, trail, let)
            if found is not None:
                return found
        trails = iter([around for _, around in inside(expr, trail)])
        changed = rebuild(expr, lambda child: self._under(child, next(trails, None), let))
        return changed if changed != expr else expr

    def _under(self, expr: ir.Expr, trail: Trail | None, let: ir.Let) -> ir.Expr:
        guarded = trail is None or any(not isinstance(step, ir.Range) for step in trail)
        return expr if guarded or trail is None else self.rewritten(expr, trail, let)

    def total(self, expr: ir.Reduce, trail: Trail, let: ir.Let) -> ir.Expr | None:
        """The sum as a product with the matrices of a table that each row chooses; None where it is none of these."""
        factors = [self.opened(factor.expr) for factor in factors_of(expr.body, divided=False)]
        tables = [factor for factor in factors if _place(factor) is not None]
        if len(tables) != 1 or any(r.depends_on for r in expr.ranges):
            return None
        table, others = tables[0], [factor for factor in factors if factor is not tables[0]]
        place = _place(table)
        assert isinstance(table, ir.Read)
        assert place is not None
        bare = [index.coordinate for n, index in enumerate(table.indices) if n != place and isinstance(index, ir.Coord)]
        rows = table.indices[place].type.coordinates
        summed = tuple(r for r in expr.ranges if r.coordinate in bare)
        over = frozenset(r.coordinate for r in summed)
        inner = [factor for factor in others if factor.type.coordinates & over]
        columns = [c for c in bare if c not in over]
        if not summed or not inner or not columns or len(bare) != len(set(bare)) or len(bare) + 1 != len(table.indices):
            return None
        varies = build.varying(inner) - over
        shared = varies & set(columns)
        if shared:
            reason = f"`{min(shared)}` is in the table and in what it is multiplied with"
            self.refusals[let.name] = Refusal(let.name, GROUPED, reason)
        if rows & set(bare) or shared or not (varies <= rows or rows <= varies) or not rows:
            return None
        ranges = {step.coordinate: step for step in (*trail, *expr.ranges) if isinstance(step, ir.Range)}
        own = [c for c in ranges if c in rows | varies]
        if not all(ranges[c].is_counted for c in (*own, *columns)):
            return None
        return self.defined(expr, table, place, inner, others, summed, own, columns, ranges, let)

    def defined(
        self,
        expr: ir.Reduce,
        table: ir.Read,
        place: int,
        inner: list[ir.Expr],
        others: list[ir.Expr],
        summed: tuple[ir.Range, ...],
        rows: list[Coordinate],
        columns: list[Coordinate],
        ranges: Mapping[Coordinate, ir.Range],
        let: ir.Let,
    ) -> ir.Expr:
        """A definition for the products, and what is left to sum of it."""
        span = expr.span
        x = product_of(map(Factor, inner), expr)
        body = build.reduce("sum", summed, build.apply("*", (table, x), "real", span), None, "real", span)
        name = fresh_name(f"{let.name}_{table.tensor}", self.taken)
        self.taken.add(name)
        self.made.append(definition(name, [ranges[c] for c in (*rows, *columns)], body))
        self.chosen[name] = Chosen(table, place, x, tuple(rows), tuple(columns), summed)
        read: ir.Expr = build.read(name, tuple(build.coord(c, span) for c in (*rows, *columns)), "real", span)
        left = [factor for factor in others if all(factor is not part for part in inner)]
        if left:
            read = build.apply("*", (product_of(map(Factor, left), expr), read), "real", span)
        outer = tuple(r for r in expr.ranges if r not in summed)
        return build.reduce("sum", outer, read, None, "real", span) if outer else read

    def opened(self, factor: ir.Expr) -> ir.Expr:
        """A factor that is a name for a read, as that read."""
        if isinstance(factor, ir.Read) and factor.tensor in self.lets:
            clause, *others = self.lets[factor.tensor].clauses
            if (
                not others
                and clause.guard is None
                and isinstance(clause.body, ir.Read)
                and _place(clause.body) is not None
            ):
                found = at(clause, clause.body, factor.indices)
                return factor if found is None else found
        return factor


def _place(expr: ir.Expr) -> int | None:
    """The axis of a table that is indexed by an array, where there is just one."""
    if not isinstance(expr, ir.Read) or expr.type.kind != "real" or len(expr.indices) < 3:
        return None
    places = [n for n, index in enumerate(expr.indices) if not isinstance(index, ir.Coord)]
    if len(places) != 1:
        return None
    said = any(isinstance(part, ir.Read) and part.type.coordinates for part in walk(expr.indices[places[0]]))
    return places[0] if said else None
