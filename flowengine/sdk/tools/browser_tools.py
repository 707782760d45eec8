"""Browser actions as tools, for steps and agents of flows and for agents in Python."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.errors import NeedsApproval
from flowengine.sdk.steps.step_kind import Effect, Tool
from flowengine.sdk.tools.schemas import FLAG, TEXT, WHOLE, listed, record

BROWSER = "browser"
"""The kind of environment, and the default name of the environment used."""
_SHOWN = 4000
"""Characters of the text, and of the tree, shown to a model at once."""
_BESIDE_PICTURE = 500
"""Characters of text that accompany a picture."""
_TEXTS = listed(TEXT)


class _Verb(NamedTuple):
    """A tool for agents: one action."""

    action: str
    about: str
    fields: Mapping[str, Plain]
    required: tuple[str, ...] = ()
    effect: Effect = "once"


class ToolPicture(NamedTuple):
    """The result of a tool for a model: text, and an image for a model with vision."""

    value: str
    image: bytes | None
    agent: None = None
    context_variables: Mapping[str, Plain] = {}


async def call(
    browser: Any, tool: str, args: Mapping[str, Any], approved: Any = None, *, picture: bool = True
) -> str | ToolPicture:
    """Call one of these tools.

    Args:
        browser: The browser.
        tool: Its name.
        args: Its arguments.
        approved: The approved action: the `found` of an earlier `NeedsApproval`.
        picture: Whether the caller can see pictures.

    Returns:
        The text for the model, with a picture if one was requested.

    Raises:
        NeedsApproval: The action requires approval and was not performed.
    """
    if tool == "browser_read":
        seen = await browser.async_observe()
        return str(browser.observation_text(seen, _SHOWN, 0, args["offset"]))
    if tool == "browser_look":
        seen = await browser.async_step({"action": "screenshot", **args})
        text = str(browser.observation_text(seen, _BESIDE_PICTURE, 0))
        return ToolPicture(text, seen.screenshot or None) if picture else text
    if tool == "browser_find":
        return str(browser.search_text(await browser.async_observe(), **args))
    if tool == "browser_elements":
        return str(browser.elements(await browser.async_observe(), **args))
    if tool == "browser_log":
        return str(browser.log_shown(await browser.async_log()))
    action, fields = _VERBS[tool].action, dict(args)
    if tool == "browser_go":
        action = fields.pop("to")
    elif tool == "browser_tab" and fields.pop("close", False):
        action = "close_tab"
    elif tool == "browser_open" and fields.pop("new_tab", False):
        action = "new_tab"
    seen = await browser.async_step({"action": action, **fields}, approved)
    if seen.needs_approval is not None:
        raise NeedsApproval(seen.needs_approval)
    if tool == "browser_dialog":
        done = "Dialogs of the next action are answered so: now do what opens them."
        return f"{done}\n{browser.observation_text(seen, _BESIDE_PICTURE, 0)}"
    new = tool == "browser_scroll"
    return str(browser.shown(seen, _SHOWN, _SHOWN, anew=tool in _ANEW, new=new))


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
        {"ref": _REF, "values": _TEXTS},
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
            "ref": {**TEXT, "description": "Reference of an element in the area to scroll."},
        },
        ("direction",),
        "idempotent",
    ),
    "browser_hover": _Verb(
        "hover", "Moves the mouse over an element, for menus and hints.", {"ref": _REF}, ("ref",)
    ),
    "browser_dialog": _Verb(
        "answer_dialog",
        "Sets how dialogs (confirm, prompt) of the next action are answered. Without it, "
        "they are dismissed.",
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
        {"ref": _REF, "paths": {**_TEXTS, "description": "Paths in its workspace."}},
        ("ref", "paths"),
    ),
}
_ANEW = frozenset({"browser_open", "browser_go", "browser_tab"})
"""Tools that show a page from its beginning."""
_OFFSET: dict[str, Plain] = {
    **WHOLE,
    "minimum": 0,
    "description": "As given in the last answer.",
}
_WITHIN: dict[str, Plain] = {**TEXT, "description": "Reference of an element to look in."}


def _tool(verb: _Verb) -> Tool:
    about = f"{verb.about} Shows the page: its text, and its elements with references."
    return {**_reader(about, verb.fields, *verb.required), "effect": verb.effect}


def _reader(about: str, args: Mapping[str, Plain], *required: str) -> Tool:
    return {
        "description": about,
        "args": record(args, required),
        "returns": TEXT,
        "effect": "idempotent",
        "environment": BROWSER,
        "apart": True,
    }


TOOLS: dict[str, Tool] = {
    "browser_read": _reader(
        "Reads the text of the page that the browser shows, from a place on.",
        {"offset": _OFFSET},
        "offset",
    ),
    "browser_look": _reader(
        "Shows a picture of the page, for content that its text does not contain.",
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


# `OfferedTool`: a server's description of one of its tools, in the form offered to a model.


class OfferedTool(NamedTuple):
    """A tool of a server, in the form offered to a model."""

    name: str
    """Name by which it is called on the server."""
    description: str
    schema: Plain
    """The JSON Schema of its arguments according to the server, unchecked."""
    digest: str
    """Digest of description and schema. The name is not included, because the name in a call may
    have a prefix."""
    fault: str = ""
    """Why the tool cannot be used, if so."""

    @classmethod
    def of(cls, listed: Mapping[str, Plain]) -> Self:
        """Return the offer of a tool.

        Args:
            listed: The tool as its server lists it.
        """
        about, schema = listed.get("description"), listed.get("inputSchema")
        offer = json.dumps({"description": about, "inputSchema": schema}, sort_keys=True)
        digest = hashlib.sha256(offer.encode()).hexdigest()
        return cls(str(listed["name"]), str(about or ""), schema, digest)
