"""Finds the lines of a page that are new since an earlier observation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import urldefrag

from flowengine_envs.browser.observation import WebObservation


def is_same_page(before: WebObservation | None, after: WebObservation) -> bool:
    """Return whether two observations have the same address."""
    if before is None or not after.url:
        return False
    return urldefrag(before.url).url == urldefrag(after.url).url


def new_lines(before: str, after: str) -> Iterator[tuple[int, str]]:
    """Yield the new lines of a text, each with its offset.

    Args:
        before: The earlier text.
        after: The current text. Of equal lines, the first ones count as the earlier ones.
    """
    known = Counter(map(_compared, before.split("\n")))
    at = 0
    for line in after.split("\n"):
        compared = _compared(line)
        if known[compared] > 0:
            known[compared] -= 1
        elif compared:
            yield at, line
        at += len(line) + 1


def _compared(line: str) -> str:
    # An element's position, and which element has the focus, do not count as changes.
    return line.strip().replace(" [active]", "")
