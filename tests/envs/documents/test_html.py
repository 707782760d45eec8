# Shows W67
"""HTML as Markdown: structure, links, tables, hidden elements, broken markup."""

from __future__ import annotations

import time

import pytest

from flowengine_documents.document import ConversionLimits, Document
from flowengine_envs.documents.converting import convert

BASE = "https://www.example.org/guide/page.html"


def read(page: str, base: str = BASE) -> Document:
    return convert(f"<!doctype html>{page}".encode(), "page.html", base=base)


def test_deep_nesting_keeps_the_text() -> None:
    document = read("<div>" * 10_000 + "<p>deep</p><p>text</p>" + "</div>" * 10_000)

    assert document.markdown == "deep\n\ntext"
    assert "nested too deeply" in document.notes[0]


@pytest.mark.endurance
@pytest.mark.parametrize(
    "tag",
    ["ul><li", "blockquote", "table><tr><td", "table><tr><th", "b", "a href=x", "math><msqrt"],
)
def test_any_deep_nesting_is_survived(tag: str) -> None:
    assert "deep" in read(f"<{tag}>" * 600 + "deep").markdown
    assert "deep" in read(f"<{tag}>" * 20_000 + "deep").markdown


def test_a_page_of_very_many_links_is_cut_in_time() -> None:
    """Of what is beyond the limit only the parsing costs CPU time."""

    def cut(links: int) -> float:
        page = "".join(f'<p><a href="/page/{n}">link {n}</a></p>' for n in range(links))
        limits = ConversionLimits(characters=20_000)
        began = time.process_time()
        document = convert(f"<body>{page}</body>".encode(), "a.html", limits=limits)
        took = time.process_time() - began
        assert (len(document.markdown), document.truncated) == (20_000, True)
        assert document.markdown.startswith("[link 0](/page/0)\n\n[link 1](/page/1)")
        return took

    cut(1_000)  # loads what parses
    assert cut(8_000) < 4 * cut(1_000)
