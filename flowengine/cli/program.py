"""Finds the command that is called, imports only that one, and runs it.

A command is a module of `flowengine.cli.commands` with `HELP` (one line), `EXAMPLE` (lines to
paste), `configure(parser)` and `run(arguments) -> exit code`. Options of the program may stand
before or behind the command.
"""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn, Protocol, cast

from flowengine.cli.ending import Ending
from flowengine.cli.output import (
    Colours,
    OutputLost,
    err,
    err_text,
    flush,
    out_json,
    out_text,
    paint,
)
from flowengine.cli.results import results, results_apart
from flowengine.errors import FlowEngineError, FlowFileError, NotFound, UsageError

GROUPS: dict[str, dict[str, str]] = {
    "Run": {
        "run": "run",
        "resume": "resume",
        "signal": "signal",
        "cancel": "cancel",
        "retry": "retry",
        "fork": "fork",
        "upgrade": "upgrade",
    },
    "Decide": {
        "approvals list": "approvals_list",
        "approvals show": "approvals_show",
        "approvals approve": "approve",
        "approvals reject": "reject",
        "approvals decide": "decide",
        "approvals claim": "approvals_claim",
        "approvals release": "approvals_release",
        "approvals delegate": "approvals_delegate",
        "approve": "approve",
        "reject": "reject",
    },
    "Inspect": {
        "list": "list",
        "show": "show",
        "why": "why",
        "events": "events",
        "diff": "diff",
        "graph": "graph",
    },
    "Environments": {
        "envs list": "envs_list",
        "envs show": "envs_show",
        "envs shell": "envs_shell",
        "envs release": "envs_release",
        "envs reap": "envs_reap",
        "envs doctor": "envs_doctor",
    },
    "Authoring": {"init": "init", "check": "check", "test": "test", "schema": "schema"},
    "Maintenance": {"prune": "prune", "completion": "completion"},
}
COMMANDS = {words: module for group in GROUPS.values() for words, module in group.items()}
"""The words of each command → its module."""
FAMILIES = {words.split()[0] for words in COMMANDS if " " in words}
"""First words that are no command by themselves."""

TALKING = {"envs shell"}
"""Commands that pass on what a sandbox writes, and run nothing of the user's in this process."""

WIDEST = 100
INTERRUPTED = 130
PIPE_CLOSED = 141


class Command(Protocol):
    """What the module of a command offers."""

    HELP: str
    """What it does, in one line."""
    EXAMPLE: str
    """Lines to paste."""

    def configure(self, parser: ArgumentParser) -> None:
        """Add its arguments."""

    def run(self, arguments: Namespace) -> int:
        """Do it, and return the exit code."""


class Formatter(RawDescriptionHelpFormatter):
    """Help as wide as the terminal, up to a width that reads well.

    Args:
        prog: Of the parser.
    """

    def __init__(self, prog: str) -> None:
        # Left to itself, argparse imports shutil and with it three compression libraries; and it
        # makes a formatter for every argument that is added.
        super().__init__(prog, width=_width())


class Parser(ArgumentParser):
    """An argument parser whose errors are raised, with the option that was probably meant."""

    def print_help(self, file: Any = None) -> None:
        """Print the help as a result."""
        out_text(self.format_help().rstrip("\n"))

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with the command line.

        Args:
            message: Of argparse.

        Raises:
            UsageError: Always.
        """
        told, _, rest = message.partition("unrecognized arguments: ")
        if rest and not told:
            message = f"unknown argument {rest}"
            close = _closest(rest.split()[0].partition("=")[0], list(self._option_string_actions))
            if close:
                raise UsageError(message, hint=f"did you mean {close}?")
        raise UsageError(message, hint=f"see: {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: The words behind the program's name. Default: those of this process.

    Returns:
        The exit code.
    """
    if "_ARGCOMPLETE" in os.environ:
        from flowengine.cli.completing import complete

        complete()
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _ended(words)
        flush()
    except BrokenPipeError:  # whoever read the results has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), results().fileno())
        return PIPE_CLOSED
    except OutputLost as error:
        return _report(error, as_json=False)
    with suppress(OSError, ValueError):  # here steps print, and nobody may read it
        sys.stdout.flush()
    return code


def _ended(words: list[str]) -> int:
    """Run a command line, say what went wrong, and return the exit code."""
    try:
        return _run(words)
    except OutputLost:
        raise
    except FlowEngineError as error:
        return _report(error, as_json="--json" in words)
    except KeyboardInterrupt as error:
        err(f"interrupted; {error}" if str(error) else "interrupted")
        return INTERRUPTED


def _run(words: list[str]) -> int:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(word).decode(errors="backslashreplace")
            raise UsageError(f"the argument '{shown}' is not valid UTF-8") from None
    at = _command_at(words)
    Colours.allowed = "--no-color" not in words
    if at is None:
        return _run_without_command(words)
    name = words[at]
    rest = [*words[:at], *words[at + 1 :]]
    if name in FAMILIES:
        further = _command_at(rest, at)
        if further is None:
            out_text(help_of_family(name).rstrip("\n"))
            return 0 if {"-h", "--help"} & set(rest) else UsageError.exit_code
        name = f"{name} {rest.pop(further)}"
    if name not in COMMANDS:
        raise _unknown(name)
    command = load(name)
    parser = parser_of(name, command)
    add_common(parser)
    try:
        arguments = parser.parse_args(rest)
    except SystemExit:  # it has printed its help
        return 0
    if arguments.log_level:
        from flowengine.cli.logs import show_logs

        show_logs(arguments.log_level)
    _check_folder()
    if name in TALKING:
        return command.run(arguments)
    with results_apart(restore=not Ending.at_once):
        return command.run(arguments)


def _check_folder() -> None:
    """Check that the current folder is there: paths are relative to it."""
    try:
        os.getcwd()
    except OSError as error:
        hint = "change to a folder that exists: cd"
        raise NotFound(f"the current folder cannot be used: {error.strerror}", hint=hint) from None


def _unknown(name: str) -> UsageError:
    """Return the error about words that are no command, with the one that was probably meant."""
    first, _, last = name.rpartition(" ")
    prefix = f"{first} " if first else ""
    known = [words.removeprefix(prefix) for words in COMMANDS if words.startswith(prefix)]
    close = _closest(last, known if first else [*known, *FAMILIES])
    hint = f"see: flowengine {prefix}--help"
    if close is not None:
        hint = f"did you mean 'flowengine {prefix}{close}'?"
    return UsageError(f"there is no command '{name}'", hint=hint)


def load(words: str) -> Command:
    """Import the module of a command."""
    return cast("Command", import_module(f"flowengine.cli.commands.{COMMANDS[words]}"))


def parser_of(words: str, command: Command) -> Parser:
    """Return the parser of one command, without the options that every command takes."""
    parser = Parser(
        prog=f"flowengine {words}",
        description=f"{command.HELP[0].upper()}{command.HELP[1:]}.",
        epilog=_examples(command.EXAMPLE),
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    return parser


def add_common(parser: ArgumentParser, *, default: Any = None) -> None:
    """Add the options that every command takes.

    Args:
        parser: Where to.
        default: In place of the defaults: `SUPPRESS` leaves out what is not given.
    """
    group = parser.add_argument_group("options of every command")
    no = False if default is None else default
    group.add_argument(
        "--store",
        metavar="PATH",
        default=default,
        help="folder of the store; default: $FLOWENGINE_STORE, else .flowengine in this folder "
        "or the nearest one above",
    )
    group.add_argument(
        "--engine",
        choices=["local"],
        default=default or "local",
        help="the engine that drives executions",
    )
    group.add_argument(
        "--durability",
        choices=["power", "process", "none"],
        default=default,
        help="what a finished step survives: a power cut (default), a killed process, nothing",
    )
    group.add_argument(
        "--json", action="store_true", default=no, help="print only JSON on standard output"
    )
    group.add_argument("--no-color", action="store_true", default=no, help="use no colours")
    loud = group.add_mutually_exclusive_group()
    loud.add_argument(
        "-q", "--quiet", action="store_true", default=no, help="show no progress, only results"
    )
    loud.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        default=no,
        help="show starts, inputs, outputs and what steps print",
    )
    group.add_argument(
        "--log-level",
        metavar="LEVEL",
        choices=["debug", "info", "warning", "error"],
        default=default,
        help="show what steps log from this level on: debug, info, warning, error",
    )


def help_of_program() -> str:
    """Return the help of the program: every command with what it does."""
    width = max(map(len, COMMANDS)) + 2
    lines = [
        "usage: flowengine [OPTIONS] COMMAND ...",
        "",
        "Durable flows: run a flow file, wait for people, crash, resume.",
    ]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:"]
        lines += [f"  {words:{width}}{load(words).HELP}" for words in commands]
    parser = Parser(add_help=False, usage=SUPPRESS, formatter_class=Formatter)
    parser.add_argument("-h", "--help", action="store_true", help="show this help")
    parser.add_argument("--version", action="store_true", help="show the version")
    add_common(parser)
    lines += ["", parser.format_help().strip(), "", _examples(_FIRST_STEPS)]
    return "\n".join(lines) + "\n"


_FIRST_STEPS = """\
flowengine init
flowengine run hello.yaml -i name=Ada
flowengine run --help"""


def help_of_family(first: str) -> str:
    """Return the help of commands that begin with the same word."""
    members = [words for words in COMMANDS if words.startswith(f"{first} ")]
    width = max(map(len, members)) + 2
    lines = [f"usage: flowengine {first} COMMAND ...", ""]
    lines += [f"  {words:{width}}{load(words).HELP}" for words in members]
    return "\n".join(lines) + "\n"


def _examples(text: str) -> str:
    return "examples:\n" + "\n".join(f"  {line}" for line in text.splitlines())


def _run_without_command(words: list[str]) -> int:
    """Answer `--version`, `--help` and an empty command line.

    Args:
        words: Options only.

    Returns:
        The exit code.
    """
    parser = Parser(
        prog="flowengine", add_help=False, allow_abbrev=False, formatter_class=Formatter
    )
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("-V", "--version", action="store_true")
    add_common(parser)
    arguments = parser.parse_args(words)
    if arguments.version:
        from flowengine import __version__

        out_text(f"flowengine {__version__}")
        return 0
    out_text(help_of_program().rstrip("\n"))
    return 0 if arguments.help else UsageError.exit_code


def _command_at(words: list[str], start: int = 0) -> int | None:
    """Return where the command stands: the first word that is no option and no option's value."""
    skip = False
    for at, word in enumerate(words):
        if skip:
            skip = False
        elif word in {"--store", "--engine", "--durability", "--log-level"}:
            skip = True
        elif at >= start and not word.startswith("-"):
            return at
    return None


def _report(error: FlowEngineError, *, as_json: bool) -> int:
    """Say what went wrong, and return the exit code."""
    if as_json:
        out_json({"errors": _as_dicts(error)})
    if isinstance(error, FlowFileError):
        err_text(error.message)
    else:
        show_error(error)
    return error.exit_code


def show_error(error: FlowEngineError) -> None:
    """Write an error as a person reads it."""
    first, *more = error.message.split("\n")
    err(f"{paint('error:', 'red')} {first}")
    for line in [*more, *(error.hint or "").splitlines()]:
        err(f"  {line}")


def _as_dicts(error: FlowEngineError) -> list[dict[str, Any]]:
    if isinstance(error, FlowFileError) and error.diagnostics:
        return [one.as_dict() for one in error.diagnostics]
    return [
        {
            "file": None,
            "line": None,
            "column": None,
            "code": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
        }
    ]


def _width() -> int:
    """Return how many columns help may take."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal():
        return min(int(columns), WIDEST) - 2
    try:
        return min(os.get_terminal_size(sys.stdout.fileno()).columns or 80, WIDEST) - 2
    except (OSError, ValueError):
        return 78


def _closest(word: str, known: list[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, known, n=1)), None)
