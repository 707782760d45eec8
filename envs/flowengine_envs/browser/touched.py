"""Predicts the element that an action touches, its form, and whether the form is submitted.

This is a prediction for approvers. It is only as reliable as the page, whose scripts can change the
result. The actual requests are checked when they are sent (`approvals.Guard.watch`).
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine_envs.browser.reasons import ActionFailed

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

ENTER = re.compile(r"(?:^|\+)(?:Enter|NumpadEnter|Space| )$")
"""Keys that submit the form in which they are pressed, or press a button."""
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
    """An element, and the possible effects of a click on it or Enter in it."""

    shown: str
    """Its description for approvers."""
    link: str
    """Target address, if it is a link."""
    page: str
    """Address of its frame."""
    sends_to: str
    """Target address of its form. Empty: it has none."""
    sends: bool
    """Whether a click on it submits its form."""
    pressed: bool
    """Whether scripts decide the effect of a click: it is not a web link or a field for values."""
    own: bool
    """Whether its form contains a password field."""
    filled: bool
    """Whether a password field on its page has a value."""

    def submits(self, action: str) -> bool:
        """Return whether an action on it submits its form, according to the page."""
        return bool(self.sends_to) and (self.sends if action == "click" else action != "upload")

    def sends_password(self, action: str) -> bool:
        """Return whether an action on it may send a password."""
        if action == "upload":
            return False
        if self.submits(action):
            return self.own or self.filled
        return self.filled and (self.pressed or action != "click")


async def touched(page: Page, element: Locator | None, seconds: float) -> Touched | None:
    """Return the element that an action would touch.

    Args:
        page: The page.
        element: The named element. None: the one that has the focus.
        seconds: How long the page may take to respond.

    Returns:
        The element. None: no element has the focus.

    Raises:
        ActionFailed: The page does not respond.
    """
    try:
        async with asyncio.timeout(seconds):
            focused = element if element is not None else await _focused(page)
            if focused is None:
                return None
            fields = await focused.evaluate(_LOOK, PASSWORDS)
    except TimeoutError:
        raise ActionFailed("timeout: the page does not say what would be done to it") from None
    return _read(fields if isinstance(fields, dict) else {})


async def _focused(page: Page) -> Locator | None:
    for frame in page.frames:
        focused = frame.locator(":focus")
        if await focused.count() and await focused.first.evaluate("at => at.tagName") != "IFRAME":
            return focused.first
    return None


def _read(fields: dict[str, Any]) -> Touched:
    """Return a page's answer, which is untrusted."""
    text = {key: str(fields.get(key) or "")[:2000] for key in ("tag", "type", "text", "link")}
    kind = f" type={text['type']}" if text["type"] and text["tag"] == "input" else ""
    shown = f"<{text['tag'][:40]}{kind[:40]}> {text['text'][:200]}".strip()
    sends = text["type"] in {"submit", "image"}
    return Touched(
        shown=shown,
        link=text["link"],
        page=str(fields.get("page") or "")[:2000],
        sends_to=str(fields.get("action") or "")[:2000] if fields.get("form") else "",
        sends=sends,
        pressed=bool(fields.get("pressed")),
        own=bool(fields.get("own")),
        filled=bool(fields.get("filled")),
    )
