"""`OfferedTool`: a server's description of one of its tools, in the form offered to a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple, Self

from flowengine.kernel.graph.compiled import Plain


class OfferedTool(NamedTuple):
    """A tool of a server, in the form offered to a model."""

    name: str
    """Name by which it is called on the server."""
    description: str
    schema: Plain
    """The JSON Schema of its arguments according to the server, unchecked."""
    digest: str
    """Digest of description and schema. The name is not included, because the name in a call may
    have a prefix."""
    fault: str = ""
    """Why the tool cannot be used, if so."""

    @classmethod
    def of(cls, listed: Mapping[str, Plain]) -> Self:
        """Return the offer of a tool.

        Args:
            listed: The tool as its server lists it.
        """
        about, schema = listed.get("description"), listed.get("inputSchema")
        offer = json.dumps({"description": about, "inputSchema": schema}, sort_keys=True)
        digest = hashlib.sha256(offer.encode()).hexdigest()
        return cls(str(listed["name"]), str(about or ""), schema, digest)
