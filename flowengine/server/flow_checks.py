"""Checks of flows that users of a server send as text, each in a process with limits.

A check can take long: schemas combine others any number of times, and a file can have thousands of
errors. In the process of the server, it would hold up all other requests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

SECONDS = 10
"""Processor seconds of a check. In real time, it may take three times as long."""
_BYTES = 2 * 1024**3
"""Maximum address space of a check."""
_MOST_PROBLEMS = 1_000
"""Maximum errors and warnings in an answer."""
SHORT_WAIT = 1.0
"""Seconds that a check waits for those of others."""
LONG_WAIT = 60.0
"""The same before a deployment, which few users may make."""


def check_text(text: str, name: str, folder: str, modules: Sequence[str]) -> Mapping[str, Any]:
    """Check a flow.

    Args:
        text: The content of a flow file.
        name: Its name in errors.
        folder: The directory where its modules are searched first.
        modules: Patterns of the names of Python modules that it may name.

    Returns:
        `{errors, warnings, flow}`. `flow` is the id of a flow without errors.

    Raises:
        RequestRefused: The check exceeds its limits (422).
    """
    from flowengine.server.problems import RequestRefused

    given = {"text": text, "name": name, "folder": folder, "modules": [*modules]}
    data = json.dumps({**given, "seconds": SECONDS}).encode()
    command = [sys.executable, "-P", "-m", __name__]
    try:
        ended = subprocess.run(
            command, input=data, capture_output=True, timeout=3 * SECONDS, cwd="/", check=False
        )
        answer: Mapping[str, Any] = json.loads(ended.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        raise RequestRefused(
            422,
            f"the flow cannot be checked in {SECONDS} s",
            hint="look for schemas that combine others many times, and for very many errors",
        ) from None
    return answer


def _main() -> None:
    """Check the flow on standard input, and write the result to standard output."""
    import resource

    from flowengine.engines.flows import load_text
    from flowengine.errors import FlowFileError

    given = json.load(sys.stdin.buffer)
    seconds = given["seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    try:
        flow = load_text(
            given["text"], name=given["name"], folder=given["folder"], modules=given["modules"]
        )
        problems, id = [*flow.warnings], flow.id
    except FlowFileError as error:
        problems, id = [diagnostic.as_dict() for diagnostic in error.diagnostics], None
    problems = problems[:_MOST_PROBLEMS]
    warnings = [item for item in problems if item["code"].startswith("W")]
    errors = [item for item in problems if not item["code"].startswith("W")]
    json.dump({"errors": errors, "warnings": warnings, "flow": id}, sys.stdout)


if __name__ == "__main__":
    _main()
