"""`flowengine sessions`: conversations with agents that Python programs continue."""

from __future__ import annotations

import json
from argparse import Namespace

from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, flag
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import err, out, out_json, out_table, out_text, when
from flowengine.runner.stored_sessions import Sessions
from flowengine.sdk.texts.visible_text import printable

_NAME = arg("name NAME", "name of the session")


@session_command(
    "list the sessions of agents, newest first",
    "flowengine sessions list --search ana",
    arg("--search TEXT", "only those with these words in name or agent"),
    read.LIMIT,
)
def sessions_list_command(session: CliSession, arguments: Namespace) -> None:
    page = Sessions(session.engine).list(search=arguments.search, limit=arguments.limit)
    if arguments.json:
        return out_json(page.items)
    if not page.items:
        return err(f"no matching sessions in {session.place}")
    rows = [
        [item["labels"]["session"], item["title"], item["status"], when(item["started_at"])]
        for item in page.items
    ]
    out_table(rows, "SESSION", "AGENT", "STATUS", "STARTED")
    if page.next is not None:
        err(read.more(arguments.limit))


@session_command("show the messages of a session", "flowengine sessions show ana", _NAME)
def sessions_show_command(session: CliSession, arguments: Namespace) -> None:
    conversation = Sessions(session.engine).read(arguments.name)
    if arguments.json:
        return out_json(conversation._asdict())
    for message in conversation.messages:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else json.dumps(content)
        calls = [call["function"]["name"] for call in message.get("tool_calls") or ()]
        called = f"[calls {', '.join(calls)}]" if calls else ""
        out_text(printable(f"{message['role']}: {' '.join(filter(None, (text, called)))}"))


@session_command(
    "start a session with the conversation of another one, which is not changed",
    "flowengine sessions branch ana ana-2 --drop 1",
    _NAME,
    arg("to TO", "name of the new session"),
    arg(
        "--drop N",
        "leave out the user's newest N messages, with their answers (default: 0)",
        type=int,
        default=0,
    ),
)
def sessions_branch_command(session: CliSession, arguments: Namespace) -> None:
    Sessions(session.engine).branch(arguments.name, arguments.to, drop=arguments.drop)
    out(printable(f"{arguments.to}: a branch of {arguments.name}"))


@session_command(
    "end a session, which can still be shown and branched, or delete it",
    """\
flowengine sessions end ana
flowengine sessions end ana --delete""",
    _NAME,
    flag("--delete", "delete it and all that is stored of it"),
)
def sessions_end_command(session: CliSession, arguments: Namespace) -> None:
    sessions = Sessions(session.engine)
    if arguments.delete:
        sessions.delete(arguments.name)
        did = "deleted"
    else:
        did = sessions.end(arguments.name).status
    out(printable(f"{arguments.name}: {did}"))
