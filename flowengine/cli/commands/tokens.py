"""`flowengine tokens`: the tokens of the server."""

from __future__ import annotations

import time
from argparse import Namespace
from contextlib import closing
from functools import partial
from typing import Any

from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, flag, many, section
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import err, out, out_json, out_table, when
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
            token = _created_here(arguments, session, user)
    if arguments.json:
        return out_json({"name": arguments.name, "user": user, "token": token})
    if not arguments.quiet:
        err("this token is shown only once:")
    out(token)


def _created_here(arguments: Namespace, session: CliSession, user: str) -> str:
    """Create the token of a server over this store."""
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
        err(f"warning: {user} has no rights, so the token has none. To give some, for example:")
        err(f"  add to {settings_file()}")
        err("    access:")
        err(f"      - {inline({**entry, **limits})}")
    return token


@session_command("list the tokens for the API, without their secrets", "flowengine tokens list")
def tokens_list_command(session: CliSession, arguments: Namespace) -> None:
    served: Any = session.engine
    views: list[Any] = served.tokens() if session.is_served else _tokens_here(session)
    if arguments.json:
        return out_json(views)
    if not views:
        return err("no tokens exist: flowengine tokens create NAME")
    rows = [
        [view["name"], view["user"], view["status"], view.get("role", "-"), " ".join(view["flows"]),
         when(view.get("expires_at", "-")), when(view.get("used_at", "-"))]
        for view in views
    ]  # fmt: skip
    out_table(rows, "NAME", "USER", "STATUS", "ROLE", "FLOWS", "EXPIRES", "LAST USED")


def _tokens_here(session: CliSession) -> list[Any]:
    """Return the tokens of a server over this store."""
    now = int(time.time() * 1000)
    with closing(_records(session)) as records:
        return [token_view(token, now) for token in records.tokens()]


@session_command(
    "revoke a token for the API: a running server refuses it from then on",
    "flowengine tokens revoke ci",
    arg("name NAME", "name of the token"),
)
def tokens_revoke_command(session: CliSession, arguments: Namespace) -> None:
    served: Any = session.engine
    revoke = served.revoke_token if session.is_served else partial(_revoked_here, session)
    view = revoke(arguments.name)
    if arguments.json:
        out_json(view)
    elif not arguments.quiet:
        err(f"revoked {arguments.name}")


def _revoked_here(session: CliSession, name: str) -> Any:
    """Revoke the token of a server over this store."""
    now = int(time.time() * 1000)
    with closing(_records(session)) as records:
        return token_view(records.revoke_token(name, now), now)


def _records(session: CliSession) -> ServerRecords:
    return ServerRecords(server_folder(session.engine.store.location))
