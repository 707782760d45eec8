"""Text of others, made fit for a terminal: it can neither control it nor pose as a line of ours."""

from __future__ import annotations

_INSTEAD = "\N{REPLACEMENT CHARACTER}"
HARMFUL = dict.fromkeys(
    (
        *range(0x20), *range(0x7F, 0xA0),  # move the cursor, change colours
        0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A),  # turn directions
        0x2028, 0x2029, 0xFEFF, *range(0xFFF9, 0xFFFC),
        *range(0xD800, 0xE000),  # cannot be encoded
        *range(0xE0000, 0xE0080),  # hide text
    ),
    _INSTEAD,
)  # fmt: skip
HARMFUL[ord("\t")] = "\t"
HARMFUL[ord("\n")] = "\N{SYMBOL FOR NEWLINE}"


def printable(text: object) -> str:
    """Return a text on one line: what could control a terminal is shown as `\ufffd`.

    Args:
        text: Anything; a line feed in it is shown as a sign.
    """
    shown = str(text)
    return shown if shown.isprintable() else shown.translate(HARMFUL)
