"""A Program seen through its facts: everything a lint or a contract asks for, worked out once."""

from __future__ import annotations

import re
from functools import cached_property

from ..checker.spaces import Classes, classes_of
from ..ir import nodes as ir
from ..ir.algebra.factors import Forms
from ..ir.context import Trail, agreed, assume, visit_clause
from ..ir.domain import Domain
from ..ir.needs import made_of
from ..ir.prove import Assumptions
from ..ir.types import Coordinate
from ..ir.walk import reads_of, rebuild, walk
from ..records import dataclass
from .attention import Comparison, Gather, Site, Ungathered, compare, gathers, sites, ungathered
from .dependence import Dependence, Scan, scanned
from .distributions import keeps_a_point
from .transposes import Transposed, Use, transposes
from .wording import plain


@dataclass(eq=False)
class View:
    """The facts of one program."""

    program: ir.Program

    @cached_property
    def forms(self) -> Forms:
        return Forms(self.program)

    @cached_property
    def lets(self) -> dict[str, ir.Let]:
        return self.forms.lets

    @cached_property
    def joined(self) -> View:
        """The same with sums under weights over several coordinates as sums over their places: those are gathers."""
        if not any(let.hidden and isinstance(let.clauses[0].body, ir.Normalize) for let in self.program.lets):
            return self
        from ..ir.joins import by_joined

        program = by_joined(self.program)
        return self if program is self.program else View(program)

    @cached_property
    def sites(self) -> list[Site]:
        return list(sites(self.forms))

    @cached_property
    def gathers(self) -> list[Gather]:
        return list(gathers(self.forms, self.sites))

    @cached_property
    def transposes(self) -> list[Transposed]:
        """The gathers that run backwards, each said once: of the sites that say the same, the largest."""
        found: dict[tuple[str, Coordinate, frozenset[Coordinate]], Transposed] = {}
        for transposed in transposes(self.forms, self.sites):
            found.setdefault((transposed.name, transposed.coordinate, transposed.summed), transposed)
        return list(found.values())

    @cached_property
    def ungathered(self) -> list[Ungathered]:
        """The weights that nothing is gathered with, each said once."""
        used = {span for gather in self.gathers for span in gather.site.spans(gather.weights)}
        used |= {span for gather in self.transposes for span in gather.site.spans(gather.weights)}
        return ungathered(self.forms, self.sites, used)

    @cached_property
    def free(self) -> list[Gather]:
        """The gathers whose weights nothing normalises, and sums of such weights alone."""
        from .free_weights import free_gathers

        return list(free_gathers(self, self.program.lets))

    @property
    def scored(self) -> list[Gather | Ungathered]:
        """The gathers, and the weights that nothing is gathered with: whatever has a score."""
        return [*self.gathers, *self.ungathered]

    @cached_property
    def _comparisons(self) -> dict[int, list[Comparison]]:
        uses: list[tuple[Use, frozenset[Coordinate]]] = [(use, use.asks) for use in self.scored]
        uses += [(use, use.weight_coordinates) for use in self.transposes]
        return {id(use): compare(self.forms, use.weights.basis, use.coordinate, asks) for use, asks in uses}

    @cached_property
    def leaves(self) -> dict[tuple[int, int], list[ir.Read]]:
        """The inputs that gathers are made of, by their identity and the number of their comparisons."""
        return {}

    @cached_property
    def places(self) -> dict[tuple[int, int], list[tuple[str, ir.Expr]]]:
        """The places that gathers and their comparisons read, likewise, each with the name of its axis."""
        return {}

    @cached_property
    def turns(self) -> bool:
        """Whether anything in the program is a cosine: without one, nothing turns."""
        bodies = [clause.body for let in self.program.lets for clause in let.clauses]
        return any(isinstance(part, ir.Map) and part.op == "cos" for body in bodies for part in walk(body))

    def comparisons(self, gather: Use) -> list[Comparison]:
        """The places in the score of a gather where query and key are compared."""
        known = self._comparisons
        if id(gather) not in known:
            known[id(gather)] = compare(self.forms, gather.weights.basis, gather.coordinate, gather.asks)
        return known[id(gather)]

    @cached_property
    def dependence(self) -> Dependence:
        return Dependence(self.program)

    @cached_property
    def influence(self) -> Dependence:
        """As `dependence`, for what can change a value."""
        return Dependence(self.program, influence=True)

    @cached_property
    def _classes(self) -> Classes:
        return classes_of(self.program)

    def space_of(self, tensor: str, axis: int) -> object:
        """A mark that an axis shares with all axes of its space, and with no other."""
        return self._classes.known((tensor, axis)) or self._classes.find((tensor, axis))

    def sites_of(self, let: ir.Let) -> list[Site]:
        return [site for site in self.sites if site.let is let]

    def parts(self, clause: ir.Clause) -> list[ir.Expr]:
        """Every expression inside a clause's body."""
        return list(walk(clause.body))

    @cached_property
    def _shown(self) -> dict[str, str]:
        return {}

    @cached_property
    def _read_as(self) -> dict[tuple[str, str], list[tuple[ir.Expr, ...]]]:
        return {}

    def made_of(self, *names: str) -> list[str]:
        """Tensors and all that these are made of, the nearest first."""
        return made_of(names, self.lets)

    def shown(self, coordinate: Coordinate) -> str:
        """A coordinate as the program calls it: without the number that inlining put behind its name."""
        name, known = coordinate.name, self._shown
        if name not in known:
            word = rf"\b{re.escape(name)}\b"
            known[name] = name if re.search(word, self.program.source.text) else plain(name)
        return known[name]

    def in_full(self, expr: ir.Expr) -> ir.Expr:
        """A condition, or a whole number, with the definitions in it, such as `limit[i]`, written out."""
        return rebuild(self.forms.written_out(expr), self.in_full)

    def read_as(self, let: ir.Let, other: ir.Let) -> list[tuple[ir.Expr, ...]]:
        """At which indices a definition reads another, in its own coordinates, through all between them; its
        own coordinates for itself."""
        pair = let.name, other.name
        if pair not in self._read_as:
            self._read_as[pair] = [let.clauses[0].slots] if let is other else self._found_reads(let, other)
        return self._read_as[pair]

    def _found_reads(self, let: ir.Let, other: ir.Let) -> list[tuple[ir.Expr, ...]]:
        result = []
        waiting, seen = [clause.body for clause in let.clauses], 0
        while waiting and seen < 500:
            for part in walk(waiting.pop(0)):
                seen += 1
                if isinstance(part, ir.Read):
                    if part.tensor == other.name:
                        result.append(part.indices)
                        continue
                    opened = self.forms.opened(part)
                    waiting += [] if opened is None else [opened[0]]
        return result

    def reads(self, name: str) -> tuple[ir.Read, ...]:
        """The reads of a definition; none for an input."""
        return reads_of(self.lets[name]) if name in self.lets else ()

    def normalizers(self, clause: ir.Clause) -> list[tuple[ir.Normalize, Trail]]:
        """The normalisers of a clause, each with what holds around it."""
        return [(expr, trail) for expr, trail in visit_clause(clause) if isinstance(expr, ir.Normalize)]

    def assume(self, clause: ir.Clause, *more: ir.Range | ir.Expr) -> Assumptions:
        """The assumptions that hold in a clause, under some more ranges and conditions."""
        trail = [step if isinstance(step, ir.Range) else (step, True) for step in more]
        return assume((*clause.ranges, *trail), self.lets)

    def keeps_a_point(self, normalizer: ir.Normalize, trail: Trail) -> bool:
        """Whether some point of what is normalised over always passes the guard, where calls fit the program."""
        if keeps_a_point(normalizer, trail, self.lets):
            return True
        same = agreed(self.program)
        return bool(same) and keeps_a_point(normalizer, trail, self.lets, same)

    def scanning(self, let: ir.Let, scan: Scan) -> Domain:
        """The points that a scan reaches, in the coordinates of the definition's home."""
        return scanned(let, scan, self.lets)
