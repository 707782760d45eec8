"""Limits on the size of call results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.sdk import LimitExceeded
from flowengine.sdk.sizes import size_text

if TYPE_CHECKING:
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.sdk import StepContext


def check_size(value: Plain, most: int, context: StepContext) -> None:
    """Refuse a result that exceeds its tool's limit. The result is kept as a file.

    Args:
        value: The result, secrets masked.
        most: Maximum number of bytes: for text in UTF-8, for anything else as JSON.
        context: The attempt that has ended.

    Raises:
        LimitExceeded: The result is too large. The error's data names the file.
    """
    data, name = _content(value)
    if len(data) <= most:
        return
    file = context.execution.artifacts.put(data, name)
    raise LimitExceeded(
        f"the call was made, but its result has {size_text(len(data))}; limits.output of the "
        f"tool is {size_text(most)}. The result is kept as the file {file['sha256']}",
        data={"limit": "output", "value": most, "size": len(data), "file": {**file}},
        retryable=False,
    )


def _content(value: Plain) -> tuple[bytes, str]:
    if isinstance(value, bytes):
        return value, "result.bin"
    if isinstance(value, str):
        return value.encode(), "result.txt"
    import json

    text = json.dumps(value, ensure_ascii=False, default=_bytes_as_text)
    return text.encode(), "result.json"


def _bytes_as_text(value: object) -> str:
    from base64 import b64encode

    assert isinstance(value, bytes)
    return b64encode(value).decode()
