"""The parsers of the program and its commands, and the help that they print."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import Any, NoReturn

from flowengine.cli.parsing.command_table import COMMANDS, GROUPS, CommandModule, load
from flowengine.cli.terminal.output import out_text
from flowengine.errors import UsageError

WIDEST = 100


class Formatter(RawDescriptionHelpFormatter):
    """Help as wide as the terminal, up to a width that reads well.

    Args:
        prog: Of the parser.
    """

    def __init__(self, prog: str) -> None:
        # By default, argparse imports shutil and with it three compression libraries, and creates a
        # formatter for every argument that is added.
        super().__init__(prog, width=_width())


class Parser(ArgumentParser):
    """An argument parser whose errors are raised, with the option that was probably meant."""

    def print_help(self, file: Any = None) -> None:
        """Print the help as a result."""
        out_text(self.format_help().rstrip("\n"))

    def error(self, message: str) -> NoReturn:
        """Raise an error about the command line.

        Args:
            message: The message of argparse.

        Raises:
            UsageError: Always.
        """
        before, _, rest = message.partition("unrecognized arguments: ")
        if rest and not before:
            message = f"unknown argument {rest}"
            close = closest_option(rest.split()[0], list(self._option_string_actions))
            if close:
                raise UsageError(message, hint=f"did you mean {close}?")
        raise UsageError(message, hint=f"see: {self.prog} --help")


def parsed(parser: ArgumentParser, words: list[str]) -> Namespace:
    """Return the arguments of a command, whose files or ids may precede or follow options."""
    several = any(action.nargs in ("*", "+") for action in parser._get_positional_actions())
    return (parser.parse_intermixed_args if several else parser.parse_args)(words)


def parser_of(words: str, command: CommandModule) -> Parser:
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
        default: Replaces the defaults. `SUPPRESS` leaves out options that are not given.
    """
    group = parser.add_argument_group("options of every command")
    no = False if default is None else default
    group.add_argument(
        "--store",
        metavar="PATH",
        default=default,
        help="directory of the store (default: $FLOWENGINE_STORE, else the nearest .flowengine in "
        "the current directory or above it). In Temporal: temporal://HOST:PORT/NAMESPACE",
    )
    group.add_argument(
        "--server",
        metavar="URL",
        default=default,
        help="use the store of this server, with the token in $FLOWENGINE_TOKEN (default: "
        "$FLOWENGINE_SERVER, unless --store is given)",
    )
    group.add_argument(
        "--durability",
        choices=["power", "process", "none"],
        default=default,
        help="finished steps survive a power cut (default), a killed process, or nothing",
    )
    group.add_argument(
        "--json", action="store_true", default=no, help="print only JSON on standard output"
    )
    group.add_argument("--no-color", action="store_true", default=no, help="use no colors")
    loud = group.add_mutually_exclusive_group()
    loud.add_argument(
        "-q", "--quiet", action="store_true", default=no, help="show no progress, only results"
    )
    loud.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        default=no,
        help="show starts, inputs, outputs and printed text of steps",
    )
    group.add_argument(
        "--log-level",
        metavar="LEVEL",
        choices=["debug", "info", "warning", "error"],
        default=default,
        help="minimum level of log records that are shown: debug, info, warning, error",
    )


def help_of_program() -> str:
    """Return the help of the program: every command with its help line."""
    width = max(map(len, COMMANDS)) + 2
    lines = [
        "usage: flowengine [OPTIONS] COMMAND ...",
        "",
        "Durable agent flows: run a flow file, wait for approvals, survive crashes, resume.",
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


def _width() -> int:
    """Return the maximum number of columns of help."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal():
        return min(int(columns), WIDEST) - 2
    try:
        return min(os.get_terminal_size(sys.stdout.fileno()).columns or 80, WIDEST) - 2
    except (OSError, ValueError):
        return 78


def closest_option(word: str, known: list[str]) -> str | None:
    """Return the known option that is closest to a word, ignoring dashes."""
    names = {each.lstrip("-"): each for each in known}
    from flowengine.sdk.near_words import nearest

    return names.get(nearest(word.partition("=")[0].lstrip("-"), names) or "")
