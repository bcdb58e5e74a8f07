"""Tree to text: the canonical layout. The parser's inverse, up to what the tree does not hold.

A statement stands on one line if it fits. Otherwise it breaks after its `=`, before its `where`, before
the operators that hold least tightly, and inside brackets. The `=` of `let`s on consecutive lines are
aligned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias, assert_never

from . import tree
from .expressions import ADD, CAST, COMPARE, POWER, POWERS, UNARY
from .layout import (
    BREAK,
    INDENTATION,
    NOTHING,
    SPACE,
    Choice,
    Document,
    bracketed,
    concat,
    group,
    indent,
    join,
    render,
    text,
)
from .remarks import Placement, else_if, place
from .sequence import Part, on_one_line, one_under_another
from .vocabulary import RESERVED

# What is closed in itself holds tighter than every operator.
_CLOSED = POWER + 1

_Undivided: TypeAlias = (
    tree.Space | tree.Input | tree.Output | tree.Fn | tree.Use | tree.Contract | tree.Assert | tree.Expect
)


def format_source(file: tree.File) -> str:
    """The whole file. It has to be free of mistakes: a statement that could not be read is not in the tree."""
    placement = place(file)
    formatter = _Formatter(placement)
    parts = [formatter.statement(statement) for statement in file.statements]
    written = render(one_under_another(parts, placement.at_end(file), 0))
    return written + "\n" if written else ""


def format_statement(statement: tree.Statement) -> str:
    """One statement, without comments and without the end of its last line."""
    return render(one_under_another([_Formatter(Placement()).statement(statement)], (), 0))


def format_expression(expr: tree.Expr) -> str:
    """An expression on one line, however long. Parentheses that the tree lacks are put in where they are needed."""
    return render(_Formatter(Placement()).expression(expr), math.inf)


class _Formatter:
    """Documents of nodes. `placement` has the comments, which the tree has not."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement

    # ------------------------------------------------------------ expressions

    def expression(self, expr: tree.Expr) -> Document:
        match expr:
            case tree.Number(words) | tree.Name(words):
                return text(words)
            case tree.Bool(value):
                return text("true" if value else "false")
            case tree.Masked(text=words):
                return text(words)
            case tree.ArrayLiteral(items):
                return self.array(items)
            case tree.Printed(literal):
                return concat("~", self.expression(literal))
            case tree.Pasted(word, literal):
                return concat(word, "(", self.expression(literal), ")")
            case tree.Index(base, indices):
                return concat(self.base(base), bracketed("[", map(self.index, indices), "]"))
            case tree.Call(function=function, arguments=arguments):
                return concat(function, bracketed("(", map(self.expression, arguments), ")"))
            case tree.Unary(operator, operand):
                return concat(operator, self.operand(operand, UNARY))
            case tree.Binary():
                return self.binary(expr)
            case tree.Comparison(operands, operators):
                return self.chain(operands[0], zip(operators, operands[1:], strict=True), ADD, ADD)
            case tree.Cast(operand, dtype):
                return concat(self.operand(operand, CAST), " as ", dtype)
            case tree.If():
                return self.conditional(expr)
            case tree.Block():
                return group(self.block(expr))
            case tree.Paren(inner):
                return _parenthesise(self.expression(inner))
            case tree.Tuple(items):
                return bracketed("(", map(self.expression, items), ")")
            case tree.Derivative(of, by):
                return concat("@", of.name, " / @", by.name)
            case tree.Reduction(operator=operator, binders=binders, body=body, where=where):
                scanned = [self.expression(body), *((SPACE, self.where(where)) if where else ())]
                coordinates = bracketed("[", map(self.binder, binders), "]")
                return concat(operator, coordinates, _parenthesise(*scanned))
            case _:
                assert_never(expr)

    def operand(self, expr: tree.Expr, minimum: int) -> Document:
        """An expression where only operators that hold at least as tightly as `minimum` may stand bare.

        Its own operators, should they start lines, stand further to the right than those around it.
        """
        document = self.expression(expr)
        if _tightness(expr) < minimum:
            return _parenthesise(document)
        return indent(document) if isinstance(expr, tree.Binary | tree.Comparison) else document

    def binary(self, expr: tree.Binary) -> Document:
        power = POWERS[expr.operator]
        if power == POWER:
            # It groups to the right and takes a signed exponent.
            return self.chain(expr.left, [(expr.operator, expr.right)], _CLOSED, UNARY)
        steps: list[tuple[str, tree.Expr]] = []
        left: tree.Expr = expr
        while isinstance(left, tree.Binary) and POWERS[left.operator] == power:
            steps.append((left.operator, left.right))
            left = left.left
        return self.chain(left, reversed(steps), power, power + 1)

    def chain(
        self, first: tree.Expr, steps: Iterable[tuple[str, tree.Expr]], minimum_first: int, minimum_rest: int
    ) -> Document:
        """Operands on one level; broken, each operator starts a line."""
        parts: list[Document | str] = [self.operand(first, minimum_first)]
        for operator, operand in steps:
            parts += [SPACE, operator, " ", self.operand(operand, minimum_rest)]
        return group(*parts)

    def base(self, expr: tree.Expr) -> Document:
        """The tensor of a read. `sum[` would start a reduction, so a tensor of that name is put in parentheses."""
        match expr:
            case tree.Name(name):
                readable = name not in RESERVED
            case tree.Index() | tree.Call() | tree.Reduction() | tree.Paren() | tree.Masked():
                readable = True
            case tree.ArrayLiteral() | tree.Printed() | tree.Pasted():
                readable = True
            case _:
                readable = False
        document = self.expression(expr)
        return document if readable else _parenthesise(document)

    def index(self, index: tree.Expr | tree.Rest) -> Document:
        return text(f"..{index.name}") if isinstance(index, tree.Rest) else self.expression(index)

    def array(self, items: tuple[tree.Expr, ...]) -> Document:
        """Broken, a row has a line of its own; numbers fill their lines."""
        documents = [self.expression(item) for item in items]
        if any(_is_array(item) for item in items):
            return bracketed("[", documents, "]")
        first, *rest = documents
        filled = [concat(",", group(SPACE, item)) for item in rest]
        return group("[", indent(NOTHING, first, *filled), NOTHING, "]")

    def conditional(self, expr: tree.If) -> Document:
        """All branches stand on one line, or each has lines of its own."""
        parts: list[Document | str] = []
        branch: tree.If | None = expr
        while branch is not None:
            parts += ["if ", indent(self.expression(branch.condition)), " ", self.block(branch.then), " else "]
            otherwise = branch.otherwise
            branch = else_if(otherwise)
        return group(*parts, self.block(otherwise))

    def block(self, block: tree.Block) -> Document:
        """A block that is broken where the group around it is."""
        parts, last = self.parts(block), self.placement.at_end(block)

        def broken(indentation: int) -> Document:
            return concat(indent(BREAK, one_under_another(parts, last, indentation + INDENTATION)), BREAK)

        return concat("{", Choice(on_one_line(parts, last), broken), "}")

    def parts(self, block: tree.Block) -> list[Part]:
        value = group(self.expression(block.body), self.where_behind(block.where))
        lets = [self.statement(let) for let in block.lets]
        return [*lets, Part(value, None, self.placement.of(block.body))]

    # ---------------------------------------------------------------- clauses

    def where(self, clauses: tuple[tree.Clause, ...]) -> Document:
        return group("where ", indent(join(map(self.clause, clauses), ",", SPACE)))

    def where_behind(self, clauses: tuple[tree.Clause, ...]) -> Document:
        """The `where` of a whole right-hand side or block; nothing where there is none."""
        return indent(SPACE, self.where(clauses)) if clauses else text("")

    def clause(self, clause: tree.Clause) -> Document:
        match clause:
            case tree.Guard(condition):
                return self.expression(condition)
            case tree.Abbreviation(name, value):
                return concat(name, " = ", indent(self.expression(value)))
            case _:
                assert_never(clause)

    def binder(self, binder: tree.Binder) -> Document:
        if binder.rest:
            return text(f"..{binder.name}")
        if binder.range is None:
            return text(binder.name)
        lower, upper = self.operand(binder.range.lower, ADD), self.operand(binder.range.upper, ADD)
        return concat(binder.name, " in ", lower, "..=" if binder.range.inclusive else "..", upper)

    def slot(self, slot: tree.Slot) -> Document:
        return self.binder(slot) if isinstance(slot, tree.Binder) else self.expression(slot)

    def slots(self, slots: tuple[tree.Slot, ...] | None) -> Document:
        """Nothing where no bracket was written; `[]` where an empty one was."""
        return text("") if slots is None else bracketed("[", map(self.slot, slots), "]")

    # -------------------------------------------------------------- statements

    def statement(self, statement: tree.Statement) -> Part:
        remarks = self.placement.of(statement)
        if isinstance(statement, tree.Let):
            return Part(*self.let(statement), remarks)
        return Part(self.undivided(statement), None, remarks)

    def let(self, let: tree.Let) -> tuple[Document, Document]:
        """Return the part of a `let` before the `=`, and the rest from it on."""
        bound = bracketed("(", map(self.expression, let.names), ")") if let.names else text(let.name)
        head = concat("let ", bound, self.slots(let.slots))
        body = self.expression(let.body)
        value = concat(" ", body) if _opens_lines(let.body) else group(indent(SPACE, body))
        end = " as printed;" if let.printed else ";"
        return head, group("=", value, self.where_behind(let.where), end)

    def undivided(self, statement: _Undivided) -> Document:
        match statement:
            case tree.Space(items):
                return _listing("space", map(self.space_item, items))
            case tree.Input(items):
                return _listing("input", map(self.input_item, items))
            case tree.Output(names):
                return _listing("output", map(self.expression, names))
            case tree.Fn():
                return self.function(statement)
            case tree.Use(path=path, names=names):
                return concat("use ", "::".join(path), "::", bracketed("{", map(self.expression, names), "}"), ";")
            case tree.Contract(name, items):
                return concat("attention ", name.name, bracketed("(", map(self.contract_item, items), ")"), ";")
            case tree.Assert(condition, message):
                return group("assert ", indent(self.expression(condition), ",", SPACE, _quote(message)), ";")
            case tree.Expect(left, literal, tolerance=tolerance, printed=printed):
                claimed = indent(self.operand(left, ADD))
                figure = concat("== ", self.operand(literal, ADD))
                behind = concat(" ", figure) if _is_array(literal) else indent(SPACE, figure)
                allowed = "" if tolerance is None else f" ± {tolerance.text}"
                return group("expect ", claimed, behind, allowed, " as printed" if printed else "", ";")
            case _:
                assert_never(statement)

    def space_item(self, item: tree.SpaceItem) -> Document:
        return concat(item.name, bracketed("(", map(self.expression, item.coordinates), ")"))

    def input_item(self, item: tree.InputItem) -> Document:
        dtype = "" if item.dtype is None else f" : {item.dtype}"
        return concat(item.name, self.slots(item.slots), dtype)

    def contract_item(self, item: tree.RoleItem | tree.FlagItem) -> Document:
        match item:
            case tree.RoleItem(role, coordinate):
                return text(f"{role} {coordinate.name}")
            case tree.FlagItem(flag, argument):
                return text(flag) if argument is None else concat(flag, " ", self.operand(argument, ADD))
            case _:
                assert_never(item)

    def function(self, function: tree.Fn) -> Document:
        """Its body always has lines of its own."""
        parameters = bracketed("(", map(self.parameter, function.parameters), ")")
        homes = [self.slots(home.slots) for home in function.results]
        given = bracketed("(", homes, ")") if len(homes) > 1 else concat(*homes)
        result = concat(" -> ", given) if homes else text("")
        body = one_under_another(self.parts(function.body), self.placement.at_end(function.body), INDENTATION)
        return concat("fn ", function.name, parameters, result, " {", indent(BREAK, body), BREAK, "}")

    def parameter(self, parameter: tree.Parameter) -> Document:
        return concat(parameter.name, self.slots(parameter.slots))


def _tightness(expr: tree.Expr) -> int:
    """The precedence of the outermost operator of an expression."""
    match expr:
        case tree.Binary(operator):
            return POWERS[operator]
        case tree.Comparison():
            return COMPARE
        case tree.Cast():
            return CAST
        case tree.Unary():
            return UNARY
        case _:
            return _CLOSED


def _parenthesise(*parts: Document) -> Document:
    return group("(", indent(NOTHING, *parts), NOTHING, ")")


def _is_array(expr: tree.Expr) -> bool:
    while isinstance(expr, tree.Printed | tree.Pasted):
        expr = expr.literal
    return isinstance(expr, tree.ArrayLiteral)


def _opens_lines(expr: tree.Expr) -> bool:
    """Whether an expression that is too long stays behind the `=`, because it opens lines of its own."""
    return isinstance(expr, tree.If | tree.Block) or _is_array(expr)


def _listing(word: str, items: Iterable[Document]) -> Document:
    """`input A, B;`; broken, each item but the first starts a line."""
    return group(word, " ", indent(join(items, ",", SPACE)), ";")


def _quote(message: str) -> str:
    escaped = message.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
