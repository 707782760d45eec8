"""The work of a tool call: start, wait, ask, answer.

Its state is in the store and in the client's request, none in this process. So a question is open
after a restart of the server, too.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import anyio
import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from flowengine.engines.results import ENDED
from flowengine.errors import FlowEngineError, InputError, NotAllowed
from flowengine.kernel.view import DECIDABLE
from flowengine.server.application import Application
from flowengine.server.calls import ApiCall
from flowengine.server.mcp import tools
from flowengine.server.mcp.tools import QuestionForm, decision_of, question_of
from flowengine.server.problems import as_json
from flowengine.server.rights import Principal, Right
from flowengine.server.routes import find_route

VIA = "mcp"
"""The channel of starts and decisions, for the audit trail."""
WAIT_SECONDS = 30.0
"""Seconds that a call waits for the execution that it has started. Clients give up after 60."""
LARGEST = 512 * 1024
"""Bytes of a result. The outputs of a larger one are left out."""
_MOST_QUESTIONS = 8
"""Questions of one call: clients repeat a call 10 times."""
_LISTED = 10
_LOOK_SECONDS = 30.0
_REST_SECONDS = 0.2
"""Seconds between two looks at a wait, at most and at least."""


_Found = TypeVar("_Found")


class Caller(NamedTuple):
    """Who calls, and where this user finds executions and approvals."""

    principal: Principal
    address: str
    """Of the client, for the audit record."""
    execution_link: Callable[[str], str]
    """Id → where the user looks at the execution."""
    approval_link: Callable[[str], str]
    """Id → where the user decides."""


TakenAnswers = dict[str, str]
"""Id of a wait → why the answer to it was refused. Empty: it is closed, which the process that
drives the execution possibly has not noticed yet. After a refusal, nothing more is asked."""


class CallProgress(NamedTuple):
    """The state of a call that the client keeps. It grants nothing: all of it is checked."""

    execution: str
    passed: tuple[str, ...] = ()
    """Waits that were put to the user before."""

    def sealed(self) -> str:
        """Return it as text."""
        return json.dumps(self._asdict())


_PROGRESS = TypeAdapter(CallProgress)


def read_progress(text: str) -> CallProgress:
    """Return the state of a call from its text.

    Raises:
        InputError: It is not valid.
    """
    try:
        return _PROGRESS.validate_json(text[:4096], strict=True)
    except ValidationError:
        raise InputError("requestState is not that of an earlier answer") from None


# Waiting until an execution has ended or needs a person.

_HELD = ("stalled", "quarantined")
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
"""Seconds between two looks at an execution, while others change the store all the time."""

Tell = Callable[[str], Awaitable[None]]
"""Reports the status of the execution: when it has changed, and every `TELL_SECONDS`."""
TELL_SECONDS = 10.0


async def until_rest(
    application: Application,
    principal: Principal,
    execution: str,
    until: float,
    tell: Tell,
    decided: Collection[str] = (),
) -> Mapping[str, Any]:
    """Return an execution once it has ended or waits for a person, at the latest at a time.

    Args:
        application: The server.
        principal: The user, who may see the execution.
        execution: Its full id.
        until: The time, by the monotonic clock, in seconds.
        tell: Reports progress.
        decided: Ids of waits that were just decided, which another process has yet to notice.

    Returns:
        As `GET /v1/executions/{execution}?brief=true`.
    """
    status_of, changes = find_route("show_execution"), application.changes
    ids = {"execution": execution}
    pause, reported, reported_at = _FIRST_PAUSE, "", 0.0
    while True:
        number = changes.number
        status = await application.view(status_of, principal, ids, _status)
        now = time.monotonic()
        if status != reported or now - reported_at >= TELL_SECONDS:
            reported, reported_at = status, now
            await tell(status)
        is_last = now >= until or status in ENDED or status in _HELD or application.is_closing
        if is_last or status == "waiting":
            view: Mapping[str, Any] = await application.ask(
                principal, "show_execution", ids=ids, query={"brief": True}
            )
            if is_last or open_questions(view, decided):
                return view
        await changes.after(number, min(until, now + TELL_SECONDS))
        await asyncio.sleep(min(pause, max(0.0, until - time.monotonic())))
        pause = min(2 * pause, _LONGEST_PAUSE)


def open_questions(view: Mapping[str, Any], decided: Collection[str] = ()) -> list[Any]:
    """Return the open waits of an execution that a person decides."""
    waits = view.get("waits") or ()
    return [wait for wait in waits if wait["kind"] in DECIDABLE and wait["id"] not in decided]


def _status(call: ApiCall) -> str:
    return call.engine.executions.summary(call.path["execution"])["status"]


class ToolCalls:
    """Answers calls of tools.

    Args:
        application: The server, which checks rights.
        wait_seconds: How long a call waits for the execution that it has started.
    """

    def __init__(self, application: Application, wait_seconds: float = WAIT_SECONDS) -> None:
        self._application = application
        self._wait_seconds = wait_seconds

    async def of_flows(self, caller: Caller, read: Callable[[ApiCall], _Found]) -> _Found | None:
        """Return what is read of the flows that the user sees. None: the user sees none."""
        route = find_route("list_flows")
        try:
            return await self._application.view(route, caller.principal, {}, read)
        except NotAllowed:
            return None

    async def begin(self, caller: Caller, flow: str, inputs: Mapping[str, Any]) -> CallProgress:
        """Start an execution, and return the state of the call."""
        body = {"flow": flow, "inputs": dict(inputs)}
        started = await self._application.change(
            caller.principal, caller.address, "start_execution", body=body, via=VIA
        )
        return CallProgress(started["execution"])

    async def find(self, caller: Caller, execution: str, flow: str | None) -> CallProgress:
        """Return the state of a call about an execution that exists.

        Args:
            caller: The user, who must be able to see it.
            execution: Its id, or an unambiguous prefix of it.
            flow: The flow that it must be of. None: any.

        Raises:
            NotFound: It does not exist, or is hidden from the user.
            InputError: It is of another flow.
        """
        view = await self._application.ask(
            caller.principal,
            "show_execution",
            ids={"execution": execution},
            query={"brief": True},
        )
        if flow is not None and view["flow"] != flow:
            raise InputError("requestState is that of another tool")
        return CallProgress(view["execution"])

    async def newest(self, caller: Caller) -> dict[str, Any]:
        """Return the newest executions that the user has started."""
        page = await self._application.ask(
            caller.principal, "list_executions", query={"limit": 20 * _LISTED}
        )
        own = [
            {key: item[key] for key in ("execution", "flow", "status", "started_at")}
            for item in page["items"]
            if item.get("started_by") == caller.principal.user
        ]
        return {"executions": own[:_LISTED]}

    async def decide(
        self, caller: Caller, progress: CallProgress, wait: str, answer: types.ElicitResult
    ) -> str:
        """Decide on a wait by the answer of the user, and return why it was refused, or nothing.

        Raises:
            InputError: The wait is of another execution.
        """
        ids = {"approval": wait}
        found = await self._application.ask(caller.principal, "show_approval", ids=ids)
        if found["execution"] != progress.execution:
            raise InputError("the answer is to a question of another execution")
        if found["status"] != "pending" or not found.get("choices"):
            return ""  # it was decided elsewhere
        try:
            body = decision_of(found, answer.content or {})
            await self._application.change(
                caller.principal, caller.address, "decide", ids=ids, body=body, via=VIA
            )
        except FlowEngineError as error:
            return error.with_hint
        return ""

    async def go_on(
        self,
        caller: Caller,
        progress: CallProgress,
        client: ToolClient,
        seconds: float | None = None,
        taken: TakenAnswers | None = None,
    ) -> dict[str, Any] | types.InputRequiredResult:
        """Wait until an execution has ended, or the time is up, and ask its questions.

        Args:
            caller: The user.
            progress: The state of the call.
            client: The client.
            seconds: How long to wait. Default: as long as calls wait.
            taken: The outcome of the answers that came with the call.

        Returns:
            The structured result, or a question for the user, who answers with the next request.
        """
        patience = self._wait_seconds if seconds is None else seconds
        taken = {} if taken is None else taken
        name = f"execution {progress.execution}"

        async def report(status: str) -> None:
            await client.report(f"{name}: {status}")

        while True:
            refused = "".join(taken.values())
            if taken and not refused:
                patience = max(patience, self._wait_seconds)
            view = await until_rest(
                self._application,
                caller.principal,
                progress.execution,
                time.monotonic() + patience,
                report,
                [wait for wait, why in taken.items() if not why],
            )
            passed = progress.passed
            asked = None
            if client.asks != "never" and not refused and len(passed) < _MOST_QUESTIONS:
                asked = await self._question(caller, open_questions(view, passed))
            if asked is None:
                return self._result(caller, view, refused)
            wait, question = asked
            progress = progress._replace(passed=(*passed, wait))
            if client.asks == "later":
                form = types.ElicitRequestFormParams(
                    message=question.message, requested_schema=question.schema
                )
                return types.InputRequiredResult(
                    input_requests={wait: types.ElicitRequest(params=form)},
                    request_state=progress.sealed(),
                )
            answer = await client.answer_to(question, partial(self._closed, caller, wait))
            if answer is None:
                taken[wait] = ""
            elif answer.action == "accept":
                taken[wait] = await self.decide(caller, progress, wait, answer)

    async def _question(self, caller: Caller, waits: list[Any]) -> tuple[str, QuestionForm] | None:
        """Return the first wait that the user may decide in this client, with its form."""

        def fits(call: ApiCall) -> tuple[str, QuestionForm] | None:
            for wait in waits:
                shown: Any = call.engine.approvals.show(wait["id"])
                if call.may(Right.DECIDE, shown["flow"]) and call.engine.approvals.may_answer(
                    shown, call.principal.user
                ):
                    question = question_of(shown)
                    if question is not None and shown["status"] == "pending":
                        return wait["id"], question
            return None

        if not waits:
            return None
        route = find_route("list_approvals")
        return await self._application.view(route, caller.principal, {}, fits)

    async def _closed(self, caller: Caller, wait: str) -> None:
        """Return once a wait has been decided, or has ended in another way."""
        application, changes = self._application, self._application.changes
        while not application.is_closing:
            number = changes.number
            answer = await application.ask(
                caller.principal, "show_approval", ids={"approval": wait}
            )
            if answer["status"] != "pending":
                return
            await changes.after(number, time.monotonic() + _LOOK_SECONDS)
            await asyncio.sleep(_REST_SECONDS)

    def _result(self, caller: Caller, view: Mapping[str, Any], refused: str) -> dict[str, Any]:
        """Return the structured result for an execution."""
        result = {
            key: view[key]
            for key in ("execution", "flow", "status", "outputs", "error")
            if key in view
        }
        execution = view["execution"]
        if view["status"] not in ENDED:
            result["waits"] = [
                {
                    **{key: wait[key] for key in ("id", "kind", "title", "due") if key in wait},
                    "look": caller.approval_link(wait["id"])
                    if wait["kind"] in DECIDABLE
                    else caller.execution_link(execution),
                }
                for wait in view.get("waits", ())
            ]
            result["next"] = f"call {tools.STATUS} with execution {execution}"
            if open_questions(view):
                result["next"] = f"a person decides, see 'look'. Then {result['next']}"
            if refused:
                result["next"] = f"the answer was not taken: {refused}; {result['next']}"
        size = len(as_json(result))
        if size > LARGEST:
            result |= {"outputs": None, "error": None, "waits": []}
            where = caller.execution_link(execution)
            result["next"] = f"the result has {size} bytes, and is left out: see {where}"
        return result


class ToolClient:
    """The client of one call.

    Args:
        ctx: The context of the request.
    """

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx
        self._told = 0
        self.asks: Literal["never", "now", "later"] = "never"
        capabilities = ctx.session.client_capabilities
        elicits = None if capabilities is None else capabilities.elicitation
        # Without any mode, it has forms: modes came later.
        if elicits is not None and (elicits.form is not None or elicits.url is None):
            if ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
                self.asks = "later"
            elif ctx.session.can_send_request:
                self.asks = "now"

    async def report(self, message: str) -> None:
        """Report progress, if the client wants it."""
        self._told += 1
        await self._ctx.session.report_progress(float(self._told), None, message)

    async def answer_to(
        self, question: QuestionForm, closed: Callable[[], Awaitable[None]]
    ) -> types.ElicitResult | None:
        """Ask the user now, and return the answer. None: another user has answered."""
        answer: types.ElicitResult | None = None

        async def ask() -> None:
            nonlocal answer
            answer = await self._ctx.session.elicit_form(
                question.message, question.schema, self._ctx.request_id
            )
            both.cancel_scope.cancel()

        async def watch() -> None:
            await closed()
            both.cancel_scope.cancel()

        async with anyio.create_task_group() as both:
            both.start_soon(ask)
            both.start_soon(watch)
        return answer
