"""Display of errors: exactly as in the language reference, and safe for a terminal."""

from __future__ import annotations

from flowengine.flow.source.diagnostics import Diagnostic, Diagnostics, Position, render, summary
from flowengine.flow.source.yaml_source import read_text
from flowengine.sdk.texts.near_words import did_you_mean, nearest


def test_a_report_looks_as_the_reference_shows_it() -> None:
    source = read_text(
        "flowengine: 1\n\n\n\n\n\n\n\n"
        '        - {when: "${{ inputs.amout > 500 }}", to: aprove}\n'
        "\n\n\n\n    run: pay\n",
        "refund.yaml",
    )
    found = Diagnostics()
    place = Position(14, 5, 3, "refund.yaml")
    found.error("E306", "a script cannot contain expressions", place, hint="use env")
    place = Position(9, 23, 12, "refund.yaml")
    hint = "did you mean 'inputs.amount'?"
    found.error("E301", "'inputs.amout' is not declared", place, hint=hint)

    assert render(found, [source]) == (
        "refund.yaml:9:23: error[E301]: 'inputs.amout' is not declared\n"
        '    9 |         - {when: "${{ inputs.amout > 500 }}", to: aprove}\n'
        "      |                       ^^^^^^^^^^^^ did you mean 'inputs.amount'?\n"
        "refund.yaml:14:5: error[E306]: a script cannot contain expressions\n"
        "   14 |     run: pay\n"
        "      |     ^^^ use env\n"
        "2 errors in refund.yaml; nothing was run"
    )


def test_nothing_found_is_nothing_said() -> None:
    assert render(Diagnostics(), []) == ""


def diagnostic(code: str, file: str = "a.yaml", line: int = 1) -> Diagnostic:
    return Diagnostic(code, "what", file, line, 1)


def test_the_last_line_counts_errors_and_warnings() -> None:
    error, warning = diagnostic("E101"), diagnostic("W305")

    assert summary([error]) == "1 error in a.yaml; nothing was run"
    assert summary([warning, warning]) == "2 warnings in a.yaml"
    assert summary([error, error, warning]) == "2 errors and 1 warning in a.yaml; nothing was run"
    assert summary([error, diagnostic("E101", "b.yaml")]).startswith(
        "2 errors in a.yaml and b.yaml"
    )


def test_warnings_are_called_so_and_kept_apart() -> None:
    found = Diagnostics()
    found.warning("W305", "may not have run", Position(2, 1, 1, "a.yaml"))
    found.error("E301", "not declared", Position(1, 1, 1, "a.yaml"))

    assert [one.code for one in found] == ["E301", "W305"]
    assert [one.code for one in found.errors] == ["E301"]
    assert [one.code for one in found.warnings] == ["W305"]
    assert "a.yaml:2:1: warning[W305]: may not have run" in render(found, [])


def test_the_same_error_is_reported_once() -> None:
    found = Diagnostics()
    for _ in range(2):
        found.error("E101", "what", Position(1, 1, 1, "a.yaml"))

    assert len(found) == 1


def test_files_come_in_the_order_in_which_they_were_met() -> None:
    found = Diagnostics()
    for file, line in (("main.yaml", 9), ("lib.yaml", 1), ("main.yaml", 2)):
        found.add(diagnostic("E101", file, line))

    assert [(one.file, one.line) for one in found] == [
        ("main.yaml", 2),
        ("main.yaml", 9),
        ("lib.yaml", 1),
    ]


def test_json_has_the_documented_keys() -> None:
    one = Diagnostic("E301", "what", "a.yaml", 3, 7, 2, "do this")

    assert one.as_dict() == {
        "file": "a.yaml",
        "line": 3,
        "column": 7,
        "code": "E301",
        "message": "what",
        "hint": "do this",
    }


def carets(text: str, column: int, length: int = 1) -> list[str]:
    source = read_text(text, "a.yaml")
    shown = render([Diagnostic("E101", "what", "a.yaml", 1, column, length)], [source])
    return [line[8:] for line in shown.splitlines()[1:3]]


def test_carets_stand_below_wide_characters_and_tabs() -> None:
    assert carets("名前: x\n", 5) == ["名前: x", "      ^"]
    assert carets("名前: x\n", 1, 2) == ["名前: x", "^^^^"]
    assert carets("a:\tx\n", 4) == ["a:\tx", "  \t^"]
    assert carets("e\u0301: x\n", 5) == ["e\u0301: x", "   ^"]


def test_carets_stop_at_the_end_of_the_line() -> None:
    assert carets("abc\n", 2, 50) == ["abc", " ^^"]


def test_of_a_long_line_only_what_is_around_the_error_is_shown() -> None:
    line, marks = carets("a: " + "x" * 5000 + "Y" + "x" * 5000 + "\n", 5004)

    assert len(line) == 160
    assert line[marks.index("^")] == "Y"


def test_a_file_cannot_control_the_terminal() -> None:
    source = read_text("a: '\x9b31m\u202e'\n", "a.yaml")
    one = Diagnostic("E101", "odd \x1b[2J", "a.yaml", 1, 4, 3, hint="\x07")

    shown = render([one], [source])

    assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(shown)


def test_related_places_are_listed() -> None:
    found = Diagnostics()
    other = (Position(4, 2, 1, "a.yaml"), "the other one")
    found.error("E202", "two tokens meet", Position(1, 1, 1, "a.yaml"), related=[other])

    assert "      = a.yaml:4:2: the other one" in render(found, [])


def test_the_nearest_word_is_suggested() -> None:
    known = ["output", "timeout", "retry", "on_error"]

    assert nearest("ouput", known) == "output"
    assert nearest("On-Error", known) == "on_error"
    assert nearest("colour", known) is None
    assert did_you_mean("retrys", known) == "did you mean 'retry'?"
    assert did_you_mean("x", []) is None
