"""Completion in shells: the words that are possible where the user presses Tab."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from typing import Any

from flowengine.cli.parsing.command_table import COMMANDS, FAMILIES, Parser, add_common, load
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import first_line
from flowengine.engines.declared_environments import DeclaredEnvironments
from flowengine.engines.infos import LISTED
from flowengine.errors import FlowEngineError


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
        one = place.add_parser(second or first, help=command.help, allow_abbrev=False)
        command.add_arguments(one)
        add_common(one, default=SUPPRESS)
        completers = {
            **dict.fromkeys(("execution", "executions", "other_execution"), executions),
            **dict.fromkeys(("wait", "waits"), waits),
            **dict.fromkeys(("from_step", "step"), steps),
            "choice": choices,
            "edit": editable,
            "form": fields,
            "environment": environments,
            "name": declared,
        }
        for action in one._actions:
            if action.dest in completers:
                action.completer = completers[action.dest]  # type: ignore[union-attr]
    return parser


def _completer(words: Callable[[CliSession, Namespace], Any]) -> Callable[..., Any]:
    """Return a function that completes with the words that a function finds in the store.

    There are none without a store, or if the words before are not valid.
    """

    def complete(prefix: str, parsed_args: Namespace, **_: object) -> Any:
        for name in ("store", "server", "durability"):
            if not hasattr(parsed_args, name):
                setattr(parsed_args, name, None)
        try:
            with CliSession(parsed_args) as session:
                return words(session, parsed_args)
        except FlowEngineError:
            return []

    return complete


@_completer
def executions(session: CliSession, given: Namespace) -> dict[str, str]:
    """Return the newest executions: id → flow and status."""
    return {
        session.short(item["execution"]): f"{item['flow']} {item['status']}"
        for item in session.engine.executions.list().items
    }


@_completer
def waits(session: CliSession, given: Namespace) -> dict[str, str]:
    """Return the pending approvals and questions: id → title. After the first, also its choices."""
    listed = {
        session.short_wait(item["id"]): first_line(item.get("title", ""))
        for item in session.engine.approvals.list(kinds=LISTED).items
    }
    has_id = getattr(given, "choice", None) is not None
    return listed | _choices(session, given) if has_id else listed


@_completer
def steps(session: CliSession, given: Namespace) -> dict[str, str]:
    """Return the steps of the execution on the command line: address → status."""
    shown = session.engine.executions.show(session.execution(given.execution))
    return {step["address"]: step["status"] for step in shown["steps"]}


def _choices(session: CliSession, given: Namespace) -> dict[str, str]:
    """Return the choices of the approval on the command line: id → label."""
    offered = _named(session, given).get("choices", [])
    return {str(choice["id"]): first_line(str(choice.get("label", ""))) for choice in offered}


choices = _completer(_choices)


@_completer
def editable(session: CliSession, given: Namespace) -> list[str]:
    """Return the fields that the approval on the command line lets edit, as `NAME=`."""
    wait = _named(session, given)
    allowed = wait.get("edit") or []
    return [f"{name}=" for name in (wait.get("subject", {}) if allowed is True else allowed)]


@_completer
def fields(session: CliSession, given: Namespace) -> list[str]:
    """Return the form fields of the approval on the command line, as `NAME=`."""
    return [f"{name}=" for name in _named(session, given).get("form", {}).get("properties", {})]


def _named(session: CliSession, given: Namespace) -> Mapping[str, Any]:
    """Return the approval that the command line names, or nothing."""
    try:
        # An id that is the last word yet is read as the choice.
        return session.engine.approvals.show([*given.waits, given.choice][0])
    except FlowEngineError:
        return {}


@_completer
def environments(session: CliSession, given: Namespace) -> dict[str, str]:
    """Return the environments that are open or were left open: name → kind and state."""
    return {
        str(environment["resource_key"]): f"{environment['kind']} {environment['state']}"
        for environment in session.engine.open_environments()
    }


def declared(prefix: str, parsed_args: Namespace, **_: object) -> dict[str, str]:
    """Return the shells that a flow file declares: name → kind."""
    try:
        names = DeclaredEnvironments(parsed_args.file).of_kind("shell")
    except FlowEngineError:
        return {}
    return dict.fromkeys(names, "shell")
