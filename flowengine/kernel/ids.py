"""Public ids that follow from numbers of the kernel."""

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
