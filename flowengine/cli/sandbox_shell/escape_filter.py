"""Limits the terminal sequences of programs in a sandbox to writing and drawing.

A terminal obeys control sequences. It puts text on the clipboard, prints, renames its window,
and answers queries as if the answer had been typed, perhaps when the user's shell is reading. So
only sequences that draw are let through.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder

from flowengine.sdk.visible_text import DISGUISING, REPLACEMENT

_SEQUENCE = re.compile(
    r"\x1b(?:\[(?P<private>[<=>?]?)(?P<numbers>[0-9:;]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|(?P<text>[\]PX^_])"
    r"|(?P<set>[()*+][0-9A-Z])"
    r"|(?P<short>[0-Z\\`-~]))"
)
_BEGUN = re.compile(r"\x1b(?:\[[<=>?]?[0-9:;]*[ -/]*|[()*+])?\Z")
"""An incomplete sequence."""
_LONGEST = 200
"""Maximum length of an incomplete sequence."""
_END = re.compile("[\x07\x18\x1a\x9c]|\x1b\\\\?")
"""The end of a text that is meant for the terminal itself."""
_DRAWS = frozenset("@ABCDEFGHIJKLMPSTXZ`abdefghlmrsu")
"""Final letters: move, erase, insert, scroll, color, and the modes below."""
_MODES = {
    "": frozenset({"4"}),
    "?": frozenset({"1", "5", "6", "7", "12", "25", "47", "1047", "1048", "1049"}),
}
"""Modes of keys, the cursor, wrapping and the second screen, but none that reports anything."""
_SHORT = frozenset("78=>DEHM")
_KEPT = "\r\b\a\x0e\x0f"


class EscapeFilter:
    """Lets through text and sequences that draw. Output may come in pieces."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._inside = False
        """Whether a text meant for the terminal itself has started and not ended."""

    def of(self, data: bytes) -> bytes:
        """Return the part of the next piece that may be written.

        Args:
            data: The piece.

        Returns:
            Text and sequences that draw. An unfinished one is kept for the next piece.
        """
        text, self._rest = self._rest + self._decoder.decode(data), ""
        shown: list[str] = []
        at = 0
        while at < len(text):
            if self._inside:
                end = _END.search(text, at)
                if end is None:
                    break
                if end.group() == "\x1b" and end.end() == len(text):
                    self._rest = "\x1b"
                    break
                self._inside, at = False, end.end() if end.group() != "\x1b" else end.start()
                continue
            escape = text.find("\x1b", at)
            shown.append(_harmless(text[at : escape if escape >= 0 else len(text)]))
            if escape < 0:
                break
            match = _SEQUENCE.match(text, escape)
            if match is None and len(text) - escape < _LONGEST and _BEGUN.match(text, escape):
                self._rest = text[escape:]
                break
            at = escape + 1 if match is None else match.end()
            if match is not None:
                self._inside = match["text"] is not None
                shown.append(match.group() if _draws(match) else "")
        return "".join(shown).encode()


def _harmless(text: str) -> str:
    """Return text without sequences, with the characters replaced that could disguise it."""
    return DISGUISING.sub(lambda match: match[0] if match[0] in _KEPT else REPLACEMENT, text)


def _draws(match: re.Match[str]) -> bool:
    """Return whether a sequence only draws."""
    if match["set"]:
        return True
    if match["short"]:
        return match["short"] in _SHORT
    final = match["final"]
    if final is None or match["between"] or final not in _DRAWS:
        return False
    if final in "hl":
        return set(match["numbers"].split(";")) <= _MODES.get(match["private"], frozenset())
    return match["private"] == "" or (match["private"] == "?" and final in "JK")


AT_THE_END = b"\x0f\x1b[0m\x1b[?25h"
"""Resets modes that a program may leave behind: line-drawing characters, colors, cursor."""
