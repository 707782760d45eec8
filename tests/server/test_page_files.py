# Shows V33, V54, V55
"""Files in the forms of the page: of starts, decisions and their form fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flowengine.server.application import LARGEST_BODY
from tests.server.api import Api
from tests.server.test_page import Browser

CLAIM = """
flowengine: 1
id: claim
inputs:
  scan: {format: file}
  more: {type: array, items: {type: object, format: file}, default: []}
  note: {type: string, maxLength: 5}
steps:
  - id: ask
    approval:
      title: Book it?
      assignees: ["user:ben"]
      subject: {scan: "${{ inputs.scan }}"}
      edit: true
      form:
        type: object
        properties:
          proof:
            type: object
            properties: {name: {type: string}, path: {type: string}, sha256: {type: string}}
        required: [proof]
outputs:
  scan: ${{ inputs.scan.name }}
  more: ${{ inputs.more.map(file, file.name) }}
  proof: ${{ steps.ask.output.form.proof.name }}
  path: ${{ steps.ask.output.form.proof.path }}
  attached: ${{ steps.ask.output.attachments.map(file, file.name) }}
"""
PDF = b"%PDF-1.7 of Ada\r\n--x"
Files = list[tuple[str, tuple[str, bytes]]]


@pytest.fixture
def flows() -> tuple[str, ...]:
    return (CLAIM,)


def sent(browser: Browser, path: str, form: dict[str, str], files: Files) -> httpx2.Response:
    """Send a form with files, as a browser does."""
    request = httpx2.Request("POST", "http://testserver", data=form, files=files)
    content_type = request.headers["content-type"]
    return posted(browser, path, request.read(), content_type)


def posted(browser: Browser, path: str, body: bytes, content_type: str) -> httpx2.Response:
    headers = {"cookie": browser.cookie, "content-type": content_type}
    return browser.api.response("POST", path, token=None, headers=headers, content=body)


def kept(text: str) -> dict[str, str]:
    """Return what the boxes of a shown form name that keep its files."""
    found = re.findall(r'type="checkbox" name="([^"]+)" value="([^"]+)" checked> Keep', text)
    return {name: value.replace("&#34;", '"') for name, value in found}


def incoming(api: Api) -> list[Path]:
    folder = Path(api.records.folder, "incoming")
    return list(folder.iterdir()) if folder.exists() else []


def test_files_come_with_a_start_and_with_a_decision(api: Api) -> None:
    """Without JavaScript. A form that is refused keeps the files that came with it."""
    otto, ben = Browser(api, api.token("user:otto")), Browser(api, api.token("user:ben"))
    path = "/flows/claim"
    text = otto("GET", path).text
    assert 'enctype="multipart/form-data"' in text
    assert '<input type="file" id="input.scan" name="input.scan.file">' in text
    assert '<input type="file" id="input.more" name="input.more.file" multiple>' in text
    form = {"form_token": otto.form_token(path), "command": "1", "input.note": "too long"}
    files: Files = [
        ("input.scan.file", ("../../Beleg ä.pdf", PDF)),
        ("input.more.file", ("a.txt", b"a")),
        ("input.more.file", ("b.txt", b"b")),
    ]
    refused = sent(otto, path, form, files)
    assert refused.status_code == 422
    assert "Keep Beleg ä.pdf" in refused.text
    boxes = kept(refused.text)
    assert boxes.keys() == {"input.scan", "input.more"}
    form |= {**boxes, "input.note": "ok"}
    more: Files = [("input.scan.file", ("", b"")), ("input.more.file", ("c.txt", b"c"))]
    for _ in range(2):  # a double click
        started = sent(otto, path, form, more)
        assert started.status_code == 303, started.text
    [item] = api.engine.executions.list().items
    [wait] = api.engine.resume(item["execution"]).waits

    path = f"/approvals/{wait['id']}"
    text = ben("GET", path).text
    assert '<input type="file" id="attach" name="attach.file" multiple ' in text
    assert 'name="images.file"' not in text  # no model made a call
    assert str(api.folder) not in text
    form = {"form_token": ben.form_token(path), "choice": "approve", **kept(text)}
    decided = sent(
        ben,
        path,
        form,
        [("form.proof.file", ("proof.pdf", PDF + b"2")), ("attach.file", ("<b>.txt", b"see"))],
    )
    assert decided.status_code == 303, decided.text
    text = ben("GET", path).text
    assert "proof.pdf, 21 bytes" in text
    assert "&lt;b&gt;.txt, 3 bytes" in text
    assert str(api.folder) not in text
    outputs = api.engine.resume(item["execution"]).outputs or {}
    assert Path(outputs.pop("path")).read_bytes() == PDF + b"2"
    assert outputs == {
        "scan": "Beleg ä.pdf",
        "more": ["a.txt", "b.txt", "c.txt"],
        "proof": "proof.pdf",
        "attached": ["<b>.txt"],
    }
    assert "edits" not in api.engine.approvals.show(wait["id"])["decision"]
    assert incoming(api) == []


def test_the_form_of_another_page_leaves_no_file(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token of the session comes before the first file, or nothing of the file is read."""
    read: list[int] = []

    async def received(*arguments: Any) -> Path:
        read.append(1)
        raise AssertionError("a file was read")

    monkeypatch.setattr("flowengine.server.application.received", received)
    otto, vera = Browser(api, api.token("user:otto")), Browser(api, api.token("user:vera"))
    files: Files = [("input.scan.file", ("a.pdf", PDF))]
    for token in ("", "forged", vera.form_token("/flows/claim")):
        assert sent(otto, "/flows/claim", {"form_token": token}, files).status_code == 403
    form = {"form_token": vera.form_token("/flows/claim")}
    assert sent(vera, "/flows/claim", form, files).status_code == 403  # no right to upload
    form = {"form_token": otto.form_token("/flows/claim")}
    assert sent(otto, "/flows/claim/pause", form, files).status_code == 422
    anonymous = otto
    anonymous.cookie = ""
    assert sent(anonymous, "/flows/claim", form, files).status_code == 303
    assert read == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x\r\n",
        b"no parts",
        b'--x\r\nContent-Disposition: form-data; name="a"; filename="f"\r\n\r\nhalf',
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nhalf',
        b"--x\r\n" + b"A" * 20_000 + b": b\r\n\r\nc\r\n--x--\r\n",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 600 + b"--x--",
        b"--x\r\n\r\n" + b"y" * (LARGEST_BODY + 1) + b"\r\n--x--\r\n",
    ],
)
def test_what_is_no_form_is_refused(api: Api, body: bytes) -> None:
    owner = Browser(api)
    token = owner.form_token("/flows/claim").encode()
    field = b'--x\r\nContent-Disposition: form-data; name="form_token"\r\n\r\n%b\r\n' % token
    for sent_body in (body, field + body):
        response = posted(owner, "/flows/claim", sent_body, "multipart/form-data; boundary=x")
        assert response.status_code == 422
    assert incoming(api) == []
    text = b"a=" + b"b" * LARGEST_BODY
    plain = posted(owner, "/flows/claim", text, "application/x-www-form-urlencoded")
    assert plain.status_code == 422
    assert posted(owner, "/flows/claim", b"", "multipart/form-data").status_code == 422


@pytest.mark.parametrize(
    "text",
    ["x", "1", "[1]", "{}", '["a"]', '[{"name": "a", "size": 1, "sha256": "../../x"}]', "[" * 5000],
)
def test_a_forged_name_of_a_file_is_refused(api: Api, text: str) -> None:
    owner = Browser(api)
    form = {"form_token": owner.form_token("/flows/claim"), "input.scan": text, "input.note": "a"}
    assert owner("POST", "/flows/claim", form).status_code == 422
    other = f'[{{"name": "a", "size": 1, "sha256": "{"0" * 64}"}}]'
    assert owner("POST", "/flows/claim", {**form, "input.scan": other}).status_code == 404
    assert api.engine.executions.list().items == []
