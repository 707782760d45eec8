"""Beginning and end of texts that are too long to show in full."""

from __future__ import annotations

Ends = tuple[str, str]
"""Beginning and end."""


def ends_in_bytes(text: str, most: int) -> Ends | None:
    """Return the beginning and end of a text, two thirds and one third of the available bytes.

    Args:
        text: The text, which may be too long.
        most: Bytes of UTF-8 in total. No character is split.

    Returns:
        None if all of it fits.
    """
    data = text.encode(errors="replace")
    if len(data) <= most:
        return None
    head, tail = data[: most - most // 3], data[len(data) - most // 3 :]
    return head.decode(errors="ignore"), tail.decode(errors="ignore")


def ends_in_characters(text: str, most: int) -> Ends | None:
    """Return the beginning and end of a text, like `ends_in_bytes`, counted in characters."""
    if len(text) <= most:
        return None
    return text[: most * 2 // 3], text[len(text) - most // 3 :]


def cut_text(text: str, longest: int) -> str:
    """Return a text, with a note in place of its middle if it is too long."""
    ends = ends_in_characters(text, longest)
    return text if ends is None else without_middle(text, ends)


def without_middle(text: str, ends: Ends) -> str:
    """Return the ends of a text, with a note about the length of the omitted middle."""
    left_out = len(text) - len(ends[0]) - len(ends[1])
    return f"{ends[0]}\n... {left_out} characters left out ...\n{ends[1]}"
