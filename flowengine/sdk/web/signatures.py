"""Signatures of Standard Webhooks, version 1.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

from base64 import b64decode, b64encode


def signing_key(text: str) -> bytes:
    """Return the key that a secret stands for.

    Args:
        text: Base64, with or without `whsec_` before it.

    Raises:
        ValueError: It is not base64.
    """
    try:
        return b64decode(text.removeprefix("whsec_"), validate=True)
    except ValueError:
        raise ValueError("it is not base64, as Standard Webhooks require") from None


def signed_content(id: str, seconds: str, body: bytes) -> bytes:
    """Return the signed content of a delivery.

    Args:
        id: Its id, in `webhook-id`.
        seconds: When it was sent, in seconds since 1970, in `webhook-timestamp`.
        body: Its body.
    """
    return f"{id}.{seconds}.".encode() + body


def signature(key: bytes, id: str, seconds: str, body: bytes) -> str:
    """Return the header `webhook-signature` of a delivery. See `signed_content`."""
    import hashlib
    import hmac

    digest = hmac.new(key, signed_content(id, seconds, body), hashlib.sha256).digest()
    return f"v1,{b64encode(digest).decode()}"
