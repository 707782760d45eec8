"""`flowengine doctor`: the capabilities of this machine."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from flowengine.cli.terminal.output import out, out_json
from flowengine.cli.views.environments import examined
from flowengine.sdk.visible_text import printable

HELP = "show supported and missing capabilities of this machine, and how limits are enforced"
EXAMPLE = """\
flowengine doctor
flowengine doctor --json"""


def configure(parser: ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: Namespace) -> int:
    """Probe every kind in every sandbox, without opening an environment.

    Returns:
        The exit code: 0, even if something is missing.
    """
    import tempfile

    from flowengine.execution_environment import EnvironmentManager

    with tempfile.TemporaryDirectory() as folder, EnvironmentManager(folder) as manager:
        probes = manager.examine()
    if arguments.json:
        out_json(probes)
    else:
        for line in (*examined(probes), *_of_workers(arguments.store)):
            out(line)
    return 0


def _of_workers(named: str | None) -> Iterator[str]:
    """Yield how soon a worker notices that another process has written to the store, if any."""
    import os

    from flowengine.store_folder import find_store, remote_store
    from flowengine.worker.wakeups import are_reported

    folder, _ = find_store(named or "")
    if remote_store(folder) is None and os.path.isdir(folder):
        how = "at once" if are_reported(folder) else "within a second: its files give no notice"
        yield ""
        yield printable(f"a worker notices writes to {folder} {how}")
