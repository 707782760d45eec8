"""Finds the element that an action names: by its reference in the last observation, or a selector.

Both are data to Playwright: no text of an action becomes code on a page or here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flowengine_envs.browser import faults

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

_REFERENCE = re.compile(r"(?:f\d+)?e\d+\Z", re.ASCII)
_MOST_SHOWN = 5
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LONGEST = 500
_REASONS = (
    (re.compile(r"(<[^\n]{1,200}) intercepts pointer events"), r"it is covered by \1"),
    (re.compile(r"element is not visible"), "it is not visible"),
    (re.compile(r"element is not enabled"), "it is disabled"),
    (re.compile(r"element is not editable"), "it cannot be edited"),
    (re.compile(r"element is not stable"), "it does not stop moving"),
    (re.compile(r"element is outside of the viewport"), "it is outside of the window"),
    (re.compile(r"did not find some options"), "it has no such option"),
)
"""What Playwright tells of an action that it kept trying, and how that is said here."""


class ActionFailed(Exception):
    """An action was not done; the message says why."""


async def find(
    page: Page, ref: str | None, selector: str | None, seconds: float, *, hidden: bool = False
) -> Locator:
    """Return the one element that an action names.

    Args:
        page: The page.
        ref: A reference of the last observation, such as `e5`.
        selector: A CSS selector, or another that Playwright knows (`text=Save`).
        seconds: How long to wait until a selector has an element.
        hidden: Whether one that cannot be seen will do.

    Returns:
        The element.

    Raises:
        ActionFailed: There is none, or more than one.
    """
    if (ref is None) == (selector is None):
        raise ActionFailed("name the element by either 'ref' or 'selector'")
    if ref is not None:
        if not _REFERENCE.match(ref):
            raise ActionFailed(f"'{ref:.40}' is not a reference; they look like e5 or f1e5")
        found = page.locator(f"aria-ref={ref}")
        if await found.count() != 1:
            raise ActionFailed(f"reference {ref} is no longer on the page; observe again")
        return found
    assert selector is not None
    found = page.locator(selector)
    await _wait(found, selector, seconds, hidden=hidden)
    number = await found.count()
    if number > 1:
        raise ActionFailed(
            f"'{selector:.200}' fits {number} elements; take one of them by its reference:\n"
            + "\n".join([await _line(found.nth(at)) for at in range(min(number, _MOST_SHOWN))])
        )
    return found


async def _wait(found: Locator, selector: str, seconds: float, *, hidden: bool) -> None:
    state = "attached" if hidden else "visible"
    try:
        await found.first.wait_for(state=state, timeout=seconds * 1000)  # type: ignore[arg-type]
    except faults.TimeoutError:
        there = await found.count()
        what = "it is not visible" if there else "there is no such element"
        raise ActionFailed(f"'{selector:.200}': {what} after {seconds:g} s") from None
    except faults.Error as error:
        raise ActionFailed(f"'{selector:.200}': {told(error)}") from None


async def _line(element: Locator) -> str:
    try:
        tree = await element.aria_snapshot(mode="ai", timeout=1000)
    except faults.Error:
        return "- (gone meanwhile)"
    return tree.splitlines()[0][:_LONGEST] if tree else "- (not in the accessibility tree)"


def told(error: Exception) -> str:
    """Return why Playwright did not do something, in one line."""
    text = _ESCAPES.sub("", str(error))
    for pattern, reason in _REASONS:
        if (match := pattern.search(text)) is not None:
            return match.expand(reason)
    first = text.split("Call log:")[0].strip().splitlines()
    line = first[0] if first else type(error).__name__
    return re.sub(r"^(?:Error: )?\w+\.\w+: (?:Error: )?", "", line)[:_LONGEST]
