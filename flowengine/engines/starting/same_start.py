"""Repeated starts with an existing id: the same start is idempotent, another one is a conflict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.engines.host import Host
from flowengine.engines.starting.inputs import with_defaults
from flowengine.errors import Conflict, Hint
from flowengine.journal.shapes import Sound, unpack_message
from flowengine.kernel.notation.times import parse_time
from flowengine.sdk.texts.json_values import same
from flowengine.sdk.values.declared_forms import base64_texts

LONGEST_SHOWN = 60
"""Maximum length of a value in a message."""


def check_same_start(host: Host, id: str, flow: str, inputs: Mapping[str, Any]) -> None:
    """Check that the execution with an id matches a request to start it.

    A changed version of the same flow is not a conflict: the execution keeps the version it started
    with.

    Args:
        host: Provides the store.
        id: Full id of the execution.
        flow: Id of the flow to run.
        inputs: The inputs as passed. Defaults apply to those left out.

    Raises:
        Conflict: It runs another flow, or has other inputs.
    """
    hint = Hint(
        f"use another id, or look at the existing one: flowengine show {id}",
        http=f"use another id, or look at the existing one: GET /v1/executions/{id}",
    )
    stored = host.stored(id, 0)
    runs = stored.linked.compiled["id"]
    if runs != flow:
        raise Conflict(
            f"there is already an execution {id}, of the flow '{runs}' and not '{flow}'",
            hint=hint,
            plain=f"the id {id} is taken",
            flow=runs,
        )
    execution, had = stored.state["execution"], stored.state["inputs"]
    if not execution:  # it was only recorded
        waiting = (unpack_message(message) for message in host.store.inbox(id))
        started = next((event for event in waiting if event["type"] == "started"), None)
        if started is None:
            return  # another process is recording it right now
        execution, had = started["execution"], started["inputs"]
    with Sound(f"the stored data of execution {id}"):
        began = parse_time(execution["started_at"])
    given = with_defaults(stored.linked.graph, inputs, execution, began)
    for name, schema in stored.linked.graph.flow.get("inputs", {}).items():
        if name in given and (convert := base64_texts(schema)) is not None:
            given[name] = convert(given[name])
    if differences := differing(had, given):
        raise Conflict(
            f"there is already an execution {id}, with other inputs: {', '.join(differences)}",
            hint=hint,
            plain=f"the id {id} is taken",
            flow=runs,
        )


def differing(had: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return the differences between stored and given values, as text by name."""
    return [
        f"'{name}' is {_shown(had, name)} there and {_shown(given, name)} here"
        for name in {**had, **given}
        if name not in had or name not in given or not same(had[name], given[name])
    ]


def _shown(values: Mapping[str, Any], name: str) -> str:
    """Return a value as a message shows it."""
    if name not in values:
        return "missing"
    import json

    text = json.dumps(values[name], ensure_ascii=False, default=repr)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"
