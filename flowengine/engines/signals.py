"""Signals from outside: checked by their declaration, then stored for their execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.results import Sent
from flowengine.errors import InputError, UsageError
from flowengine.journal.format import pack
from flowengine.validation import validate

if TYPE_CHECKING:
    from flowengine.engines.host import Host


def send_signal(
    host: Host,
    name: str,
    data: Any,
    execution: str | None,
    key: str | None,
    id: str | None,
    by: str,
) -> Sent:
    """Store a signal for an execution.

    Args:
        host: The engine's.
        name: Of a signal that the flow declares.
        data: Must fit its schema.
        execution: Full id; or
        key: the key that an open execution has.
        id: A second message of the same id is not stored.
        by: Who sends it.

    Returns:
        Where it went.

    Raises:
        UsageError: Neither an execution nor a key is given, or both.
        InputError: The flow declares no such signal, or the data does not fit.
    """
    if (execution is None) == (key is None):
        raise UsageError("a signal goes to an execution or to a key: give one of them")
    store = host.store
    target = store.find_key(name, str(key)) if execution is None else execution
    declared = host.programs.by_hash(store.execution(target).hash).compiled.get("signals", {})
    if name not in declared:
        known = ", ".join(declared) or "none"
        raise InputError(f"there is no signal '{name}'", field=name, hint=f"signals: {known}")
    if "data" in declared[name]:
        validate(declared[name]["data"], data, f"signal '{name}'")
    at, id = host.clock.now(), id or host.ids.message()
    event = {"type": "message", "at": at, "signal": name, "key": key, "data": data, "id": id}
    event["by"] = by
    if key is None:
        sent = store.send(target, pack(event), at, f"{name} {id}")
    else:
        sent = store.send_keyed(name, key, pack(event), at, id)
    return Sent(sent.execution, id, None)
