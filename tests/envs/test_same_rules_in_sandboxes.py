# Shows E39
"""Rules that python, bash and node share, in every sandbox (E41)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from flowengine.sdk.environments import Sandbox
from tests.envs.enough import enough


class Way(NamedTuple):
    """Code of one kind for the shared tests."""

    variables: str
    """Prints the names of its variables, one per line."""
    sleep: Callable[[str], str]
    """Prints `begun`, starts a command twice, once in a new session, and waits."""


WAYS = {
    "python": Way(
        "import os\nprint(*os.environ, sep='\\n')",
        lambda nap: (
            "import subprocess\nprint('begun', flush=True)\n"
            f"subprocess.Popen(['setsid', *{nap.split()}])\nsubprocess.run({nap.split()})"
        ),
    ),
    "bash": Way("env | cut -d= -f1", lambda nap: f"echo begun; setsid {nap} & {nap}"),
    "node": Way(
        "console.log(Object.keys(process.env).join('\\n'))",
        lambda nap: (
            "const { spawn, spawnSync } = require('node:child_process'); console.log('begun');"
            f"spawn('setsid', {nap.split()}); spawnSync('sh', ['-c', '{nap}'])"
        ),
    ),
}
FIXED = {"PATH", "HOME", "LANG", "HOSTNAME", "DECLARED"}
"""Variables that are always present or declared by the spec."""
OF_SHELLS = {"PWD", "SHLVL", "_", "OLDPWD"}


def begun(resource: Any, name: str) -> float:
    """Return a number of seconds within which code starts, under the machine's current load."""
    return enough(lambda: resource.run(WAYS[name].variables), least=0.5)


@pytest.fixture(params=WAYS)
def kind(request: pytest.FixtureRequest, sandbox: type[Sandbox]) -> tuple[str, Any]:
    return request.param, request.getfixturevalue(request.param)


@pytest.mark.endurance
# Shows S41, S41b
def test_no_variable_is_there_that_was_not_declared(
    kind: tuple[str, Any], sandbox: type[Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, resource = kind
    monkeypatch.setenv("SECRET", "1")

    names = set(resource.run(WAYS[name].variables).stdout.split())

    # On the host, programs carry the mark that identifies a dead engine's processes.
    mark = {"FLOWENGINE_ENVIRONMENT"} if sandbox.name == "host" else set()
    assert {"PATH", "HOME", "LANG"} <= names <= FIXED | OF_SHELLS | mark


@pytest.mark.endurance
def test_time_is_bounded_and_all_that_was_started_ends(kind: tuple[str, Any]) -> None:
    name, resource = kind
    nap = f"sleep 1077.{uuid.uuid4().int}"

    result = resource.run(WAYS[name].sleep(nap), timeout=begun(resource, name))

    assert "imeout" in str(getattr(result, "error", "")) or result.timed_out
    assert result.stdout == "begun\n"
    look = {
        "python": "import glob\n''.join(open(p, errors='ignore').read().replace('\\0', ' ') "
        "for p in glob.glob('/proc/[0-9]*/cmdline') if __import__('os').path.exists(p))",
        "bash": "cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
        "node": "return require('node:child_process').execSync("
        '\'cat /proc/[0-9]*/cmdline | tr "\\\\0" " " || true\').toString()',
    }[name]
    assert nap not in str(resource.run(look))
