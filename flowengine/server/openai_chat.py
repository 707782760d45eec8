"""A chat endpoint for clients of OpenAI's API: each deployed flow that talks is a model.

A conversation is an execution. The protocol sends all messages with each request and names no
conversation, so the client names it in the header `X-Conversation` or in `user`. Only the newest
message is read, because the execution has the others. The protocol has no approvals: an answer that
waits for one names the place where a person decides, and the next request continues.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from flowengine.errors import FlowEngineError, InputError, NotFound
from flowengine.server.application import address_of, body_as
from flowengine.server.problems import RequestRefused, status_of
from flowengine.server.streams import event_source
from flowengine.server.talks import ArrivingPart, ArrivingReplies, Talk

if TYPE_CHECKING:
    from starlette.requests import Request

    from flowengine.engines.stream_parts import AgentPart, ToolResultPart
    from flowengine.server.application import Application
    from flowengine.server.rights import Principal

VIA = "openai"
"""The channel of starts and messages, for the audit trail."""
LONGEST_SECONDS = 600.0
_CONVERSATION = "x-conversation"
_TOOLS = "executed_tools"
"""The field with the calls that the server has made. Clients that do not know it ignore it."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")
    type: str
    text: str = ""


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore")
    role: str
    content: str | list[_Part] | None = None

    @property
    def text(self) -> str:
        content = self.content or ""
        if isinstance(content, str):
            return content
        return "\n".join(part.text for part in content if part.type == "text")


class _Asked(BaseModel):
    """The fields of a request that count. Those about sampling are the flow's own decision."""

    model_config = ConfigDict(extra="ignore")
    model: Annotated[str, Field(max_length=200)]
    messages: Annotated[list[_Message], Field(min_length=1)]
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    user: Annotated[str, Field(max_length=200)] | None = None
    tools: list[Any] = []
    n: Literal[1] | None = None


async def models(application: Application, principal: Principal, request: Request) -> Any:
    """Return the deployed flows that the user may see."""
    flows = await application.ask(principal, "list_flows")
    data = [
        {"id": item["flow"], "object": "model", "created": 0, "owned_by": "flowengine"}
        for item in flows["items"]
    ]
    return JSONResponse({"object": "list", "data": data})


async def chat(application: Application, principal: Principal, request: Request) -> Any:
    """Return the agent's answer to the newest message, whole or as a stream."""
    asked: _Asked = body_as(_Asked, request, await request.body())
    if asked.tools:
        raise InputError("the flow declares the tools of its agents", field="tools")
    name = request.headers.get(_CONVERSATION) or asked.user
    if not name:
        raise InputError(
            "the request names no conversation",
            field="user",
            hint="give it in the header X-Conversation, or in 'user'",
        )
    talk = Talk(application, principal, address_of(request), asked.model, name, VIA)
    turn = _Turn(talk, asked, str(request.base_url))
    await turn.begin()
    if not asked.stream:
        return JSONResponse(await turn.whole())
    return event_source(turn.chunks())


class _Turn:
    """The answer to one request.

    Args:
        talk: The conversation.
        asked: The request.
        base: Address of the server, for links.
    """

    def __init__(self, talk: Talk, asked: _Asked, base: str) -> None:
        self._talk = talk
        self._asked = asked
        self._base = base
        self._shown = 0
        self._message: str | None = None
        self._created = int(time.time())
        self._called: dict[str, str] = {}
        """Id of a call → its arguments, as the model wrote them."""
        self._executed = 0
        """Number of calls that were shown."""
        self._replies = ArrivingReplies("text")
        self._open = set[str]()
        """Addresses of the steps whose replies have begun."""
        self._has_text = False
        self._tokens = [0, 0]

    @property
    def _head(self) -> dict[str, Any]:
        id = f"chatcmpl-{self._talk.execution}"
        return {"id": id, "created": self._created, "model": self._asked.model}

    async def begin(self) -> None:
        """Start the conversation, or continue it. Refusals are errors of the request."""
        newest = self._asked.messages[-1]
        message = newest.text if newest.role == "user" else None
        try:
            before = await self._talk.read()
        except NotFound:
            await self._talk.start({})
            await self._talk.read()  # the right to content
            self._message = message
            return
        self._shown = _shown(before.parts, self._asked)
        for part in before.parts:
            self._note_calls(part)
        asks = [question for question in before.questions if not question.wait.get("chat")]
        self._message = None if asks else message

    async def whole(self) -> dict[str, Any]:
        """Return the whole answer."""
        texts, tools = list[str](), list[Any]()
        async for delta in self._deltas():
            texts.append(delta.get("content", ""))
            tools += delta.get(_TOOLS, ())
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts), "refusal": None}
        if tools:
            message[_TOOLS] = tools
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        head = {**self._head, "object": "chat.completion"}
        return {**head, "choices": [choice], "usage": self._usage()}

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the answer, once they exist."""
        yield self._chunk({"role": "assistant", "content": ""})
        try:
            async for delta in self._deltas():
                yield self._chunk(delta)
        except FlowEngineError as error:
            yield _data({"error": _problem(error)})
            return
        yield self._chunk({}, "stop")
        if (self._asked.stream_options or {}).get("include_usage"):
            head = {**self._head, "object": "chat.completion.chunk"}
            yield _data({**head, "choices": [], "usage": self._usage()})
        yield b"data: [DONE]\n\n"

    async def _deltas(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the pieces of the answer: text, and calls that have ended."""
        talk, until = self._talk, time.monotonic() + LONGEST_SECONDS
        async for part in talk.follow(self._shown, self._message, until):
            for text in self._texts(part):
                self._has_text = True
                yield {"content": text}
            if isinstance(part, ArrivingPart):
                continue
            if part.kind == "reply":
                self._open.discard(part.step)
                self._note_calls(part)
                for place, name in enumerate(("input_tokens", "output_tokens")):
                    self._tokens[place] += int(part.reply.usage.get(name) or 0)
            elif part.kind == "tool_result":
                yield {_TOOLS: [self._tool(part)]}
        for text in self._last():
            yield {"content": f"\n\n{text}" if self._has_text else text}
            self._has_text = True

    def _texts(self, part: AgentPart | ArrivingPart) -> Iterator[str]:
        """Yield the next pieces of the text of replies."""
        for piece in self._replies.pieces(part):
            if piece.kind == "broken":
                self._open.discard(piece.address)
                if isinstance(part, ArrivingPart):
                    yield "\n\n[The model starts again.]"
                continue
            if piece.address not in self._open and self._has_text:
                yield "\n\n"
            self._open.add(piece.address)
            yield piece.text

    def _note_calls(self, part: AgentPart) -> None:
        """Note the arguments of the calls of a reply."""
        if part.kind == "reply":
            self._called |= {call.id: call.sent for call in part.reply.calls}

    def _tool(self, part: ToolResultPart) -> dict[str, Any]:
        """Return a call that has ended. `tool_calls` would ask the client to make it."""
        self._executed += 1
        return {
            "index": self._executed - 1,
            "type": "function",
            "id": part.call,
            "name": part.tool,
            "arguments": self._called.get(part.call, ""),
            "output": part.shown,
            "value": part.value,
        }

    def _last(self) -> Iterator[str]:
        """Yield the open questions and the end, for which the protocol has no other place."""
        talk = self._talk
        if talk.asked is None or talk.found is None:
            yield "[The execution still runs. Send another message to continue.]"
            return
        result = talk.found.result
        if result.status in ("failed", "cancelled"):
            error: Mapping[str, Any] = result.error or {}
            raise InputError(str(error.get("message", f"the execution is {result.status}")))
        for item in talk.asked:
            wait = item.wait
            if not wait.get("chat"):
                title = wait.get("title") or wait.get("tool") or wait["kind"]
                place = f"{self._base}approvals/{wait['id']}"
                yield f"[A person decides first: {title} {place} Then send another message.]"
        if result.ended and self._message is not None and not self._has_text:
            yield "[This conversation has ended. Choose another name for a new one.]"

    def _usage(self) -> dict[str, int]:
        asked, answered = self._tokens
        return {
            "prompt_tokens": asked,
            "completion_tokens": answered,
            "total_tokens": asked + answered,
        }

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data({**self._head, "object": "chat.completion.chunk", "choices": [choice]})


def _shown(parts: list[AgentPart], asked: _Asked) -> int:
    """Return how many parts the client has seen: up to the last one that its messages contain.

    A client that sends no earlier answers has seen all. Replies after a decision are thus shown
    with the next answer.
    """
    answers = [message.text for message in asked.messages if message.role == "assistant"]
    for number in range(len(parts), 0, -1):
        part = parts[number - 1]
        text = part.reply.text if part.kind == "reply" else ""
        if text and any(text in answer for answer in answers):
            return number
    return len(parts)


def _data(data: Any) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _problem(error: FlowEngineError) -> dict[str, Any]:
    """Return an error in the form of this protocol."""
    field = getattr(error, "field", None) or None
    return {
        "message": error.with_hint,
        "type": "invalid_request_error",
        "param": field,
        "code": type(error).__name__,
    }


def refusal(error: FlowEngineError) -> JSONResponse:
    """Return the answer to a request that is refused, in the form of this protocol."""
    headers = error.headers if isinstance(error, RequestRefused) else None
    return JSONResponse({"error": _problem(error)}, status_of(error), headers)
