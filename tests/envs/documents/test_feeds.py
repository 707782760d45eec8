"""News feeds in RSS and Atom."""

from __future__ import annotations

from flowengine_documents.formats import detect
from tests.rows import each_row

ATOM = 'xmlns="http://www.w3.org/2005/Atom"'
OTHERS = (
    'xmlns:content="http://purl.org/rss/1.0/modules/content/" xmlns:itunes="http://i.example"'
    ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:atom="http://www.w3.org/2005/Atom"'
)


def rss(items: str, head: str = "<title>News</title>") -> str:
    return f'<rss version="2.0" {OTHERS}><channel>{head}{items}</channel></rss>'


@each_row(
    ("data", "name", "type", "format"),
    [
        ("<rss version='2.0'/>", "", "", "feed"),
        ("<?xml version='1.0'?><?x y?><!-- c --><!DOCTYPE rss><rss/>", "", "", "feed"),
        (f"<feed {ATOM}/>", "a.xml", "text/xml", "feed"),
        ("<a:feed xmlns:a='http://www.w3.org/2005/Atom'/>", "", "", "feed"),
        ("<feed>not a feed</feed>", "a.xml", "", "text"),
        ("<x/>", "", "application/rss+xml; charset=utf-8", "feed"),
        ("<x/>", "a.rss", "", "feed"),
        ("<html><rss/></html>", "", "", "html"),
        ("<?x?>" * 700, "", "", "text"),
        ("<!-- x -->" * 400, "", "", "text"),
    ],
)
def test_feeds_are_found_by_their_first_element(
    data: str, name: str, type: str, format: str
) -> None:
    assert detect(data.encode(), name, type).format == format
