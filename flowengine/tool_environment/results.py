"""Conversion of a tool's return value, error or partial output to a result."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import Any

from flowengine.sdk import Artifacts, StepError, ToolError
from flowengine.sdk.exception_text import describe, message_of
from flowengine.sdk.plain_values import to_plain
from flowengine.sdk.tool_calls import (
    EnvironmentResponse,
    Image,
    Ran,
    ResponseError,
    Status,
    ToolResult,
    media_type,
)
from flowengine.sdk.visible_text import cut_text, ends_in_bytes, ends_in_characters, without_middle
from flowengine.tool_environment.call import AdmittedCall

LARGEST = 100_000
"""Maximum characters of content sent to a model. Longer content is kept as a file."""


def content_of(
    returned: Any,
    tool: str,
    artifacts: Artifacts,
    mask: Callable[[Any], Any],
    most: int | None = None,
) -> dict[str, Any]:
    """Convert the return value of a tool to fields of its result.

    Args:
        returned: The return value.
        tool: Name of the tool.
        artifacts: Receives values that are too large.
        mask: Replaces secrets.
        most: Maximum bytes of content sent to the model. None: `LARGEST` characters.

    Returns:
        `content`, and `images` and `artifacts` if there are any.

    Raises:
        ToolError: It cannot be converted to data. The message names the tool and the type.
    """
    image = _image(returned)
    if image is not None:
        return {"images": [image]}
    try:
        value = mask(to_plain(returned, number_keys=True))
    except StepError as error:
        kind = f"{type(returned).__module__}.{type(returned).__qualname__}"
        raise ToolError(f"tool '{tool}' returned a {kind}: {error.message}") from None
    if isinstance(value, bytes):
        return _from_bytes(value, tool, artifacts, most)
    if isinstance(value, str):
        text, name = value, f"{tool}.txt"
    else:
        text, name = json.dumps(value, ensure_ascii=False, default=_encoded), f"{tool}.json"
    ends = ends_in_characters(text, LARGEST) if most is None else ends_in_bytes(text, most)
    if ends is None:
        return {"content": value}
    file = artifacts.put(text.encode(errors="replace"), name)
    return {"content": without_middle(text, ends), "artifacts": [dict(file)]}


def _from_bytes(data: bytes, tool: str, artifacts: Artifacts, most: int | None) -> dict[str, Any]:
    with suppress(UnicodeDecodeError):
        if len(data) <= (most or LARGEST):
            return {"content": data.decode()}
    file = artifacts.put(data, f"{tool}.bin")
    shown = f"{file['size']} bytes, kept as the file {file['name']}"
    return {"content": shown, "artifacts": [dict(file)]}


def _image(value: Any) -> Image | None:
    if isinstance(value, Image):
        return value
    if isinstance(value, bytes | bytearray) and media_type(bytes(value[:16])) is not None:
        return Image.model_validate(bytes(value))
    if type(value).__module__.partition(".")[0] == "PIL" and hasattr(value, "save"):
        file = BytesIO()
        value.save(file, format="PNG")
        return Image.model_validate(file.getvalue())
    return None


def _encoded(value: Any) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)


def error_text(error: BaseException) -> str:
    """Return an exception for the model: its type and message, without a traceback."""
    if isinstance(error, StepError):
        return f"{error.name or type(error).__name__}: {message_of(error, error.message)}"
    return cut_text(describe(error), LARGEST)


def result_of(
    call: AdmittedCall,
    status: Status,
    message: str | None = None,
    *,
    ran: Ran = "no",
    **fields: Any,
) -> ToolResult:
    """Return the result of a call.

    Args:
        call: The call.
        status: How it ended.
        message: Why it failed.
        ran: Whether the tool ran.
        **fields: Further fields.
    """
    return ToolResult(
        tool_call_id=call.id, tool_name=call.tool, success=status == "ok", status=status, ran=ran,
        message=message, args=call.changed, **fields,
    )  # fmt: skip


def response_of(result: ToolResult, code: str | None = None) -> EnvironmentResponse:
    """Return a result as a response, which is an error unless the call succeeded.

    Args:
        result: The result.
        code: Code of the error. Default: the status.
    """
    if result.success:
        return EnvironmentResponse(result=result)
    message = result.message or result.status
    error = ResponseError(code=code or result.status, message=message, result=result)
    return EnvironmentResponse(error=error)
