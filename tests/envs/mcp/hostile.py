"""Responses of a hostile MCP server, for both transports, and a program that sends them.

python hostile.py CASE - violates the protocol in that way. With `@FILE`, the file names the case
and is read for each request. Any other name runs a server that conforms to the protocol.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

DEEP = 10_000
MANY = 300_000
PAGES = 40
"""Pages of a list that the client reads in these tests. Each costs the same time."""
NASTY_NAME = "x\x1b[2J\u202e\n"


class Case(NamedTuple):
    """One violation of the protocol.

    Attributes:
        method: The request that receives the invalid response.
        answer: Returns the response for a request ID in JSON.
        error: Name of the error raised to the caller.
        told: Pattern that its message must match.
        calm: Seconds that the client waits: few where the response cannot be matched to a request.
    """

    method: str
    answer: Callable[[str], str]
    error: str
    told: str
    calm: float = 120


UNCLEAR: dict[str, Any] = {"error": "Timeout|ToolError", "calm": 0.5}


def _whole(text: str) -> Callable[[str], str]:
    """Respond with this text, with `ID` replaced by the request ID."""
    return lambda id: text.replace("ID", id)


def _result(text: str) -> Callable[[str], str]:
    return _whole('{"jsonrpc": "2.0", "id": ID, "result": ' + text + "}")


def _error(text: str) -> Callable[[str], str]:
    return _whole('{"jsonrpc": "2.0", "id": ID, "error": ' + text + "}")


def _tools(text: str) -> Callable[[str], str]:
    return _result('{"tools": ' + text + "}")


def _deep(id: str) -> str:
    return _result('{"a": ' + "[" * DEEP + "]" * DEEP + "}")(id)


def _call(answer: Callable[[str], str], told: str = "breaks the protocol", **more: Any) -> Case:
    return Case("tools/call", answer, more.pop("error", "ToolError"), told, **more)


def _list(answer: Callable[[str], str], told: str = "breaks the protocol", **more: Any) -> Case:
    return Case("tools/list", answer, more.pop("error", "ToolError"), told, **more)


def _start(answer: Callable[[str], str], told: str = "breaks the protocol", **more: Any) -> Case:
    return Case("initialize", answer, "EnvironmentStartFailed", told, **more)


def _parts(part: str) -> Callable[[str], str]:
    return _result('{"content": [' + part + "]}")


CASES = {
    # No message at all
    "call-text": _call(_whole("hello"), "not messages: 1.*hello|breaks", **UNCLEAR),
    "call-half": _call(_whole('{"jsonrpc": "2.0", "id": ID, "resu')),
    "call-list": _call(_whole("[[1, 2], null]"), "no answer in|breaks", **UNCLEAR),
    "call-null": _call(_whole("null"), "no answer in|breaks", **UNCLEAR),
    "call-number": _call(_whole("7"), "no answer in|breaks", **UNCLEAR),
    "call-deep": _call(_deep),
    "call-deep-front": _call(
        _whole('{"result": {"a": ' + "[" * DEEP + "]" * DEEP + '}, "id": ID}')
    ),
    "call-utf8": _call(_result('{"content": [{"type": "text", "text": "\udcff\udcfe"}]}')),
    "call-long-number": _call(_result('{"content": [], "structuredContent": ' + "9" * 5000 + "}")),
    # A message of the wrong shape
    "call-no-result": _call(_whole('{"jsonrpc": "2.0", "id": ID}')),
    "call-no-version": _call(_whole('{"id": ID, "result": {"content": []}}')),
    "call-both": _call(_whole('{"jsonrpc": "2.0", "id": ID, "result": 1, "error": {}}')),
    "call-result-null": _call(_result("null")),
    "call-result-list": _call(_result("[]")),
    "call-result-number": _call(_result("7")),
    "call-result-text": _call(_result('"done"')),
    "call-error-text": _call(_error('"bad"')),
    "call-error-null": _call(_error("null")),
    "call-error-list": _call(_error("[1]")),
    "call-error-code": _call(_error('{"code": "bad", "message": "m"}')),
    "call-error-message": _call(_error('{"code": 1, "message": ["m"]}')),
    "call-error-hostile": _call(
        _error('{"code": 1, "message": ' + json.dumps(NASTY_NAME * 100_000) + "}"), "tool ok"
    ),
    # Responses to no known request
    "call-id-other": _call(_whole('{"jsonrpc": "2.0", "id": 9999, "result": {"content": []}}')),
    "call-id-text": _call(_whole('{"jsonrpc": "2.0", "id": "x", "result": {"content": []}}')),
    "call-id-list": _call(
        _whole('{"jsonrpc": "2.0", "id": [ID], "result": {}}'), "no answer in|breaks", **UNCLEAR
    ),
    "call-id-half": _call(
        _whole('{"jsonrpc": "2.0", "id": ID.5, "result": {}}'), "no answer in|breaks", **UNCLEAR
    ),
    "call-id-null": _call(
        _whole('{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "what?"}}'),
        "breaks the protocol|what",
    ),
    "call-notification": _call(
        _whole('{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}'),
        "no answer in|breaks|without a response",
        **UNCLEAR,
    ),
    # A result of the wrong shape
    "call-content-null": _call(_result('{"content": null}')),
    "call-content-number": _call(_result('{"content": 7}')),
    "call-content-numbers": _call(_result('{"content": [1, null]}')),
    "call-content-many": _call(_parts(",".join(["0"] * MANY))),
    "call-content-kind": _call(_parts('{"type": "hologram"}')),
    "call-content-text": _call(_parts('{"type": "text", "text": [1]}')),
    "call-is-error": _call(_result('{"content": [], "isError": {"a": 1}}')),
    "call-large": _call(
        lambda id: (
            _result('{"id": 5, "content": [{"type": "text", "text": "' + "x" * 70_000_000)(id)
            + '"}]}}'
        ),
        r"more than 2,000,000 bytes \(limits.output\)",
        error="LimitExceeded",
    ),
    "call-large-end": _call(
        lambda id: '{"result": {"id": 5, "text": "' + "x" * 70_000_000 + '"}, "id": ' + id + "}",
        r"more than 2,000,000 bytes \(limits.output\)",
        error="LimitExceeded",
    ),
    # Lists of the wrong shape
    "list-null": _list(_tools("null")),
    "list-object": _list(_tools("{}")),
    "list-nothing": _list(_result("{}")),
    "list-many-numbers": _list(_tools("[" + ",".join(["0"] * MANY) + "]")),
    "list-cursor-number": _list(_result('{"tools": [], "nextCursor": 7}')),
    "list-cursor-new": _list(
        lambda id: _tools('[], "nextCursor": ' + json.dumps(os.urandom(8).hex()))(id),  # noqa: PLW0108 - a new one each time
        f"more than {PAGES} pages",
        error="LimitExceeded",
    ),
    "list-too-much": _list(
        lambda id: _result(
            '{"tools": [{"name": "t'
            + id
            + '", "inputSchema": {"type": "object"}, "description": "'
            + "x" * 900_000
            + '"}], "nextCursor": "'
            + id
            + '"}'
        )(id),
        r"more than 2,000,000 bytes \(limits.output\)",
        error="LimitExceeded",
    ),
    # A handshake of the wrong shape
    "start-null": _start(_result("null")),
    "start-empty": _start(_result("{}")),
    "start-deep": _start(_deep),
    "start-version": _start(
        _result('{"protocolVersion": 7, "capabilities": {}, "serverInfo": {"name": "n"}}')
    ),
    "start-nasty-version": _start(
        _result(
            '{"protocolVersion": '
            + json.dumps(NASTY_NAME * 10_000)
            + ', "capabilities": {}, "serverInfo": {"name": "n", "version": "1"}}'
        ),
        "version",
    ),
    "start-capabilities": _start(
        _result('{"protocolVersion": "2025-06-18", "capabilities": [], "serverInfo": {"name": 7}}')
    ),
    # Of another kind
    "resources": Case(
        "resources/list", _result('{"resources": {"uri": 7}}'), "ToolError", "breaks"
    ),
    "prompts": Case("prompts/list", _result('{"prompts": "none"}'), "ToolError", "breaks"),
}
"""Cases by name."""

SCHEMAS: dict[str, Any] = {
    "slow": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
    "none": {"type": "object", "minProperties": "many"},
    "elsewhere": {"type": "object", "$ref": "http://127.0.0.1:9/schema"},
    "endless": {"type": "object", "$ref": "#"},
}
"""Output schemas that must never be evaluated, each for the tool of the same name."""

HANDSHAKE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "hostile", "version": "1"},
}


class Hostile:
    """A server with a tool `ok`, and tools whose schemas must never be evaluated.

    Args:
        how: Returns the name of the case.
    """

    def __init__(self, how: Callable[[], str]) -> None:
        self._how = how

    def answer(self, message: dict[str, Any]) -> str | None:
        """Return the response to a message, or None for a notification."""
        if "id" not in message or "method" not in message:
            return None
        method = message["method"]
        case = CASES.get(self._how())
        if case is not None and case.method == method:
            return case.answer(json.dumps(message["id"]))
        told = self._proper(method, (message.get("params") or {}).get("name", ""))
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], **told})

    def _proper(self, method: str, tool: str) -> dict[str, Any]:
        if method == "initialize":
            return {"result": HANDSHAKE}
        if method == "ping":
            return {"result": {}}
        if method == "tools/list":
            ok = {"name": "ok", "inputSchema": {"type": "object"}}
            odd = [{**ok, "name": name, "outputSchema": SCHEMAS[name]} for name in SCHEMAS]
            return {"result": {"tools": [ok, *odd]}}
        if method == "tools/call":
            told: dict[str, Any] = {"content": [{"type": "text", "text": "ok"}]}
            if tool in SCHEMAS:
                told["structuredContent"] = {"a": "a" * 40 + "b"}
            return {"result": told}
        return {"error": {"code": -32601, "message": "no such method"}}


def flood(how: str) -> Iterator[str]:
    """Yield messages without end."""
    number = 0
    while True:
        number += 1
        yield {
            "changes": '{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}',
            "malformed": '{"jsonrpc": "2.0", "method": "notifications/message", "params": 7}',
            "requests": f'{{"jsonrpc": "2.0", "id": {number}, "method": "ping"}}',
            "answers": '{"jsonrpc": "2.0", "id": 1, "result": {}}',
            "text": "lorem ipsum",
        }[how]


def write(text: str, end: str = "\n") -> None:
    sys.stdout.buffer.write((text + end).encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def main(how: str) -> None:
    hostile = Hostile(lambda: Path(how[1:]).read_text() if how.startswith("@") else how)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            if how == "close-half":
                write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": 7})[:-3], end="")
                sys.exit(0)
            if how == "close-output":
                os.close(1)
                continue
            if how.startswith("flood-"):
                for each in flood(how.removeprefix("flood-")):
                    write(each)
        text = hostile.answer(message)
        if text is not None:
            write(text)


if __name__ == "__main__":
    main(sys.argv[1])
