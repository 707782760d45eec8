"""The look of states, times, ids, users and values, the same on every view."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from markupsafe import Markup

from flowengine.drawing.icons import look_of
from flowengine.kernel.notation.addresses import flow_name
from flowengine.kernel.notation.times import UNITS, parse_time
from flowengine.kernel.view import DECIDABLE
from flowengine.page.static_files import static
from flowengine.sdk.texts.json_values import plain
from flowengine.sdk.texts.visible_text import printable_lines

_NAMES = (("d", "d"), ("h", "h"), ("m", "min"), ("s", "s"))
LONGEST_TEXT = 20_000
"""Characters of one value on a view."""
_PARSED, _EXCERPT = 1000, 200
"""Characters of a text that are read for its excerpt, and those of the excerpt."""
_ROWS, _COLUMNS, _CELL = 200, 20, 500
"""The most rows and columns of a table on a view, and characters of a cell."""
_GENERATED_ID = re.compile("[0-9a-z]{26}|[0-9a-f]{32}|[0-9a-f]{64}")
"""An id or a digest without words, whose beginning identifies it."""


def moment(text: str) -> Markup:
    """Return a time with its date and minutes, which a script shows relative to now."""
    return Markup('<time datetime="{}">{}</time>').format(text, text[:16].replace("T", " "))


def precise(text: str) -> Markup:
    """Return a time with its seconds."""
    shown = text[:19].replace("T", " ")
    return Markup('<time datetime="{}" data-precise>{}</time>').format(text, shown)


def duration(ms: int) -> str:
    """Return a duration in its largest unit: `3 d`, `2 min`, `0.4 s`.

    Args:
        ms: Milliseconds. Less than zero, from clocks that differ, counts as zero.
    """
    if ms < 100:
        return "< 0.1 s"
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    unit, name = next(pair for pair in _NAMES if ms >= UNITS[pair[0]])
    return f"{ms // UNITS[unit]} {name}"


def between(start: str, end: str) -> str:
    """Return the duration between two times."""
    return duration(parse_time(end) - parse_time(start))


def now() -> int:
    """Return the time (ms since 1970)."""
    return int(time.time() * 1000)


def is_past(text: str) -> bool:
    """Return whether a time has passed."""
    return parse_time(text) < now()


def short_id(id: str) -> Markup:
    """Return an id, of a generated one its beginning with the full id in its title."""
    if _GENERATED_ID.fullmatch(id) is None:
        return Markup("<code>{}</code>").format(id)
    return Markup('<code title="{}">{}…</code>').format(id, id[:12])


def as_text(value: Any) -> str:
    """Return a value as indented JSON, and its beginning if it is long."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=plain)
    return beginning(text)


class Table(NamedTuple):
    """Rows with the same keys, as a table."""

    columns: list[str]
    rows: list[list[Any]]
    """The cells by column. None: the row does not have the key."""
    left_out: int
    """Further rows."""


def tables_in(values: Any) -> dict[str, Table]:
    """Return the lists of rows among named values, by name.

    A list is one if all its items are objects without nested values, with few different keys.
    """
    found = {}
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if not isinstance(value, list) or not value or not all(map(_is_row, value)):
            continue
        columns = list(dict.fromkeys(key for row in value for key in row))
        if len(columns) <= _COLUMNS:
            rows = [[row.get(column) for column in columns] for row in value[:_ROWS]]
            found[name] = Table(columns, rows, len(value) - len(rows))
    return found


def _is_row(item: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and bool(item)
        and all(value is None or isinstance(value, str | int | float) for value in item.values())
    )


def cell(value: str | float | None) -> str:
    """Return a value as the text of a cell of a table."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return printable_lines(text[:_CELL]) + ("…" if len(text) > _CELL else "")


def beginning(text: str) -> str:
    """Return a text without characters that would disguise it, and only the start of a long one."""
    shown = printable_lines(text[:LONGEST_TEXT])
    left_out = len(text) - LONGEST_TEXT
    return (
        shown if left_out <= 0 else f"{shown}\n… {left_out} more characters: flowengine show --json"
    )


def excerpt(text: str) -> str:
    """Return the beginning of a text in Markdown as one line, without its marks."""
    parts: list[str] = []
    for block in _markdown().parse(beginning(text[:_PARSED])):
        parts += [
            " " if token.type.endswith("break") else token.content
            for token in block.children or (block,)
        ]
        parts.append(" · " if block.type == "list_item_open" else " ")
    return " ".join("".join(parts).split())[:_EXCERPT]


@cache
def _markdown() -> Any:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True})
    parser.validateLink = lambda url: url.lower().startswith(("http://", "https://", "mailto:"))  # type: ignore[method-assign]
    return parser.enable("table").disable("image")


def markdown(text: str) -> Markup:
    """Return a text in Markdown (CommonMark with tables) as HTML.

    HTML in it is text, and pictures are links, so that a text cannot learn who reads it. Links lead
    to `http`, `https` and `mailto` only.
    """
    return Markup(_markdown().render(beginning(text)))  # it escapes everything


# States. Each has a shape, a word and a color.


def icon(name: str) -> Markup:
    """Return an icon of `static/icons.svg`."""
    use = '<svg class="i" aria-hidden="true"><use href="{}#{}"/></svg>'
    return Markup(use).format(static("icons.svg"), name)


def badge(state: str, word: str = "", look: str | None = None) -> Markup:
    """Return a state with its shape, word and color.

    Args:
        state: Of an execution, step or environment.
        word: Shown instead of the state.
        look: Another look: `you` for what waits for a person.
    """
    look = look or look_of(state)
    return Markup('<span class="status {} {}">{}<span class="word">{}</span></span>').format(
        look, state, icon(look), word or state
    )


def waiting(waits: list[Mapping[str, Any]], may_decide: bool) -> Markup:
    """Return the state of an execution that waits: for a person, or for a time or a message.

    Args:
        waits: Its open waits.
        may_decide: Whether the user may decide one of them.
    """
    asked = [wait for wait in waits if wait["kind"] in DECIDABLE and not wait.get("chat")]
    if not asked and any(wait.get("chat") for wait in waits):
        return badge("waiting", "waits for a message", "idle")
    if not asked:
        return badge("waiting", "sleeps" if waits else "waiting")
    names = dict.fromkeys(name for wait in asked for name in wait.get("assignees", ()))
    who = "you" if may_decide else ", ".join(map(person, names)) or "a person"
    return badge("waiting", f"waits for {who}", "you")


def person(name: str) -> str:
    """Return the name of a user or a group without its prefix."""
    return name.removeprefix("user:").removeprefix("group:")


FILTERS = {
    "as_text": as_text,
    "flow_name": flow_name,
    "cell": cell,
    "tables_in": tables_in,
    "beginning": beginning,
    "excerpt": excerpt,
    "markdown": markdown,
    "moment": moment,
    "person": person,
    "precise": precise,
    "short_id": short_id,
}
"""Filters of the templates, by name."""
