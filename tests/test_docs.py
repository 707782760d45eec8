# Shows F6
"""The flow files and programs in the docs work as shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from flowengine import FlowFileError
from flowengine.flow.compile import compile_text
from flowengine.flow.models.flow import FlowModel
from scripts import states
from tests.command_line import python
from tests.test_how_to import GUIDES as PLAYED

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]+)?\)")
TO_HEADING = re.compile(r"\]\(((?!\w+:)[^)#\s]*)#([^)\s]+)\)")


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Yield every code block of a language, with its position."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text[: match.start()].count("\n") + 2
            yield f"{page.relative_to(ROOT)}:{line}", match[1]


GUIDES = tuple(f"docs/{name}.md" for name in PLAYED)
FLOWS = [
    (place, text)
    for place, text in blocks("yaml")
    if re.match(r"(#.*\n)?flowengine: 1\n", text)
    and not place.startswith("docs/from/")  # run with their modules by test_transcripts.py
    and not place.startswith(
        ("README.md", "docs/tutorial/", "docs/how-to/")
    )  # likewise by their tests
    and not (place.startswith(GUIDES) and text.startswith("# "))  # likewise, with their files
]


@pytest.mark.parametrize(("place", "text"), FLOWS, ids=[place for place, _ in FLOWS])
def test_every_flow_in_the_docs_passes_the_check_without_a_warning(place: str, text: str) -> None:
    compiled = compile_text(text, place)

    assert [str(diagnostic) for diagnostic in compiled.diagnostics] == []


def test_parts_of_flows_in_the_docs_have_the_keys_of_the_language() -> None:
    """They leave out steps or declarations, so only their own form is checked."""
    checked, wrong = 0, []
    for place, text in blocks("yaml"):
        top = re.findall(r"^([^\s#].*?)(?::.*)?$", text, re.MULTILINE)
        if "flowengine" in top or not FlowModel.fields_by_key().keys() >= {*top} or "…" in text:
            continue
        if place.startswith("docs/from/"):  # some are of other products
            continue
        checked += 1
        rest = "" if "steps" in top else "steps: [{id: only, output: 1}]\n"
        try:
            compile_text(f"flowengine: 1\nid: part\n{text}{rest}", place)
        except FlowFileError as error:
            of_form = {"E101", "E102", "E103", "E104", "E106"}
            wrong += [f"{place}: {one.message}" for one in error.diagnostics if one.code in of_form]
    assert wrong == []
    assert checked > 20


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {match[1]}"
        for page in PAGES
        for match in LINK.finditer(page.read_text(encoding="utf-8"))
        if not (page.parent / match[1]).exists()
    ]

    assert broken == []


def test_links_to_headings_have_one() -> None:
    headings = {page.resolve(): anchors(page) for page in PAGES}
    broken = [
        f"{page.relative_to(ROOT)}: {place}#{anchor}"
        for page in PAGES
        for place, anchor in TO_HEADING.findall(page.read_text(encoding="utf-8"))
        if anchor not in headings.get((page.parent / place if place else page).resolve(), ())
    ]

    assert broken == []


def test_a_warning_fails_the_build_of_the_site() -> None:
    """Strict mode counts the warnings that are logged, and `--quiet` would log none."""
    build = next(
        line
        for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
        if "mkdocs build" in line
    )

    assert "strict: true" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8").splitlines()
    assert not {"--quiet", "-q"} & set(build.split())


def anchors(page: Path) -> set[str]:
    """Return the anchors of a Markdown page on GitHub, which come from its headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    words = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", word).strip().lower().replace(" ", "-") for word in words}


def test_the_programs_of_the_python_page_print_what_it_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    flows = re.findall(r"^```yaml\n# (\w+.yaml)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for name, flow in flows:
        (tmp_path / name).write_text(flow)
    told = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    programs = told.findall(page)

    for program, expected in programs:
        with chdir(tmp_path):
            done = python("-c", program)
        assert (done.out, done.err) == (expected, ""), program

    assert len(programs) == page.count("```python")


def test_the_page_of_states_is_that_of_the_tables() -> None:
    assert states.PAGE.read_text(encoding="utf-8") == states.page()
