"""The result of a call as a message for the model, including images."""

from __future__ import annotations

import json
from typing import Any

from flowengine.sdk.tool_calls import EnvironmentResponse, ToolCall, ToolResult
from flowengine.sdk.untrusted import marked, marked_failure

_NOT_RUN = {
    "rejected": "The call was rejected. Nothing was done.",
    "expired": "Nobody decided about the call in time. Nothing was done.",
    "invalid": "The call is invalid and was not run.",
}


def tool_message(call: ToolCall, response: EnvironmentResponse) -> dict[str, Any]:
    """Return the message that answers a call, in the format of chat completions.

    The text describes the outcome. With images, the content is a list of parts.

    Args:
        call: The call.
        response: The response to the call.
    """
    text, images = answer_of(response)
    content: Any = text
    if images:
        content = [{"type": "text", "text": text}] if text else []
        content += [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return {
        "role": "tool",
        "tool_call_id": call.tool_call_id,
        "name": call.tool_name,
        "content": content,
    }


def answer_of(response: EnvironmentResponse) -> tuple[str, list[str]]:
    """Return the text and the URLs of the images with which a model learns of an outcome."""
    result = response.tool_result
    if result is None:
        return f"Error: {response.error.message}" if response.error is not None else "", []
    texts = [_what_happened(result), *_additions(result)]
    images = [*result.images, *result.feedback_images]
    return "\n\n".join(filter(None, texts)), [image.url for image in images]


def _what_happened(result: ToolResult) -> str:
    content, writer = _text(result.content), result.written_by
    if content and writer is not None:
        content = marked(content, writer)
    if result.success:
        return content
    if result.status in _NOT_RUN:
        message = _NOT_RUN[result.status]
        why = result.message or ""
        return f"{message} {why}" if result.status == "invalid" else message
    if result.status == "aborted" and result.ran == "no":
        return "The call was aborted before it began. Nothing was done."
    why = result.message or ""
    message = {
        "error": f"Error: {why}" if writer is None else marked_failure(why, writer),
        "aborted": "The call was aborted while it ran; it may have acted in part.",
        "timed_out": "The call ran into its time limit and was stopped; it may have acted in part.",
        "uncertain": "The process ended during the call: it is unknown whether it acted.",
    }[result.status]
    return f"{message}\n\nWhat it had produced:\n{content}" if content else message


def _additions(result: ToolResult) -> list[str]:
    texts = []
    if result.args is not None:
        args = json.dumps(result.args, ensure_ascii=False, default=str)
        texts.append(f"The arguments were changed before it ran: {args}")
    if result.feedback:
        texts.append(f"Comment of the person who decided: {result.feedback}")
    texts += [
        f"Kept as a file of {file['size']} bytes: {file['name']}" for file in result.artifacts
    ]
    texts += [
        f"{observed.observer_name}: {_text(observed.observer_result)}"
        for observed in result.observer_results.values()
        if observed.in_conversation and observed.error is None
    ]
    return texts


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False, default=str)
