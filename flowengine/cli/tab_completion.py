"""Completion in shells: the words that are possible where the user presses Tab."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from flowengine.cli.parsing.command_table import COMMANDS, FAMILIES, load
from flowengine.cli.parsing.parser import Parser, add_common
from flowengine.cli.terminal.output import one_line
from flowengine.errors import FlowEngineError

if TYPE_CHECKING:
    from flowengine.cli.session import Session


def complete() -> None:
    """Answer the shell and end the process."""
    import argcomplete

    argcomplete.autocomplete(whole_parser(), always_complete_options=False)


def whole_parser() -> ArgumentParser:
    """Return one parser that knows all commands."""
    parser = Parser(prog="flowengine", allow_abbrev=False)
    add_common(parser, default=SUPPRESS)
    commands = parser.add_subparsers()
    families: dict[str, Any] = {}
    for name in sorted(FAMILIES):
        family = commands.add_parser(name, help="see further words")
        families[name] = family.add_subparsers()
    for words in COMMANDS:
        command = load(words)
        first, _, second = words.partition(" ")
        place = families[first] if second else commands
        one = place.add_parser(second or first, help=command.HELP, allow_abbrev=False)
        command.configure(one)
        add_common(one, default=SUPPRESS)
        _add_completers(one)
    return parser


def _add_completers(parser: ArgumentParser) -> None:
    """Complete ids from the store for arguments that take one."""
    for action in parser._actions:
        if action.dest in ("execution", "executions", "other_execution"):
            action.completer = executions  # type: ignore[attr-defined]
        elif action.dest in ("wait", "waits"):
            action.completer = waits  # type: ignore[attr-defined]
        elif action.dest == "environment":
            action.completer = environments  # type: ignore[attr-defined]
        elif action.dest == "name":
            action.completer = declared  # type: ignore[attr-defined]


def executions(prefix: str, parsed_args: Namespace, **_: object) -> dict[str, str]:
    """Return the newest executions: id → flow and status."""
    with_session = _session(parsed_args)
    if with_session is None:
        return {}
    with with_session as session:
        return {
            session.short(one["execution"]): f"{one['flow']} {one['status']}"
            for one in session.engine.executions().items
        }


def waits(prefix: str, parsed_args: Namespace, **_: object) -> dict[str, str]:
    """Return the pending approvals and questions: id → title."""
    from flowengine.cli.views.approvals import KINDS

    with_session = _session(parsed_args)
    if with_session is None:
        return {}
    with with_session as session:
        return {
            session.short_wait(one["id"]): one_line(one.get("title", ""))
            for one in session.engine.waits(kinds=KINDS).items
        }


def environments(prefix: str, parsed_args: Namespace, **_: object) -> dict[str, str]:
    """Return the environments that are open or were left open: name → kind and state."""
    with_session = _session(parsed_args)
    if with_session is None:
        return {}
    with with_session as session:
        return {
            str(one["resource_key"]): f"{one['kind']} {one['state']}"
            for one in session.engine.open_environments()
        }


def declared(prefix: str, parsed_args: Namespace, **_: object) -> dict[str, str]:
    """Return the shells that a flow file declares: name → kind."""
    from flowengine.engines.declared_environments import DeclaredEnvironments

    try:
        found = DeclaredEnvironments(parsed_args.file).of_kind("shell")
    except FlowEngineError:
        return {}
    return dict.fromkeys(found, "shell")


def _session(arguments: Namespace) -> Session | None:
    from flowengine.cli.session import Session

    for name in ("store", "server", "durability"):
        if not hasattr(arguments, name):
            setattr(arguments, name, None)
    try:
        return Session(arguments)
    except FlowEngineError:
        return None
