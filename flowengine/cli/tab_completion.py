"""Completion in shells: the words that are possible where the user presses Tab."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Mapping
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


def executions(prefix: str, parsed_args: Namespace, **_: object) -> dict[str, str]:
    """Return the newest executions: id → flow and status."""
    with_session = _session(parsed_args)
    if with_session is None:
        return {}
    with with_session as session:
        return {
            session.short(item["execution"]): f"{item['flow']} {item['status']}"
            for item in session.engine.executions.list().items
        }


def waits(prefix: str, parsed_args: Namespace, **_: object) -> dict[str, str]:
    """Return the pending approvals and questions: id → title. After the first, also its choices."""
    with_session = _session(parsed_args)
    if with_session is None:
        return {}
    with with_session as session:
        listed = {
            session.short_wait(item["id"]): first_line(item.get("title", ""))
            for item in session.engine.approvals.list(kinds=LISTED).items
        }
    has_id = getattr(parsed_args, "choice", None) is not None
    return listed | choices(prefix, parsed_args) if has_id else listed


def steps(prefix: str, parsed_args: Namespace, **_: object) -> dict[str, str]:
    """Return the steps of the execution on the command line: address → status."""
    with_session = _session(parsed_args)
    if with_session is None:
        return {}
    with with_session as session:
        shown = session.engine.executions.show(session.execution(parsed_args.execution))
        return {step["address"]: step["status"] for step in shown["steps"]}


def choices(prefix: str, parsed_args: Namespace, **_: object) -> dict[str, str]:
    """Return the choices of the approval on the command line: id → label."""
    offered = _named(parsed_args).get("choices", [])
    return {str(choice["id"]): first_line(str(choice.get("label", ""))) for choice in offered}


def editable(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    """Return the fields that the approval on the command line lets edit, as `NAME=`."""
    wait = _named(parsed_args)
    allowed = wait.get("edit") or []
    return [f"{name}=" for name in (wait.get("subject", {}) if allowed is True else allowed)]


def fields(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    """Return the form fields of the approval on the command line, as `NAME=`."""
    return [f"{name}=" for name in _named(parsed_args).get("form", {}).get("properties", {})]


def _named(parsed_args: Namespace) -> Mapping[str, Any]:
    """Return the approval that the command line names, or nothing."""
    with_session = _session(parsed_args)
    if with_session is None:
        return {}
    with with_session as session:
        try:
            # An id that is the last word yet is read as the choice.
            return session.engine.approvals.show([*parsed_args.waits, parsed_args.choice][0])
        except FlowEngineError:
            return {}


def environments(prefix: str, parsed_args: Namespace, **_: object) -> dict[str, str]:
    """Return the environments that are open or were left open: name → kind and state."""
    with_session = _session(parsed_args)
    if with_session is None:
        return {}
    with with_session as session:
        return {
            str(
                open_environment["resource_key"]
            ): f"{open_environment['kind']} {open_environment['state']}"
            for open_environment in session.engine.open_environments()
        }


def declared(prefix: str, parsed_args: Namespace, **_: object) -> dict[str, str]:
    """Return the shells that a flow file declares: name → kind."""
    try:
        names = DeclaredEnvironments(parsed_args.file).of_kind("shell")
    except FlowEngineError:
        return {}
    return dict.fromkeys(names, "shell")


def _session(arguments: Namespace) -> CliSession | None:
    for name in ("store", "server", "durability"):
        if not hasattr(arguments, name):
            setattr(arguments, name, None)
    try:
        return CliSession(arguments)
    except FlowEngineError:
        return None
