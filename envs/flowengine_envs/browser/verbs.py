"""The actions of a browser as methods, in blocking and asynchronous form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.sdk.environments import Resource, both_forms
from flowengine_envs.browser.observation import WebObservation


class Verbs(Resource):
    """Actions of a browser: `click()` blocks, `async_click()` is for any event loop."""

    async def act(
        self, name: str, fields: Mapping[str, Any], approved: Mapping[str, Any] | None = None
    ) -> WebObservation:
        """Perform an action, and return the observation afterwards."""
        raise NotImplementedError

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
