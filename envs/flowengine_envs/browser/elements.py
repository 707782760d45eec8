"""Finds the element of an action by its reference in the last observation, or by a selector.

Both are data to Playwright: no text of an action becomes code on a page or in this process.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from flowengine_envs.browser import library
from flowengine_envs.browser.loading import Acting
from flowengine_envs.browser.requests import BUSY, LONGEST, ActionFailed, reason_of

_REFERENCE = re.compile(r"(?:f\d+)?e\d+\Z", re.ASCII)
_MOST_SHOWN = 5
_PATIENCE = 1.0
"""Seconds to wait for an unusable element while the page loads nothing."""
_AGAIN = 0.1
_VISIBLE = "it is not visible"
_ENABLED = frozenset({"check", "click", "fill", "select"})
"""Actions that require an enabled element."""
_POINTED = frozenset({"check", "click", "hover"})
"""Actions that require the mouse to reach the element."""
_OPTIONS = """(element, values) => {
  const text = each => String(each || "").replace(/\\s+/g, " ").trim();
  const select = element.tagName === "LABEL" ? element.control : element;
  if (!select || select.tagName !== "SELECT") return null;
  const options = [...select.options];
  const lacks = values.filter(value =>
    !options.some(each => each.value === value || text(each.label) === text(value)));
  return [lacks, options.slice(0, 30).map(each => text(each.label).slice(0, 50))];
}"""


async def find(
    acting: Acting, ref: str | None, selector: str | None, *, hidden: bool = False
) -> library.Locator:
    """Return the one element that an action names.

    Args:
        acting: The action, which waits until a selector matches an element.
        ref: A reference of the last observation, such as `e5`.
        selector: A CSS selector, or another syntax of Playwright (`text=Save`).
        hidden: Whether an invisible element is accepted.

    Returns:
        The element.

    Raises:
        ActionFailed: No element matches, or more than one.
    """
    if (ref is None) == (selector is None):
        raise ActionFailed("name the element by either 'ref' or 'selector'")
    if ref is not None:
        if not _REFERENCE.match(ref):
            raise ActionFailed(f"'{ref:.40}' is not a reference: they look like e5 or f1e5")
        locator = acting.page.locator(f"aria-ref={ref}")
        if await _answer(locator.count(), acting.action_timeout) != 1:
            raise ActionFailed(f"reference {ref} is no longer on the page: observe again")
        return locator
    assert selector is not None
    locator = acting.page.locator(selector)
    await _wait(acting, locator, selector, hidden=hidden)
    number = await locator.count()
    if number > 1:
        raise ActionFailed(
            f"'{selector:.200}' fits {number} elements: take one of them by its reference:\n"
            + "\n".join([await _line(locator.nth(at)) for at in range(min(number, _MOST_SHOWN))])
        )
    return locator


async def _wait(acting: Acting, locator: library.Locator, selector: str, *, hidden: bool) -> None:
    first, seconds = locator.first, acting.action_timeout

    async def reason() -> str:
        return "" if await first.is_visible() else _VISIBLE

    try:
        await first.wait_for(state="attached", timeout=seconds * 1000)
        if not hidden:
            await _until(acting, reason, f"'{selector:.200}': ")
    except library.TimeoutError:
        await _answer(first.count(), _PATIENCE)  # Raises if the page does not respond at all.
        what = f"no such element after {seconds:g} s"
        raise ActionFailed(f"'{selector:.200}': {what}") from None
    except library.Error as error:
        raise ActionFailed(f"'{selector:.200}': {reason_of(error)}") from None


async def usable(
    acting: Acting, element: library.Locator, action: str, options: list[str] | None = None
) -> None:
    """Wait until an element can take an action.

    Playwright's own wait during the action may never end. A known obstacle therefore ends this wait
    once the page has been quiet for a second.

    Args:
        acting: The action.
        element: The element that it acts on.
        action: Its name.
        options: Values or labels to select.

    Raises:
        ActionFailed: The element cannot take it. The message contains the reason.
    """

    async def reason() -> str:
        if not await element.is_visible():
            return _VISIBLE
        if action in _ENABLED and not await element.is_enabled(timeout=acting.milliseconds):
            return "it is disabled"
        if action == "fill" and not await element.is_editable(timeout=acting.milliseconds):
            return "it cannot be edited"
        return ""

    async def lacking() -> str:
        """Describe the options that a list does not contain."""
        answer = await element.evaluate(_OPTIONS, options)
        if not isinstance(answer, list) or not answer[0]:
            return ""
        lacks, has = ([str(each) for each in part] for part in answer)
        return f"it has no option {lacks[0][:50]!r}; it has {', '.join(map(repr, has))}"[:LONGEST]

    await _answer(element.is_visible(), acting.action_timeout)
    await _until(acting, reason)
    if options is not None:
        await _until(acting, lacking)
    if action in _POINTED:
        try:  # It tries several ways of scrolling before it fails.
            await element.hover(trial=True, timeout=_PATIENCE * 1000)
        except library.TimeoutError as error:
            if "covered" in (why := reason_of(error)) and not acting.tab.requests.open:
                raise ActionFailed(why) from None


async def _answer(question: Awaitable[Any], seconds: float) -> Any:
    """Return a page's answer if it arrives in time."""
    try:
        async with asyncio.timeout(seconds):
            return await question
    except TimeoutError:
        raise ActionFailed(BUSY) from None


async def _until(acting: Acting, reason: Callable[[], Awaitable[str]], what: str = "") -> None:
    """Wait until no obstacle is left.

    Args:
        acting: The action.
        reason: Returns the obstacle, or an empty string.
        what: Prefix of the message.

    Raises:
        ActionFailed: An obstacle is left.
    """
    loop = asyncio.get_running_loop()
    began = quiet = loop.time()
    while why := await reason():
        now = loop.time()
        if acting.tab.requests.open:
            quiet = now
        if now - quiet >= _PATIENCE or now - began >= acting.action_timeout:
            raise ActionFailed(f"{what}{why}")
        await asyncio.sleep(_AGAIN)


async def _line(element: library.Locator) -> str:
    try:
        tree = await element.aria_snapshot(mode="ai", timeout=1000)
    except library.Error:
        return "- (gone meanwhile)"
    return tree.splitlines()[0][:LONGEST] if tree else "- (not in the accessibility tree)"
