"""`flowengine logins`: logins at MCP servers, which are kept for the flows of this user."""

from __future__ import annotations

import time
from argparse import Namespace

from flowengine.cli.login_page import log_in_ahead
from flowengine.cli.parsing.declared import arg, command, many, one_of, section
from flowengine.cli.terminal.output import err, out_json, out_result, table, when
from flowengine.errors import NotFound
from flowengine.kernel.notation.addresses import execution_of
from flowengine.kernel.notation.times import format_time
from flowengine.sdk.files.logins import LoginKey, all_logins, forget_tokens
from flowengine.sdk.texts.visible_text import printable
from flowengine.settings import current_user


@command(
    "list the logins at MCP servers, without their tokens, add one or remove one",
    """\
flowengine logins
flowengine logins --add https://mcp.example.com
flowengine logins --add https://mcp.example.com --scope tickets:read --scope tickets:write
flowengine logins --remove https://mcp.example.com""",
    one_of(
        arg(
            "--add URL", "log in at the server with this 'url' in a flow, before the flow needs it"
        ),
        arg("--remove URL", "remove the login at this server: flows ask for it again"),
    ),
    section(
        "with --add",
        arg("--client-id ID", "the 'client_id' of the flow, if any", default=""),
        many("--scope SCOPE", "request this scope. Default: those that the server names"),
    ),
    section("with --remove", arg("--user USER", "only the login of this user")),
)
def logins_command(arguments: Namespace) -> None:
    if arguments.add is not None:
        return _add(arguments)
    if arguments.remove is not None:
        return _remove(arguments)
    kept = [login for login in all_logins(err) if login.token is not None]
    views = [
        {
            "server": login.url,
            "user": login.user,
            "client_id": login.client,
            "scopes": login.requested,
            "since": format_time(int(login.created * 1000)),
            "renewed": "refresh_token" in (login.token or {}),
            "lent": [*map(execution_of, login.lent)],
        }
        for login in kept
    ]
    rows = [
        [login.url, login.user, " ".join(login.requested) or "-",
         when(format_time(int(login.created * 1000))),
         _until(login.expires, renewed="refresh_token" in (login.token or {}))]
        for login in kept
    ]  # fmt: skip
    nothing = "there are no logins: a flow asks for one when it needs it"
    head = ["SERVER", "USER", "SCOPES", "SINCE", "EXPIRES"]
    return out_result(arguments, views, table(rows, head), nothing)


def _add(arguments: Namespace) -> None:
    key = LoginKey(current_user(), arguments.add, arguments.client_id)
    log_in_ahead(key, arguments.scope)
    if not arguments.quiet:
        err(f"logged in at {printable(key.url)}")


def _remove(arguments: Namespace) -> None:
    """Remove it.

    Raises:
        NotFound: There is none.
    """
    user = arguments.user and f"user:{arguments.user.removeprefix('user:')}"
    keys = [
        login.key
        for login in all_logins(err)
        if login.url == arguments.remove and user in (None, login.user)
    ]
    removed = [key for key in keys if forget_tokens(key)]
    if not removed:
        raise NotFound(
            f"there is no login at {arguments.remove}", hint="list them: flowengine logins"
        )
    if arguments.json:
        out_json([key._asdict() for key in removed])
    elif not arguments.quiet:
        for key in removed:
            err(f"removed the login of {printable(key.user)} at {printable(key.url)}")


def _until(expires: float | None, *, renewed: bool) -> str:
    """Return when a login ends, as far as that is known."""
    if renewed:
        return "renewed automatically"
    if expires is None:
        return "-"
    at = when(format_time(int(expires * 1000)))
    return f"{at} (expired)" if expires < time.time() else at
