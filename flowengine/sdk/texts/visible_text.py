"""Text by third parties without characters that hide or disguise text, or control a terminal.

| reader | function | such characters are |
|---|---|---|
| a user: one line of a terminal, page or log | `printable` | replaced, so that the user sees them |
| a user: several lines | `printable_lines` | replaced |
| a model | `visible`, and `one_line` for a title, name or label | removed and counted |

Converters of documents run this module inside sandboxes, so it needs only the standard library.
"""

from __future__ import annotations

import re

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_DISGUISING = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # move the cursor, change colors
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the text direction
    "\u2028\u2029"  # end lines
    "\u00ad\u180e\u200b\u2060-\u2064\ufeff\ufff9-\ufffb\ufffe"  # have no width
    "\ud800-\udfff"  # cannot be encoded
    "\U000e0000-\U000e007f"  # hide text
)
DISGUISING = re.compile(f"[{_DISGUISING}]")
"""All but tabs, line feeds, and the joiners in Arabic and emoji."""
_LINE_END = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE = re.compile(
    "(\U0001f3f4[\U000e0061-\U000e007a]{1,6}\U000e007f)"  # flags of regions are spelled with tags
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # colors of a terminal
    f"|[{_DISGUISING}]"
)


def printable(text: object) -> str:
    """Return a text on one line, with characters that could disguise it replaced.

    Args:
        text: Any object. Such characters become `\ufffd`, and a line feed is shown as a sign.
    """
    return printable_lines(text).replace("\n", "\N{SYMBOL FOR NEWLINE}")


def printable_lines(text: object) -> str:
    """Return a text of several lines, with characters that could disguise it replaced.

    Args:
        text: Any object. Such characters become `\ufffd`. Lines end with a line feed.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return DISGUISING.sub(REPLACEMENT, shown.replace("\r\n", "\n"))


def visible(text: str) -> tuple[str, int]:
    """Return text without its invisible characters, and how many there were.

    Characters that join Arabic letters or emoji are kept. Each line ends with a line feed, because
    a carriage return alone would let a line overwrite itself where it is printed.
    """
    if text.isascii() and text.isprintable():
        return text, 0
    text = _LINE_END.sub("\n", text)
    shown = _INVISIBLE.sub(r"\1", text)
    return shown, len(text) - len(shown)


def one_line(text: str, longest: int = 500) -> str:
    """Return text in one line, visible and shortened: for a title, a name, a label."""
    line = " ".join(visible(text)[0].split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def shortened(text: str, longest: int, whole: str) -> str:
    """Return a text, or the beginning, end, size and digest of a long one.

    Args:
        text: What is shown.
        longest: Characters to show. Only a longer text is cut, in its middle.
        whole: The text that the SHA-256 digest is of.
    """
    if len(text) <= longest:
        return text
    from hashlib import sha256

    digest = sha256(whole.encode(errors="surrogatepass")).hexdigest()
    cut = f" … {len(text)} characters, sha256 {digest[:16]} … "
    return f"{text[: longest // 2]}{cut}{text[-longest // 2 :]}"


# Beginning and end of texts that are too long to show in full.

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


def without_middle(text: str, ends: Ends) -> str:
    """Return the ends of a text, with a note about the length of the omitted middle."""
    left_out = len(text) - len(ends[0]) - len(ends[1])
    return f"{ends[0]}\n... {left_out} characters left out ...\n{ends[1]}"
