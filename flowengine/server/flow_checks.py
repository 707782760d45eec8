"""Checks of flows that users of a server send as text, each in a process with limits.

A check can take long: schemas combine others any number of times, and a file can have thousands of
errors. In the process of the server, it would hold up all other requests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from flowengine.engines.flows import LoadedFlow

SECONDS = 10
"""Processor seconds of a check. In real time, it may take three times as long."""
_BYTES = 2 * 1024**3
"""Maximum address space of a check."""
_MOST_PROBLEMS = 1_000
"""Maximum errors and warnings in an answer."""
_LONGEST_REPORT = 100_000
_MOST_COMPILED = 64 * 1024**2
"""Maximum size of a compiled flow, whose text has at most 1 MiB."""
SHORT_WAIT = 1.0
"""Seconds that a check waits for those of others."""
LONG_WAIT = 60.0
"""The same before a deployment, which few users may make."""


class CheckedText(NamedTuple):
    """The result of a check."""

    errors: list[dict[str, Any]]
    """As `Diagnostic.as_dict` returns them."""
    report: str
    """The errors as text."""
    warnings: list[dict[str, Any]]
    flow: LoadedFlow | None
    """Compiled. None: it has errors."""


def check_text(
    text: str, name: str, folder: str, modules: Sequence[str], *, host: bool
) -> CheckedText:
    """Check and compile a flow.

    Args:
        text: The content of a flow file.
        name: Its name in errors.
        folder: The directory where its modules are searched first.
        modules: Patterns of the names of Python modules that it may name.
        host: Whether its tools may use the directory that its executions work in.

    Raises:
        RequestRefused: The check exceeds its limits (422).
    """
    from flowengine.engines.flows import LoadedFlow
    from flowengine.server.problems import RequestRefused

    given = {"text": text, "name": name, "folder": folder, "modules": [*modules], "host": host}
    data = msgpack.packb({**given, "seconds": SECONDS})
    command = [sys.executable, "-P", "-m", __name__]
    try:
        ended = subprocess.run(
            command, input=data, capture_output=True, timeout=3 * SECONDS, cwd="/", check=True
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        raise RequestRefused(
            422,
            f"the flow cannot be checked in {SECONDS} s",
            hint="look for schemas that combine others many times, and for very many errors",
        ) from None
    problems, report, compiled = msgpack.unpackb(ended.stdout, strict_map_key=False)
    warnings = [item for item in problems if item["code"].startswith("W")]
    errors = [item for item in problems if not item["code"].startswith("W")]
    flow = None if compiled is None else LoadedFlow(compiled[0], compiled[1], warnings)
    return CheckedText(errors, report, warnings, flow)


def _main() -> None:
    """Check the flow on standard input, and write the result to standard output."""
    import resource

    from flowengine.engines.flows import load_text
    from flowengine.errors import FlowFileError

    given = msgpack.unpackb(sys.stdin.buffer.read())
    seconds = given.pop("seconds")
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    report, compiled = "", None
    try:
        flow = load_text(**given)
        problems, compiled = flow.warnings, [flow.compiled, flow.form]
    except FlowFileError as error:
        problems = [diagnostic.as_dict() for diagnostic in error.diagnostics]
        report = error.message
    packed = msgpack.packb([problems[:_MOST_PROBLEMS], report[:_LONGEST_REPORT], compiled])
    if len(packed) > _MOST_COMPILED:
        sys.exit(1)
    sys.stdout.buffer.write(packed)


if __name__ == "__main__":
    _main()
