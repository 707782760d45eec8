"""The routes of signals."""

from __future__ import annotations

from typing import Any

from flowengine.engines.engine import Engine
from flowengine.engines.results import Sent
from flowengine.errors import Conflict, InputError, NotFound
from flowengine.server.calls import ApiCall
from flowengine.server.rights import Right
from flowengine.server.sent_values import Uploads, sent_values, starting_data, uploads_of


def send_signal(call: ApiCall) -> Any:
    """Send a signal to an execution."""
    id = call.path["execution"]
    flow = call.engine.executions.flow_of(id).compiled
    data = _data(uploads_of(call), flow, call.path["name"], call.body.data)
    body, name = call.body, call.path["name"]
    sent = call.engine.signal(
        name, data, execution=id, id=body.id or call.seed, step=body.step, resume=False
    )
    return sent_view(sent)


def send_keyed_signal(call: ApiCall) -> Any:
    """Send a signal to the open execution that has a key, or start one with it."""
    name, body = call.path["name"], call.body
    if any((body.id or "").startswith(f"{hook.name} ") for hook in call.engine.settings.hooks):
        raise InputError("ids that begin with the name of a hook are those of its deliveries")
    missing = NotFound(
        f"no open execution takes signal {name!r} with key {body.key!r}, and no flow starts one",
        hint="it may have ended: GET /v1/executions",
    )
    _check_receiver(call, name, missing)
    data = keyed_data(call.engine, uploads_of(call), name, body.key, body.data)
    try:
        sent = call.engine.signal(name, data, key=body.key, id=body.id or call.seed, resume=False)
    except NotFound as error:
        raise error if error.flow is not None else missing from None
    if not call.may(Right.SEE, call.engine.store.execution(sent.execution).flow):
        raise missing  # the message was sent before, to an execution that has ended
    return sent_view(sent)


def _check_receiver(call: ApiCall, name: str, missing: NotFound) -> None:
    """Check that a user may send a signal to the execution with a key, or start one with it.

    Args:
        call: The request.
        name: Name of the signal.
        missing: Raised if there is nothing that the user may see.

    Raises:
        Conflict: An execution that is hidden from the user has the key.
    """
    store = call.engine.store
    starts = store.starts(name)
    seen = [start.flow for start in starts if call.may(Right.SEE, start.flow)]
    try:
        receiver = store.execution(store.find_key(name, call.body.key)).flow
    except NotFound:
        receiver = ""
    if receiver and call.may(Right.SEE, receiver):
        call.need(Right.OPERATE, receiver)
        return
    if starts and not seen:
        raise missing
    for flow in seen:
        call.need(Right.START, flow)
    if receiver:
        raise Conflict(f"the key {call.body.key!r} is taken") if seen else missing


def keyed_data(engine: Engine, uploads: Uploads, name: str, key: str, data: Any) -> Any:
    """Return the data of a signal, with files as all flows receive them that it may go to.

    Raises:
        InputError: It names a path of this machine.
        NotFound: The sender has not uploaded one of its files.
    """
    store = engine.store
    try:
        hash = store.execution(store.find_key(name, key)).hash
    except NotFound:
        for begun in store.starts(name):
            compiled = engine.flows.kept(begun.hash).compiled
            data = _data(uploads, compiled, name, data)
            for start in compiled.get("start", ()):
                if start.get("signal") == name:
                    given = start.get("with", {})
                    data = starting_data(uploads, compiled.get("inputs", {}), given, data)
        return data
    return _data(uploads, engine.flows.kept(hash).compiled, name, data)


def data_schema(compiled: Any, name: str) -> Any:
    """Return the JSON Schema of the data of a signal. None: it has no data."""
    for flow in (compiled, *compiled.get("flows", ())):
        if name in (declared := flow.get("signals", {})):
            return declared[name].get("data")
    return None


def _data(uploads: Uploads, compiled: Any, name: str, data: Any) -> Any:
    """Return the data of a signal, with files as a flow receives them."""
    for flow in (compiled, *compiled.get("flows", ())):
        declared = flow.get("signals", {}).get(name, {}).get("data", True)
        data = sent_values(uploads, {"data": declared}, {"data": data}, "signal's")["data"]
    return data


def sent_view(sent: Sent) -> dict[str, Any]:
    """Return a signal that was stored."""
    names = ("execution", "id", "first", "began")
    return {name: getattr(sent, name) for name in names}
