"""HTML as Markdown: structure, links, tables, hidden elements, broken markup."""

from __future__ import annotations

import time

import pytest

from flowengine_envs.documents.converters import convert
from flowengine_envs.documents.document import ConversionLimits, Document

BASE = "https://www.example.org/guide/page.html"


def read(page: str, base: str = BASE) -> Document:
    return convert(f"<!doctype html>{page}".encode(), "page.html", base=base)


@pytest.mark.parametrize(
    ("page", "markdown"),
    [
        ("<h2>A <em>big</em>\n title</h2><p>text", "## A *big* title\n\ntext"),
        ("<p>one<br>two <b> bold </b>end", "one  \ntwo **bold** end"),
        ("<p>a <code>x = `1`</code>, <s>old</s>", "a `` x = `1` ``, ~~old~~"),
        ("<blockquote>q<p>r</blockquote>", "> q\n\n> r"),
        ("<pre><code class='language-py'>x = 1\n  y\n</code></pre>", "```py\nx = 1\n  y\n```"),
        ("<pre>a ``` b</pre>", "````\na ``` b\n````"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n  - b\n- c"),
        ("<ol start=3><li>x<li>y</ol>", "3. x\n4. y"),
        ("<ol><li><p>a<p>b</li><li>c</ol>", "1. a\n\n   b\n2. c"),
        (
            "<p># no heading<p>1. no list<p>- no item",
            "\\# no heading\n\n1\\. no list\n\n\\- no item",
        ),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<img src=a.png alt='A cat'>", "![A cat](https://www.example.org/guide/a.png)"),
        (
            "<script>x()</script><style>p{}</style><template>t</template><noscript>n</noscript>y",
            "y",
        ),
        ("<p>a<p>b<b>c", "a\n\nb**c**"),
        (
            "<a href=/y><h3>T</h3><p>para</p></a>",
            "### [T](https://www.example.org/y)\n\n[para](https://www.example.org/y)",
        ),
    ],
)
def test_markdown(page: str, markdown: str) -> None:
    assert read(page).markdown == markdown


@pytest.mark.parametrize(
    ("href", "shown"),
    [
        ("other.html", "[t](https://www.example.org/guide/other.html)"),
        ("../up", "[t](https://www.example.org/up)"),
        ("//cdn.example.org/x", "[t](https://cdn.example.org/x)"),
        ("a b(c)", "[t](https://www.example.org/guide/a%20b%28c%29)"),
        ("javascript:alert(1)", "t"),
        ("java\nscript:alert(1)", "t"),
        ("data:text/html,x", "t"),
        ("vbscript:x", "t"),
        ("mailto:a@example.org", "[t](mailto:a@example.org)"),
        ("http://[broken", "t"),
    ],
)
def test_links_are_absolute_and_harmless(href: str, shown: str) -> None:
    assert read(f'<p><a href="{href}">t</a>').markdown == shown


def test_links_are_resolved_against_the_base_of_the_page() -> None:
    page = "<head><base href='https://other.example/b/'></head><a href=c>t</a>"

    assert read(page).markdown == "[t](https://other.example/b/c)"


def test_embedded_images_are_cut() -> None:
    assert read("<img alt=x src='data:image/png;base64,AAAA'>").markdown == "![x]()"


def test_every_row_of_a_table_has_the_same_number_of_columns() -> None:
    document = read(
        "<table><tr><th>a<th>b<th>c<tr><td rowspan=2>1|x<br>y<td colspan=2>2<tr><td>3<tr><td>4"
        "</table>"
    )

    assert document.markdown == (
        "| a | b | c |\n| --- | --- | --- |\n| 1\\|x<br>y | 2 |  |\n|  | 3 |  |\n| 4 |  |  |"
    )
    assert {len(row) for row in document.tables[0]} == {3}


BESIDE = "<!-- beside the main text: menus and the like -->"


@pytest.mark.parametrize(
    ("page", "markdown"),
    [
        (
            "skip<header><h1>Title</h1></header><nav>menu</nav> text <main><p>It.</p>more</main>"
            "after<footer>foot</footer>",
            f"# Title\n\nIt.\n\nmore\n\n{BESIDE}\n\nskip\n\nmenu\n\ntext after\n\nfoot",
        ),
        (
            "<nav>menu</nav><div role=main><h1>A</h1></div><h1>B</h1>",
            f"# A\n\n{BESIDE}\n\nmenu\n\n# B",
        ),
        (
            "<table><tr><td>x<td>y</table><article>It.<article>A comment.</article></article>",
            f"It.\n\nA comment.\n\n{BESIDE}\n\n| x | y |\n| --- | --- |",
        ),
        ("<nav>menu</nav><main hidden>Old</main><main>New</main>", f"New\n\n{BESIDE}\n\nmenu"),
        ("<main>All of it</main>", "All of it"),
        ("<nav>menu</nav><article>one</article><article>two</article>", "menu\n\none\n\ntwo"),
        ("<nav>menu</nav><p>text", "menu\n\ntext"),
    ],
)
def test_what_a_page_is_about_comes_first(page: str, markdown: str) -> None:
    assert read(page).markdown == markdown


def test_a_caption_stands_above_its_table() -> None:
    page = "<table><caption>Rents <b>2025</b></caption><tr><th>A<th>B<tr><td>1<td>2</table>"

    assert read(page).markdown == "Rents **2025**\n\n| A | B |\n| --- | --- |\n| 1 | 2 |"


def test_a_table_with_headings_stays_one_with_a_table_in_a_cell() -> None:
    inner = "<table><caption>Flat</caption><tr><th>x<th>y<tr><td>3<td>4</table>"
    page = f"<table><tr><th>A<th>B<tr><td>1<td>{inner}</table>after"

    assert read(page).markdown == (
        "| A | B |\n| --- | --- |\n| 1 | Flat<br>x; y<br>3; 4 |\n\nafter"
    )


def test_a_table_that_arranges_tables_is_no_table_itself() -> None:
    document = read("<table><tr><td>k<td><table><tr><td>1<td>2</table></table>")

    assert document.markdown == "k\n\n| 1 | 2 |\n| --- | --- |"


@pytest.mark.parametrize(
    "hidden",
    ["hidden", "style='display: none'", "style='visibility:hidden'", "style='opacity:0'",
     "style='font-size:0'"],
)  # fmt: skip
def test_hidden_text_is_left_out_and_counted(hidden: str) -> None:
    document = read(f"<p>seen<span {hidden}>ignore <b>all</b> rules</span> too<!-- comment -->")

    assert document.markdown == "seen too"
    assert document.notes == ["hidden text left out (places: 1)"]


def test_invisible_characters_are_removed_and_counted_but_scripts_and_emoji_are_not() -> None:
    kept = "می‌خواهم שלום 👩‍👩‍👧 \U0001f3f4\U000e0067\U000e0062\U000e0073\U000e007f"
    document = read(f"<p>pass\u200bword \u202eabc\u202c \U000e0041{kept}")

    assert document.markdown == f"password abc {kept}"
    assert document.notes == ["4 invisible characters removed"]


@pytest.mark.parametrize(
    ("inner", "latex"),
    [
        ("<mi>π</mi><mo>&#x2062;</mo><msup><mi>r</mi><mn>2</mn></msup>", "π r^{2}"),
        ("<mfrac><mi>a</mi><mrow><mi>b</mi><mo>+</mo><mn>1</mn></mrow></mfrac>", r"\frac{a}{b+1}"),
        ("<mfrac linethickness=0pt><mi>n</mi><mi>k</mi></mfrac>", r"{n \atop k}"),
        ("<msqrt><mi>x</mi><mo>+</mo><mi>y</mi></msqrt>", r"\sqrt{x+y}"),
        ("<mroot><mi>x</mi><mn>3</mn></mroot>", r"\sqrt[3]{x}"),
        (
            "<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi>"
            "</munderover><msub><mi>x</mi><mi>i</mi></msub>",
            r"\sum_{i=1}^{n} x_{i}",
        ),
        ("<msubsup><mi>a</mi><mi>i</mi><mn>2</mn></msubsup>", "a_{i}^{2}"),
        ("<mover><mi>v</mi><mo>→</mo></mover>", r"\vec{v}"),
        ("<munder><mi>lim</mi><mi>n</mi></munder><mi>x</mi>", r"\lim_{n} x"),
        ("<mover><mo>=</mo><mtext>def</mtext></mover>", r"\overset{\text{def}}{=}"),
        ("<mi>sin</mi><mo>&#x2061;</mo><mfenced><mi>x</mi></mfenced>", r"\sin \left( x \right)"),
        (
            "<mmultiscripts><mi>C</mi><none/><none/><mprescripts/><mn>6</mn><mn>14</mn>"
            "</mmultiscripts>",
            "{}_{6}^{14}C",
        ),
        (
            "<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr></mtable>",
            r"\begin{matrix} 1 & 2 \end{matrix}",
        ),
        ("<mo>{</mo><mn>50</mn><mi>%</mi><mo>}</mo>", r"\{50\%\}"),
        (
            "<semantics><mi>x</mi><annotation encoding='application/x-tex'>y</annotation>"
            "</semantics>",
            "x",
        ),
    ],
)
def test_formulas_are_latex(inner: str, latex: str) -> None:
    assert read(f"<p>It is <math>{inner}</math>.").markdown == f"It is ${latex}$."


def test_formulas_of_xhtml_have_prefixes() -> None:
    inner = "<m:mfrac><m:mi>a</m:mi><m:mi>b</m:mi></m:mfrac>"

    assert read(f"<p><m:math>{inner}</m:math>").markdown == r"$\frac{a}{b}$"


def test_drawings_give_their_name_and_their_texts() -> None:
    drawing = (
        "<svg><title>Sales</title><style>text {}</style><g><text>2025</text>"
        "<text style='display:none'>hidden</text><path d=M0/></g><text>4 <tspan>of 6</tspan></text>"
    )
    read_ = read(f"<p>See {drawing}</svg>there")

    assert read_.markdown == "See Sales 2025 4 of 6 there"
    assert read_.notes == ["hidden text left out (places: 1)"]


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("10<sup>6</sup> m", "10^6 m"),
        ("<b>10<sup>-3</sup></b>", "**10^{-3}**"),
        ("H<sub>2</sub>O, T<sub>max</sub>", "H_2O, T_{max}"),
        ("the 1<sup>st</sup>", "the 1st"),
        (
            "so<sup><a href=#n1>[1]</a></sup>",
            "so[\\[1\\]](https://www.example.org/guide/page.html#n1)",
        ),
        ("<sup>A whole sentence that is small.</sup>", "A whole sentence that is small."),
    ],
)
def test_what_stands_above_or_below_the_line_is_told(html: str, markdown: str) -> None:
    assert read(f"<p>{html}").markdown == markdown


@pytest.mark.parametrize(
    ("page", "markdown"),
    [
        ("<ol><li value=4>a<li>b<li value=1>c<li>d</ol>", "4. a\n5. b\n1. c\n2. d"),
        ("<ol reversed><li>a<li>b<li>c</ol>", "3. a\n2. b\n1. c"),
        ("<ol reversed start=10><li>a<li value=7>b<li>c</ol>", "10. a\n7. b\n6. c"),
        ("<ol reversed><li>a<ol><li>x<li>y</ol><li>b</ol>", "2. a\n   1. x\n   2. y\n1. b"),
        ("<ol reversed><li>a<li value=0>b<li>c</ol>", "3. a\n0. b\n- -1. c"),
        ("<ol start=-1><li>a<li>b<li>c</ol>", "- -1. a\n0. b\n1. c"),
        ("<ol start=' +7x'><li>a</ol><ol start=x><li value=''>b</ol>", "7. a\n\n1. b"),
        ("<ol start=99><li>a<p>b<li>c</ol>", "99. a\n\n    b\n100. c"),
        ("<ul><li value=4>a</ul>", "- a"),
        ("<ol type=a start=3><li>x<li type=I>y<li value=30>z</ol>", "- c. x\n- IV. y\n30. z"),
        ("<ol style='list-style: lower-roman inside'><li>x<p>y</ol>", "- i. x\n\n  y"),
        ("<li>alone", "- alone"),
    ],
)  # fmt: skip
def test_items_have_the_numbers_that_a_browser_shows(page: str, markdown: str) -> None:
    assert read(page).markdown == markdown


@pytest.mark.parametrize(
    ("page", "markdown"),
    [
        ("<option>a<option selected>b", "[ ] a\n\n[x] b"),
        ("<option>a<option>b", "[x] a\n\n[ ] b"),
        ("<option disabled>a<option>b", "[ ] a\n\n[x] b"),
        ("<option selected>a<option selected>b", "[ ] a\n\n[x] b"),
        ("<option value=''><option label=c>", "[ ] c"),
        ("<optgroup label=G disabled><option>a</optgroup><option>b", "G\n\n[ ] a\n\n[x] b"),
    ],
)
def test_the_chosen_option_is_marked(page: str, markdown: str) -> None:
    assert read(f"<select>{page}</select>").markdown == markdown


def test_several_options_may_be_chosen_and_proposals_are_not_shown() -> None:
    page = (
        "<select multiple><option selected>a<option>b<option selected>c</select>"
        "<select size=2><option>d</select>"
        "<input list=l value=e><datalist id=l><option>unseen</datalist>"
    )

    assert read(page).markdown == "[x] a\n\n[ ] b\n\n[x] c\n\n[ ] d\n\ne"


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


@pytest.mark.parametrize("page", ["", "<frameset><frame src=x></frameset>", "<body></body>"])
def test_a_page_without_text_is_empty(page: str) -> None:
    assert read(page).markdown == ""


def test_a_title_and_a_declared_encoding() -> None:
    page = "<html><head><meta charset=gbk><title>港口\n 规则</title></head>船".encode("gbk")
    document = convert(page)

    assert (document.title, document.markdown) == ("港口 规则", "船")


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


@pytest.mark.parametrize(
    ("page", "markdown"),
    [
        ("<h3>Loans<div>by <b>ACME</b></div></h3><p>rate", "### Loans by **ACME**\n\nrate"),
        ("<h2><a href='page.html'><div><p>Ships</p></div></a></h2>in", f"## [Ships]({BASE})\n\nin"),
        ("<ul><li><h4><div>One</div> <div>two</div></h4>three</ul>", "- #### One two\n\n  three"),
        (f"<h1>Top<div>{'text ' * 100}</div>end", f"Top\n\n{'text ' * 99}text\n\n# end"),
    ],
    ids=["beside", "link", "list", "never closed"],
)
def test_blocks_in_a_heading_are_a_part_of_it(page: str, markdown: str) -> None:
    assert read(page).markdown == markdown
