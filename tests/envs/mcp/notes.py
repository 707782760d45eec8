"""The server of `oauth_server.py` in a process, and a user who logs in there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, urlopen

FLOW = """\
flowengine: 1
id: notes
tools:
  notes: {mcp: {url: "URL/mcp", auth: AUTH}}
steps:
  - {id: who, call: notes.whoami}
outputs: {who: "${{ steps.who.output.result }}"}
"""


class NotesServer:
    """The MCP server, and its authorization server, of one process."""

    def __init__(self, url: str) -> None:
        self.url = url

    def counts(self) -> Any:
        with urlopen(f"{self.url}/control") as answer:
            return json.load(answer)

    def rule(self, **rules: Any) -> None:
        """Change what the server does from now on."""
        urlopen(Request(f"{self.url}/control", json.dumps(rules).encode())).close()


class Browser:
    """A user who follows the link at once. See `flowengine.sdk.environments.LoginPage`."""

    redirect_uri = "http://127.0.0.1:9/callback"

    def __init__(self) -> None:
        self.visited: list[str] = []

    async def visit(self, url: str) -> Mapping[str, str]:
        self.visited.append(url)

        class Staying(HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None

            def http_error_302(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any) -> Any:
                return fp

        with build_opener(Staying).open(url) as answer:
            redirect = str(answer.headers["location"])
        assert redirect.startswith(self.redirect_uri)
        return dict(parse_qsl(urlsplit(redirect).query))


@contextmanager
def notes_server() -> Iterator[NotesServer]:
    """Start the server."""
    program = str(Path(__file__).with_name("oauth_server.py"))
    process = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield NotesServer(f"http://127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
