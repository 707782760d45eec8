# Shows G15
"""Logins on the command line (G15): a link, a redirect to this machine, and the run continues."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.conftest import CommandLine
from tests.engines.world import until
from tests.envs.mcp.notes import FLOW, NotesServer, notes_server


@pytest.fixture(scope="module")
def server() -> Iterator[NotesServer]:
    with notes_server() as started:
        yield started


@pytest.fixture
def notes(
    flowengine: CommandLine, server: NotesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    flowengine.write("notes.yaml", FLOW.replace("URL", server.url).replace("AUTH", "oauth"))
    return flowengine


def link_of(process: subprocess.Popen[str]) -> str:
    """Return the link that a command shows."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://\S+/authorize\S+", line):
            return found[0]
    raise AssertionError(process.returncode)


def visit(link: str) -> str:
    with urlopen(link) as answer:
        return str(answer.read().decode())


def ended(process: subprocess.Popen[str]) -> str:
    """Return the output of a command that must succeed."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def test_approve_shows_the_link_and_continues(notes: CommandLine, server: NotesServer) -> None:
    waiting = notes("run", "notes.yaml", "--id", "n1", code=4)
    [wait] = waiting.ids
    assert f"Log in to {server.url}/mcp" in waiting.err
    assert "authorization server" in notes("show", wait).out
    assert f"flowengine approve {wait}" in notes("why", "n1").out
    approving = notes.spawn("approve", wait, "--as", "user:ana")
    assert "logged in" in visit(link_of(approving))

    assert "who: user" in ended(approving)
    assert "who: user" in notes("run", "notes.yaml").out
    listed = notes("--json", "logins").json()
    assert [login["server"] for login in listed] == [f"{server.url}/mcp"]
    notes("logins", "--remove", f"{server.url}/mcp")
    assert notes("run", "notes.yaml", code=4).ids
    issued = server.counts()["issued"]
    assert not [secret for secret in issued if secret in waiting.err + str(listed)]


@pytest.mark.endurance
def test_a_user_may_log_in_before_the_run(notes: CommandLine, server: NotesServer) -> None:
    adding = notes.spawn("logins", "--add", f"{server.url}/mcp")
    visit(link_of(adding))
    ended(adding)

    assert "who: user" in ended(notes.spawn("run", "notes.yaml"))


@pytest.mark.endurance
def test_only_the_redirect_of_the_login_counts(notes: CommandLine, server: NotesServer) -> None:
    [wait] = notes("run", "notes.yaml", code=4).ids
    approving = notes.spawn("approve", wait)
    link = link_of(approving)
    redirect = re.search(r"redirect_uri=http%3A%2F%2F127\.0\.0\.1%3A(\d+)", link)
    assert redirect
    for path, status in (("/callback?code=stolen&state=other", 400), ("/other", 404)):
        with pytest.raises(OSError, match=str(status)) as caught:
            visit(f"http://127.0.0.1:{redirect[1]}{path}")
        with closing(caught.value):  # type: ignore[type-var]
            assert approving.poll() is None
    visit(link)

    ended(approving)


@pytest.mark.endurance
def test_a_process_killed_while_it_waits_loses_nothing(
    notes: CommandLine, server: NotesServer
) -> None:
    gate = f"until [ -e {notes.folder}/go ]; do sleep 0.05; done"
    flow = Path("notes.yaml").read_text()
    step = "{id: who, call: notes.whoami}"
    hold = f"{{id: hold, run: '{gate}', effect: pure}}"
    flow = flow.replace(step, f"{{id: both, parallel: [{step}, {hold}]}}")
    notes.write("held.yaml", flow.partition("outputs:")[0])
    running = notes.spawn("run", "held.yaml", "--id", "held")
    until(lambda: bool(notes("--json", "approvals", "list").json()) or running.poll() is not None)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    [wait] = notes("--json", "approvals", "list").json()
    before = server.counts()["calls"]
    Path("go").touch()

    approving = notes.spawn("approve", wait["id"])
    visit(link_of(approving))

    ended(approving)
    assert server.counts()["calls"] == before + 1
    assert notes("--json", "show", "held").json()["status"] == "succeeded"
