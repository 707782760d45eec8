"""`flowengine envs`: environments that are open, were left open, or are missing."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, flag, many, one_of, section
from flowengine.cli.sandbox_shell import run_lines, talk
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import (
    err,
    first_line,
    is_terminal,
    out,
    out_json,
    out_result,
    writing,
)
from flowengine.cli.views.environments import NAME, details, rows
from flowengine.engines.declared_environments import DeclaredEnvironments
from flowengine.engines.infos import ScreenInfo
from flowengine.engines.inspection.open_environments import failures
from flowengine.errors import UsageError
from flowengine.sdk.texts.visible_text import printable


@session_command(
    "list environments that are open, were left open, or are missing",
    """\
flowengine envs list
flowengine envs list 01k8xq3zn3m0""",
    arg("execution ID", "only those of this execution (default: all)", nargs="?"),
)
def envs_list_command(session: CliSession, arguments: Namespace) -> None:
    environments = session.engine.open_environments(arguments.execution)
    out_result(arguments, environments, rows(environments), "no environments are open")


@session_command(
    "show an environment: its sandbox, start time and processes, or its screen (--look)",
    """\
flowengine envs show analysis
flowengine envs show box --look
flowengine envs show browser --look --picture page.png""",
    arg("environment NAME", NAME),
    flag("--look", "instead, what its browser or terminal shows at the moment"),
    section(
        "with --look",
        arg(
            "--picture FILE",
            "write the picture of a browser's window to this file, as PNG",
            type=Path,
        ),
    ),
)
def envs_show_command(session: CliSession, arguments: Namespace) -> None:
    if arguments.look:
        return _look(session, arguments)
    environment = session.engine.open_environment(arguments.environment)
    out_result(arguments, environment, details(environment))


def _look(session: CliSession, arguments: Namespace) -> None:
    """Ask the process that has it open, and print the answer."""
    screen = session.engine.look_into_environment(arguments.environment)
    file: Path | None = arguments.picture
    if file is not None:
        from base64 import b64decode

        if "picture" not in screen["screen"]:
            raise UsageError(f"{screen['environment']} has no picture", hint="leave out --picture")
        with writing(file):
            file.write_bytes(b64decode(screen["screen"]["picture"]))
    out_result(arguments, screen, _lines(screen, file))


def _lines(found: ScreenInfo, file: Path | None) -> Iterator[str]:
    screen = found["screen"]
    for name in ("address", "title"):
        if name in screen:
            yield f"{name:8} {first_line(screen[name], 500)}"
    if "picture" in screen:
        size = len(screen["picture"]) * 3 // 4 // 1024 + 1
        where = printable(str(file)) if file is not None else "with --picture FILE"
        yield f"picture  {size} KiB, {where}"
    yield from (printable(line) for line in screen.get("text", "").splitlines())


@command(
    "run commands in the shell of a flow's environment: typed, or from a pipe",
    """\
flowengine envs shell build.yaml box
flowengine envs shell build.yaml box --arg python=3.13
printf 'make\\nmake test\\n' | flowengine envs shell build.yaml box""",
    arg("file FILE", "the flow file that declares it"),
    arg("name NAME", "an environment of kind shell (default: the only one)", nargs="?"),
    many("--arg NAME=VALUE", "an argument of the environment", type=read.assignment),
    many(
        "-i --input NAME=VALUE|@FILE",
        "an input that its declaration refers to",
        type=read.given_input,
    ),
)
def envs_shell_command(arguments: Namespace) -> int:
    """Open the environment, run the commands, and close it.

    An `approval` of the environment is not requested: the user who runs the command consents.

    Returns:
        The exit code of the last command.

    Raises:
        UsageError: The environment takes no such argument.
        FlowEngineError: It cannot be opened.
    """
    import os

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
        try:
            with ExitStack() as stack:
                with failures():
                    shell = stack.enter_context(manager.use(spec, holder="envs shell"))
                if is_terminal(sys.stdin) and is_terminal(sys.stdout) and not arguments.json:
                    return talk(shell, name)

                return run_lines(shell, as_json=arguments.json)
        finally:
            manager.release_scope("execution", owner)


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


@session_command(
    "end an environment that was left open, or all that dead processes left open",
    """\
flowengine envs release analysis
flowengine envs release analysis --force
flowengine envs release --all""",
    arg("environment NAME", NAME, nargs="?"),
    one_of(
        flag("--force", "end it even if the process that opened it is alive"),
        flag("--all", "end all environments that dead processes left open"),
    ),
)
def envs_release_command(session: CliSession, arguments: Namespace) -> int:
    if (arguments.environment is None) != arguments.all:
        raise UsageError("name an environment, or give --all", hint="see: flowengine envs list")
    if arguments.all:
        return _reap(session, arguments)
    released = session.engine.release_environment(arguments.environment, force=arguments.force)
    if arguments.json:
        out_json(released)
    elif "error" in released:
        err(f"{released['id']} could not be ended: {released['error']}")
        err("  see: flowengine doctor")
    else:
        out(f"ended {released['resource_key']} ({released['id']})")
    return 1 if "error" in released else 0


def _reap(session: CliSession, arguments: Namespace) -> int:
    """End what dead processes left open, and return the exit code."""
    with failures():
        reaped = session.engine.environments.reap()
    failed = any("error" in outcome for outcome in reaped)
    if arguments.json:
        out_json(reaped)
        return 1 if failed else 0
    for outcome in reaped:
        name = outcome.get("resource_key")
        which = f"{name} ({outcome['id']})" if name else outcome.get("id") or outcome.get("path")
        if "error" in outcome:
            err(f"{outcome['what']} {which} could not be ended: {outcome['error']}")
        else:
            done = "set aside" if outcome["what"] == "damaged entry" else "ended"
            out(f"{done} {outcome['what']} {which}")
    if not reaped:
        err("nothing was left open")
    return 1 if failed else 0
