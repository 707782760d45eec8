"""`flowengine envs shell`: run commands typed here in the shell of a sandbox."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from flowengine.cli.parsing import arguments as read
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import is_terminal
from flowengine.engines.inspection.open_environments import failures
from flowengine.errors import NotAllowed, UsageError

HELP = "run commands in the shell of a flow's environment: typed, or from a pipe"
EXAMPLE = """\
flowengine envs shell build.yaml box
flowengine envs shell build.yaml box --arg python=3.13
printf 'make\\nmake test\\n' | flowengine envs shell build.yaml box"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE", help="the flow file that declares it")
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="an environment of kind shell (default: the only one)",
    )
    parser.add_argument(
        "--arg",
        metavar="NAME=VALUE",
        action="append",
        type=read.assignment,
        default=[],
        help="an argument of the environment (may be repeated)",
    )
    parser.add_argument(
        "-i",
        "--input",
        metavar="NAME=VALUE|@FILE",
        action="append",
        type=read.given_input,
        default=[],
        help="an input that its declaration refers to (may be repeated)",
    )


def run(arguments: Namespace) -> int:
    """Open the environment, run the commands, and close it.

    Returns:
        The exit code of the last command.

    Raises:
        UsageError: The environment takes no such argument, or needs an approval without a terminal.
        NotAllowed: The approval was denied.
        FlowEngineError: It cannot be opened.
    """
    import os

    from flowengine.engines.declared_environments import DeclaredEnvironments

    declared = DeclaredEnvironments(arguments.file)
    name = declared.find("shell", arguments.name)
    args = read.assigned(declared.args(name), arguments.arg, "argument")
    if unknown := next(
        (argument for argument in args if argument not in declared.args(name)), None
    ):
        known = ", ".join(declared.args(name)) or "none"
        raise UsageError(f"'{name}' takes no argument '{unknown}'", hint=f"arguments: {known}")
    inputs = read.inputs(declared.inputs, arguments.input)
    owner = f"shell-{os.urandom(4).hex()}"
    with _ended_in_order(), CliSession(arguments, make=arguments.file) as session:
        manager = session.engine.environments
        spec = declared.spec(name, args, inputs, owner, manager)
        if (
            "approval" in spec
        ):  # only possible now, without an execution that could wait and be resumed
            _check_terminal(name)
        try:
            with _opened(manager.use(spec, holder="envs shell")) as shell:
                if is_terminal(sys.stdin) and is_terminal(sys.stdout) and not arguments.json:
                    from flowengine.cli.sandbox_shell.terminal import talk

                    return talk(shell, name)
                from flowengine.cli.sandbox_shell.script import run_lines

                return run_lines(shell, as_json=arguments.json)
        finally:
            manager.release_scope("execution", owner)


@contextmanager
def _opened(use: AbstractContextManager[Any]) -> Iterator[Any]:
    """Open the environment, and close it at the end.

    Raises:
        NotAllowed: The approval was denied.
        FlowEngineError: It cannot be opened. The message contains the reason.
    """
    from flowengine.sdk import Refused, Rejected

    with ExitStack() as stack:
        try:
            with failures():
                shell = stack.enter_context(use)
        except (Rejected, Refused) as error:
            raise NotAllowed(error.message) from None
        yield shell


def _check_terminal(name: str) -> None:
    """Refuse an environment that needs an approval if the command has no terminal."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise UsageError(
            f"opening '{name}' needs an approval, and there is no terminal to ask at",
            hint="run it at a terminal without a pipe, and answer the question there",
        )


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Close the environment when a signal ends this process or its terminal is closed."""
    import signal

    before = {
        number: signal.signal(number, lambda number, _: sys.exit(128 + number))
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
