"""Beginning and end of a text that is too long to be shown as a whole."""

from __future__ import annotations

Ends = tuple[str, str]
"""Beginning and end."""


def ends_in_bytes(text: str, most: int) -> Ends | None:
    """Return beginning and end of a text: two thirds and one third of what there is room for.

    Args:
        text: What is too long, perhaps.
        most: Bytes of UTF-8 in all; no character is broken.

    Returns:
        None: there is room for all of it.
    """
    data = text.encode(errors="replace")
    if len(data) <= most:
        return None
    head, tail = data[: most - most // 3], data[len(data) - most // 3 :]
    return head.decode(errors="ignore"), tail.decode(errors="ignore")


def ends_in_characters(text: str, most: int) -> Ends | None:
    """Return beginning and end of a text, as `ends_in_bytes` does, counted in characters."""
    if len(text) <= most:
        return None
    return text[: most * 2 // 3], text[len(text) - most // 3 :]
