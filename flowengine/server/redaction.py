"""Answers for users without the right `content`: status, times and places, no data of a flow.

The fields are listed one by one, so that a new field of the engine is hidden until it is listed.
An error is an answer, too. Addresses are shown, but not the keys of items in them: what an
expression computes from values is content.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from flowengine.engines.reading import Group
from flowengine.errors import FlowEngineError, InputError

_EXECUTION = (
    *("execution", "flow", "version", "status", "labels", "started_by", "started_at", "ended_at"),
    "took",
    *("parent", "forked_from", "due", "durability", "budgets", "command"),
)
_STEP = (
    *("address", "step", "kind", "status", "outcome", "attempts"),
    *("started_at", "ended_at", "took"),
)
_WAIT = (
    *("id", "execution", "flow", "kind", "address", "step", "since", "due", "assignees", "exclude"),
    *("need", "claim", "claimed_by", "delegate", "status", "how", "timers", "chat"),
)
_HANDED = ("do", "by", "to", "at")
_REASON = ("address", "since", "due", "wait", "timers", "signals")
_ENVIRONMENT = (
    *("id", "kind", "provider", "scope", "owner_id", "execution", "generation", "state", "since"),
    "alive",
)
_GRANT = (
    *("id", "execution", "flow", "tool", "uses", "used", "until", "by", "at", "status"),
    "revoked_by",
)
_ENTRY = ("seq", "at", "type")
_WITH_KEYS = ("address", "step", "owner_id", "forked_from", "budgets", "command", "how")
"""Fields with addresses, or with commands that contain some."""
_KEYS = re.compile(r"(?s)(?<=\w)\[.*\]")
"""The keys in a text, with what is between them: a key can contain any character."""
_SECRET = secrets.token_bytes(32)
_HIDDEN = "the reason is shown to users with the right 'content'"
_ERROR = ("type", "step", "attempt")


class QuotingEngine:
    """An engine for the requests of a user, whose errors quote no data that is hidden.

    Args:
        engine: The engine, which acts as the user, or one of its groups.
        sees: Whether the user may see the data that an error quotes.
    """

    def __init__(self, engine: Any, sees: Callable[[FlowEngineError], bool]) -> None:
        self._engine = engine
        self._sees = sees

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._engine, name)
        if isinstance(part, Group):
            return QuotingEngine(part, self._sees)
        if not callable(part):
            return part

        @wraps(part)
        def method(*args: Any, **options: Any) -> Any:
            try:
                return part(*args, **options)
            except FlowEngineError as error:
                if self._sees(error):
                    raise
                shown = error.without_quotes()
                if not isinstance(shown, InputError):  # it quotes what was sent
                    shown.message = without_keys(shown.message, secrets.token_hex())
                    if shown.hint is not None and _KEYS.search(shown.hint):
                        shown.hint = None
                raise shown from None

        return method


def without_content(execution: Mapping[str, Any]) -> dict[str, Any]:
    """Return an execution without the data of its flow."""
    shown = _only(execution, _EXECUTION)
    if "steps" in execution:
        id = execution["execution"]
        shown["steps"] = [_only(step, _STEP, id) for step in execution["steps"]]
    if "waits" in execution:
        shown["waits"] = [wait_without_content(wait) for wait in execution["waits"]]
    if execution.get("error") is not None:
        shown["error"] = _only(execution["error"], _ERROR, execution["execution"])
    return shown


def wait_without_content(wait: Mapping[str, Any]) -> dict[str, Any]:
    """Return a wait without its question and its decision, with who has passed it on to whom."""
    shown = _only(wait, _WAIT)
    if "handed" in wait:
        shown["handed"] = [_only(link, _HANDED) for link in wait["handed"]]
    return shown


def reason_without_content(reason: Mapping[str, Any], execution: str) -> dict[str, Any]:
    """Return a reason of `why` without its sentences, which may quote titles and keys."""
    return {**_only(reason, _REASON, execution), "what": _HIDDEN}


def reason_without_others(reason: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reason of `why` without the executions of other flows that hold a shared lock."""
    if "lock" not in reason:
        return dict(reason)
    what = f"waiting for '{reason['lock']}', which another execution holds"
    own = {name: value for name, value in reason.items() if name not in ("command", "commands")}
    return {**own, "what": what, "wakes": "the end of that execution"}


def environment_without_content(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment without its name, its directory and its traces on the machine."""
    return _only(environment, _ENVIRONMENT)


def grant_without_content(grant: Mapping[str, Any]) -> dict[str, Any]:
    """Return a grant without the arguments that it covers."""
    return _only(grant, _GRANT)


def entry_without_content(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of a journal without its data and its step."""
    return _only(entry, _ENTRY)


def without_keys(text: str, execution: str) -> str:
    """Return a text with addresses, in which a digest stands for the keys of items.

    It is the same for the same keys of an execution until the server ends, and cannot be guessed.
    Another execution has others: a user who starts one with chosen keys recognizes no other's.
    """

    def digest(keys: re.Match[str]) -> str:
        named = f"{execution}{keys[0]}".encode()
        return f"[~{hashlib.blake2b(named, digest_size=4, key=_SECRET).hexdigest()}]"

    return _KEYS.sub(digest, text)


def _only(
    view: Mapping[str, Any], names: tuple[str, ...], execution: str | None = None
) -> dict[str, Any]:
    execution = execution or str(view.get("execution"))
    return {
        name: hidden_keys(view[name], execution) if name in _WITH_KEYS else view[name]
        for name in names
        if name in view
    }


def hidden_keys(value: Any, execution: str) -> Any:
    """Return data whose addresses are shown without keys. See `without_keys`."""
    if isinstance(value, Mapping):
        return {
            without_keys(name, execution): hidden_keys(item, execution)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [hidden_keys(item, execution) for item in value]
    return without_keys(value, execution) if isinstance(value, str) else value
