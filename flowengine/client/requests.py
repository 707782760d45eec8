"""The requests of the client: one function for each, with the arguments of the engine's method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from flowengine.engines.results import Decision, ExecutionPage, ExecutionResult, Sent, WaitPage
from flowengine.errors import InputError, UsageError
from flowengine.kernel.notation.times import format_time, parse_time

if TYPE_CHECKING:
    from flowengine.engines.infos import (
        Difference,
        ExecutionInfo,
        GrantInfo,
        Reason,
        UpgradeInfo,
        WaitInfo,
    )

_Result = TypeVar("_Result")
_BRIEF = {"brief": True}


class Request(NamedTuple, Generic[_Result]):
    """A request, and what its answer means."""

    method: str
    path: str
    read: Callable[[Any], _Result | Request[_Result]]
    """Returns the result, or the request that follows."""
    body: Mapping[str, Any] | None = None
    query: Mapping[str, Any] | None = None
    """Parameters. Those that are None are left out."""


def user() -> Request[str]:
    """Return the user of the token, as `user:NAME`."""
    return Request("GET", "/v1/me", lambda answer: str(answer["user"]))


def flows() -> Request[list[dict[str, Any]]]:
    """Return the deployed flows, each with the schemas of its inputs."""
    return Request("GET", "/v1/flows", _items)


def flow(flow: str) -> Request[dict[str, Any]]:
    """Return a deployed flow: `ID`, `ID@VERSION` or a hash."""
    return Request("GET", f"/v1/flows/{_part(flow)}", _as_it_is)


def start(
    flow: str,
    inputs: Mapping[str, Any] | None = None,
    *,
    id: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Request[str]:
    """Record a new execution, and return its id. See `Engine.start`.

    Args:
        flow: A deployed flow: `ID`, `ID@VERSION` or a hash.
        inputs: Name → value.
        id: Its id. The same id with the same flow and inputs has no effect.
        labels: Labels to filter lists by.
    """
    body = {"flow": flow, "inputs": inputs or {}, "id": id, "labels": labels or {}}
    return Request("POST", "/v1/executions", _execution, body)


def executions(
    *,
    flow: str | None = None,
    status: str | None = None,
    labels: Mapping[str, str] | None = None,
    since: int | None = None,
    limit: int = 50,
    after: str | None = None,
) -> Request[ExecutionPage]:
    """Return a page of executions, newest first. See `Engine.executions`."""
    query = {
        "flow": flow,
        "status": status,
        "label": [f"{name}={value}" for name, value in (labels or {}).items()],
        "since": None if since is None else format_time(since),
        "limit": limit,
        "after": after,
    }
    return Request("GET", "/v1/executions", lambda answer: ExecutionPage(**answer), None, query)


def show(
    execution: str, *, step: str | None = None, plumbing: bool = False
) -> Request[ExecutionInfo]:
    """Return all details of an execution. See `Engine.show`."""
    query = {"step": step, "plumbing": plumbing or None}
    return Request("GET", _at(execution), _as_it_is, None, query)


def find(beginning: str) -> Request[str]:
    """Return the id of the only execution whose id has this prefix."""
    return Request("GET", _at(beginning), _execution, None, _BRIEF)


def result(execution: str) -> Request[ExecutionResult]:
    """Return the state of an execution. See `Engine.result`."""

    def read(info: Any) -> ExecutionResult:
        return ExecutionResult(
            info["execution"],
            info["flow"],
            info["status"],
            info.get("outputs"),
            info.get("waits", []),
            info.get("error"),
            None if "due" not in info else parse_time(info["due"]),
        )

    return Request("GET", _at(execution), read, None, _BRIEF)


def why(execution: str, *, waits: bool = True) -> Request[list[Reason]]:
    """Return why an execution makes no progress. See `Engine.why`."""

    def read(answer: Any) -> list[Reason]:
        return [reason for reason in answer["items"] if waits or "wait" not in reason]

    return Request("GET", f"{_at(execution)}/why", read)


def diff(left: str, right: str) -> Request[Difference]:
    """Compare two executions. See `Engine.diff`."""
    return Request("GET", f"{_at(left)}/diff/{_part(right)}", _as_it_is)


def part_of_journal(execution: str, from_seq: int) -> Request[list[dict[str, Any]]]:
    """Return the next entries of a journal, up to 500."""
    query = {"from_seq": from_seq, "limit": 500}
    return Request("GET", f"{_at(execution)}/events", _items, None, query)


def cancel(execution: str, *, reason: str = "", now: bool = False) -> Request[ExecutionResult]:
    """Request that an execution is cancelled. See `Engine.cancel`."""
    return _then_result(execution, "cancel", {"reason": reason, "now": now})


def resume(execution: str, *, on_crash: str) -> Request[ExecutionResult]:
    """Answer the open questions about attempts with an unknown outcome. See `Engine.resume`.

    Args:
        execution: Its id, or an unambiguous prefix of it.
        on_crash: `retry` or `fail`.
    """
    return _then_result(execution, "resume", {"on_crash": on_crash})


def retry(
    execution: str, *, step: str | None = None, flow: str | None = None
) -> Request[ExecutionResult]:
    """Continue a failed execution from the steps that failed. See `Engine.retry`.

    Args:
        execution: Its id, or an unambiguous prefix of it.
        step: Address of a step. Default: everything that failed.
        flow: A fixed flow: its id, or a hash.
    """
    return _then_result(execution, "retry", {"step": step, "flow": flow})


def fork(
    execution: str,
    *,
    from_step: str,
    set: Mapping[str, Any] | None = None,
    flow: str | None = None,
    id: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Request[ExecutionResult]:
    """Start a new execution from a point of an existing one. See `Engine.fork`.

    Args:
        execution: Id of the existing one, or an unambiguous prefix of it.
        from_step: Address of the step.
        set: State to write before the step starts.
        flow: A changed flow: its id, or a hash.
        id: Id of the new execution.
        labels: Labels to filter lists by.
    """
    body = {"from_step": from_step, "set": set or {}, "flow": flow, "id": id, "labels": labels}
    return _then_result(execution, "fork", body)


def upgrade(
    flow: str,
    execution: str,
    *,
    mapping: Mapping[str, Any] | None = None,
    check: bool = False,
) -> Request[UpgradeInfo]:
    """Move an open execution to another version of its flow. See `Engine.upgrade`.

    Args:
        flow: The version, which is deployed: `ID`, `ID@VERSION` or a hash.
        execution: Its id, or an unambiguous prefix of it.
        mapping: Names that differ in the new version.
        check: Only report what would happen.
    """
    body = {"flow": flow, "mapping": mapping or {}, "check": check}
    return Request("POST", f"{_at(execution)}/upgrade", _as_it_is, body)


def signal(
    name: str,
    data: Any = None,
    *,
    execution: str | None = None,
    key: str | None = None,
    id: str | None = None,
) -> Request[Sent]:
    """Send a signal to an execution, or to the open one that has the key. See `Engine.signal`."""

    def read(answer: Any) -> Sent:
        return Sent(answer["execution"], answer["id"], None, answer["began"], answer["first"])

    body = {"data": data, "id": id}
    if (execution is None) == (key is None):
        raise UsageError("a signal needs an execution or a key to go to")
    if execution is not None:
        return Request("POST", f"{_at(execution)}/signals/{_part(name)}", read, body)
    return Request("POST", f"/v1/signals/{_part(name)}", read, {**body, "key": key})


def waits(
    *,
    flow: str | None = None,
    execution: str | None = None,
    assignee: str | None = None,
    batch: str | None = None,
    status: str = "pending",
    kinds: Iterable[str] = (),
    limit: int = 50,
    after: str | None = None,
) -> Request[WaitPage]:
    """Return a page of waits, oldest first. See `Engine.waits`.

    Default of `kinds`: those that are decided on.
    """
    query = {
        "flow": flow,
        "execution": execution,
        "assignee": assignee,
        "batch": batch,
        "status": status,
        "kind": list(kinds),
        "limit": limit,
        "after": after,
    }
    return Request("GET", "/v1/approvals", lambda answer: WaitPage(**answer), None, query)


def wait(wait: str) -> Request[WaitInfo]:
    """Return one wait, open or closed."""
    return Request("GET", _of(wait), _as_it_is)


def decide(
    wait: str,
    choice: str,
    *,
    form: Any = None,
    edit: Mapping[str, Any] | None = None,
    comment: str | None = None,
    grant: Mapping[str, Any] | None = None,
    images: Iterable[str] = (),
    **value: Any,
) -> Request[Decision]:
    """Decide on an approval, or answer a question. See `Engine.decide`.

    Args:
        wait: Id of the wait, or an unambiguous prefix of it.
        choice: Id of the choice.
        form: The completed form.
        edit: Field of the subject, or dotted path into it → new value.
        comment: The reason.
        grant: The later calls of the same tool that an approval also covers.
        images: `data:` URLs of images, for the model.
        **value: `value`: the result, with the choices `result` and `respond`.
    """

    def read(answer: Any) -> Decision:
        return Decision(**{**answer, "at": parse_time(answer["at"]), "result": None})

    given = {"form": form, "edit": edit, "comment": comment, "grant": grant}
    body = {name: part for name, part in given.items() if part is not None}
    body |= {"choice": choice, "images": list(images), **value}
    return Request("POST", f"{_of(wait)}/decision", read, body)


def approve(wait: str, **answer: Any) -> Request[Decision]:
    """Decide with the choice that counts as approval. Takes the arguments of `decide`."""
    return _decided(wait, "approve", answer)


def reject(wait: str, **answer: Any) -> Request[Decision]:
    """Decide with the choice that counts as rejection. Takes the arguments of `decide`."""
    return _decided(wait, "reject", answer)


def respond(wait: str, value: Any, /, **answer: Any) -> Request[Decision]:
    """Supply the result of a call that waits for approval. Takes the arguments of `decide`."""
    return decide(wait, "respond", value=value, **answer)


def claim(wait: str) -> Request[WaitInfo]:
    """Claim an approval. See `Engine.claim`."""
    return Request("POST", f"{_of(wait)}/claim", _as_it_is, {})


def release(wait: str) -> Request[WaitInfo]:
    """Release a claimed approval. See `Engine.release`."""
    return Request("POST", f"{_of(wait)}/release", _as_it_is, {})


def delegate(wait: str, to: str, *, comment: str | None = None) -> Request[WaitInfo]:
    """Delegate an approval to another user. See `Engine.delegate`."""
    return Request("POST", f"{_of(wait)}/delegate", _as_it_is, {"to": to, "comment": comment})


def grants(execution: str | None = None) -> Request[list[GrantInfo]]:
    """Return the grants that apply to an execution, or those of all flows. See `Engine.grants`."""
    return Request("GET", "/v1/grants", _items, None, {"execution": execution})


def revoke(grant: str) -> Request[GrantInfo]:
    """Revoke a grant. See `Engine.revoke`."""
    return Request("POST", f"/v1/grants/{_part(grant)}/revoke", _as_it_is, {})


def open_environments(execution: str | None = None) -> Request[list[dict[str, Any]]]:
    """Describe the open environments. See `Engine.open_environments`."""
    return Request("GET", "/v1/environments", _items, None, {"execution": execution})


def open_environment(name: str) -> Request[dict[str, Any]]:
    """Describe one open environment. See `Engine.open_environment`."""
    return Request("GET", f"/v1/environments/{_part(name)}", _as_it_is)


def release_environment(name: str, *, force: bool = False) -> Request[dict[str, Any]]:
    """End an environment that a process has left open. See `Engine.release_environment`."""
    path = f"/v1/environments/{_part(name)}/release"
    return Request("POST", path, _as_it_is, {"force": force})


def _decided(wait_id: str, counts_as: str, answer: Mapping[str, Any]) -> Request[Decision]:
    """Return the request that reads a wait, which the decision follows."""

    def read(wait: Any) -> Request[Decision]:
        if "choices" not in wait:  # the user may not see them, and the server says so
            return decide(wait["id"], counts_as, **answer)
        choices = wait["choices"]
        found = [choice["id"] for choice in choices if choice.get("counts_as") == counts_as]
        if len(found) == 1:
            return decide(wait["id"], found[0], **answer)
        known = ", ".join(choice["id"] for choice in choices) or "none"
        raise InputError(
            f"{wait['id']}: not exactly one choice counts as '{counts_as}'",
            field="choice",
            hint=f"decide with one of: {known}",
        )

    return Request("GET", _of(wait_id), read)


def _then_result(execution: str, action: str, body: Mapping[str, Any]) -> Request[ExecutionResult]:
    """Return a request that is followed by one for the state of its execution."""
    path = f"{_at(execution)}/{action}"
    return Request("POST", path, lambda answer: result(answer.get("execution", execution)), body)


def _at(execution: str) -> str:
    return f"/v1/executions/{_part(execution)}"


def _of(wait: str) -> str:
    return f"/v1/approvals/{_part(wait)}"


def _part(text: str) -> str:
    """Return an id or a name as one part of a path.

    Raises:
        UsageError: It would be another path.
    """
    if text in ("", ".", "..") or "/" in text:
        raise UsageError(f"{text!r} is not an id or a name")
    return quote(text, safe="")


def _as_it_is(answer: Any) -> Any:
    return answer


def _items(answer: Any) -> Any:
    return answer["items"]


def _execution(answer: Any) -> str:
    return str(answer["execution"])
