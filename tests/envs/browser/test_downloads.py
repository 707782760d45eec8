# Shows W26
"""Downloads that pages offer."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler

import pytest

from flowengine_envs.browser.requests import Downloads
from flowengine_envs.browser.resource import Browser
from tests.envs.browser.web import Web, send


def attachment(data: bytes, name: str) -> object:
    return lambda handler: send(
        handler,
        data,
        type="application/octet-stream",
        content_disposition=f'attachment; filename="{name}"',
    )


def test_downloads_land_in_the_workspace_and_are_named(browser: Browser, web: Web) -> None:
    web.pages["/file"] = attachment(b"cargo", "list.bin")
    body = """<a href=/file id=a>attachment</a>
    <a id=b download=blob.txt>blob</a><a id=d download=data.txt href="data:text/plain,data">data</a>
    <script>b.href = URL.createObjectURL(new Blob(['from a blob']))</script>"""
    browser.navigate(web.page("/downloads", body))
    for selector, name, content in (
        ("#a", "downloads/list.bin", "cargo"),
        ("#a", "downloads/list-2.bin", "cargo"),
        ("#b", "downloads/blob.txt", "from a blob"),
        ("#d", "downloads/data.txt", "data"),
    ):
        seen = browser.click(selector)
        assert seen.error == ""
        (download,) = seen.downloads
        assert (download.path, download.size, download.error) == (name, len(content), "")
        assert (browser.workspace / name).read_text() == content
        assert (browser.workspace / name).stat().st_mode & 0o777 == 0o644
        assert "attachment" in seen.content
    assert browser.observe().downloads == []


def test_a_download_that_is_too_large_is_cancelled(browser: Browser, web: Web) -> None:
    sent = 0

    def endless(handler: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.send_header("content-type", "application/octet-stream")
        handler.end_headers()
        while sent < 1024**3 and not web.closing.is_set():
            handler.wfile.write(bytes(1 << 16))
            sent += 1 << 16

    web.pages["/gigabyte"] = endless
    browser.navigate(web.page("/large", "<a href=/gigabyte>large</a>"))
    seen = browser.click("a")
    while not seen.downloads:
        seen = browser.observe()
    (download,) = seen.downloads
    assert download.path == ""
    assert "larger than 2,000,000 bytes" in download.error
    assert sent < 1024**3
    assert not list(browser.workspace.glob("downloads/gigabyte*"))


def test_what_arrives_is_counted_when_it_is_taken_out(
    browser: Browser, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that a page has taken over can report small files and send large ones."""
    monkeypatch.setattr(Downloads, "_size", lambda _: 0)
    web.pages["/large"] = attachment(bytes(5_000_000), "large.bin")
    seen = browser.navigate(web.url("/large"))

    (download,) = seen.downloads
    assert (download.path, download.size) == ("", 0)
    assert "larger than 2,000,000 bytes" in download.error
    assert not list(browser.workspace.glob("downloads/large*"))
