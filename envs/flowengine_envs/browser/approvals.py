"""Browser actions that require approval.

    policy: {ask: [password, upload, new_host]}

Before an action begins, `ApprovalGuard.check` predicts its effects. Effects that cannot be
predicted, such as a script that submits a form, are stopped when they happen: requests by
`ApprovalGuard.watch`, connections by the proxy, which calls `ApprovalGuard.judge`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from flowengine.sdk.web.hosts import BadHost, spelled
from flowengine.sdk.web.rules import Rules
from flowengine_envs.browser import faults
from flowengine_envs.browser.addresses import shown_url
from flowengine_envs.browser.passwords import Passwords
from flowengine_envs.browser.reasons import ActionFailed
from flowengine_envs.browser.touched import ENTER, PASSWORDS, Touched, touched

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Locator, Page, Route

    from flowengine_envs.browser.uploads import FileUpload

PASSWORD, UPLOAD, NEW_HOST = "password", "upload", "new_host"
NOT_APPROVED = "is a new host that was not approved (policy: ask: new_host)"
_GONE = (
    "what was approved is no longer on the page: nothing was done; look at the page and ask again"
)
_ANOTHER_BROWSER = (
    "the browser was opened again since this was approved, and its page may be another one: "
    "nothing was done; look at the page and ask again"
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
        super().__init__(f"not approved: people have to approve it first: {proposed['action']}")
        self.proposed = proposed


class PlannedAction(NamedTuple):
    """An action about to be performed."""

    name: str
    fields: Mapping[str, Any]
    """Its fields, except those that name the element."""
    element: Locator | None
    """The element that it acts on."""
    page: Page
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
            await self._passwords.look(planned.page, *await _entered(planned))
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
        approval: dict[str, Any] = {"action": action, "target": target, "digest": _digest(target)}
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
        return NOT_APPROVED if NEW_HOST in self.asks and self._is_new(host) else ""

    async def watch(self, context: BrowserContext) -> None:
        """Stop unapproved requests of a profile that would send a password."""
        if PASSWORD in self.asks:
            await context.route("**/*", self._look)

    def stopped_actions(self) -> list[str]:
        """Return messages about requests stopped since the last call."""
        reported, self.stopped = self.stopped, []
        return [*dict.fromkeys(reported)]

    async def ended(self, page: Page | None) -> None:
        """Record the end of an action and the passwords that it left on the page.

        Its permissions end.
        """
        self._released = frozenset()
        if PASSWORD in self.asks and page is not None:
            await self._passwords.look(page)

    async def _look(self, route: Route) -> None:
        """Check a request before it is sent."""
        request, to = route.request, _origin(route.request.url)
        try:
            sends = to not in self._released and self._passwords.may_leave_by(request)
        except faults.Error:
            sends = True  # The page that sends it is unknown.
        with suppress(faults.Error):  # The page may be closed by now.
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


def _digest(target: dict[str, Any]) -> str:
    return sha256(json.dumps(target, sort_keys=True).encode()).hexdigest()


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
