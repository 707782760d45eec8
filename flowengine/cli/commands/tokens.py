"""`flowengine tokens`: the tokens of the server."""

from __future__ import annotations

import time
from argparse import Namespace
from contextlib import closing
from typing import Any

from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, flag, many, section
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import err, out, out_json, out_result, table, when
from flowengine.flow.export.yaml_text import inline
from flowengine.server.records import ServerRecords, server_folder, token_view
from flowengine.server.rights import Access, access_of
from flowengine.server_settings import ROLES
from flowengine.settings import settings_file


@command(
    "create a token for the API, which is printed once",
    """\
flowengine tokens create ci --role starter --flow "expense*" --expires 90d
flowengine tokens create ben --user ben""",
    arg("name NAME", "its name, for lists and the audit record"),
    arg(
        "--user USER",
        "the user it stands for (default: you). It never gives more rights than this user has",
        type=read.user,
    ),
    arg(
        "--role ROLE",
        f"limits it to the rights of a role: {', '.join(ROLES)} (default: no limit)",
        choices=ROLES,
    ),
    arg("--expires DURATION", "default: it does not expire", type=read.duration),
    section(
        "with --role",
        many("--flow PATTERN", "limits it to flows whose id matches"),
        flag("--content", "let it see inputs, outputs and events"),
    ),
)
def tokens_create_command(arguments: Namespace) -> None:
    with CliSession(arguments) as session:
        served: Any = session.engine
        user = arguments.user or session.engine.user
        if session.is_served:
            token = served.create_token(
                arguments.name,
                user=user,
                role=arguments.role,
                flows=arguments.flow,
                content=arguments.content,
                expires_in=None if arguments.expires is None else int(arguments.expires),
            )
        else:
            engine = session.engine
            now = int(time.time() * 1000)
            expires = None if arguments.expires is None else now + int(arguments.expires * 1000)
            flows = tuple(arguments.flow) or ("*",)
            scope = arguments.role and Access(arguments.role, flows, arguments.content)
            with closing(_records(session)) as records:
                token = records.create_token(arguments.name, user, scope, engine.user, now, expires)
            if not access_of(user, engine.user, engine.settings):
                entry = {"who": [user.removeprefix("user:")], "role": arguments.role or "viewer"}
                limits = {"flows": arguments.flow} if arguments.flow else {}
                what = f"{user} has no rights, so the token has none. To give some, for example:"
                err(f"warning: {what}")
                err(f"  add to {settings_file()}")
                err("    access:")
                err(f"      - {inline({**entry, **limits})}")
    if arguments.json:
        return out_json({"name": arguments.name, "user": user, "token": token})
    if not arguments.quiet:
        err("this token is shown only once:")
    out(token)


@session_command("list the tokens for the API, without their secrets", "flowengine tokens list")
def tokens_list_command(session: CliSession, arguments: Namespace) -> None:
    served: Any = session.engine
    if session.is_served:
        views: list[Any] = served.tokens()
    else:
        with closing(_records(session)) as records:
            views = [token_view(token, int(time.time() * 1000)) for token in records.tokens()]
    rows = [
        [view["name"], view["user"], view["status"], view.get("role", "-"), " ".join(view["flows"]),
         when(view.get("expires_at", "-")), when(view.get("used_at", "-"))]
        for view in views
    ]  # fmt: skip
    head = ["NAME", "USER", "STATUS", "ROLE", "FLOWS", "EXPIRES", "LAST USED"]
    nothing = "no tokens exist: flowengine tokens create NAME"
    out_result(arguments, views, table(rows, head), nothing)


@session_command(
    "revoke a token for the API: a running server refuses it from then on",
    "flowengine tokens revoke ci",
    arg("name NAME", "name of the token"),
)
def tokens_revoke_command(session: CliSession, arguments: Namespace) -> None:
    served: Any = session.engine
    if session.is_served:
        view = served.revoke_token(arguments.name)
    else:
        now = int(time.time() * 1000)
        with closing(_records(session)) as records:
            view = token_view(records.revoke_token(arguments.name, now), now)
    if arguments.json:
        out_json(view)
    elif not arguments.quiet:
        err(f"revoked {arguments.name}")


def _records(session: CliSession) -> ServerRecords:
    return ServerRecords(server_folder(session.engine.store.location))
