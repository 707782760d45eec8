"""A hand-written server that requests input in the middle of its calls: `asking_quickly.py FOLDER`.

It speaks revision 2025-11-25 and starts quickly. Each call that does something adds a line to
`FOLDER/done.txt`. A canceled call is dropped.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(*sys.argv[1:2])
PAGE = "https://pay.example.com/session?id=7"
Asking = Generator[dict[str, Any], dict[str, Any], str]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def form(message: str, **fields: Any) -> dict[str, Any]:
    required = [name for name, field in fields.items() if "default" not in field]
    schema = {"type": "object", "properties": fields, "required": required}
    return {"message": message, "requestedSchema": schema}


def did(what: str) -> None:
    with (FOLDER / "done.txt").open("a") as file:
        file.write(f"{what}\n")


def act() -> Asking:
    """Do something, then ask the same question twice."""
    did("act")
    said = []
    for _ in range(2):
        answer = yield form("How many?", count={"type": "string"})
        if answer["action"] != "accept":
            return str(answer["action"])
        said.append(answer["content"]["count"])
    return " ".join(said)


def nag() -> Asking:
    number = 0
    while True:
        number += 1
        yield form(f"Question {number}?", text={"type": "string"})


def opens(url: str) -> Asking:
    answer = yield {"mode": "url", "message": "Open this.", "url": url, "elicitationId": "8"}
    return str(answer["action"])


def asks(schema: Any) -> Asking:
    answer = yield {"message": "\x1b[31mFill this in.", "requestedSchema": schema}
    return json.dumps(answer, sort_keys=True)


def confirm(name: str) -> Asking:
    """Ask about one name."""
    answer = yield form(f"Is it {name}?", sure={"type": "boolean", "default": True})
    did(f"confirm {name}")
    return f"{name} {answer['content']['sure']}"


def leak() -> Asking:
    """Ask about a secret that it knows."""
    token = os.environ["TOKEN"]
    answer = yield form(f"Is {token} right?", sure={"type": "boolean", "title": token})
    return f"{answer['action']} {token}"


TOOLS: dict[str, Callable[..., Asking]] = {
    "act": act,
    "nag": nag,
    "opens": opens,
    "asks": asks,
    "leak": leak,
    "confirm": confirm,
}


def described(name: str) -> dict[str, Any]:
    known = TOOLS.get(name)
    given = inspect.signature(known).parameters if known is not None else ()
    schema = {"type": "object", "properties": {each: {} for each in given}, "required": [*given]}
    return {"name": name, "inputSchema": schema}


def messages() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "ping":
            send(id=message["id"], result={})
        else:
            yield message


def answer(message: dict[str, Any], coming: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the answer to a request. None: it was canceled."""
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        about = {"name": "asking", "version": "1"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                           "serverInfo": about}}  # fmt: skip
    if method == "tools/list":
        return {"result": {"tools": [described(name) for name in [*TOOLS, "login"]]}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": "no such method"}}
    if params["name"] == "login":
        if (FOLDER / "opened.txt").exists():
            return {"result": {"content": [{"type": "text", "text": "signed in"}]}}
        page = {"mode": "url", "message": "Sign in.", "url": PAGE, "elicitationId": "7"}
        return {
            "error": {"code": -32042, "message": "open a page", "data": {"elicitations": [page]}}
        }
    return called(message["id"], TOOLS[params["name"]](**params["arguments"]), coming)


def called(id: Any, call: Asking, coming: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    number = 0
    try:
        asked = next(call)
        while True:
            number += 1
            mine = f"{id}.{number}"
            send(id=mine, method="elicitation/create", params=asked)
            for message in coming:
                if message.get("method") == "notifications/cancelled":
                    if message["params"]["requestId"] == id:
                        return None
                elif message.get("id") == mine:
                    asked = call.send(message["result"])
                    break
    except StopIteration as done:
        return {"result": {"content": [{"type": "text", "text": done.value}]}}


if __name__ == "__main__":
    incoming = messages()
    for request in incoming:
        if "id" in request and "method" in request:
            told = answer(request, incoming)
            if told is not None:
                send(id=request["id"], **told)
