"""Public ids and keys that follow from what the kernel knows."""

from __future__ import annotations

WAIT_ID_LENGTH = 16
"""Hex digits of a wait's id: 64 bits, so that a million waits meet once in 37 million stores."""


def wait_id(execution: str, number: int) -> str:
    """Return the public id of a wait.

    Args:
        execution: Full id of the execution.
        number: The kernel's number of the wait.

    Returns:
        16 hex digits.
    """
    # Loading OpenSSL takes longer than all the rest of the kernel; many executions never wait.
    from hashlib import sha256

    return sha256(f"{execution}/{number}".encode()).hexdigest()[:WAIT_ID_LENGTH]


def idempotency_key(execution: str, address: str) -> str:
    """Return the key under which an activation calls out, where its tool names none.

    Args:
        execution: Full id of the execution.
        address: Of the activation.

    Returns:
        64 hex digits, the same in every attempt.
    """
    import json
    from hashlib import sha256

    text = json.dumps([execution, address], ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()
