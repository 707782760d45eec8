"""Long texts, split into pages."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine_documents.pages import NoSuchPage, Pages
from tests.rows import each_row

TEXTS = st.text(st.sampled_from("ab \n\r\t|😀"), max_size=300)


# Shows W47
def test_pages_are_counted_and_stop_at_the_ends() -> None:
    pages = Pages("\n".join(f"line {number}" for number in range(1, 2_501)))

    first = pages.shown()
    assert first.startswith("[Page 1/3]\n\nline 1\n")
    assert first.endswith("line 1024\n")
    assert pages.up() == first
    assert [pages.down()[:10] for _ in range(3)] == ["[Page 2/3]", "[Page 3/3]", "[Page 3/3]"]
    assert pages.shown().endswith("line 2500")
    assert pages.go_to(1) == first


@each_row("number", [0, 4, -1])
# Shows W50
def test_a_page_that_is_not_there_is_told_with_the_range(number: int) -> None:
    pages = Pages("a\nb\nc", lines=1)

    with pytest.raises(NoSuchPage, match="pages are 1 to 3"):
        pages.go_to(number)
    assert pages.current == 1


# Shows W48
def test_nothing_is_one_empty_page() -> None:
    assert Pages("").shown() == "[Page 1/1]\n\n(empty)"


@each_row(("lines", "characters"), [(0, 10), (-1, 10), (10, 0)])
def test_a_page_holds_something(lines: int, characters: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Pages("a", lines, characters)


@given(TEXTS, st.integers(1, 5), st.integers(1, 20))
# Shows W48
def test_pages_together_are_the_text(text: str, lines: int, characters: int) -> None:
    pages = Pages(text, lines, characters)
    parts = [pages.content(number) for number in range(1, len(pages) + 1)]

    assert "".join(parts) == text
    assert all(parts) or text == ""
    assert all(len(part) <= characters for part in parts)
    assert all(part.count("\n") <= lines for part in parts)
    assert all(pages.page_of(at) <= len(pages) for at in range(len(text)))


# Shows W49
def test_a_long_line_is_cut_at_spaces() -> None:
    pages = Pages("word " * 1_000_000)

    assert len(pages) == 50
    assert all(pages.content(number).endswith("word ") for number in range(1, 51))


# Shows W51
def test_search_goes_on_from_the_page_and_wraps() -> None:
    pages = Pages("one Cat\ntwo\nthree a [cat](.\nfour the\nCAT", lines=1)

    assert [pages.find("cat"), pages.current] == [4, 1]
    assert [pages.find_next(), pages.current] == [21, 3]
    assert [pages.find_next(), pages.current] == [37, 5]
    assert [pages.find_next(), pages.current] == [4, 1]
    assert [pages.find("[cat](."), pages.current] == [20, 3]
    assert [pages.find("the cat"), pages.current] == [33, 4]
    assert [pages.find("tw*thr*]("), pages.current] == [8, 2]
    assert [pages.find("dog"), pages.current] == [None, 2]
    assert pages.find("") is None


# Shows W51
def test_search_takes_no_longer_for_nasty_patterns() -> None:
    pages = Pages("a" * 1_000_000)
    began = time.process_time()

    assert pages.find("a*" * 20 + "b") is None
    assert pages.find("(a+)+$") is None
    assert time.process_time() - began < 5
