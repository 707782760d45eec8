"""Public ids and keys derived from data of the kernel."""

from __future__ import annotations

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


def idempotency_key(execution: str, address: str) -> str:
    """Return the default idempotency key of an activation's calls.

    Args:
        execution: Full id of the execution.
        address: Address of the activation.

    Returns:
        64 hex digits, the same in every attempt.
    """
    import json
    from hashlib import sha256

    text = json.dumps([execution, address], ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()
