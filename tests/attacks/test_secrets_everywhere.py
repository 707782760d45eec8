# Shows E74
"""No secret of any environment kind appears outside of it (E74, E103)."""

from __future__ import annotations

import base64
import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from flowengine import Engine
from tests.server.api import Api
from tests.stored_data import stored_in

NAMES = ("PY", "SH", "JS", "TERM_", "OWN", "BOX", "DB", "NOTES", "UNITS", "FAILED")

FLOW = """
flowengine: 1
id: secretive
secrets: {%s}
environments:
  py: {kind: python, config: {env: {TOKEN: "${{ secrets.PY }}"}}}
  sh: {kind: bash, config: {env: {TOKEN: "${{ secrets.SH }}"}}}
  js: {kind: node, config: {env: {TOKEN: "${{ secrets.JS }}"}}}
  term:
    kind: shell
    config: {env: {TOKEN: "${{ secrets.TERM_ }}"}, activate: "true ${{ secrets.TERM_ }}"}
  own: {kind: bash, provider: host, config: {env: {TOKEN: "${{ secrets.OWN }}"}}}
  box: {kind: bash, provider: docker, config: {env: {TOKEN: "${{ secrets.BOX }}"}}}
  db: {kind: sqlite, config: {path: "${{ secrets.DB }}.db", mode: rwc}}
  notes: {kind: files, config: {path: "${{ secrets.NOTES }}", mode: rw}}
  units: {kind: mcp, config: {command: [PYTHON, server.py], env: {TOKEN: "${{ secrets.UNITS }}"}}}
steps:
  - id: all
    parallel:
      - {id: py, in: py, run: "import os; print(os.environ['TOKEN'])"}
      - {id: sh, in: sh, run: "echo $TOKEN; echo $TOKEN | base64; sleep 0.1 & wait"}
      - {id: js, in: js, run: "console.log(process.env.TOKEN)"}
      - {id: term, in: term, run: "echo $TOKEN"}
      - {id: own, in: own, run: "echo xx$TOKEN | base64 | tr +/ -_"}
      - {id: box, in: box, run: "echo $TOKEN; echo x$TOKEN | base64"}
      - {id: db, in: db, run: "create table if not exists words (word text)"}
      - {id: notes, python: "secretive:note", environments: [notes]}
      - {id: units, python: "secretive:ask", environments: [units]}
  - id: look
    python: "secretive:look"
    environments: [py, sh, js, term, own, box, db, notes, units]
"""

STEPS = """
import json, os, subprocess, sys
from pathlib import Path

COMMANDS = '''
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from flowengine.cli import main

told = {}
for line in sys.argv[1:]:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(out), redirect_stderr(out):
        main([*line.split(), "--json"])
    out.seek(0)
    told[line] = out.read()
print(json.dumps(told))
'''

def note(notes):
    notes.write("a.txt", b"x")
    return str(notes.path)

def nothing(it):
    pass

def ask(units):
    return units.call_tool("token", {}).text

def look(context: "StepContext"):
    # Write down what others can see of this machine while all is open.
    seen = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            seen[str(path)] = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
    env = {name: value for name, value in os.environ.items() if not name.startswith("SECRET_")}
    id = context.execution.id
    lines = ("envs list", "envs show box", f"show {id}", f"events {id}", f"why {id}")
    command = [sys.executable, "-c", COMMANDS, *lines]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    seen |= json.loads(done.stdout)
    label = f"label=flowengine.owner_id={id}"
    words = ["docker", "ps", "-aq", "--filter", label]
    found = subprocess.run(words, capture_output=True, text=True)
    for name in found.stdout.split():
        told = subprocess.run(["docker", "inspect", name], capture_output=True, text=True)
        seen[f"container {name}"] = told.stdout
    Path("seen.json").write_text(json.dumps(seen))
"""

SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("tokens")

@server.tool()
def token() -> str:
    return os.environ["TOKEN"]

server.run()
"""

FAILING = {
    "sqlite": 'kind: sqlite, config: {path: "${{ secrets.FAILED }}/none.db"}',
    "files": 'kind: files, config: {path: "${{ secrets.FAILED }}"}',
    "command": 'kind: mcp, config: {command: ["${{ secrets.FAILED }}"]}',
    "url": 'kind: mcp, config: {url: "http://127.0.0.1:1/${{ secrets.FAILED }}"}',
    "headers": 'kind: mcp, config: {url: "http://[::1]:1/", headers: {a: "${{ secrets.FAILED }}"}}',
    "activate": 'kind: shell, config: {activate: "echo ${{ secrets.FAILED }}; false"}',
    "image": 'kind: docker, config: {image: "${{ secrets.FAILED }}", pull_policy: never}',
    "python": 'kind: python, config: {python: "${{ secrets.FAILED }}"}',
    "node": 'kind: node, config: {node: "${{ secrets.FAILED }}"}',
}


def secret(name: str) -> str:
    """Return the value of a secret, which changes in every encoding."""
    return f"sekret+{name.lower()}=~7f3a/Zq"


def forms(value: str) -> dict[str, bytes]:
    """Return a text in various encodings."""
    data = value.encode()
    told = {
        "plain": value,
        "json": json.dumps(value)[1:-1],
        "percent": quote(value, safe=""),
        "form": quote_plus(value),
        "reversed": value[::-1],
    }
    for offset in range(3):
        # Surrounding data affects both ends of the encoded text, but not its middle.
        text = base64.b64encode(b"x" * offset + data).decode()
        whole = text[-(-offset * 8 // 6) : len(text) - len(text) % 4 - 4]
        told[f"base64 at {offset}"] = whole
    return {name: text.encode() for name, text in told.items()}


def found_in(sinks: dict[str, bytes]) -> list[str]:
    """Return the secrets found in the sinks, with their encodings."""
    return [
        f"{name} ({form}) in {sink}"
        for name in NAMES
        for form, needle in forms(secret(name)).items()
        for sink, data in sinks.items()
        if needle in data
    ]


@pytest.fixture
def place(folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    for name in NAMES:
        monkeypatch.setenv(f"SECRET_{name}", secret(name))
    (folder / secret("NOTES")).mkdir(parents=True)
    (folder / secret("DB")).parent.mkdir(parents=True)
    Path("secretive.py").write_text(STEPS)
    Path("server.py").write_text(SERVER)
    return folder


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is logged."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.setLevel(before)
    root.removeHandler(handler)


def declared() -> str:
    return ", ".join(f"{name}: {{env: SECRET_{name}}}" for name in NAMES)


def test_what_is_searched_for_would_be_found() -> None:
    for name, needle in forms(secret("PY")).items():
        assert found_in({"sink": b"a" + needle + b"b"}), name
    for ends in (b"", b"a", b"ab"):
        text = base64.b64encode(ends + secret("PY").encode() + b"and more")
        assert [each for each in found_in({"sink": text}) if "base64" in each]


def test_what_is_compressed_in_a_store_would_be_found(tmp_path: Path) -> None:
    text = f"flowengine: 1\nid: tell\nsteps: [{{id: a, output: '{secret('PY')}{80 * '.'}'}}]\n"
    Path(tmp_path, "tell.yaml").write_text(text)
    with Engine(tmp_path / "store") as engine:
        engine.run(tmp_path / "tell.yaml")

    assert any("flows, row" in each for each in found_in(stored_in(tmp_path / "store")))


@pytest.mark.endurance
# Shows V24
def test_it_is_nowhere(place: Path, log: io.StringIO, capfd: pytest.CaptureFixture[str]) -> None:
    text = FLOW.replace("PYTHON", sys.executable) % declared()
    Path("secretive.yaml").write_text(text)
    told: list[Any] = []
    results: dict[str, Any] = {}

    with Engine(durability="process") as engine:
        engine.subscribe(told.append)
        heard: list[Any] = []
        engine.environments.subscribe(lambda event: heard.append(event.data()))
        results["all"] = engine.run("secretive.yaml")
        assert results["all"].status == "succeeded", results["all"]
        for name, environment in FAILING.items():
            flow = f"flowengine: 1\nid: {name}\nsecrets: {{{declared()}}}\n"
            flow += f"environments: {{it: {{{environment}}}}}\n"
            runs = "in: it, run: '1'"
            given = 'python: "secretive:nothing", environments: [it]'
            flow += f"steps: [{{id: a, {runs if name in {'python', 'node'} else given}}}]\n"
            Path(f"{name}.yaml").write_text(flow)
            results[name] = engine.run(f"{name}.yaml")
            assert results[name].status == "failed", name
        engine.environments.flush_events()
        inspected = json.dumps(engine.environments.list())
        api = Api(place, [text], engine)
        answers = api.everything()
        api.records.close()
        assert any(path.endswith("/events") for path in answers)
        assert any(b"<h1>secretive" in answer for answer in answers.values())
        # While the database is open, the latest writes are in its journal.
        sinks = {
            f"open {folder}: {name}": data
            for folder in (".flowengine", "state")
            for name, data in stored_in(place / folder).items()
        }
    captured = capfd.readouterr()
    sinks |= {
        "updates": repr(told).encode(),
        "events": json.dumps(heard).encode(),
        "results": repr(results).encode(),
        "inspected": inspected.encode(),
        **{f"GET {path}": answer for path, answer in answers.items()},
        "log": log.getvalue().encode(),
        "stdout": captured.out.encode(),
        "stderr": captured.err.encode(),
        **{f"store: {name}": data for name, data in stored_in(place / ".flowengine").items()},
        **{f"state: {name}": data for name, data in stored_in(place / "state").items()},
        **{f"temporary: {name}": data for name, data in stored_in(place / "temporary").items()},
    }
    seen = json.loads(Path("seen.json").read_text())
    assert "box" in seen["envs list"]
    assert any(name.startswith("container ") for name in seen)
    sinks |= {f"seen: {name}": data.encode() for name, data in seen.items()}

    assert found_in(sinks) == []
    assert "all users of this machine" in results["command"].error["message"]
