"""Sessions: conversations that several runs continue, each of which is one execution."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.errors import NotFound, UsageError
from flowengine.metachain.conversations import conversations
from flowengine.metachain.flows import STEP
from flowengine.metachain.responses import next_message

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.results import ExecutionResult

LABEL = "session"
"""The label that has its name."""
_LONGEST = 60


class SessionRequest(NamedTuple):
    """What a run says in a session."""

    session: str
    id: str
    """Of the execution."""
    flow: LoadedFlow
    message: str
    context: Mapping[str, Any]
    """Context variables that are data."""
    resources: Mapping[str, Any]


Operations = Generator[tuple[Any, str, tuple[Any, ...], dict[str, Any]], Any, "ExecutionResult"]
"""Methods to call, each of which exists for an event loop, too: object, name, arguments. Receives
their results."""


def session_id(name: str) -> str:
    """Return the id of the execution that a session is.

    Args:
        name: Of the session.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:_LONGEST]
    if plain != name:
        plain += f"-{sha256(name.encode()).hexdigest()[:8]}"
    return f"session-{plain}"


def check_session(name: str, messages: Sequence[Mapping[str, Any]], id: str | None) -> None:
    """Check what a run says in a session.

    Raises:
        UsageError: It is not one message of a user, as text; or the run has an id of its own.
    """
    if not name.strip():
        raise UsageError(f"session is {name!r}", hint="give it a name: session='ana'")
    if id is not None:
        raise UsageError(
            f"the run has an id and the session {name!r}, which is an execution by itself",
            hint="leave out 'id'",
        )
    request = [
        one for one in messages if one.get("role") == "user" and _is_text(one.get("content"))
    ]
    if len(messages) != 1 or not request:
        raise UsageError(
            f"a run of the session {name!r} begins with one message of the user, as text",
            hint="what was said before is in the session: run(agent, 'next', session=…)",
        )


def _is_text(content: Any) -> bool:
    return isinstance(content, str) and bool(content.strip())


def has_begun(engine: Engine, id: str) -> bool:
    """Return whether there is a session.

    Args:
        engine: Would have it.
        id: Of its execution.
    """
    try:
        engine.store.execution(id)
    except NotFound:
        return False
    return True


def continued(engine: Engine, request: SessionRequest) -> Operations:
    """Say the next message in a session.

    Args:
        engine: Has the session.
        said: The run.

    Returns:
        What to call: a run that was interrupted goes on first; an execution of agents that have
        changed is moved to their new flow.

    Raises:
        UsageError: The session waits for a decision, has ended, or cannot be continued by these
            agents.
    """
    objects = {"runtime_resources": request.resources}
    result = engine.result(request.id)
    if not result.ended and not result.waits:
        resumed: ExecutionResult = yield engine, "resume", (request.id,), objects
        if _newest(engine, request.id) == request.message:
            return resumed  # who was not answered says it again
        result = resumed
    _check_open(request, result)
    _check_variables(engine, request)
    if engine.store.execution(request.id).hash != request.flow.form:
        [moved] = yield engine, "upgrade", (request.flow, request.id), {}
        _check_moved(request, moved)
        result = engine.result(request.id)
    wait, form = next_message(result.waits), {"answer": request.message}
    engine.decide(str(wait), "answer", form=form, resume=False)
    last: ExecutionResult = yield engine, "resume", (request.id,), objects
    return last


def failure(engine: Engine, result: ExecutionResult) -> dict[str, Any] | None:
    """Return why the newest message of a session has no answer; None: it has one, or may get it.

    The message is asked again if it is said again.

    Args:
        engine: Has the session.
        result: Of its execution.
    """
    if result.ended or next_message(result.waits) is None:
        return None
    failed = conversations(engine, result.execution)[STEP].failed
    type, _, message = failed.partition(": ")
    return {"type": type, "message": message} if failed else None


def _newest(engine: Engine, execution: str) -> Any:
    """Return what the user has said last."""
    found = conversations(engine, execution)[STEP]
    if not 0 <= found.asked < len(found.messages):
        return None  # nothing was said, or a check refused it
    return found.messages[found.asked]["content"]


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
    """Refuse data that would be ignored: the session has its own since it began."""
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
        why = "; ".join(str(one["why"]) for one in moved["obstacles"]) or moved["verdict"]
        raise UsageError(
            f"the agents of the session {request.session!r} have changed, and it cannot go on with "
            f"them: {why}",
            hint="take another name, or the agents as they were",
        )


def driven(operations: Operations) -> ExecutionResult:
    """Call methods one after the other, and return the last result."""
    given: Any = None
    while True:
        try:
            owner, name, args, keywords = operations.send(given)
        except StopIteration as done:
            result: ExecutionResult = done.value
            return result
        given = getattr(owner, name)(*args, **keywords)


async def driven_async(operations: Operations) -> ExecutionResult:
    """Do the same on the running event loop."""
    given: Any = None
    while True:
        try:
            owner, name, args, keywords = operations.send(given)
        except StopIteration as done:
            result: ExecutionResult = done.value
            return result
        given = await getattr(owner, f"{name}_async")(*args, **keywords)
