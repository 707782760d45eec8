"""The library's complaints, in the terms of the flow language."""

from __future__ import annotations

import re
from typing import NamedTuple

from flowengine.flow.expressions.cel import Complaint, operator_words
from flowengine.flow.expressions.fragment import Fragment
from flowengine.flow.expressions.syntax import MAX_DEPTH
from flowengine.flow.expressions.syntax_tree import Binary, Node

_OVERLOAD = re.compile(r"found no matching overload for '(.+)' applied to '(.*)'$")
_METHOD = re.compile(r"(.*)\.\((.*)\)")
_COMPARISONS = frozenset(["==", "!=", "<", "<=", ">", ">=", "in"])
_NUMBERS = frozenset(["int", "double", "uint"])
_TIMES = frozenset([
    "timestamp", "google.protobuf.Timestamp", "duration", "google.protobuf.Duration"
])  # fmt: skip
_WORDS = {
    "int": "an integer",
    "uint": "an unsigned integer",
    "double": "a number",
    "string": "text",
    "bool": "true or false",
    "bytes": "bytes",
    "null_type": "null",
    "null": "null",
    "timestamp": "a time",
    "google.protobuf.Timestamp": "a time",
    "duration": "a duration",
    "google.protobuf.Duration": "a duration",
    "dyn": "a value",
}

CONDITION = "a condition must be true or false, not "
TEXT_PART = "a part of a text must be text, a number, or true or false, not "
CONDITION_HINTS = {
    "string": "compare it: … != ''",
    "integer": "compare it: … != 0",
    "number": "compare it: … > 0.0",
    "array": "compare its size: size(…) > 0",
    "object": "compare its size: size(…) > 0",
    "null": "compare it: … != null",
}


class Wording(NamedTuple):
    """A complaint in the terms of the flow language."""

    code: str
    node: Node
    message: str
    hint: str | None


def sort_out(complaints: list[Complaint], fragment: Fragment) -> tuple[set[int], list[Complaint]]:
    """Separate comparisons of integers with numbers, which are allowed, from other complaints.

    Args:
        complaints: The complaints of the library.
        fragment: The text that it checked.

    Returns:
        The positions of such comparisons, and the other complaints.
    """
    allowed: set[int] = set()
    rest = []
    for complaint in complaints:
        node = fragment.origin(complaint.offset)
        if isinstance(node, Binary) and node.op in _COMPARISONS and _both_numbers(complaint):
            allowed.add(node.at)
        else:
            rest.append(complaint)
    return allowed, rest


def _both_numbers(complaint: Complaint) -> bool:
    """Return whether the operands are numbers, or a number and a list of numbers."""
    types = _operands(complaint)
    plain = [re.sub(r"^list\((\w+)\)$", r"\1", name) for name in types]
    return len(types) == 2 and set(plain) <= _NUMBERS


def _operands(complaint: Complaint) -> list[str]:
    """Return the operand types of an operator or function."""
    match = _OVERLOAD.search(complaint.message)
    if match is None:
        return []
    text = match[2]
    method = _METHOD.fullmatch(text)
    inner = f"{method[1]}, {method[2]}" if method else text.removeprefix("(").removesuffix(")")
    return _split(inner)


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts: list[str] = []
    depth = start = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [part for part in [*parts, text[start:].strip()] if part]


def _word(name: str) -> str:
    """Return the name of one of the library's types."""
    if name.startswith("list("):
        return "a list"
    if name.startswith("map("):
        return "a map"
    return _WORDS.get(name, name)


def in_words(complaint: Complaint, node: Node) -> Wording:
    """Return the problem and its remedy.

    Args:
        complaint: The complaint of the library.
        node: The tree that it is about.

    Returns:
        The problem.
    """
    message = complaint.message
    if "recursion" in message:
        text = f"the expression has more than {MAX_DEPTH} levels, or operators in a row"
        hint = "compute parts of it in separate steps, or join() a list of texts"
        return Wording("E302", node, text, hint)
    match = _OVERLOAD.search(message)
    if match is None:
        code = "E302" if "yntax" in message or "literal" in message else "E311"
        return Wording(code, node, message, None)
    types = _operands(complaint)
    if match[1] == "_?_:_":
        both = " and ".join(map(_word, types[1:]))
        text = f"the values of '?:' have different types: {both}"
        return Wording("E311", node, text, "write dyn(…) around one of them")
    shown = " and ".join(map(_word, types)) or "nothing"
    name = operator_words(match[1])
    return Wording("E311", node, f"{name} does not take {shown}", _hint(match[1], types))


def _hint(operator: str, types: list[str]) -> str | None:
    """Return a hint on how to combine operands of these types."""
    kinds = set(types)
    if len(types) == 2 and kinds <= _NUMBERS and "double" in kinds:
        return "make both numbers: write 2.0 for 2, or double(n)"
    if operator == "_+_" and "string" in kinds and kinds & (_NUMBERS | {"bool"}):
        return "write string(…) around values that are not text"
    if "string" in kinds and kinds & _TIMES:
        return "write timestamp(…) around the text"
    if "string" in kinds and kinds & _NUMBERS:
        return "write int(…) or double(…) around the text, or quotes around the number"
    if operator in {"_&&_", "_||_", "!_"}:
        return "a condition is true or false: compare the value with something"
    return None
