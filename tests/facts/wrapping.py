"""Rewrites that make a function of a definition, its coordinates under names that clash."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.facts import trees
from tests.facts.cuts import uses
from tests.facts.spelling import (
    Spelling,
    also,
    claimed,
    coordinates_in,
    homes,
    inputs_in,
    lets_in,
    named,
    single,
    swap,
)
from tests.facts.trees import name

from indexical.syntax import tree


def wrap(spelling: Spelling, chance: Random) -> Spelling | None:
    """One definition as a function of what it reads, its coordinates under names that clash."""
    return _wrapped(spelling, chance, 0)


def wrap_all(spelling: Spelling, chance: Random) -> Spelling | None:
    """Some definitions, and those that only they read, as one function with definitions inside."""
    return _wrapped(spelling, chance, 4)


def _wrapped(spelling: Spelling, chance: Random, most: int) -> Spelling | None:
    found = single(spelling)
    chance.shuffle(found)
    statement = next((one for one in found if _can_wrap(spelling, one)), None)
    if statement is None:
        return None
    members = _members(spelling, statement, chance.randint(min(1, most), most))
    function = _Function(spelling, [*members, statement], chance)
    return function.spelling(statement)


def _can_wrap(spelling: Spelling, statement: tree.Let) -> bool:
    if not statement.slots or any(not isinstance(slot, tree.Binder) or slot.rest for slot in statement.slots):
        return False
    if any(isinstance(clause, tree.Abbreviation) for clause in statement.where):
        return False
    own = {s.name for s in spelling.statements if isinstance(s, tree.Fn)}
    used = {name.name for s in spelling.statements if isinstance(s, tree.Use) for name in s.names}
    if any(isinstance(p, tree.Call) and p.function in own | used for p in tree.walk(statement)):
        return False
    # What the standard library gives back has a home that the text does not show.
    hidden = {one.name for one in single(spelling) if isinstance(one.body, tree.Call) and one.body.function in used}
    return not trees.names_in(statement) & hidden


def _members(spelling: Spelling, statement: tree.Let, most: int) -> list[tree.Let]:
    """Definitions that nothing but this one, and each other, reads."""
    result: list[tree.Let] = []
    lets = {one.name: one for one in single(spelling)}
    while len(result) < most:
        inside = [*result, statement]
        read = {n for one in inside for n in trees.names_in(one)} - {one.name for one in inside}
        for word in sorted(read & lets.keys()):
            users = [user for user, _ in uses(spelling, word)]
            private = word not in named(spelling.statements) and word not in spelling.kept
            if private and _can_wrap(spelling, lets[word]) and all(any(u is one for one in inside) for u in users):
                result.insert(0, lets[word])
                break
        else:
            break
    return result


class _Function:
    """A function made of definitions, the last of which is its result."""

    def __init__(self, spelling: Spelling, lets: list[tree.Let], chance: Random) -> None:
        self.before = spelling
        self.lets = lets
        self.chance = chance
        self.words = trees.fresh(chance.sample(_INSIDE, len(_INSIDE)), spelling.taken())

    def spelling(self, statement: tree.Let) -> Spelling | None:
        tensors, scalars = self.arguments()
        inside, coordinates = self.renaming(tensors)
        if inside is None:
            return None
        words = {**inside, **{word: next(self.words) for word in (*tensors, *scalars)}}
        parameters = [
            *(
                tree.Parameter(words[t], tuple(_slot(inside[s]) for s in slots), trees.NOWHERE)
                for t, slots in tensors.items()
            ),
            *(tree.Parameter(words[s], None, trees.NOWHERE) for s in scalars),
        ]
        *locals, last = [trees.rename(one, words) for one in self.lets]
        body = tree.Block(tuple(locals), last.body, last.where, trees.NOWHERE)
        whole = not self.before.has_contract and self.chance.random() < 0.3
        order = list(range(len(last.slots or ())))
        if not whole:
            self.chance.shuffle(order)
        result = (tree.Home(tuple((last.slots or ())[n] for n in order), trees.NOWHERE),)
        title = next(self.words)
        function = tree.Fn(title, trees.NOWHERE, tuple(parameters), result, body, trees.NOWHERE)
        value = trees.call(title, *map(name, (*tensors, *scalars)))
        home = trees.coordinates_of(statement.slots)
        read = tree.Index(value, tuple(name(home[n]) for n in order), trees.NOWHERE)
        new = replace(statement, body=read, where=())
        if whole:
            new = replace(statement, slots=None, body=value, where=())
        return self.result(statement, function, new, words, coordinates)

    def result(
        self, statement: tree.Let, function: tree.Fn, new: tree.Let, words: dict[str, str], coordinates: dict[str, str]
    ) -> Spelling:
        before = self.before
        gone = [one for one in self.lets if one is not statement]
        kept = [s for s in before.statements if not any(s is one for one in gone)]
        after = swap(replace(before, statements=tuple(kept)), statement, function, new)
        tensors, names = before.tensors, before.coordinates
        for old, inner in words.items():
            if old in coordinates:
                names = also(names, inner, (old,))
            tensors = also(tensors, inner, (old,))
        return replace(after, tensors=tensors, coordinates=names)

    def arguments(self) -> tuple[dict[str, list[str]], list[str]]:
        """The tensors that come from outside with the names of their axes, and the scalars."""
        homes_ = homes(self.before.statements)
        scalars = {item.name for item in inputs_in(self.before.statements) if item.slots is None}
        scalars |= {word for word in lets_in(self.before.statements) if not homes_[word]}
        own = {one.name for one in self.lets}
        mentioned = sorted({word for one in self.lets for word in trees.names_in(one)} - own)
        tensors: dict[str, list[str]] = {}
        extra = trees.fresh((), self.before.taken())
        whole = {word for word, c in lets_in(self.before.statements).items() if c[0].slots is None}
        for word in mentioned:
            if homes_.get(word):
                plain = [s.name if isinstance(s, tree.Binder) and s.range is None else "" for s in homes_[word]]
                tensors[word] = [next(extra) if word in whole or not axis else axis for axis in plain]
        return tensors, [word for word in mentioned if word in scalars]

    def renaming(self, tensors: dict[str, list[str]]) -> tuple[dict[str, str] | None, dict[str, str]]:
        """Other names for all coordinates inside: partly each other's."""
        bound = {s for slots in tensors.values() for s in slots}
        for one in self.lets:
            bound |= set(coordinates_in((one,)))
        # A contract can only call something by a name that is in sight, and so can `size`.
        sight = {s for slots in tensors.values() for s in slots}
        known = sight.union(*(trees.coordinates_of(one.slots) for one in self.lets))
        if not {word for one in self.lets for word in trees.sized(one)} <= known:
            return None, {}
        words = {word: word for word in bound & claimed(self.before.statements) - sight}
        pool = [word for word in coordinates_in(self.before.statements) if word not in words]
        new = self.chance.sample(pool, len(pool))
        for word in sorted(bound - words.keys()):
            words[word] = new.pop() if new else next(self.words)
        return words, words


def _slot(word: str) -> tree.Binder:
    return trees.binder(word)


_INSIDE = ("one", "two", "left", "right", "first", "second", "this", "that", "near", "far", "go", "do_it", "make")
