"""The overview of an execution: its graph and steps, its open waits or the cause of its failure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from shlex import quote, split
from typing import Any, NamedTuple
from urllib.parse import quote as quoted

from flowengine.engines.results import ENDED
from flowengine.errors import FlowEngineError
from flowengine.kernel.notation.addresses import around
from flowengine.kernel.notation.times import parse_time
from flowengine.kernel.view import DECIDABLE
from flowengine.page.execution_views import causes_of, frame, number_in
from flowengine.page.fields import MORE, ShownForm, shown_form
from flowengine.page.flow_views import graph
from flowengine.page.forms import entered_inputs, inputs_of
from flowengine.page.looks import now
from flowengine.page.timeline import timeline
from flowengine.page.view import PageView, checked
from flowengine.sdk.files.file_names import files_in
from flowengine.server import executions, signals
from flowengine.server.calls import ApiCall
from flowengine.server.models import ShowQuery, SignalBody
from flowengine.server.problems import status_of
from flowengine.server.rights import Right

_VARYING = re.compile(r"\d[\d.,:]*|'[^']*'|\"[^\"]*\"")
"""Parts of messages in which errors with the same cause may differ: numbers and quoted texts."""
_MOST = 300
"""Steps of a fold that are read for its bars."""
_MOST_SHOWN = 8
"""Steps of one cause that are linked."""


class FailureGroup(NamedTuple):
    """Failed steps with the same cause."""

    id: str
    type: str
    message: str
    causes: list[Any]
    """Of the error of the first step."""
    addresses: list[str]
    shown: list[str]
    """The first addresses."""


class SignalForm(NamedTuple):
    """A signal that continues an execution, with the fields of its data."""

    name: str
    shown: ShownForm
    error: FlowEngineError | None
    is_again: bool
    """Whether it was sent, and is shown again."""


def grouped(steps: Iterable[Mapping[str, Any]]) -> list[FailureGroup]:
    """Return failed steps by cause, the most frequent first.

    The cause is the same if the step, the type of the error and its message are, except for
    numbers and quoted texts in it.
    """
    failed = list(steps)
    # The failure of a map or a group follows from one of a step in it.
    outer = {place for step in failed for place in around(step["address"])[:-1]}
    found: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for step in failed:
        if step["address"] in outer:
            continue
        error = step.get("error") or {}
        key = step["step"], error.get("type", ""), _VARYING.sub("…", error.get("message", ""))
        found.setdefault(key, []).append(step)
    groups = []
    for key, members in found.items():
        first = members[0].get("error") or {}
        messages = {(step.get("error") or {}).get("message") for step in members}
        addresses = [step["address"] for step in members]
        groups.append(
            FailureGroup(
                sha256("\n".join(key).encode("utf-8", "replace")).hexdigest()[:12],
                key[1],
                key[2] if len(messages) > 1 else first.get("message", ""),
                list(causes_of(first)),
                addresses,
                addresses[:_MOST_SHOWN],
            )
        )
    return sorted(groups, key=lambda group: -len(group.addresses))


def send_signal(
    call: ApiCall, given: dict[str, str], refused: FlowEngineError | None = None
) -> PageView:
    """Send a signal to an execution, and show it. A refused form stays."""
    id, name = call.path["execution"], call.path["name"]
    if refused is not None or MORE in given:
        return show_execution(call, {}, given, refused)
    try:
        schemas = _schemas(call.engine.executions.flow_of(id).compiled, name)
        data = entered_inputs(schemas, given, group=f"signal.{name}")
        data |= {"step": given["step"]} if "step" in given else {}
        signals.send_signal(call._replace(body=checked(SignalBody, data)))
    except FlowEngineError as error:
        return show_execution(call, {}, given, error)
    then = "/conversation" if "step" in given else ""
    return PageView("", {}, redirect=f"/executions/{quoted(id)}{then}")


def show_execution(
    call: ApiCall,
    given: Mapping[str, str],
    sent: Mapping[str, str] | None = None,
    error: FlowEngineError | None = None,
) -> PageView:
    """Show an execution, and of its steps those of one fold, or one step.

    Args:
        call: The request.
        given: The parts of the execution to show.
        sent: The form of a signal that is shown again.
        error: Why it was refused.
    """
    id, at = call.path["execution"], given.get("at", "")
    whole, folds = executions.shown_folds(call)
    failures, failed = folds.failures()
    info = executions.shown_execution(call, {**whole, "steps": failures})
    statuses = folds.statuses()
    end = parse_time(whole["ended_at"]) if whole.get("ended_at") else now()
    first = number_in(given, "from")
    level = folds.level(at, first)
    time = timeline(folds, whole["started_at"], end, at, first, most=_MOST)
    # A step that only connects others is not among them, and a fold may have no step yet.
    is_step = bool(at) and (at not in folds or folds.status(at) != "")
    flow = call.engine.executions.flow_of(id)
    drawing = graph(flow, statuses, f"/executions/{quoted(id)}", folds, at)
    reasons = [] if info["status"] in ENDED else executions.why(call)["items"]
    waits = {wait["id"]: wait for wait in info["waits"] if wait["kind"] in DECIDABLE}
    groups = grouped(info["steps"])
    told = {address for group in groups for address in group.addresses}
    failure = info.get("error")
    return PageView(
        "execution.html",
        {
            **frame(call, info, is_live=True),
            "is_again": sent is not None,
            **(_step(call, at) if is_step else {"step": None}),
            "waits": list(waits.values()),
            "reasons": [
                {**reason, "forms": forms}
                for reason, forms in _with_forms(call, reasons, sent, error)
                if reason.get("wait") not in waits
            ],
            "groups": groups,
            "commands": _commands(info, groups),
            "failure": failure if failure and failure.get("step") not in told else None,
            "causes": list(causes_of(failure)),
            "more_failures": failed - len(info["steps"]),
            "graph": drawing,
            "level": level,
            "time": time,
            "at": at,
            "fork": _fork(call, info),
            "can_retry": _is_retried(info) and call.may(Right.OPERATE, info["flow"]),
            "files": files_in([info.get("inputs"), info.get("outputs")]),
        },
        200 if error is None else status_of(error),
    )


def _step(call: ApiCall, at: str) -> dict[str, Any]:
    """Return the data of the chosen step: attempts, values, error and decisions."""
    query = ShowQuery.model_validate({"step": at})
    info = executions.show_execution(call._replace(query=query))
    [step] = info["steps"]
    return {
        "step": step,
        "step_waits": [wait for wait in info["waits"] if wait.get("address") == at],
        "step_causes": list(causes_of(step.get("error"))),
        "step_files": files_in(step),
    }


def _with_forms(
    call: ApiCall,
    reasons: Iterable[Any],
    sent: Mapping[str, str] | None,
    error: FlowEngineError | None,
) -> Iterator[tuple[Any, list[SignalForm]]]:
    """Yield reasons with a form for each signal that they name and an earlier one does not."""
    compiled = call.engine.executions.flow_of(call.path["execution"]).compiled
    may_send, shown = call.may(Right.OPERATE, call.flow), set[str]()
    for reason in reasons:
        forms = []
        for name in dict.fromkeys(reason.get("signals", ())) if may_send else ():
            if name not in shown:
                is_sent = sent is not None and call.path.get("name") == name
                texts = sent if is_sent else None
                fields = inputs_of(_schemas(compiled, name), {}, texts, group=f"signal.{name}")
                why = error if is_sent else None
                forms.append(SignalForm(name, shown_form(fields, why, texts or {}), why, is_sent))
                shown.add(name)
        yield reason, forms


def _schemas(compiled: Any, signal: str) -> dict[str, Any]:
    """Return the schema of the data of a signal, as for inputs. Empty: it has no data."""
    schema = signals.data_schema(compiled, signal)
    if schema is None:
        return {}
    return {"data": {"title": signal, **schema} if isinstance(schema, dict) else schema}


def _is_retried(info: Mapping[str, Any]) -> bool:
    """Return whether an execution is continued by a retry, and not by a fork."""
    return str(info.get("command")).startswith("flowengine retry ")


def _fork(call: ApiCall, info: Mapping[str, Any]) -> str:
    """Return the address of the fork that continues a failed execution, for those who may fork.

    Empty: there is none.
    """
    words = split(str(info.get("command")))
    if words[:2] != ["flowengine", "fork"] or not call.may(Right.OPERATE, info["flow"]):
        return ""
    forked, at = call.engine.executions.find(words[2]), words[words.index("--from-step") + 1]
    return f"/executions/{quoted(forked)}/fork?at={quoted(at)}"


def _commands(info: Mapping[str, Any], groups: list[FailureGroup]) -> dict[str, str]:
    """Return the command that retries each group. Empty: they cannot be retried apart."""
    if len(groups) < 2 or not _is_retried(info):
        return {}
    return {
        group.id: " ".join([info["command"], *(f"--step {quote(at)}" for at in group.addresses)])
        for group in groups
    }
