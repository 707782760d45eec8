"""Display of errors: exactly as in the language reference, and safe for a terminal."""

from __future__ import annotations

from flowengine.flow.source.diagnostics import Diagnostic, Diagnostics, Position, render
from flowengine.flow.source.yaml_source import read_text


def test_the_same_error_is_reported_once() -> None:
    found = Diagnostics()
    for _ in range(2):
        found.error("E101", "what", Position(1, 1, 1, "a.yaml"))

    assert len(found) == 1


def carets(text: str, column: int, length: int = 1) -> list[str]:
    source = read_text(text, "a.yaml")
    shown = render([Diagnostic("E101", "what", "a.yaml", 1, column, length)], source.files)
    return [line[8:] for line in shown.splitlines()[1:3]]


def test_carets_stand_below_wide_characters_and_tabs() -> None:
    assert carets("名前: x\n", 5) == ["名前: x", "      ^"]
    assert carets("名前: x\n", 1, 2) == ["名前: x", "^^^^"]
    assert carets("a:\tx\n", 4) == ["a:\tx", "  \t^"]
    assert carets("e\u0301: x\n", 5) == ["e\u0301: x", "   ^"]


def test_carets_stop_at_the_end_of_the_line() -> None:
    assert carets("abc\n", 2, 50) == ["abc", " ^^"]


def test_a_file_cannot_control_the_terminal() -> None:
    source = read_text("a: '\x9b31m\u202e'\n", "a.yaml")
    one = Diagnostic("E101", "odd \x1b[2J", "a.yaml", 1, 4, 3, hint="\x07")

    shown = render([one], source.files)

    assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(shown)
