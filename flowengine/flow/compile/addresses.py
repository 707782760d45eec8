"""Addresses with expressions: the origin of the host of a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from contextlib import suppress

from flowengine.flow.compile.types import Schema
from flowengine.flow.expressions.names_in import names_in
from flowengine.flow.expressions.template import Piece, TemplateError, split_text

NO_HOST = (
    "write the server into 'url', up to the first '/', or use 'std: http' in an environment of "
    "kind 'http' whose 'policy.network' lists the servers"
)
"""Remedy if a model would choose the server."""
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_HOST_ENDS = re.compile(r"[/?#]")
Name = tuple[str, str | None]
"""`args.url` is `("args", "url")`. Without a second part, it stands for all of `args`."""


def host_argument(address: str, args: Schema | None, bound: Container[str]) -> str | None:
    """Return the expression by which a caller's arguments determine the server of an address.

    Arguments that the flow fixes do not count, and neither do arguments whose schema allows only
    listed values.

    Args:
        address: The address, with expressions.
        args: Schema of the arguments.
        bound: Names of the arguments that the flow fixes.

    Returns:
        None if the flow alone determines it, because the host ends before the first argument.
    """
    known = (args or {}).get("properties", {})

    def fixed(name: Name) -> bool:
        root, key = name
        return root != "args" or key in bound or is_listed(known.get(key))

    return deciding(address, fixed)


def is_listed(schema: Schema | None) -> bool:
    """Return whether a schema allows only listed values."""
    return schema is not None and ("enum" in schema or "const" in schema)


def deciding(address: str, is_fixed: Callable[[Name], bool]) -> str | None:
    """Return the first expression in the host of an address with a name that is not fixed."""
    for source in _host_expressions(address):
        if not all(map(is_fixed, names_in(source))):
            return source
    return None


def is_constant(value: object, is_fixed: Callable[[Name], bool]) -> bool:
    """Return whether all names in a value with expressions are fixed."""
    if isinstance(value, dict):
        return all(is_constant(one, is_fixed) for one in value.values())
    if isinstance(value, list):
        return all(is_constant(item, is_fixed) for item in value)
    if not isinstance(value, str):
        return True
    pieces = (part.source for part in _parts(value) if isinstance(part, Piece))
    return all(is_fixed(name) for source in pieces for name in names_in(source))


def _host_expressions(address: str) -> Iterator[str]:
    """Yield the expressions of an address that are inside its host."""
    begun = False
    for part in _parts(address):
        if isinstance(part, Piece):
            yield part.source
            begun = True
            continue
        scheme = None if begun else _SCHEME.match(part)
        begun = begun or scheme is not None
        if begun and _HOST_ENDS.search(part, 0 if scheme is None else scheme.end()):
            return


def _parts(text: str) -> tuple[str | Piece, ...]:
    with suppress(TemplateError):  # reported elsewhere
        return split_text(text)
    return ()
