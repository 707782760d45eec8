"""`std` tools that use a browser: a script of actions for flows, single verbs for agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.sdk import NeedsApproval, Plain, StepContext, Tool, ToolError
from flowengine_nodes.tool_schemas import FLAG, TEXT, WHOLE, listed, record

if TYPE_CHECKING:
    from flowengine.sdk import Effect

BROWSER = "browser"
"""The kind of environment, and the name of the one that is used."""
_SHOWN = 4000
"""Characters of the text, and of the tree, that a model is shown at once."""
_BESIDE_PICTURE = 500
"""Characters of the text that go with a picture."""


class _Verb(NamedTuple):
    """A tool for agents: one action."""

    action: str
    about: str
    fields: Mapping[str, Plain]
    required: tuple[str, ...] = ()
    effect: Effect = "once"


class _Picture(NamedTuple):
    """What a tool gives a model: text, and an image for one that sees."""

    value: str
    image: bytes | None
    agent: None = None
    context_variables: Mapping[str, Plain] = {}


async def call(context: StepContext, tool: str, args: dict[str, Any]) -> Any:
    """Call one of these tools.

    Args:
        context: The attempt.
        tool: Its name.
        args: Its arguments.
    """
    browser = context.resources[BROWSER]
    if tool == "browse":
        return await _browse(context, browser, **args)
    if tool == "browser_read":
        seen = await browser.async_observe()
        return browser.told(seen, _SHOWN, 0, args["offset"])
    if tool == "browser_look":
        seen = await browser.async_step({"action": "screenshot", **args})
        said = browser.told(seen, _BESIDE_PICTURE, 0)
        return _Picture(said, seen.screenshot or None) if context.for_model else said
    if tool == "browser_find":
        return browser.found(await browser.async_observe(), **args)
    if tool == "browser_elements":
        return browser.elements(await browser.async_observe(), **args)
    if tool == "browser_log":
        return browser.log_shown(await browser.async_log())
    approved = (context.approval or {}).get("found")
    seen = await browser.async_step(_step(tool, args), approved)
    if seen.needs_approval is not None:
        raise NeedsApproval(seen.needs_approval)
    if tool == "browser_dialog":
        done = "Dialogs of the next action are answered so: now do what opens them."
        return f"{done}\n{browser.told(seen, _BESIDE_PICTURE, 0)}"
    new = tool == "browser_scroll"
    return browser.shown(seen, _SHOWN, _SHOWN, anew=tool in _ANEW, new=new)


def _step(tool: str, args: dict[str, Any]) -> dict[str, Any]:
    """Return the action that a call of a verb is."""
    action, fields = _VERBS[tool].action, dict(args)
    if tool == "browser_go":
        action = fields.pop("to")
    elif tool == "browser_tab" and fields.pop("close", False):
        action = "close_tab"
    elif tool == "browser_open" and fields.pop("new_tab", False):
        action = "new_tab"
    return {"action": action, **fields}


async def _browse(
    context: StepContext,
    browser: Any,
    url: str = "",
    actions: list[dict[str, Any]] | None = None,
    screenshot: bool = False,
    full_page: bool = False,
) -> Plain:
    """Open an address, do actions one after the other, and return what there is to see then.

    If people have to approve one of them, the step waits with those before it done. What it has to
    know of them then is kept with the question.

    Raises:
        NeedsApproval: People have to approve one of them; it and those after it were not done.
        ToolError: One of them failed; those after it were not done.
    """
    steps: list[dict[str, Any]] = [{"action": "navigate", "url": url}] if url else []
    steps += actions or []
    if screenshot or not steps:
        steps.append({"action": "screenshot", "full_page": full_page})
    found = (context.approval or {}).get("found") or {}
    before = found.get("before") or {}
    done = before.get("done", 0)
    downloads: list[Plain] = [*before.get("downloads", ())]
    dialogs: list[Plain] = [*before.get("dialogs", ())]
    if done and before["browser"] != browser.opening:
        raise ToolError(
            f"the browser was opened again since action {done + 1} was approved, so what the "
            "actions before it did is gone: nothing was done",
            retryable=False,
        )
    for number, step in enumerate(steps[done:], done):
        seen = await browser.async_step(step, found if number == done else None)
        data = seen.as_data()
        downloads += data["downloads"]
        dialogs += data["dialogs"]
        if seen.needs_approval is not None:
            so_far = {"done": number, "downloads": downloads, "dialogs": dialogs}
            raise NeedsApproval(seen.needs_approval, {**so_far, "browser": browser.opening})
        if seen.error:
            place = f"action {number + 1} ({step.get('action')})"
            shown = {name: data[name] for name in ("url", "title", "status", "content")}
            raise ToolError(f"{place}: {seen.error}", data=shown, retryable=False)
    image = context.execution.artifacts.put(seen.screenshot, "page.png") if screenshot else None
    shown = {name: data[name] for name in _PAGE if name in data}
    return {**shown, "downloads": downloads, "dialogs": dialogs, "screenshot": image}


_REF: dict[str, Plain] = {
    **TEXT,
    "description": "Reference of the element in the last answer, such as e5.",
}
_VERBS: dict[str, _Verb] = {
    "browser_open": _Verb(
        "navigate",
        "Opens a page of the web in a browser that runs its scripts.",
        {
            "url": {
                **TEXT,
                "description": "https://…, or file:///workspace/… for a file of its workspace.",
            },
            "new_tab": {**FLAG, "description": "Whether to leave the page that is open there."},
        },
        ("url",),
        "idempotent",
    ),
    "browser_click": _Verb(
        "click", "Clicks an element of the page.", {"ref": _REF, "double": FLAG}, ("ref",)
    ),
    "browser_fill": _Verb(
        "fill",
        "Replaces the text of a field.",
        {
            "ref": _REF,
            "text": TEXT,
            "submit": {**FLAG, "description": "Whether to press Enter afterwards."},
        },
        ("ref", "text"),
    ),
    "browser_select": _Verb(
        "select",
        "Chooses options of a list, by their values or labels.",
        {"ref": _REF, "values": listed(TEXT)},
        ("ref", "values"),
    ),
    "browser_press": _Verb(
        "press",
        "Presses a key: Enter, Escape, Tab, PageDown, Control+A.",
        {"key": TEXT, "ref": _REF},
        ("key",),
    ),
    "browser_wait": _Verb(
        "wait_for",
        "Waits until a text appears on the page.",
        {"text": TEXT, "seconds": {"type": "number", "maximum": 30}},
        ("text",),
        "idempotent",
    ),
    "browser_scroll": _Verb(
        "scroll",
        "Scrolls the page, or the list or area that an element is in, and shows what has come.",
        {
            "direction": {"type": "string", "enum": ["down", "up", "left", "right"]},
            "ref": {**TEXT, "description": "Reference of an element in what is to be scrolled."},
        },
        ("direction",),
        "idempotent",
    ),
    "browser_hover": _Verb(
        "hover", "Moves the mouse over an element, for menus and hints.", {"ref": _REF}, ("ref",)
    ),
    "browser_dialog": _Verb(
        "answer_dialog",
        "Says how dialogs (confirm, prompt) of the next action are answered; without it, they are "
        "dismissed.",
        {"accept": FLAG, "text": {**TEXT, "description": "The answer to a prompt."}},
        ("accept",),
        "idempotent",
    ),
    "browser_go": _Verb(
        "back",
        "Goes back to the page before, forward again, or loads the page again.",
        {"to": {"type": "string", "enum": ["back", "forward", "reload"]}},
        ("to",),
    ),
    "browser_tab": _Verb(
        "switch_tab",
        "Makes another tab the active one, or closes it.",
        {"index": WHOLE, "close": FLAG},
        ("index",),
        "idempotent",
    ),
    "browser_upload": _Verb(
        "upload",
        "Gives files to a field for files.",
        {"ref": _REF, "paths": {**listed(TEXT), "description": "Paths in its workspace."}},
        ("ref", "paths"),
    ),
}
_ANEW = frozenset({"browser_open", "browser_go", "browser_tab"})
"""Verbs that show a page from its beginning."""
_OFFSET: dict[str, Plain] = {**WHOLE, "minimum": 0, "description": "As the last answer says."}
_WITHIN: dict[str, Plain] = {**TEXT, "description": "Reference of an element to look in."}
_TAB: dict[str, Plain] = {"index": WHOLE, "url": TEXT, "title": TEXT, "active": FLAG}
_DIALOG: dict[str, Plain] = {"kind": TEXT, "message": TEXT, "accepted": FLAG}
_FILE: dict[str, Plain] = {"path": TEXT, "size": WHOLE, "url": TEXT, "error": TEXT}
_PAGE: dict[str, Plain] = {
    "content": TEXT,
    "url": TEXT,
    "title": TEXT,
    "status": {"type": ["integer", "null"]},
    "ax_tree": TEXT,
    "truncated": FLAG,
    "hidden_text_removed": WHOLE,
    "tabs": listed(record(_TAB)),
    "invalid": listed(TEXT),
    "failed_requests": listed(TEXT),
    "blocked": listed(TEXT),
    "notes": listed(TEXT),
    "challenge": FLAG,
    "value": {},
}


def _tool(verb: _Verb) -> Tool:
    return {
        "description": f"{verb.about} Shows the page: its text, and its elements with references.",
        "args": record({**verb.fields}, [*verb.required]),
        "returns": TEXT,
        "effect": verb.effect,
        "environment": BROWSER,
        "apart": True,
    }


def _reader(about: str, args: Mapping[str, Plain], *required: str) -> Tool:
    return {
        "description": about,
        "args": record({**args}, [*required]),
        "returns": TEXT,
        "effect": "idempotent",
        "environment": BROWSER,
        "apart": True,
    }


TOOLS: dict[str, Tool] = {
    "browse": {
        "description": "Opens a page of the web in a browser that runs its scripts, does actions "
        "on it, and returns it as Markdown.",
        "args": record(
            {
                "url": TEXT,
                "actions": {
                    **listed(
                        {
                            "type": "object",
                            "properties": {"action": TEXT},
                            "required": ["action"],
                        }
                    ),
                    "description": "Such as {action: click, selector: '#more'}, in order.",
                },
                "screenshot": {**FLAG, "description": "Whether to keep a picture of the page."},
                "full_page": {**FLAG, "description": "Whether the picture is of all of it."},
            },
            [],
        ),
        "returns": record(
            {
                **_PAGE,
                "downloads": listed(record(_FILE)),
                "dialogs": listed(record(_DIALOG)),
                "screenshot": {"type": ["object", "null"]},
            }
        ),
        "effect": "once",
        "environment": BROWSER,
        "apart": True,
    },
    "browser_read": _reader(
        "Reads the text of the page that the browser shows, from a place on.",
        {"offset": _OFFSET},
        "offset",
    ),
    "browser_look": _reader(
        "Shows a picture of the page, for what its text does not say.",
        {"full_page": {**FLAG, "description": "Whether of all of it, not only the window."}},
    ),
    "browser_find": _reader(
        "Finds elements of the page by words, each with its row or section and the controls in it, "
        "and passages of the text.",
        {
            "text": {**TEXT, "description": "Words of a name or text."},
            "offset": _OFFSET,
            "ref": _WITHIN,
        },
        "text",
    ),
    "browser_elements": _reader(
        "Lists the elements of the page with their references, or those in one of them.",
        {"offset": _OFFSET, "ref": _WITHIN},
    ),
    "browser_log": _reader(
        "Shows what the page wrote to its console, and which of its requests failed.", {}
    ),
    **{name: _tool(verb) for name, verb in _VERBS.items()},
}
