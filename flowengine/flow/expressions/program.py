"""Conversion of the record of an expression into functions that evaluate it.

A record's `node` is a tree of lists, distinguished by their first item:

    ["const", data]                   the data
    ["path", root, [key, ...]]        a path. A key is text, an integer, or [node] if computed
    ["get", node, [key, ...]]         a path into the value of a node
    ["cel", source, {slot: node}]     operators and standard functions of CEL over slots
    ["compare", op, node, data, kind] a comparison with a constant. `kind` is the declared type
    ["and", [node, ...]], ["or", ...] conditions. A deciding one overrides a failed one
    ["not", node]                     the opposite of a condition
    ["call", name, [node, ...]]       a function of `functions`
    ["list", [node, ...]]             a list
    ["map", [[key, node], ...]]       a map, keys sorted. A key is text, or [node]
    ["if", condition, node, node]
    ["null", node, equal]             whether a value is null (`equal`), or is not
    ["type", node, name]              whether a value is a `map`, a `list`, a `string`
    ["has", node]                     whether a path leads to something
    ["default", [node, ...]]          the first that is not null or missing
    ["loop", macro, over, name, [node, ...]]   all, exists, exists_one, filter, map

Only a `cel` node needs the CEL library. Comparisons with constants, and their combinations, are
evaluated here because most conditions consist of these, and a process that only evaluates
conditions then starts without the library. Loops are evaluated here so that the whole list need not
be converted for a body to see its item, so that their cost is counted, and so that maps are never
iterated.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flowengine.flow.expressions import paths
from flowengine.flow.expressions.paths import ABSENT, Missing, NoValue, TooExpensive, name_of
from flowengine.flow.expressions.scope import LoopNames, Run, is_time

if TYPE_CHECKING:
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.evaluator import ReadableNames

Tree = list[Any]


def build(node: Tree) -> Run:
    """Return the function that evaluates a node.

    Args:
        node: See the module docstring.

    Returns:
        A function from names to plain data, or to a time or duration of CEL. It raises `NoValue`.
    """
    return _BUILDERS[node[0]](*node[1:])


def plain(value: Plain) -> Plain:
    """Return a value as plain data, with times and durations as text.

    Args:
        value: The value of a node.

    Returns:
        Plain data.
    """
    if is_time(value):
        from flowengine.flow.expressions.functions import plain_time

        return plain_time(value)
    return value


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


def _type(node: Tree, name: str) -> Run:
    run, wanted = build(node), TYPES[name]
    return lambda names: isinstance(run(names), wanted)


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


def _compare(op: str, node: Tree, constant: Plain, kind: str | None) -> Run:
    """Compare as CEL does: numbers by value. Different types are unequal and have no order."""
    run = build(node)
    compare = _COMPARISONS[op]
    texts = isinstance(constant, str)
    flags = isinstance(constant, bool)
    ordered = op not in {"==", "!="}

    def get(names: ReadableNames) -> Plain:
        value = run(names)
        if isinstance(value, bool):
            alike = flags
        elif isinstance(value, (int, float)):
            alike = not texts and not flags
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise NoValue(f"{shown_as(node)} is an integer beyond 64 bits")
        else:
            alike = texts and isinstance(value, str)
        if alike and not (kind == "integer" and isinstance(value, float)):
            return compare(value, constant)
        if kind is not None:
            raise NoValue(f"{shown_as(node)} is {name_of(value)}, but declared as {KINDS[kind]}")
        if ordered:
            raise NoValue(f"'{op}' does not take {name_of(value)} and {name_of(constant)}")
        return op == "!="

    return get


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
    return lambda names: [plain(run(names)) for run in runs]


def _map(entries: list[list[Any]]) -> Run:
    runs = [(key, build(node)) for key, node in entries]
    if all(isinstance(key, str) for key, _ in runs):
        return lambda names: {key: plain(run(names)) for key, run in runs}
    computed = [(build(key[0]) if isinstance(key, list) else _const(key), run) for key, run in runs]

    def get(names: ReadableNames) -> Plain:
        values: dict[str, Plain] = {}
        for key_of, run in computed:
            key = key_of(names)
            if not isinstance(key, str):
                raise NoValue(f"the keys of a map must be text, not {name_of(key)}")
            if key in values:
                raise NoValue(f"a map has the key '{key}' twice")
            values[key] = plain(run(names))
        return {key: values[key] for key in sorted(values)}

    return get


def _call(name: str, arguments: list[Tree]) -> Run:
    from flowengine.flow.expressions.functions import FUNCTIONS

    function = FUNCTIONS[name]
    runs = [build(node) for node in arguments]

    def call(names: ReadableNames) -> Plain:
        values = [run(names) for run in runs]
        if isinstance(names, LoopNames) and name != "size":
            for value in values:
                names.budget.charge_value(value)
        return function(*values)

    return call


_TWO_INTEGERS = re.compile(r"([iy]\d+) (<=|>=|==|!=|<|>|\+|-|\*) ([iy]\d+|\d{1,18})")
_OPERATORS: dict[str, Callable[[int, int], Plain]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def _cel(source: str, slots: dict[str, Tree]) -> Run:
    """Return operators: those of two integers are evaluated here, all others by the library."""
    run = _by_library(source, slots)
    match = _TWO_INTEGERS.fullmatch(source)
    if match is None:
        return run
    first, word, second = match.groups()
    left = build(slots[first])
    right = _const(int(second)) if second.isdigit() else build(slots[second])
    operate = _OPERATORS[word]

    def fast(names: ReadableNames) -> Plain:
        try:
            one, other = left(names), right(names)
        except NoValue:
            return run(names)
        if type(one) is int is type(other) and not isinstance(names, LoopNames):
            value = operate(one, other)
            if _LEAST <= one <= _MOST and _LEAST <= other <= _MOST and _LEAST <= value <= _MOST:
                return value
        return run(names)

    return fast


_LEAST, _MOST = -(2**63), 2**63 - 1
"""The range of CEL's integers."""


def _by_library(source: str, slots: dict[str, Tree]) -> Run:
    """Return operators that the library compiles when they are first evaluated."""
    compiled: Run | None = None

    def run(names: ReadableNames) -> Plain:
        nonlocal compiled
        if compiled is None:
            from flowengine.flow.expressions import cel

            shown = {slot: shown_as(node) for slot, node in slots.items()}
            runs = {slot: build(node) for slot, node in slots.items()}
            compiled = cel.program(source, runs, shown)
        return compiled(names)

    return run


def _budget(names: ReadableNames) -> Any:
    """Return the budget of an evaluation: a loop's, or a new one."""
    if isinstance(names, LoopNames):
        return names.budget
    from flowengine.flow.expressions.budget import EvaluationBudget

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
            value = plain(runs[-1](scope))
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

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

KINDS = {
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "string": "text",
}

TYPES: dict[str, type] = {"list": list, "map": dict, "string": str}
"""The types that are distinguished here, by their names in CEL."""

_BUILDERS: dict[str, Callable[..., Run]] = {
    "and": lambda nodes: _decide(nodes, wanted=False),
    "or": lambda nodes: _decide(nodes, wanted=True),
    "not": _not,
    "compare": _compare,
    "call": _call,
    "cel": _cel,
    "const": _const,
    "default": _default,
    "get": _get,
    "has": _has,
    "if": _if,
    "list": _list,
    "loop": _loop,
    "map": _map,
    "null": _null,
    "path": _path,
    "type": _type,
}
