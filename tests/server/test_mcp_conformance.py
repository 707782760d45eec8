# Shows G15
"""The protocol's conformance tool against `flowengine serve` (G15)."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.command_line import flowengine
from tests.conformance import REVISIONS, failed_checks, required
from tests.server.test_serve import folder, serving

__all__ = ["folder"]

# The tools that the scenarios call, as flows. Each other one needs what no flow returns.
_ASKING = """
flowengine: 1
id: {id}
{inputs}
steps: [{{id: ask, call: std.ask, with: {{question: "Who?", form: {form}}}}}]
"""
_TWICE = """
flowengine: 1
id: test_input_required_result_multi_round
steps:
  - id: first
    call: std.ask
    with: {question: "Name?", form: {type: object, properties: {name: {type: string}}}}
  - id: second
    call: std.ask
    with: {question: "Color?", form: {type: object, properties: {color: {type: string}}}}
"""
_DEFAULTS = """{type: object, properties: {
  name: {type: string, default: John Doe}, age: {type: integer, default: 30},
  score: {type: number, default: 95.5},
  status: {type: string, enum: [active, inactive, pending], default: active},
  verified: {type: boolean, default: true}}}"""
_NAMES = "{type: object, properties: {username: {type: string}, email: {type: string}}}"
_OK = "{type: object, properties: {ok: {type: boolean}}}"
_PREFIX = "test_input_required_result_"
FLOWS = [
    _ASKING.format(id="test_elicitation", inputs="inputs: {message: {type: string}}", form=_NAMES),
    _ASKING.format(id="test_elicitation_sep1034_defaults", inputs="", form=_DEFAULTS),
    *(
        _ASKING.format(id=f"{_PREFIX}{name}", inputs="", form=_OK)
        for name in ("elicitation", "request_state", "tampered_state")
    ),
    _ASKING.format(id="test_streaming_elicitation", inputs="", form=_OK),
    _TWICE,
    """
flowengine: 1
id: test_tool_with_progress
steps: [{id: first, wait: {for: 2s}}, {id: second, wait: {for: 2s}}]
""",
    """
flowengine: 1
id: test_error_handling
steps: [{id: stop, fail: {type: Broken, message: It always fails}}]
""",
    *(
        f"flowengine: 1\nid: {id}\nsteps: [{{id: say, call: std.print, with: {{text: hi}}}}]"
        for id in ("test_simple_text", "test_logging_tool")
    ),
]
DIFFERENT = {
    "logging-set-level": "no log messages are sent",
    "completion-complete": "there are no prompts and resources whose arguments could be completed",
    "tools-call-image": "the result of a flow is data",
    "tools-call-audio": "the result of a flow is data",
    "tools-call-embedded-resource": "the result of a flow is data",
    "tools-call-mixed-content": "the result of a flow is data",
    "tools-call-with-logging": "no log messages are sent",
    "tools-call-sampling": "no text of the client's model is requested",
    "elicitation-sep1330-enums": "a form of a flow has no titles of values, and no lists",
    "resources-list": "flows are tools, not resources",
    "resources-read-text": "flows are tools, not resources",
    "resources-read-binary": "flows are tools, not resources",
    "resources-templates-read": "flows are tools, not resources",
    "resources-subscribe": "flows are tools, not resources",
    "resources-unsubscribe": "flows are tools, not resources",
    "prompts-list": "flows are tools, not prompts",
    "prompts-get-simple": "flows are tools, not prompts",
    "prompts-get-with-args": "flows are tools, not prompts",
    "prompts-get-embedded-resource": "flows are tools, not prompts",
    "prompts-get-with-image": "flows are tools, not prompts",
    "caching": "the tool also requires prompts and resources",
    "server-stateless": "no tool requires sampling",
    "input-required-result-basic-elicitation": "a question is named by the id of its approval",
    "input-required-result-basic-sampling": "no text of the client's model is requested",
    "input-required-result-basic-list-roots": "no roots are requested",
    "input-required-result-multiple-input-requests": "questions are asked one after the other",
    "input-required-result-non-tool-request": "flows are tools, not prompts",
    "input-required-result-ignore-extra-params": "a question is named by the id of its approval",
    "sep-2164-resource-not-found": "flows are tools, not resources",
    "input-required-result-capability-check": "the only client requests sampling",
}
"""Scenario that cannot pass → why. Other checks of it are listed in `ONLY`."""
ONLY = {
    "caching": {
        "sep-2549-prompts-list-caching-hints",
        "sep-2549-resources-list-caching-hints",
        "sep-2549-resources-templates-list-caching-hints",
    },
    "server-stateless": {
        "sep-2575-server-rejects-undeclared-capability",
        "sep-2575-missing-capability-http-400",
    },
}
"""Of scenarios with many checks: those that fail."""


@contextmanager
def behind(port: list[int]) -> Iterator[list[str]]:
    """A proxy that adds the token, because the tool sends none.

    Args:
        port: Receives the port of the proxy.

    Yields:
        To be filled with the address of the server and the token.
    """
    target: list[str] = []
    client = httpx2.AsyncClient(timeout=None)

    @asynccontextmanager
    async def opened(app: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    async def forward(request: Request) -> StreamingResponse:
        url, token = target
        headers = [*request.headers.raw, (b"authorization", f"Bearer {token}".encode())]
        sent = client.build_request(
            request.method, url + request.url.path, headers=headers, content=await request.body()
        )
        answer = await client.send(sent, stream=True)

        async def body() -> AsyncIterator[bytes]:
            try:
                async for block in answer.aiter_raw():
                    yield block
            finally:
                await answer.aclose()

        response = StreamingResponse(body(), answer.status_code)
        response.raw_headers = [
            (name.lower(), value)
            for name, value in answer.headers.raw
            if name.lower() not in (b"transfer-encoding", b"connection")
        ]
        return response

    listening = socket.create_server(("127.0.0.1", 0))
    port.append(listening.getsockname()[1])
    route = Route("/mcp", forward, methods=["GET", "POST", "DELETE"])
    app = Starlette(routes=[route], lifespan=opened)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=lambda: server.run([listening]))
    thread.start()
    try:
        yield target
    finally:
        server.should_exit = True
        thread.join(300)


@pytest.mark.endurance
@pytest.mark.parametrize("revision", REVISIONS)
def test_the_server_conforms(folder: Path, tmp_path: Path, revision: str) -> None:
    for number, text in enumerate(FLOWS):
        (folder / f"flow{number}.yaml").write_text(text)
    assert flowengine("deploy", *(f"flow{number}.yaml" for number in range(len(FLOWS)))).code == 0
    results = tmp_path / "results"
    results.mkdir()
    port: list[int] = []
    with behind(port) as target:
        host = f"127.0.0.1:{port[0]}"
        with serving(folder, "--worker", "--hostname", host) as served:
            target[:] = served.url, served.token.read_text().strip()
            found = failed_checks(
                results, "server", "--url", f"http://{host}/mcp", "--requirements", revision
            )
    wanted = required("server", revision)
    assert {*wanted} <= {*found}
    assert {name for name in wanted if found[name]} == {*wanted} & {*DIFFERENT}
    assert {name: found[name] for name in wanted if name in ONLY} == {
        name: ids for name, ids in ONLY.items() if name in wanted
    }
    assert not found.get("server-session-lifecycle")
    assert not found.get("http-header-validation")
