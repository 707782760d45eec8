"""The names of an expression, as far as its text says them."""

from __future__ import annotations

from collections.abc import Iterator

from flowengine.flow.expressions.syntax import parse
from flowengine.flow.expressions.syntax_tree import Index, Literal, Name, Select
from flowengine.flow.expressions.tokens import ExpressionSyntaxError


def names_in(source: str) -> Iterator[tuple[str, str | None]]:
    """Yield each name of an expression with the constant key behind it; None: there is none.

    The names of `map`, `filter` and their like are among them. A text that is not an expression
    has none.

    Args:
        source: The expression.
    """
    try:
        nodes: list[object] = [parse(source)]
    except ExpressionSyntaxError:  # which is reported elsewhere
        return
    while nodes:
        match nodes.pop():
            case Name(name):
                yield name, None
            case Select(Name(name), field):
                yield name, field
            case Index(Name(name), Literal(str(key))):
                yield name, key
            case [*inner]:
                nodes += inner
