"""The config of an MCP server, loaded only where one is read: pydantic loads slowly."""

from __future__ import annotations

from collections.abc import Mapping
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from flowengine.sdk.environments.models import Config, Secret

OAUTH = "oauth"
MACHINE = "client_credentials"
"""The grant of clients without a user."""
Scope = Annotated[str, Field(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$", max_length=200)]
Https = Annotated[str, Field(pattern="^https?://", max_length=2000)]
# A text with the form of a secret reference is one.
Text = Annotated[Secret | str, Field(union_mode="left_to_right")]
Name = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_-]*$")]


class OAuth(Config):
    """How a client gets its tokens. Without keys, it registers itself and users log in."""

    client_id: str | None = Field(default=None, min_length=1, max_length=2000)
    """The id of a registered client, or the address of its client metadata document."""
    client_secret: Secret | None = None
    """Its secret."""
    scope: tuple[Scope, ...] = ()
    """The scopes to request. Default: those that the server names."""
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """`client_credentials`: the client acts for itself, without a user."""
    issuer: Https | None = None
    """The authorization server. No other one is used. Default: the one that the server names, which
    receives no `client_secret`."""


Auth = Literal["oauth"] | OAuth
"""The key `auth` of a server."""


class Server(Config):
    """One server."""

    command: str | list[str] | None = Field(default=None, min_length=1)
    """The program to start, optionally with its arguments."""
    args: tuple[str, ...] = ()
    """Arguments of the program."""
    env: dict[str, Text] = Field(default_factory=dict)
    """The environment variables of the program, in addition to PATH, HOME and LANG."""
    cwd: str | None = None
    """Its working directory. Default: that of the flow."""
    url: str | None = Field(default=None, pattern="^https?://")
    """The address of a server with streamable HTTP transport."""
    headers: dict[str, Text] = Field(default_factory=dict)
    """Headers of every request to it."""
    auth: Auth | None = Field(default=None, exclude_if=lambda auth: auth is None)
    """`oauth`: requests have an access token of the user, who logs in once."""
    roots: tuple[str, ...] = ()
    """Directories that the server receives when it requests its roots."""
    mode: Literal["auto", "legacy"] = "auto"
    """Protocol revisions to try. `legacy`: only those with a handshake."""
    resources: bool = Field(default=False, exclude_if=not_)
    """Whether its resources are read by the tools `list_resources` and `read_resource`."""
    prompts: bool = Field(default=False, exclude_if=not_)
    """Whether its prompts are read by the tools `list_prompts` and `get_prompt`."""

    @model_validator(mode="after")
    def _one_way(self) -> Server:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either 'command' or 'url'")
        return self

    @model_validator(mode="after")
    def _one_token(self) -> Server:
        auth = auth_of(self)
        if auth is None:
            return self
        if self.url is None:
            raise ValueError("'auth' needs a 'url'")
        if "authorization" in map(str.lower, self.headers):
            raise ValueError("'auth' and a header 'Authorization' exclude each other")
        if auth.grant == MACHINE and auth.client_secret is None:
            raise ValueError("'client_credentials' needs 'client_id', 'client_secret' and 'issuer'")
        if auth.client_secret is not None and None in (auth.client_id, auth.issuer):
            raise ValueError("'client_secret' needs 'client_id' and 'issuer'")
        return self


class McpConfig(Server):
    """An MCP server, or several."""

    servers: dict[Name, Server] = Field(default_factory=dict)
    """Several servers by name. Their tools are called `name.tool`."""

    @model_validator(mode="after")
    def _one_way(self) -> McpConfig:
        ways = [self.command is not None, self.url is not None, bool(self.servers)]
        if sum(ways) != 1:
            raise ValueError("needs one of 'command', 'url' and 'servers'")
        if self.servers and self.model_fields_set & {*Server.model_fields}:
            raise ValueError(
                "'servers' cannot be combined with other keys: set them for each server"
            )
        return self


def auth_of(config: Any) -> OAuth | None:
    """Return how a server's client gets its tokens. None: it needs none."""
    return OAuth() if config.auth == OAUTH else config.auth


def needs_user(config: Mapping[str, Any]) -> bool:
    """Return whether a server, or one of several, acts for the user of the execution.

    Args:
        config: The configuration of the environment, as plain data.
    """
    servers = config.get("servers")
    each = servers.values() if isinstance(servers, Mapping) else [config]
    kinds = [server.get("auth") for server in each if isinstance(server, Mapping)]
    return any(
        auth == OAUTH or (isinstance(auth, Mapping) and auth.get("grant") != MACHINE)
        for auth in kinds
    )
