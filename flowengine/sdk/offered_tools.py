"""`OfferedTool`: what a server says of one of its tools, as it can be offered to a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple, Self

from flowengine.kernel.graph.compiled import Plain


class OfferedTool(NamedTuple):
    """A tool of a server, as it can be offered to a model."""

    name: str
    """By which it is called on the server."""
    description: str
    schema: Plain
    """What the server says is the JSON Schema of its arguments: nobody has looked at it."""
    digest: str
    """Of description and schema: the name is that of the call, and may have another in front."""

    @classmethod
    def of(cls, listed: Mapping[str, Plain]) -> Self:
        """Return what can be offered of a tool.

        Args:
            listed: The tool as its server lists it.
        """
        about, schema = listed.get("description"), listed.get("inputSchema")
        offer = json.dumps({"description": about, "inputSchema": schema}, sort_keys=True)
        digest = hashlib.sha256(offer.encode()).hexdigest()
        return cls(str(listed["name"]), str(about or ""), schema, digest)
