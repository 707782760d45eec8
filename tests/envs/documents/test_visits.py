"""The kind `documents` opens web pages, files and folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import HttpError, LimitExceeded, Timeout
from flowengine.sdk.web.urls import UrlRefused
from flowengine_envs.documents.conversion import UnreadableDocument
from flowengine_envs.documents.provider import DocumentsProvider
from flowengine_envs.documents.reader import Documents
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.sandboxes.processes import has
from tests.envs.documents.test_downloads import HEAD, HTML, forever, moved, raw
from tests.envs.documents.written_compound import compound
from tests.envs.network.ways_out import Site, serving
from tests.envs.opening import opened
from tests.rows import each_row

FILES = Path(__file__).with_name("files")
TYPES = {
    "groff.pdf": "application/pdf",
    "pandoc.docx": "application/octet-stream",
    "pandoc.pptx": "",
    "pandoc.html": "text/html",
    "crane.png": "image/png",
    "talk.md": "text/markdown",
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving() as made:
        yield made


@pytest.fixture(scope="module")
def reader(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documents]:
    if not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    policy = {"network": ["public", site.place]}
    folder = tmp_path_factory.mktemp("workspace")
    with opened(DocumentsProvider(), Namespace, folder, policy=policy) as resource:
        yield resource


@pytest.mark.endurance(sample=2)
@pytest.mark.parametrize("name", TYPES)
# Shows W53
def test_a_file_is_the_same_by_path_and_by_address(
    name: str, reader: Documents, site: Site
) -> None:
    data = (FILES / name).read_bytes()
    reader.put(name, data)
    site.pages[f"/{name}"] = (200, {"Content-Type": TYPES[name]}, data)

    by_path, by_address = reader.visit(name), reader.visit(site.url(f"/{name}"))
    assert (by_path.status, by_address.status) == ("", "200 OK")
    assert by_address.address == site.url(f"/{name}")
    if by_path.document.format == "html":  # links are resolved against the address
        assert by_path.document.title == by_address.document.title
    else:
        assert by_path.document == by_address.document
    assert by_path.document.sha256 == by_address.document.sha256 != ""
    if by_address.file:
        assert reader.get(by_address.file) == data
    assert bool(by_address.file) == (by_path.document.format not in {"html", "text"})


# Shows W38
def test_links_of_a_page_are_resolved_against_where_it_was_found(
    reader: Documents, site: Site
) -> None:
    site.pages["/old"] = moved("/new/page")
    site.pages["/new/page"] = (200, HTML, b"<title>T</title><p><a href=next>on</a>")
    found = reader.visit(f"http://ana:secret@{site.place}/old")

    assert found.document.markdown == f"[on]({site.url('/new/next')})"
    assert found.document.notes == [f"redirected from {site.url('/old')}"]
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("status", "body", "markdown"),
    [
        ("404 Not Found", b"<h1>Gone</h1>", "# Gone"),
        ("500 Internal Server Error", b"broken", "broken"),
        ("429 Too Many Requests", b"", ""),
        ("204 No Content", b"", ""),
        ("502 Bad Gateway", b"\x00\x01\x02" * 1000, ""),
    ],
)
# Shows W59
def test_errors_of_servers_are_pages(
    status: str, body: bytes, markdown: str, reader: Documents, site: Site, no_pause: None
) -> None:
    headers = HTML if body.startswith(b"<") else {"Content-Type": "text/plain"}
    site.pages["/a"] = (int(status[:3]), headers, body)
    found = reader.visit(site.url("/a"))

    assert (found.status, found.document.markdown, found.file) == (status, markdown, "")
    assert found.succeeded is status.startswith("2")


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowengine_envs.documents.downloads._LONGEST_PAUSE", 0.0)


@pytest.mark.parametrize(
    "address",
    [
        *("http://localhost:{canary}/", "http://0x7f.1:{canary}/x.pdf", "localhost:{canary}"),
        *("http://[::1]:{canary}/", "http://169.254.169.254/latest", "http://10.0.0.1"),
        *("ftp://example.org/", "data:text/html,x", "javascript:1", "file://host/etc/passwd"),
    ],
)
# Shows W31
def test_what_may_not_be_reached_is_refused(address: str, reader: Documents) -> None:
    with serving() as canary, pytest.raises(UrlRefused):
        reader.visit(address.format(canary=canary.port))
    assert canary.connections == 0


@each_row(
    "path",
    [
        *("../outside", "/etc/passwd", "/dev/zero", "pipe", "out", "absent.pdf", "a\0b"),
        *("file:///etc/passwd", "file:/etc/passwd", "file:///workspace/../etc/passwd"),
        *("file://localhost/etc/passwd", "file:///workspace/out", "out/passwd"),
    ],
)
# Shows W56
def test_paths_stay_in_the_workspace(path: str, reader: Documents) -> None:
    workspace = Path(reader.workspace)
    if not (workspace / "out").is_symlink():
        (workspace / "out").symlink_to("/etc")
        os.mkfifo(workspace / "pipe")
    with pytest.raises((UnreadableDocument, UrlRefused)):
        reader.visit(path)


# Shows W56
def test_a_folder_is_a_list_of_links_that_can_be_visited(reader: Documents) -> None:
    reader.put("deep/sub/x.txt", b"x")
    reader.put("deep/a [1](ftp:x).txt", b"hello")
    reader.put("deep/\u202ezz.txt", b"zz")
    found = reader.visit("deep").document

    assert found.markdown.splitlines() == [
        "- [sub/](./deep/sub/)",
        r"- [a \[1\](ftp:x).txt](./deep/a%20[1]%28ftp:x%29.txt) (5 bytes)",
        "- [zz.txt](./deep/%E2%80%AEzz.txt) (2 bytes)",
    ]
    assert reader.visit("./deep/a [1](ftp:x).txt").document.markdown == "hello"
    assert reader.visit("./deep/sub/").document.markdown == "- [x.txt](./deep/sub/x.txt) (1 bytes)"
    assert reader.visit(".").document.title == "./"


# Shows W55
def test_what_cannot_be_read_is_kept(reader: Documents, site: Site) -> None:
    site.pages["/old.doc"] = (200, {}, compound({"WordDocument": b"x"}))
    with pytest.raises(
        UnreadableDocument, match=r"Word before 2007.*kept as 'downloads/old"
    ) as caught:
        reader.visit(site.url("/old.doc"))
    assert caught.value.name == "UnsupportedFormat"
    assert isinstance(caught.value.data, dict)
    assert reader.get(str(caught.value.data["file"])).startswith(b"\xd0\xcf\x11\xe0")


# Shows W62
def test_downloads_of_one_name_are_kept_apart(reader: Documents, site: Site) -> None:
    pdf = (FILES / "groff.pdf").read_bytes()
    header = {"Content-Disposition": "attachment; filename=../../same.pdf"}
    site.pages["/d"] = (200, header, pdf)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: reader.visit(site.url("/d")).file, range(4)))

    assert sorted(found) == sorted(f"downloads/same{end}.pdf" for end in ("", "-2", "-3", "-4"))
    for path in found:
        assert reader.get(path) == pdf
        assert (Path(reader.workspace) / path).stat().st_mode & 0o111 == 0


# Shows W62
def test_a_downloads_folder_that_leads_out_is_not_used(site: Site, tmp_path: Path) -> None:
    workspace, outside = tmp_path / "w", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (workspace / "downloads").symlink_to(outside)
    site.pages["/d.pdf"] = (200, {}, (FILES / "groff.pdf").read_bytes())
    policy = {"network": [site.place]}
    with (
        opened(DocumentsProvider(), Namespace, workspace, policy=policy) as reader,
        pytest.raises(Exception, match="downloads"),
    ):
        reader.visit(site.url("/d.pdf"))
    assert os.listdir(outside) == []


# Shows W60, W61
def test_limits_of_downloads(site: Site, tmp_path: Path) -> None:
    site.pages["/silent"] = raw(HEAD + b"\r\n", lambda handler: handler.rfile.read(1))
    site.pages["/forever"] = raw(HEAD + b"\r\n", forever)
    words: dict[str, Any] = {
        "config": {"bytes": 1_000_000},
        "policy": {"network": [site.place, "127.0.0.1:1"]},
    }
    limits = {"time": 1}
    with (
        opened(DocumentsProvider(), Namespace, tmp_path, limits=limits, **words) as reader,
        pytest.raises(Timeout, match="not downloaded in 1 s"),
    ):
        reader.visit(site.url("/silent"))
    with opened(DocumentsProvider(), Namespace, tmp_path, **words) as reader:
        with pytest.raises(LimitExceeded, match="the limit 'bytes' is 1,000,000"):
            reader.visit(site.url("/forever"))
        with pytest.raises(HttpError, match="Connection refused"):
            reader.visit("http://127.0.0.1:1/")


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({"network": "none"}, "declare it with policy: {network: public}"),
        ({}, "declare it with policy: {network: public}"),
        ({"network": ["example.org"]}, "not allowed by policy.network"),
        ({"network": "public"}, "not public: loopback"),
    ],
)
def test_the_policy_says_what_is_fetched(
    policy: Any, told: str, site: Site, tmp_path: Path
) -> None:
    before = site.connections
    with (
        opened(DocumentsProvider(), Namespace, tmp_path, policy=policy) as reader,
        pytest.raises(UrlRefused, match=told),
    ):
        reader.visit(site.url())
    assert site.connections == before
