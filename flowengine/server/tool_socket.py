"""Clients that follow calls of tools over a WebSocket, and decide about them.

The messages are those that clients of a tool environment receive, derived from the journal. The
first message of a client has its token and names its subscriptions. Everything else goes through
the routes of the API, with their rights and their record.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from flowengine.engines.results import ENDED
from flowengine.errors import Conflict, FlowEngineError, InputError, NotAllowed, NotFound
from flowengine.sdk.tool_calls import ApprovalResponse
from flowengine.sdk.user_code import on_thread
from flowengine.sdk.visible_text import cut_text
from flowengine.server.application import Application, address_of
from flowengine.server.calls import ApiCall
from flowengine.server.places import Places
from flowengine.server.problems import RequestRefused, status_of
from flowengine.server.rights import Principal
from flowengine.server.routes import find_route
from flowengine.server.streams import LONGEST_SECONDS
from flowengine.tool_environment.journal import TASK

PATH = "/tools"
PROTOCOL = "flowengine.tools"
"""The subprotocol of the messages."""
VIA = "websocket"
"""The channel of decisions, for the audit trail."""
FIRST_SECONDS = 10.0
"""Seconds within which the first message must arrive."""
CONNECTIONS = Places("connections", 20)
"""The share of each user."""
LONGEST_TEXT = 64 * 1024
"""Maximum characters of one text in a message. The middle of a longer text is left out."""
MOST_FOLLOWED = 200
"""Executions of a task that one connection follows: the newest ones."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_ID = Annotated[str, Field(min_length=1, max_length=200)]
_CODES = {
    NotFound: "unknown_call",
    Conflict: "not_open",
    NotAllowed: "not_allowed",
    InputError: "invalid_decision",
}
"""Error → code of a refusal, as of a tool environment."""
_DONE, _AGAIN, _REFUSED = 1000, 1012, 1008
"""Codes with which a connection is closed: no message follows, connect again, refused."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Open(_Message):
    """The first message."""

    type: Literal["open"]
    token: Annotated[str, Field(max_length=10_000)] = ""
    execution: _ID | None = None
    task: _ID | None = None
    after: Annotated[dict[str, int], Field(max_length=MOST_FOLLOWED)] = {}
    """Execution → number of the last known message."""


class _Decide(_Message):
    type: Literal["decide"]
    tool_call_id: _ID
    decision: Any
    execution: _ID | None = None


def tool_routes(application: Application) -> list[WebSocketRoute]:
    """Return the route of the clients."""

    async def connect(socket: WebSocket) -> None:
        offered = socket.scope.get("subprotocols") or ()
        await socket.accept(PROTOCOL if PROTOCOL in offered else None)
        client = _Client(application, socket)
        with suppress(WebSocketDisconnect):
            await client.serve()

    return [WebSocketRoute(PATH, connect)]


class _Client:
    """One connection.

    Args:
        application: The server.
        socket: The connection.
    """

    def __init__(self, application: Application, socket: WebSocket) -> None:
        self._application = application
        self._socket = socket
        self._principal: Principal | None = None
        self._sent: dict[str, int] = {}
        """Execution → number of the last message that was sent."""
        self._calls: dict[tuple[str, str | None], tuple[str, str]] = {}
        """Id of a call, and its execution or None → its execution and the address of its step."""
        self._answering = asyncio.Lock()
        self._ended: set[str] = set()
        self._address = address_of(socket)

    async def serve(self) -> None:
        """Answer until the client leaves, or must show its credential again."""
        try:
            asked = await self._first()
            principal = await self._identified(asked)
        except FlowEngineError as error:
            await self._refuse(error)
            return
        self._principal = principal
        try:
            async with CONNECTIONS.of(principal.user):
                self._sent = dict(asked.after)
                await self._serve(asked)
        except FlowEngineError as error:
            await self._refuse(error)

    async def _serve(self, asked: _Open) -> None:
        """Send messages and receive those of the client, until one of both ends."""
        tasks = {
            asyncio.ensure_future(self._follow(asked)),
            asyncio.ensure_future(self._receive()),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            async with self._answering:  # a decision that ends the execution is answered first
                for task in tasks:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
        code = _DONE if asked.execution in self._ended else _AGAIN
        await self._socket.close(code)

    async def _first(self) -> _Open:
        """Return the first message.

        Raises:
            RequestRefused: It is late, or another one.
        """
        try:
            text = await asyncio.wait_for(self._socket.receive_text(), FIRST_SECONDS)
            asked = _Open.model_validate_json(text)
        except TimeoutError:
            raise RequestRefused(408, "the first message did not arrive in time") from None
        except (ValidationError, KeyError):  # KeyError: it is not text
            raise RequestRefused(
                400,
                "the first message is not valid",
                hint='{"type": "open", "token": …, "execution": …} or with "task"',
            ) from None
        if (asked.execution is None) == (asked.task is None):
            raise RequestRefused(400, "the first message names either 'execution' or 'task'")
        return asked

    async def _identified(self, asked: _Open) -> Principal:
        application, socket = self._application, self._socket
        principal = await application.named_by_proxy(socket)
        principal = principal or await application.identify(socket, f"Bearer {asked.token}")
        await application.count(principal, socket)
        return principal

    # To the client

    async def _follow(self, asked: _Open) -> None:
        """Send messages as they arise, until the time is over or all that it follows has ended."""
        application, pause = self._application, _FIRST_PAUSE
        until = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < until and not application.is_closing:
            changes = application.changes.number
            for execution in await self._followed(asked):
                if execution not in self._ended:
                    pause = _FIRST_PAUSE if await self._send_new(execution) else pause
            if asked.execution is not None and self._ended:
                return
            await application.changes.after(changes, until)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _followed(self, asked: _Open) -> list[str]:
        """Return the executions that the client follows, oldest first."""
        if asked.execution is not None:
            return [asked.execution]
        assert self._principal is not None
        query = {"label": [f"{TASK}={asked.task}"], "limit": MOST_FOLLOWED}
        page = await self._application.ask(self._principal, "list_executions", query=query)
        return [item["execution"] for item in reversed(page["items"])]

    async def _send_new(self, execution: str) -> bool:
        """Send the new messages of an execution, and return whether there was one."""
        assert self._principal is not None
        full, has_ended, messages = await self._application.view(
            find_route("list_events"),
            self._principal,
            {"execution": execution},
            self._read,
        )
        for message in messages:
            await self._socket.send_text(_text_of({"execution": full, **message}))
            self._sent[full] = message["number"]
        if has_ended:
            self._ended.add(execution)
        return bool(messages)

    def _read(self, call: ApiCall) -> tuple[str, bool, list[dict[str, Any]]]:
        """Return an execution's id, whether it has ended, and its new messages."""
        engine, id = call.engine, call.path["execution"]
        has_ended = engine.executions.summary(id)["status"] in ENDED
        known, new = self._sent.get(id, 0), []
        for message in engine.executions.tool_messages(id):
            call_id, place = message["tool_call_id"], (id, message["address"])
            self._calls[call_id, id] = self._calls[call_id, None] = place
            if message["number"] > known:
                new.append(message)
        return id, has_ended, new

    async def _refuse(self, error: FlowEngineError) -> None:
        """Record why the connection is closed, and send the reason."""
        await self._application.note_act(
            self._principal, VIA.upper(), PATH, status_of(error), self._address, error.message
        )
        await self._socket.send_text(json.dumps(_refusal(error)))
        await self._socket.close(_REFUSED)

    # From the client

    async def _receive(self) -> None:
        """Answer the messages of the client, one after another.

        Raises:
            RequestRefused: The credential is no longer valid.
        """
        assert self._principal is not None
        principal = self._principal
        while True:
            received = await self._socket.receive()
            if received["type"] == "websocket.disconnect":
                return
            async with self._answering:
                await on_thread(lambda: principal.check(anew=True))
                await self._socket.send_text(json.dumps(await self._answer(received.get("text"))))

    async def _answer(self, text: str | None) -> dict[str, Any]:
        """Return the answer to a message: it is accepted or refused."""
        assert self._principal is not None
        try:
            await self._application.count(self._principal)
            asked = _Decide.model_validate_json(text or "")
            await self._decide(asked)
        except ValidationError:
            message = "a message decides: type, tool_call_id, decision, execution"
            return {"type": "refused", "code": "invalid_message", "message": message}
        except FlowEngineError as error:
            return _refusal(error)
        return {"type": "accepted", "tool_call_id": asked.tool_call_id}

    async def _decide(self, asked: _Decide) -> None:
        """Decide about a call, by the route of decisions."""
        assert self._principal is not None
        application, principal, id = self._application, self._principal, asked.tool_call_id
        execution, address = self._calls.get((id, asked.execution), ("", ""))
        items: list[Any] = []
        if execution:
            query = {"execution": execution, "status": "pending"}
            items = (await application.ask(principal, "list_approvals", query=query))["items"]
        wait = next(
            (item for item in items if item.get("tool") and item["address"] == address), None
        )
        if wait is None:
            raise NotFound(f"no call {id!r} has an open question")
        decision = ApprovalResponse.of(asked.decision)
        if decision.decision == "defer":
            return
        if (body := decision.answer_to(wait)) is None:
            raise InputError("the decision is none of the choices, or removes an argument")
        ids = {"approval": wait["id"]}
        await application.change(principal, self._address, "decide", ids=ids, body=body, via=VIA)


def _refusal(error: FlowEngineError) -> dict[str, Any]:
    code = next((code for cls, code in _CODES.items() if isinstance(error, cls)), "refused")
    field = getattr(error, "field", "") or ""
    return {"type": "refused", "code": code, "message": error.with_hint, "field": field}


_JSON = json.JSONEncoder(default=lambda value: str(value)[:LONGEST_TEXT])


def _text_of(message: dict[str, Any]) -> str:
    """Return a message as JSON, with the middle of long texts left out."""
    text = _JSON.encode(message)
    return text if len(text) <= LONGEST_TEXT else _JSON.encode(_cut(message))


def _cut(value: Any) -> Any:
    """Return plain data with the middle of long texts left out."""
    if isinstance(value, str):
        return cut_text(value, LONGEST_TEXT)
    if isinstance(value, Mapping):
        return {str(key): _cut(item) for key, item in value.items()}
    return [_cut(item) for item in value] if isinstance(value, list | tuple) else value
