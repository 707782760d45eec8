"""Browser actions that require approval.

    policy: {ask: [password, upload, new_host]}

Before an action begins, `ApprovalGuard.check` predicts its effects. Effects that cannot be
predicted, such as a script that submits a form, are stopped when they happen: requests by
`ApprovalGuard.watch`, connections by the proxy, which calls `ApprovalGuard.judge`.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, urlsplit
from weakref import WeakKeyDictionary

from flowengine.sdk import StepError
from flowengine.sdk.files.confined_files import Below
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.web.connections import Rules
from flowengine.sdk.web.urls import BadHost, spelled
from flowengine_envs.browser import library
from flowengine_envs.browser.requests import ActionFailed, shown_url

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


async def touched(
    page: library.Page, element: library.Locator | None, seconds: float
) -> Touched | None:
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
        raise ActionFailed("timeout: the page does not report the effect of the action") from None
    if not isinstance(fields, dict):  # The page's answer is untrusted.
        fields = {}
    text = {key: str(fields.get(key) or "")[:2000] for key in ("tag", "type", "text", "link")}
    kind = f" type={text['type']}" if text["type"] and text["tag"] == "input" else ""
    return Touched(
        shown=f"<{text['tag'][:40]}{kind[:40]}> {text['text'][:200]}".strip(),
        link=text["link"],
        page=str(fields.get("page") or "")[:2000],
        sends_to=str(fields.get("action") or "")[:2000] if fields.get("form") else "",
        sends=text["type"] in {"submit", "image"},
        pressed=bool(fields.get("pressed")),
        own=bool(fields.get("own")),
        filled=bool(fields.get("filled")),
    )


async def _focused(page: library.Page) -> library.Locator | None:
    for frame in page.frames:
        focused = frame.locator(":focus")
        if await focused.count() and await focused.first.evaluate("at => at.tagName") != "IFRAME":
            return focused.first
    return None


# The passwords in fields of pages, and the requests that may contain one.
#
# Fields are read before and after each action, because a page that is about to submit a form can
# no longer be queried.

_LOOKING = 2.0
"""Seconds within which a page must return its passwords."""
_MOST = 10
"""Maximum number of fields checked in a frame."""


class Passwords:
    """The passwords in the tabs of one profile."""

    def __init__(self) -> None:
        self._held: WeakKeyDictionary[library.Page, list[str]] = WeakKeyDictionary()

    async def read(self, page: library.Page, *more: str) -> None:
        """Read the password fields of a page, including frames.

        Args:
            page: The page.
            more: Values about to be entered.
        """
        try:
            async with asyncio.timeout(_LOOKING):
                values = [each for frame in page.frames for each in await _values(frame)]
        except (TimeoutError, library.Error):
            values = ["\0"]  # A frame that does not respond may contain one.
        self._held[page] = [*values, *filter(None, more)]

    def may_leave_by(self, request: library.Request) -> bool:
        """Return whether a request may contain a password from a page.

        A request that writes may contain any password of its page, or of any page if it navigates.
        Of other requests, only navigations with a query are checked, by searching their address.
        """
        navigates = request.is_navigation_request()
        writes = request.method not in ("GET", "HEAD", "OPTIONS")
        if not writes and not (navigates and "?" in request.url):
            return False
        # A form may be submitted from one tab or frame into another one.
        pages = [*self._held] if navigates else [request.frame.page]
        values = [value for page in pages for value in self._held.get(page, ())]
        if writes:
            return bool(values)
        return any(
            form in request.url
            for each in values
            for form in (each, quote(each, safe=""), quote_plus(each))
        )


async def _values(frame: library.Frame) -> list[str]:
    fields = frame.locator(PASSWORDS)
    # Playwright reads them where scripts of the page cannot answer instead.
    values = [
        await fields.nth(at).input_value(timeout=_LOOKING * 1000)
        for at in range(min(await fields.count(), _MOST))
    ]
    return [each for each in values if each]


PASSWORD, UPLOAD, NEW_HOST = "password", "upload", "new_host"
_GONE = (
    "the approved element is gone from the page. Nothing was done: look at the page and ask again"
)
_ANOTHER_BROWSER = (
    "the browser was opened again since this was approved, and its page may be another one. "
    "Nothing was done: look at the page and ask again"
)
_WORDS = {
    PASSWORD: "send a form with a password",
    UPLOAD: "upload files",
    NEW_HOST: "open a new host",
}


class Unapproved(ActionFailed):
    """An action was not performed because it requires approval.

    Args:
        proposed: Its effects: `action` and `target`.
    """

    def __init__(self, proposed: dict[str, Any]) -> None:
        super().__init__(f"it needs an approval first: {proposed['action']}")
        self.proposed = proposed


class PlannedAction(NamedTuple):
    """An action about to be performed."""

    name: str
    fields: Mapping[str, Any]
    """Its fields, except those that name the element."""
    element: library.Locator | None
    """The element that it acts on."""
    page: library.Page
    seconds: float
    """Seconds that the page may take for it."""
    uploads: Sequence[FileUpload]
    approved: Mapping[str, Any] | None
    """The approval given for it."""


class ApprovalGuard:
    """Approvals required in one environment, and those given.

    Args:
        policy: The environment's policy.
    """

    def __init__(self, policy: Any) -> None:
        self.asks: frozenset[str] = frozenset(policy.ask)
        self.hosts: set[str] = set()
        """Approved hosts."""
        self.opening = secrets.token_hex(8)
        """Identifies the running browser, whose pages end with it."""
        self.stopped: list[str] = []
        """Messages about requests stopped since the last call."""
        self._named = Rules.of(policy.network).allowed
        self._passwords = Passwords()
        self._released: frozenset[str] = frozenset()
        """Origins to which the current action may submit a form with a password."""

    def opened_again(self) -> None:
        """Record that another browser replaces the previous one."""
        self.opening = secrets.token_hex(8)

    # Before an action

    async def check(self, planned: PlannedAction) -> None:
        """Predict the effects of an action, and allow it only with any required approval.

        Raises:
            Unapproved: The action requires approval.
            ActionFailed: The approval was for a browser that has ended.
        """
        self._released = frozenset()
        if not self.asks:
            return
        approved = planned.approved or {}
        if approved.get("browser", self.opening) != self.opening:
            raise ActionFailed(_ANOTHER_BROWSER)
        if PASSWORD in self.asks:
            await self._passwords.read(planned.page, *await _entered(planned))
        target, origins = await self._found(planned)
        if target is None:
            if approved and "host" not in approved["target"]:  # A host may be known by now.
                raise ActionFailed(_GONE)
            return
        if approved.get("digest") != target["digest"]:
            raise Unapproved(target)
        if host := target["target"].get("host"):
            self.hosts.add(host)
        self._released = origins

    async def _found(self, planned: PlannedAction) -> tuple[dict[str, Any] | None, frozenset[str]]:
        """Return the effects to approve, and the origins that may then receive a password."""
        name, on = planned.name, await self._touched(planned)
        why: list[str] = []
        target: dict[str, Any] = {}
        origins: frozenset[str] = frozenset()
        address = str(planned.fields.get("url") or "") or (
            on.link if on and name == "click" else ""
        )
        if on is not None and on.submits(name) and on.sends_to:
            address = on.sends_to
        if PASSWORD in self.asks and on is not None and on.sends_password(name):
            why.append(PASSWORD)
            origins = frozenset(map(_origin, filter(None, [on.page, on.sends_to])))
            target["sends_to"] = sorted(origins)
        if UPLOAD in self.asks and name == "upload":
            why.append(UPLOAD)
            target["files"] = [each.described for each in planned.uploads]
        if NEW_HOST in self.asks and (host := self._new_host(address)):
            why.append(NEW_HOST)
            target |= {"host": host, "url": shown_url(address)}
        if not why:
            return None, origins
        if on is not None:
            target |= {"element": on.shown, "page": shown_url(planned.page.url)}
        action = f"{name}: {' and '.join(_WORDS[each] for each in why)}"
        # Compared by digest, because secrets may be masked in the approver's view.
        digest = sha256(json.dumps(target, sort_keys=True).encode()).hexdigest()
        approval: dict[str, Any] = {"action": action, "target": target, "digest": digest}
        return (approval | {"browser": self.opening} if on is not None else approval), origins

    async def _touched(self, planned: PlannedAction) -> Touched | None:
        """Return the element that an action touches, if it matters."""
        name, fields = planned.name, planned.fields
        enters = fields.get("submit") or (name == "type" and "\n" in fields.get("text", ""))
        if name == "press":
            enters = ENTER.search(str(fields.get("key", ""))) is not None
        if name not in {"click", "upload"} and not enters:
            return None
        return await touched(planned.page, planned.element, planned.seconds)

    def _new_host(self, address: str) -> str:
        """Return the host of an address if it requires approval, or an empty string."""
        try:
            parts = urlsplit(address)
            if parts.scheme.lower() not in {"http", "https", "ws", "wss"} or not parts.hostname:
                return ""
            name = spelled(parts.hostname)
        except (ValueError, BadHost):
            return ""
        return name if self._is_new(name) else ""

    def _is_new(self, name: str) -> bool:
        return name not in self.hosts and not any(each.names(name) for each in self._named)

    # Effects that were not predicted

    def judge(self, host: str, port: int) -> str:
        """Return why to refuse a connection that the network's rules allow, or an empty string."""
        if NEW_HOST not in self.asks or not self._is_new(host):
            return ""
        return "is a new host that was not approved (policy: ask: new_host)"

    async def watch(self, context: library.BrowserContext) -> None:
        """Stop unapproved requests of a profile that would send a password."""
        if PASSWORD in self.asks:
            await context.route("**/*", self._check)

    def stopped_actions(self) -> list[str]:
        """Return messages about requests stopped since the last call."""
        reported, self.stopped = self.stopped, []
        return [*dict.fromkeys(reported)]

    async def ended(self, page: library.Page | None) -> None:
        """Record the end of an action and the passwords that it left on the page.

        Its permissions end.
        """
        self._released = frozenset()
        if PASSWORD in self.asks and page is not None:
            await self._passwords.read(page)

    async def _check(self, route: library.Route) -> None:
        """Check a request before it is sent."""
        request, to = route.request, _origin(route.request.url)
        try:
            sends = to not in self._released and self._passwords.may_leave_by(request)
        except library.Error:
            sends = True  # The page that sends it is unknown.
        with suppress(library.Error):  # The page may be closed by now.
            if not sends:
                await route.fallback()
                return
            self.stopped.append(
                f"not approved: the page was kept from sending a password to {to} "
                "(policy: ask: password)"
            )
            await route.abort("aborted")  # The page stays as before the form was submitted.


async def _entered(planned: PlannedAction) -> list[str]:
    """Return the password that an action enters, if any."""
    if planned.element is None or planned.name not in {"fill", "type"}:
        return []
    matches, milliseconds = "(at, all) => at.matches(all)", planned.seconds * 1000
    if await planned.element.evaluate(matches, PASSWORDS, timeout=milliseconds):
        return [str(planned.fields["text"])]
    return []


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


# Files of the workspace that are uploaded to pages.

LARGEST = 50 * 1024 * 1024
"""Maximum bytes of all files of an upload."""


class FileUpload(NamedTuple):
    """A file that was read."""

    path: str
    data: bytes

    @property
    def name(self) -> str:
        """The name sent to the page."""
        return PurePosixPath(self.path).name

    @property
    def described(self) -> dict[str, str | int]:
        """The description for approvers."""
        digest = sha256(self.data).hexdigest()
        return {"path": self.path, "size": len(self.data), "sha256": digest}


async def read_uploads(workspace: Path, paths: Iterable[object]) -> list[FileUpload]:
    """Read files of the workspace.

    Args:
        workspace: The directory.
        paths: Paths relative to it.

    Raises:
        ActionFailed: A file is missing or outside the workspace, or the files are too large.
    """
    below, files, total = (
        Below(workspace, "uploads come from the workspace", name="the workspace"),
        [],
        0,
    )
    for path in map(str, paths):
        try:
            data = await asyncio.to_thread(below.read, path, LARGEST)
        except StepError as error:
            raise ActionFailed(error.message) from None
        total += len(data)
        if total > LARGEST:
            raise ActionFailed(f"the files have more than {size_text(LARGEST)}")
        files.append(FileUpload(path, data))
    return files
