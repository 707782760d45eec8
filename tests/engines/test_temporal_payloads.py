# Shows D9
"""Payloads in Temporal, as Temporal's own page and command line show them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.temporal.connection import connect, read_address
from flowengine.engines.temporal.objects import VARIABLE, Objects
from flowengine.engines.temporal.payloads import LARGEST_SHOWN, MOST_SHOWN
from tests.engines.temporal_server import PROGRAM
from tests.server.api import LOCAL, OWNER, Api
from tests.server.served import Served

DECODE, ENCODE = "/v1/temporal/decode", "/v1/temporal/encode"
PAGE = "https://temporal.example.com"
FLOW = """\
flowengine: 1
id: f
inputs: {who: {type: string}}
tools: {long: {python: "long:text", effect: pure}}
steps: [{id: long, call: long, with: {who: "${{ inputs.who }}", size: 70000}}]
outputs: {text: "${{ steps.long.output }}"}
"""


@pytest.fixture
def api(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    config = tmp_path / "config" / "flowengine"
    config.mkdir(parents=True)
    (config / "settings.yaml").write_text(
        "access:\n  - {who: [cora], role: viewer, flows: [f], content: true}\n"
        "  - {who: [vera], role: viewer, content: true}\n"
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    api = Api(tmp_path, (), Engine(store, workdir=tmp_path, user=OWNER), pages=(PAGE,))
    yield api
    api.close()


def payload(encoding: str, data: bytes, **more: bytes) -> dict[str, Any]:
    metadata = {"encoding": encoding.encode(), **more}
    return {
        "metadata": {name: b64encode(value).decode() for name, value in metadata.items()},
        "data": b64encode(data).decode(),
    }


def told(found: Any) -> list[Any]:
    """Return the values of decoded payloads, which are JSON."""
    payloads = found["payloads"]
    assert {one["metadata"]["encoding"] for one in payloads} == {"anNvbi9wbGFpbg=="}
    return [json.loads(b64decode(one["data"])) for one in payloads]


def test_what_a_history_has_is_readable(api: Api, store: str, tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(
        "def text(who: str, size: int) -> str:\n    return who + 'x' * size\n"
    )
    (tmp_path / "flow.yaml").write_text(FLOW)
    assert api.engine.run(tmp_path / "flow.yaml", {"who": "Ada"}, id="shown").status == "succeeded"
    names = {"x-namespace": read_address(store).namespace}
    found = told(api("POST", DECODE, asyncio.run(payloads_of(store, "shown")), headers=names))
    start, flow, attempt, result, end = found
    assert (start["id"], flow["id"], attempt[3][0][3]) == ("shown", "f", "long")
    assert ("'Ada'" in str(attempt[3]), result["type"]) == (True, "succeeded")
    assert end["outputs"]["text"] == "Ada" + "x" * 70_000


async def payloads_of(store: str, id: str) -> Any:
    """Return the payloads of a history: of its start, and of the only attempt and the end."""
    client = await connect(read_address(store))
    history = (await client.get_workflow_handle(id).fetch_history()).to_json_dict()
    found = []
    for event in history["events"]:
        for name, part in event.items():
            if name.endswith("Attributes"):
                for key in ("input", "result"):
                    found += part.get(key, {}).get("payloads", [])
    return {"payloads": found}


def test_temporals_own_program_shows_them(api: Api, store: str, tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text("flowengine: 1\nid: f\nsteps: [{id: a, output: 1}]\noutputs: {of: Ada}\n")
    assert api.engine.run(flow, id="printed").outputs == {"of": "Ada"}
    address = read_address(store)
    served = Served(api)
    try:
        command = [str(PROGRAM), "workflow", "show", "--workflow-id", "printed", "--output", "json"]
        command += ["--address", address.server, "--namespace", address.namespace]
        command += ["--codec-endpoint", f"{served.url}/v1/temporal"]
        command += ["--codec-auth", f"Bearer {LOCAL}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        served.close()
    end = json.loads(done.stdout)["events"][-1]["workflowExecutionCompletedEventAttributes"]
    assert told(end["result"]) == [{"status": "succeeded", "outputs": {"of": "Ada"}}]


def test_who_may_decode(api: Api, store: str) -> None:
    body = {"payloads": [payload("json/plain", b"1")]}
    refused = api("POST", DECODE, body, token=api.token("user:cora"), code=403)
    assert refused["detail"] == "user:cora does not have the right 'content' on all flows"
    api("POST", DECODE, body, token=api.token("user:vera"), code=200)
    api("POST", ENCODE, body, token=api.token("user:vera"), code=403)
    api("POST", DECODE, body, token=None, code=401)
    api("POST", DECODE, body, token="fe_unknown", code=401)
    api("POST", DECODE, body, token=api.token(OWNER, "admin", "f"), code=403)
    refused = api("POST", DECODE, body, headers={"x-namespace": "other"}, code=400)
    own = read_address(store).namespace
    assert refused["detail"] == f"the namespace of this store is '{own}', not 'other'"


def test_a_page_of_temporal_may_call_with_the_session_of_its_user(api: Api) -> None:
    body = {"payloads": [payload("json/plain", b"1")]}
    preflight = {"access-control-request-method": "POST", "origin": PAGE}
    preflight["access-control-request-headers"] = "content-type,x-namespace"
    allowed = api.response("OPTIONS", DECODE, token=None, headers=preflight)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == PAGE
    assert allowed.headers["access-control-allow-credentials"] == "true"
    other = {**preflight, "origin": "https://temporal.example.com.evil.example"}
    refused = api.response("OPTIONS", DECODE, token=None, headers=other)
    assert (refused.status_code, "access-control-allow-origin" in refused.headers) == (400, False)
    own = api.response("OPTIONS", "/v1/executions", token=None, headers=preflight)
    assert "access-control-allow-origin" not in own.headers

    identity = api.application.identity
    secret = identity.begin_session(identity.local())
    sent = {"cookie": f"flowengine_session={secret}", "sec-fetch-site": "same-site"}
    decoded = api.response("POST", DECODE, body, token=None, headers={**sent, "origin": PAGE})
    assert (decoded.status_code, decoded.json()) == (200, body)
    assert decoded.headers["access-control-allow-origin"] == PAGE
    for headers in (
        {**sent, "origin": other["origin"]},
        {**sent, "origin": "null"},
        sent,
        {"cookie": sent["cookie"]},
    ):
        response = api.response("POST", DECODE, body, token=None, headers=headers)
        assert response.status_code in (401, 403)
        assert "access-control-allow-origin" not in response.headers
    api("POST", "/v1/executions", {}, headers={"origin": PAGE}, code=403)
    api("POST", "/v1/executions", {}, token=None, headers={"cookie": sent["cookie"]}, code=401)


def test_hostile_payloads(api: Api) -> None:
    """Each is answered by a text in its place, and none by an error of the server."""
    deep = b"\x91" * 2000 + b"\xc0"
    reference, parts = "binary/flowengine-reference", "binary/flowengine-parts"
    objects = Objects(os.environ[VARIABLE])
    large, index = (
        asyncio.run(objects.put_value(content))
        for content in (b"x" * (LARGEST_SHOWN + 1), b"\x01" * 32 * 100)
    )
    garbage = [
        payload("binary/msgpack", b"\xc1"),
        payload("binary/msgpack", deep),
        payload("binary/msgpack", b"\x93\x01"),
        payload("binary/msgpack", b"\xcb\x7f\xf8\0\0\0\0\0\0"),  # not a number
        payload(reference, b"../../../etc/passwd"),
        payload(reference, b"\xff"),
        payload(reference, b"0" * 64),
        payload(reference, large.encode()),
        payload(parts, index.encode()),
        payload(parts, large.encode()),
        payload("binary/flowengine-encrypted", b"x"),
        payload("binary/flowengine-encrypted", b"x" * 100, key=b"none"),
    ]
    answers = told(api("POST", DECODE, {"payloads": garbage}, code=200))
    assert all(
        answer.startswith(("a value cannot be decoded: ", "a value of ")) for answer in answers
    ), answers
    assert "passwd" not in str(answers)
    [kept] = api("POST", ENCODE, {"payloads": [payload("json/plain", b"1" * 900_000)]})["payloads"]
    assert len(str(kept)) < 300
    answers = api("POST", DECODE, {"payloads": [kept] * 20}, code=200)
    assert 7_000_000 < sum(len(b64decode(one["data"])) for one in answers["payloads"]) < MOST_SHOWN

    api("POST", DECODE, {"payloads": [{"metadata": {}, "data": "%"}]}, code=422)
    api("POST", DECODE, {"payloads": [{"metadata": {"encoding": 1}}]}, code=422)
    api("POST", DECODE, {"payloads": {}}, code=422)
    api(
        "POST",
        DECODE,
        content=b"[" * 100_000,
        code=422,
        headers={"content-type": "application/json"},
    )
    api("POST", DECODE, content=b" " * (6 * 1024 * 1024 + 1), code=413)
    api("POST", "/v1/executions", content=b" " * (1024 * 1024 + 1), code=413)
