"""Finds the command that is called, imports only that one, and runs it.

Options of the program are accepted before and after the command.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress

from flowengine import __version__
from flowengine.cli.parsing.command_table import (
    COMMANDS,
    FAMILIES,
    SERVED,
    STORE_COMMANDS,
    STORE_OPTIONS,
    STORELESS,
    SYNONYMS,
    Formatter,
    Parser,
    add_common,
    help_of_family,
    help_of_program,
    load,
    parsed,
    parser_of,
)
from flowengine.cli.parsing.declared import Command
from flowengine.cli.process import ProcessEnd
from flowengine.cli.terminal.output import (
    Colours,
    OutputLost,
    err,
    flush,
    out_text,
    report,
    results,
    results_apart,
)
from flowengine.client.requests import not_ours
from flowengine.errors import FlowEngineError, NotFound, UsageError
from flowengine.sdk.python.extras import missing_package
from flowengine.sdk.texts.near_words import nearest
from flowengine.util.files import check_path

TALKING = {"envs shell"}
"""Commands that forward the output of a sandbox, and run no user code in this process."""
INTERRUPTED = 130
PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: The words after the program's name. Default: those of this process.
    """
    if "_ARGCOMPLETE" in os.environ:
        from flowengine.cli.tab_completion import complete

        complete()
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _ended(words)
        flush()
    except BrokenPipeError:  # the reader of the results has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), results().fileno())
        return PIPE_CLOSED
    except OutputLost as error:
        return report(error, as_json=False)
    with suppress(OSError, ValueError):  # steps print here, and its reader may be gone
        sys.stdout.flush()
    return code


def _ended(words: list[str]) -> int:
    """Run a command line, report its error, and return the exit code."""
    try:
        return _run(words)
    except OutputLost:
        raise
    except FlowEngineError as error:
        return report(error, as_json="--json" in words)
    except ModuleNotFoundError as error:
        if (missing := missing_package(error)) is None:
            raise
        return report(missing, as_json="--json" in words)
    except KeyboardInterrupt as error:
        err(f"interrupted; {error}" if str(error) else "interrupted")
        return INTERRUPTED


def _run(words: list[str]) -> int:
    for word in words:
        check_path("the argument", word)
    at = _command_at(words)
    Colours.allowed = "--no-color" not in words
    if at is None:
        return _run_without_command(words)
    name = words[at]
    rest = [*words[:at], *words[at + 1 :]]
    if name == "help":  # `help run` is `run --help`
        return _run([*rest, "--help"])
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
    try:
        arguments = parsed(parser, rest)
    except SystemExit:  # it has printed the help
        return 0
    if arguments.log_level:
        from flowengine.cli.terminal.logs import show_logs

        show_logs(arguments.log_level)
    try:
        check_path("the current directory", os.getcwd())
    except OSError as error:
        hint = "change to a directory that exists: cd"
        raise NotFound(
            f"the current directory cannot be used: {error.strerror}", hint=hint
        ) from None
    _choose_server(name, parser, arguments)
    if name in TALKING:
        return command.run(arguments) or 0
    with results_apart(restore=not ProcessEnd.ends_at_once):
        code = _run_there(command, arguments) if arguments.server else command.run(arguments)
        return code or 0


def _run_there(command: Command, arguments: Namespace) -> int | None:
    """Run a command against a server, whose answers are not trusted.

    Raises:
        StoreError: An answer is not as the command expects it.
    """
    try:
        return command.run(arguments)
    except (FlowEngineError, OSError, MemoryError):
        raise
    except Exception as error:
        import logging

        logging.getLogger("flowengine.client").debug("an answer of the server", exc_info=True)
        raise not_ours("", error) from error


def _choose_server(name: str, parser: Parser, arguments: Namespace) -> None:
    """Set the server that a command uses. None: it uses a store.

    Raises:
        UsageError: The command, or one of its options, does not work against a server.
    """
    named = arguments.server
    if named and arguments.store:
        raise UsageError("give --server or --store, not both")
    if not named and not arguments.store:
        arguments.server = os.environ.get("FLOWENGINE_SERVER")
    if not arguments.server:
        return
    if not named and name in STORELESS:
        arguments.server = None
        return
    if name not in SERVED:
        why = STORE_COMMANDS.get(name, "it needs none")
        hint = "leave out --server" if named else "give --store, or unset FLOWENGINE_SERVER"
        raise UsageError(f"'flowengine {name}' does not work against a server: {why}", hint=hint)
    for action in parser._actions:
        is_given = getattr(arguments, action.dest, action.default) != action.default
        for option in action.option_strings if is_given else ():
            why = STORE_OPTIONS.get(f"{name} {option}") or STORE_OPTIONS.get(option, "")
            if why:
                hint = "leave it out, or use the store itself: --store PATH"
                raise UsageError(f"{option} does not work against a server: {why}", hint=hint)


def _unknown(name: str) -> UsageError:
    """Return the error about an unknown command, with the one that was probably meant."""
    first, _, last = name.rpartition(" ")
    prefix = f"{first} " if first else ""
    known = [words.removeprefix(prefix) for words in COMMANDS if words.startswith(prefix)]
    meant = last if last in COMMANDS else SYNONYMS.get(name)
    if meant is None:
        close = nearest(last, known if first else [*known, *FAMILIES])
        meant = close and prefix + close
    hint = f"did you mean 'flowengine {meant}'?" if meant else f"see: flowengine {prefix}--help"
    return UsageError(f"unknown command '{name}'", hint=hint)


def _run_without_command(words: list[str]) -> int:
    """Handle `--version`, `--help` and an empty command line.

    Args:
        words: Options only.
    """
    parser = Parser(
        prog="flowengine", add_help=False, allow_abbrev=False, formatter_class=Formatter
    )
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("-V", "--version", action="store_true")
    add_common(parser)
    arguments = parser.parse_args(words)
    if arguments.version:
        out_text(f"flowengine {__version__}")
        return 0
    out_text(help_of_program().rstrip("\n"))
    return 0 if arguments.help else UsageError.exit_code


def _command_at(words: list[str], start: int = 0) -> int | None:
    """Return the index of the command: the first word that is not an option or its value."""
    skip = False
    for at, word in enumerate(words):
        if skip:
            skip = False
        elif word in {"--store", "--server", "--durability", "--log-level"}:
            skip = True
        elif at >= start and not word.startswith("-"):
            return at
    return None
