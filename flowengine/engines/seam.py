"""The interfaces through which the engines access the outside world.

Time and ids are here. The store is in `flowengine.journal.store`, with a port for each guarantee,
and the runner of steps is in `flowengine.engines.attempts.runner`. Production and the simulator
each have one implementation of every interface.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from typing import Any

    from flowengine.sdk.previews import Shown
    from flowengine.sdk.tool_calls import EnvironmentResponse, ToolCall

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


class Clock(Protocol):
    """Reads the time of day."""

    def now(self) -> int:
        """Return milliseconds since 1970-01-01T00:00Z. May jump, also backwards."""


class Ids(Protocol):
    """Creates unique ids."""

    def execution(self, now: int) -> str:
        """Return the id of a new execution, created at `now` (ms)."""

    def message(self) -> str:
        """Return the id of a new message."""


class ToolAuthority(Protocol):
    """Decides whether a call may be made. `flowengine.tool_environment` has one for callbacks."""

    async def approve_tool(self, call_: ToolCall, /) -> EnvironmentResponse:
        """Return the decision about a call."""


class CallConsultant(Protocol):
    """Consults tool authorities about calls before an approver answers."""

    def has_own(self, execution: str) -> bool:
        """Return whether an execution has its own authority, besides that of the engine."""

    async def ask(
        self,
        execution: str,
        wait: str,
        record: Mapping[str, Any],
        preview: Awaitable[Shown],
    ) -> bool:
        """Consult the authority about a call, and return whether it was answered.

        Args:
            execution: Full id.
            wait: Full id of the question.
            record: Record of the question.
            preview: The preview that is being computed.
        """


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    def now(self) -> int:
        """Return milliseconds since 1970-01-01T00:00Z."""
        return time.time_ns() // 1_000_000


class RandomIds:
    """ULIDs in lower case: 26 characters, which sort by creation time."""

    __slots__ = ()

    def execution(self, now: int) -> str:
        """Return 48 bits of time and 80 random bits, in Crockford's base 32."""
        number = now << 80 | int.from_bytes(os.urandom(10), "big")
        return "".join([_DIGITS[number >> shift & 31] for shift in range(125, -1, -5)])

    def message(self) -> str:
        """Return 128 random bits as hex digits."""
        return os.urandom(16).hex()
