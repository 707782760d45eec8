"""Addresses of activations such as `each[a/b@c]/read@2#3`, and ids and keys derived from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Parsing of activation addresses such as `each[a/b@c]/read@2#3` (docs/language.md: Steps).
#
# Keys of items are arbitrary text, so separators in them have no meaning.

_KEY = r"\[.*?\](?=[/@#]|$)"
# Compiled on first use: most starts of the program need none. A dot also stands for a line break.
_PART = rf"(?s:{_KEY}|[^/])+"
_PLAIN = rf"(?s:{_KEY}|[^#@])*"
_BOUND = rf"(?s:({_KEY})|[/@])"
_NUMBERS = rf"(?s:{_KEY}|@\d+|#\d+)"
_AGAIN = rf"(?s:({_KEY})|#\d+)"
_INNER = r"[/\[@]"
COMPENSATION, CLEANUP = "/compensate", "/finally"
"""Ends of the addresses of steps that undo or clean up after the one before them."""


def steps_in(address: str) -> list[str]:
    """Return the ids of the steps in an address, outermost first."""
    return re.sub(_NUMBERS, "", address).split("/")


def around(address: str) -> list[str]:
    """Return an address and those whose item, round or part it is, outermost first."""
    return [*(address[: match.start()] for match in re.finditer(_BOUND, address)), address]


def is_part(address: str) -> bool:
    """Return whether an address is that of an item, a round or a part of a step."""
    return re.search(_INNER, address) is not None


def is_round(address: str) -> bool:
    """Return whether an address of a task that makes calls is that of a round."""
    return "@" in address.rpartition("/")[2]


def without_repetition(address: str) -> str:
    """Return an address without the numbers of repeated activations."""
    return re.sub(_AGAIN, lambda match: match[1] or "", address)


def place(address: str) -> str:
    """Return an address without the numbers that can repeat: rounds and activations."""
    plain = (re.match(_PLAIN, part) for part in re.findall(_PART, address))
    return "/".join(match[0] for match in plain if match)


# Public ids and keys derived from data of the kernel.

WAIT_ID_LENGTH = 16
"""Hex digits of a wait's id. With these 64 bits, the probability of a collision in a store with a
million waits is 1 in 37 million."""

_SEPARATE_ID_LENGTH = 26
"""Hex digits, as many as the other ids of executions have characters."""
DERIVED = rf"([0-9a-f]{{{_SEPARATE_ID_LENGTH}}}|.+-\d{{8}}T\d{{6}}Z-[0-9a-f]{{8}})(\.\d+)?"
"""The forms of ids of executions that are derived from their cause: those of `separate_id`, and of
schedules. A number follows if another execution has the id."""

NOTIFIES = "_notify."
"""Begins the ids of the flows that send notifications with a tool. No name in a file begins with an
underscore."""
OF_END = "_end."
"""Follows in the ids of those that do so at the end of an execution."""


SHOWN = frozenset(
    {"id", "flow", "version", "started_at", "scheduled_at", "started_by", "parent", "labels"}
)
"""Parts of the variable `execution` that expressions see."""


def acting_user(execution: Mapping[str, Any]) -> str:
    """Return the user on whose behalf an execution acts: who started or last forked it.

    Args:
        execution: The variable `execution`, whose `started_by` is the same in all forks.
    """
    return str([execution["started_by"], *execution.get("forked_by", ())][-1])


def execution_of(owner: str) -> str:
    """Return the id of the execution that owns environments, as `ID@IDENTITY` or a part of it."""
    return re.split("[@/]", owner, maxsplit=1)[0]


def shown_owner(owner: str) -> str:
    """Return an owner of environments as messages show it, without the identity of an execution."""
    return re.sub("@[0-9a-f]{32}(?=/|$)", "", owner)


def flow_name(flow: str) -> str:
    """Return the name of a flow for users: what sends notifications is named by its tool."""
    if not flow.startswith(NOTIFIES):
        return flow
    return f"notification by {flow.removeprefix(NOTIFIES).removeprefix(OF_END)}"


def wait_id(execution: str, number: int) -> str:
    """Return the public id of a wait.

    Args:
        execution: Full id of the execution.
        number: The kernel's number of the wait.

    Returns:
        16 hex digits.
    """
    # Loading OpenSSL takes longer than the rest of the kernel, and many executions never wait.
    from hashlib import sha256

    return sha256(f"{execution}/{number}".encode()).hexdigest()[:WAIT_ID_LENGTH]


def separate_id(*cause: str | int) -> str:
    """Return the id of the execution that has a cause, such as a step of an execution."""
    import json
    from hashlib import sha256

    text = json.dumps(cause, ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:_SEPARATE_ID_LENGTH]


def idempotency_key(identity: str, address: str) -> str:
    """Return the default idempotency key of an activation's calls.

    Args:
        identity: Of the execution.
        address: Address of the activation.

    Returns:
        64 hex digits, the same in every attempt.
    """
    import json
    from hashlib import sha256

    text = json.dumps([identity, address], ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


_PARTS_OF_ONE = re.compile(r"[\[@]")


def wholes(address: str) -> list[str]:
    """Return the maps and loops that an address may be an item or a round of.

    Args:
        address: Address of an activation: `each[3]`, `poll@2`.
    """
    return [address[: sign.start()] for sign in _PARTS_OF_ONE.finditer(address)]
