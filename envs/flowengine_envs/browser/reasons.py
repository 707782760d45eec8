"""Reasons for failed actions, worded for the caller."""

from __future__ import annotations

import re

from flowengine_envs.link.terminal_text import clean

LONGEST = 500
"""Maximum characters of a reason."""
BUSY = "nothing was done: scripts of the page keep it busy"
_REASONS = (
    (re.compile(r"(<[^\n]{1,200}) intercepts pointer events"), r"it is covered by \1"),
    (re.compile(r"element is not visible"), "it is not visible"),
    (re.compile(r"element is not enabled"), "it is disabled"),
    (re.compile(r"element is not editable"), "it cannot be edited"),
    (re.compile(r"element is not stable"), "it does not stop moving"),
    (re.compile(r"element is outside of the viewport"), "it is outside of the window"),
    (re.compile(r"did not find some options"), "it has no such option"),
)
"""Playwright's messages about an action that it kept retrying, and their wording here."""


class ActionFailed(Exception):
    """An action was not performed. The message contains the reason."""


def reason_of(error: Exception) -> str:
    """Return why Playwright failed, in one line."""
    text = clean(str(error).encode("utf-8", "replace"))
    for pattern, reason in _REASONS:
        if (match := pattern.search(text)) is not None:
            return match.expand(reason)
    first = text.split("Call log:")[0].strip().splitlines()
    line = first[0] if first else type(error).__name__
    return re.sub(r"^(?:Error: )?\w+\.\w+: (?:Error: )?", "", line)[:LONGEST]
