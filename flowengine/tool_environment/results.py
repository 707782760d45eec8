"""Makes one result of whatever a tool returned, raised, or had produced."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any, NamedTuple

from flowengine.engines.attempts.serialization import to_plain
from flowengine.sdk import Artifacts, File, Plain, StepError
from flowengine.sdk.text_ends import ends_in_bytes, ends_in_characters
from flowengine.sdk.tool_calls import (
    EnvironmentResponse,
    Image,
    Ran,
    ResponseError,
    Status,
    ToolResult,
    media_type,
)
from flowengine.tool_environment.call import Call
from flowengine.tool_environment.feed import cut_text, without_middle
from flowengine.tool_environment.outcomes import describe

LARGEST = 100_000
"""Characters of content that a model is sent; more of it is kept as a file."""


class Content(NamedTuple):
    """What a tool returned, as data."""

    value: Plain
    images: list[Image]
    artifacts: list[File]

    def fields(self) -> dict[str, Any]:
        """Return the fields of a result that it is."""
        kept = list(map(dict, self.artifacts))
        return {"content": self.value, "images": self.images, "artifacts": kept}


class NoData(Exception):
    """What a tool returned has no form as data."""


def content_of(
    returned: Any,
    tool: str,
    artifacts: Artifacts,
    mask: Callable[[Any], Any],
    most: int | None = None,
) -> Content:
    """Turn what a tool returned into data.

    Args:
        returned: Anything.
        tool: Name of the tool.
        artifacts: Where to keep what is too large.
        mask: Replaces secrets.
        most: Bytes of content that the model is sent; None: `LARGEST` characters.

    Returns:
        Plain data, images, kept files.

    Raises:
        NoData: It has no form as data; the message names the tool and the type.
    """
    image = _image(returned)
    if image is not None:
        return Content(None, [image], [])
    try:
        value = mask(to_plain(returned))
    except StepError as error:
        kind = type(returned)
        raise NoData(
            f"tool '{tool}' returned a {kind.__module__}.{kind.__qualname__}: {error.message}"
        ) from None
    if isinstance(value, bytes):
        return _from_bytes(value, tool, artifacts, most)
    if isinstance(value, str):
        text, name = value, f"{tool}.txt"
    else:
        text, name = json.dumps(value, ensure_ascii=False, default=_encoded), f"{tool}.json"
    shown = _shortened(text, most)
    if shown is None:
        return Content(value, [], [])
    file = artifacts.put(text.encode(errors="replace"), name)
    return Content(shown, [], [file])


def _shortened(text: str, most: int | None) -> str | None:
    """Return a text without its middle; None: it is not too long."""
    ends = ends_in_characters(text, LARGEST) if most is None else ends_in_bytes(text, most)
    return None if ends is None else without_middle(text, ends)


def _from_bytes(data: bytes, tool: str, artifacts: Artifacts, most: int | None) -> Content:
    try:
        text = data.decode() if len(data) <= (most or LARGEST) else None
    except UnicodeDecodeError:
        text = None
    if text is not None:
        return Content(text, [], [])
    file = artifacts.put(data, f"{tool}.bin")
    return Content(f"{file['size']} bytes, kept as the file {file['name']}", [], [file])


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
    """Return what the model is told of an exception: its type and message, and no traceback."""
    if isinstance(error, StepError):
        return f"{error.name or type(error).__name__}: {error.message}"
    return cut_text(describe(error), LARGEST)


def result_of(
    call: Call, status: Status, message: str | None = None, *, ran: Ran = "no", **fields: Any
) -> ToolResult:
    """Return the result of a call.

    Args:
        call: The call.
        status: How it ended.
        message: What went wrong.
        ran: Whether the tool ran.
        **fields: Further fields.
    """
    return ToolResult(
        tool_call_id=call.id, tool_name=call.tool, success=status == "ok", status=status, ran=ran,
        message=message, args=call.changed, **fields,
    )  # fmt: skip


def response_of(result: ToolResult, code: str | None = None) -> EnvironmentResponse:
    """Return a result as a response: an error unless the call is ok.

    Args:
        result: The result.
        code: Of the error; default: the status.
    """
    if result.success:
        return EnvironmentResponse(result=result)
    message = result.message or result.status
    error = ResponseError(code=code or result.status, message=message, result=result)
    return EnvironmentResponse(error=error)
