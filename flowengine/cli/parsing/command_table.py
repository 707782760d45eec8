"""The commands and their modules, and the parsers that are made from them."""

from __future__ import annotations

import os
import re
import sys
from argparse import SUPPRESS, Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from importlib import import_module
from typing import Any, NoReturn, cast

from flowengine.cli.parsing.declared import Command, arg, flag, one_of, together
from flowengine.cli.terminal.output import out_text
from flowengine.errors import UsageError
from flowengine.sdk.texts.near_words import nearest

# The commands and their modules.
#
# `approvals list` is `approvals_list_command` in `flowengine.cli.commands.approvals`.

GROUPS = {
    title: words.split(", ")
    for title, words in {
        "Start here": "init, run, approvals list, approve, why, serve",
        "Run": "chat, resume, signal, cancel, retry, fork, upgrade, move, worker",
        "Deploy": "deploy, flows list, flows show, flows schedule",
        "Serve": "tokens create, tokens list, tokens revoke",
        "Decide": "reject, decide, approvals assign, grants, logins",
        "Inspect": "list, show, budgets, events, diff, graph, files",
        "Sessions": "sessions list, sessions show, sessions branch, sessions end",
        "Environments": "envs list, envs show, envs shell, envs release",
        "Authoring": "check, test, eval",
        "Maintenance": "doctor, prune, completion",
    }.items()
}
_MODULES = {
    words: module
    for module, several in {
        "approvals": "approve, reject, decide, grants",
        "continuing": "resume, cancel, retry, fork",
        "deploy": "upgrade, move",
        "serving": "serve, worker",
        "show": "why",
        "upkeep": "doctor, prune, completion",
    }.items()
    for words in several.split(", ")
}
"""Words of a command → its module, where that is not their first one."""
STORE_COMMANDS = {
    "chat": "a worker runs the agent: run its flow, and continue the conversation on the page",
    "eval": "it runs the flows on this machine",
    "move": "it needs both stores",
    "worker": "it needs the store",
    "serve": "it needs the store, and MCP clients use the server's own /mcp",
    "envs shell": "it opens a sandbox on this machine",
    "prune": "users who can write to the store delete from it",
    "sessions list": "their executions are: flowengine list --flow sessions",
    "sessions show": "show their execution: flowengine show ID",
    "sessions branch": "fork their execution: flowengine fork ID",
    "sessions end": "cancel their execution: flowengine cancel ID",
}
"""Commands that need a store → why. All others also work against a server, or without a store."""
STORE_OPTIONS = {
    "--as": "the token determines who acts",
    "--durability": "the store of the server has its own",
    "--linger": "a worker runs the steps",
    "--offers": "a worker runs the steps",
    "--workdir": "a worker runs the steps, in its own directories",
    "envs release --all": "a worker ends the environments it left open",
    "flows schedule --concurrency": "its workers determine how many run",
    "events --otel": "it is made from the store",
    "resume --due": "a worker resumes due executions",
    "signal --file": "deploy the flow first: flowengine deploy FILE",
}
"""Options that need a store, of one command or of all → why."""
STORELESS = frozenset({"check", "test", "logins", "init", "completion", "doctor"})
"""Commands that work without a store or a server."""
COMMANDS = {
    words: _MODULES.get(words, words.split()[0]) for group in GROUPS.values() for words in group
}
"""Words of a command → its module."""
SERVED = COMMANDS.keys() - STORE_COMMANDS - STORELESS
"""Commands that work against a server, too."""
SYNONYMS = {
    other: words
    for words, others in {
        "approvals list": "inbox",
        "cancel": "abort kill stop terminate",
        "check": "lint validate verify",
        "diff": "compare",
        "events": "history logs",
        "files": "artifacts download export",
        "fork": "replay reset",
        "graph": "draw",
        "init": "create new",
        "list": "ls ps",
        "prune": "delete remove rm",
        "retry": "rerun restart",
        "run": "execute start",
        "show": "describe inspect status",
        "signal": "publish send",
    }.items()
    for other in others.split()
}
"""Names of commands in other tools → the command here, for hints."""
FAMILIES = {words.split()[0] for words in COMMANDS if " " in words}
"""First words that are not commands by themselves."""


def works_there(text: str) -> bool:
    """Return whether a command line in a text, if any, works against a server."""
    match = re.search(r"flowengine ([a-z]+)(?: ([a-z]+))?", text)
    if match is None:
        return True
    if not (SERVED | STORELESS) & {match[1], f"{match[1]} {match[2]}"}:
        return False
    return match[1] != "resume" or "--on-crash" in text


def load(words: str) -> Command:
    """Import the module of a command."""
    module = import_module(f"flowengine.cli.commands.{COMMANDS[words]}")
    return cast("Command", getattr(module, f"{words.replace(' ', '_')}_command"))


# The parsers of the program and its commands, and the help that they print.

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

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        """Add the usage. A group that is not described would leave two spaces."""
        shown = [
            group
            for group in groups
            if any(action.help is not SUPPRESS for action in group._group_actions)
        ]
        super().add_usage(usage, actions, shown, prefix)


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
            names = {each.lstrip("-"): each for each in self._option_string_actions}
            word = rest.split()[0].partition("=")[0].lstrip("-")
            close = names.get(nearest(word, names) or "")
            if close:
                raise UsageError(message, hint=f"did you mean {close}?")
        raise UsageError(message, hint=f"see: {self.prog} --help")


def parsed(parser: ArgumentParser, words: list[str]) -> Namespace:
    """Return the arguments of a command, whose files or ids may precede or follow options.

    Raises:
        UsageError: An option without one that its section requires, or with one that excludes it.
    """
    several = any(action.nargs in ("*", "+") for action in parser._get_positional_actions())
    arguments = (parser.parse_intermixed_args if several else parser.parse_args)(words)

    def is_given(action: Action) -> bool:
        return bool(getattr(arguments, action.dest) != action.default)

    options = parser._option_string_actions
    for group in parser._action_groups:
        condition, _, rest = (group.title or "").partition(" ")
        others = [word for word in rest.split() if word in options]
        if condition not in {"with", "without"} or not others:
            continue
        if any(is_given(options[other]) for other in others) == (condition == "with"):
            continue
        for action in filter(is_given, group._group_actions):
            option = action.option_strings[-1]
            hint = f"see: {parser.prog} --help"
            if condition == "with":
                raise UsageError(f"{option} needs {' or '.join(others)}", hint=hint)
            raise UsageError(f"{option} does not work with {' or '.join(others)}", hint=hint)
    return arguments


def parser_of(words: str, command: Command) -> Parser:
    """Return the parser of one command. Its help names the options that every command takes."""
    parser = Parser(
        prog=f"flowengine {words}",
        description=f"{command.help[0].upper()}{command.help[1:]}.",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    names = ", ".join(add_common(parser, described=False))
    parser.epilog = f"{COMMON_OPTIONS}\n  {names}\n\n{_examples(command.example)}"
    command.add_arguments(parser)
    return parser


COMMON_OPTIONS = "options of every command (see: flowengine --help):"


def add_common(parser: ArgumentParser, *, default: Any = None, described: bool = True) -> list[str]:
    """Add the options that every command takes, and return their names.

    Args:
        parser: Where to.
        default: Replaces the defaults. `SUPPRESS` leaves out options that are not given.
        described: Whether its help lists them.
    """
    group: Any = parser.add_argument_group("options of every command" if described else None)
    no = False if default is None else default
    levels = ["debug", "info", "warning", "error"]
    common = together(
        arg(
            "--store PATH",
            "directory of the store (default: $FLOWENGINE_STORE, else the nearest .flowengine in "
            "the current directory or above it). In Temporal: temporal://HOST:PORT/NAMESPACE",
            default=default,
        ),
        arg(
            "--server URL",
            "use the store of this server, with the token in $FLOWENGINE_TOKEN (default: "
            "$FLOWENGINE_SERVER, unless --store is given)",
            default=default,
        ),
        arg(
            "--durability",
            "finished steps survive a power cut (default), a killed process, or nothing",
            choices=["power", "process", "none"],
            default=default,
        ),
        flag("--json", "print only JSON on standard output", default=no),
        flag("--no-color", "use no colors", default=no),
        one_of(
            flag("-q --quiet", "show no progress, only results", default=no),
            flag(
                "-v --verbose",
                "show starts, inputs, outputs and printed text of steps",
                default=no,
            ),
        ),
        arg(
            "--log-level LEVEL",
            f"minimum level of log records that are shown: {', '.join(levels)}",
            choices=levels,
            default=default,
        ),
    )
    common(group)
    if not described:
        for action in group._group_actions:
            action.help = SUPPRESS
    return [action.option_strings[-1] for action in group._group_actions]


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
        lines += [f"  {words:{width}}{load(words).help}" for words in commands]
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
    lines += [f"  {words:{width}}{load(words).help}" for words in members]
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
