"""Actions written as calls, such as `click('e5')`, in the syntax of BrowserGym agents.

The text is parsed, never run. It is a single call whose arguments are literal values. An error
becomes an unknown action or a wrong field, so that the observation reports the correct form.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from flowengine_envs.browser.actions import ACTIONS

_NAMES: Mapping[str, str] = {
    "goto": "navigate",
    "go_back": "back",
    "go_forward": "forward",
    "keyboard_press": "press",
    "select_option": "select",
    "upload_file": "upload",
    "drag_and_drop": "drag",
    "tab_close": "close_tab",
    "tab_focus": "switch_tab",
    "noop": "observe",
}
"""Names in BrowserGym → names here, where they differ."""
_FIELDS: Mapping[str, str] = {
    "bid": "ref",
    "from_bid": "ref",
    "to_bid": "to_ref",
    "value": "text",
    "key_comb": "key",
    "options": "values",
    "file": "paths",
}
"""Names of fields in BrowserGym → names here."""
_LONGEST = 100_000
"""Maximum characters of a call."""


def read_action(text: str) -> dict[str, Any]:
    """Return the action of a call as data for `step`.

    Args:
        text: For example `goto("https://example.org")` or `fill("e5", "Ana")`.
    """
    try:
        with warnings.catch_warnings():  # caused by invalid escapes
            warnings.simplefilter("ignore")
            call = ast.parse(text.strip()[:_LONGEST], mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return {"action": text}
        given = [ast.literal_eval(each) for each in call.args]
        named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return {"action": text}
    name = _NAMES.get(call.func.id, call.func.id)
    if call.func.id == "noop":  # Its duration is not needed, because observing waits for the page.
        given, named = [], {}
    if name == "scroll" and len(given) == 2 and all(isinstance(n, int | float) for n in given):
        right, down = given  # the longer one is used
        ways, by = (("right", "left"), right) if abs(right) > abs(down) else (("down", "up"), down)
        return {"action": name, "direction": ways[by <= 0], "pixels": int(abs(by))}
    known = _positions(call.func.id, name, len(given))
    places = [*known, *(f"argument {n}" for n in range(len(known) + 1, len(given) + 1))]
    fields = dict(zip(places, given, strict=False))
    fields |= {_FIELDS.get(field, field): value for field, value in named.items()}
    return {"action": name, **{field: _fitted(name, field, fields[field]) for field in fields}}


def _positions(written: str, name: str, count: int) -> Sequence[str]:
    """Return the fields of an action in the order of its arguments."""
    if name == "press":
        return ("key",) if written == "keyboard_press" or count == 1 else ("ref", "key")
    action = ACTIONS.get(name)
    if action is None:
        return ()
    return (*(("ref",) if action.on_element else ()), *action.fields)


def _fitted(name: str, field: str, value: Any) -> Any:
    """Return a value as a list if the field takes several."""
    action = ACTIONS.get(name)
    wanted = None if action is None else action.fields.get(field)
    return [value] if wanted and wanted.type == "list" and isinstance(value, str) else value
