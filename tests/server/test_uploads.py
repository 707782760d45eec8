# Shows V33
"""Uploads: files of one user, named by their digest, never by a path of the server."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flowengine import AsyncClient, Client, InputError, NotAllowed, NotFound, UsageError
from flowengine.server import records, rights, sent_values
from tests.replacing import Limits
from tests.server.api import HOST, LOCAL, Api
from tests.server.conftest import SETTINGS
from tests.server.test_client import URL
from tests.server.transport import Transport

RECEIPT = """
flowengine: 1
id: receipt
inputs: {scan: {type: object}}
tools: {size: {python: "reader:size", effect: pure}}
steps:
  - {id: read, call: size, with: {file: "${{ inputs.scan }}"}}
  - id: ask
    approval:
      title: Book it?
      assignees: ["user:ben"]
      form: {properties: {proof: {type: object}}}
outputs:
  read: ${{ steps.read.output }}
  proof: ${{ steps.ask.output.form.proof.name }}
  attached: ${{ steps.ask.output.attachments[0].name }}
"""
PDF = b"%PDF-1.7 of Ada"


@pytest.fixture
def flows(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "reader.py").write_text(
        "from pathlib import Path\n\n"
        "def size(file: dict) -> str:\n"
        "    size = len(Path(file['path']).read_bytes())\n"
        "    return f\"{file['name']} {size}\"\n"
    )
    return (RECEIPT,)


def send(api: Api, token: str, content: bytes, name: str, code: int = 201) -> Any:
    return api("POST", f"/v1/artifacts?name={name}", token=token, content=content, code=code)


# Shows F99
def test_a_file_is_uploaded_used_and_attached(api: Api, tmp_path: Path) -> None:
    sam = api.token("user:sam")
    otto, ben = api.token("user:otto"), api.token("user:ben")
    scan = send(api, otto, PDF, "scan.pdf")
    digest = hashlib.sha256(PDF).hexdigest()
    assert scan == {"name": "scan.pdf", "size": len(PDF), "sha256": digest}
    start = {"flow": "receipt", "inputs": {"scan": scan}}
    api("POST", "/v1/executions", {**start, "id": "e1"}, token=otto, code=201)
    assert api("POST", "/v1/executions", {**start, "id": "e1"}, token=otto, code=201)
    [wait] = api.engine.resume("e1").waits

    with Client(URL, LOCAL, transport=Transport(api)) as client:
        assert b"".join(client.executions.download("e1", digest)) == PDF
        for other, error in ((hashlib.sha256(b"?").hexdigest(), NotFound), ("../me", UsageError)):
            with pytest.raises(error):
                list(client.executions.download("e1", other))

    async def downloaded() -> bytes:
        transport = httpx2.ASGITransport(app=api.application.asgi)
        async with AsyncClient(f"https://{HOST}", LOCAL, transport=transport) as client:
            return b"".join([part async for part in client.executions.download("e1", digest)])

    assert asyncio.run(downloaded()) == PDF

    with Client(URL, ben, transport=Transport(api)) as client:
        (tmp_path / "proof.pdf").write_bytes(PDF + b"2")
        (tmp_path / "note.txt").write_text("see")
        proof = client.upload(tmp_path / "proof.pdf")
        note = client.upload(tmp_path / "note.txt", name="../Notiz.txt")
        with pytest.raises(NotAllowed, match="does not have the right 'content'"):
            list(client.executions.download("e1", digest))
        assert note.name == "Notiz.txt"
        form = {"proof": proof._asdict()}
        for first in (True, False):
            found = client.approvals.approve(wait["id"], form=form, attach=[note])
            assert found.first is first
        with pytest.raises(InputError, match="cannot read"):
            client.upload(tmp_path / "none")
    assert api.engine.resume("e1").outputs == {
        "read": f"scan.pdf {len(PDF)}", "proof": "proof.pdf", "attached": "Notiz.txt",
    }  # fmt: skip
    owner = api.token("user:owner")
    for file in (scan["sha256"], proof.sha256, note.sha256):
        path = f"/v1/executions/e1/artifacts/{file}"
        assert api.response("GET", path, token=owner).status_code == 200
    assert not list(Path(api.records.folder, "incoming").iterdir())
    api("POST", "/v1/executions", start, token=sam, code=404)


def test_a_digest_or_a_path_of_others_gives_no_access(api: Api) -> None:
    otto, ada = api.token("user:otto"), api.token("user:ada")
    scan = send(api, otto, PDF, "scan.pdf")
    for value in (scan, {**scan, "path": "/etc/passwd"}, [{"deep": scan}]):
        body = {"flow": "receipt", "inputs": {"scan": {"files": value}}}
        told = api("POST", "/v1/executions", body, token=ada, code=404)
        assert "has uploaded no file" in told["detail"]
    body = {"flow": "receipt", "inputs": {"scan": {**scan, "path": "/etc/passwd"}}, "id": "own"}
    api("POST", "/v1/executions", body, token=otto, code=201)
    api.engine.resume("own")
    assert "/etc/passwd" not in str(api.engine.executions.show("own"))
    [wait] = api.engine.executions.result("own").waits
    for attach in (["/etc/passwd"], [scan["sha256"]], ["0" * 64]):
        path = f"/v1/approvals/{wait['id']}/decision"
        body = {"choice": "approve", "attach": attach}
        assert api("POST", path, body, token=api.token("user:ben"))["status"] == 404


def test_an_upload_whose_token_is_revoked_on_the_way_is_not_kept(api: Api, limits: Limits) -> None:
    token = api.token("user:otto")
    limits(rights, CHECKED_EVERY=0.0)

    async def parts() -> AsyncIterator[bytes]:
        yield PDF
        api.records.revoke_token(api.records.tokens()[-1].name, 1)

    async def upload() -> int:
        transport = httpx2.ASGITransport(app=api.application.asgi)
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as one:
            path = "/v1/artifacts?name=scan.pdf"
            return (await one.post(path, content=parts(), headers=headers)).status_code

    assert asyncio.run(upload()) == 401


@pytest.mark.parametrize(
    ("name", "content", "code", "told"),
    [
        ("scan.png", PDF, 422, "does not match its name"),
        ("run.sh", b"echo", 422, "files such as 'run.sh' are not accepted"),
        ("a.pdf%2Frun.sh", PDF, 422, "files such as 'run.sh' are not accepted"),
        ("scan.pdf", PDF + b"x" * 1024 * 1024, 413, "more than 1 MiB"),
        ("", PDF, 400, "name"),
        ("scan.pdf&path=/etc", PDF, 400, "path"),
    ],
)
def test_size_and_type_are_those_of_the_host(
    api: Api, tmp_path: Path, name: str, content: bytes, code: int, told: str
) -> None:
    settings = tmp_path / "config" / "flowengine" / "settings.yaml"
    settings.write_text(f"{SETTINGS}\nuploads: {{mebibytes: 1, types: [pdf, PNG]}}\n")
    other = Api(tmp_path / "other", ())
    try:
        token = other.token("user:otto")
        assert told in send(other, token, content, name, code)["detail"]
        assert send(other, token, PDF, "Scan.PDF")["name"] == "Scan.PDF"
    finally:
        other.close()


def test_uploads_of_a_user_are_limited_and_collected(
    api: Api, limits: Limits, time_is: Callable[[float], None]
) -> None:
    otto = api.token("user:otto")
    limits(records, UPLOADED=2 * len(PDF))
    kept = send(api, otto, PDF, "a.pdf")["sha256"]
    used = send(api, otto, PDF[:-1] + b"2", "b.pdf")
    assert "at most" in send(api, otto, PDF, "c.pdf", 409)["detail"]
    api("POST", "/v1/executions", {"flow": "receipt", "inputs": {"scan": used}, "id": "e1"})
    assert send(api, api.token("user:vera"), PDF, "a.pdf", 403)["code"] == "NotAllowed"
    api("POST", "/v1/executions", {"flow": "receipt", "inputs": {"scan": used}, "id": "e1"},
        token=otto, code=201)  # fmt: skip
    api.engine.resume("e1")
    assert api.engine.executions.prune().artifacts == 0
    time_is(time.time() + 8 * 24 * 3600)
    assert api.engine.executions.prune().artifacts == 1
    with pytest.raises(NotFound):
        api.engine.store.fetch_artifact(kept)
    assert api.engine.store.fetch_artifact(used["sha256"], "e1").exists()


def test_what_a_dead_server_had_received_is_removed(api: Api, limits: Limits) -> None:
    otto = api.token("user:otto")
    send(api, otto, PDF, "a.pdf")
    left = Path(api.records.folder, "incoming", "left")
    left.write_bytes(PDF)
    limits(sent_values, _ABANDONED_SECONDS=-1)
    send(api, otto, PDF, "a.pdf")
    assert not left.exists()
