"""The places where a program can be changed, the fixed sample of them, and mutants as code."""

from __future__ import annotations

import ast
import hashlib
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import CodeType
from typing import NamedTuple

SHARES = {
    "flowengine/kernel": 85,
    "flowengine/journal": 30,
    "flowengine/engines": 70,
    "flowengine/flow": 130,
    "flowengine/agents": 55,
    "flowengine/execution_environment": 30,
}
"""The sample: how many changes of each folder, in proportion to its places, at least 30."""
SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
"""Comparisons whose replacement differs from their negation."""
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
WIDTH = 80
PROBE = "__mutation_probe__"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Maker = Callable[[ast.AST], ast.AST]


class Place(NamedTuple):
    """A place in a file where something can be changed in one way."""

    path: str
    """Relative to the root of the project."""
    function: str
    """The qualified name of the outermost function around it."""
    line: int
    change: str
    kind: str
    node: int
    """The number of the node among those of the file."""
    key: str
    """Identifies the change across edits elsewhere in the file."""


def sample(root: Path) -> list[Place]:
    """Return the fixed sample."""
    drawn = []
    for folder, share in SHARES.items():
        found = (one for path in files(root, [Path(folder)]) for one in places(root, path))
        drawn += lowest(found, share)
    return drawn


def lowest(found: Iterable[Place], share: int | None) -> list[Place]:
    """Return the places with the lowest keys, in the order of the source."""
    return sorted(
        sorted(found, key=lambda one: one.key)[:share],
        key=lambda one: (one.path, one.line, one.node),
    )


def files(root: Path, given: Iterable[Path]) -> Iterator[str]:
    """Yield the paths of Python files, relative to the root, below the given ones."""
    for one in given:
        whole = root / one
        for path in sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]:
            yield path.relative_to(root).as_posix()


def places(root: Path, path: str) -> Iterator[Place]:
    """Yield the places of a file, in the order of its source."""
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    for function, definition in _functions(tree, ""):
        seen: Counter[tuple[str, str]] = Counter()
        for node, kind in _changeable(definition):
            text = ast.unparse(node)
            seen[text, kind] += 1
            key = "\0".join((path, function, text, kind, str(seen[text, kind])))
            yield Place(
                path, function, node.lineno, _described(node, kind), kind,
                numbers[id(node)], hashlib.sha256(key.encode()).hexdigest()[:16],
            )  # fmt: skip


def mutant(root: Path, place: Place) -> CodeType:
    """Compile the file of a place, changed there."""
    return _compiled(root, place.path, {place.node: partial(_changed, kind=place.kind)})


def probed(root: Path, path: str, found: Iterable[Place]) -> CodeType:
    """Compile a file that calls the builtin `PROBE` wherever a place is reached.

    Its argument is the `mark` of the place.
    """
    return _compiled(root, path, {one.node: partial(_probe, of=mark(one)) for one in found})


def mark(place: Place) -> str:
    """Return what identifies the node of a place."""
    return f"{place.path}#{place.node}"


def _compiled(root: Path, path: str, makers: Mapping[int, Maker]) -> CodeType:
    """Compile a file in which some nodes, by their numbers, are others."""
    source = root / path
    tree = ast.parse(source.read_text(encoding="utf-8"))
    nodes = {id(node): makers[n] for n, node in enumerate(ast.walk(tree)) if n in makers}
    _Replace(nodes).visit(tree)
    return compile(ast.fix_missing_locations(tree), str(source), "exec", dont_inherit=True)


class _Replace(ast.NodeTransformer):
    """Puts new nodes in place of others, which may be inside each other."""

    def __init__(self, makers: Mapping[int, Maker]) -> None:
        self._makers = makers

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the node that replaces a node, or the same one."""
        self.generic_visit(node)
        make = self._makers.get(id(node))
        return ast.copy_location(make(node), node) if make else node


def _probe(node: ast.AST, of: str) -> ast.AST:
    """Return a node that calls the probe, which returns None, before the given node runs."""
    call = ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(of)], [])
    match node:
        case ast.stmt():
            return ast.If(call, [ast.Pass()], [node])
        case ast.expr():
            return ast.BoolOp(ast.Or(), [call, node])
    raise TypeError(node)


def _functions(block: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    """Yield the outermost functions with their qualified names."""
    for node in ast.iter_child_nodes(block):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield f"{prefix}{node.name}", node
            case ast.ClassDef():
                yield from _functions(node, f"{prefix}{node.name}.")
            case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
                pass
            case ast.If() | ast.Try() | ast.With():
                yield from _functions(node, prefix)


def _changeable(function: Function) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield the nodes of a function that can be changed, and how, in the order of the source."""
    stack: list[ast.AST] = [*reversed(function.body)]
    while stack:
        node = stack.pop()
        if not _without_effect(node):
            yield from _ways(node)
            stack += reversed(list(_children(node)))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node that a program runs: no annotations."""
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "returns", "type_comment"}:
            yield from (one for one in (value if isinstance(value, list) else [value])
                        if isinstance(one, ast.AST))  # fmt: skip


def _without_effect(node: ast.AST) -> bool:
    """Return whether a change in a node cannot matter, or should not."""
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.pattern():
            return True
        case ast.If(test=test):
            return "TYPE_CHECKING" in ast.unparse(test)
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=logger, attr=name))):
            return name in LEVELS and "log" in ast.unparse(logger).lower()
        case ast.keyword(arg="strict"):  # of zip: an assertion
            return True
    return False


def _ways(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield the changes at a node: the node to replace and the kind of change."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Raise():
            yield node, "drop"
        case ast.AugAssign() | ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield node, "drop"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, "nothing"
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            yield node, "swap"
        case ast.BoolOp():
            yield node, "other"
        case ast.Constant(value=bool() | int()):
            yield node, "constant"
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if not _same_when_swapped(test):
                yield test, "negate"
        case ast.comprehension(ifs=[test]) | ast.match_case(guard=ast.expr() as test):
            if not _same_when_swapped(test):
                yield test, "negate"


def _same_when_swapped(test: ast.expr) -> bool:
    """Return whether another change of a condition negates it already."""
    match test:
        case ast.Compare(ops=[op]):
            return type(op) in SWAPPED and not isinstance(op, ORDER)
        case ast.Constant():
            return True
    return False


def _changed(node: ast.AST, kind: str) -> ast.AST:
    """Return what replaces a node.

    What is left out stays as code that cannot be reached: a name in it remains a variable of the
    same function, and a `yield` in it makes a generator as before.
    """
    match node:
        case ast.stmt() if kind == "drop":
            return ast.If(ast.Constant(False), [node], [])
        case ast.Return(value=ast.expr() as value):
            return ast.Return(ast.IfExp(ast.Constant(False), value, ast.Constant(None)))
        case ast.expr() if kind == "negate":
            return ast.UnaryOp(ast.Not(), node)
        case ast.Compare(ops=[op]):
            return ast.Compare(node.left, [SWAPPED[type(op)]()], node.comparators)
        case ast.BoolOp(op=op):
            return ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values)
        case ast.Constant(value=bool() as flag):
            return ast.Constant(not flag)
        case ast.Constant(value=int() as number):
            return ast.Constant(number + 1)
    raise ValueError(f"no change of kind {kind} for {ast.unparse(node)}")


def _described(node: ast.expr | ast.stmt, kind: str) -> str:
    before = _short(node)
    if kind == "drop":
        return f"left out: {before}"
    if kind == "nothing":
        return f"{before}  ->  return None"
    return f"{before}  ->  {_short(_changed(node, kind))}"


def _short(node: ast.AST) -> str:
    return textwrap.shorten(ast.unparse(node), WIDTH)
