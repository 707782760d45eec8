"""Approval handlers, which decide whether an environment may be opened.

A handler receives a `Question` and returns `{"approved": True}` or `{"approved": False}` with a
`reason`. It may be a coroutine function. It may narrow the policy (`"policy": {...}`), and it may
postpone the answer: `{"pending": True}`. Any other result counts as a rejection.

    def on_call(question):
        return {"approved": question.kind == "python", "reason": "only Python today"}

    register_handler("on-call", on_call)
    configure_policy_approval(handler="on-call")

The default handler, `input_timeout_fail`, asks on the terminal for 30 seconds. Silence rejects, and
a process without a terminal rejects at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import IO, Any, NamedTuple

from flowengine.errors import UsageError
from flowengine.sdk.errors import raised
from flowengine.sdk.keyboard import listening
from flowengine.sdk.user_code import call
from flowengine.sdk.visible_text import printable

SECONDS = 30.0
"""How long the default handler waits for an answer, in seconds."""
_DEFAULT = "input_timeout_fail"


class Question(NamedTuple):
    """The question whether an environment may be opened."""

    id: str
    """Equal questions have the same id, in every process."""
    kind: str
    scope: str
    owner_id: str
    resource_key: str
    provider: str
    policy: Mapping[str, Any]
    """The policy of the environment, as plain data."""
    reason: str | None
    """The reason for the request."""


class PolicyAnswer(NamedTuple):
    """The answer, parsed strictly."""

    approved: bool
    reason: str
    """The reason."""
    pending: bool = False
    """Whether the decision comes later."""
    policy: Mapping[str, Any] | None = None
    """Narrower rules than the spec's."""
    by_policy: bool = False
    """Whether a rule rejected it, not a person."""
    lasts: bool = True
    """Whether the answer is a real decision. Otherwise the next attempt asks again."""


Handler = Callable[[Question], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]

_lock = threading.Lock()
_handlers: dict[str, Handler] = {}
_configured = _DEFAULT
_seconds = SECONDS


def register_handler(name: str, handler: Handler) -> None:
    """Register a handler under a name.

    Args:
        name: Its name, for `configure_policy_approval` and specs: `approval: {handler: NAME}`.
        handler: A function or coroutine function that takes a `Question`.

    Raises:
        UsageError: The name is taken, or the handler is not callable.
    """
    if not callable(handler):
        raise UsageError(f"approval handler '{name}' cannot be called")
    with _lock:
        if name in _known():
            raise UsageError(
                f"there is already an approval handler '{name}'", hint="unregister_handler(name)"
            )
        _handlers[name] = handler


def unregister_handler(name: str) -> None:
    """Unregister a handler. If it was the configured one, the default applies again."""
    global _configured  # noqa: PLW0603 - one a process
    with _lock:
        _handlers.pop(name, None)
        if _configured == name:
            _configured = _DEFAULT


def configure_policy_approval(handler: str = _DEFAULT, *, seconds: float = SECONDS) -> None:
    """Choose the handler for specs that name none.

    Args:
        handler: Name of a registered handler.
        seconds: How long any handler may take. A later answer counts as a rejection.

    Raises:
        UsageError: The handler does not exist.
    """
    global _configured, _seconds
    with _lock:
        check_handler(handler)
        _configured, _seconds = handler, seconds


def configured() -> str | None:
    """Return the name of the configured handler, or None for the default one."""
    return None if _configured == _DEFAULT else _configured


def check_handler(name: str) -> None:
    """Refuse an unknown handler name.

    Raises:
        UsageError: The handler does not exist. The message lists the known ones.
    """
    if name not in _known():
        raise UsageError(
            f"there is no approval handler '{name}'",
            hint=f"known: {', '.join(sorted(_known()))}. register_handler(name, handler) adds one",
        )


async def ask(question: Question, handler: str | None = None) -> PolicyAnswer:
    """Ask a handler, and parse its answer.

    Runs on any loop, and never raises because of a handler.

    Args:
        question: The question.
        handler: Name of the handler of the spec. None means the configured one.

    Returns:
        The answer. Any answer but a clear approval is a rejection.

    Raises:
        CancelledError: The caller was cancelled.
    """
    import asyncio

    name = handler or _configured
    found: Handler | None = _known().get(name)
    if found is None:
        return PolicyAnswer(False, f"there is no approval handler '{name}'", lasts=False)
    try:
        async with asyncio.timeout(_seconds + (1 if name == _DEFAULT else 0)):
            given = await call(found, question)
    except TimeoutError:
        return PolicyAnswer(False, f"approval handler '{name}' did not answer in time", lasts=False)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return PolicyAnswer(
            False, f"approval handler '{name}' raised {type(raised(error)).__name__}", lasts=False
        )
    return read_answer(given, name, question.policy)


def read_answer(given: Any, who: str, policy: Mapping[str, Any]) -> PolicyAnswer:
    """Parse an answer strictly.

    Args:
        given: The answer.
        who: The answering handler, for the message.
        policy: The policy of the spec, which an answer can only narrow.

    Returns:
        The answer. An invalid one is a rejection, with the reason.
    """
    if not isinstance(given, Mapping):
        return _misread(who, f"answered with a {type(given).__name__}, which is not a mapping")
    if given.get("pending") is True:
        return PolicyAnswer(False, "the answer is pending", pending=True, lasts=False)
    approved = given.get("approved")
    if not isinstance(approved, bool):
        return _misread(who, "must answer 'approved' with true or false")
    reason = given.get("reason")
    reason = reason if isinstance(reason, str) else ""
    if not approved:
        return PolicyAnswer(
            False, reason or f"{who} rejected it", by_policy=given.get("by") == "policy"
        )
    narrower = given.get("policy")
    if narrower is not None:
        wider = _widens(narrower, policy)
        if wider is not None:
            return _misread(who, f"would allow more than the spec: {wider}")
        return PolicyAnswer(True, reason, policy={**policy, **narrower})
    return PolicyAnswer(True, reason)


def _misread(who: str, what: str) -> PolicyAnswer:
    return PolicyAnswer(False, f"approval handler '{who}' {what}", lasts=False)


def _widens(narrower: Any, policy: Mapping[str, Any]) -> str | None:
    """Return the part of an answer's policy that exceeds the spec, if any."""
    if not isinstance(narrower, Mapping):
        return "its policy is not a mapping"
    for key, value in narrower.items():
        allowed = policy.get(key)
        if key not in policy:
            return f"'{key}' is not a rule of the spec"
        if value == allowed or (key == "network" and value == "none"):
            continue
        if key == "network" and allowed == "any":
            continue
        forbids = key.startswith("deny") or key == "ask"
        if forbids and isinstance(value, list) and isinstance(allowed, list | None):
            if set(map(str, allowed or ())) <= set(map(str, value)):
                continue
        elif isinstance(value, list) and isinstance(allowed, list):
            if all(item in allowed for item in value):
                continue
        elif value is False and allowed is True:
            continue
        return f"'{key}'"
    return None


def _known() -> dict[str, Handler]:
    return {_DEFAULT: input_timeout_fail, **_handlers}


# The default handler

_terminal = threading.Lock()
"""Allows one question at a time on the terminal."""


def input_timeout_fail(question: Question) -> dict[str, Any]:
    """Ask on the terminal, rejecting without an answer in time.

    Without a terminal, it rejects at once, and reads nothing.

    Args:
        question: The question.

    Returns:
        The answer.
    """
    source, sink = sys.stdin, sys.stderr
    if not (_is_terminal(source) and _is_terminal(sink)):
        return {
            "approved": False,
            "reason": "there is no terminal to ask at. Register your own handler with "
            "flowengine.execution_environment.policy_approval.register_handler",
        }

    with _terminal:
        try:
            with listening(source.fileno(), seconds=_seconds) as keyboard:
                sink.write(f"{_text(question)} Open it? [yes/no] ")
                sink.flush()
                answer = keyboard.line()
        except (EOFError, TimeoutError):
            sink.write("\n")
            return {"approved": False, "reason": f"no answer within {_seconds:g} s"}
    if answer.strip().lower() == "yes":
        return {"approved": True}
    return {"approved": False, "reason": "refused at the terminal"}


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # the terminal was closed
        return False


def _text(question: Question) -> str:
    """Return the question as text, in which control characters cannot change its appearance."""
    whose = f"{question.scope} {question.owner_id}".rstrip()
    text = (
        f"Environment '{question.resource_key}': {question.kind} by {question.provider}, {whose}."
    )
    rules = [f"{key}: {value}" for key, value in question.policy.items() if value is not None]
    if rules:
        text += f" Policy: {'; '.join(rules)}."
    if question.reason:
        text += f" {question.reason.rstrip('.')}{'' if question.reason[-1] in '?!' else '.'}"
    return printable(text)
