"""The state of a browser after an action."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tab:
    """An open tab."""

    index: int
    url: str
    title: str
    active: bool


@dataclass(frozen=True)
class DialogShown:
    """A dialog that a page opened, and its answer."""

    kind: str
    """`alert`, `confirm`, `prompt`, `beforeunload`."""
    message: str
    accepted: bool


@dataclass(frozen=True)
class Downloaded:
    """A file that a page offered."""

    path: str
    """Relative to the workspace. Empty if no file was saved."""
    size: int
    url: str
    error: str = ""
    """Why no file was saved."""


@dataclass(frozen=True)
class WebObservation:
    """A page after an action. A failure of the action is in `error`."""

    content: str
    """The visible text of the page as Markdown."""
    url: str
    screenshot: bytes
    """A PNG image, or empty."""
    ax_tree: str
    """Roles, names and states, with a reference (`[ref=e5]`) for each element."""
    error: str = ""
    """Why the action failed, or which part of the observation is missing."""
    title: str = ""
    status: int | None = None
    """Status of the page's HTTP response."""
    truncated: bool = False
    """Whether a limit truncated the content."""
    ax_tree_left_out: int = 0
    """Characters of the accessibility tree cut off by a limit."""
    hidden_text_removed: int = 0
    """Pieces of invisible text on the page, which `content` omits."""
    tabs: list[Tab] = field(default_factory=list)
    dialogs: list[DialogShown] = field(default_factory=list)
    downloads: list[Downloaded] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    """Hosts that the page tried to reach without permission."""
    invalid: list[str] = field(default_factory=list)
    """Fields with values that prevent submitting their forms, each with the browser's reason."""
    failed_requests: list[str] = field(default_factory=list)
    """Failed requests of scripts and frames since the last observation."""
    notes: list[str] = field(default_factory=list)
    """Further remarks, one sentence each."""
    challenge: bool = False
    """Whether the page is a bot check."""
    value: Any = None
    """The return value of an action such as `evaluate`."""
    needs_approval: dict[str, Any] | None = None
    """The effects that require approval before the action is performed: `action` and `target`."""
    generation: int = 1
    """Incremented each time the browser had to be restarted."""

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, without the screenshot."""
        data = asdict(self)
        del data["screenshot"]
        return data
