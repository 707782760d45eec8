"""What happened while nobody drove an execution, as events in the right order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.journal.shapes import unpack_message
from flowengine.kernel import running
from flowengine.kernel.handing import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flowengine.engines.execution import Execution
    from flowengine.journal.records import Message
    from flowengine.kernel.events import Event, Evidence


def recover(execution: Execution, inbox: list[Message], now: int) -> None:
    """Put into the queue of an execution that was just loaded what happened since.

    First the attempts that its last process left: they were cut off before all else. Then messages
    in the order they were stored and timers in the order they were due, merged by time; on a tie
    messages come first. What begins the execution is before all else, whatever clocks say. Last,
    what waits for an environment is tried again.

    Args:
        execution: Loaded, nothing applied yet.
        inbox: Its messages that no journal holds.
        now: The time (ms).
    """
    left = list(running(execution.state))
    if left:
        from flowengine.sdk.process_tree import end_marked

        end_marked(execution.id)  # a second attempt must not meet the first
    for unit, attempt in left:
        execution.queue.append({"type": "cut", "at": now, "unit": unit, "attempt": attempt})
    happened = [(_when(execution, message), 0, message.number, message) for message in inbox]
    happened += [(due, 1, timer, None) for due, timer in execution.timers.due(now)]  # type: ignore[misc]
    for _, _, timer, message in sorted(happened, key=lambda entry: entry[:3]):
        if message is None:
            fire(execution, timer, now)
        else:
            take_message(execution, message, now)
    execution.queue.extend(_tries_for_environments(execution, now))


def _tries_for_environments(execution: Execution, now: int) -> Iterator[Event]:
    """Yield an event for each attempt that was stopped because an environment could not be had.

    Whoever goes on with an execution tries again; what somebody has decided meanwhile was before.
    """
    for number, record in execution.waits.items():
        if record.get("ran") == "no":
            yield {
                "type": "decided",
                "at": now,
                "wait": number,
                "choice": "retry",
                "by": "system",
                "via": "resume",
            }


def _when(execution: Execution, message: Message) -> int:
    """Return when a message of the inbox happened, for the order of events."""
    begins = not execution.seq and unpack_message(message)["type"] == "started"
    return -1 if begins else message.at  # a place that was free was given it at no time


def take_message(execution: Execution, message: Message, now: int) -> bool:
    """Put a message of the inbox into the queue, unless it is there already.

    The event is journaled at the time it is taken, so that what follows counts from then; when it
    was made stays in `sent`.

    Args:
        execution: Whom it is for.
        message: From the store.
        now: The time (ms).

    Returns:
        Whether it was new.
    """
    if not execution.takes(message.number):
        return False
    event: Any = unpack_message(message)
    event["sent"] = event["at"]
    event["at"] = now
    execution.queue.append(event)
    return True


def take_hands(execution: Execution, inbox: list[Message], now: int) -> None:
    """Put into the queue what people did with approvals, and nothing else: no step follows from it.

    Args:
        execution: Loaded, nothing applied yet.
        inbox: Its messages that no journal holds.
        now: The time (ms).
    """
    for message in inbox:
        if unpack_message(message)["type"] in EVENTS:
            take_message(execution, message, now)


def fire(execution: Execution, timer: int, now: int) -> None:
    """Put a timer that is due into the queue, with what the attempt printed whose time is over."""
    event: dict[str, Any] = {"type": "timer", "at": now, "timer": timer}
    if execution.printed and (evidence := _cut_short(execution, timer)):
        event["evidence"] = evidence
    execution.queue.append(event)  # type: ignore[arg-type] # built key by key


def _cut_short(execution: Execution, timer: int) -> Evidence | None:
    """Return what the attempt has printed that a timer ends."""
    state = execution.state
    found = state["timers"].get(timer)
    if found is None or found["why"] not in ("timeout", "deadline"):
        return None
    whose = found["ref"]
    units = [whose] if found["why"] == "timeout" else list(state["acts"][whose]["units"])
    at_work = [execution.printed[unit] for unit in units if unit in execution.printed]
    return at_work[0].evidence() if len(at_work) == 1 else None
