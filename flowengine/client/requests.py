"""The requests of the client: one function for each, with the arguments of the engine's method."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from flowengine.engines.infos import (
    DeployedInfo,
    Difference,
    ExecutionInfo,
    ExecutionPage,
    GrantInfo,
    Reason,
    ScheduledStart,
    ScreenInfo,
    SharedBudgetInfo,
    StartInfo,
    StepOrder,
    StoreEvent,
    UpgradeInfo,
    WaitPage,
)
from flowengine.engines.results import Decision, ExecutionResult, Sent, WaitInfo
from flowengine.errors import Conflict, InputError, NotFound, StoreError, UsageError
from flowengine.kernel.notation.times import format_time, parse_time
from flowengine.kernel.view import only_choice
from flowengine.sdk.texts.received import received_text

_Result = TypeVar("_Result")
_BRIEF = {"brief": True}
_LONGEST_FLOW = 1024 * 1024
_MOST_BYTES = 4
"""Of a character, in any encoding."""


class UploadedFile(NamedTuple):
    """A file on the server, as `_asdict()` a value for inputs, forms and signals."""

    name: str
    size: int
    sha256: str


class ApiRequest(NamedTuple, Generic[_Result]):
    """A request, and what its answer means."""

    method: str
    path: str
    read: Callable[[Any], _Result | ApiRequest[_Result]]
    """Returns the result, or the request that follows."""
    body: Mapping[str, Any] | None = None
    query: Mapping[str, Any] | None = None
    """Parameters. Those that are None are left out."""
    file: PathLike[str] | None = None
    """The body, instead of JSON."""

    def result(self, answer: Any) -> _Result | ApiRequest[_Result]:
        """Return the result of an answer, or the request that follows.

        Args:
            answer: JSON data.

        Raises:
            StoreError: It is not an answer to this request.
        """
        try:
            return self.read(answer)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise not_ours(f"to {self.method} {self.path}", error) from error


def not_ours(answered: str, error: Exception) -> StoreError:
    """Return the error about an answer that no server of this version gives.

    Args:
        answered: The recorded answer. Empty: it is not known.
        error: What is wrong with it.
    """
    return StoreError(
        f"the server's answer{answered and f' {answered}'} cannot be understood: "
        f"{type(error).__name__}: {error}"[:1000],
        hint="is it a flowengine server, and of this version?",
    )


def user() -> ApiRequest[str]:
    """Return the user of the token, as `user:NAME`."""
    return ApiRequest("GET", "/v1/me", lambda answer: str(answer["user"]))


def tokens() -> ApiRequest[list[dict[str, Any]]]:
    """Return the tokens of the API, without their secrets."""
    return ApiRequest("GET", "/v1/tokens", _items)


def create_token(
    name: str,
    *,
    user: str | None = None,
    role: str | None = None,
    flows: Iterable[str] = (),
    content: bool = False,
    expires_in: int | None = None,
) -> ApiRequest[str]:
    """Create a token and return it. The server keeps only its hash.

    Args:
        name: Its name, unique.
        user: The user it stands for. Default: the user of this client's token. The token of another
            user cannot decide approvals.
        role: The role whose rights it is limited to.
        flows: Patterns of the flows that it is limited to, with a role.
        content: Whether it may see inputs, outputs and events, with a role.
        expires_in: Seconds after which it expires.
    """

    def read(answer: Any) -> str:
        if answer["token"] is None:
            raise Conflict(
                f"token '{name}' was created, but its answer was lost",
                hint=f"revoke it and create another: flowengine tokens revoke {name}",
            )
        return str(answer["token"])

    given = {"name": name, "user": user, "role": role, "flows": list(flows) or ["*"]}
    body = {**given, "content": content, "expires_in": expires_in}
    return ApiRequest("POST", "/v1/tokens", read, body)


def revoke_token(name: str) -> ApiRequest[dict[str, Any]]:
    """Revoke a token."""
    return ApiRequest("POST", f"/v1/tokens/{_part(name)}/revoke", _map, {})


def upload(path: str | PathLike[str], *, name: str | None = None) -> ApiRequest[UploadedFile]:
    """Upload a file of this machine. The server keeps it for a week, and longer once it is used.

    Args:
        path: The file.
        name: Its name there. Default: the last part of the path.

    Returns:
        The file, whose `_asdict()` is a value for inputs, forms and signals. `decide` takes it in
        `attach`.
    """
    query = {"name": name or os.path.basename(path)}
    read = lambda answer: UploadedFile(**answer)  # noqa: E731 - as for the other requests
    return ApiRequest("POST", "/v1/artifacts", read, None, query, Path(path))


def check(text: str, *, name: str = "flow.yaml") -> ApiRequest[dict[str, Any]]:
    """Check a flow given as text: its `errors` and `warnings`, with their places."""
    return ApiRequest("POST", "/v1/flows/check", _map, {"text": text, "name": name})


def deploy(flow: str | PathLike[str]) -> ApiRequest[DeployedInfo]:
    """Deploy a flow file of this machine. See `Engine.flows.deploy`.

    Args:
        flow: The path of the file. It names no other files, and only modules that the server's host
            allows.
    """
    try:
        with open(flow, "rb") as file:
            data = file.read(_MOST_BYTES * _LONGEST_FLOW + 1)
        is_long = len(data) > _MOST_BYTES * _LONGEST_FLOW
        text = "" if is_long else received_text(data)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise NotFound(f"cannot read {os.fspath(flow)}: {why}") from None
    if is_long or len(text) > _LONGEST_FLOW:
        raise InputError(f"{os.fspath(flow)} has more than {_LONGEST_FLOW} characters")
    body = {"text": text, "name": os.fspath(flow)[-200:]}
    return ApiRequest("POST", "/v1/flows", _deployed, body)


def deploy_version(flow: str) -> ApiRequest[DeployedInfo]:
    """Make a deployed version of a flow the current one again: `ID@VERSION`, or a hash."""
    return ApiRequest("POST", f"/v1/flows/{_part(flow)}/deploy", _deployed, {})


def undeploy(name: str) -> ApiRequest[list[str]]:
    """Remove a deployed flow. See `Engine.flows.undeploy`."""
    return ApiRequest(
        "POST", f"/v1/flows/{_part(name)}/undeploy", lambda it: list(it["removed"]), {}
    )


def deployed(flow: str | None = None) -> ApiRequest[list[DeployedInfo]]:
    """Return the deployed versions of flows. See `Engine.flows.versions`."""

    def read(answer: Any) -> list[DeployedInfo]:
        return [_deployed(item) for item in answer["items"]]

    return ApiRequest("GET", "/v1/flows", read, None, {"flow": flow, "versions": True})


def starts(flow: str | None = None) -> ApiRequest[list[StartInfo]]:
    """Return what starts executions of deployed flows. See `Engine.flows.starts`."""

    def read(answer: Any) -> list[StartInfo]:
        return [start for item in answer["items"] for start in item["starts"]]

    return ApiRequest("GET", "/v1/flows", read, None, {"flow": flow})


def pause_schedules(flow: str) -> ApiRequest[list[StartInfo]]:
    """Pause the schedules of a deployed flow. See `Engine.flows.pause`."""
    return ApiRequest("POST", f"/v1/schedules/{_part(flow)}/pause", _items, {})


def resume_schedules(flow: str) -> ApiRequest[list[StartInfo]]:
    """Resume the schedules of a deployed flow. See `Engine.flows.resume`."""
    return ApiRequest("POST", f"/v1/schedules/{_part(flow)}/resume", _items, {})


def trigger(flow: str, *, schedule: str | None = None) -> ApiRequest[str]:
    """Record an execution of a deployed flow now. See `Engine.flows.trigger`."""
    path = f"/v1/schedules/{_part(flow)}/trigger"
    return ApiRequest("POST", path, _execution, {"schedule": schedule})


def record_past(
    flow: str, since: datetime, until: datetime, *, schedule: str | None = None
) -> ApiRequest[list[ScheduledStart]]:
    """Record the executions of past times. See `Engine.flows.record_past`."""

    def read(answer: Any) -> list[ScheduledStart]:
        return [
            ScheduledStart(
                item["flow"],
                item["schedule"],
                parse_time(item["time"]),
                item["execution"],
                None if item["error"] is None else InputError(item["error"]),
            )
            for item in answer["items"]
        ]

    first, last = (format_time(int(moment.timestamp() * 1000)) for moment in (since, until))
    body = {"since": first, "until": last, "schedule": schedule}
    return ApiRequest("POST", f"/v1/schedules/{_part(flow)}/backfill", read, body)


def flows() -> ApiRequest[list[dict[str, Any]]]:
    """Return the deployed flows, each with the schemas of its inputs."""
    return ApiRequest("GET", "/v1/flows", _items)


def flow(flow: str) -> ApiRequest[dict[str, Any]]:
    """Return a deployed flow: `ID`, `ID@VERSION` or a hash."""
    return ApiRequest("GET", f"/v1/flows/{_part(flow)}", _map)


def graph(execution: str) -> ApiRequest[dict[str, Any]]:
    """Return the graph of an execution's flow with the state of its steps, and a picture of it.

    Args:
        execution: Its id, or an unambiguous prefix of it.

    Returns:
        The node-link data of networkx, with the keys `title` and `frame` of the picture.
    """
    return ApiRequest("GET", f"{_at(execution)}/graph", _map)


def flow_graph(flow: str) -> ApiRequest[dict[str, Any]]:
    """Return the graph of a deployed flow, as `graph` does."""
    path = f"/v1/flows/{_part(flow)}/graph"
    return ApiRequest("GET", path, _map)


def definition(flow: str) -> ApiRequest[dict[str, Any]]:
    """Return the definition of a deployed flow as text, to compare it with that of another one.

    Args:
        flow: `ID`, `ID@VERSION` or a hash.

    Returns:
        `{flow, version, hash, definition}`.
    """
    return ApiRequest("GET", f"/v1/flows/{_part(flow)}/definition", _map)


def start(
    flow: str,
    inputs: Mapping[str, Any] | None = None,
    *,
    id: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> ApiRequest[str]:
    """Record a new execution, and return its id. See `Engine.start`.

    Args:
        flow: A deployed flow: `ID`, `ID@VERSION` or a hash.
        inputs: Name → value.
        id: Its id. The same id with the same flow and inputs has no effect.
        labels: Labels to filter lists by.
    """
    body = {"flow": flow, "inputs": inputs or {}, "id": id, "labels": labels or {}}
    return ApiRequest("POST", "/v1/executions", _execution, body)


def executions(
    *,
    flow: str | None = None,
    status: str | None = None,
    labels: Mapping[str, str] | None = None,
    since: int | None = None,
    search: str | None = None,
    limit: int = 50,
    after: str | None = None,
) -> ApiRequest[ExecutionPage]:
    """Return a page of executions, newest first. See `Engine.executions.list`."""
    query = {**filters_of(flow, status, labels, since), "limit": limit, "after": after}
    query["search"] = search
    read = lambda answer: ExecutionPage(*_page(answer, after))  # noqa: E731 - as for other requests
    return ApiRequest("GET", "/v1/executions", read, None, query)


def counts(flow: str | None = None) -> ApiRequest[dict[str, int]]:
    """Return how many executions have each status. See `Engine.counts`."""
    read = lambda answer: _map(_map(answer)["counts"])  # noqa: E731 - as for other requests
    return ApiRequest("GET", "/v1/counts", read, None, {"flow": flow})


def show(
    execution: str,
    *,
    step: str | None = None,
    status: str | None = None,
    kind: str | None = None,
    sort: StepOrder | None = None,
    limit: int | None = None,
) -> ApiRequest[ExecutionInfo]:
    """Return all details of an execution. See `Engine.executions.show`."""
    query = {"step": step, "status": status, "kind": kind, "sort": sort, "limit": limit}
    return ApiRequest("GET", _at(execution), _map, None, query)


def find(beginning: str) -> ApiRequest[str]:
    """Return the id of the only execution whose id has this prefix."""
    return ApiRequest("GET", _at(beginning), _execution, None, _BRIEF)


def result(execution: str) -> ApiRequest[ExecutionResult]:
    """Return the state of an execution. See `Engine.executions.result`."""

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

    return ApiRequest("GET", _at(execution), read, None, _BRIEF)


def why(execution: str, *, waits: bool = True) -> ApiRequest[list[Reason]]:
    """Return why an execution makes no progress. See `Engine.executions.why`."""

    def read(answer: Any) -> list[Reason]:
        return [reason for reason in answer["items"] if waits or "wait" not in reason]

    return ApiRequest("GET", f"{_at(execution)}/why", read)


def diff(left: str, right: str) -> ApiRequest[Difference]:
    """Compare two executions. See `Engine.executions.diff`."""
    return ApiRequest("GET", f"{_at(left)}/diff/{_part(right)}", _map)


def path_in(execution: str, *names: str) -> str:
    """Return the path of a part of an execution."""
    return "/".join((_at(execution), *map(_part, names)))


def part_of_journal(
    execution: str, from_seq: int, wanted: Mapping[str, Any]
) -> ApiRequest[list[dict[str, Any]]]:
    """Return the next entries of a journal, up to 500."""
    query = {"from_seq": from_seq, "limit": 500, **wanted}

    def read(answer: Any) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = _items(answer)
        if any(entry["seq"] < from_seq for entry in entries):
            raise ValueError("it has earlier events")  # and would have them for ever
        return entries

    return ApiRequest("GET", f"{_at(execution)}/events", read, None, query)


def filters_of_events(step: str | None, type: str | None, since: int | None) -> dict[str, Any]:
    """Return the parameters that choose entries of a journal."""
    return {"step": step, "type": type, "since": None if since is None else format_time(since)}


def part_of_all_events(
    after: int | None, filters: Mapping[str, Any]
) -> ApiRequest[tuple[list[StoreEvent], int]]:
    """Return the next events of all executions, up to 500, and where to continue."""
    query = {"after": after, "limit": 500, **filters}

    def read(answer: Any) -> tuple[list[StoreEvent], int]:
        items = [
            StoreEvent(**{**item, "created_at": parse_time(item["created_at"])})
            for item in answer["items"]
        ]
        if answer["next"] < (after or 0) or (items and answer["next"] == after):
            raise ValueError("it has earlier events")
        return items, answer["next"]

    return ApiRequest("GET", "/v1/events", read, None, query)


def filters_of(
    flow: str | None, status: str | None, labels: Mapping[str, str] | None, since: int | None
) -> dict[str, Any]:
    """Return the parameters that choose executions."""
    return {
        "flow": flow,
        "status": status,
        "label": [f"{name}={value}" for name, value in (labels or {}).items()],
        "since": None if since is None else format_time(since),
    }


def cancel(
    execution: str, *, reason: str = "", now: bool = False, step: str | None = None
) -> ApiRequest[ExecutionResult]:
    """Request that an execution, or a step of it, is stopped. See `Engine.executions.cancel`."""
    return _then_result(execution, "cancel", {"reason": reason, "now": now, "step": step})


def resume(execution: str, *, on_crash: str) -> ApiRequest[ExecutionResult]:
    """Answer the open questions about attempts with an unknown outcome. See `Engine.resume`.

    Args:
        execution: Its id, or an unambiguous prefix of it.
        on_crash: `retry` or `fail`.
    """
    return _then_result(execution, "resume", {"on_crash": on_crash})


def retry(
    execution: str,
    *,
    step: str | Sequence[str] | None = None,
    flow: str | None = None,
    repeat_once: bool = False,
) -> ApiRequest[ExecutionResult]:
    """Continue a failed execution from the steps that failed. See `Engine.executions.retry`.

    Args:
        execution: Its id, or an unambiguous prefix of it.
        step: Address of a step, or several addresses. Default: everything that failed.
        flow: A fixed flow: its id, or a hash.
        repeat_once: Allow it to repeat calls with effect `once` in what begins anew.
    """
    body = {"step": step, "flow": flow, "repeat_once": repeat_once}
    return _then_result(execution, "retry", body)


def fork(
    execution: str,
    *,
    from_step: str,
    set: Mapping[str, Any] | None = None,
    flow: str | None = None,
    id: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> ApiRequest[ExecutionResult]:
    """Start a new execution from a point of an existing one. See `Engine.executions.fork`.

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
) -> ApiRequest[UpgradeInfo]:
    """Move an open execution to another version of its flow. See `Engine.executions.upgrade`.

    Args:
        flow: The version, which is deployed: `ID`, `ID@VERSION` or a hash.
        execution: Its id, or an unambiguous prefix of it.
        mapping: Names that differ in the new version.
        check: Only report what would happen.
    """
    body = {"flow": flow, "mapping": mapping or {}, "check": check}
    return ApiRequest("POST", f"{_at(execution)}/upgrade", _map, body)


def signal(
    name: str,
    data: Any = None,
    *,
    execution: str | None = None,
    key: str | None = None,
    id: str | None = None,
    step: str | None = None,
) -> ApiRequest[Sent]:
    """Send a signal to an execution, or to the open one that has the key. See `Engine.signal`."""

    def read(answer: Any) -> Sent:
        return Sent(answer["execution"], answer["id"], None, answer["began"], answer["first"])

    body = {"data": data, "id": id}
    if (execution is None) == (key is None):
        raise UsageError("a signal needs an execution or a key to go to")
    if execution is not None:
        body |= {"step": step}
        return ApiRequest("POST", f"{_at(execution)}/signals/{_part(name)}", read, body)
    return ApiRequest("POST", f"/v1/signals/{_part(name)}", read, {**body, "key": key})


def waits(
    *,
    flow: str | None = None,
    execution: str | None = None,
    assignee: str | None = None,
    batch: str | None = None,
    status: str = "pending",
    kinds: Iterable[str] = (),
    in_turn: bool = False,
    limit: int = 50,
    after: str | None = None,
) -> ApiRequest[WaitPage]:
    """Return a page of waits, oldest first. Closed ones: newest first. See `Engine.approvals.list`.

    Default of `kinds`: those that are decided on.
    """
    query = {
        "flow": flow,
        "execution": execution,
        "assignee": assignee,
        "batch": batch,
        "status": status,
        "kind": list(kinds),
        "in_turn": in_turn or None,
        "limit": limit,
        "after": after,
    }
    read = lambda answer: WaitPage(*_page(answer, after))  # noqa: E731 - as for other requests
    return ApiRequest("GET", "/v1/approvals", read, None, query)


def wait(wait: str) -> ApiRequest[WaitInfo]:
    """Return one wait, open or closed."""
    return ApiRequest("GET", _of(wait), _map)


def decide(
    wait: str,
    choice: str,
    *,
    form: Any = None,
    edit: Mapping[str, Any] | None = None,
    comment: str | None = None,
    grant: Mapping[str, Any] | None = None,
    images: Iterable[str] = (),
    attach: Iterable[UploadedFile] = (),
    **value: Any,
) -> ApiRequest[Decision]:
    """Decide on an approval, or answer a question. See `Engine.approvals.decide`.

    Args:
        wait: Id of the wait, or an unambiguous prefix of it.
        choice: Id of the choice.
        form: The completed form.
        edit: Field of the subject, or dotted path into it → new value.
        comment: The reason.
        grant: The later calls of the same tool that an approval also covers.
        images: `data:` URLs of images, or `sha256` of uploaded ones, for the model.
        attach: Files that `upload` returned.
        **value: `value`: the result, with the choices `result` and `respond`.
    """

    def read(answer: Any) -> Decision:
        return Decision(**{**answer, "at": parse_time(answer["at"]), "result": None})

    given = {"form": form, "edit": edit, "comment": comment, "grant": grant}
    body = {name: part for name, part in given.items() if part is not None}
    body |= {"choice": choice, "images": list(images), **value}
    body["attach"] = [file.sha256 for file in attach]
    return ApiRequest("POST", f"{_of(wait)}/decision", read, body)


def approve(wait: str, **answer: Any) -> ApiRequest[Decision]:
    """Decide with the choice that counts as approval. Takes the arguments of `decide`."""
    return _decided(wait, "approve", answer)


def reject(wait: str, **answer: Any) -> ApiRequest[Decision]:
    """Decide with the choice that counts as rejection. Takes the arguments of `decide`."""
    return _decided(wait, "reject", answer)


def respond(wait: str, value: Any, /, **answer: Any) -> ApiRequest[Decision]:
    """Supply the result of a call that waits for approval. Takes the arguments of `decide`."""
    return decide(wait, "respond", value=value, **answer)


def claim(wait: str) -> ApiRequest[WaitInfo]:
    """Claim an approval. See `Engine.approvals.claim`."""
    return ApiRequest("POST", f"{_of(wait)}/claim", _map, {})


def release(wait: str) -> ApiRequest[WaitInfo]:
    """Release a claimed approval. See `Engine.approvals.release`."""
    return ApiRequest("POST", f"{_of(wait)}/release", _map, {})


def delegate(wait: str, to: str, *, comment: str | None = None) -> ApiRequest[WaitInfo]:
    """Delegate an approval to another user. See `Engine.approvals.delegate`."""
    return ApiRequest("POST", f"{_of(wait)}/delegate", _map, {"to": to, "comment": comment})


def grants(execution: str | None = None) -> ApiRequest[list[GrantInfo]]:
    """Return the grants that apply to an execution, or those of all flows. See the engine's."""
    return ApiRequest("GET", "/v1/grants", _items, None, {"execution": execution})


def budgets(key: str | None = None, *, past: bool = False) -> ApiRequest[list[SharedBudgetInfo]]:
    """Return the budgets that executions share. See `Engine.budgets.list`."""
    query = {"key": key, "past": "true" if past else None}
    return ApiRequest("GET", "/v1/budgets", _items, None, query)


def revoke(grant: str) -> ApiRequest[GrantInfo]:
    """Revoke a grant. See `Engine.approvals.revoke`."""
    return ApiRequest("POST", f"/v1/grants/{_part(grant)}/revoke", _map, {})


def open_environments(execution: str | None = None) -> ApiRequest[list[dict[str, Any]]]:
    """Describe the open environments. See `Engine.open_environments`."""
    return ApiRequest("GET", "/v1/environments", _items, None, {"execution": execution})


def open_environment(name: str) -> ApiRequest[dict[str, Any]]:
    """Describe one open environment. See `Engine.open_environment`."""
    return ApiRequest("GET", f"/v1/environments/{_part(name)}", _map)


def look_into_environment(name: str) -> ApiRequest[ScreenInfo]:
    """Look into an environment that a process has open. See `Engine.look_into_environment`."""
    return ApiRequest("POST", f"/v1/environments/{_part(name)}/look", _map, {})


def release_environment(name: str, *, force: bool = False) -> ApiRequest[dict[str, Any]]:
    """End an environment that a process has left open. See `Engine.release_environment`."""
    path = f"/v1/environments/{_part(name)}/release"
    return ApiRequest("POST", path, _map, {"force": force})


def _decided(wait_id: str, counts_as: str, answer: Mapping[str, Any]) -> ApiRequest[Decision]:
    """Return the request that reads a wait, which the decision follows."""

    def read(wait: Any) -> ApiRequest[Decision]:
        if "choices" not in wait:  # they are hidden from the user, and the server refuses
            return decide(wait["id"], counts_as, **answer)
        if (choice := only_choice(wait, counts_as)) is not None:
            return decide(wait["id"], choice["id"], **answer)
        known = ", ".join(choice["id"] for choice in wait["choices"]) or "none"
        raise InputError(
            f"{wait['id']}: not exactly one choice counts as '{counts_as}'",
            field="choice",
            hint=f"decide with one of: {known}",
        )

    return ApiRequest("GET", _of(wait_id), read)


def _then_result(
    execution: str, action: str, body: Mapping[str, Any]
) -> ApiRequest[ExecutionResult]:
    """Return a request that is followed by one for the state of its execution."""
    path = f"{_at(execution)}/{action}"
    return ApiRequest("POST", path, lambda answer: result(answer.get("execution", execution)), body)


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


def _deployed(item: Any) -> Any:
    return {name: item[name] for name in DeployedInfo.__annotations__}


def _map(answer: Any) -> Any:
    if not isinstance(answer, dict):
        raise TypeError("it is not a map")
    return answer


def _page(answer: Any, after: str | None) -> tuple[list[Any], str | None]:
    """Return the items of a page, and where the next one begins."""
    following = answer["next"]
    if following is not None and (not isinstance(following, str) or following == after):
        raise ValueError("its next page is none")
    return _items(answer), following


def _items(answer: Any) -> Any:
    return [_map(item) for item in answer["items"]]


def _execution(answer: Any) -> str:
    return str(answer["execution"])
