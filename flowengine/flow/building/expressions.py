"""Expressions of a flow written with Python's own operators.

    cel.inputs.amount > 500            →  ${{ inputs.amount > 500 }}
    f"Refund {cel.inputs.amount} EUR"  →  Refund ${{ inputs.amount }} EUR
    cel.size(fetch.output.lines)       →  ${{ size(steps.fetch.output.lines) }}

Nothing is computed here: an operator writes text. What Python would have to decide at once - `if`,
`and`, `in` - raises instead of meaning something else.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

ATOM = 9
"""Binding of names, calls and literals; lower numbers bind less."""
TERNARY, OR, AND, RELATION, SUM, PRODUCT, UNARY = 1, 2, 3, 4, 5, 6, 7


class Expr:
    """An expression in CEL; compared, combined and indexed it gives longer ones.

    Attributes are fields: `order.total` is `order.total`. A call is one in CEL:
    `name.startsWith("A")`. In an f-string it stands as `${{ … }}`.

    Args:
        text: The expression, without `${{ }}`.
        binding: How closely its outermost operator binds, for brackets.
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
        raise TypeError(f"'{self._text}.{name}' cannot be written; steps write state with 'set'")

    def __getitem__(self, key: Any) -> Expr:
        return Expr(f"{_operand(self, ATOM)}[{_operand(key, 0)}]")

    def __call__(self, *arguments: Any) -> Expr:
        """Return a call of the function or method that this names."""
        return Expr(f"{self._text}({', '.join(_operand(one, 0) for one in arguments)})")

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
            f"{self!r} is true or false when the flow runs, not while it is built; write & | ~ for "
            "and, or, not, put each comparison in brackets, and x.in_(list) for 'in'"
        )

    def __contains__(self, item: Any) -> NoReturn:
        raise TypeError("write x.in_(list): Python would decide 'in' while the flow is built")

    def in_(self, items: Any) -> Expr:
        """Return whether this is one of the items of a list, or a key of a map.

        Args:
            items: A list, a map, or an expression that gives one.

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
    """Return two operands with an operator; the right one is bracketed if it binds the same."""
    text = f"{_operand(left, binding)} {operator} {_operand(right, binding + 1)}"
    return Expr(text, binding)


def _operand(value: Any, binding: int) -> str:
    """Return a value as part of an expression, in brackets where it binds less than asked for."""
    if isinstance(value, Expr):
        return value._text if value._binding >= binding else f"({value._text})"
    if value is None or isinstance(value, bool | int | float | str):
        return json.dumps(value) if not isinstance(value, str) else _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_operand(one, 0) for one in value)}]"
    if isinstance(value, dict):
        entries = (f"{_operand(key, 0)}: {_operand(one, 0)}" for key, one in value.items())
        return f"{{{', '.join(entries)}}}"
    raise TypeError(f"{value!r} cannot be part of an expression: give text, numbers, lists or maps")


def _text(value: str) -> str:
    """Return a text as a literal of CEL, in single quotes: `when: "${{ x == 'a' }}"` needs none."""
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
            The expression; in a longer one it stands in brackets.
        """
        return Expr(text, 0)


cel = Cel()
"""The names of expressions."""
