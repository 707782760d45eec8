"""Texts in forms of the page: nothing is hidden, and what was not changed keeps its bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flowengine.page.sent_forms import as_sent, restored, shown_text
from flowengine.sdk.texts.visible_text import DISGUISING
from tests.rows import each_row

LINES = st.lists(
    st.tuples(
        st.text(st.sampled_from("ab⟦U+00AD⟧\xad\u200f\u2028\r\0 \ud800\U000e0041"), max_size=12),
        st.sampled_from(["\n", "\r\n"]),
    ).filter(lambda line: not line[0].endswith("\r")),
    max_size=6,
)


def through_a_browser(shown: str) -> str:
    """Return a text as a browser sends it, and as the page reads it (HTML, 4.10.11)."""
    normalized = shown.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
    return as_sent(normalized)


def joined(lines: list[tuple[str, str]], last: str) -> str:
    return "".join(text + ending for text, ending in lines) + last


@given(LINES, st.text(max_size=20))
def test_a_text_that_was_not_changed_stays_as_it_was(
    lines: list[tuple[str, str]], last: str
) -> None:
    original = joined(lines, last)
    shown = shown_text(original)
    assert DISGUISING.search(shown) is None
    assert restored(original, through_a_browser(shown)) == original


@given(LINES.filter(bool), st.sampled_from(["\n", "\r\n"]), st.data())
def test_an_edit_keeps_what_was_not_changed(
    lines: list[tuple[str, str]], ending: str, data: st.DataObject
) -> None:
    lines = [(f"{number}:{text}", ending) for number, (text, _) in enumerate(lines)]
    original, shown = joined(lines, "end"), shown_text(joined(lines, "end")).split("\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    how = data.draw(st.sampled_from(["change", "append", "insert"]))
    if how == "change":
        shown[at], lines[at] = "new", ("new", ending)
    elif how == "append":
        shown[at] += "+"
        lines[at] = (lines[at][0] + "+", ending)
    else:
        shown.insert(at, "new")
        lines.insert(at, ("new", ending))
    assert restored(original, through_a_browser("\n".join(shown))) == joined(lines, "end")


@each_row(
    ("original", "shown", "sent", "meant"),
    [
        ("a\r\nb", "a\nb", "a\nb\nc", "a\r\nb\r\nc"),
        ("a\r\nb\r\nc\nd", "a\nb\nc\nd", "a\nx\nc\nd", "a\r\nx\r\nc\r\nd"),
        ("שלום\u200f!", "שלום⟦U+200F⟧!", "⟦U+200F⟧!", "\u200f!"),
        ("soft\xadhyphen", "soft⟦U+00AD⟧hyphen", "soft hyphen", "soft hyphen"),
        ("a", "a", "⟦U+202E⟧", "⟦U+202E⟧"),  # nothing is hidden by a mark that was not shown
        ("⟦U+00AD⟧\xad", "⟦U+27E6⟧U+00AD⟧⟦U+00AD⟧", "⟦U+27E6⟧U+00AD⟧⟦U+00AD⟧x",
         "⟦U+00AD⟧\xadx"),
        ("", "", "a\nb", "a\nb"),
    ],
)  # fmt: skip
def test_marks_and_line_endings(original: str, shown: str, sent: str, meant: str) -> None:
    assert shown_text(original) == shown
    assert restored(original, sent) == meant
