"""What there is to see of a browser after an action."""

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
    """A dialog that a page opened, and what it was answered."""

    kind: str
    """`alert`, `confirm`, `prompt`, `beforeunload`."""
    message: str
    accepted: bool


@dataclass(frozen=True)
class Downloaded:
    """A file that a page offered."""

    path: str
    """Relative to the workspace; empty if there is no file."""
    size: int
    url: str
    error: str = ""
    """Why there is no file."""


@dataclass(frozen=True)
class WebObservation:
    """A page as it is after an action; a failure of the action is in `error`."""

    content: str
    """The text of the page as Markdown, without what cannot be seen."""
    url: str
    screenshot: bytes
    """A PNG image; empty if there is none."""
    ax_tree: str
    """Roles, names and states, with a reference (`[ref=e5]`) for each element."""
    error: str = ""
    """Why the action did not succeed, or what is missing in the observation."""
    title: str = ""
    status: int | None = None
    """Of the HTTP response that the page came with."""
    truncated: bool = False
    """Whether a limit cut the content off."""
    ax_tree_left_out: int = 0
    """Characters of the accessibility tree that a limit cut off."""
    hidden_text_removed: int = 0
    """Pieces of text on the page that cannot be seen, and are not in `content`."""
    tabs: list[Tab] = field(default_factory=list)
    dialogs: list[DialogShown] = field(default_factory=list)
    downloads: list[Downloaded] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    """Hosts that the page may not reach, and tried to."""
    invalid: list[str] = field(default_factory=list)
    """Fields whose values keep their forms from being sent, each with the browser's reason."""
    failed_requests: list[str] = field(default_factory=list)
    """What scripts and frames asked for since the last observation, and did not get."""
    notes: list[str] = field(default_factory=list)
    """What else is good to know, a sentence each."""
    challenge: bool = False
    """Whether the page asks for proof that you are human."""
    value: Any = None
    """What an action returned, such as `evaluate`."""
    needs_approval: dict[str, Any] | None = None
    """What people have to approve before the action is done: `action` and `target`."""
    generation: int = 1
    """Higher each time the browser had to be started again."""

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, without the screenshot."""
        data = asdict(self)
        del data["screenshot"]
        return data
