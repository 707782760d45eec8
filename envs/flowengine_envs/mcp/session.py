"""A session with an MCP server: its tools, resources and prompts."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from flowengine.sdk import (
    Plain,
    ToolError,
)
from flowengine.sdk.environments import Request, both_forms
from flowengine.sdk.environments.network_hints import network_hint, reachable
from flowengine.sdk.tools.browser_tools import OfferedTool
from flowengine_envs.mcp import library
from flowengine_envs.mcp.client_requests import (
    ConnectedClient,
    ConnectionSettings,
    Progress,
    as_data,
    seldom,
)
from flowengine_envs.mcp.elicitation import (
    ROUNDS,
    URL_REQUIRED,
    CallInputs,
    pause,
)
from flowengine_envs.mcp.messages import (
    unanswered,
)
from flowengine_envs.mcp.tool_list import Approved, Changed, ToolList

_COMPLETED = 100
"""Maximum number of suggested values: the protocol's own limit."""


class McpToolResult(NamedTuple):
    """The answer of a tool. A tool error is also an answer."""

    content: list[dict[str, Plain]]
    """Parts: `{"type": "text", "text": ...}`, images, links."""
    structured: Plain
    """The answer as data, if the tool provides it."""
    is_error: bool

    @property
    def text(self) -> str:
        """All text parts, joined by newlines."""
        return "\n".join(str(part["text"]) for part in self.content if part.get("type") == "text")


class McpSession(ConnectedClient):
    """A session with a server: tools, resources and prompts.

    Args:
        request: The request to open the environment.
        config: The server's config.
        connection: Its connection.
        server: Its name among several, for messages.
    """

    def __init__(
        self, request: Request, config: Any, connection: ConnectionSettings, server: str = ""
    ) -> None:
        super().__init__(request, config, connection, server)
        self._network = reachable(request)
        self._tools = ToolList(request, self.name, self._read_tools)
        self._added = {str(tool["name"]): tool for tool in own_tools(config)}
        """Tools for the server's resources and prompts."""
        self._hidden: list[Plain] = []
        """Names of the server's tools that they hide."""

    @property
    def tools_changed(self) -> Changed | None:
        """The last change of the tool list, if the server listed other tools before.

        Earlier approvals apply to the old description of a tool.
        """
        return self._tools.changed

    async def _offers(self) -> list[OfferedTool]:
        """Return the server's tools as offered to models, each with a digest.

        Tools that cannot be called have a `fault`, and no schema.

        Raises:
            LimitExceeded: It lists more than 10,000, or more than `limits.output` bytes.
            EnvironmentLost: The server has ended.
        """
        return self._tools.offers(await self._tools.all())

    @staticmethod
    def approved(source: str | None) -> Approved:
        """Return the approval of a tool, for `call_tool`.

        Args:
            source: Digest of the description shown to the approver. None: the session was not open.
        """
        return Approved(source)

    inputs = staticmethod(CallInputs)

    def tool_text(self, name: str) -> str | None:
        """Return the server's last description of a tool. None: it has not been read yet."""
        return self._tools.text(name)

    offers, async_offers = both_forms(_offers)

    async def _list_tools(self) -> list[dict[str, Plain]]:
        """Return the usable tools of the server: name, description, `inputSchema` and so on.

        Raises:
            LimitExceeded: It lists more than 10,000, or more than `limits.output` bytes.
            EnvironmentLost: The server has ended.
        """
        return await self._tools.all()

    list_tools, async_list_tools = both_forms(_list_tools)

    async def _call_tool(
        self,
        name: str,
        args: Mapping[str, Plain] | None = None,
        *,
        timeout: float | None = None,
        digest: str | None = None,
        approved: Approved | None = None,
        traceparent: str | None = None,
        progress: Progress | None = None,
        inputs: CallInputs | None = None,
    ) -> McpToolResult:
        """Call a tool once.

        It is never retried automatically. If the server is lost during the call, the tool may have
        taken effect.

        Args:
            name: Its name on the server.
            args: Its arguments.
            timeout: Seconds to wait for the answer. Default: `limits.time`.
            digest: Digest of the offered tool. None: the tool is called in any version.
            approved: The approval, if one was requested.
            traceparent: The header that continues the trace of the caller (W3C Trace Context).
            progress: Receives what the server reports during the call. It is called on the
                session's event loop, at most every 0.5 s, and must not block.
            inputs: The input that the server may request. None: it may request none.

        Returns:
            The answer, which may be a tool error.

        Raises:
            NeedsInput: The server requests input. The call has ended, and can be made again.
            ToolChanged: It differs from the offered tool and was not called.
            ToolError: The tool does not exist, or the server refused the call.
            Timeout: There was no answer in time. If the server does not answer other requests
                either, it is ended.
            LimitExceeded: The answer has more than `limits.output` bytes.
            EnvironmentLost: The server has ended. The outcome is unknown.
        """
        await self._tools.check(name, digest, approved)
        if name in self._added:
            content, structured = await self._call_own(name, args or {})
            return McpToolResult(content, structured, False)
        meta: Any = None if traceparent is None else {"traceparent": traceparent}
        heard = None if progress is None else seldom(progress)
        call = partial(self._made_call, name, dict(args or {}), meta, heard, inputs)
        answer = await self._ask(call, f"tool {name}", timeout, inputs)
        result = McpToolResult(as_data(answer.content), answer.structured_content, answer.is_error)
        if result.is_error and (hint := network_hint(self._network, result.text)):
            result.content.append({"type": "text", "text": hint})
        if result.is_error and (request := unanswered(result.text)):
            result.content.append({"type": "text", "text": f"({request})"})
        return result

    async def _call_own(
        self, name: str, args: Mapping[str, Plain]
    ) -> tuple[Parts, dict[str, Plain] | None]:
        """Call a tool for resources or prompts: return the parts of its answer, or it as data."""

        def text(argument: str) -> str:
            value = args.get(argument)
            if not isinstance(value, str):
                raise ToolError(
                    f"{self.name}: {name}: '{argument}' must be a text", retryable=False
                )
            return value

        if name == "list_resources":
            resources = await self.async_list_resources()
            templates = await self.async_list_resource_templates()
            return [], {"resources": list(resources), "templates": list(templates)}
        if name == "list_prompts":
            return [], {"prompts": list(await self.async_list_prompts())}
        if name == "read_resource":
            found = await self.async_read_resource(text("uri"))
            form = as_file if args.get("as_file") is True else dict
            return [as_part({"type": "resource", "resource": form(one)}) for one in found], None
        given = args.get("arguments", {})
        if not isinstance(given, Mapping) or not all(
            isinstance(one, str) for one in given.values()
        ):
            raise ToolError(f"{self.name}: {name}: 'arguments' must be texts", retryable=False)
        return [said(one) for one in await self.async_get_prompt(text("name"), given)], None

    async def _made_call(
        self,
        name: str,
        args: dict[str, Any],
        meta: Any,
        heard: library.ProgressFnT | None,
        inputs: CallInputs | None,
        client: library.Client,
    ) -> library.CallToolResult:
        """Make a call, and make it again with each input that its answers request."""
        responses, state = (None, None) if inputs is None else inputs.begin()
        is_listed = False
        for number in range(ROUNDS):
            try:
                answer = await client.session.call_tool(
                    name,
                    args,
                    input_responses=responses,
                    request_state=state,
                    meta=meta,
                    progress_callback=heard,
                    allow_input_required=True,
                )
            except library.MCPError as error:
                if error.code == library.HEADER_MISMATCH and not is_listed:
                    await self._tools.all()
                    is_listed = True
                elif inputs is None:
                    raise
                elif error.code == URL_REQUIRED:
                    inputs.open_pages(error.data)
                elif error.code != library.INVALID_PARAMS or not inputs.forget_state():
                    raise
                else:
                    responses, state = inputs.begin()
                continue
            if isinstance(answer, library.CallToolResult):
                return answer
            if inputs is None:
                raise ToolError(
                    f"{self.name}: tool {name}: {unanswered('elicit')}", retryable=False
                )
            if not answer.input_requests:
                await pause(number)
            responses, state = inputs.responses(answer), answer.request_state
        message = f"{self.name}: tool {name}: it was not finished after {ROUNDS} requests"
        raise ToolError(message, retryable=False)

    call_tool, async_call_tool = both_forms(_call_tool)

    async def _list_resources(self) -> list[dict[str, Plain]]:
        """Return all resources of the server."""
        return await self._all("resources", lambda at, client: client.list_resources(cursor=at))

    list_resources, async_list_resources = both_forms(_list_resources)

    async def _list_resource_templates(self) -> list[dict[str, Plain]]:
        """Return all templates of addresses of resources: `name`, `uriTemplate` and so on."""
        return await self._all(
            "resource_templates", lambda at, client: client.list_resource_templates(cursor=at)
        )

    list_resource_templates, async_list_resource_templates = both_forms(_list_resource_templates)

    async def _read_resource(self, uri: str) -> list[dict[str, Plain]]:
        """Return the parts of a resource.

        Args:
            uri: Its address.

        Returns:
            Parts with `text`, or `blob` in base64.
        """
        answer = await self._ask(lambda client: client.read_resource(uri), f"resource {uri}")
        return as_data(answer.contents)

    read_resource, async_read_resource = both_forms(_read_resource)

    async def _list_prompts(self) -> list[dict[str, Plain]]:
        """Return all prompts of the server."""
        return await self._all("prompts", lambda at, client: client.list_prompts(cursor=at))

    list_prompts, async_list_prompts = both_forms(_list_prompts)

    async def _get_prompt(
        self, name: str, args: Mapping[str, str] | None = None
    ) -> list[dict[str, Plain]]:
        """Return the messages of a prompt.

        Args:
            name: Its name.
            args: Its arguments.

        Returns:
            Messages with `role` and `content`.
        """
        answer = await self._ask(
            lambda client: client.get_prompt(name, dict(args or {})), f"prompt {name}"
        )
        return as_data(answer.messages)

    get_prompt, async_get_prompt = both_forms(_get_prompt)

    async def _complete(
        self,
        argument: str,
        value: str,
        *,
        prompt: str | None = None,
        template: str | None = None,
        given: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Return the values that the server suggests for an argument, at most 100.

        Args:
            argument: Name of an argument of the prompt, or of a variable of the template.
            value: The beginning of its value.
            prompt: Name of a prompt.
            template: The address of a resource template, instead of a prompt.
            given: Values of other arguments.

        Raises:
            ToolError: Neither a prompt nor a template is named, or both. Or the server suggests no
                values.
        """
        if (prompt is None) == (template is None):
            message = f"{self.name}: completion needs either 'prompt' or 'template'"
            raise ToolError(message, retryable=False)
        ref: library.PromptReference | library.ResourceTemplateReference
        if prompt is not None:
            ref = library.PromptReference(name=prompt)
        else:
            ref = library.ResourceTemplateReference(uri=template or "")
        answer = await self._ask(
            lambda client: client.complete(
                ref, {"name": argument, "value": value}, dict(given) if given else None
            ),
            f"completion of {argument}",
        )
        return [str(each) for each in answer.completion.values[:_COMPLETED]]

    complete, async_complete = both_forms(_complete)

    async def _read_tools(self) -> list[dict[str, Plain]]:
        client = self._client
        if self._added and client is not None and client.server_capabilities.tools is None:
            return [*self._added.values()]  # A server without tools refuses to list them.
        tools = await self._all("tools", lambda at, client: client.list_tools(cursor=at))
        hidden = [tool["name"] for tool in tools if tool["name"] in self._added]
        if hidden != self._hidden:
            self._hidden = hidden
            self._log.warning("tools for its resources and prompts hide the server's: %s", hidden)
        return [*self._added.values(), *(tool for tool in tools if tool["name"] not in self._added)]


# The resources and prompts of a server as tools, if its config asks for them.

Parts = list[dict[str, Plain]]
_TEXT: Mapping[str, Plain] = {"type": "string"}
_RESOURCES: Mapping[str, tuple[str, Mapping[str, Plain]]] = {
    "list_resources": (
        "List the server's resources, and the templates of addresses of further ones.",
        {},
    ),
    "read_resource": (
        "Read a resource of the server.",
        {
            "uri": {**_TEXT, "description": "Its address, from a list or made from a template."},
            "as_file": {"type": "boolean", "description": "Keep its text as a file, too."},
        },
    ),
}
_PROMPTS: Mapping[str, tuple[str, Mapping[str, Plain]]] = {
    "list_prompts": ("List the server's prompts, with the arguments of each.", {}),
    "get_prompt": (
        "Return the text of a prompt of the server.",
        {
            "name": {**_TEXT, "description": "Its name, from the list."},
            "arguments": {"type": "object", "additionalProperties": _TEXT},
        },
    ),
}


def own_tools(config: Any) -> list[dict[str, Plain]]:
    """Return the tools for the resources and prompts of a server, as servers list theirs.

    Args:
        config: Its config: `resources` and `prompts` say whether there are tools for them.
    """
    chosen = {
        **(_RESOURCES if config.resources else {}),
        **(_PROMPTS if config.prompts else {}),
    }
    return [
        {
            "name": name,
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": dict(arguments),
                "required": [each for each in arguments if each not in ("arguments", "as_file")],
                "additionalProperties": False,
            },
        }
        for name, (description, arguments) in chosen.items()
    ]


def as_part(part: Any) -> dict[str, Plain]:
    """Return a part, as a text if it is a resource that consists of text."""
    inner = part.get("resource")
    if isinstance(inner, Mapping) and isinstance(inner.get("text"), str):
        return {"type": "text", "text": inner["text"]}
    return dict(part)


def as_file(resource: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return a resource as servers send those that are not text."""
    text = resource.get("text")
    if not isinstance(text, str):
        return dict(resource)
    rest = {key: value for key, value in resource.items() if key != "text"}
    return {**rest, "blob": base64.b64encode(text.encode()).decode()}


def said(message: Any) -> dict[str, Plain]:
    """Return a message of a prompt as a part. A text names a speaker other than the user."""
    part = as_part(message["content"])
    if part["type"] == "text" and message["role"] != "user":
        part = {**part, "text": f"{message['role']}: {part['text']}"}
    return part
