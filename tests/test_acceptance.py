"""The rows of `docs/acceptance.md` and the marks of the tests that show them."""

from __future__ import annotations

from scripts.acceptance import PAGE, ROW, shown


def test_each_row_is_shown_by_tests_and_each_mark_names_a_row() -> None:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    built = {row for _, row, text in rows if not text.startswith("not yet")}
    assert len({row for _, row, _ in rows}) == len(rows), "two rows begin with the same id"
    assert set(shown()) == built
