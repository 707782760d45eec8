"""Commands for the machine and the store: `doctor`, `prune`, `completion`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from itertools import chain

from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, many
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import out, out_json, out_result, out_text
from flowengine.cli.views.environments import examined
from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk.python.extras import models_missing
from flowengine.sdk.texts.visible_text import printable
from flowengine.store_folder import find_store, remote_store
from flowengine.worker.loop import are_reported


@command(
    "show supported and missing capabilities of this machine, and how limits are enforced",
    """\
flowengine doctor
flowengine doctor --json""",
)
def doctor_command(arguments: Namespace) -> None:
    """Probe every kind in every sandbox, without opening an environment.

    Returns:
        The exit code: 0, even if something is missing.
    """
    import tempfile

    with tempfile.TemporaryDirectory() as folder, EnvironmentManager(folder) as manager:
        probes = manager.examine()
    models = models_missing() or "models of providers can be called: litellm is installed"
    lines = chain(examined(probes), ["", printable(models)], _of_workers(arguments.store))
    out_result(arguments, probes, lines)


def _of_workers(named: str | None) -> Iterator[str]:
    """Yield how soon a worker notices that another process has written to the store, if any."""
    import os

    folder, _ = find_store(named or "")
    if remote_store(folder) is None and os.path.isdir(folder):
        how = "at once" if are_reported(folder) else "within a second: its files give no notice"
        yield ""
        yield printable(f"a worker notices writes to {folder} {how}")


@session_command(
    "delete executions that have ended, idle sessions of agents and past shared budgets",
    """\
flowengine prune
flowengine prune --older-than 7d --status succeeded""",
    arg(
        "--older-than DURATION",
        "only executions and periods of budgets that ended, or sessions idle, at least this "
        "long (default: 30d)",
        type=read.duration,
        default=30 * 86_400.0,
    ),
    many(
        "--status S",
        "only succeeded, failed or cancelled ones, no sessions",
        choices=["succeeded", "failed", "cancelled"],
    ),
)
def prune_command(session: CliSession, arguments: Namespace) -> None:
    """Delete them."""
    pruned = session.engine.executions.prune(
        older_than=arguments.older_than, status=arguments.status
    )
    if arguments.json:
        out_json(pruned._asdict())
    else:
        mib = pruned.bytes / (1024 * 1024)
        periods = f", {pruned.budgets} past periods of budgets" if pruned.budgets else ""
        out(
            f"deleted {pruned.executions} executions and {pruned.artifacts} files "
            f"({mib:.1f} MiB){periods}"
        )


@command(
    "print the script that makes a shell complete commands, options and ids",
    """\
eval "$(flowengine completion bash)"
flowengine completion zsh > ~/.zfunc/_flowengine
flowengine completion fish > ~/.config/fish/completions/flowengine.fish""",
    arg("shell", "bash, zsh or fish", choices=["bash", "zsh", "fish"]),
)
def completion_command(arguments: Namespace) -> None:
    """Print the code."""
    from argcomplete.shell_integration import shellcode

    out_text(shellcode(["flowengine"], shell=arguments.shell).strip())
