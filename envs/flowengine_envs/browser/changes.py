"""What is new on a page since it was looked at before: its lines that were not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import urldefrag

from flowengine_envs.browser.observation import WebObservation


def is_same_page(before: WebObservation | None, after: WebObservation) -> bool:
    """Return whether two observations are of the same address."""
    if before is None or not after.url:
        return False
    return urldefrag(before.url).url == urldefrag(after.url).url


def new_lines(before: str, after: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text that are new, each with where it begins.

    Args:
        before: The text as it was.
        after: The text as it is: of equal lines, the first ones count as those that were there.
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
    # Where an element stands, and which one has the focus, is no news.
    return line.strip().replace(" [active]", "")
