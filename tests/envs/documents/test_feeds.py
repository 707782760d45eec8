"""News feeds in RSS and Atom."""

from __future__ import annotations

import pytest

from flowengine_envs.documents.converters import convert
from flowengine_envs.documents.document import Document
from flowengine_envs.documents.formats import detect

ATOM = 'xmlns="http://www.w3.org/2005/Atom"'
OTHERS = (
    'xmlns:content="http://purl.org/rss/1.0/modules/content/" xmlns:itunes="http://i.example"'
    ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:atom="http://www.w3.org/2005/Atom"'
)


def read(feed: str, base: str = "https://h.example/news/feed") -> Document:
    return convert(f'<?xml version="1.0"?>\n<!-- x -->\n{feed}'.encode(), base=base)


def rss(items: str, head: str = "<title>News</title>") -> str:
    return f'<rss version="2.0" {OTHERS}><channel>{head}{items}</channel></rss>'


def test_a_feed_of_rss() -> None:
    found = read(
        rss(
            "<item><itunes:title>other</itunes:title><title>A &amp;amp; B</title>"
            "<link>/posts/1</link><pubDate>Mon, 02 Nov 2026 09:00:00 GMT</pubDate>"
            "<dc:creator>Ana</dc:creator><description>short</description><content:encoded>"
            "<![CDATA[<p>Long <a href='pic'>text</a></p><ul><li>x</li></ul>]]></content:encoded>"
            "<enclosure url='https://h.example/a.m' type='audio/mpeg' length='123'/></item>"
            "<item><description># plain &amp; simple\n\n- no list</description>"
            "<guid>https://h.example/2</guid></item>",
            "<title>Harbour &amp; News</title><atom:link href='/feed' rel='self'/>"
            "<link>https://h.example/</link><description>About &lt;b&gt;ships&lt;/b&gt;"
            "</description><image><title>logo</title><url>x</url></image>",
        )
    )

    assert found.markdown == (
        "# Harbour & News\n\n[https://h.example/](https://h.example/)\n\nAbout **ships**\n\n"
        "<!-- item 1 -->\n\n## A & B\n\n[https://h.example/posts/1](https://h.example/posts/1)  \n"
        "Mon, 02 Nov 2026 09:00:00 GMT  \nAna\n\n"
        "Long [text](https://h.example/posts/pic)\n\n- x\n\n"
        "- Enclosure: [https://h.example/a.m](https://h.example/a.m) (audio/mpeg, 123 bytes)\n\n"
        "<!-- item 2 -->\n\n[https://h.example/2](https://h.example/2)\n\n"
        "\\# plain & simple\n\n\\- no list"
    )
    assert (found.format, found.title) == ("feed", "Harbour & News")
    assert [(part.kind, part.name) for part in found.parts] == [("item", "A & B"), ("item", "")]


def test_a_feed_of_atom() -> None:
    found = read(
        f'<feed {ATOM} xml:base="https://h.example/blog/"><title type="text">1 &lt; 2</title>'
        "<subtitle>About</subtitle><link rel='self' href='feed.xml'/><link href='index.html'/>"
        "<entry><title type='html'>The &lt;i&gt;tug&lt;/i&gt;</title>"
        "<link rel='enclosure' href='a.ogg'/><link rel='alternate' href='1.html'/>"
        "<updated>2026-11-02T09:00:00Z</updated><author><name>Bo</name><email>b@x</email></author>"
        "<summary>s</summary><content type='xhtml'><div xmlns='http://www.w3.org/1999/xhtml'>"
        "<p>It <b>pulls</b>.</p></div></content></entry>"
        "<entry><title>Two</title><published>2026-11-01</published><updated>2026-11-03</updated>"
        "<content type='text'>a &lt;b&gt; c</content></entry>"
        "<entry><title>Three</title><content type='image/png'>AAAA</content></entry></feed>"
    )

    assert found.title == "1 < 2"
    assert found.markdown.partition("<!-- item 1 -->\n\n")[2] == (
        "## The tug\n\n[https://h.example/blog/1.html](https://h.example/blog/1.html)  \n"
        "2026-11-02T09:00:00Z  \nBo\n\nIt **pulls**.\n\n"
        "- Enclosure: [https://h.example/blog/a.ogg](https://h.example/blog/a.ogg)\n\n"
        "<!-- item 2 -->\n\n## Two\n\n2026-11-01\n\na <b> c\n\n<!-- item 3 -->\n\n## Three"
    )


def test_a_feed_of_rss_1_has_its_items_beside_the_channel() -> None:
    rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    found = read(
        f'<rdf:RDF xmlns:rdf="{rdf}" xmlns="http://purl.org/rss/1.0/"><channel><title>News</title>'
        "</channel><item><title>One</title><link>https://h.example/1</link></item></rdf:RDF>"
    )

    assert found.markdown == (
        "# News\n\n<!-- item 1 -->\n\n## One\n\n[https://h.example/1](https://h.example/1)"
    )


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        ("<title>a & b</title>", "## a b"),
        ("<title>cut <b>off", "## cut off"),
        ("<title>x</title><link>javascript:alert(1)</link>", "## x"),
        ("<title>x</title><guid isPermaLink='false'>https://h.example/1</guid>", "## x"),
        ("<title>x</title><description>&lt;script&gt;y&lt;/script&gt;z</description>", "## x\n\nz"),
        ("<title>&y;x</title>", "## &y;x"),
    ],
)
def test_feeds_that_are_not_well_formed_or_hostile(item: str, shown: str) -> None:
    entity = "<!DOCTYPE rss [<!ENTITY y SYSTEM 'file:///etc/passwd'>]>"
    found = read(entity + rss(f"<item>{item}</item>"))

    assert found.markdown == f"# News\n\n<!-- item 1 -->\n\n{shown}"


@pytest.mark.parametrize(
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
