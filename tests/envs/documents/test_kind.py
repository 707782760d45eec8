# Shows W77
"""The kind `documents`: files are read in separate processes, in a sandbox."""

from __future__ import annotations

import io
import os
import signal
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

import docx
import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentUnavailable, LimitExceeded
from flowengine.sdk.environments import VARIABLE, Sandbox
from flowengine.sdk.processes import Family
from flowengine.testing.environment_conformance import CHECKS, Check, ProviderCase
from flowengine_envs.documents.conversion import UnreadableDocument, checked
from flowengine_envs.documents.converting import convert
from flowengine_envs.documents.provider import DocumentsProvider
from flowengine_envs.documents.reader import Documents
from flowengine_envs.sandboxes.host import HostSandbox
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.sandboxes.processes import has
from tests.envs.documents.test_limits import page_with, repeated
from tests.envs.enough import enough
from tests.envs.opening import opened
from tests.execution_environment.toy import until
from tests.rows import each_row

FILES = Path(__file__).with_name("files")
OF_EACH_FORMAT = [
    "pandoc.docx", "pandoc.pptx", "gnumeric.xlsx", "pandoc.epub", "groff.pdf", "crane.png",
    "pandoc.html", "pandoc.ipynb", "ships.csv", "talk.md", "libreoffice.xls",
    "libreoffice.ods",
]  # fmt: skip


@pytest.fixture(params=[Namespace, HostSandbox], ids=["namespace", "host"], scope="module")
def place(request: pytest.FixtureRequest) -> type[Sandbox]:
    if request.param is Namespace and not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    sandbox: type[Sandbox] = request.param
    return sandbox


@pytest.fixture(scope="module")
def reader(place: type[Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documents]:
    with opened(DocumentsProvider(), place, tmp_path_factory.mktemp("workspace")) as resource:
        yield resource


@pytest.mark.endurance(sample=3)
@pytest.mark.wherever("place")  # the sandbox does not affect the conversion
@pytest.mark.parametrize("name", OF_EACH_FORMAT)
# Shows W53
def test_it_is_the_same_as_in_the_own_process(
    reader: Documents, place: type[Sandbox], name: str
) -> None:
    """Each format is read by path in one sandbox, and as bytes in the other."""
    data = (FILES / name).read_bytes()

    if (place is HostSandbox) == OF_EACH_FORMAT.index(name) // 2 % 2:
        reader.put(name, data)
        found = reader.read(name)
    else:
        found = reader.read(data, name)

    assert found == convert(data, name)


@pytest.mark.wherever("place")
# Shows W82
def test_what_cannot_be_read_says_why_and_what_is_read_next_is_read(reader: Documents) -> None:
    with pytest.raises(UnreadableDocument, match=r"^a\.7z: it is a 7-Zip archive") as caught:
        reader.read(b"7z\xbc\xaf\x27\x1c" + bytes(20), "a.7z")
    assert caught.value.name == "UnsupportedFormat"
    locked = (FILES / "locked.pdf").read_bytes()
    with pytest.raises(UnreadableDocument) as caught:
        reader.read(locked, "a.pdf")
    assert caught.value.name == "PasswordRequired"
    with pytest.raises(UnreadableDocument) as caught:
        reader.read(locked, "a.pdf", password="hunter2")
    assert (caught.value.name, "hunter2" in str(caught.value)) == ("WrongPassword", False)

    assert "six knots" in reader.read(locked, "a.pdf", password="harbour").markdown


@each_row("path", ["../outside", "/etc/passwd", "link", "pipe", ".", "absent", "folder"])
# Shows W56
def test_paths_stay_in_the_workspace(reader: Documents, path: str) -> None:
    workspace = Path(reader.workspace)
    if path == "link":
        (workspace / "link").symlink_to("/etc/passwd")
    elif path == "pipe":
        os.mkfifo(workspace / "pipe")
    elif path == "folder":
        (workspace / "folder").mkdir()

    with pytest.raises(UnreadableDocument, match=path.replace(".", r"\.")) as caught:
        reader.read(path)
    assert "root:" not in str(caught.value)


@pytest.mark.wherever("place")
# Shows W72
def test_time_is_limited(reader: Documents) -> None:
    page = b"<!doctype html>" + b"<a href='/x?%d'>l</a> " * 400_000
    began = time.monotonic()

    with pytest.raises(LimitExceeded, match="took longer than 1 s") as caught:
        reader.read(page, "a.html", timeout=1)
    assert caught.value.data == {"limit": "time", "value": 1}
    assert time.monotonic() - began < 60
    assert reader.read(b"fine", "a.txt").markdown == "fine"


@cache
def many_paragraphs() -> bytes:
    """Return a 700 kB Word file with a million paragraphs."""
    buffer = io.BytesIO()
    docx.Document().save(buffer)
    out = io.BytesIO()
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "word/document.xml":
                paragraphs = b"<w:p><w:r><w:t>x</w:t></w:r></w:p>" * 1_000_000
                data = data.replace(b"<w:body>", b"<w:body>" + paragraphs)
            new.writestr(name, data)
    return out.getvalue()


@pytest.mark.endurance
def test_memory_is_limited(place: type[Sandbox], tmp_path: Path) -> None:
    limits = {"memory": 200 * 1024 * 1024, "time": 60}
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with opened(DocumentsProvider(), place, workspace, limits=limits) as resource:
        with pytest.raises(LimitExceeded, match=r"limits\.memory is 200 MiB") as caught:
            resource.read(many_paragraphs(), "a.docx")
        assert caught.value.data["limit"] == "memory"
        assert resource.read(b"fine", "a.txt").markdown == "fine"


@pytest.mark.endurance
@pytest.mark.wherever("place")
@pytest.mark.parametrize(
    ("limit", "value", "data"),
    [
        ("bytes", 1_000, b"x" * 2_000),
        ("unpacked", 10_000, (FILES / "pandoc.docx").read_bytes()),
        ("entries", 3, (FILES / "pandoc.docx").read_bytes()),
        ("pixels", 100, (FILES / "crane.png").read_bytes()),
    ],
)
def test_each_limit_can_be_set_and_is_named(
    place: type[Sandbox], tmp_path: Path, limit: str, value: int, data: bytes
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with opened(DocumentsProvider(), place, workspace, config={limit: value}) as resource:
        with pytest.raises(LimitExceeded, match=f"the limit '{limit}' is {value:,}") as caught:
            resource.read(data, "file")
        assert caught.value.data == {"limit": limit, "value": value}


@pytest.mark.wherever("place")
# Shows W72
def test_a_pdf_that_unpacks_to_gigabytes_ends(reader: Documents) -> None:
    bomb = page_with(repeated(b"BT (x) Tj ET " * 1_000_000, 200))

    with pytest.raises(LimitExceeded) as caught:
        reader.read(bomb, "a.pdf")
    assert caught.value.data["limit"] in {"unpacked", "memory"}


def workers(reader: Documents) -> set[int]:
    """Return the processes that convert documents for a reader, and the servers that fork them."""
    found = set()
    for pid in Family(reader.request.mark, variable=VARIABLE).members():
        with suppress(OSError):  # the process has ended
            if b"documents.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


def test_no_process_is_left(reader: Documents) -> None:
    seconds = enough(lambda: reader.read(b"fine", "a.txt"), least=2)
    server = workers(reader)
    with ThreadPoolExecutor(1) as pool:
        endless = pool.submit(reader.read, many_paragraphs(), "a.docx", timeout=seconds)
        until(lambda: len(workers(reader)) > 1)
        before = workers(reader)
        for pid in before - server:
            os.kill(pid, signal.SIGSTOP)  # it would never end, but takes no CPU time
        with pytest.raises(LimitExceeded):
            endless.result()
    reader.read(b"fine", "a.txt")

    until(lambda: before.isdisjoint(workers(reader)))


@each_row(
    "answer",
    [b"", b"[]", b"3", b'{"document": 3}', b'{"document": {"format": 3}}', b"{" * 100_000,
     b'{"document": {"format": "pdf", "parts": [{"kind": "page"}]}}', b"\xff"],
)  # fmt: skip
# Shows W82
def test_an_answer_is_not_believed(answer: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        checked(answer)


def test_a_missing_library_is_told_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("flowengine_envs.documents.conversion._NEEDED", ("no_such_library",))
    spec = {"kind": "documents", "provider": "host", "scope": "session", "owner_id": "ana"}

    with (
        EnvironmentManager(tmp_path) as manager,
        pytest.raises(EnvironmentUnavailable, match=r"pip install .*\[documents\]'"),
    ):
        manager.ensure(spec)


def read(reader: Documents) -> None:
    assert reader.read(b"# Hi", "a.md").markdown == "# Hi"


@pytest.mark.endurance
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_kind_conforms(check: Check) -> None:
    check(ProviderCase(DocumentsProvider, {"kind": "documents", "provider": "host"}, read))
