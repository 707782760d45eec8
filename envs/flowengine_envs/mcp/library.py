"""The names of the protocol's library."""

from typing import TYPE_CHECKING

from flowengine_envs.libraries import names_of

if TYPE_CHECKING:
    from mcp import *
    from mcp.client.auth import *
    from mcp.client.auth.extensions.client_credentials import *
    from mcp.client.auth.utils import *
    from mcp.client.streamable_http import *
    from mcp.shared.auth import *
    from mcp.shared.dispatcher import *
    from mcp.shared.inbound import *
    from mcp.shared.message import *
    from mcp.types import *
    from mcp_types import *
    from mcp_types.methods import *
    from mcp_types.version import *
else:
    __getattr__ = names_of(
        *("mcp", "mcp.types", "mcp_types", "mcp_types.version", "mcp_types.methods"),
        *("mcp.shared.message", "mcp.shared.dispatcher", "mcp.shared.inbound", "mcp.shared.auth"),
        *("mcp.client.streamable_http", "mcp.client.auth", "mcp.client.auth.utils"),
        "mcp.client.auth.extensions.client_credentials",
    )
