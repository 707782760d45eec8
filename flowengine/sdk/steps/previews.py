"""What a preview of a tool call reads, and what an approver is shown of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple


class PreviewContext(NamedTuple):
    """Data available to a preview. Only inert environments are opened for it."""

    workdir: str
    """The working directory of the execution."""
    environments: Collection[str]
    """Names of the environments that the call will receive."""
    resources: Mapping[str, Any]
    """Objects that the program gave the execution, by name."""
    opened: Mapping[str, Any] = {}
    """Environments of the call that are open, by the same names: those that earlier calls have
    opened, and inert ones."""


class Shown(NamedTuple):
    """Information for the approver: a preview, or the reason why there is none."""

    preview: str | None = None
    note: str | None = None
