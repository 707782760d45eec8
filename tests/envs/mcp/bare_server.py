"""A server of the revision 2026-07-28 over standard streams that leaves out what has a default."""

from __future__ import annotations

import json
import sys
from typing import Any

RESULTS: dict[str, dict[str, Any]] = {
    "server/discover": {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
    },
    "tools/list": {
        "tools": [{"name": "act", "inputSchema": {"type": "object"}}],
        "ttlMs": 0,
        "cacheScope": "private",
    },
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}

if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            told: dict[str, Any] = {"error": {"code": -32601, "message": "no such method"}}
            if message["method"] in RESULTS:
                told = {"result": RESULTS[message["method"]]}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **told}) + "\n")
            sys.stdout.flush()
