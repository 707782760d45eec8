"""A flow that opens an environment of every kind, each with well-hidden stray processes.

`make` writes the flow. The functions are called by its steps.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

STRAY = "(setsid setsid sleep 7001 >/dev/null 2>&1 &)"
"""Starts a process that has left its session and its parent."""

FLOW = """
flowengine: 1
id: everything
defaults: {effect: idempotent}
environments:
  py: {kind: python}
  sh: {kind: bash}
  js: {kind: node}
  term: {kind: shell}
  own: {kind: bash, provider: host}
  box: {kind: bash, provider: docker}
  ct: {kind: docker}
  db: {kind: sqlite, config: {path: words.db, mode: rwc}}
  notes: {kind: files}
  units: {kind: mcp, config: {command: [PYTHON, server.py]}}
steps:
  - id: all
    parallel:
      - {id: py, in: py, run: "import os; os.system('STRAY')"}
      - {id: sh, in: sh, run: "STRAY"}
      - {id: js, in: js, run: "require('child_process').execSync('STRAY', {shell: '/bin/bash'})"}
      - {id: term, in: term, run: "STRAY"}
      - {id: own, in: own, run: "STRAY"}
      - {id: box, in: box, run: "STRAY"}
      - {id: db, in: db, run: "create table if not exists words (word text)"}
      - {id: notes, python: "steps:note", environments: [notes]}
      - {id: units, python: "steps:ask", environments: [units]}
      - {id: ct, in: ct, run: "sleep 0.5"}
      - {id: host, run: "STRAY; sleep 0.5"}
"""

STEPS = """
def note(notes):
    notes.write("a.txt", b"x")


def ask(units):
    return units.call_tool("stray", {}).text
"""

SERVER = f"""
import json
import subprocess
import sys

RESULTS = {{
    "initialize": {{
        "protocolVersion": "2025-06-18",
        "capabilities": {{"tools": {{}}}},
        "serverInfo": {{"name": "strays", "version": "1"}},
    }},
    "tools/list": {{"tools": [{{"name": "stray", "inputSchema": {{"type": "object"}}}}]}},
    "tools/call": {{"content": [{{"type": "text", "text": "left"}}]}},
}}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "tools/call":
        subprocess.run(["bash", "-c", {STRAY!r}], check=True)
    if "id" in asked:
        result = RESULTS.get(asked["method"], {{}})
        print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": result}}), flush=True)
"""
"""Written by hand, because importing the protocol's library would take longer than everything else.
"""


def make(folder: Path, *, hold: bool = False, ahead: bool = False) -> Path:
    """Write the flow and its files.

    Args:
        folder: The folder, which is created.
        hold: Whether the flow never ends once everything is open.
        ahead: Whether environments are opened in the background.

    Returns:
        The flow file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "server.py").write_text(SERVER)
    (folder / "steps.py").write_text(STEPS)
    file = folder / "everything.yaml"
    text = re.sub(r"^(  \w+: {kind: .*)}$", r"\1, eager: background}", FLOW, flags=re.M)
    flow = text if ahead else FLOW
    if hold:
        flow = flow.replace("sleep 0.5", "sleep 7000")
    file.write_text(flow.replace("STRAY", STRAY).replace("PYTHON", sys.executable))
    return file


def containers(execution: str) -> list[str]:
    """Return the containers and networks of an execution."""
    label = f"label=flowengine.owner_id={execution}"
    found = []
    for what in (["ps", "-aq"], ["network", "ls", "-q"]):
        argv = ["docker", *what, "--filter", label]
        found += subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return found
