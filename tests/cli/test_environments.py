# Shows E104
"""`flowengine envs`: open and leftover environments, and the abilities of this machine (E104)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.execution_environment import (
    EnvironmentManager,
    register_provider,
    unregister_provider,
)
from flowengine.sdk.environments import VARIABLE
from flowengine.sdk.processes import marked
from flowengine_envs.kinds.files import Files, Folder
from tests.cli.conftest import CommandLine, also_served
from tests.execution_environment.painted import PNG, holding
from tests.own_environments import environments_in

LIST = """\
ID     NAME      KIND      BY        SCOPE    OWNER  STATE   PROCESS  SINCE
MINE   notes     files     files     session  ana    ready   HERE     TIME
MINE   stuck     stubborn  stubborn  session  ana    failed  HERE     TIME
LEFT   analysis  bash      host      session  ben    left    THERE    TIME
"""
SHOW = """\
analysis  LEFT
  kind        bash by host
  scope       session ben
  state       left since TIME
  generation  1
  process     THERE on NODE, which is dead
  workspace   FOLDER
  pids        PIDS
"""
CHILD = """
import sys
from flowengine.execution_environment import EnvironmentManager
manager = EnvironmentManager(sys.argv[1])
spec = {"kind": "bash", "provider": "host", "scope": "session", "owner_id": "ben",
        "resource_key": "analysis", "config": {"env": {"KEY": "SEKRET"}}}
print(manager.ensure(spec).id, flush=True)
sys.stdin.readline()
"""


class Stubborn(Files):
    """A folder that fails to close."""

    kind = "stubborn"

    async def release(self, resource: Folder) -> None:
        raise OSError("no")


@pytest.fixture
def folder(flowengine: CommandLine, hello: Path) -> Path:
    flowengine("-q", "run", hello)
    return environments_in(flowengine.folder / ".flowengine")


@pytest.fixture
def mine(folder: Path) -> Iterator[EnvironmentManager]:
    """Two environments of this process: one is open, one could not be closed."""
    register_provider(Stubborn())
    manager = EnvironmentManager(folder)
    whose = {"scope": "session", "owner_id": "ana"}
    manager.ensure({"kind": "files", "resource_key": "notes", **whose})
    manager.release(manager.ensure({"kind": "stubborn", "resource_key": "stuck", **whose}))
    yield manager
    manager.close()
    unregister_provider("stubborn")


@pytest.fixture
def left(folder: Path) -> Iterator[str]:
    """The ID of an environment whose process was killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    id = child.stdout.readline().strip()
    child.kill()
    child.communicate()
    assert id
    yield id
    with EnvironmentManager(folder) as manager:
        manager.reap()


def golden(text: str, left: str) -> str:
    """Replace values that vary between runs."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = text.replace(left, "LEFT").replace(os.uname().nodename, "NODE")
    text = re.sub(r"\b[0-9a-f]{12}-\d+", "MINE", text)
    text = re.sub(r"(?m)^(  pids +)[\d, ]+$", r"\1PIDS", text)
    text = re.sub(r"(workspace   ).*", r"\1FOLDER", text)
    text = re.sub(r"  groups  .*\n", "", text)  # present if the machine has control groups
    text = re.sub(rf"\b{os.getpid()}\b", "HERE", text)
    text = re.sub(r"(left +|process +)\d+", r"\1THERE", text)
    return re.sub(r"(?m) +$", "", text)


def words(text: str) -> list[list[str]]:
    """Return the words of each line, because column widths depend on the IDs."""
    return [line.split() for line in text.splitlines()]


def processes(id: str) -> list[int]:
    return [pid for pid, mark in marked(VARIABLE).items() if mark.startswith(f"{id}@")]


# Shows E89
def test_two_kinds_in_three_states_are_listed_and_shown(
    mine: EnvironmentManager, left: str, flowengine: CommandLine
) -> None:
    assert words(golden(flowengine("envs", "list").out, left)) == words(LIST)
    assert golden(flowengine("envs", "show", "analysis").out, left) == SHOW
    assert flowengine("envs", "show", left[:8]).out == flowengine("envs", "show", left).out

    found = flowengine("--json", "envs", "list").json()
    assert [(one["resource_key"], one["state"], one["alive"]) for one in found] == [
        ("notes", "ready", True),
        ("stuck", "failed", True),
        ("analysis", "ready", False),
    ]
    assert flowengine("--json", "envs", "show", "analysis").json() == found[2]
    assert "SEKRET" not in json.dumps(found)


@pytest.mark.endurance
def test_what_was_left_open_is_released_and_what_lives_is_not(
    mine: EnvironmentManager, left: str, flowengine: CommandLine
) -> None:
    refused = flowengine("envs", "release", "notes", code=7)
    assert f"process {os.getpid()}" in refused.err
    assert "--force" in refused.err

    done = flowengine("envs", "release", "analysis")
    assert done.out == f"ended analysis ({left})\n"
    assert processes(left) == []
    assert flowengine("envs", "release", "analysis", code=9).err.startswith("error: no environment")
    names = {one["resource_key"] for one in flowengine("--json", "envs", "list").json()}
    assert names == {"notes", "stuck"}


@pytest.mark.endurance
@also_served
def test_force_takes_it_from_a_process_that_lives(
    mine: EnvironmentManager, flowengine: CommandLine
) -> None:
    spec = {"kind": "bash", "provider": "host", "scope": "session", "resource_key": "shell"}
    handle = mine.ensure(spec)

    flowengine("envs", "release", "shell", "--force")

    assert processes(handle.id) == []
    again = mine.ensure(spec)
    assert again.resource is not handle.resource
    assert again.resource.run("echo back").stdout == "back\n"


@pytest.mark.endurance
def test_reaping_ends_all_that_is_dead_and_nothing_that_lives(
    mine: EnvironmentManager, left: str, flowengine: CommandLine
) -> None:
    assert f"ended environment analysis ({left})" in flowengine("envs", "release", "--all").out
    assert processes(left) == []
    assert flowengine("envs", "release", "--all").err == "nothing was left open\n"
    assert flowengine("--json", "envs", "release", "--all").json() == []
    assert mine.list(state="ready")


@also_served
def test_hostile_text_in_the_registry_moves_no_cursor(
    folder: Path, flowengine: CommandLine
) -> None:
    with EnvironmentManager(folder) as manager:
        key = "evil\x1b[2J\nname"
        manager.ensure({"kind": "files", "scope": "session", "owner_id": key})
        (folder / "entries" / "garbage.json").write_text("{")
        out = flowengine("envs", "list").out

    assert "\x1b" not in out
    assert len(out.splitlines()) == 2


def test_the_doctor_says_what_is_here_and_what_mends_the_rest(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It needs no store, and opens nothing."""
    monkeypatch.setattr("flowengine_envs.sandboxes.namespace.PATH", str(tmp_path))
    monkeypatch.setattr("flowengine_envs.sandboxes.processes.PATH", str(tmp_path))
    (tmp_path / "python3").symlink_to(sys.executable)

    text = flowengine("doctor").out

    assert re.search(r"^python +namespace +no +-$", text, re.MULTILINE)
    assert re.search(r"^python +host +yes +none$", text, re.MULTILINE)
    assert not re.search(r"^docker +(host|namespace)", text, re.MULTILINE)
    for missing in ("no node, required is 18 or newer: apt-get install nodejs", "no tmux: apt-get"):
        assert missing in text
    assert re.search(r"^sqlite +sqlite +yes +none$", text, re.MULTILINE)
    assert "apt-get install bubblewrap" in text
    held = text.partition("enforced for sqlite by sqlite:\n")[2]
    assert held.splitlines()[0] == "  disk         largest number of pages"
    assert not (tmp_path / ".flowengine").exists()


@also_served
# Shows E91
def test_what_could_not_be_closed_is_told_and_shown(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "it.yaml",
        "flowengine: 1\nid: it\nenvironments: {notes: {kind: stubborn}}\n"
        'steps: [{id: a, python: "things:look", environments: [notes]}]\n',
    )
    flowengine.write("things.py", "def look(notes): return notes.list()\n")
    register_provider(Stubborn())
    try:
        told = flowengine("run", flow).err
    finally:
        unregister_provider("stubborn")
    warning = "environment 'notes' could not be closed (OSError). "
    assert f"warning: {warning}" in told
    execution = flowengine.newest()
    shown = flowengine("--json", "show", execution).json()
    assert shown["status"] == "succeeded"
    assert [one["message"][: len(warning)] for one in shown["warnings"]] == [warning]
    assert f"warnings\n  {warning}" in flowengine("show", execution).out


@pytest.mark.endurance
@also_served
# Shows V56
def test_an_open_one_is_looked_into(
    folder: Path, flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holding(folder) as holder:
        file = flowengine.folder / "page.png"

        shown = flowengine("envs", "show", "canvas", "--look", "--picture", file).out

        assert shown.splitlines() == [
            "address  http://host/?***",
            "title    key ***",
            f"picture  1 KiB, {file}",
            f"in process {holder.pid}",
        ]
        assert file.read_bytes() == PNG
        found = flowengine("--json", "envs", "show", "canvas", "--look").json()
        assert found["screen"]["picture"] == b64encode(PNG).decode()
        told = flowengine(
            "envs", "show", "canvas", "--look", "--picture", "/dev/null/file", code=2
        ).err
        assert "/dev/null/file cannot be written: /dev/null is not a directory" in told
        flowengine("envs", "show", "nothing", "--look", code=9)
        holder.kill()
        holder.wait()
        told = flowengine("envs", "show", "canvas", "--look", code=7).err
        assert f"left open by process {holder.pid}, which has ended" in told
