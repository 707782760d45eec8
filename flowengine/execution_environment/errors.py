"""Errors of the manager. Those of providers are in `flowengine.sdk`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flowengine.sdk.errors import EnvironmentFailure


class Fault(NamedTuple):
    """One fault of a spec."""

    path: str
    """Path of the value: `config.image`, `limits.memory`."""
    message: str
    """The error, with the closest valid name if there is one."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class SpecInvalid(EnvironmentFailure):
    """A spec is invalid. Nothing was recorded or opened.

    Args:
        name: Name of the spec.
        faults: All faults.
    """

    type = "SpecInvalid"

    def __init__(self, name: str, faults: Sequence[Fault]) -> None:
        lines = "".join(f"\n  {fault}" for fault in faults)
        super().__init__(
            f"environment '{name}' is not valid:{lines}",
            data=[fault._asdict() for fault in faults],
            retryable=False,
        )
        self.spec = name
        self.faults = list(faults)

    def __reduce__(self) -> tuple[Any, ...]:
        return SpecInvalid, (self.spec, self.faults)


class UnknownEnvironment(EnvironmentFailure):
    """The spec or handle id is unknown here."""

    type = "UnknownEnvironment"

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return UnknownEnvironment, (self.message,)
