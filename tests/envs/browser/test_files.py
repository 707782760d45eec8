# Shows W31
"""Pages that are files of the workspace. Other files of the machine stay out of reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine_envs.browser.resource import Browser
from tests.envs.browser.web import Web, redirect

REPORT = """<!doctype html><title>Report</title><link rel=stylesheet href=style.css>
  <h1>Sales — Ü</h1><img id=img src="sub/dot.png"><p id=out>nothing</p>
  <script src="code.js"></script>"""
DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fcff"
    "9fa11e0007820280bcd6c5100000000049454e44ae426082"
)


@pytest.fixture
def workspace(browser: Browser, web: Web) -> Path:
    folder = browser.workspace
    (folder / "sub").mkdir(parents=True, exist_ok=True)
    (folder / "a report.html").write_text(REPORT)
    (folder / "style.css").write_text("h1 { font-size: 33px }")
    (folder / "code.js").write_text("document.getElementById('out').textContent = 'ran'")
    (folder / "sub" / "dot.png").write_bytes(DOT)
    (folder / "notes.md").write_text("# Not *rendered*")
    browser.navigate(web.page("/stay", "<p>stay</p>"))
    return folder


def test_a_page_of_the_workspace_is_shown_with_what_is_beside_it(
    browser: Browser, workspace: Path
) -> None:
    for address in ("file:///workspace/a%20report.html", f"file://{workspace}/a%20report.html"):
        seen = browser.navigate(address)
        assert (seen.error, seen.title) == ("", "Report")
        assert seen.url == "file:///workspace/a%20report.html"
        assert "Sales — Ü" in seen.content
        assert "ran" in seen.content
    assert "# Not *rendered*" in browser.navigate("FILE:///workspace/./notes.md").ax_tree
    assert browser.back().title == "Report"


@pytest.mark.endurance
def test_what_is_not_in_the_workspace_is_refused(
    browser: Browser, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.html"
    outside.write_text("<p>secret</p>")
    for name, to in (("link.html", outside), ("folder", tmp_path)):
        (workspace / name).unlink(missing_ok=True)
        (workspace / name).symlink_to(to)
    refused = [
        "file:///etc/passwd",
        f"file://{outside}",
        "file:///workspace/../etc/passwd",
        "file:///workspace/%2e%2e/etc/passwd",
        "file:///workspace/..%2fetc%2fpasswd",
        f"file:///workspace/..{outside}",
        f"file://{workspace}/../../etc/passwd",
        "file:///workspace/link.html",
        "file:///workspace/folder/outside.html",
        "file://host/workspace/notes.md",
        "file://127.0.0.1/workspace/notes.md",
        "file:etc/passwd",
        "file:///workspace",
        "view-source:file:///workspace/notes.md",
        "filesystem:file:///workspace/notes.md",
    ]
    for address in refused:
        seen = browser.navigate(address)
        assert "UrlRefused" in seen.error, address
        assert seen.content == "stay"
    for address in (
        "file:///workspace/none.html",
        "file:///workspace/sub",
        "file:///workspace/%00",
    ):
        assert browser.new_tab(address).error
        browser.close_tab()


def test_pages_reach_only_files_that_they_may_show(
    browser: Browser, workspace: Path, web: Web, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.html"
    secret.write_text("<p>secret</p>")
    (workspace / "out.html").unlink(missing_ok=True)
    (workspace / "out.html").symlink_to(secret)
    (workspace / "reads.html").write_text(
        """<title>t</title><p id=out></p><iframe src="out.html"></iframe>
        <iframe src="file:///etc/passwd"></iframe><iframe src="notes.md" id=own></iframe>
        <script>const say = text => out.textContent += text + " ";
        fetch("notes.md").then(() => say("fetched"), () => say("refused"));
        const asked = new XMLHttpRequest();
        asked.onload = () => say("loaded"); asked.onerror = () => say("refused");
        asked.open("GET", "notes.md"); asked.send();
        own.onload = () => { try { say(own.contentDocument.body.textContent) }
          catch { say("closed") } }</script>"""
    )
    seen = browser.navigate("file:///workspace/reads.html")
    assert "refused" in seen.content
    assert not {"fetched", "loaded"} & set(seen.content.split())
    for unwanted in ("secret", "root:"):
        assert unwanted not in seen.ax_tree + seen.content

    web.pages["/away"] = redirect("file:///workspace/notes.md")
    assert browser.navigate(web.url("/away")).error
    page = web.page("/shows", "<iframe src='file:///workspace/notes.md'></iframe><p>x</p>")
    seen = browser.navigate(page)
    assert "rendered" not in seen.ax_tree
