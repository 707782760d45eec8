"""Addresses with arguments in them: who decides to which server a request goes."""

from __future__ import annotations

import re
from collections.abc import Container
from contextlib import suppress

from flowengine.flow.compile.types import Schema
from flowengine.flow.expressions.template import TemplateError, split_text

_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_HOST_ENDS = re.compile(r"[/?#]")
_ARGUMENT = re.compile(r"""(?<![.\w])args\b(?:\s*(?:\.\s*(\w+)|\[\s*(['"])([^'"\\]+)\2\s*\]))?""")


def host_argument(address: str, args: Schema | None, bound: Container[str]) -> str | None:
    """Return the expression by which a caller's arguments decide the server of an address.

    An argument that the flow fixes decides nothing; nor does one that its schema allows only
    listed values.

    Args:
        address: With expressions.
        args: Schema of the arguments.
        bound: Names of those that the flow fixes.

    Returns:
        None: the flow alone decides, since the host is over before the first argument.
    """
    parts: tuple[object, ...] = ()
    with suppress(TemplateError):  # which is reported elsewhere
        parts = split_text(address)
    known = (args or {}).get("properties", {})
    begun = False
    for part in parts:
        if not isinstance(part, str):
            source: str = part.source  # type: ignore[attr-defined]
            for match in _ARGUMENT.finditer(source):
                name = match[1] or match[3]
                schema = known.get(name) or {}
                if name is None or not (name in bound or "enum" in schema or "const" in schema):
                    return source
            begun = True
            continue
        scheme = None if begun else _SCHEME.match(part)
        begun = begun or scheme is not None
        if begun and _HOST_ENDS.search(part, 0 if scheme is None else scheme.end()):
            return None
    return None
