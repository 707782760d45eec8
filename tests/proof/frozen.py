"""The proof: executions that were recorded once, with everything that is shown of them.

A block is a pair of archives in this folder. `BLOCK.journals.tar.xz` contains flows, their cases
and the store of their executions, and never changes. `BLOCK.views.tar.xz` contains the text of
every view of these executions, and the digests of their states. Journals are read from the files of
a store, and views through the command line, the API and the page, so that the proof can judge any
design behind them.
"""

from __future__ import annotations

import difflib
import io
import json
import os
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

from flowengine.engines.executions import linked_flows
from flowengine.engines.executions.linked_flows import LinkedFlows
from flowengine.engines.flows import LANGUAGE
from flowengine.journal.encoding import pack
from flowengine.journal.sqlite.store import SqliteStore
from tests.command_line import flowengine
from tests.proof.recording import NOW, STORE
from tests.server.api import Api

HERE = Path(__file__).parent
STATES = "states.json"
SHOWN = 8
"""Views whose differences are printed."""
LINES = 40
"""Lines of the differences of one view that are printed."""
EVERY = 10
"""Events between two digests."""
SECRET = re.compile(r'(name="(?:form_token|command)" value="|/static/)[^"/]*')
"""Values in forms that differ from session to session, and the version of the static files."""


# The archive


def path_of(block: str, part: str) -> Path:
    """Return the path of an archive: `journals` or `views`."""
    return HERE / f"{block}.{part}.tar.xz"


def read(path: Path) -> dict[str, bytes]:
    """Return the files in an archive."""
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            found[member.name] = content.read()
    return found


def write(path: Path, files: Mapping[str, bytes]) -> None:
    """Write an archive. The same files give the same bytes."""
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for name in sorted(files, key=lambda name: (name.partition("/")[2], name)):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))


def unpack(block: str, folder: Path) -> None:
    """Write the flows, the cases and the store of a block into a folder."""
    for name, data in read(path_of(block, "journals")).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


# The journals


def digests(folder: Path) -> dict[str, list[str]]:
    """Replay all journals of a store, and return the digests of the states by execution.

    Each digest is of all packed states so far, after every tenth event and the last one. Only this
    function reads a state: a change of the form of states changes the digests, and nothing else.
    """
    ids = ids_of(folder)
    with closing(SqliteStore(folder / STORE / "flowengine.db", "none")) as store:
        flows = LinkedFlows(store, LANGUAGE)
        return {
            id: _digests(flows, store.execution(id).hash, linked_flows.read(store, id))
            for id in ids
        }


def _digests(flows: LinkedFlows, hash: str, events: list[Any]) -> list[str]:
    found, states = [], sha256()
    for number, moment in enumerate(linked_flows.walk(flows, hash, events), 1):
        states.update(pack(moment.state))
        if number % EVERY == 0 or number == len(events):
            found.append(states.hexdigest()[:16])
    return found


def ids_of(folder: Path) -> list[str]:
    """Return the ids of all executions in the store of a folder."""
    with looking(folder):
        listed = flowengine("--store", STORE, "list", "--limit", "500", "--json").json()
    return sorted(one["execution"] for one in listed)


# The views


@contextmanager
def looking(folder: Path) -> Iterator[None]:
    """Read views at the moment and in the surroundings in which all of them were recorded."""
    surroundings = {"XDG_CONFIG_HOME": str(folder / "config"), "COLUMNS": "100", "TZ": "UTC"}
    before = os.getcwd()
    os.chdir(folder)
    try:
        with (
            patch.dict(os.environ, surroundings),
            patch("time.time", lambda: NOW / 1000),
            patch("time.time_ns", lambda: NOW * 1_000_000),
        ):
            yield
    finally:
        os.chdir(before)


def views(folder: Path) -> dict[str, str]:
    """Return the text of every view of the executions in the store of a folder."""
    found: dict[str, str] = {}
    ids = ids_of(folder)
    with looking(folder):
        for name, text in _views(folder, ids):
            found[name] = SECRET.sub(r"\1…", text.replace(str(folder), "FOLDER"))
    return found


def _views(folder: Path, ids: list[str]) -> Iterator[tuple[str, str]]:
    yield "list.txt", printed("list", "--limit", "500")
    yield "approvals.txt", printed("approvals", "list")
    others: dict[str, str] = {}
    for id in ids:
        stem = id.rpartition("-")[0]
        for name, text in _command_line(id, others.get(stem)):
            yield f"{id}/{name}", text
        others[stem] = id
    api = Server(folder)
    try:
        for path in ("executions?limit=500", "approvals?limit=500", "approvals?status=closed"):
            yield f"api/{path}.json", api.json(f"/v1/{path}")
            yield f"page/{path}.html", api.page(f"/{path}")
        others.clear()
        for id in ids:
            stem = id.rpartition("-")[0]
            for name, text in api.views(id, others.get(stem)):
                yield f"{id}/{name}", text
            others[stem] = id
    finally:
        api.close()


def _command_line(id: str, other: str | None) -> Iterator[tuple[str, str]]:
    yield "show.txt", printed("show", id, "--verbose")
    yield "why.txt", printed("why", id)
    yield "events.txt", printed("events", id)
    yield "graph.txt", printed("graph", id)
    yield "events.json", printed("events", id, "--json")
    yield "show.json", _indented(printed("show", id, "--json"))
    yield "why.json", _indented(printed("why", id, "--json"))
    yield "graph.json", _indented(printed("graph", id, "--json"))
    if other is not None:
        yield "diff.txt", printed("diff", other, id)
        yield "diff.json", _indented(printed("diff", other, id, "--json"))


def printed(*words: str) -> str:
    """Return the output of a command, followed by its messages."""
    done = flowengine("--store", STORE, *words)
    return done.out + "".join(f"! {line}\n" for line in done.err.splitlines())


def _indented(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"
    except ValueError:  # an error
        return text


class Server:
    """The API and the page over the store of a folder, for a user who may see all of it."""

    def __init__(self, folder: Path) -> None:
        from flowengine import Engine

        engine = Engine(folder / STORE, durability="none", user="user:owner")
        self.api = Api(folder / "server", (), engine)
        identity = self.api.application.identity
        secret = identity.begin_session(identity.local())
        self.headers = {"cookie": f"flowengine_session={secret}"}

    def close(self) -> None:
        self.api.close()

    def json(self, path: str) -> str:
        """Return an answer of the API."""
        return _indented(self.api.response("GET", path).text)

    def page(self, path: str) -> str:
        """Return a page."""
        return self.api.response("GET", path, token=None, headers=self.headers).text

    def views(self, id: str, other: str | None) -> Iterator[tuple[str, str]]:
        """Yield all that API and page show of an execution."""
        for view in ("", "/why", "/events?limit=500", "/graph"):
            yield f"api{view}.json", self.json(f"/v1/executions/{id}{view}")
        for view in ("", "/timeline", "/history", "/events", "/conversation"):
            yield f"page{view}.html", self.page(f"/executions/{id}{view}")
        if other is not None:
            yield "api/diff.json", self.json(f"/v1/executions/{other}/diff/{id}")
            yield "page/compare.html", self.page(f"/executions/{other}/compare?with={id}")
        waits = self.json(f"/v1/approvals?execution={id}&status=all")
        yield "api/approvals.json", waits
        for number, wait in enumerate(json.loads(waits)["items"]):
            yield f"api/approval-{number}.json", self.json(f"/v1/approvals/{wait['id']}")
            yield f"page/approval-{number}.html", self.page(f"/approvals/{wait['id']}")


# Differences


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return how views differ, as text for a developer. Empty: they do not."""
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if not names:
        return ""
    kinds = Counter(name.partition("/")[2] or name for name in names)
    lines = [f"{len(names)} of {len(now)} views differ: "
             + ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common())]  # fmt: skip
    first = {name.partition("/")[2]: name for name in reversed(names)}
    for name in [*first.values()][:SHOWN]:
        old, new = (texts.get(name, "").splitlines() for texts in (before, now))
        told = [*difflib.unified_diff(old, new, f"recorded: {name}", f"now: {name}", lineterm="")]
        lines += ["", *told[:LINES], *([f"… {len(told) - LINES} more lines"] * (len(told) > LINES))]
    return "\n".join(lines)
