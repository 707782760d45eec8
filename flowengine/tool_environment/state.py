"""`ctx.state`, plain data that a tool keeps from call to call of one execution."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from typing import Any

from flowengine.engines.attempts.serialization import copy, to_plain
from flowengine.sdk import Plain, StepError
from flowengine.tool_environment.errors import StateError


class ToolState(UserDict[str, Any]):
    """A mapping from text to plain data, which is copied on every read and write.

    To change a nested value, read the entry, change it, and store it again.

    Args:
        tool: Name of the tool, for messages.
        values: The previous content.
        number: How often it was stored before.
    """

    def __init__(self, tool: str, values: Mapping[str, Plain], number: int) -> None:
        super().__init__()
        self._tool = tool
        self.data = dict(values)
        self._number = number
        self._is_changed = False

    def to_keep(self) -> dict[str, Any] | None:
        """Return the data to store with the result of a call, or None if it is unchanged."""
        if not self._is_changed:
            return None
        self._is_changed = False
        self._number += 1
        return {"number": self._number, "values": dict(self.data)}

    def __getitem__(self, key: str) -> Any:
        return copy(self.data[key])

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise StateError(f"{self._tool}: the key {key!r} of ctx.state is not text")
        try:
            self.data[key] = to_plain(value)
        except StepError as error:
            raise StateError(
                f"{self._tool}: ctx.state['{key}'] was not set: {error.message}",
                hint="keep what is live in a resource, and plain data in ctx.state",
            ) from None
        self._is_changed = True

    def __delitem__(self, key: str) -> None:
        del self.data[key]
        self._is_changed = True
