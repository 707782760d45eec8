"""Times, durations and ids as the page shows them."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from markupsafe import Markup

from flowengine.json_values import plain
from flowengine.kernel.notation.times import UNITS, parse_time
from flowengine.sdk.visible_text import printable_lines

_NAMES = (("d", "d"), ("h", "h"), ("m", "min"), ("s", "s"))
LONGEST_TEXT = 20_000
"""Characters of one value on a view."""
_GENERATED_ID = re.compile("[0-9a-z]{26}|[0-9a-f]{32}|[0-9a-f]{64}")
"""An id or a digest without words, whose beginning identifies it."""
_SHORT_ID = 12


def moment(text: str) -> Markup:
    """Return a time with its date and minutes. The full time is in its attribute."""
    return _moment(text, 16)


def precise(text: str) -> Markup:
    """Return a time with its seconds."""
    return _moment(text, 19)


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


def is_past(text: str) -> bool:
    """Return whether a time has passed."""
    return parse_time(text) < time.time() * 1000


def short_id(id: str) -> Markup:
    """Return an id, of a generated one its beginning with the full id in its title."""
    if _GENERATED_ID.fullmatch(id) is None:
        return Markup("<code>{}</code>").format(id)
    return Markup('<code title="{}">{}…</code>').format(id, id[:_SHORT_ID])


def as_text(value: Any) -> str:
    """Return a value as indented JSON, and its beginning if it is long."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=plain)
    return beginning(text)


def beginning(text: str) -> str:
    """Return a text without characters that would disguise it, and only the start of a long one."""
    shown = printable_lines(text[:LONGEST_TEXT])
    left_out = len(text) - LONGEST_TEXT
    return (
        shown if left_out <= 0 else f"{shown}\n… {left_out} more characters: flowengine show --json"
    )


def _moment(text: str, length: int) -> Markup:
    shown = text[:length].replace("T", " ")
    return Markup('<time datetime="{}">{}</time>').format(text, shown)


FILTERS = {
    "as_text": as_text,
    "beginning": beginning,
    "moment": moment,
    "precise": precise,
    "short_id": short_id,
}
"""Filters of the templates, by name."""
