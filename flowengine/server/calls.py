"""One request, as the functions that answer it see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple, cast

from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow
from flowengine.engines.results import WaitInfo
from flowengine.errors import (
    Conflict,
    FlowEngineError,
    Hint,
    InputError,
    NotAllowed,
    NotFound,
    UsageError,
)
from flowengine.kernel.notation.times import parse_time
from flowengine.kernel.view import DECIDABLE
from flowengine.server.records import ServerRecords
from flowengine.server.redaction import QuotingEngine, wait_without_content
from flowengine.server.rights import Principal, Right

_MOST_PAGES = 20
"""Maximum number of pages of the store that one page of a list is made from."""


class Found(NamedTuple):
    """An object in a path."""

    id: str
    """Its full id."""
    flow: str
    """Id of its flow."""


class ApiCall(NamedTuple):
    """A request by a user whose credential was checked."""

    engine: Engine
    """Acts as the user."""
    principal: Principal
    records: ServerRecords
    path: Mapping[str, str]
    """The parts of the path, by name."""
    query: Any
    """The model of the route's parameters."""
    body: Any
    """The model of the route's body."""
    seed: str | None
    """Random, the same for each request with the same idempotency key. None: it has no key."""
    flow: str
    """Id of the flow of the execution or wait in the path. Empty: there is none."""
    namespace: str | None = None
    """The header `X-Namespace`, with which Temporal's programs name the namespace of payloads."""

    def may(self, right: Right, flow: str) -> bool:
        """Return whether the user has a right on a flow."""
        return self.principal.may(right, flow)

    def need(self, right: Right, flow: str) -> None:
        """Check that the user has a right on a flow. A flow that the user does not see has no name.

        Raises:
            NotAllowed: The user does not have it.
        """
        if not self.may(right, flow):
            on = f" on flow '{flow}'" if self.may(Right.SEE, flow) else ""
            raise lacks(self.principal, right, on)

    def sees_all_of(self, wait: WaitInfo) -> bool:
        """Return whether the user sees the question of a wait: by right, or to decide it."""
        return _sees_all_of(self.engine, self.principal, wait)


def _sees_all_of(engine: Engine, principal: Principal, wait: WaitInfo) -> bool:
    if principal.may(Right.CONTENT, wait["flow"]):
        return True
    decides = wait["kind"] in DECIDABLE and principal.may(Right.DECIDE, wait["flow"])
    return decides and engine.approvals.may_answer(wait, principal.user)


def lacks(principal: Principal, right: Right, on: str = "") -> NotAllowed:
    """Return the error about a user without a right."""
    return NotAllowed(
        f"{principal.user} does not have the right '{right.value}'{on}",
        hint="rights come from 'access' in the host's settings.yaml and the token's scope",
    )


def engine_for(engine: Engine, principal: Principal, via: str) -> Engine:
    """Return an engine that acts as a user, and whose errors quote no data that is hidden.

    Args:
        engine: The store's engine.
        principal: The user.
        via: The channel of decisions, for the audit trail.
    """
    own = engine.acting_as(principal.user, via=via)

    def sees(error: FlowEngineError) -> bool:
        if error.wait is not None:
            return _sees_all_of(own, principal, own.approvals.show(error.wait))
        return principal.may(Right.CONTENT, error.flow or "")  # only the pattern `*` matches ""

    return cast("Engine", QuotingEngine(own, sees))


def deployed_flow(call: ApiCall, name: str, right: Right = Right.SEE) -> LoadedFlow:
    """Return a deployed flow on which the user has a right.

    Args:
        call: The request.
        name: `ID`, `ID@VERSION` or a hash.
        right: The right.

    Raises:
        NotFound: It is not deployed, or is hidden from the user.
        NotAllowed: The user does not have the right.
    """
    try:
        flow = call.engine.flows.find(name, flows=partial(call.may, Right.SEE))
    except (NotFound, UsageError):  # the beginning of several hashes
        raise NotFound(
            f"no flow '{name}' is deployed",
            hint=Hint("flowengine flows list", http="list them: GET /v1/flows"),
        ) from None
    call.need(right, flow.id)
    return flow


def flow_of_execution(engine: Engine, principal: Principal, id: str) -> Found:
    """Return the full id of an execution, and its flow.

    Args:
        engine: Contains the execution.
        principal: The user.
        id: Its id, or an unambiguous prefix of it.

    Raises:
        NotFound: It does not exist, or is hidden from the user.
    """

    def find() -> Found:
        record = engine.store.execution(engine.store.find_execution(id, _seen_by(principal)))
        return Found(record.id, record.flow)

    return _visible(principal, f"execution '{id}'", find)


def flow_of_wait(engine: Engine, principal: Principal, id: str, what: str = "approval") -> Found:
    """Return the full id of a wait or a grant, and its flow. See `flow_of_execution`."""

    def find() -> Found:
        wait = engine.store.wait(engine.store.find_wait(id, _seen_by(principal)))
        return Found(wait.id, wait.flow)

    return _visible(principal, f"{what} '{id}'", find)


def _seen_by(principal: Principal) -> Callable[[str], bool] | None:
    """Return whether a user sees a flow, to find ids by their prefixes. None: all flows."""
    if principal.may(Right.SEE, ""):
        return None
    return cache(partial(principal.may, Right.SEE))


def flow_of_owner(engine: Engine, execution: str | None) -> str:
    """Return the id of the flow of the execution that owns an environment.

    Args:
        engine: Contains the execution.
        execution: The execution, if it belongs to one.

    Returns:
        Empty if the execution does not exist. Users with a right on all flows have it there, too.
    """
    try:
        return "" if execution is None else engine.store.execution(execution).flow
    except NotFound:
        return ""


def _flow_of_environment(engine: Engine, principal: Principal, name: str) -> Found:
    """Return the id of an environment, and the flow of its owner. See `flow_of_execution`."""

    def find() -> Found:
        environment = engine.open_environment(name)  # a prefix must be unambiguous among all
        return Found(environment["id"], flow_of_owner(engine, environment["execution"]))

    return _visible(principal, f"environment '{name}'", find)


FLOWS: dict[str, Callable[[Engine, Principal, str], Found]] = {
    "execution": flow_of_execution,
    "approval": flow_of_wait,
    "environment": _flow_of_environment,
    "grant": partial(flow_of_wait, what="grant"),
}
"""Object in a path → how its flow is found, on which the right of a route is needed."""


def subject_of(path: str) -> str | None:
    """Return the object in the path of a route on whose flow its right is needed."""
    return next((name for name in FLOWS if f"{{{name}}}" in path), None)


def _visible(principal: Principal, what: str, find: Callable[[], Found]) -> Found:
    try:
        subject = find()
    except (Conflict, NotFound, UsageError):  # several have the prefix
        subject = None
    if subject is None or not principal.may(Right.SEE, subject.flow):
        raise NotFound(f"there is no {what}", hint="give its full id, or an unambiguous prefix")
    return subject


def shown_wait(call: ApiCall, wait: WaitInfo) -> Any:
    """Return a wait with its question if the user may see that or decides it."""
    return wait if call.sees_all_of(wait) else wait_without_content(wait)


def visible_page(
    read: Callable[[int, str | None], Any],
    is_shown: Callable[[Any], bool],
    limit: int,
    after: str | None,
) -> dict[str, Any]:
    """Return a page of the items that a user may see.

    It is shorter than `limit` if the user may see few of many items: `next` then continues.

    Args:
        read: Returns a page of the store: `(limit, after)`.
        is_shown: Whether the user may see an item.
        limit: Size of the page.
        after: `next` of the page before.
    """
    items: list[Any] = []
    for _ in range(_MOST_PAGES):
        page = read(limit - len(items), after)
        items += [item for item in page.items if is_shown(item)]
        after = page.next
        if after is None or len(items) >= limit:
            break
    return {"items": items, "next": after}


def moment(text: str) -> int:
    """Return a time in milliseconds since 1970.

    Raises:
        InputError: It is not in RFC 3339.
    """
    try:
        return parse_time(text)
    except ValueError as error:
        raise InputError(str(error), field="since") from None


def labels_of(texts: Iterable[str]) -> dict[str, str]:
    """Return labels that are given as `NAME=VALUE`."""
    return {name: value for name, _, value in (text.partition("=") for text in texts)}
