"""The shapes of stored records, and errors for records of other shapes.

A checksum shows that bytes are unchanged, but not that a compatible program wrote them. Small
records are checked when they are read. A state is too large for that: every error while using it is
reported as damage (`Sound`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, NoReturn

from flowengine.errors import FlowEngineError, StoreError
from flowengine.journal.encoding import unpack
from flowengine.journal.records import InboxMessage
from flowengine.kernel.graph.compiled import OtherFormat, check_format

Shape = dict[str, type | tuple[type, ...]]
"""Field → the types that its value may have. A name that ends in `?` is optional."""

DAMAGE_HINT = "the disk or another program changed it: restore a backup of the store"
"""The hint for a damaged record."""

FORMAT_HINT = "continue with the version of flowengine that wrote it, or start the execution anew"
EXPLAINED = (FlowEngineError, OSError)
"""Errors with a complete message."""
_NONE = type(None)
_TEXT = {str}
_OUTCOME: Shape = {"unit": int, "attempt": int, "opened?": list, "log?": dict}
_EXECUTION: Shape = {
    **dict.fromkeys(("id", "flow", "version", "started_at", "started_by"), str),
    **dict.fromkeys(("workdir", "identity"), str), "labels": dict,
}  # fmt: skip
_HANDED: Shape = {"wait": int, "by?": str, "to?": str, "comment?": (str, _NONE), "sent?": int}
_ERROR: Shape = {
    "type": str, "message": str, "step?": str, "attempt?": int, "retryable?": bool,
    "retry_after?": int, "source?": str, "cause?": (dict, _NONE),
}  # fmt: skip
_EVIDENCE: Shape = {"traceback?": list, "stdout?": str, "stderr?": str}
_LOG: Shape = {"lines": list, "left_out?": int}
_LOG_LINE = [int, str, str]
_OPENING: Shape = {
    **dict.fromkeys(("name", "kind", "scope", "provider"), str), "asked": int, "ready": int,
}  # fmt: skip
_WAIT: Shape = {
    "id": int, "kind": str, "since": int, "address?": str, "title?": (str, _NONE),
    "body?": (str, _NONE), "form?": (dict, bool, _NONE), "choices?": (list, _NONE),
    "assignees?": (list, _NONE), "exclude?": (list, _NONE), "need?": (int, _NONE),
    "votes?": (list, _NONE), "batch?": (str, _NONE), "attachments?": (list, _NONE),
    "due?": (int, _NONE), "on_expire?": (str, _NONE), "signals?": (list, _NONE), "chat?": bool,
    "needs?": list,
}  # fmt: skip
_FLOW: Shape = {
    "id": str, "version": str, "bodies": list, "steps": list, "expressions": list, "title?": str,
    **dict.fromkeys(("flows?", "defaults?", "environments?", "on_error?", "start?"), list),
    **dict.fromkeys(("notifies?", "shared_budgets?", "end_notices?"), list),
    **dict.fromkeys(("inputs?", "outputs?", "state?", "signals?", "secrets?"), dict),
    **dict.fromkeys(("budget?", "concurrency?", "limits?"), dict),
}  # fmt: skip
_ITEMS: dict[str, type] = {
    "assignees": str, "exclude": str, "choices": dict, "votes": dict, "signals": dict, "needs": str,
}  # fmt: skip
"""Lists of a wait → the type of their items."""
_CHOICE: Shape = {"id": str, "label?": (str, _NONE), "counts_as?": (str, _NONE)}
WAITS = frozenset({"approval", "ask", "signal", "timer", "state", "question", "session", "worker"})

EVENTS: dict[str, Shape] = {
    "started": {"inputs": dict, "execution": dict, "message?": dict, "budget?": dict},
    "succeeded": _OUTCOME,
    "failed": {**_OUTCOME, "error": dict, "evidence?": dict, "began?": bool, "by?": str},
    "lost": {**_OUTCOME, "ran": str, "error": dict, "evidence?": dict},
    "asked": {
        **_OUTCOME, "tool": str, "version": str, "rule?": str, "difference?": str, "found?": dict,
        "input?": dict,
    },
    "measured": {**_OUTCOME, "needs": dict},
    "used": {**_OUTCOME, "run": str, "amounts": dict},
    "described": {"wait": int, "source?": str, "preview?": str, "note?": str},
    "cut": {**_OUTCOME, "began?": bool, "process?": dict},
    "unoffered": {"unit": int, "attempt": int},
    "offered": {"wait": int},
    "wanted": {"by": str},
    "timer": {"timer": int, "evidence?": dict, "log?": dict},
    "decided": {
        "wait": int, "choice?": str, "by?": str, "via?": str, "comment?": (str, _NONE),
        "edits?": (dict, _NONE), "attachments?": (list, _NONE), "images?": list, "sent?": int,
        "grant?": (dict, _NONE), "granted?": str,
    },
    "revoked": {"grant": int, "by": str, "sent?": int},
    "claimed": _HANDED,
    "released": _HANDED,
    "delegated": _HANDED,
    "message": {
        "signal": str, "key": (str, _NONE), "id": str, "by": str, "sent?": int,
    },
    "granted": {"lock": str, "unit": int, "amounts?": dict, "lacks?": dict},
    "cancel": {"reason": str, "by": str, "now": bool},
    "retry": {
        "unit": (int, _NONE), "by": str, "back?": int, "kept?": list, "hold?": dict,
        "fresh?": list, "late?": list, "overdue?": list, "last?": int, "ended?": dict,
    },
    "state": {"values": dict, "by": str},
    "upgraded": {
        "before": str, "after": str, "mapping": dict, "version": str, "by": str,
    },
    "halted": {"error": dict},
    "warning": {"about": str, "message": str},
}  # fmt: skip
"""Type of an event → its shape. Every event also has `type` and `at`."""
_NOTICE: Shape = {
    "flow": str, "hash": str, "number": int, "parent": dict, "wait?": int, "approval?": dict,
    "execution?": dict,
}  # fmt: skip


class Sound:
    """A context in which stored data is used: errors inside it are damage of that data.

    Args:
        what: The record, for the message.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        if isinstance(error, OtherFormat):
            raise StoreError(f"{self._what} cannot be used: {error}", hint=FORMAT_HINT) from None
        if isinstance(error, Exception) and not isinstance(error, EXPLAINED):
            raise damage(self._what, error) from error
        return False


def damage(what: str, error: Exception) -> StoreError:
    """Return the error about a damaged record, or one that needs a package which is missing here.

    Args:
        what: The record.
        error: The exception that using it raised.
    """
    if isinstance(error, ImportError):
        lacks = f"'{error.name}' cannot be imported" if error.name else "a package is missing"
        return StoreError(
            f"{what} cannot be used in this process: {lacks} ({error})",
            hint="install it into the environment that runs flowengine",
        )
    return _damage(what, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _refuse(what: str, why: str) -> NoReturn:
    raise _damage(what, why)


def _damage(what: str, why: str) -> StoreError:
    return StoreError(f"{what} is damaged: its data has the wrong shape ({why})", hint=DAMAGE_HINT)


def unpack_event(packed: bytes, what: str) -> Any:
    """Return a checked event.

    Args:
        packed: Its bytes.
        what: Its name in messages.

    Raises:
        StoreError: The record is damaged. So do all functions below.
    """
    event = _unpack(packed, what)
    kind = event.get("type") if isinstance(event, dict) else None
    shape = EVENTS.get(kind) if isinstance(kind, str) else None
    if shape is None or type(event.get("at")) is not int:
        _refuse(what, "it is not an event")
    _check(event, shape, what)
    if kind == "started":
        _check(event["execution"], _EXECUTION, what)
    if "error" in shape:
        _check_error(event["error"], what)
    if "evidence" in event:
        _check(event["evidence"], _EVIDENCE, what)
    if "log" in event and "log?" in shape:
        _check(event["log"], _LOG, what)
        if any(not isinstance(line, list) or [*map(type, line)] != _LOG_LINE
               for line in event["log"]["lines"]):  # fmt: skip
            _refuse(what, "a line of its log")
    for opening in event.get("opened", ()):
        _check(opening, _OPENING, what)
    return event


def unpack_notice(packed: bytes, what: str) -> Any:
    """Return a checked notification. Raises like `unpack_event`."""
    notice = _unpack(packed, what)
    if not isinstance(notice, dict):
        _refuse(what, "it is not a notification")
    _check(notice, _NOTICE, what)
    return notice


def unpack_flow(packed: bytes, hash: str) -> Any:
    """Return a compiled flow with its outer shape checked. Raises like `unpack_event`."""
    flow = _unpack(packed, f"flow {hash}")
    _check(flow, _FLOW, f"flow {hash}")
    if not all(type(step) is dict and type(step.get("id")) is str for step in flow["steps"]):
        _refuse(f"flow {hash}", "a step has no id")
    if not all(type(key) is dict for key in flow.get("state", {}).values()):
        _refuse(f"flow {hash}", "a key of the state is not described by a map")
    return flow


def unpack_message(message: InboxMessage) -> Any:
    """Return the checked event of a message. Raises like `unpack_event`."""
    return unpack_event(message.event, f"a message to execution {message.execution}")


def unpack_wait(packed: bytes, what: str) -> dict[str, Any]:
    """Return the checked record of a wait. Raises like `unpack_event`."""
    record: dict[str, Any] = _unpack(packed, what)
    check_wait(record, what)
    return record


def check_wait(record: Any, what: str) -> None:
    """Check the record of a wait. Raises like `unpack_event`."""
    _check(record, _WAIT, what)
    if record["kind"] not in WAITS:
        _refuse(what, f"there is no kind of wait {record['kind']!r}")
    for name, kind in _ITEMS.items():
        items: Any = record.get(name)
        if items and not all(type(item) is kind for item in items):
            _refuse(what, f"an item of '{name}' is of another type")
    for choice in record.get("choices") or ():
        _check(choice, _CHOICE, what)


def check_state(state: Any, new: Mapping[str, Any], what: str) -> None:
    """Check the outer shape of a state. Raises like `unpack_event`.

    Args:
        state: The state.
        new: An initial state.
        what: Its name in messages.
    """
    _check(state, {"format": int}, what)
    with Sound(what):
        check_format(state["format"])
    _check(state, {name: type(value) for name, value in new.items() if value is not None}, what)
    for name in new:
        if name not in state:
            _refuse(what, f"'{name}' is missing")
    if state["outputs"] is not None:
        _check(state["outputs"], {}, what)
    _check_error(state["error"], what)
    for wait in state["waits"].values():
        check_wait(wait["record"], what)


def unpack_labels(packed: bytes, what: str) -> dict[str, str]:
    """Return the checked labels of an execution. Raises like `unpack_event`."""
    labels: Any = _unpack(packed, what)
    if not isinstance(labels, dict) or not all(
        type(part) is str for label in labels.items() for part in label
    ):
        _refuse(what, "labels must be text")
    kept: dict[str, str] = labels
    return kept


def unpack_key_inputs(packed: bytes, what: str) -> dict[str, Any]:
    """Return the checked key inputs of an execution. Raises like `unpack_event`."""
    inputs: Any = _unpack(packed, what)
    if not isinstance(inputs, dict):
        _refuse(what, "key inputs must have names")
    return dict(inputs)


def unpack_outputs(packed: bytes | None, what: str) -> Any:
    """Return the checked outputs of an execution, if any. Raises like `unpack_event`."""
    if packed is None:
        return None
    outputs = _unpack(packed, what)
    _check(outputs, {}, what)
    return outputs


def unpack_error(packed: bytes | None, what: str) -> Any:
    """Return the checked error of an execution, if any. Raises like `unpack_event`."""
    if packed is None:
        return None
    error = _unpack(packed, what)
    _check_error(error, what)
    return error


def _unpack(packed: bytes, what: str) -> Any:
    try:
        return unpack(packed)
    except StoreError as error:
        raise StoreError(f"{what} is damaged: {error.message}", hint=DAMAGE_HINT) from None


def _check_error(error: Any, what: str) -> None:
    while error is not None:
        _check(error, _ERROR, what)
        error = error.get("cause")


def _check(value: Any, shape: Shape, what: str) -> None:
    """Check that a value is a mapping with the fields of a shape. Other fields are permitted."""
    if type(value) is not dict or not {*map(type, value)} <= _TEXT:
        _refuse(what, "it is not a mapping of names")
    for field, kinds in shape.items():
        name = field.rstrip("?")
        if name in value:
            if not isinstance(value[name], kinds) or (type(value[name]) is bool and kinds is int):
                _refuse(what, f"'{name}' is of type {type(value[name]).__name__}")
        elif name is field:
            _refuse(what, f"'{name}' is missing")
