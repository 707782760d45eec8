"""A local npm registry with one package: an MCP server."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

from tests.envs.network.ways_out import Quiet, running

NAME = "tiny-server"
_SERVER = r"""#!/usr/bin/env node
const fs = require("fs");
const text = (value) => ({ content: [{ type: "text", text: value }], isError: false });
const answers = {
  initialize: () => ({
    protocolVersion: "2025-06-18",
    capabilities: { tools: {} },
    serverInfo: { name: "tiny", version: "1" },
  }),
  ping: () => ({}),
  "tools/list": () => ({ tools: [{ name: "look", inputSchema: { type: "object" } }] }),
  "tools/call": (params) => text(String(fs.existsSync(params.arguments.path))),
};
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const known = answers[method];
  const told = known ? { result: known(params) } : { error: { code: -32601, message: "no" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...told }) + "\n");
});
"""
_ABOUT = {"name": NAME, "version": "1.0.0", "bin": {NAME: "server.js"}}


def _archive() -> bytes:
    data = io.BytesIO()
    files = {"package.json": json.dumps(_ABOUT), "server.js": _SERVER}
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


@contextmanager
def registry() -> Iterator[str]:
    """Run a registry and yield its address."""
    archive = _archive()

    class Answer(Quiet):
        def do_GET(self) -> None:
            body = archive if self.path.endswith(".tgz") else self._about()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _about(self) -> bytes:
            digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
            dist = {"tarball": f"{address}/{NAME}.tgz", "integrity": f"sha512-{digest}"}
            versions = {"1.0.0": {**_ABOUT, "dist": dist}}
            tags = {"latest": "1.0.0"}
            return json.dumps({"name": NAME, "dist-tags": tags, "versions": versions}).encode()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    address = f"http://localhost:{server.server_port}"
    with running(server):
        yield address
