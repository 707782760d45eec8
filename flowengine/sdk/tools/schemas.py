"""The JSON Schemas of which those of tools consist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowengine.kernel.graph.compiled import Plain

TEXT: dict[str, Plain] = {"type": "string"}
WHOLE: dict[str, Plain] = {"type": "integer"}
FLAG: dict[str, Plain] = {"type": "boolean"}


def record(
    properties: Mapping[str, Plain], required: Sequence[str] | None = None
) -> dict[str, Plain]:
    """Return the schema of an object.

    Args:
        properties: Its allowed properties.
        required: Its required properties. Default: all.
    """
    return {
        "type": "object",
        "properties": {**properties},
        "required": [*(properties if required is None else required)],
        "additionalProperties": False,
    }


def listed(items: dict[str, Plain]) -> dict[str, Plain]:
    """Return the schema of a list."""
    return {"type": "array", "items": items}
