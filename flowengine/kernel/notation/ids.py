"""Public ids and keys derived from data of the kernel."""

from __future__ import annotations

WAIT_ID_LENGTH = 16
"""Hex digits of a wait's id. With these 64 bits, the probability of a collision in a store with a
million waits is 1 in 37 million."""

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
