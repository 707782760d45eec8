"""`auth` of a server: how its client gets access tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from flowengine.sdk.models import Config, Secret

OAUTH = "oauth"
MACHINE = "client_credentials"
"""The grant of clients without a user."""
Scope = Annotated[str, Field(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$", max_length=200)]
Https = Annotated[str, Field(pattern="^https?://", max_length=2000)]


class OAuth(Config):
    """How a client gets its tokens. Without keys, it registers itself and users log in."""

    client_id: str | None = Field(default=None, min_length=1, max_length=2000)
    """The id of a registered client, or the address of its client metadata document."""
    client_secret: Secret | None = None
    """Its secret."""
    scopes: tuple[Scope, ...] = ()
    """The scopes to request. Default: those that the server names."""
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """`client_credentials`: the client acts for itself, without a user."""
    issuer: Https | None = None
    """The authorization server. No other one is used. Default: the one that the server names."""

    @model_validator(mode="after")
    def _complete(self) -> OAuth:
        if self.grant == MACHINE and None in (
            self.client_id,
            self.client_secret,
            self.issuer,
        ):
            raise ValueError("'client_credentials' needs 'client_id', 'client_secret' and 'issuer'")
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("'client_secret' needs 'client_id'")
        return self


Auth = Literal["oauth"] | OAuth
"""The key `auth` of a server."""


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
