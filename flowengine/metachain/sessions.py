"""Sessions: conversations that several runs continue, each within a single execution."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.errors import UsageError
from flowengine.metachain.conversations import conversations
from flowengine.metachain.flows import STEP
from flowengine.metachain.responses import next_message

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.results import ExecutionResult

LABEL = "session"
"""The label that contains the name of the session."""
_LONGEST = 60


class SessionRequest(NamedTuple):
    """The inputs of a run in a session."""

    session: str
    id: str
    """Id of the execution."""
    flow: LoadedFlow
    message: str
    context: Mapping[str, Any]
    """Context variables that are data."""
    resources: Mapping[str, Any]


def session_id(name: str) -> str:
    """Return the id of a session's execution.

    Args:
        name: Name of the session.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:_LONGEST]
    if plain != name:
        plain += f"-{sha256(name.encode()).hexdigest()[:8]}"
    return f"session-{plain}"


def check_session(name: str, messages: Sequence[Mapping[str, Any]], id: str | None) -> None:
    """Check the inputs of a run in a session.

    Raises:
        UsageError: They are not a single text message of a user, or the run has its own id.
    """
    if not name.strip():
        raise UsageError(f"session is {name!r}", hint="give it a name: session='ana'")
    if id is not None:
        raise UsageError(
            f"the run has an id and the session {name!r}, which is an execution by itself",
            hint="leave out 'id'",
        )
    request = [
        message
        for message in messages
        if message.get("role") == "user" and _is_text(message.get("content"))
    ]
    if len(messages) != 1 or not request:
        raise UsageError(
            f"a run of the session {name!r} begins with one message of the user, as text",
            hint="what was said before is in the session: run(agent, 'next', session=…)",
        )


def _is_text(content: Any) -> bool:
    return isinstance(content, str) and bool(content.strip())


async def continued(engine: Engine, request: SessionRequest) -> ExecutionResult:
    """Send the next message to a session, and return its state afterwards.

    An interrupted run is resumed first. If the agents have changed, the execution is moved to their
    new flow.

    Args:
        engine: The engine with the session.
        request: The inputs of the run.

    Raises:
        UsageError: The session waits for a decision, has ended, or cannot be continued by these
            agents.
    """
    result = engine.result(request.id)
    if not result.ended and not result.waits:
        result = await engine.resume_async(request.id, runtime_resources=request.resources)
        if _newest(engine, request.id) == request.message:
            return result  # the message repeats the one that had no answer yet
    _check_open(request, result)
    _check_variables(engine, request)
    if engine.store.execution(request.id).hash != request.flow.form:
        [moved] = await engine.upgrade_async(request.flow, request.id)
        _check_moved(request, moved)
        result = engine.result(request.id)
    wait, form = next_message(result.waits), {"answer": request.message}
    engine.decide(str(wait), "answer", form=form, resume=False)
    return await engine.resume_async(request.id, runtime_resources=request.resources)


def failure(engine: Engine, result: ExecutionResult) -> dict[str, Any] | None:
    """Return why a session's newest message has no answer, unless it has or awaits one.

    Sending the same message again retries it.

    Args:
        engine: The engine with the session.
        result: Result of its execution.
    """
    if result.ended or next_message(result.waits) is None:
        return None
    failed = conversations(engine, result.execution)[STEP].failed
    type, _, message = failed.partition(": ")
    return {"type": type, "message": message} if failed else None


def _newest(engine: Engine, execution: str) -> Any:
    """Return the last message of the user."""
    conversation = conversations(engine, execution)[STEP]
    if not 0 <= conversation.asked < len(conversation.messages):
        return None  # no message yet, or a check refused it
    return conversation.messages[conversation.asked]["content"]


def _check_open(request: SessionRequest, result: ExecutionResult) -> None:
    if result.ended:
        raise UsageError(
            f"the session {request.session!r} has ended: {result.status}",
            hint="take another name",
        )
    if next_message(result.waits) is None:
        wait = result.waits[0] if result.waits else {}
        raise UsageError(
            f"the session {request.session!r} waits: {wait.get('title') or wait.get('kind')}",
            hint=f"decide, then call resume({request.id!r}, agent); after that say more",
        )


def _check_variables(engine: Engine, request: SessionRequest) -> None:
    """Reject data that would be ignored, because the session has stored other values."""
    kept = conversations(engine, request.id)[STEP].context
    first = engine.show(request.id)["inputs"]["context"]
    for name, value in request.context.items():
        if value not in (kept.get(name), first.get(name)):
            raise UsageError(
                f"the session {request.session!r} has another value of {name!r}",
                hint="its variables are those of the first run, as its tools have changed them",
            )


def _check_moved(request: SessionRequest, moved: Mapping[str, Any]) -> None:
    if not moved["moved"]:
        why = "; ".join(str(obstacle["why"]) for obstacle in moved["obstacles"]) or moved["verdict"]
        raise UsageError(
            f"the agents of the session {request.session!r} have changed, and it cannot go on with "
            f"them: {why}",
            hint="take another name, or the agents as they were",
        )
