"""Calls: a function's body in place of its call, its coordinates renamed so that nothing is captured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ..diagnostics import Fix, Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.graph import components, reached
from ..source import Span
from ..syntax import tree
from ..syntax.vocabulary import FOREIGN, FOREIGN_WORDS, FUNCTIONS, NORMALISERS
from . import definitions, elaborate, lifting, sizes
from . import reads as reading
from .modules import Function
from .names import counted, given, suggest
from .scope import Binding, Meaning, RestBinding, Scope, Tensor, Unit, Value

MAXIMUM_CALLS = 24


def call(
    unit: Unit, scope: Scope, node: tree.Call, name: str | None = None, hidden: bool = True
) -> Tensor | ir.Expr | None:
    """The value of a call: a tensor for a function with an arrow, else an expression."""
    entered = _entered(unit, scope, node)
    if entered is None:
        return None
    function, inner = entered
    fn = function.tree
    if len(fn.results) > 1:
        names = ", ".join("abcdefgh"[: len(fn.results)])
        help = f"bind them: `let ({names}) = {fn.name}(…);`"
        places = (Label(node.span), Label(fn.name_span, "defined here"))
        unit.report("IX209", f"`{fn.name}` gives {len(fn.results)} tensors, and one is needed here", *places, help=help)
        return None
    unit.calls.append((function, node.span))
    if fn.results:
        name = name or unit.fresh_name(f"{scope.frame.owner}_{fn.name}")
        found = _results(unit, inner, fn, (fn.body.body,), [name], hidden)
        result: Tensor | ir.Expr | None = found[0] if found else None
    else:
        result = definitions.block_value(unit, inner, fn.body, fn.name)
    unit.calls.pop()
    return result


def call_together(unit: Unit, scope: Scope, let: tree.Let, names: list[str], hidden: bool) -> list[Tensor] | None:
    """The tensors of a call that gives several, under these names: `let (a, b) = f(x);`."""
    node = let.body
    while isinstance(node, tree.Paren):
        node = node.inner
    if let.where:
        help = "give the guard to each tensor inside the function, or read the tensors with one"
        unit.report("IX209", "a guard needs coordinates on the left", let.where[0].span, help=help)
        return None
    if not isinstance(node, tree.Call) or is_builtin(scope, node.function):
        help = "to define each on its own, write one `let` for each"
        unit.report("IX209", "several names are bound to a call that gives several tensors", node.span, help=help)
        return None
    entered = _entered(unit, scope, node)
    if entered is None:
        return None
    function, inner = entered
    fn = function.tree
    if len(fn.results) != len(names):
        gives = counted(len(fn.results), "tensor") if fn.results else "one number"
        places = (Label(let.names[0].span.to(let.names[-1].span)), Label(fn.name_span, "defined here"))
        bare = not fn.results and isinstance(fn.body.body, tree.Tuple)
        say = f"say what it gives: `fn {fn.name}(…) -> ([…], […])`" if bare else None
        unit.report("IX206", f"`{fn.name}` gives {gives}, and {len(names)} names are bound to it", *places, help=say)
        return None
    value = fn.body.body
    if not isinstance(value, tree.Tuple) or len(value.items) != len(names):
        shown = ", ".join("abcdefgh"[: len(names)])
        places = (Label(value.span), Label(fn.results[0].span.to(fn.results[-1].span), "said here"))
        help = f"the body ends in `({shown})`"
        unit.report("IX209", f"`{fn.name}` says that it gives {len(names)} tensors", *places, help=help)
        return None
    unit.calls.append((function, node.span))
    found = _results(unit, inner, fn, value.items, names, hidden)
    unit.calls.pop()
    return found


def is_builtin(scope: Scope, function: str) -> bool:
    """Whether a call is of the language's own function: the program's come first."""
    return function == "size" or (function in FUNCTIONS and function not in scope.functions)


def _entered(unit: Unit, scope: Scope, node: tree.Call) -> tuple[Function, Scope] | None:
    """The function that is called, and the scope of its body; None, and reported, where it cannot be called."""
    function = scope.functions.get(node.function)
    if function is None:
        _report_unknown(unit, scope, node)
        return None
    unit.called.add(node.function)
    if any(caller is function for caller, _ in unit.calls):
        help = "a recurrence is written with clauses: `let h[0] = …; let h[t in 1..n] = … h[t - 1] …;`"
        unit.report("IX208", f"`{node.function}` calls itself", node.span, help=help)
        return None
    if len(unit.calls) >= MAXIMUM_CALLS:
        unit.report("IX106", f"calls nest more than {MAXIMUM_CALLS} deep", node.span)
        return None
    if len(node.arguments) != len(function.tree.parameters):
        _report_arguments(unit, node, function)
        return None
    inner = _enter(unit, scope, node, function)
    return None if inner is None else (function, inner)


def _results(
    unit: Unit, scope: Scope, fn: tree.Fn, values: tuple[tree.Expr, ...], names: list[str], hidden: bool
) -> list[Tensor] | None:
    """The tensors that a function gives, each a definition; its local definitions are made once for all."""
    scope = scope.binding(definitions.define(unit, scope, fn.body))
    tensors = []
    for home, value, name in zip(fn.results, values, names, strict=True):
        result = tree.Let(fn.name, fn.name_span, home.slots, value, fn.body.where, value.span)
        found = definitions.draft(unit, scope, result)
        tensors.append(None if found is None else lifting.lift(unit, scope, name, [found], fn, hidden))
    known = [tensor for tensor in tensors if tensor is not None]
    return known if len(known) == len(tensors) else None


def _enter(unit: Unit, scope: Scope, node: tree.Call, function: Function) -> Scope | None:
    """The scope of a function's body, its parameters bound to the arguments."""
    names: dict[str, Meaning] = {}
    known: dict[str, tuple[ir.Expr, Span]] = {}
    rests: dict[str, tuple[ir.Axis, ...]] = {}
    good = True
    for parameter, argument in zip(function.tree.parameters, node.arguments, strict=True):
        if parameter.slots is None:
            before = unit.count
            value = elaborate.expression(unit, scope, argument)
            if value is None:
                good = False
            else:
                names[parameter.name] = Value(value, unit.count - before, parameter.span)
            continue
        tensor = reading.tensor_of(unit, scope, argument)
        if tensor is None or not _match(unit, scope, parameter, tensor, argument.span, known, rests):
            good = False
        else:
            names[parameter.name] = tensor
    if not good:
        return None
    extents = {name: extent for name, (extent, _) in known.items()}
    return Scope(names, function.functions, {}, extents, rests, scope.frame, scope.conditions, in_function=True)


def _match(
    unit: Unit,
    scope: Scope,
    parameter: tree.Parameter,
    tensor: Tensor,
    span: Span,
    known: dict[str, tuple[ir.Expr, Span]],
    rests: dict[str, tuple[ir.Axis, ...]],
) -> bool:
    """Whether a tensor fits a parameter. Parameters that share a coordinate name share its size."""
    slots = parameter.slots or ()
    first = slots[0] if slots else None
    head = first if isinstance(first, tree.Binder) and first.rest else None
    plain = slots[1:] if head is not None else slots
    lead = len(tensor.axes) - len(plain)
    if lead < 0 or (head is None and (lead or any(axis.coordinate.rest for axis in tensor.axes))):
        wanted = ", ".join(slot.span.text for slot in slots)
        shown = ", ".join(str(axis.coordinate) for axis in tensor.axes)
        unit.report(
            "IX205",
            f"`{parameter.name}[{wanted}]` cannot take a tensor with the coordinates `[{shown}]`",
            Label(span),
            Label(parameter.span, "the parameter"),
        )
        return False
    if head is not None and not _match_rest(unit, head.name, tensor.axes[:lead], span, rests):
        return False
    good = True
    for slot, axis in zip(plain, tensor.axes[lead:], strict=True):
        if not isinstance(slot, tree.Binder) or slot.range is not None or slot.rest:
            unit.report("IX302", "a parameter's bracket holds coordinates, without ranges", slot.span)
            return False
        good &= _same_size(unit, scope, slot.name, axis.extent, span, known)
    return good


def _match_rest(
    unit: Unit, name: str, axes: tuple[ir.Axis, ...], span: Span, rests: dict[str, tuple[ir.Axis, ...]]
) -> bool:
    earlier = rests.setdefault(name, axes)
    if [axis.coordinate.rest for axis in earlier] == [axis.coordinate.rest for axis in axes]:
        return True
    unit.report(
        "IX213",
        f"`..{name}` stands for {len(axes)} leading coordinates here, and for {len(earlier)} in an earlier argument",
        span,
    )
    return False


def _same_size(
    unit: Unit, scope: Scope, name: str, extent: ir.Expr, span: Span, known: dict[str, tuple[ir.Expr, Span]]
) -> bool:
    if name not in known:
        known[name] = (extent, span)
        return True
    earlier, place = known[name]
    size, other = polynomial(earlier, unit.constant), polynomial(extent, unit.constant)
    difference = (size - other).constant
    if difference is None:
        equal = build.apply("==", (earlier, extent), "bool", span)
        scope.frame.asserts.append(ir.Assert(equal, f"`{name}` must have one size in all arguments of this call", span))
    elif difference:
        here, there = sizes.show(extent), sizes.show(earlier)
        unit.report(
            "IX304",
            f"`{name}` has {here} points here and {there} there",
            Label(span, here),
            Label(place, there),
            help="arguments that share a coordinate share its size",
        )
        return False
    return True


def _report_unknown(unit: Unit, scope: Scope, node: tree.Call) -> None:
    if node.function in unit.broken:
        return
    meaning = scope.names.get(node.function)
    if isinstance(meaning, Tensor | Value | Binding | RestBinding):
        unit.report(
            "IX201", f"`{node.function}` is not a function", node.function_span, help=f"read it: `{node.function}[…]`"
        )
        return
    if node.function in NORMALISERS:
        message = f"expected `[` and the coordinate that `{node.function}` normalises over"
        unit.report("IX101", message, node.function_span, help=f"write `{node.function}[j](…)`")
        return
    help, fix = suggest(node.function, (*scope.functions, *FUNCTIONS, "size"), node.function_span, unit.sink)
    help = help or FOREIGN.get(node.function)
    if fix is None and node.function in FOREIGN_WORDS:
        fix = Fix(node.function_span, FOREIGN_WORDS[node.function])
    unit.report("IX201", f"no function is called `{node.function}`", node.function_span, help=help, fix=fix)


def _report_arguments(unit: Unit, node: tree.Call, function: Function) -> None:
    parameters = function.tree.parameters
    wanted = ", ".join(parameter.span.text for parameter in parameters)
    unit.report(
        "IX206",
        f"`{node.function}({wanted})` takes {counted(len(parameters), 'argument')}, and {given(len(node.arguments))}",
        Label(node.span),
        Label(function.tree.name_span, "defined here"),
    )


# ----------------------------------------------------------------------- order


Mentions: TypeAlias = Mapping[str, set[str]]


def mentions(groups: Mapping[str, list[tree.Let]]) -> Mentions:
    """The definitions among these that each of them mentions."""
    return {name: _reads(clauses) & groups.keys() for name, clauses in groups.items()} if groups else {}


def in_order(groups: Mapping[str, list[tree.Let]], mentioned: Mentions) -> list[list[str]]:
    """The names of definitions, each after all that it reads, and after those whose coordinates it asks the size of,
    unless they are made of it; those that read each other together."""
    after = {name: set(names) for name, names in mentioned.items()}
    for name, clauses in groups.items():
        asked = _sizes_asked(clauses)
        for other in groups if asked else ():
            if _may_have(groups[other], asked) and name not in reached((other,), after.__getitem__):
                after[name].add(other)
    return components({name: sorted(names) for name, names in after.items()})


def _sizes_asked(clauses: list[tree.Let]) -> set[str]:
    asking = [clause for clause in clauses if "size" in clause.span.text]
    calls = (node for clause in asking for node in tree.walk(clause) if isinstance(node, tree.Call))
    return {a.name for call in calls if call.function == "size" for a in call.arguments if isinstance(a, tree.Name)}


def _may_have(clauses: list[tree.Let], names: set[str]) -> bool:
    """Whether a definition may have a coordinate of these names: one that is bound whole may have any."""
    slots = clauses[0].slots
    return slots is None or any(isinstance(slot, tree.Binder) and slot.name in names for slot in slots)


def is_recursive(group: list[str], mentioned: Mentions) -> bool:
    return len(group) > 1 or group[0] in mentioned[group[0]]


def _reads(clauses: Iterable[tree.Let]) -> set[str]:
    """The names that clauses mention, other than as a coordinate that they bind."""
    found: set[str] = set()
    for clause in clauses:
        bound = frozenset(slot.name for slot in clause.slots or () if isinstance(slot, tree.Binder))
        _collect(clause, bound, found)
    return found


def _collect(node: tree.Node, bound: frozenset[str], found: set[str]) -> None:
    if isinstance(node, tree.Name):
        if node.name not in bound:
            found.add(node.name)
        return
    if isinstance(node, tree.Index) and isinstance(node.base, tree.Name):
        found.add(node.base.name)
        for index in node.indices:
            _collect(index, bound, found)
        return
    if isinstance(node, tree.Reduction):
        bound = bound.union([binder.name for binder in node.binders])
    elif isinstance(node, tree.Let | tree.Block):
        _collect_statement(node, bound, found)
        return
    for child in tree.children(node):
        _collect(child, bound, found)


def _collect_statement(node: tree.Let | tree.Block, bound: frozenset[str], found: set[str]) -> None:
    # A guard may speak of what a reduction beside it binds.
    parts = tree.walk(node.body) if node.where else ()
    beside = {binder.name for part in parts if isinstance(part, tree.Reduction) for binder in part.binders}
    bound_here = node.names if isinstance(node, tree.Let) else ()
    for child in tree.children(node):
        if all(child is not name for name in bound_here):
            _collect(child, bound | beside if isinstance(child, tree.Clause) else bound, found)
