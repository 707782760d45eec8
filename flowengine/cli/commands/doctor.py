"""`flowengine doctor`: the capabilities of this machine."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.terminal.output import out, out_json
from flowengine.cli.views.environments import examined

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
        found = manager.examine()
    if arguments.json:
        out_json(found)
    else:
        for line in examined(found):
            out(line)
    return 0
