"""Browser actions, each as data: `{"action": "click", "ref": "e3"}`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

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

    type: Literal["string", "number", "integer", "boolean", "list"]
    about: str
    required: bool = False
    choices: Sequence[str] = ()


class Action(NamedTuple):
    """A browser action."""

    about: str
    fields: Mapping[str, ActionField]
    run: Callable[..., Awaitable[Any]]
    on_element: bool = False
    """Whether it takes `ref` or `selector`. `run` receives the element as its second argument."""
    hidden: bool = False
    """Whether the element may be invisible."""
    navigates: bool = False
    """Whether its time limit is the one for loading a page."""
    leaves: bool = False
    """Whether it leaves the page, which must respond first."""

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
            if value is not None and not _fits(value, wanted.type):
                raise ActionFailed(f"'{field}' must be a {wanted.type}; {described}")
            if wanted.choices and value is not None and value not in wanted.choices:
                raise ActionFailed(f"'{field}' must be one of: {', '.join(wanted.choices)}")
        fields = {field: value for field, value in given.items() if value is not None}
        for field, wanted in allowed.items():
            if wanted.required and field not in fields:
                raise ActionFailed(f"'{field}' is missing; {described}")
        return fields


_ELEMENT = {
    "ref": ActionField("string", "Reference of the element in the last observation, such as e5."),
    "selector": ActionField("string", "CSS selector of the element, instead of a reference."),
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "list": (list, tuple),
}


def _fits(value: object, type: str) -> bool:
    if isinstance(value, bool):
        return type == "boolean"
    return isinstance(value, _TYPES[type])


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
    acting: Acting, element: library.Locator, button: Any = "left", double: bool = False
) -> None:
    press = element.dblclick if double else element.click
    await press(button=button, timeout=acting.milliseconds)


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


_TEXT = ActionField("string", "The text.", required=True)
_SUBMIT = ActionField("boolean", "Whether to press Enter afterwards.")
_INDEX = "Number of the tab in the list of tabs, from 0."

ACTIONS: dict[str, Action] = {
    "navigate": Action(
        "Open an address.",
        {
            "url": ActionField(
                "string", "An http or https address, or file:///workspace/….", required=True
            )
        },
        _navigate,
        navigates=True,
        leaves=True,
    ),
    "observe": Action("Look at the page.", {}, _observe),
    "click": Action(
        "Click an element.",
        {
            "button": ActionField("string", "Of the mouse.", choices=("left", "middle", "right")),
            "double": ActionField("boolean", "Whether twice."),
        },
        _click,
        on_element=True,
    ),
    "fill": Action(
        "Replace the text of a field.", {"text": _TEXT, "submit": _SUBMIT}, _fill, on_element=True
    ),
    "type": Action(
        "Type text key by key, for fields that react to each.",
        {"text": _TEXT, "submit": _SUBMIT},
        _type,
        on_element=True,
    ),
    "press": Action(
        "Press a key.",
        {"key": ActionField("string", "Enter, Escape, Tab, ArrowDown, Control+A, …", required=True)}
        | _ELEMENT,
        _press,
    ),
    "select": Action(
        "Choose options of a list.",
        {"values": ActionField("list", "Their values or labels.", required=True)},
        _select,
        on_element=True,
    ),
    "check": Action(
        "Check a box or choose a radio button.",
        {"checked": ActionField("boolean", "False unchecks it.")},
        _check,
        on_element=True,
    ),
    "hover": Action("Move the mouse over an element.", {}, _hover, on_element=True),
    "scroll": Action(
        "Scroll the page; with an element alone, until it can be seen; with an element and a "
        "direction or pixels, the list or area that it is in.",
        {
            "direction": ActionField("string", "", choices=("up", "down", "left", "right")),
            "pixels": ActionField("integer", "How far; default: most of the window."),
            **_ELEMENT,
        },
        _scroll,
    ),
    "drag": Action(
        "Drag an element to another one.",
        {
            "to_ref": ActionField("string", "Reference of the other one."),
            "to_selector": ActionField("string", "Its selector, instead of a reference."),
        },
        _drag,
        on_element=True,
    ),
    "upload": Action(
        "Give files of the workspace to a field for files.",
        {"paths": ActionField("list", "Paths in the workspace.", required=True)},
        _upload,
        on_element=True,
        hidden=True,
    ),
    "wait_for": Action(
        "Wait until something appears or is gone.",
        {
            "text": ActionField("string", "A text of the page."),
            "selector": ActionField("string", "Selector of an element."),
            "seconds": ActionField("number", "How long at most, up to 30; alone: how long."),
            "gone": ActionField("boolean", "Whether to wait until it is gone."),
        },
        _wait_for,
        navigates=True,
    ),
    "back": Action("Go back to the page before.", {}, _back, navigates=True, leaves=True),
    "forward": Action("Go forward again.", {}, _forward, navigates=True, leaves=True),
    "reload": Action("Load the page again.", {}, _reload, navigates=True, leaves=True),
    "new_tab": Action(
        "Open a new tab.",
        {"url": ActionField("string", "What to open in it.")},
        _new_tab,
        navigates=True,
    ),
    "switch_tab": Action(
        "Make another tab the active one.",
        {"index": ActionField("integer", _INDEX, required=True)},
        _switch_tab,
    ),
    "close_tab": Action("Close a tab.", {"index": ActionField("integer", _INDEX)}, _close_tab),
    "answer_dialog": Action(
        "Say how dialogs of the next action are answered, one after the other; others are "
        "dismissed.",
        {
            "accept": ActionField("boolean", "Whether it is accepted."),
            "text": ActionField("string", "What a prompt is answered."),
        },
        _answer_dialog,
    ),
    "log": Action(
        "Return what the page wrote to its console, and its requests that failed.", {}, _log
    ),
    "screenshot": Action(
        "Take a picture of the page.",
        {"full_page": ActionField("boolean", "Whether of all of it, not only of the window.")},
        _screenshot,
    ),
    "evaluate": Action(
        "Run JavaScript on the page, where the policy allows it.",
        {"code": ActionField("string", "An expression or a function.", required=True)},
        _evaluate,
    ),
}
