"""An MCP server with its authorization server, on a free port, which it prints.

Users agree to every login at once. `/control` returns what was counted and issued, and changes the
rules: `{"refuses": true}`.
"""

from __future__ import annotations

import socket
import time
from base64 import b64decode
from itertools import count
from typing import Any
from urllib.parse import unquote

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl, AnyUrl
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

SCOPES = ["notes:read", "notes:write", "offline_access"]
KNOWN, MACHINE, SECRET = "known", "machine", "SECRET-of-the-client"
_VERSION = b"mcp-protocol-version"


class Users(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The authorization server. Each login is of a new user: `user1`, `user2`."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.rules: dict[str, Any] = {
            "lives": 3600,
            "refuses": False,
            "step_up": "",  # the scope without which tokens are refused
            "denies": "",  # the scope that no token has, in the opinion of the server
            "newest": False,  # whether requests of the older generation are refused
            "token": None,  # the access token of logins, if another one
        }
        self.counts = dict.fromkeys(("registered", "codes", "refreshed", "machine", "calls"), 0)
        self.issued: list[str] = []
        """Every token and code."""
        self._clients = {
            KNOWN: OAuthClientInformationFull(
                client_id=KNOWN,
                client_secret=SECRET,
                redirect_uris=[AnyUrl("http://127.0.0.1:9/callback")],
                token_endpoint_auth_method="client_secret_basic",
                scope=" ".join(SCOPES),
            )
        }
        self._codes: dict[str, AuthorizationCode] = {}
        self._refresh: dict[str, RefreshToken] = {}
        self.access: dict[str, AccessToken] = {}
        """The valid tokens."""
        self._numbers = count(1)
        self.resources: list[str | None] = []

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self._clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.counts["registered"] += 1
        self._clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        redirect = str(params.redirect_uri)
        if self.rules.get("declines"):
            return construct_redirect_uri(redirect, error="access_denied", state=params.state)
        code = self._secret("code")
        self.resources.append(params.resource)
        self._codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 600,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=f"user{next(self._numbers)}",
        )
        iss = self.rules.get("iss", f"{self.issuer}/")
        state = self.rules.get("state", params.state)
        return construct_redirect_uri(redirect, code=code, state=state, iss=iss)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self._codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        self.counts["codes"] += 1
        del self._codes[authorization_code.code]
        return self._tokens(authorization_code)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self._refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        # Each refresh token is used once. A second use ends the login, as the best practice is.
        if self.rules["refuses"] or self._refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.counts["refreshed"] += 1
        return self._tokens(refresh_token)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        raise NotImplementedError

    def machine_token(self, given: str) -> dict[str, Any] | None:
        """Return a token for a client without a user, if it knows its secret."""
        if given != f"{MACHINE}:{SECRET}":
            return None
        self.counts["machine"] += 1
        token = self._token(MACHINE, ["notes:read"], MACHINE)
        return {"access_token": token, "token_type": "Bearer", "expires_in": 3600}

    def expire(self) -> None:
        """Let all access tokens expire."""
        self.access.clear()

    def _tokens(self, given: Any) -> OAuthToken:
        refresh = self._secret("refresh")
        self._refresh[refresh] = RefreshToken(
            token=refresh, client_id=given.client_id, scopes=given.scopes, subject=given.subject
        )
        access = self._token(given.client_id, given.scopes, given.subject)
        return OAuthToken(
            access_token=access if self.rules["token"] is None else self.rules["token"],
            expires_in=self.rules["lives"],
            refresh_token=refresh,
            scope=" ".join(given.scopes),
        )

    def _token(self, client: str, scopes: list[str], subject: str) -> str:
        token = self._secret("access")
        self.access[token] = AccessToken(
            token=token, client_id=client, scopes=scopes, subject=subject
        )
        return token

    def _secret(self, kind: str) -> str:
        made = f"SECRET-{kind}-{next(self._numbers)}-{time.time_ns():x}"
        self.issued.append(made)
        return made


def _pair(authorization: str) -> str:
    """Return `id:secret` of a client."""
    return unquote(b64decode(authorization.removeprefix("Basic ")).decode())


class Outer:
    """The servers of both, and what the library of the server does not have.

    Args:
        app: The servers.
        users: The authorization server.
    """

    def __init__(self, app: Any, users: Users) -> None:
        self._app = app
        self._users = users

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path, headers = scope.get("path"), dict(scope.get("headers", ()))
        authorization = headers.get(b"authorization", b"").decode()
        if path == "/control":
            response = await self._control(Request(scope, receive))
        elif path == "/token" and _pair(authorization).startswith(f"{MACHINE}:"):
            token = self._users.machine_token(_pair(authorization))
            refusal = {"error": "invalid_client"}
            response = JSONResponse(token or refusal, 200 if token else 401)
        elif path == "/mcp" and self._users.rules["newest"] and _VERSION not in headers:
            error = {"code": -32020, "message": "no version"}
            response = JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)
        elif path == "/mcp" and (scopes := self._missing(authorization)):
            challenge = f'Bearer error="insufficient_scope", scope="{scopes}"'
            response = Response(status_code=403, headers={"www-authenticate": challenge})
        else:
            await self._app(scope, receive, send)
            return
        await response(scope, receive, send)

    async def _control(self, request: Request) -> Response:
        users = self._users
        if request.method == "POST":
            rules = await request.json()
            if rules.pop("expire", False):
                users.expire()
            users.rules |= rules
        return JSONResponse({**users.counts, "issued": users.issued, "resources": users.resources})

    def _missing(self, authorization: str) -> str:
        """Return the scope that a valid token lacks, or an empty text."""
        known = self._users.access.get(authorization.removeprefix("Bearer "))
        if known is not None and self._users.rules["denies"]:
            return str(self._users.rules["denies"])
        wanted = str(self._users.rules["step_up"])
        return wanted if known is not None and wanted and wanted not in known.scopes else ""


def main() -> None:
    import uvicorn

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    port = listening.getsockname()[1]
    issuer = f"http://127.0.0.1:{port}"
    users = Users(issuer)
    registration = ClientRegistrationOptions(
        enabled=True, valid_scopes=SCOPES, default_scopes=["notes:read"]
    )
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(issuer),
        resource_server_url=AnyHttpUrl(f"{issuer}/mcp"),
        required_scopes=["notes:read"],
        client_registration_options=registration,
        validate_token_resource=False,
    )
    server = MCPServer("notes", auth_server_provider=users, auth=settings)

    @server.tool()
    def whoami() -> str:
        """Return the user whose token the call has."""
        users.counts["calls"] += 1
        token = get_access_token()
        assert token is not None
        return str(token.subject)

    @server.tool()
    def echo() -> str:
        """Return the token of the call."""
        token = get_access_token()
        assert token is not None
        return f"you sent {token.token}"

    print(port, flush=True)  # noqa: T201
    app = Outer(server.streamable_http_app(), users)
    uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on")).run([listening])


if __name__ == "__main__":
    main()
