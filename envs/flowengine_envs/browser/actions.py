"""Browser actions, each as data: `{"action": "click", "ref": "e3"}`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from flowengine.sdk.texts.visible_text import one_line
from flowengine_envs.browser import library
from flowengine_envs.browser.approvals import PlannedAction, read_uploads
from flowengine_envs.browser.elements import find, usable
from flowengine_envs.browser.loading import Acting, load, scroll_inside, scroll_window
from flowengine_envs.browser.requests import ActionFailed, checked_url, is_file, reason_of
from flowengine_envs.browser.session import TabState

_LONGEST_WAIT = 30.0
_MOST_LINES = 50
"""Maximum number of lines of a log."""
_LONGEST_LINE = 300


_FORMATS = {
    "color": "#rrggbb, in small letters",
    "date": "YYYY-MM-DD",
    "datetime-local": "YYYY-MM-DDThh:mm",
    "month": "YYYY-MM",
    "time": "hh:mm",
    "week": "YYYY-Www",
}
"""Formats of values for fields that accept no other text."""
_HELD = """element => {
  const field = element.tagName === "LABEL" ? element.control : element;
  if (!field || !("value" in field)) return null;
  const short = text => String(text || "").replace(/\\s+/g, " ").trim().slice(0, 100);
  const label = field.labels && field.labels.length ? field.labels[0].innerText : "";
  const name = field.getAttribute("aria-label") || label || field.placeholder || field.name;
  const why = field.willValidate && !field.validity.valid ? short(field.validationMessage) : "";
  const refusal = why && `${short(name) || field.type}: ${why}`;
  return [String(field.type), String(field.value), refusal];
}"""


class ActionField(NamedTuple):
    """A field of an action."""

    type: str
    """A key of `_TYPES`."""
    required: bool = False
    choices: Sequence[str] = ()


class Action(NamedTuple):
    """A browser action."""

    run: Callable[..., Awaitable[Any]]
    """Its fields are the parameters after `acting` and `element`."""
    hidden: bool = False
    """Whether the element may be invisible."""
    navigates: bool = False
    """Whether its time limit is the one for loading a page."""
    leaves: bool = False
    """Whether it leaves the page, which must respond first."""
    choices: Mapping[str, Sequence[str]] = {}
    """Field → its permitted values."""

    @property
    def on_element(self) -> bool:
        """Whether it takes `ref` or `selector`. `run` receives the element."""
        return "element" in _parameters(self.run)

    @property
    def fields(self) -> Mapping[str, ActionField]:
        """Its fields, except for those that name the element."""
        return {
            name: ActionField(
                _WORDS[parameter.annotation.removesuffix(" | None")],
                parameter.default is parameter.empty,
                self.choices.get(name, ()),
            )
            for name, parameter in _parameters(self.run).items()
            if name not in ("acting", "element")
        }

    def checked(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of an action.

        Raises:
            ActionFailed: One is missing, unknown, or has the wrong type.
        """
        allowed = {**(_ELEMENT if self.on_element else {}), **self.fields}
        described = f"'{name}' takes {', '.join(allowed) or 'no fields'}"
        for field, value in given.items():
            if field not in allowed:
                raise ActionFailed(f"there is no field '{field:.40}'; {described}")
            wanted = allowed[field]
            fits = isinstance(value, _TYPES[wanted.type])
            if isinstance(value, bool):  # which Python counts among the integers
                fits = wanted.type == "boolean"
            if value is not None and not fits:
                raise ActionFailed(f"'{field}' must be a {wanted.type}; {described}")
            if wanted.choices and value is not None and value not in wanted.choices:
                raise ActionFailed(f"'{field}' must be one of: {', '.join(wanted.choices)}")
        fields = {field: value for field, value in given.items() if value is not None}
        for field, wanted in allowed.items():
            if wanted.required and field not in fields:
                raise ActionFailed(f"'{field}' is missing; {described}")
        return fields


@cache
def _parameters(run: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(run).parameters


_ELEMENT = {"ref": ActionField("string"), "selector": ActionField("string")}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "list": (list, tuple),
}
_WORDS = {
    "str": "string", "float": "number", "int": "integer", "bool": "boolean", "list[str]": "list",
}  # fmt: skip
"""The type of a parameter → that of its field."""


async def do(acting: Acting, name: str, given: Mapping[str, Any]) -> Any:
    """Perform one action.

    Args:
        acting: The context of the action.
        name: Name of the action.
        given: Its fields.

    Returns:
        Its value in addition to the page, usually None.

    Raises:
        ActionFailed: It was not performed. The message contains the reason.
    """
    action = ACTIONS.get(name)
    if action is None:
        raise ActionFailed(f"there is no action '{name:.40}'; there are: {', '.join(ACTIONS)}")
    fields = action.checked(name, given)
    try:
        if not action.on_element:
            named = None
            if acting.session.guard.asks and name == "press" and fields.keys() & _ELEMENT.keys():
                named = await find(acting, fields.get("ref"), fields.get("selector"))
            await acting.session.guard.check(_planned(acting, name, fields, named))
            return await action.run(acting, **fields)
        ref, selector = fields.pop("ref", None), fields.pop("selector", None)
        element = await find(acting, ref, selector, hidden=action.hidden)
        if name == "upload":
            acting.uploads = await read_uploads(acting.workspace, fields["paths"])
        if not action.hidden:
            values = [str(each) for each in fields.get("values", ())]
            await usable(acting, element, name, values if name == "select" else None)
        await acting.session.guard.check(_planned(acting, name, fields, element))
        return await action.run(acting, element, **fields)
    except library.TimeoutError as error:
        reason = reason_of(error)
        late = f"timeout: the page did not take it in {acting.action_timeout:g} s"
        raise ActionFailed(late if "Timeout" in reason else f"{late}: {reason}") from None
    except library.Error as error:
        raise ActionFailed(reason_of(error)) from None


def _planned(
    acting: Acting, name: str, fields: Mapping[str, Any], element: library.Locator | None
) -> PlannedAction:
    seconds = acting.action_timeout
    return PlannedAction(
        name, fields, element, acting.page, seconds, acting.uploads, acting.approved
    )


async def _navigate(acting: Acting, url: str) -> None:
    await _load(acting, await _address(acting, url))


async def _load(acting: Acting, address: str) -> None:
    await load(
        acting, lambda ms: acting.page.goto(address, wait_until="commit", timeout=ms), address
    )


async def _address(acting: Acting, url: str) -> str:
    """Return an address that may be opened."""
    files = acting.session.files
    if files is not None and is_file(url):
        return await files.open(acting.session.context, url.strip())
    return checked_url(url)


async def _back(acting: Acting) -> None:
    await load(acting, lambda ms: acting.page.go_back(wait_until="commit", timeout=ms), "")


async def _forward(acting: Acting) -> None:
    await load(acting, lambda ms: acting.page.go_forward(wait_until="commit", timeout=ms), "")


async def _reload(acting: Acting) -> None:
    page = acting.page
    await load(acting, lambda ms: page.reload(wait_until="commit", timeout=ms), page.url)


async def _click(
    acting: Acting, element: library.Locator, button: str = "left", double: bool = False
) -> None:
    press = element.dblclick if double else element.click
    await press(button=button, timeout=acting.milliseconds)  # type: ignore[arg-type]


async def _fill(acting: Acting, element: library.Locator, text: str, submit: bool = False) -> None:
    await element.fill(text, timeout=acting.milliseconds)
    await _look_at_filled(acting, element, text)
    if submit:
        await element.press("Enter", timeout=acting.milliseconds)


async def _look_at_filled(acting: Acting, element: library.Locator, text: str) -> None:
    """Check the value of a field after a text was entered.

    Raises:
        ActionFailed: The field accepted none of it.
    """
    held = await element.evaluate(_HELD, timeout=acting.milliseconds)
    if not isinstance(held, list) or not all(isinstance(each, str) for each in held):
        return
    type, value, refusal = held
    if refusal:
        acting.refused.append(refusal)
    if type in _FORMATS and text.strip() and value != text and (not value or type == "color"):
        raise ActionFailed(f"a field for a {type} takes {_FORMATS[type]}, not '{text:.100}'")
    if value != text.replace("\r\n", "\n"):
        acting.notes.append(
            f"The field holds other text than was filled in: {len(value)} characters."
        )


async def _type(acting: Acting, element: library.Locator, text: str, submit: bool = False) -> None:
    for number, line in enumerate(text.split("\n")):
        if number:  # A press waits for the page that it may open, but typing does not.
            await element.press("Enter", timeout=acting.milliseconds)
        if line:
            await element.press_sequentially(line, timeout=acting.milliseconds)
    if submit:
        await element.press("Enter", timeout=acting.milliseconds)


async def _press(
    acting: Acting, key: str, ref: str | None = None, selector: str | None = None
) -> None:
    if ref is None and selector is None:
        await acting.page.keyboard.press(key)
        return
    element = await find(acting, ref, selector)
    await element.press(key, timeout=acting.milliseconds)


async def _select(acting: Acting, element: library.Locator, values: list[str]) -> Any:
    return await element.select_option([str(each) for each in values], timeout=acting.milliseconds)


async def _check(acting: Acting, element: library.Locator, checked: bool = True) -> None:
    await element.set_checked(checked, timeout=acting.milliseconds)


async def _hover(acting: Acting, element: library.Locator) -> None:
    await element.hover(timeout=acting.milliseconds)


async def _scroll(
    acting: Acting,
    direction: str | None = None,
    pixels: int | None = None,
    ref: str | None = None,
    selector: str | None = None,
) -> None:
    if ref is None and selector is None:
        acting.notes.append(await scroll_window(acting.page, direction or "down", pixels))
        return
    element = await find(acting, ref, selector, hidden=True)
    if direction is None and pixels is None:
        await element.scroll_into_view_if_needed(timeout=acting.milliseconds)
        return
    seconds = acting.action_timeout
    acting.notes.append(await scroll_inside(element, direction or "down", pixels, seconds))


async def _drag(
    acting: Acting,
    element: library.Locator,
    to_ref: str | None = None,
    to_selector: str | None = None,
) -> None:
    target = await find(acting, to_ref, to_selector)
    await element.drag_to(target, timeout=acting.milliseconds)


async def _upload(acting: Acting, element: library.Locator, paths: list[str]) -> None:
    files: list[library.FilePayload] = [
        {"name": each.name, "mimeType": "application/octet-stream", "buffer": each.data}
        for each in acting.uploads
    ]
    await element.set_input_files(files, timeout=acting.milliseconds)


async def _wait_for(
    acting: Acting,
    text: str | None = None,
    selector: str | None = None,
    seconds: float | None = None,
    gone: bool = False,
) -> None:
    if (text is None) == (selector is None):
        if text is None and seconds is not None and not gone:
            await asyncio.sleep(min(seconds, _LONGEST_WAIT))
            return
        raise ActionFailed("say what to wait for: either 'text' or 'selector', or only 'seconds'")
    page = acting.page
    element = (
        page.get_by_text(text).first if text is not None else page.locator(selector or "").first
    )
    bound = min(acting.action_timeout if seconds is None else seconds, _LONGEST_WAIT)
    try:
        await element.wait_for(state="hidden" if gone else "visible", timeout=bound * 1000)
    except library.TimeoutError:
        how = "is still there" if gone else "has not appeared"
        raise ActionFailed(f"timeout: '{text or selector}' {how} after {bound:g} s") from None


async def _screenshot(acting: Acting, full_page: bool = False) -> None:
    acting.full_page = full_page


async def _observe(acting: Acting) -> None:
    """Do nothing: every action ends with an observation."""


async def _new_tab(acting: Acting, url: str | None = None) -> None:
    address = None if url is None else await _address(acting, url)
    acting.tab = acting.session.add(await acting.session.context.new_page())
    if address is not None:
        await _load(acting, address)


def _tab(acting: Acting, index: int) -> TabState:
    tabs = acting.session.tabs
    if not 0 <= index < len(tabs):
        raise ActionFailed(f"there is no tab {index}; there are 0 to {len(tabs) - 1}")
    return tabs[index]


async def _switch_tab(acting: Acting, index: int) -> None:
    acting.tab = _tab(acting, index)
    acting.session.active = index
    await acting.page.bring_to_front()


async def _close_tab(acting: Acting, index: int | None = None) -> None:
    await acting.session.remove(acting.tab if index is None else _tab(acting, index))
    acting.tab = await acting.session.ready()


async def _answer_dialog(acting: Acting, accept: bool = True, text: str | None = None) -> None:
    acting.session.answers.append((accept, text))


async def _log(acting: Acting) -> dict[str, list[str]]:
    page = acting.page
    written = [
        f"{each.type}: {one_line(each.text, _LONGEST_LINE)}"
        for each in await page.console_messages()
    ]
    errors = [
        f"uncaught: {one_line(str(each), _LONGEST_LINE)}" for each in await page.page_errors()
    ]
    requests = [one_line(each, _LONGEST_LINE) for each in acting.tab.requests.failures]
    return {"console": [*written, *errors][-_MOST_LINES:], "requests": requests[-_MOST_LINES:]}


async def _evaluate(acting: Acting, code: str) -> Any:
    if not acting.evaluate:
        raise ActionFailed("code cannot run on pages here: allow it with policy: {evaluate: true}")
    return await acting.page.evaluate(code)


ACTIONS: dict[str, Action] = {
    "navigate": Action(_navigate, navigates=True, leaves=True),
    "observe": Action(_observe),
    "click": Action(_click, choices={"button": ("left", "middle", "right")}),
    "fill": Action(_fill),
    "type": Action(_type),
    "press": Action(_press),
    "select": Action(_select),
    "check": Action(_check),
    "hover": Action(_hover),
    "scroll": Action(_scroll, choices={"direction": ("up", "down", "left", "right")}),
    "drag": Action(_drag),
    "upload": Action(_upload, hidden=True),
    "wait_for": Action(_wait_for, navigates=True),
    "back": Action(_back, navigates=True, leaves=True),
    "forward": Action(_forward, navigates=True, leaves=True),
    "reload": Action(_reload, navigates=True, leaves=True),
    "new_tab": Action(_new_tab, navigates=True),
    "switch_tab": Action(_switch_tab),
    "close_tab": Action(_close_tab),
    "answer_dialog": Action(_answer_dialog),
    "log": Action(_log),
    "screenshot": Action(_screenshot),
    "evaluate": Action(_evaluate),
}
