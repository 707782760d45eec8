"""The MCP server, of both generations of the protocol, by its SDK.

- Up to 2025-11-25, a client has a session, and the server asks it by a request (`elicitation`).
- From 2026-07-28 on, without a session: the call ends with `input_required`, and the client calls
  again with the answer and the state that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError

from flowengine import __version__
from flowengine.engines.results import ENDED
from flowengine.errors import FlowEngineError, InputError
from flowengine.sdk.values.validation import validate
from flowengine.server.mcp import tools
from flowengine.server.mcp.calls import (
    Caller,
    TakenAnswers,
    ToolCalls,
    ToolClient,
    read_progress,
)
from flowengine.server.places import Places
from flowengine.server.problems import as_json, problem_of

_INSTRUCTIONS = (
    "Each tool runs a flow. A flow can take long, and can wait for the decision of a person. Then "
    "the result has the id of the execution, and what it waits for. "
    f"'{tools.STATUS}' shows its result later."
)


async def _call(
    calls: ToolCalls, caller: Caller, client: ToolClient, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    """Answer a call of a tool."""
    given, seconds = params.arguments or {}, None
    flow = None
    if params.name == tools.STATUS:
        validate(tools.STATUS_TOOL.input_schema, dict(given), "the arguments")
        execution, seconds = given.get("execution"), float(given.get("wait_seconds", 0))
        if execution is None and params.request_state is None:
            return _result(await calls.newest(caller))
    else:
        flow = params.name
        if not await calls.of_flows(caller, lambda call: tools.is_tool(call, params.name)):
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}")
    taken: TakenAnswers = {}
    if params.request_state is not None:
        try:
            known = read_progress(params.request_state)
        except InputError as error:
            raise MCPError(types.INVALID_PARAMS, error.message) from None
        progress = await calls.find(caller, known.execution, flow)
        progress = progress._replace(passed=known.passed)
        responses: Mapping[str, Any] = params.input_responses or {}
        for wait, response in responses.items():
            is_answer = wait in progress.passed and isinstance(response, types.ElicitResult)
            if is_answer and response.action == "accept":
                taken[wait] = await calls.decide(caller, progress, wait, response)
    elif flow is None:
        progress = await calls.find(caller, execution or "", None)
    else:
        progress = await calls.begin(caller, flow, given)
    result = await calls.go_on(caller, progress, client, seconds, taken)
    if isinstance(result, types.InputRequiredResult):
        return result
    return _result(result, failed=result["status"] in ENDED and result["status"] != "succeeded")


def mcp_server(calls: ToolCalls, caller_of: Callable[[Any], Caller]) -> Server[Any]:
    """Return an MCP server with the flows as tools.

    Args:
        calls: Answers the calls.
        caller_of: Returns the user of a request, from its context.
    """

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        after = None if params is None else params.cursor
        found = await calls.of_flows(caller_of(ctx), lambda call: tools.list_tools(call, after))
        page = found or tools.ToolPage([], None)
        return types.ListToolsResult(
            tools=[*page.tools, *([tools.STATUS_TOOL] if page.next is None else ())],
            next_cursor=page.next,
            ttl_ms=0,
            cache_scope="private",
        )

    async def call_tool(
        ctx: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            return await _call(calls, caller_of(ctx), ToolClient(ctx), params)
        except FlowEngineError as error:
            return _result({"error": problem_of(error)}, failed=True)

    return Server(
        "flowengine",
        version=__version__,
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=lambda name: None,  # no argument of ours is also a header
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


class UserSessions(StreamableHTTPSessionManager):
    """The sessions of all users. Each user has a share of them.

    Args:
        places: The share.
        options: As for the SDK's class.
    """

    def __init__(self, places: Places, *options: Any, **more: Any) -> None:
        super().__init__(*options, **more)
        self._places = places

    def _admit_session(
        self, requestor: AuthorizationContext | None
    ) -> StreamableHTTPServerTransport | None:
        """Open a session. The SDK calls this under its lock, and ends sessions by itself.

        Raises:
            RequestRefused: The user has as many as one may have.
        """
        user = "" if requestor is None else requestor["subject"] or ""
        users = [owner["subject"] for owner in self._session_owners.values()]
        if users.count(user) >= self._places.of_user:
            raise self._places.refusal(user)
        return super()._admit_session(requestor)


def _result(structured: Mapping[str, Any], *, failed: bool = False) -> types.CallToolResult:
    text = as_json(structured).decode()
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=dict(structured), is_error=failed
    )
