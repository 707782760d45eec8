"""Results of calls, from a tool's return value, error or partial output."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import Any

from flowengine.sdk import Artifacts, StepError, ToolError
from flowengine.sdk.environments.models import largest_result
from flowengine.sdk.python.user_code import CodeOutcome
from flowengine.sdk.texts.exception_text import describe, message_of
from flowengine.sdk.texts.visible_text import (
    cut_text,
    ends_in_bytes,
    ends_in_characters,
    without_middle,
)
from flowengine.sdk.tools.tool_calls import (
    ApprovalResponse,
    EnvironmentResponse,
    Image,
    Ran,
    ResponseError,
    Status,
    ToolResult,
    media_type,
)
from flowengine.sdk.values.plain_values import to_plain
from flowengine.tool_environment.calls import Call

LARGEST = 100_000
"""Maximum characters of content sent to a model. Longer content is kept as a file."""


def content_of(
    returned: Any, call: Call, artifacts: Artifacts, mask: Callable[[Any], Any]
) -> dict[str, Any]:
    """Convert the return value of a tool to fields of its result.

    Args:
        returned: The return value.
        call: The call.
        artifacts: Receives values that are too large.
        mask: Replaces secrets.

    Returns:
        `content`, and `images` and `artifacts` if there are any.

    Raises:
        ToolError: It cannot be converted to data. The message names the tool and the type.
    """
    image, most = _image(returned), largest_result(call.options.limits)
    if image is not None:
        return {"images": [image]}
    try:
        value = mask(to_plain(returned, number_keys=True))
    except StepError as error:
        kind = f"{type(returned).__module__}.{type(returned).__qualname__}"
        raise ToolError(f"tool '{call.tool}' returned a {kind}: {error.message}") from None
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            if len(value) <= (most or LARGEST):
                return {"content": value.decode()}
        file = artifacts.put(value, f"{call.tool}.bin")
        shown = f"{file['size']} bytes, kept as the file {file['name']}"
        return {"content": shown, "artifacts": [dict(file)]}
    is_text = isinstance(value, str)
    text = value if is_text else json.dumps(value, ensure_ascii=False, default=_encoded)
    ends = ends_in_characters(text, LARGEST) if most is None else ends_in_bytes(text, most)
    if ends is None:
        return {"content": value}
    name = f"{call.tool}.{'txt' if is_text else 'json'}"
    file = artifacts.put(text.encode(errors="replace"), name)
    return {"content": without_middle(text, ends), "artifacts": [dict(file)]}


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
    call: Call, status: Status, message: str | None = None, *, ran: Ran = "no", **fields: Any
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


def stopped(
    call: Call,
    outcome: CodeOutcome | None = None,
    partial: str | None = None,
    *,
    began: bool = False,
) -> ToolResult:
    """Return the result of a call that was stopped.

    Args:
        call: The call.
        outcome: How the tool ended nevertheless. None: this is unknown.
        partial: Its output so far.
        began: Whether the tool had started.
    """
    status = call.signal.reason or "aborted"
    if not began:
        return result_of(call, status, "aborted before it began. Nothing was done")
    fields = {} if outcome is None or outcome.error is not None else outcome.value
    if fields.get("content") is None:
        fields = {**fields, "content": partial}
    why = "aborted" if status == "aborted" else f"timed out after {call.options.timeout:g} s"
    what = "it had ended" if outcome is not None else "it may have acted in part"
    ran: Ran = "maybe" if outcome is None else "yes"
    return result_of(call, status, f"{why} while it ran: {what}", ran=ran, **fields)


def internal(call: Call, message: str) -> ToolResult:
    """Return the result of a call for which the engine or the environment failed."""
    ran: Ran = "maybe" if call.replayed or call.began else "no"
    return result_of(call, "error", message, ran=ran)


def with_feedback(result: ToolResult, decision: ApprovalResponse | None) -> ToolResult:
    """Return a result with what the approver added."""
    if decision is None:
        return result
    added = {"feedback": decision.feedback, "feedback_images": decision.images}
    return result.model_copy(update=added)
