"""Characters that are invisible to users but read by models, which a file could use to address one.

Converters run where `flowengine` is not installed, so they cannot import this from
`flowengine.sdk.untrusted`. A test keeps both equal.
"""

from __future__ import annotations

import re

_INVISIBLE = re.compile(
    "(\U0001f3f4[\U000e0061-\U000e007a]{1,6}\U000e007f)"  # flags of regions are spelled with tags
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2060-\u2064"
    "\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\U000e0000-\U000e007f]"
)


def visible(text: str) -> tuple[str, int]:
    """Return text without its invisible characters, and how many there were.

    Characters that join Arabic letters or emoji are kept. Each line ends with a line feed.
    """
    if text.isascii() and text.isprintable():
        return text, 0
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    count = 0

    def shown(found: re.Match[str]) -> str:
        nonlocal count
        if found[1]:
            return found[1]
        count += 1
        return ""

    return _INVISIBLE.sub(shown, text), count
