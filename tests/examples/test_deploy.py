# Shows V7
"""The command in `examples/deploy` exists, and stops within its time limit (V7)."""

from __future__ import annotations

import json
import re
import shlex
from argparse import Namespace
from pathlib import Path

from flowengine.cli.commands.serving import worker_command
from flowengine.cli.parsing.command_table import parser_of

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
UNIT = (DEPLOY / "flowengine-worker@.service").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def parsed(words: list[str]) -> Namespace:
    """Read the command line of a worker."""
    assert words[0] == "worker"
    return parser_of("worker", worker_command).parse_args(words[1:])


def setting(name: str) -> str:
    found = re.search(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    assert found, name
    return found[1]


def test_the_unit_runs_a_worker_and_waits_for_its_drain() -> None:
    program, *words = shlex.split(setting("ExecStart"))

    arguments = parsed(words)

    assert program.endswith("/flowengine")
    assert arguments.drain < int(setting("TimeoutStopSec"))
    assert (setting("KillSignal"), setting("Restart")) == ("SIGTERM", "always")


def test_the_image_runs_a_worker_that_answers_where_its_health_is_asked() -> None:
    entry, more = (
        json.loads(re.search(rf"^{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)[1])  # type: ignore[index]
        for name in ("ENTRYPOINT", "CMD")
    )

    arguments = parsed([*entry[1:], *more])

    host, port = arguments.http
    assert (host, f"http://127.0.0.1:{port}/healthz" in DOCKERFILE) == ("0.0.0.0", True)
    seconds = re.search(r"docker stop --time(?:out)? (\d+)", DOCKERFILE)
    assert seconds
    assert arguments.drain < int(seconds[1])
