"""The gate at the point of execution: nothing runs without a grant that fits exactly.

A grant holds for one call, one tool in one version, and one digest of the arguments. Whatever way a
call came, `Gate.pass_through` is the only place that makes a `Ticket`, and nothing runs without
one.
"""

from __future__ import annotations

import hashlib
import json
import threading
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from flowengine.sdk.tool_calls import ApprovalResponse
from flowengine.tool_environment.tools import Definition


@dataclass(frozen=True)
class Grant:
    """What was approved."""

    call: str
    tool: str
    version: str
    digest: str
    decision: ApprovalResponse


@dataclass(frozen=True)
class Ticket:
    """The proof that a call may run now; the gate makes it from a grant, once."""

    call: str
    definition: Definition
    args: dict[str, Any]
    decision: ApprovalResponse


class Gate:
    """Holds the grants of one environment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._grants: dict[str, Grant] = {}

    def grant(
        self, call: str, definition: Definition, args: dict[str, Any], decision: ApprovalResponse
    ) -> None:
        """Record an approval.

        Args:
            call: Id of the call.
            definition: The tool as it was when somebody was asked.
            args: The arguments that were approved.
            decision: The decision.
        """
        grant = Grant(call, definition.name, definition.version(), digest_of(args), decision)
        with self._lock:
            self._grants[call] = grant

    def pass_through(
        self, call: str, definition: Definition, args: dict[str, Any]
    ) -> Ticket | None:
        """Use up the grant of a call.

        Args:
            call: Id of the call.
            definition: The tool as it is now.
            args: The arguments that are to run.

        Returns:
            A ticket; None: there is no grant for just this, so somebody has to be asked.
        """
        with self._lock:
            grant = self._grants.pop(call, None)
        wanted = (definition.name, definition.version(), digest_of(args))
        if grant is None or (grant.tool, grant.version, grant.digest) != wanted:
            return None
        return Ticket(call, definition, args, grant.decision)

    def withdraw(self, call: str) -> None:
        """Forget the grant of a call."""
        with self._lock:
            self._grants.pop(call, None)


def digest_of(args: Any) -> str:
    """Return a digest of arguments: the same for all ways to write the same data."""
    text = json.dumps(args, sort_keys=True, separators=(",", ":"), default=_encoded)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": b64encode(value).decode()}
    return {"type": type(value).__qualname__, "repr": repr(value)}
