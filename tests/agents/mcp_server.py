"""A hand-written MCP server: `mcp_server.py FILE`.

The file has a JSON list: its tools, resources or prompts.
Calls are recorded in `FILE.called`. A call of `swap` replaces the list with `FILE.next` and
notifies the client, `draw` returns images, `die` ends the server, `fail` fails, `hang` is never
answered.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1])


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def called(name: str, args: dict[str, Any]) -> dict[str, Any]:
    with FILE.with_suffix(".called").open("a") as file:
        file.write(f"{name} {json.dumps(args, sort_keys=True)}\n")
    if name == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "swap":
        FILE.with_suffix(".next").rename(FILE)
        send({"method": "notifications/tools/list_changed"})
    if name == "draw":
        images = [f"iVBORw0KGgo{at}AAA=" for at in range(2)] + ["UE5H"]
        parts = [{"type": "image", "mimeType": "image/png", "data": each} for each in images]
        return {"content": [{"type": "text", "text": "drawn"}, *parts]}
    text = f"{name} was given {json.dumps(args, sort_keys=True)}"
    return {"content": [{"type": "text", "text": text}], "isError": name == "fail"}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        about = {"name": "listed", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        return {
            "result": {
                "protocolVersion": "2025-06-18",
                "capabilities": capabilities,
                "serverInfo": about,
            }
        }
    if method == "ping":
        return {"result": {}}
    kinds, _, verb = method.partition("/")
    if verb == "list":
        return {"result": {kinds: json.loads(FILE.read_text())}}
    if method == "tools/call":
        return {"result": called(params["name"], params.get("arguments") or {})}
    return {"error": {"code": -32601, "message": "no such method"}}


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            told = answer(message["method"], message.get("params") or {})
            if (message.get("params") or {}).get("name") != "hang":
                send({"id": message["id"], **told})
