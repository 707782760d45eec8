# Shows W73
"""Long PDFs are converted in stretches, as far as pages are requested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine_documents.document import ConversionLimits
from flowengine_documents.pages import Pages
from flowengine_envs import RequestsMarkdownBrowser
from flowengine_envs.documents import reader as module
from flowengine_envs.documents.conversion import UnreadableDocument
from flowengine_envs.documents.converting import convert
from flowengine_envs.documents.provider import DocumentsProvider
from flowengine_envs.documents.reader import Documents
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.sandboxes.processes import has
from tests.envs.documents.written_pdf import made_pdf
from tests.envs.opening import opened
from tests.replacing import Limits, patches_everywhere

SIZE = 1_000
"""Characters per page of the result."""


def pdf(pages: int, lines: int = 10) -> bytes:
    """Return a PDF with numbered pages and lines."""
    return made_pdf(
        b"BT /F1 11 Tf 14 TL 72 720 Td\n%s ET"
        % b"".join(
            b"(Page %d, line %d: the ship carries timber.) Tj T*\n" % (number, line)
            for line in range(lines)
        )
        for number in range(1, pages + 1)
    )


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documents]:
    if not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    folder = tmp_path_factory.mktemp("workspace")
    with (
        patches_everywhere() as patch,
        opened(DocumentsProvider(), Namespace, folder, policy={"network": ["any"]}) as resource,
    ):
        patch.setattr(module, "_BEGINNING", 1e-6)  # one page
        patch.setattr(module, "_FURTHER", 0.1)
        yield resource


def test_stretches_are_the_whole() -> None:
    data = pdf(30)
    whole = convert(data)
    assert whole.following == 0
    first, texts, parts = 1, [], []
    while first:
        stretch = convert(data, first=first, seconds=1e-6)
        assert (stretch.title, stretch.sha256) == (whole.title, whole.sha256)
        texts.append(stretch.markdown)
        parts += [part.number for part in stretch.parts]
        first = stretch.following
    assert (len(texts), parts) == (30, [*range(1, 31)])
    assert "\n\n".join(texts) == whole.markdown


def test_a_stretch_ends_before_it_is_cut() -> None:
    limits = ConversionLimits(characters=2_000)
    stretch = convert(pdf(30), seconds=60.0, limits=limits)
    assert (stretch.truncated, stretch.following) == (False, 4)
    late = convert(pdf(30), first=6, seconds=60.0, limits=ConversionLimits(pages=8))
    assert ([part.number for part in late.parts], late.following) == ([6, 7, 8], 0)
    assert late.notes == ["cut after 8 pages (limit 'pages')"]


def test_five_thousand_pages_are_not_read_for_the_first(reader: Documents) -> None:
    found = reader.page(pdf(5_000, 2), characters=SIZE)
    assert (found.number, found.more) == (1, True)
    assert "Page 1, line 0" in found.text
    assert found.pages < 100
    assert f"\nPage 1 of at least {found.pages} (pdf)\n" in found.as_text()


def test_pages_are_those_of_the_whole(reader: Documents) -> None:
    data = pdf(20)
    whole = Pages(convert(data).markdown, characters=SIZE)
    for number in (1, 7, len(whole)):
        found = reader.page(data, number, characters=SIZE)
        assert found.text == whole.content(number)
    assert (found.pages, found.more) == (len(whole), False)
    with pytest.raises(UnreadableDocument, match=rf"no page 99: pages are 1 to {len(whole)}"):
        reader.page(data, 99, characters=SIZE)


def test_a_search_reads_on(reader: Documents) -> None:
    data = pdf(21)
    whole = Pages(convert(data).markdown, characters=SIZE)
    found = reader.page(data, 3, find="page 20, line 9", characters=SIZE)
    assert (found.is_found, found.text) == (True, whole.content(found.number))
    again = reader.page(data, 8, find="page 2, line 1", characters=SIZE)  # back from the start
    assert (again.is_found, again.text) == (True, whole.content(again.number))
    assert not reader.page(data, 2, find="nowhere", characters=SIZE).is_found


def test_a_file_that_changes_meanwhile_is_told(reader: Documents) -> None:
    reader.put("changing.pdf", pdf(300))
    reader.page("changing.pdf", characters=SIZE)
    reader.put("changing.pdf", pdf(301))
    with pytest.raises(UnreadableDocument, match="has changed since it was opened"):
        reader.page("changing.pdf", 99, characters=SIZE)
    assert "Page 1, line 0" in reader.page("changing.pdf", characters=SIZE).text


@pytest.mark.endurance
def test_a_reader_with_a_position(reader: Documents, folder: Path, limits: Limits) -> None:
    limits(module, _FURTHER=1e-6)
    (folder / "workspace").mkdir()
    (folder / "workspace" / "long.pdf").write_bytes(pdf(3))
    whole = Pages(convert(pdf(3)).markdown, 12)
    with RequestsMarkdownBrowser(viewport_size=12) as browser:
        assert browser.visit_page("long.pdf").endswith(f"+]\n\n{whole.content(1)}")
        assert browser.page_down().partition("]\n\n")[2] == whole.content(2)
        assert "Page 3, line 0" in browser.find_on_page("Page 3, line 0")
        assert "Page 2, line 0" in browser.find_on_page("Page 2, line 0")
        last = f"[Page {len(whole)}/{len(whole)}]\n\n{whole.content(len(whole))}"
        assert browser.page_to(len(whole)) == last
        assert browser.page_down() == last
        state = browser.state
    with RequestsMarkdownBrowser(viewport_size=12, state=state) as browser:
        assert browser.page_up().partition("]\n\n")[2] == whole.content(len(whole) - 1)
