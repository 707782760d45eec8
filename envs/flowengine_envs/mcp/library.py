"""The names of the protocol's library."""

from typing import TYPE_CHECKING

from flowengine_envs.libraries import names_of

if TYPE_CHECKING:
    from mcp import Client, MCPError
    from mcp.client.auth import (
        OAuthClientProvider,
        OAuthFlowError,
        OAuthRegistrationError,
        OAuthTokenError,
    )  # fmt: skip
    from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
    from mcp.client.auth.utils import extract_field_from_www_auth
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.auth import (
        AuthorizationCodeResult,
        OAuthClientInformationFull,
        OAuthClientMetadata,
        OAuthMetadata,
        OAuthToken,
        ProtectedResourceMetadata,
    )  # fmt: skip
    from mcp.shared.dispatcher import ProgressFnT, coerce_request_id
    from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER, find_invalid_x_mcp_header
    from mcp.shared.message import SessionMessage
    from mcp.types import (
        HEADER_MISMATCH,
        INVALID_PARAMS,
        INVALID_REQUEST,
        LATEST_PROTOCOL_VERSION,
        METHOD_NOT_FOUND,
        CallToolResult,
        ElicitRequest,
        ElicitRequestParams,
        ElicitResult,
        ErrorData,
        InputRequest,
        InputRequiredResult,
        JSONRPCError,
        JSONRPCMessage,
        JSONRPCNotification,
        JSONRPCRequest,
        JSONRPCResponse,
        ListRootsResult,
        Prompt,
        PromptReference,
        Resource,
        ResourceTemplate,
        ResourceTemplateReference,
        Root,
        Tool,
        ToolListChangedNotification,
    )  # fmt: skip
    from mcp_types import RequestId, jsonrpc_message_adapter
    from mcp_types.methods import validate_server_result
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS
else:
    __getattr__ = names_of(
        *("mcp", "mcp.types", "mcp_types", "mcp_types.version", "mcp_types.methods"),
        *("mcp.shared.message", "mcp.shared.dispatcher", "mcp.shared.inbound", "mcp.shared.auth"),
        *("mcp.client.streamable_http", "mcp.client.auth", "mcp.client.auth.utils"),
        "mcp.client.auth.extensions.client_credentials",
    )
