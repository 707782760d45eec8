"""A browser as steps and programs use it: every call performs one action and returns a view."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from flowengine.sdk import EnvironmentFailure, EnvironmentLost, EnvironmentUnavailable
from flowengine.sdk.environments import Request, Resource, Screen, both_forms
from flowengine_envs.browser import library
from flowengine_envs.browser.actions import ACTIONS, do
from flowengine_envs.browser.approvals import ApprovalGuard, Unapproved
from flowengine_envs.browser.loading import Acting, Navigation
from flowengine_envs.browser.observation import (
    WebObservation,
    elements,
    is_cut,
    is_same_page,
    log_shown,
    observation_text,
    search_text,
)
from flowengine_envs.browser.observing import complete, observe
from flowengine_envs.browser.requests import BUSY, ActionFailed, shown_url
from flowengine_envs.browser.session import BrowserSession
from flowengine_envs.browser.sharing import open_session
from flowengine_envs.sandboxes.mounts import named_folder

STATE = "browser.json"
"""File of the home directory with cookies, storage and address, between two openings."""
_MOST_BLOCKED = 50
_CHROMIUMS_OWN = ("connectivitycheck.gstatic.com:",)
"""Hosts that Chromium itself contacts after a TLS failure."""
_SPARE = 2.0
"""Seconds in addition to an action's own time limit, after which it is always ended."""
_LATELY = 0.5
"""Seconds for which a page that has responded is assumed to respond."""
_SAVING = 5.0


class Browser(Resource):
    """A browser. Actions run one after another, in the order of their calls.

    Failures of a page are not raised. They are the `error` of the observation.

    Args:
        request: The request to open the environment.
    """

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.request = request
        self.workspace = request.workspace
        """Directory of downloads and uploads."""
        self._config = request.config
        self._guard = ApprovalGuard(request.policy)
        self._line = asyncio.Lock()
        self._session: BrowserSession | None = None
        self._shown: WebObservation | None = None
        """The last observation that a model received."""
        self._again = ""
        """Why the page was replaced, for the next observation."""

    observation_text = staticmethod(observation_text)
    search_text = staticmethod(search_text)
    elements = staticmethod(elements)
    log_shown = staticmethod(log_shown)

    def shown(self, seen: WebObservation, text: int, tree: int, *, anew: bool, new: bool) -> str:
        """Return an observation for a model that follows its actions on a page.

        For a large page that the model has already received, only changes are shown.

        Args:
            seen: The observation.
            text: Maximum characters of the content.
            tree: Maximum characters of the accessibility tree.
            anew: Whether to show the page from its beginning in any case.
            new: Whether to show only changes for a small page, too.
        """
        before, self._shown = self._shown, replace(seen, screenshot=b"")
        if anew or not is_same_page(before, seen) or not (new or is_cut(seen, text, tree)):
            before = None
        return observation_text(seen, text, tree, before=before)

    @property
    def healthy(self) -> bool:
        """Whether the browser runs, as far as is known without I/O."""
        return self._session is not None and self._session.alive

    @property
    def opening(self) -> str:
        """Identifies the running browser. Another one has other pages."""
        return self._guard.opening

    @property
    def page(self) -> library.Page:
        """The live page of the active tab, an object of Playwright's asynchronous API.

        It belongs to the event loop of environments. Await its methods there, for example with
        `flowengine.sdk.environments.background().wait(...)`.
        """
        return self._live().tab.page

    @property
    def context(self) -> library.BrowserContext:
        """The live profile. See `page`."""
        return self._live().context

    @property
    def browser(self) -> library.Browser | None:
        """The live browser. See `page`."""
        return self._live().context.browser

    def _live(self) -> BrowserSession:
        self.check_open()
        assert self._session is not None
        return self._session

    async def open(self) -> None:
        """Start the browser. Call on the background loop."""
        kept = await asyncio.to_thread(self._taken)
        self._guard.hosts.update(map(str, kept.get("approved_hosts") or ()))
        state = kept.get("state")
        await self._start(state if isinstance(state, dict) else self._named_state())
        address = kept.get("url")
        if isinstance(address, str) and address.startswith(("http://", "https://", "file://")):
            await self._done("navigate", {"url": address})
            self._again = (
                "The browser was opened again, at its last address: forms, scroll positions and "
                "other tabs are gone."
            )

    async def close(self) -> None:
        """End it, and its process if no other environment uses it. Call on the background loop."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def save(self) -> None:
        """Save cookies, storage and address for the next opening. Call on the background loop."""
        if self._session is None or not self._session.alive:
            return
        with suppress(Exception):  # A browser that does not respond has nothing to save.
            async with asyncio.timeout(_SAVING):
                state = await self._session.context.storage_state(indexed_db=True)
                tab = self._session.tab
                url = "" if tab.is_closed else tab.page.url
                kept = {"state": state, "url": url, "approved_hosts": sorted(self._guard.hosts)}
                await asyncio.to_thread(_write, self.request.home / STATE, json.dumps(kept))

    async def screen(self) -> Screen:
        """Return a picture of the window, beside a running action. Call on the background loop.

        Raises:
            EnvironmentLost: The browser has ended. The next action starts it again.
        """
        session = self._session
        if session is None or not session.alive or not session.tabs or session.tab.is_closed:
            raise EnvironmentLost(f"{self.name} has no open page")
        tab = session.tab
        picture = await tab.picture()
        return Screen("", picture, await tab.title(), shown_url(tab.page.url))

    async def act(
        self, name: str, fields: Mapping[str, Any], approved: Mapping[str, Any] | None = None
    ) -> WebObservation:
        """Perform an action after the preceding ones, and observe the page."""
        async with self._line:
            if not self.healthy:
                await self.close()
                self.generation += 1
                await self._start(self._named_state())
                self._again = (
                    "The browser had ended and was started again: its pages and logins are gone."
                )
            try:
                seen = await self._done(name, fields, approved)
            finally:
                session = self._session
                page = session.tab.page if session is not None and session.tabs else None
                await self._guard.ended(page)
            if self._again:
                seen, self._again = replace(seen, notes=[self._again, *seen.notes]), ""
            return seen

    async def _done(
        self, name: str, fields: Mapping[str, Any], approved: Mapping[str, Any] | None = None
    ) -> WebObservation:
        assert self._session is not None
        session = self._session
        try:
            acting = await self._acting(session)
        except Exception as lost:
            return await self._lost(session, lost)
        acting.approved = approved
        action = ACTIONS.get(name)
        error, value, asked, target = "", None, None, None
        try:
            if action is not None and action.leaves:
                name, fields = await self._answering(acting, name, fields)
            acting.tab.requests.loading.clear()
            session.dialog_times.clear()
            async with asyncio.timeout(
                self._bound(navigates=action is not None and action.navigates)
            ):
                value = await do(acting, name, fields)
        except Navigation as failed:
            error, asked = str(failed), failed.url
        except Unapproved as unapproved:
            error, target = str(unapproved), unapproved.proposed
        except ActionFailed as failed:
            error = str(failed)
        except TimeoutError:
            error = "timeout: the page does not answer"
        # An error of Playwright if the browser ends during the action.
        except Exception as unexpected:
            error = f"{type(unexpected).__name__}: {unexpected}"[:500]
        if name != "answer_dialog" and target is None:
            session.answers.clear()
        if not session.alive or (error and await session.has_ended()):
            return await self._lost(session)
        if asked is not None:
            blocked = _blocked(session)
            failed_seen = WebObservation(
                "",
                asked,
                b"",
                "",
                error,
                status=acting.tab.requests.status,
                blocked=blocked,
                notes=acting.notes,
                generation=self.generation,
            )
            return await complete(session, failed_seen)
        seen = await self._seen(session, acting, error, value)
        return seen if target is None else replace(seen, needs_approval=target)

    async def _answering(
        self, acting: Acting, name: str, fields: Mapping[str, Any]
    ) -> tuple[str, Mapping[str, Any]]:
        """Check that the page responds before an action leaves it.

        Chromium would query the page first. If it does not respond and an address is to be opened,
        a new page replaces it.

        Returns:
            The action to perform.

        Raises:
            ActionFailed: It needs a page that responds.
        """
        session, tab = acting.session, acting.tab
        if not session.opens_dialogs and await tab.answers():
            return name, fields
        if name not in {"navigate", "reload"}:
            raise ActionFailed(BUSY)
        address = str(fields.get("url", "")) if name == "navigate" else tab.page.url
        await session.remove(tab)
        acting.tab = await session.ready()
        acting.notes.append("The page before did not answer, and was closed.")
        return "navigate", {"url": address}

    async def _acting(self, session: BrowserSession) -> Acting:
        config = self._config
        return Acting(
            session,
            await session.ready(),
            self.workspace,
            self._within(config.action_timeout),
            self._within(config.navigation_timeout),
            self.request.policy.evaluate,
        )

    def _within(self, seconds: float) -> float:
        most = self.request.limits.time
        return seconds if most is None else min(seconds, most)

    def _bound(self, *, navigates: bool) -> float:
        config = self._config
        # An action may wait for two elements, and then for the page to respond.
        seconds: float = config.navigation_timeout if navigates else 3 * config.action_timeout
        return self._within(seconds) + _SPARE

    async def _seen(
        self, session: BrowserSession, acting: Acting, error: str, value: Any
    ) -> WebObservation:
        """Return the observation after an action."""
        try:
            if not acting.tab.is_closed:
                await acting.tab.wait_loaded(self._config.settle)
            began = asyncio.get_running_loop().time()
            answers, _ = await asyncio.gather(
                acting.tab.answers(), session.wait_tracked(self._config.settle)
            )
            if session.tab is not acting.tab:
                await session.tab.wait_loaded(self._config.settle)
            going_on = await session.downloads.wait(self._config.action_timeout)
            await session.ready()
            late = asyncio.get_running_loop().time() - began > _LATELY
            known = None if late or session.tab is not acting.tab else answers
            seen = await observe(session, self._config, full_page=acting.full_page, answers=known)
            await session.ready()
            stopped = self._guard.stopped_actions()
            reasons = "; ".join(each for each in (error, *stopped, seen.error) if each)
            more = [f"{going_on} downloads are still under way."] if going_on else []
            seen = replace(
                seen,
                error=reasons,
                value=value,
                notes=[*acting.notes, *seen.notes, *more],
                invalid=[*dict.fromkeys([*acting.refused, *seen.invalid])],
                blocked=_blocked(session),
            )
            return await complete(session, seen, generation=self.generation)
        except EnvironmentFailure:
            raise
        except Exception as failed:
            return await self._lost(session, failed)

    async def _lost(
        self, session: BrowserSession, error: Exception | None = None
    ) -> WebObservation:
        """Return an observation that the browser has ended or cannot be observed."""
        if error is not None and not await session.has_ended():
            why = f"the page cannot be observed: {error}"[:500]
        else:
            why = "browser lost: its processes have ended. The next action starts it again"
        return WebObservation("", "", b"", "", why, generation=self.generation)

    # Starting

    async def _start(self, state: dict[str, Any] | None) -> None:
        self._guard.opened_again()
        first = self.generation == self.request.generation
        async with asyncio.timeout_at(self.request.deadline if first else None):
            self._session = await open_session(self.request, state, self._guard)

    def _named_state(self) -> dict[str, Any] | None:
        """Return the login that the spec names."""
        if self._config.storage_state is None:
            return None
        folder, name = os.path.split(self._config.storage_state)
        path = named_folder(self.request.spec, folder or ".") / name
        try:
            with open(path, encoding="utf-8", opener=_without_link) as file:
                state = json.load(file)
        except (OSError, ValueError) as error:
            raise EnvironmentUnavailable(
                f"{self.request.spec}: storage_state: {path} cannot be read: {error}"
            ) from None
        return state if isinstance(state, dict) else None

    def _taken(self) -> dict[str, Any]:
        """Return the state saved by the previous opening, once."""
        path = self.request.home / STATE
        with suppress(OSError, ValueError):
            state = json.loads(path.read_text(encoding="utf-8"))
            path.unlink()
            return state if isinstance(state, dict) else {}
        return {}

    # Actions as methods

    async def _step(
        self, action: Mapping[str, Any], approved: Mapping[str, Any] | None = None
    ) -> WebObservation:
        """Perform one action given as data, such as `{"action": "click", "ref": "e3"}`.

        Args:
            action: The name under `action`, together with the fields.
            approved: The approved `needs_approval` of an earlier observation.

        Returns:
            The observation afterwards.
        """
        fields = dict(action)
        return await self.act(str(fields.pop("action", "")), fields, approved)

    async def _navigate(self, url: str) -> WebObservation:
        """Open an address.

        Args:
            url: An http or https address.

        Returns:
            The observation afterwards.
        """
        return await self.act("navigate", {"url": url})

    async def _observe(self) -> WebObservation:
        """Return the current observation."""
        return await self.act("observe", {})

    async def _click(
        self, selector: str | None = None, *, ref: str | None = None, double: bool = False
    ) -> WebObservation:
        """Click an element, named by a selector or by its reference in the last observation."""
        return await self.act("click", {"selector": selector, "ref": ref, "double": double})

    async def _fill(
        self, selector: str | None = None, text: str = "", *, ref: str | None = None
    ) -> WebObservation:
        """Replace the text of a field."""
        return await self.act("fill", {"selector": selector, "ref": ref, "text": text})

    async def _type(
        self, selector: str | None = None, text: str = "", *, ref: str | None = None
    ) -> WebObservation:
        """Type text key by key."""
        return await self.act("type", {"selector": selector, "ref": ref, "text": text})

    async def _press(
        self, key: str, selector: str | None = None, *, ref: str | None = None
    ) -> WebObservation:
        """Press a key, on an element if one is named."""
        return await self.act("press", {"key": key, "selector": selector, "ref": ref})

    async def _select(
        self,
        selector: str | None = None,
        values: Sequence[str] = (),
        *,
        ref: str | None = None,
    ) -> WebObservation:
        """Select options of a list by their values or labels."""
        return await self.act("select", {"selector": selector, "ref": ref, "values": [*values]})

    async def _check(
        self, selector: str | None = None, checked: bool = True, *, ref: str | None = None
    ) -> WebObservation:
        """Check a box, or uncheck it."""
        return await self.act("check", {"selector": selector, "ref": ref, "checked": checked})

    async def _hover(
        self, selector: str | None = None, *, ref: str | None = None
    ) -> WebObservation:
        """Move the mouse over an element."""
        return await self.act("hover", {"selector": selector, "ref": ref})

    async def _scroll(
        self,
        direction: str | None = None,
        pixels: int | None = None,
        *,
        selector: str | None = None,
        ref: str | None = None,
    ) -> WebObservation:
        """Scroll the page down, or in another direction.

        With only an element, scroll until it is visible. With an element and a direction or pixels,
        scroll the list or area that contains it.
        """
        where = {"direction": direction, "pixels": pixels}
        return await self.act("scroll", {**where, "selector": selector, "ref": ref})

    async def _drag(
        self,
        selector: str | None = None,
        to_selector: str | None = None,
        *,
        ref: str | None = None,
        to_ref: str | None = None,
    ) -> WebObservation:
        """Drag an element to another one."""
        names = {"selector": selector, "ref": ref, "to_selector": to_selector, "to_ref": to_ref}
        return await self.act("drag", names)

    async def _upload(
        self, selector: str | None = None, paths: Sequence[str] = (), *, ref: str | None = None
    ) -> WebObservation:
        """Upload files of the workspace to a file input."""
        return await self.act("upload", {"selector": selector, "ref": ref, "paths": [*paths]})

    async def _wait_for(
        self,
        text: str | None = None,
        *,
        selector: str | None = None,
        seconds: float | None = None,
        gone: bool = False,
    ) -> WebObservation:
        """Wait until a text or an element appears or disappears."""
        what = {"text": text, "selector": selector}
        return await self.act("wait_for", {**what, "seconds": seconds, "gone": gone})

    async def _back(self) -> WebObservation:
        """Go back to the previous page."""
        return await self.act("back", {})

    async def _forward(self) -> WebObservation:
        """Go forward again."""
        return await self.act("forward", {})

    async def _reload(self) -> WebObservation:
        """Load the page again."""
        return await self.act("reload", {})

    async def _new_tab(self, url: str | None = None) -> WebObservation:
        """Open a new tab."""
        return await self.act("new_tab", {"url": url})

    async def _switch_tab(self, index: int) -> WebObservation:
        """Make another tab the active one."""
        return await self.act("switch_tab", {"index": index})

    async def _close_tab(self, index: int | None = None) -> WebObservation:
        """Close a tab. Default: the active one."""
        return await self.act("close_tab", {"index": index})

    async def _answer_dialog(self, accept: bool = True, text: str | None = None) -> WebObservation:
        """Set the answer to a dialog of the next action. Several answers are used in order."""
        return await self.act("answer_dialog", {"accept": accept, "text": text})

    async def _log(self) -> WebObservation:
        """Return the page's console output and failed requests as `value`."""
        return await self.act("log", {})

    async def _screenshot(self, full_page: bool = False) -> WebObservation:
        """Take a screenshot of the window, or of the whole page."""
        return await self.act("screenshot", {"full_page": full_page})

    async def _evaluate(self, code: str) -> WebObservation:
        """Run JavaScript on the page, if the policy allows it. The result is `value`."""
        return await self.act("evaluate", {"code": code})

    async def _get_markdown(self) -> str:
        """Return the text of the page as Markdown."""
        return (await self.act("observe", {})).content

    step, async_step = both_forms(_step)
    navigate, async_navigate = both_forms(_navigate)
    observe, async_observe = both_forms(_observe)
    click, async_click = both_forms(_click)
    fill, async_fill = both_forms(_fill)
    type, async_type = both_forms(_type)
    press, async_press = both_forms(_press)
    select, async_select = both_forms(_select)
    check, async_check = both_forms(_check)
    hover, async_hover = both_forms(_hover)
    scroll, async_scroll = both_forms(_scroll)
    drag, async_drag = both_forms(_drag)
    upload, async_upload = both_forms(_upload)
    wait_for, async_wait_for = both_forms(_wait_for)
    back, async_back = both_forms(_back)
    forward, async_forward = both_forms(_forward)
    reload, async_reload = both_forms(_reload)
    new_tab, async_new_tab = both_forms(_new_tab)
    switch_tab, async_switch_tab = both_forms(_switch_tab)
    close_tab, async_close_tab = both_forms(_close_tab)
    answer_dialog, async_answer_dialog = both_forms(_answer_dialog)
    log, async_log = both_forms(_log)
    screenshot, async_screenshot = both_forms(_screenshot)
    evaluate, async_evaluate = both_forms(_evaluate)
    get_markdown, async_get_markdown = both_forms(_get_markdown)


def _without_link(path: str, flags: int) -> int:
    """Open a file that is not a link: a program in a sandbox may have made it."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _write(path: Path, text: str) -> None:
    """Write a file that only this user can read."""
    new = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        new.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(new, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)


def _blocked(session: BrowserSession) -> list[str]:
    """Return the hosts requested since the last observation that must not be reached."""
    refused = [text for text in session.refused() if not text.startswith(_CHROMIUMS_OWN)]
    return [*dict.fromkeys(refused)][:_MOST_BLOCKED]
