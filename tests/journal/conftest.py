from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `child.py` with a command. Processes still running at the end are killed."""
    children: list[subprocess.Popen[str]] = []

    def run(command: str, *arguments: object) -> subprocess.Popen[str]:
        script = Path(__file__).with_name("child.py")
        child = subprocess.Popen(
            [sys.executable, script, command, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        children.append(child)
        return child

    yield run
    for child in children:
        with child:
            child.kill()
