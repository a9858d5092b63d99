"""Small changes of a source in Python or Lua, one at a time: what `make mutants` asks the tests to notice.

What says nothing about behaviour is left alone: annotations, decorators, patterns, texts, log lines, what is raised.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Mutant", "mutants_of"]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of a source.

    Attributes
    ----------
    path
        Of the source.
    id
        Path, function, operator, and a number among the changes of that operator in that function. It has no line, so
        that edits elsewhere leave it as it is.
    line
        Of the change, from 1.
    before, after
        What is changed, and into what.
    text
        The whole source with the change.
    """

    path: str
    id: str
    line: int
    before: str
    after: str
    text: str

    @property
    def change(self) -> str:
        """The change in one line."""
        return f"{self.before} => {self.after}"


class _Change(NamedTuple):
    """A change of a source from one offset to another; `place` is the function that it is in."""

    place: str
    operator: str
    start: int
    end: int
    after: str


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Return all mutants of a source, in its order; the path's suffix says which language it is."""
    changes = _changes_of_lua(source) if path.endswith(".lua") else _changes_of_python(source)
    seen: Counter[str] = Counter()
    mutants = []
    for change in sorted(changes, key=lambda one: (one.start, one.end)):
        name = f"{path}::{change.place}::{change.operator}"
        mutants.append(_mutant_of(path, source, change, f"{name}::{seen[name]}"))
        seen[name] += 1
    return mutants


def _mutant_of(path: str, source: str, change: _Change, name: str) -> Mutant:
    before, after = source[change.start : change.end], change.after
    text = source[: change.start] + after + source[change.end :]
    line = source.count("\n", 0, change.start) + 1
    return Mutant(path, name, line, " ".join(before.split()), after, text)


# Python: each operator returns what a node may become.

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
_PAIRS = ("min max", "minimum maximum", "argmin argmax", "floor ceil", "any all")
_OPPOSITES = {one: other for pair in _PAIRS for one, other in (pair.split(), pair.split()[::-1])}
_ROWS = re.compile(r"(NDArray|FloatArray|Rankings|Sequence|list)\b|tuple\[[\w\[\]., ]+, \.\.\.\]")
_ORDERED = {
    "slate",
    "best_slate",
    "ranking",
    "best",
    "starts",
    "items",
    "position_propensities",
    "contexts",
    "rankings",
}
_SIMPLE = (ast.Name, ast.Attribute)


def _compare(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            ops = [*node.ops[:place], _COMPARED[type(op)](), *node.ops[place + 1 :]]
            yield ast.Compare(node.left, ops, node.comparators)


def _compute(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _COMPUTED:
        changed = copy(node)
        changed.op = _COMPUTED[type(node.op)]()
        yield changed


def _combine(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)


def _unsign(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand


def _constant(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)


def _opposite(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Name) and node.id in _OPPOSITES:
        yield ast.Name(_OPPOSITES[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in _OPPOSITES:
        yield ast.Attribute(node.value, _OPPOSITES[node.attr])


def _unguard(node: ast.AST) -> Iterator[ast.expr]:
    """Return what a limit, or `abs`, is put on."""
    if isinstance(node, ast.Call) and not node.keywords:
        name, args = _name_of(node.func), node.args
        if name == "abs" or (name in {"min", "max", "minimum", "maximum"} and len(args) == 2):
            yield from (one for one in args if not isinstance(one, ast.Constant | ast.Starred))


def _drop(node: ast.AST) -> Iterator[ast.AST]:
    """Drop a statement that is a call, or a field that `replace` changes."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        yield ast.Pass()
    elif isinstance(node, ast.Call) and _name_of(node.func) in {"replace", "_replace"}:
        for one in node.keywords:
            yield ast.Call(node.func, node.args, [other for other in node.keywords if other is not one])


def _negate(node: ast.AST) -> Iterator[ast.expr]:
    """Negate what `if` asks, where `_compare` and `_unsign` don't."""
    if isinstance(node, ast.Compare):
        if len(node.ops) > 1 or isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            yield ast.UnaryOp(ast.Not(), node)
    elif isinstance(node, ast.expr) and not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        yield ast.UnaryOp(ast.Not(), node)


def _reverse(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.expr):
        yield ast.Subscript(node, ast.Slice(step=ast.Constant(-1)))


def _swaps(node: ast.Call) -> Iterator[tuple[ast.expr, ast.expr, ast.Call]]:
    """Return two arguments that follow each other and are names, and the call with them swapped."""
    for place, (first, second) in enumerate(pairwise(node.args)):
        args = [*node.args[:place], second, first, *node.args[place + 2 :]]
        yield first, second, ast.Call(node.func, args, node.keywords)
    for place, (one, other) in enumerate(pairwise(node.keywords)):
        swapped = [ast.keyword(one.arg, other.value), ast.keyword(other.arg, one.value)]
        keywords = [*node.keywords[:place], *swapped, *node.keywords[place + 2 :]]
        yield one.value, other.value, ast.Call(node.func, node.args, keywords)


_SYMMETRIC = {"isinstance", "getattr", "max", "min", "maximum", "minimum", "suppress"}
"""Calls whose arguments are not swapped: they say the same in any order, or nothing that is right."""

_OPERATORS: dict[str, Callable[[ast.AST], Iterator[ast.AST]]] = {
    "compare": _compare,
    "compute": _compute,
    "combine": _combine,
    "unsign": _unsign,
    "constant": _constant,
    "opposite": _opposite,
    "unguard": _unguard,
    "drop": _drop,
}


def _name_of(func: ast.expr) -> str:
    return func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""


def _changes_of_python(source: str) -> list[_Change]:
    walk = _Walk(source)
    walk.visit(ast.parse(source))
    return walk.changes


class _Walk(ast.NodeVisitor):
    """Collects the changes of a module."""

    def __init__(self, source: str) -> None:
        self.changes: list[_Change] = []
        self._places: list[str] = []
        self._rows = False
        self._types: dict[str, str] = {}
        lines = source.splitlines(keepends=True)
        self._starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
        self._lines = [line.encode() for line in lines]

    def visit(self, node: ast.AST) -> None:
        if _is_left_alone(node):
            return
        for operator, change in _OPERATORS.items():
            self._note(operator, node, change(node))
        super().visit(node)

    def visit_FunctionDef(self, node: Function) -> None:
        rows, types = self._rows, self._types
        self._rows = node.returns is not None and bool(_ROWS.match(ast.unparse(node.returns)))
        self._types = types | {
            one.arg: ast.unparse(one.annotation)
            for one in (*node.args.args, *node.args.kwonlyargs)
            if one.annotation is not None
        }
        self._visit_inside(node.name, [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body])
        self._rows, self._types = rows, types

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_inside(node.name, node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and ast.unparse(node.annotation) != "TypeAlias":
            self.visit(node.value)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        self._note("negate", node.test, _negate(node.test))
        self.generic_visit(node)

    visit_IfExp = visit_If  # noqa: N815

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._note("negate", test, _negate(test))
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if self._rows and isinstance(node.value, ast.expr) and not _is_empty(node.value):
            self._note("reverse", node.value, _reverse(node.value))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _name_of(node.func) not in _SYMMETRIC:
            self._note("swap", node, (call for one, other, call in _swaps(node) if self._may_swap(one, other)))
        self.generic_visit(node)

    def _may_swap(self, one: ast.expr, other: ast.expr) -> bool:
        """Return whether two arguments are different names, and not known to be of different types."""
        names = ast.unparse(one), ast.unparse(other)
        first, second = (self._types.get(name) for name in names)
        alike = first is None or second is None or first == second
        return alike and names[0] != names[1] and isinstance(one, _SIMPLE) and isinstance(other, _SIMPLE)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg in _ORDERED:
            self._note("reverse", node.value, _reverse(node.value))
        if node.arg != "strict":  # it changes nothing that is right
            self.generic_visit(node)

    def visit_match_case(self, node: ast.match_case) -> None:
        for one in (*filter(None, [node.guard]), *node.body):
            self.visit(one)

    def _visit_inside(self, name: str, nodes: Sequence[ast.AST]) -> None:
        self._places.append(name)
        for one in nodes:
            self.visit(one)
        self._places.pop()

    def _note(self, operator: str, node: ast.AST, changed: Iterator[ast.AST]) -> None:
        for one in changed:
            text = ast.unparse(ast.fix_missing_locations(one))
            place = ".".join(self._places) or "module"
            self.changes.append(_Change(place, operator, *self._span(node), f"({text})" if _needs_ends(one) else text))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        """Return where a node begins and ends, in characters; the parser counts bytes of UTF-8."""
        ends = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        start, end = (self._starts[line - 1] + len(self._lines[line - 1][:byte].decode()) for line, byte in ends)
        return start, end


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    logs = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and "log." in ast.unparse(node.value.func)
    return logs or isinstance(node, ast.Raise | ast.JoinedStr)


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Tuple | ast.List) and not node.elts)


def _needs_ends(node: ast.AST) -> bool:
    """Return whether a node has to be put in parentheses to stay one beside operators."""
    return isinstance(node, ast.BinOp | ast.BoolOp | ast.Compare | ast.UnaryOp | ast.IfExp | ast.Lambda)


# Lua: words and signs, and lines.

_TOKEN = re.compile(
    r"--[^\n]*|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|\d+(?:\.\d+)?|[A-Za-z_]\w*|==|~=|<=|>=|\.\.\.?|[^\s\w]"
)
_LUA_PAIRS = ("== ~=", "< <=", "> >=", "and or", "true false", "min max", "+ -", "* /")
_LUA = {one: other for pair in _LUA_PAIRS for one, other in (pair.split(), pair.split()[::-1])} | {"not": ""}
_ERROR = re.compile(r"refuse\(.*\)$", re.MULTILINE)
_FUNCTION = re.compile(r"^local function (\w+)", re.MULTILINE)
_IF = re.compile(r"^\s*(?:else)?if (.+) then$", re.MULTILINE)
_CALL = re.compile(r"(?<![=,({]\n)^ *([\w.]+\(.*\))$", re.MULTILINE)


def _changes_of_lua(source: str) -> list[_Change]:
    told = [match.span() for match in _ERROR.finditer(source)]
    tokens = [
        (token.group(), token.start())
        for token in _TOKEN.finditer(source)
        if not any(start <= token.start() < end for start, end in told)
    ]
    changes = [
        ("constant" if text[0].isdigit() else "sign", start, start + len(text), after)
        for text, start, after in _changed_tokens(tokens)
    ]
    asked = [(match.start(1), match.end(1), f"not ({match.group(1)})") for match in _IF.finditer(source)]
    changes += [("negate", *one) for one in asked if not re.match(r"not |[^<>]* [=~]= [^<>]*$", one[2][5:-1])]
    changes += [("drop", *match.span(1), "do end") for match in _CALL.finditer(source)]
    return [_Change(_place_of(source, start), operator, start, end, after) for operator, start, end, after in changes]


def _changed_tokens(tokens: list[tuple[str, int]]) -> Iterator[tuple[str, int, str]]:
    before = ""
    for text, start in tokens:
        signs = text in {"+", "-"} and not re.match(r"[\w)\]]", before)
        if text[0].isdigit():
            yield text, start, str(float(text) + 1) if "." in text else str(int(text) + 1)
        elif text in _LUA and not signs:
            yield text, start, _LUA[text]
        before = text


def _place_of(source: str, offset: int) -> str:
    """Return the function that an offset is in; functions begin and end at the first column."""
    begun = list(_FUNCTION.finditer(source, 0, offset))
    if not begun or re.search(r"^end$", source[begun[-1].start() : offset], re.MULTILINE):
        return "script"
    return begun[-1].group(1)
