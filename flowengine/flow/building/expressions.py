"""Expressions of a flow written with Python's own operators.

    cel.inputs.amount > 500            →  ${{ inputs.amount > 500 }}
    f"Refund {cel.inputs.amount} EUR"  →  Refund ${{ inputs.amount }} EUR
    cel.size(fetch.output.lines)       →  ${{ size(steps.fetch.output.lines) }}

Nothing is computed here: an operator builds text. Constructs that Python evaluates immediately -
`if`, `and`, `in` - raise an error instead of having another meaning.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from flowengine.sdk.python.argument_checks import check_kind

ATOM = 9
"""Precedence of names, calls and literals. Lower numbers bind less tightly."""
TERNARY, OR, AND, RELATION, SUM, PRODUCT, UNARY = 1, 2, 3, 4, 5, 6, 7


class Expr:
    """An expression in CEL. Comparing, combining or indexing it returns longer expressions.

    Attributes are fields: `order.total` is `order.total`. A call is a call in CEL:
    `name.startsWith("A")`. In an f-string it is inserted as `${{ … }}`.

    Args:
        text: The expression, without `${{ }}`.
        binding: Precedence of its outermost operator, for parentheses.
    """

    __slots__ = ("_binding", "_text")
    _text: str
    _binding: int

    def __init__(self, text: str, binding: int = ATOM) -> None:
        object.__setattr__(self, "_text", text)
        object.__setattr__(self, "_binding", binding)

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return Expr(f"{_operand(self, ATOM)}.{name}")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise TypeError(f"'{self._text}.{name}' cannot be assigned. Steps write state with 'set'")

    def __getitem__(self, key: Any) -> Expr:
        return Expr(f"{_operand(self, ATOM)}[{_operand(key, 0)}]")

    def __call__(self, *arguments: Any) -> Expr:
        """Return a call of the function or method with this name."""
        return Expr(f"{self._text}({', '.join(_operand(argument, 0) for argument in arguments)})")

    def __str__(self) -> str:
        return f"${{{{ {self._text} }}}}"

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(
                "a format is not supported here: format in the expression, or in a tool"
            )
        return str(self)

    def __repr__(self) -> str:
        return f"<expression {self._text}>"

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self!r} has its items only when the flow runs: use 'map' or for_each")

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is true or false only when the flow runs, not while it is built. "
            "Write & | ~ for and, or, not, put each comparison in parentheses, and write "
            "x.in_(list) for 'in'"
        )

    def __contains__(self, item: Any) -> NoReturn:
        raise TypeError("write x.in_(list): Python would decide 'in' while the flow is built")

    def in_(self, items: Any) -> Expr:
        """Return whether this is one of the items of a list, or a key of a map.

        Args:
            items: A list, a map, or an expression that returns one.

        Returns:
            The condition.
        """
        return _binary(self, "in", items, RELATION)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary(self, "==", other, RELATION)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary(self, "!=", other, RELATION)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> Expr:
        return _binary(self, "<", other, RELATION)

    def __le__(self, other: Any) -> Expr:
        return _binary(self, "<=", other, RELATION)

    def __gt__(self, other: Any) -> Expr:
        return _binary(self, ">", other, RELATION)

    def __ge__(self, other: Any) -> Expr:
        return _binary(self, ">=", other, RELATION)

    def __and__(self, other: Any) -> Expr:
        return _binary(self, "&&", other, AND)

    def __or__(self, other: Any) -> Expr:
        return _binary(self, "||", other, OR)

    def __invert__(self) -> Expr:
        return Expr(f"!{_operand(self, UNARY)}", UNARY)

    def __neg__(self) -> Expr:
        return Expr(f"-{_operand(self, ATOM)}", UNARY)

    def __add__(self, other: Any) -> Expr:
        return _binary(self, "+", other, SUM)

    def __radd__(self, other: Any) -> Expr:
        return _binary(other, "+", self, SUM)

    def __sub__(self, other: Any) -> Expr:
        return _binary(self, "-", other, SUM)

    def __rsub__(self, other: Any) -> Expr:
        return _binary(other, "-", self, SUM)

    def __mul__(self, other: Any) -> Expr:
        return _binary(self, "*", other, PRODUCT)

    def __rmul__(self, other: Any) -> Expr:
        return _binary(other, "*", self, PRODUCT)

    def __truediv__(self, other: Any) -> Expr:
        return _binary(self, "/", other, PRODUCT)

    def __rtruediv__(self, other: Any) -> Expr:
        return _binary(other, "/", self, PRODUCT)

    def __mod__(self, other: Any) -> Expr:
        return _binary(self, "%", other, PRODUCT)


def _binary(left: Any, operator: str, right: Any, binding: int) -> Expr:
    """Return an operation, with the right operand in parentheses if it has the same precedence."""
    text = f"{_operand(left, binding)} {operator} {_operand(right, binding + 1)}"
    return Expr(text, binding)


def _operand(value: Any, binding: int) -> str:
    """Return a value as an operand, in parentheses if its precedence is lower than `binding`."""
    if isinstance(value, Expr):
        return value._text if value._binding >= binding else f"({value._text})"
    if value is None or isinstance(value, bool | int | float | str):
        return json.dumps(value) if not isinstance(value, str) else _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_operand(item, 0) for item in value)}]"
    if isinstance(value, dict):
        entries = (f"{_operand(key, 0)}: {_operand(entry, 0)}" for key, entry in value.items())
        return f"{{{', '.join(entries)}}}"
    raise TypeError(f"{value!r} cannot be part of an expression: give text, numbers, lists or maps")


def _text(value: str) -> str:
    """Return a text as a CEL literal in single quotes, which YAML double quotes can contain."""
    quoted = json.dumps(value, ensure_ascii=False)[1:-1].replace('\\"', '"')
    return "'" + quoted.replace("'", "\\'") + "'"


class Cel:
    """Every name and function of the expression language: `cel.inputs`, `cel.item`, `cel.size(x)`.

    Called with a text it is that expression: `cel("inputs.lines.all(l, size(l) < 80)")`.
    """

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return Expr(name)

    def __call__(self, text: str) -> Expr:
        """Return an expression given as text.

        Args:
            text: CEL, without `${{ }}`.

        Returns:
            The expression, which is put in parentheses inside a longer one.
        """
        check_kind("text", text, str)
        return Expr(text, 0)


cel = Cel()
"""The names and functions available in expressions."""
