"""Sanitizing of foreign text for a terminal, so that it cannot control it or imitate our output."""

from __future__ import annotations

_INSTEAD = "\N{REPLACEMENT CHARACTER}"
HARMFUL = dict.fromkeys(
    (
        *range(0x20), *range(0x7F, 0xA0),  # move the cursor, change colors
        # change the text direction
        0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A),
        0x2028, 0x2029, 0xFEFF, *range(0xFFF9, 0xFFFC),
        *range(0xD800, 0xE000),  # cannot be encoded
        *range(0xE0000, 0xE0080),  # hide text
    ),
    _INSTEAD,
)  # fmt: skip
HARMFUL[ord("\t")] = "\t"
HARMFUL[ord("\n")] = "\N{SYMBOL FOR NEWLINE}"


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


def printable(text: object) -> str:
    """Return a text on one line, with characters that could control a terminal replaced.

    Args:
        text: Any object. Control characters become `\ufffd`, and a line feed is shown as a sign.
    """
    shown = str(text)
    return shown if shown.isprintable() else shown.translate(HARMFUL)
