"""Names and arguments of tools in the forms that providers accept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from json import dumps
from typing import Any

from flowengine.agents.models.failures import ModelError
from flowengine.sdk.argument_schemas import described_arguments, required_arguments

Schema = dict[str, Any]
NOT_AT_THE_ROOT = frozenset({"allOf", "anyOf", "oneOf", "$ref", "enum", "const", "not"})
"""Keywords that providers refuse at the root of a schema."""


def arguments_form(schema: Schema) -> tuple[Schema, str]:
    """Return the schema of a tool's arguments in the form for providers.

    Args:
        schema: The declared schema.

    Returns:
        A schema with all properties at the top, and what its description must add, possibly
        nothing.
    """
    if NOT_AT_THE_ROOT.isdisjoint(schema):
        return schema, ""
    rules = {key: part for key, part in schema.items() if key in NOT_AT_THE_ROOT}
    form = {key: part for key, part in schema.items() if key not in NOT_AT_THE_ROOT}
    properties, required = described_arguments(schema), required_arguments(schema)
    form["properties"] = {
        name: parts[0] if len(parts) == 1 else {"anyOf": parts}
        for name, parts in properties.items()
    }
    form.pop("unevaluatedProperties", None)
    form.pop("required", None)
    if required:
        form["required"] = sorted(required, key=[*properties, *required].index)
    return form, f"The arguments must also fit this JSON Schema: {dumps(rules, ensure_ascii=False)}"


# Wire names of tools: letters, digits, `_` and `-`, at most 64 characters.

LONGEST = 64
_TAKEN_AS_IT_IS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHERS = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8
"""Digits of the digest that distinguishes long names with the same beginning."""


def wire_name(name: str) -> str:
    """Return the wire name of a tool, which is the same in every process.

    A dot becomes `__`. Other invalid characters become `_`. After such a replacement, or if the
    name is too long, a digest of the name is appended.

    Args:
        name: Flow name of the tool.
    """
    if _TAKEN_AS_IT_IS.fullmatch(name):
        return name
    dotted = name.replace(".", "__")
    if _TAKEN_AS_IT_IS.fullmatch(dotted):
        return dotted
    from hashlib import sha256

    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    return f"{_OTHERS.sub('_', dotted)[: LONGEST - _DIGEST - 1]}_{digest}"


def clash(names: Iterable[str]) -> tuple[str, str, str] | None:
    """Return two names with the same wire name, and that wire name, if there are any.

    Args:
        names: Flow names of tools.
    """
    known: dict[str, str] = {}
    for name in names:
        called = wire_name(name)
        other = known.setdefault(called, name)
        if other != name:
            return other, name, called
    return None


class WireNames:
    """The names of the tools on offer, by their wire names.

    Args:
        names: Flow names of the tools.

    Raises:
        ModelError: Two of them have the same wire name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        names = list(names)
        both = clash(names)
        if both is not None:
            one, other, called = both
            raise ModelError(
                f"the tools '{one}' and '{other}' would both be called '{called}' by models, which "
                "allow no dots in names: rename one of them",
                retryable=False,
            )
        self._known = {wire_name(name): name for name in names}

    def from_wire(self, name: str) -> str:
        """Return the flow name of a tool. A name that is not on offer is returned unchanged."""
        return self._known.get(name, name)
