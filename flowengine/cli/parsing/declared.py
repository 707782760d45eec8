"""Commands: functions with their help, examples and arguments, in the order of the help."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any, NamedTuple

Added = Callable[[ArgumentParser], object]
"""Adds arguments to the parser of a command."""


class Command(NamedTuple):
    """A command."""

    help: str
    """Its effect, in one line."""
    example: str
    """Lines to paste."""
    add_arguments: Added
    run: Callable[[Namespace], int | None]
    """Runs it, and returns the exit code. None: 0."""


def command(
    help: str, example: str, *arguments: Added
) -> Callable[[Callable[[Namespace], int | None]], Command]:
    """Make a command of a function that takes its arguments.

    It returns the exit code, or None for 0.

    Args:
        help: Its effect, in one line.
        example: Lines to paste.
        *arguments: Its arguments.
    """
    return lambda run: Command(help, example, together(*arguments), run)


def arg(usage: str, help: str, **options: Any) -> Added:
    """Return an option, or a positional argument.

    Args:
        usage: `--key KEY`, `-o --output FILE`, or the attribute of a positional argument with the
            name of its value. Without a name, the help shows the choices.
        help: Its help.
        **options: As for `ArgumentParser.add_argument`.
    """
    words = usage.split()
    names = [word for word in words if word.startswith("-")] or words[:1]
    given = {"metavar": "".join(words[len(names) :]) or None, "help": help, **options}
    return lambda parser: parser.add_argument(*names, **given)


def many(usage: str, help: str, **options: Any) -> Added:
    """Return an option that may be repeated, as its help says. Its value is a list."""
    first, stop, more = help.partition(". ")
    help = f"{first} (may be repeated){stop}{more}"
    return arg(usage, help, action="append", **{"default": [], **options})


def flag(name: str, help: str, **options: Any) -> Added:
    """Return an option without a value."""
    given = {"action": "store_true", "help": help, **options}
    return lambda parser: parser.add_argument(*name.split(), **given)


def together(*arguments: Added) -> Added:
    """Return several arguments as one."""
    return lambda parser: [add(parser) for add in arguments]


def one_of(*arguments: Added) -> Added:
    """Return arguments of which at most one may be given."""
    return lambda parser: _add(parser.add_mutually_exclusive_group(), arguments)


def section(title: str, *arguments: Added) -> Added:
    """Return arguments that the help lists under a title.

    Args:
        title: `with --add`, `without --mcp` or `with --now or --since` are checked, too.
        *arguments: The arguments.
    """
    return lambda parser: _add(parser.add_argument_group(title), arguments)


def fixed(**values: Any) -> Added:
    """Return attributes that no argument changes."""
    return lambda parser: parser.set_defaults(**values)


def exits(codes: str) -> Added:
    """Return the exit codes, which the help lists.

    Args:
        codes: `0 if all pass, 1 if not`.
    """

    def add(parser: ArgumentParser) -> None:
        parser.epilog = f"exit code: {codes}\n\n{parser.epilog}"

    return add


def _add(group: Any, arguments: tuple[Added, ...]) -> None:
    for add in arguments:
        add(group)
