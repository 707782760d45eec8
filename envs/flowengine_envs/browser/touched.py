"""What an action would touch on a page: which element, of which form, and whether it sends that.

This is a forecast for people. It trusts the page as far as the page's own scripts can change what
it says of itself; what really leaves is looked at when it does (`approvals.Guard.watch`).
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine_envs.browser.reasons import ActionFailed

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

ENTER = re.compile(r"(?:^|\+)(?:Enter|NumpadEnter|Space| )$")
"""Keys that send the form that they are pressed in, or press a button."""
PASSWORDS = (
    "input[type=password i], input[autocomplete~=current-password i], "
    "input[autocomplete~=new-password i]"
)
_LOOK = """(element, passwords) => {
  const short = text => String(text || "").replace(/\\s+/g, " ").trim().slice(0, 200);
  const near = "button, input, select, textarea, a[href], area[href], label, [role=button]";
  let at = element.closest(near) || element;
  if (at.tagName === "LABEL" && at.control) at = at.control;
  const type = at.tagName === "BUTTON" ? at.type : at.tagName === "INPUT" ? at.type : "";
  const form = at.form || null;
  const fields = [...at.ownerDocument.querySelectorAll(passwords)];
  const root = at.getRootNode();
  if (root !== at.ownerDocument) fields.push(...root.querySelectorAll(passwords));
  const own = form ? fields.filter(each => each.form === form) : [];
  const text = short(at.getAttribute("aria-label") || at.innerText || at.value || at.name || at.id);
  return {
    tag: at.tagName.toLowerCase(), type: String(type || ""),
    text: fields.includes(at) || type === "password" ? short(at.name || at.id) : text,
    link: at.tagName === "A" || at.tagName === "AREA" ? String(at.href) : "",
    page: String(at.ownerDocument.location.href),
    form: Boolean(form),
    action: form ? String(at.hasAttribute("formaction") ? at.formAction
      : (form.getAttribute("action") ? new URL(form.getAttribute("action"), at.baseURI).href
        : at.ownerDocument.location.href)) : "",
    own: own.length > 0,
    filled: fields.some(each => each.value !== ""),
    pressed: at.tagName === "INPUT" ? ["submit", "image", "button", "reset"].includes(type)
      : at.tagName === "A" || at.tagName === "AREA" ? !/^https?:/.test(at.href)
      : !["SELECT", "TEXTAREA"].includes(at.tagName),
  };
}"""


class Touched(NamedTuple):
    """An element, and what a click on it or Enter in it may do."""

    shown: str
    """How people are told of it."""
    link: str
    """Where it leads, if it is a link."""
    page: str
    """Address of the frame that it is in."""
    sends_to: str
    """Where its form is sent to; empty: it has none."""
    sends: bool
    """Whether a click on it sends its form."""
    pressed: bool
    """Whether a click on it means what scripts make of it: it is no link and no field."""
    own: bool
    """Whether there is a field for a password in its form."""
    filled: bool
    """Whether a field for a password on its page has a value."""

    def submits(self, action: str) -> bool:
        """Return whether an action on it sends its form, as far as the page says."""
        return bool(self.sends_to) and (self.sends if action == "click" else action != "upload")

    def sends_password(self, action: str) -> bool:
        """Return whether an action on it may send a password."""
        if action == "upload":
            return False
        if self.submits(action):
            return self.own or self.filled
        return self.filled and (self.pressed or action != "click")


async def touched(page: Page, element: Locator | None, seconds: float) -> Touched | None:
    """Return what an action would touch.

    Args:
        page: The page.
        element: What is named; None: what has the focus.
        seconds: How long the page may take to say it.

    Returns:
        What it touches; None: nothing has the focus.

    Raises:
        ActionFailed: The page does not say it.
    """
    try:
        async with asyncio.timeout(seconds):
            found = element if element is not None else await _focused(page)
            if found is None:
                return None
            said = await found.evaluate(_LOOK, PASSWORDS)
    except TimeoutError:
        raise ActionFailed("timeout: the page does not say what would be done to it") from None
    return _read(said if isinstance(said, dict) else {})


async def _focused(page: Page) -> Locator | None:
    for frame in page.frames:
        found = frame.locator(":focus")
        if await found.count() and await found.first.evaluate("at => at.tagName") != "IFRAME":
            return found.first
    return None


def _read(said: dict[str, Any]) -> Touched:
    """Return what a page says: it may say anything."""
    text = {key: str(said.get(key) or "")[:2000] for key in ("tag", "type", "text", "link")}
    kind = f" type={text['type']}" if text["type"] and text["tag"] == "input" else ""
    shown = f"<{text['tag'][:40]}{kind[:40]}> {text['text'][:200]}".strip()
    sends = text["type"] in {"submit", "image"}
    return Touched(
        shown=shown,
        link=text["link"],
        page=str(said.get("page") or "")[:2000],
        sends_to=str(said.get("action") or "")[:2000] if said.get("form") else "",
        sends=sends,
        pressed=bool(said.get("pressed")),
        own=bool(said.get("own")),
        filled=bool(said.get("filled")),
    )
