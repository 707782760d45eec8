"""`RequestsMarkdownBrowser`: a reader that keeps its position, based on the kind `documents`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import EnvironmentClosed, EnvironmentLost, StepError, ValidationError
from flowengine.sdk.web.urls import UrlRefused
from flowengine_envs import RequestsMarkdownBrowser
from flowengine_envs.compat import markdown_browser
from flowengine_envs.documents.conversion import UnreadableDocument
from flowengine_envs.sandboxes.processes import has
from tests.envs.network.ways_out import Site, serving

LINES = [f"line {number}" for number in range(1, 2501)]
TEXT = "\n".join(LINES)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    monkeypatch.chdir(tmp_path)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "long.txt").write_text(TEXT)
    (workspace / "short.md").write_text("# Short\n\nThe end.")
    return workspace


@pytest.fixture
def browser(folder: Path) -> Iterator[RequestsMarkdownBrowser]:
    with RequestsMarkdownBrowser() as made:
        yield made


# Shows W45
def test_defaults_and_arguments(tmp_path: Path) -> None:
    browser = RequestsMarkdownBrowser()
    assert (browser.viewport_size, browser.downloads_folder) == (1024, "./workspace/downloads")
    for size in (0, -1, True):
        with pytest.raises(ValidationError, match="viewport_size"):
            RequestsMarkdownBrowser(viewport_size=size)
    with pytest.raises(ValidationError, match="provider"):
        RequestsMarkdownBrowser(provider="docker")
    with pytest.raises(EnvironmentClosed, match="use it first"):
        _ = browser.resource
    browser.close()
    with pytest.raises(EnvironmentClosed, match="was closed"):
        browser.visit_page("long.txt")
    assert not (tmp_path / "workspace" / "downloads").exists()


# Shows W46, W47, W50
def test_pages(browser: RequestsMarkdownBrowser) -> None:
    assert browser.page_down() == "no page is open: call visit_page first"
    assert browser.find_on_page("x") == "no page is open: call visit_page first"
    assert browser.back() == "there is no page before"

    first = "[Page 1/3]\n\n" + "\n".join(LINES[:1024]) + "\n"
    assert browser.visit_page("long.txt") == first
    assert browser.page_up() == first
    assert browser.page_down().startswith("[Page 2/3]\n\nline 1025\n")
    last = browser.page_down()
    assert last == "[Page 3/3]\n\n" + "\n".join(LINES[2048:])
    assert browser.page_down() == last
    for number in (0, 4, "x", None):
        assert "pages are 1 to 3" in browser.page_to(number)  # type: ignore[arg-type]
    assert browser.page_to(2).startswith("[Page 2/3]\n\nline 1025\n")


# Shows W51, W52
def test_search_and_back(browser: RequestsMarkdownBrowser) -> None:
    browser.visit_page("long.txt")
    assert browser.find_next() == "there is nothing more to find"
    assert browser.find_on_page("LINE 20*").startswith("[Page 1/3]")
    assert browser.find_on_page("line 2400").startswith("[Page 3/3]")
    assert browser.find_on_page("absent") == "'absent' was not found"
    assert browser.state["page"] == 3
    assert browser.find_on_page("line 1\n").startswith("[Page 1/3]")
    browser.page_to(2)
    assert browser.visit_page("short.md") == "[Page 1/1]\n\n# Short\n\nThe end."
    assert browser.back().startswith("[Page 2/3]\n\nline 1025")
    assert browser.back() == "there is no page before"


# Shows W81
def test_a_failed_visit_changes_nothing(browser: RequestsMarkdownBrowser, folder: Path) -> None:
    browser.visit_page("long.txt")
    browser.page_down()
    (folder / "bad.pdf").write_bytes(b"%PDF-1.7 broken")
    (folder / "a.7z").write_bytes(b"7z\xbc\xaf\x27\x1c" + bytes(20))
    for address, error in [
        ("absent.pdf", UnreadableDocument),
        ("bad.pdf", UnreadableDocument),
        ("a.7z", UnreadableDocument),
        ("/etc/passwd", UnreadableDocument),
        ("../outside", UnreadableDocument),
        ("http://10.0.0.1/", UrlRefused),
        ("x" * 10_000, StepError),
        (None, ValidationError),
    ]:
        with pytest.raises(error):
            browser.visit_page(address)  # type: ignore[arg-type]
    assert browser.page_up().startswith("[Page 1/3]\n\nline 1\n")
    assert browser.back() == "there is no page before"


@pytest.mark.endurance
# Shows W57
def test_the_position_survives_in_another_process(folder: Path) -> None:
    """The position is plain data that contains no text of the document."""
    with RequestsMarkdownBrowser() as browser:
        browser.visit_page("short.md")
        browser.visit_page("long.txt")
        browser.page_down()
        state = json.dumps(browser.state)
    assert "line" not in state
    assert len(state) < 1000
    code = (
        "import json, sys\n"
        "from flowengine_envs import RequestsMarkdownBrowser\n"
        "with RequestsMarkdownBrowser(state=json.loads(sys.argv[1])) as browser:\n"
        "    assert browser.state == json.loads(sys.argv[1])\n"
        "    print(json.dumps([browser.page_to(2), browser.page_down(), browser.back()]))\n"
    )

    def resumed() -> Any:
        argv = [sys.executable, "-c", code, state]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    page, following, before = resumed()
    assert page.startswith("[Page 2/3]\n\nline 1025\n")
    assert following.startswith("[Page 3/3]\n")
    assert before.startswith("[Page 1/1]\n\n# Short")

    (folder / "long.txt").write_text("other")
    page, following, _ = resumed()
    assert page.splitlines() == [
        "(this document has changed since it was last read)",
        "there is no page 2: pages are 1 to 1",
    ]
    assert following.startswith("[Page 1/1]\n\nother")


@pytest.mark.parametrize(
    "state", [{"address": "x"}, {"page": 1}, {"address": "x", "page": "y", "sha256": ""}]
)
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(ValidationError, match="not the state of a browser"):
        RequestsMarkdownBrowser(state=state)


# Shows W58
def test_calls_of_one_reader_take_turns(browser: RequestsMarkdownBrowser) -> None:
    browser.visit_page("long.txt")
    with ThreadPoolExecutor(8) as pool:
        shown = list(pool.map(lambda n: browser.page_to(n % 3 + 1), range(24)))
    for number, page in enumerate(shown):
        assert page.startswith(f"[Page {number % 3 + 1}/3]")


# Shows W52
def test_tools_for_agents(folder: Path, site: Site) -> None:
    site.pages["/long"] = (200, {"Content-Type": "text/plain"}, TEXT.encode())
    call: Any
    with RequestsMarkdownBrowser(network=[site.place]) as browser:
        variables = {"file_env": browser}

        def call(tool: Any, *args: Any) -> str:
            return str(tool(*args, context_variables=variables))

        told = call(markdown_browser.visit_page, site.url("/long"))
        assert told.startswith(f"Address: {site.url('/long')} (200 OK)\nPage 1 of 3 (text)\n")
        assert "\n<content " in told
        again = call(markdown_browser.visit_page, site.url("/long"))
        assert "\nVisited before: 1 times\n" in again
        assert "Page 2 of 3" in call(markdown_browser.page_down)
        assert "Page 1 of 3" in call(markdown_browser.page_up)
        assert "Page 3 of 3" in call(markdown_browser.page_to, 3)
        found = call(markdown_browser.find_on_page, "line 1500")
        assert "Found on page 2" in found
        assert "Found on page 2" in call(markdown_browser.find_next)  # there is a single match
        assert call(markdown_browser.page_to, 9) == "there is no page 9: pages are 1 to 3"
        assert call(markdown_browser.visit_page, "http://10.0.0.1/").startswith(
            "Error: UrlRefused: "
        )
        failed = call(markdown_browser.visit_page, "absent.pdf")
        assert failed.startswith("Error: NoSuchFile: ")
        assert re.search(r"<content (\w+)>\nabsent.pdf: .*\n</content \1>$", failed)
        assert "Visited before" not in call(markdown_browser.back)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as made:
        yield made


def test_a_lost_reader_is_opened_again(browser: RequestsMarkdownBrowser) -> None:
    browser.visit_page("long.txt")
    for program in browser.resource.sandbox._programs:  # type: ignore[attr-defined]
        program.kill()
    while browser.generation == 1:
        with suppress(EnvironmentLost):  # until the environment is known to have ended
            browser.visit_page("long.txt")
    assert browser.visit_page("short.md").startswith("[Page 1/1]")
    assert browser.generation == 2
