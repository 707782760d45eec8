"""What a call of a tool does, below the protocol: start, wait, ask, answer.

Its state is in the store and in the client's request, none in this process. So a question is open
after a restart of the server, too.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from flowengine.engines.results import ENDED
from flowengine.errors import FlowEngineError, InputError, NotAllowed
from flowengine.kernel.view import DECIDABLE
from flowengine.server.calls import ApiCall
from flowengine.server.mcp import tools
from flowengine.server.mcp.tools import QuestionForm, decision_of, question_of
from flowengine.server.problems import as_json, problem_of
from flowengine.server.rights import Principal, Right
from flowengine.server.routes import find_route
from flowengine.server.talks import open_questions, settled

if TYPE_CHECKING:
    from flowengine.server.application import Application

VIA = "mcp"
"""The channel of starts and decisions, for the audit trail."""
WAIT_SECONDS = 30.0
"""Seconds that a call waits for the execution that it has started. Clients give up after 60."""
LARGEST = 512 * 1024
"""Bytes of a result. The outputs of a larger one are left out."""
_MOST_QUESTIONS = 8
"""Questions of one call: clients repeat a call 10 times."""
_LISTED = 10
_LONGEST_STATE = 4096
_LOOK_SECONDS = 30.0
_REST_SECONDS = 0.2
"""Seconds between two looks at a wait, at most and at least."""


class Caller(NamedTuple):
    """Who calls, and where this user finds executions and approvals."""

    principal: Principal
    address: str
    """Of the client, for the audit record."""
    execution_link: Callable[[str], str]
    """Id → where the user looks at the execution."""
    approval_link: Callable[[str], str]
    """Id → where the user decides."""


class ClientAnswer(NamedTuple):
    """What a person answered to a question."""

    accepted: bool
    content: Mapping[str, Any]


class Ask(NamedTuple):
    """A question that is to be put to the user, before the call is repeated with the answer."""

    wait: str
    """Id of the wait."""
    question: QuestionForm
    state: str
    """The client sends it along with the answer."""


class TakenAnswers(NamedTuple):
    """What became of the answers of one call."""

    decided: tuple[str, ...] = ()
    """Ids of waits that are closed, which the process that drives the execution may not know."""
    refused: str = ""
    """Why the last answer was refused. Then nothing more is asked."""

    def add(self, wait: str, refused: str) -> TakenAnswers:
        """Add an answer."""
        return self._replace(refused=refused) if refused else TakenAnswers((*self.decided, wait))


class ClientChannel(Protocol):
    """The client of one call."""

    asks: Literal["never", "now", "later"]
    """Whether its user can be asked: by a request of the server, or by an answer to the call, which
    the client then repeats."""

    async def tell(self, message: str) -> None:
        """Report progress."""

    async def answer_to(
        self, question: QuestionForm, closed: Callable[[], Awaitable[None]]
    ) -> ClientAnswer | None:
        """Ask the user now, and return the answer.

        Args:
            question: The question.
            closed: Returns once another user has answered.

        Returns:
            None: another user has answered.
        """


class CallProgress(NamedTuple):
    """The state of a call that the client keeps. It grants nothing: all of it is checked."""

    execution: str
    passed: tuple[str, ...] = ()
    """Waits that were put to the user before."""

    def sealed(self) -> str:
        """Return it as text."""
        return json.dumps(self._asdict())


def read_progress(text: str) -> CallProgress:
    """Return the state of a call from its text.

    Raises:
        InputError: It is not valid.
    """
    try:
        if len(text) > _LONGEST_STATE:
            raise ValueError
        value = json.loads(text)
        passed = tuple(value["passed"])
        if not all(isinstance(part, str) for part in (value["execution"], *passed)):
            raise ValueError
        return CallProgress(value["execution"], passed)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError("requestState is not that of an earlier answer") from None


class ToolCalls:
    """Answers calls of tools.

    Args:
        application: The server, which checks rights.
        wait_seconds: How long a call waits for the execution that it has started.
    """

    def __init__(self, application: Application, wait_seconds: float = WAIT_SECONDS) -> None:
        self._application = application
        self._wait_seconds = wait_seconds

    async def tools(self, caller: Caller, after: str | None) -> tools.ToolPage:
        """Return a page of the flows that the user may start."""
        route = find_route("list_flows")
        try:
            return await self._application.view(
                route,
                caller.principal,
                {},
                lambda call: tools.list_tools(call, after),
            )
        except NotAllowed:
            return tools.ToolPage([], None)

    async def is_tool(self, caller: Caller, name: str) -> bool:
        """Return whether a tool is a flow that the user may start."""
        route = find_route("list_flows")
        try:
            return await self._application.view(
                route,
                caller.principal,
                {},
                lambda call: tools.is_tool(call, name),
            )
        except NotAllowed:
            return False

    async def begin(self, caller: Caller, flow: str, inputs: Mapping[str, Any]) -> CallProgress:
        """Start an execution, and return the state of the call."""
        body = {"flow": flow, "inputs": dict(inputs)}
        started = await self._application.change(
            caller.principal, caller.address, "start_execution", body=body, via=VIA
        )
        return CallProgress(started["execution"])

    async def look(self, caller: Caller, execution: str, flow: str | None) -> CallProgress:
        """Return the state of a call about an execution that exists.

        Args:
            caller: The user, who must be able to see it.
            execution: Its id, or an unambiguous prefix of it.
            flow: The flow that it must be of. None: any.

        Raises:
            NotFound: It does not exist, or is hidden from the user.
            InputError: It is of another flow.
        """
        view = await self._show(caller, execution)
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

    async def take(
        self, caller: Caller, progress: CallProgress, wait: str, answer: ClientAnswer
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
            body = decision_of(found, answer.content)
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
        channel: ClientChannel,
        seconds: float | None = None,
        taken: TakenAnswers | None = None,
    ) -> dict[str, Any] | Ask:
        """Wait until an execution has ended, or the time is up, and ask its questions.

        Args:
            caller: The user.
            progress: The state of the call.
            channel: The client.
            seconds: How long to wait. Default: as long as calls wait.
            taken: What became of the answers that came with the call.

        Returns:
            The structured result, or a question for the user, who answers with the next request.
        """
        patience = self._wait_seconds if seconds is None else seconds
        taken = taken or TakenAnswers()
        name = f"execution {progress.execution}"

        async def tell(status: str) -> None:
            await channel.tell(f"{name}: {status}")

        while True:
            if taken.decided:
                patience = max(patience, self._wait_seconds)
            view = await settled(
                self._application,
                caller.principal,
                progress.execution,
                time.monotonic() + patience,
                tell,
                taken.decided,
            )
            passed = progress.passed
            asked = None
            if channel.asks != "never" and not taken.refused and len(passed) < _MOST_QUESTIONS:
                asked = await self._question(caller, open_questions(view, passed))
            if asked is None:
                return self._result(caller, view, taken.refused)
            wait, question = asked
            progress = progress._replace(passed=(*passed, wait))
            if channel.asks == "later":
                return Ask(wait, question, progress.sealed())
            answer = await channel.answer_to(question, partial(self._closed, caller, wait))
            if answer is None:
                taken = taken.add(wait, "")
            elif answer.accepted:
                taken = taken.add(wait, await self.take(caller, progress, wait, answer))

    async def _question(self, caller: Caller, waits: list[Any]) -> tuple[str, QuestionForm] | None:
        """Return the first wait that the user may decide in this client, with its form."""

        def fits(call: ApiCall) -> tuple[str, QuestionForm] | None:
            for wait in waits:
                shown: Any = call.engine.wait(wait["id"])
                if call.may(Right.DECIDE, shown["flow"]) and call.engine.may_answer(
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

    async def _show(self, caller: Caller, execution: str) -> Any:
        return await self._application.ask(
            caller.principal,
            "show_execution",
            ids={"execution": execution},
            query={"brief": True},
        )

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
                result["next"] = f"a person decides, see 'look'; then {result['next']}"
            if refused:
                result["next"] = f"the answer was not taken: {refused}; {result['next']}"
        size = len(as_json(result))
        if size > LARGEST:
            result |= {"outputs": None, "error": None, "waits": []}
            where = caller.execution_link(execution)
            result["next"] = f"the result has {size} bytes, and is left out: see {where}"
        return result


def problem_result(error: FlowEngineError) -> dict[str, Any]:
    """Return the structured result of a call that was refused."""
    return {"error": problem_of(error)}
