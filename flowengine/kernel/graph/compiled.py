"""The compiled flow, which the kernel runs, its values, and the port to the evaluator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

# The compiled flow, which the kernel runs.
#
# A compiled flow has two forms. The *plain* form (`CompiledFlow` in `specs.py`: nested dicts and
# lists of JSON-like data) is written by the compiler, hashed, and stored next to an execution. The
# *linked* form (`Graph`, `Body`, `Node` in `linked.py`) is created from it when an execution is
# loaded. Steps are linked when control reaches them, so the cost of loading depends on the steps
# that run rather than on the size of the flow. This module has the parts that both forms use.
#
# A *value* is a small tree that may contain expressions:
#
#     ["const", data]                  the data itself
#     ["expr", i]                      the value of expression i, with its type
#     ["path", [str, ...]]             a value that generated flows name: a root, and keys in it
#     ["text", [str | int, ...]]       text, with expressions given by their numbers
#     ["list", [value, ...]]           a list of values
#     ["map", {key: value}]            a map of values
#     ["secret", [str | int | [name], ...]]   text that names secrets, see `SecretText`
#     ["with", [args, value]]          a value whose expressions read the first one as `args`
#     ["arguments", [given, fixed, names]]   the first map, extended by the second one. It is an
#                                      error if the first map has one of the names (a list)
#     ["given", [name, ...]]           a part of the input from the step that runs this flow,
#                                      evaluated again in the place of that step
#
# A *condition* is the number of an expression whose value is a bool.

FORMAT = 1
"""The version of compiled flows, events and states. It is increased by each change that gives
stored data another meaning: for example, if `State.last` counted records in another order, an event
would refer to a different unit than before. Any other format is rejected."""

END = -1
"""Target of an edge: this token ends."""
END_ALL = -2
"""Target of an edge: the enclosing scope ends, successfully."""
START = -1
"""Source of an edge: the start of the scope."""
TRIGGER = -2
"""Source of an edge: the step's own trigger."""

OPENING = "environments"
"""Kind and name of the hidden step that opens the initial environments of a flow."""

Value = list[Any]
Condition = int
Plain = Any
"""JSON-like data plus bytes: None, bool, int, float, str, bytes, list, dict with text keys."""


class SecretText:
    """Text that names secrets, in an evaluated input.

    Only the process that performs a side effect resolves it to text. It deliberately is not plain
    data: no value from a model, a tool or a file can imitate it, and it cannot be stored.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: list[str | list[str]]) -> None:
        self.parts = parts
        """Text, or a list with the name of one secret."""

    def __repr__(self) -> str:
        return "SecretText(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretText) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(str(self.parts))


class OtherFormat(Exception):
    """The format of a flow or of the state of an execution is not supported by this kernel.

    Args:
        version: Its format.
    """

    def __init__(self, version: object) -> None:
        super().__init__(
            f"it has format {version}, but this version of flowengine runs format {FORMAT}"
        )


def check_format(version: object) -> None:
    """Reject stored data in another format.

    Args:
        version: The `format` of a compiled flow or of a state.

    Raises:
        OtherFormat: This kernel does not support the format.
    """
    if version != FORMAT:
        raise OtherFormat(version)


class EvaluationError(Exception):
    """An expression that has no value: `ExpressionError` in a flow.

    Args:
        message: The problem, with its position in the file.
        data: `{file, line, column, source}` where known.
    """

    def __init__(self, message: str, data: Plain = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


# The port to the evaluator of expressions.


class ReadableNames(Protocol):
    """The names that an expression can read, by root: `names["inputs"]`, `names["steps"]`, ..."""

    def __getitem__(self, root: str, /) -> Plain:
        """Return the value of a root name.

        Raises:
            KeyError: The root is not visible here.
        """


class Evaluator(Protocol):
    """Evaluates expressions. Implemented by `flowengine.flow.expressions`.

    It is pure: the same expression and names have the same value on every machine.
    """

    def evaluate(self, expression: int, names: ReadableNames) -> Plain:
        """Return the value of expression number `expression`.

        Raises:
            EvaluationError: The expression has no value here.
        """

    def text(self, value: Plain, expression: int) -> str:
        """Return a value as text in a template.

        Raises:
            EvaluationError: The value is a list or a map.
        """

    def composed(self, value: Plain, tree: Value) -> Plain:
        """Return a list, a map or a text with the values of several expressions.

        Raises:
            EvaluationError: It is too large.
        """


# Compiled values: preparation when their step is linked, secrets in them, and digests.
#
# Texts that name secrets are removed from plain data for storage, and inserted again for use.

Make = Callable[[ReadableNames], Plain]


def maker(evaluator: Evaluator, value: Value) -> Make | None:
    """Return a function that evaluates a value of constants, expressions, lists and maps.

    None for other values. The function has the same result as `names.evaluate`.

    Args:
        evaluator: Evaluates its expressions.
        value: See `graph`.
    """
    tag, content = value
    if tag == "const":
        return lambda names: content
    if tag == "expr":
        return partial(evaluator.evaluate, content)
    if tag == "path":
        return partial(at_path, content)
    if tag not in {"list", "map"}:
        return None
    parts = _all(evaluator, content if tag == "list" else content.values())
    make = None if parts is None else _list(parts) if tag == "list" else _map(list(content), parts)
    if make is None or len(content) < 2:
        return make
    return lambda names: evaluator.composed(make(names), value)


def at_path(path: list[str], names: Any) -> Plain:
    """Return the value at a path of names.

    Args:
        path: A root, and keys in it.
        names: As an evaluator receives them.

    Raises:
        EvaluationError: There is none.
    """
    root, key, *rest = path
    try:
        value = names.variable(key) if root == "state" else names[root][key]
        for key in rest:
            value = value[key]
    except (KeyError, TypeError):
        raise EvaluationError(f"{'.'.join(path)} has no value") from None
    return value


def holds_secret(value: Value) -> bool:
    """Return whether a value names a secret anywhere.

    Args:
        value: See `graph`.
    """
    pending = [value]
    while pending:
        tag, content = pending.pop()
        if tag == "secret":
            return True
        if tag == "map":
            pending.extend(content.values())
        elif tag in {"list", "with"}:
            pending.extend(content)
        elif tag == "arguments":
            pending.extend(content[:2])  # the third part contains names
    return False


def _all(evaluator: Evaluator, values: Iterable[Value]) -> list[Make] | None:
    makers = [maker(evaluator, value) for value in values]
    made = [make for make in makers if make is not None]
    return made if len(made) == len(makers) else None


def _list(parts: list[Make]) -> Make:
    return lambda names: [make(names) for make in parts]


def _map(keys: list[str], parts: list[Make]) -> Make:
    if len(keys) == 1:
        [key], [only] = keys, parts
        return lambda names: {key: only(names)}
    pairs = list(zip(keys, parts, strict=True))
    return lambda names: {key: make(names) for key, make in pairs}


def masked(value: Plain) -> Plain:
    """Return a value for display, with secrets masked."""
    if isinstance(value, SecretText):
        return "".join([part if isinstance(part, str) else "***" for part in value.parts])
    if isinstance(value, dict):
        return {key: masked(part) for key, part in value.items()}
    return [masked(part) for part in value] if isinstance(value, list) else value


_LONGEST = 60
"""Characters of a text in `telling`."""
_JOINERS = "\u200c\u200d"
"""Invisible characters in Arabic words and emoji."""
_SECRET = re.compile("password|passwd|secret|token|credential|api_?key", re.IGNORECASE)


def telling(values: Mapping[str, Plain]) -> Iterator[tuple[str, Plain]]:
    """Yield the values by which users recognize an execution or a call.

    Texts are on one line, shortened, and without characters that could disguise them.

    Args:
        values: Name → value. Lists, maps and those whose name is that of a secret are left out.
    """
    for name, value in values.items():
        shown = _line(value) if isinstance(value, str) else value
        if isinstance(shown, str | int | float) and shown != "" and not _SECRET.search(name):
            yield name, shown


def _line(text: str) -> str:
    shown = [char for char in text if char.isprintable() or char.isspace() or char in _JOINERS]
    line = " ".join("".join(shown).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def split_secrets(value: Plain, path: list[Any], secrets: list[Plain]) -> Plain:
    """Return a value with None for each text that names a secret, and add these to `secrets`."""
    if isinstance(value, SecretText):
        secrets.append([path, value.parts])
        return None
    if isinstance(value, dict):
        return {k: split_secrets(v, [*path, k], secrets) for k, v in value.items()}
    if isinstance(value, list):
        return [split_secrets(v, [*path, i], secrets) for i, v in enumerate(value)]
    return value


def join_secrets(value: Plain, secrets: list[Plain]) -> Plain:
    """Return a copy of a value with the texts that name secrets in their places."""
    for path, parts in secrets:
        value = put_at(value, path, SecretText(parts))
    return value


def put_at(value: Plain, path: list[Any], leaf: Plain) -> Plain:
    """Return a copy of nested data with `leaf` at `path`."""
    if not path:
        return leaf
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put_at(copy[path[0]], path[1:], leaf)
    return copy


def digest(value: Plain) -> str:
    """Return the SHA-256 of a value in its canonical form, in hexadecimal digits.

    Different values have different forms: `1` and `1.0`, bytes and any text, the reference to a
    secret and any map. The order of the keys of a map does not matter.
    """
    import hashlib
    import json

    text = json.dumps(_canonical(value), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {"map": [[key, _canonical(value[key])] for key in sorted(value)]}
    if isinstance(value, list):
        return [_canonical(part) for part in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return {"secret": value.parts} if isinstance(value, SecretText) else value
