"""Conversion of the record of an expression into functions that evaluate it.

A record's `node` is a tree of lists, distinguished by their first item:

    ["const", data]                   the data
    ["path", root, [key, ...]]        a path. A key is text, an integer, or [node] if computed
    ["get", node, [key, ...]]         a path into the value of a node
    ["op", name, [node, ...]]         an operator or a standard function of CEL
    ["as", node, kind, items]         a value of the flow of a declared type: an operand
    ["and", [node, ...]], ["or", ...] conditions. A deciding one overrides a failed one
    ["not", node]                     the opposite of a condition
    ["call", name, [node, ...]]       a function of `functions`
    ["list", [node, ...]]             a list
    ["map", [[key, node], ...]]       a map, keys sorted. A key is text, or [node]
    ["if", condition, node, node]
    ["null", node, equal]             whether a value is null (`equal`), or is not
    ["has", node]                     whether a path leads to something
    ["default", [node, ...]]          the first that is not null or missing
    ["loop", macro, over, name, [node, ...]]   all, exists, exists_one, filter, map

Operators import their modules when an expression with one is first evaluated. In loops, their
cost is counted. Maps are never iterated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowengine.flow.expressions import paths
from flowengine.flow.expressions.bounds import within
from flowengine.flow.expressions.functions import (
    FUNCTIONS,
    KINDS,
    EvaluationBudget,
    converted,
    items_converted,
    leave,
)
from flowengine.flow.expressions.operators import OPERATIONS, STANDARD_FUNCTIONS, WrongTypes
from flowengine.flow.expressions.paths import ABSENT, Missing, NoValue, TooExpensive, name_of
from flowengine.flow.expressions.scope import LoopNames, Run, Tree
from flowengine.flow.expressions.texts import TEXT_FUNCTIONS
from flowengine.kernel.graph.compiled import Plain, ReadableNames


def build(node: Tree) -> Run:
    """Return the function that evaluates a node.

    Args:
        node: See the module docstring.

    Returns:
        A function from names to plain data that may contain times and durations of CEL. It raises
        `NoValue`.
    """
    return _BUILDERS[node[0]](*node[1:])


def shown_as(node: Tree) -> str:
    """Return the name of a node in messages.

    Args:
        node: See the module docstring.

    Returns:
        A path in the notation of the language, the name of a function, or `a value`.
    """
    if node[0] == "path":
        return paths.written(node[1], node[2])
    return f"{node[1]}(…)" if node[0] in {"call", "loop"} else "a value"


def _const(data: Plain) -> Run:
    return lambda names: data


def _path(root: str, keys: list[Any]) -> Run:
    if all(isinstance(key, str) for key in keys):
        return paths.of_names(root, keys)
    if not any(isinstance(key, list) for key in keys):
        return lambda names: paths.follow(names, root, keys)
    computed = [build(key[0]) if isinstance(key, list) else None for key in keys]

    def get(names: ReadableNames) -> Plain:
        problems = [
            key if run is None else run(names) for key, run in zip(keys, computed, strict=True)
        ]
        return paths.follow(names, root, problems)

    return get


def _get(base: Tree, keys: list[Any]) -> Run:
    """Return a path into a value: `inner(base)[i].name`."""
    run = build(base)
    rest = _path("value", keys)

    def get(names: ReadableNames) -> Plain:
        value = run(names)
        return rest(LoopNames(names, "value", value, _budget(names)))

    return get


def _lenient(node: Tree) -> Run:
    """Return a function that returns `ABSENT` if a path leads to nothing."""
    run = build(node)
    if node[0] not in {"path", "get"}:
        return run

    def get(names: ReadableNames) -> Plain:
        try:
            return run(names)
        except Missing:
            return ABSENT

    return get


def _has(node: Tree) -> Run:
    run = _lenient(node)
    return lambda names: run(names) is not ABSENT


def _default(nodes: list[Tree]) -> Run:
    runs = [_lenient(node) for node in nodes]

    def get(names: ReadableNames) -> Plain:
        for run in runs:
            value = run(names)
            if value is not None and value is not ABSENT:
                return value
        return None

    return get


def _null(node: Tree, equal: bool) -> Run:
    run = build(node)
    return lambda names: (run(names) is None) is equal


def _if(condition: Tree, yes: Tree, no: Tree) -> Run:
    test, then, otherwise = build(condition), build(yes), build(no)
    return lambda names: then(names) if truth(test(names)) else otherwise(names)


def truth(value: Plain) -> bool:
    """Return the value of a condition.

    Args:
        value: Its result.

    Returns:
        The same value.

    Raises:
        NoValue: The result is not true or false.
    """
    if value is True or value is False:
        return bool(value)
    raise NoValue(f"a condition must be true or false, not {name_of(value)}")


def _decide(nodes: list[Tree], wanted: bool) -> Run:
    """Return `&&` (`wanted` is false) or `||` of conditions."""
    runs = [build(node) for node in nodes]

    def get(names: ReadableNames) -> Plain:
        failure: NoValue | None = None
        for run in runs:
            try:
                if truth(run(names)) is wanted:
                    return wanted
            except TooExpensive:
                raise
            except NoValue as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return not wanted

    return get


def _not(node: Tree) -> Run:
    run = build(node)
    return lambda names: not truth(run(names))


def _list(nodes: list[Tree]) -> Run:
    runs = [build(node) for node in nodes]
    return lambda names: [run(names) for run in runs]


def _map(entries: list[list[Any]]) -> Run:
    runs = [(key, build(node)) for key, node in entries]
    if all(isinstance(key, str) for key, _ in runs):
        return lambda names: {key: run(names) for key, run in runs}
    computed = [(build(key[0]) if isinstance(key, list) else _const(key), run) for key, run in runs]

    def get(names: ReadableNames) -> Plain:
        values: dict[str, Plain] = {}
        for key_of, run in computed:
            key = key_of(names)
            if not isinstance(key, str):
                raise NoValue(f"the keys of a map must be text, not {name_of(key)}")
            if key in values:
                raise NoValue(f"a map has the key '{key}' twice")
            values[key] = run(names)
        return {key: values[key] for key in sorted(values)}

    return get


def _call(name: str, arguments: list[Tree]) -> Run:
    function = FUNCTIONS[name]
    runs = [build(node) for node in arguments]

    def call(names: ReadableNames) -> Plain:
        values = [run(names) for run in runs]
        if isinstance(names, LoopNames) and name != "size":
            for value in values:
                names.budget.charge_value(value)
        return within(function(*values))

    return call


def _operands(nodes: list[Tree]) -> list[Run]:
    """Return functions for the operands of an operator.

    Among these, operators may return values invalid elsewhere: infinity, unsigned integers.
    """
    return [_INNER[node[0]](node) if node[0] in _INNER else build(node) for node in nodes]


def _inner_if(node: Tree) -> Run:
    test, then, otherwise = _operands(node[1:])
    return lambda names: then(names) if truth(test(names)) else otherwise(names)


def _inner_list(node: Tree) -> Run:
    runs = _operands(node[1])
    return lambda names: [run(names) for run in runs]


def _operation(name: str, nodes: list[Tree]) -> Run:
    """Return an operator or a standard function of CEL."""
    function: Callable[..., Plain] = (
        OPERATIONS.get(name) or STANDARD_FUNCTIONS.get(name) or TEXT_FUNCTIONS[name]
    )
    runs = _operands(nodes)

    def applied(values: list[Plain]) -> Plain:
        try:
            return within(function(*values))
        except WrongTypes:
            raise _refusal(name, nodes, values) from None

    def of_any(names: ReadableNames) -> Plain:
        values = [run(names) for run in runs]
        return _charged(names, applied, values) if isinstance(names, LoopNames) else applied(values)

    if len(runs) != 2:
        return of_any
    one, other = runs
    constant = nodes[1][1] if nodes[1][0] == "const" else ABSENT

    def of_two(names: ReadableNames) -> Plain:
        left, right = one(names), other(names) if constant is ABSENT else constant
        if isinstance(names, LoopNames):
            return _charged(names, applied, [left, right])
        try:
            value = function(left, right)
        except WrongTypes:
            raise _refusal(name, nodes, [left, right]) from None
        return value if type(value) in _SMALL else within(value)

    return of_two


def _charged(
    names: LoopNames, applied: Callable[[list[Plain]], Plain], values: list[Plain]
) -> Plain:
    """Evaluate an operator in a loop, which costs more the larger its values are."""
    result = applied(values)
    names.budget.charge(1)
    for value in (*values, result):
        if type(value) not in _SMALL:
            names.budget.charge_value(value)
    return result


def _refusal(name: str, nodes: list[Tree], values: list[Plain]) -> NoValue:
    """Return the error of operands whose types an operator does not take."""
    bare = [node[1] if node[0] == "as" else node for node in nodes]
    named = [
        (shown_as(node), value)
        for node, value in zip(bare, values, strict=True)
        if node[0] not in {"const", "op"}
    ]
    for shown, value in named:
        if type(value) is int and not -(2**63) <= value < 2**63:
            return NoValue(f"{shown} is an integer beyond 64 bits")
    if name in _ORDERINGS and "const" in [node[0] for node in bare]:
        return NoValue(f"'{name}' does not take {' and '.join(map(name_of, values))}")
    why = ", ".join(dict.fromkeys(f"{shown} is {name_of(value)}" for shown, value in named))
    return NoValue(f"'{name}' does not take values of these types{why and f': {why}'}")


def _leaving(name: str, nodes: list[Tree]) -> Run:
    """Return an operator whose result is used by something else than an operator."""
    run = _operation(name, nodes)
    if name in _TESTS:
        return run

    def leaving(names: ReadableNames) -> Plain:
        value = run(names)
        return value if type(value) in _AT_ONCE else leave(value)

    return leaving


def _as(node: Tree, kind: str, items: str | None = None) -> Run:
    """Return an operand whose type is declared."""
    run, wanted = build(node), KINDS[kind]

    def get(names: ReadableNames) -> Plain:
        value = run(names)
        return value if type(value) is wanted else converted(value, kind, shown_as(node))

    if items is None:
        return get
    return lambda names: items_converted(get(names), items, shown_as(node))


def _budget(names: ReadableNames) -> Any:
    """Return the budget of an evaluation: a loop's, or a new one."""
    if isinstance(names, LoopNames):
        return names.budget

    return EvaluationBudget()


def _loop(macro: str, over: Tree, name: str, bodies: list[Tree]) -> Run:
    items_of = build(over)
    runs = [build(body) for body in bodies]
    loop = _LOOPS[macro]

    def run(names: ReadableNames) -> Plain:
        items = items_of(names)
        if not isinstance(items, list):
            hint = ". Iterate keys(…) or entries(…)" if isinstance(items, dict) else ""
            raise NoValue(f"{macro}() goes over a list, not {name_of(items)}{hint}")
        budget = _budget(names)
        budget.charge(len(items))
        value = loop(items, LoopNames(names, name, None, budget), runs)
        if macro == "map":
            budget.weigh(value)
        return value

    return run


def _filter(items: list[Plain], scope: LoopNames, runs: list[Run]) -> Plain:
    kept = []
    for item in items:
        scope.value = item
        if truth(runs[0](scope)):
            kept.append(item)
    return kept


def _mapped(items: list[Plain], scope: LoopNames, runs: list[Run]) -> Plain:
    """Evaluate `map(x, value)`, or `map(x, condition, value)`."""
    entries = []
    for item in items:
        scope.value = item
        if len(runs) == 1 or truth(runs[0](scope)):
            value = runs[-1](scope)
            if isinstance(value, str):
                scope.budget.charge_value(value)
            entries.append(value)
    return entries


def _any(items: list[Plain], scope: LoopNames, runs: list[Run], wanted: bool = True) -> Plain:
    """Evaluate `exists` or `all`.

    One `wanted` result decides, otherwise the first failure counts.
    """
    failure: NoValue | None = None
    for item in items:
        scope.value = item
        try:
            if truth(runs[0](scope)) is wanted:
                return wanted
        except TooExpensive:
            raise
        except NoValue as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return not wanted


def _all(items: list[Plain], scope: LoopNames, runs: list[Run]) -> Plain:
    return _any(items, scope, runs, wanted=False)


def _exactly_one(items: list[Plain], scope: LoopNames, runs: list[Run]) -> Plain:
    return len(_filter(items, scope, runs)) == 1


_LOOPS: dict[str, Callable[[list[Plain], LoopNames, list[Run]], Plain]] = {
    "all": _all,
    "exists": _any,
    "exists_one": _exactly_one,
    "filter": _filter,
    "map": _mapped,
}

_AT_ONCE = frozenset([str, bool, int])
_SMALL = _AT_ONCE - {str} | {float}
_ORDERINGS = frozenset(["<", "<=", ">", ">="])
_TESTS = _ORDERINGS | {"==", "!=", "in"}

_INNER: dict[str, Callable[[Tree], Run]] = {
    "if": _inner_if,
    "list": _inner_list,
    "op": lambda node: _operation(*node[1:]),
}
"""Nodes that pass on the values of operators inside them."""

_BUILDERS: dict[str, Callable[..., Run]] = {
    "and": lambda nodes: _decide(nodes, wanted=False),
    "or": lambda nodes: _decide(nodes, wanted=True),
    "not": _not,
    "as": _as,
    "call": _call,
    "const": _const,
    "default": _default,
    "get": _get,
    "has": _has,
    "if": _if,
    "list": _list,
    "loop": _loop,
    "map": _map,
    "null": _null,
    "op": _leaving,
    "path": _path,
}
