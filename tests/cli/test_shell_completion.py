# Shows F5
"""Ids and steps are completed in the shells themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.test_terminal import Terminal
from tests.command_line import PROGRAM

SHELLS = {
    "bash": (["bash", "--noprofile", "--norc", "-i"], 'eval "$(flowengine completion bash)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -Uz compinit; compinit -u -D; eval "$(flowengine completion zsh)"',
    ),
    "fish": (["fish", "--no-config", "-i"], "flowengine completion fish | source"),
}
"""Shell → the command that starts it, and what its user writes into its settings."""


ON_TERMINAL = "import os, sys; os.login_tty(0); os.execvp(sys.argv[1], sys.argv[1:])"


class ShellTerminal(Terminal):
    """A terminal with an interactive shell in it."""

    def start(self, words: Sequence[str], folder: Path, env: Mapping[str, str], slave: int) -> Any:
        env = {**env, "PATH": f"{Path(PROGRAM).parent}:{env['PATH']}", "TERM": "dumb"}
        return subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL, *words], cwd=folder, env=env, stdin=slave
        )


@pytest.fixture(params=SHELLS)
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    shell: str = request.param
    if which(shell) is None:
        pytest.skip(f"no {shell}: apt-get install {shell}")
    command, settings = SHELLS[shell]
    with closing(ShellTerminal(tmp_path, *command)) as terminal:
        terminal.type(f"{settings}; echo rea''dy\n")
        terminal.expect("ready")
        yield terminal


@pytest.mark.wherever("terminal")
def test_ids_of_approvals_and_steps_of_executions_complete(
    terminal: Terminal, flowengine: CommandLine, refund: Path
) -> None:
    [wait] = flowengine("run", refund, "-i", "amount=80", "--id", "order-7", code=4).ids

    terminal.type(f"flowengine approve {wait[:1]}\t")
    terminal.expect(f"approve {wait}")
    terminal.type("\x15flowengine why order\t")
    terminal.expect("why order-7")
    terminal.type("\x15flowengine retry order-7 --step as\t")
    terminal.expect("--step ask")
