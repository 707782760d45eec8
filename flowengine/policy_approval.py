"""Who is asked before an environment is opened, and how the answer is read.

A handler gets a `Question` and answers `{"approved": True}` or `{"approved": False}` with a
`reason`; it may be a coroutine function. It may narrow the policy (`"policy": {...}`), and it may
postpone the answer: `{"pending": True}`. Anything else is a no.

    def on_call(question):
        return {"approved": question.kind == "python", "reason": "only Python today"}

    register_handler("on-call", on_call)
    configure_policy_approval(handler="on-call")

The default handler, `input_timeout_fail`, asks on the terminal for 30 seconds; silence means no,
and a process without a terminal means no at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import IO, Any, NamedTuple

from flowengine.errors import UsageError
from flowengine.printable import printable

SECONDS = 30.0
"""How long the default handler waits for an answer."""
_DEFAULT = "input_timeout_fail"


class Question(NamedTuple):
    """The question: may this environment be opened?"""

    id: str
    """The same question has the same id, in every process."""
    kind: str
    scope: str
    owner_id: str
    resource_key: str
    provider: str
    policy: Mapping[str, Any]
    """Plain data: what it may do."""
    reason: str | None
    """Why it is wanted."""


class Answer(NamedTuple):
    """The answer, read strictly."""

    approved: bool
    reason: str
    """The reason."""
    pending: bool = False
    """The answer comes later."""
    policy: Mapping[str, Any] | None = None
    """Narrower rules than the spec's."""
    by_policy: bool = False
    """A rule said no, not a person."""
    lasts: bool = True
    """Whether somebody really answered; otherwise the next attempt asks again."""


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
    """Unregister a handler; if it was the configured one, the default applies again."""
    global _configured  # noqa: PLW0603 - one a process
    with _lock:
        _handlers.pop(name, None)
        if _configured == name:
            _configured = _DEFAULT


def configure_policy_approval(handler: str = _DEFAULT, *, seconds: float = SECONDS) -> None:
    """Choose the handler for specs that name none.

    Args:
        handler: Name of a registered handler.
        seconds: How long any handler may take; later means no.

    Raises:
        UsageError: There is no such handler.
    """
    global _configured, _seconds
    with _lock:
        check_handler(handler)
        _configured, _seconds = handler, seconds


def configured() -> str | None:
    """Return the name of the handler that was configured; None: it is the default one."""
    return None if _configured == _DEFAULT else _configured


def check_handler(name: str) -> None:
    """Refuse an unknown name of a handler.

    Raises:
        UsageError: There is no such handler; the message lists the known ones.
    """
    if name not in _known():
        raise UsageError(
            f"there is no approval handler '{name}'",
            hint=f"known: {', '.join(sorted(_known()))}; register_handler(name, handler) adds one",
        )


async def ask(question: Question, handler: str | None = None) -> Answer:
    """Ask, and read the answer. Runs on any loop; never raises because of a handler.

    Args:
        question: What is asked.
        handler: Name of the handler of the spec; None: the configured one.

    Returns:
        The answer; anything but a clear yes is a no.

    Raises:
        CancelledError: The caller was cancelled.
    """
    import asyncio

    name = handler or _configured
    found: Handler | None = _known().get(name)
    if found is None:
        return Answer(False, f"there is no approval handler '{name}'", lasts=False)
    try:
        async with asyncio.timeout(_seconds + (1 if name == _DEFAULT else 0)):
            given = await _call(found, question)
    except TimeoutError:
        return Answer(False, f"approval handler '{name}' did not answer in time", lasts=False)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return Answer(
            False, f"approval handler '{name}' raised {type(error).__name__}", lasts=False
        )
    return read_answer(given, name, question.policy)


def read_answer(given: Any, who: str, policy: Mapping[str, Any]) -> Answer:
    """Read an answer strictly.

    Args:
        given: What was answered.
        who: Who answered, for the message.
        policy: What the spec allows: an answer can only narrow it.

    Returns:
        The answer; an invalid one is a no, with the reason.
    """
    if not isinstance(given, Mapping):
        return _misread(who, f"answered with a {type(given).__name__}, which is not a mapping")
    if given.get("pending") is True:
        return Answer(False, "the answer is pending", pending=True, lasts=False)
    approved = given.get("approved")
    if not isinstance(approved, bool):
        return _misread(who, "must answer 'approved' with true or false")
    reason = given.get("reason")
    reason = reason if isinstance(reason, str) else ""
    if not approved:
        return Answer(False, reason or f"{who} said no", by_policy=given.get("by") == "policy")
    narrower = given.get("policy")
    if narrower is not None:
        wider = _widens(narrower, policy)
        if wider is not None:
            return _misread(who, f"would allow more than the spec: {wider}")
        return Answer(True, reason, policy={**policy, **narrower})
    return Answer(True, reason)


def _misread(who: str, what: str) -> Answer:
    return Answer(False, f"approval handler '{who}' {what}", lasts=False)


def _widens(narrower: Any, policy: Mapping[str, Any]) -> str | None:
    """Return what an answer would allow beyond the spec, if anything."""
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


async def _call(handler: Handler, question: Question) -> Any:
    """Call a handler: a coroutine function on this loop, any other on a thread."""
    import inspect

    from flowengine.sdk.threads import on_thread

    if inspect.iscoroutinefunction(handler):
        return await handler(question)
    given = await on_thread(lambda: handler(question))
    return await given if inspect.isawaitable(given) else given


def _known() -> dict[str, Handler]:
    return {_DEFAULT: input_timeout_fail, **_handlers}


# The default handler

_terminal = threading.Lock()
"""One question at a time on the terminal."""


def input_timeout_fail(question: Question) -> dict[str, Any]:
    """Ask on the terminal; no answer in time means no, as does a process without a terminal.

    Nothing is read if there is no terminal.

    Args:
        question: What is asked.

    Returns:
        The answer.
    """
    source, sink = sys.stdin, sys.stderr
    if not (_is_terminal(source) and _is_terminal(sink)):
        return {
            "approved": False,
            "reason": "there is no terminal to ask at; register your own handler: "
            "flowengine.policy_approval.register_handler",
        }
    from flowengine.keyboard import listening

    with _terminal:
        try:
            with listening(source.fileno(), seconds=_seconds) as keyboard:
                sink.write(f"{_text(question)} Open it? [yes/no] ")
                sink.flush()
                answer = keyboard.line()
        except (EOFError, TimeoutError):
            sink.write("\n")
            return {"approved": False, "reason": f"nobody answered within {_seconds:g} s"}
    if answer.strip().lower() == "yes":
        return {"approved": True}
    return {"approved": False, "reason": "refused at the terminal"}


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _text(question: Question) -> str:
    """Return the question for people; control characters cannot change its appearance."""
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
