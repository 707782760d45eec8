"""Each command once in a separate process, while most other tests call them in their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.cli.parsing.command_table import COMMANDS
from tests.cli.conftest import HELLO, REFUND
from tests.command_line import PROGRAM, flowengine
from tests.replacing import patches_everywhere

ENDS = {
    "run": ("hello.yaml", 0),
    "chat": ("hello.yaml", 3),
    "resume": ("EXECUTION", 4),
    "signal": ("EXECUTION paid", 3),
    "cancel": ("EXECUTION", 0),
    "retry": ("done", 7),
    "fork": ("done --from-step greet", 0),
    "upgrade": ("hello.yaml", 0),
    "move": ("--to other EXECUTION", 0),
    "worker": ("--concurrency none", 2),
    "deploy": ("hello.yaml", 0),
    "flows list": ("", 0),
    "flows show": ("none", 9),
    "flows schedule": ("none --pause", 9),
    "serve": ("--host 0.0.0.0", 2),
    "tokens create": ("ci", 0),
    "tokens list": ("", 0),
    "tokens revoke": ("none", 9),
    "approvals list": ("", 0),
    "grants": ("", 0),
    "budgets": ("", 0),
    "logins": ("", 0),
    "approvals assign": ("WAIT --to user:ben", 0),
    "decide": ("WAIT later", 0),
    "approve": ("WAIT --form cost_center=4711", 0),
    "reject": ("WAIT --comment no", 0),
    "list": ("", 0),
    "show": ("done", 0),
    "why": ("done", 0),
    "events": ("done", 0),
    "diff": ("done done", 0),
    "graph": ("hello.yaml", 0),
    "files": ("EXECUTION", 0),
    "sessions list": ("", 0),
    "sessions show": ("none", 9),
    "sessions branch": ("none other", 9),
    "sessions end": ("none", 9),
    "envs list": ("", 0),
    "envs show": ("none", 9),
    "envs shell": ("hello.yaml", 2),
    "envs release": ("none", 9),
    "doctor": ("", 0),
    "init": ("", 0),
    "check": ("hello.yaml", 0),
    "test": ("hello.yaml", 9),
    "eval": ("hello.yaml", 3),
    "prune": ("--older-than 1d", 0),
    "completion": ("bash", 0),
}
"""Arguments and exit code for each command."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a store that contains an ended execution."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "hello.yaml").write_text(HELLO)
    (folder / "refund.yaml").write_text(REFUND)
    with patches_everywhere() as patch:
        patch.chdir(folder)
        assert flowengine("run", "hello.yaml", "--id", "done").code == 0
        yield folder


def test_each_command_is_in_the_table() -> None:
    assert set(ENDS) == set(COMMANDS)


@pytest.mark.endurance
@pytest.mark.parametrize("command", COMMANDS)
def test_it_runs(command: str, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    more, code = ENDS[command]
    if "EXECUTION" in more or "WAIT" in more:
        run = flowengine("--json", "run", "refund.yaml", "-i", "amount=1").json()
        more = more.replace("EXECUTION", run["execution"]).replace("WAIT", run["waits"][0]["id"])

    done = subprocess.run(
        [PROGRAM, *command.split(), *more.split()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
