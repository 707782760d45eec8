"""`std.http`: a request within the policy of an environment of kind `http`."""

from __future__ import annotations

from typing import Any

from flowengine.sdk import Plain, StepContext, Tool
from flowengine.sdk.texts.untrusted import marked
from flowengine.sdk.tools.schemas import TEXT, WHOLE, record
from flowengine.sdk.web.responses import phrase_of
from flowengine_nodes.http_bodies import (
    KEY_HEADER,
    as_data,
    decoded,
    is_json,
    is_text,
    request_body,
    with_query,
)
from flowengine_nodes.mcp import headers_and_body

PLACE = "web"
"""The name under which it finds its environment."""


async def call(context: StepContext, tool: str, args: dict[str, Any]) -> Plain:
    """Send a request.

    Args:
        context: The attempt.
        tool: `http`.
        args: Its arguments.

    Returns:
        `{status, headers, body, url}`, for any status. For a model, text.

    Raises:
        ValidationError: The arguments are not a valid request.
        HttpError: The server does not respond, or responds with invalid JSON.
    """
    client = context.resources[PLACE]
    url, method = with_query(args["url"], args.get("query") or {}), args.get("method", "GET")
    headers = {name.lower(): value for name, value in (args.get("headers") or {}).items()}
    body = request_body(args.get("body"), headers)
    if method not in {"GET", "HEAD"}:
        headers.setdefault(KEY_HEADER.lower(), context.idempotency_key)
    answer = await client.async_send(url, method, headers, body)
    kind = answer.headers.get("content-type", "")
    text = decoded(answer.body, kind) if is_text(kind) else None
    kept = None
    if answer.body and text is None:
        name = answer.url.partition("?")[0].rstrip("/").rpartition("/")[2] or "body"
        artifacts = context.execution.artifacts
        kept = await context.on_thread(lambda: dict(artifacts.put(answer.body, name)))
    if context.for_model:
        about = headers_and_body(answer.headers, text if kept is None else kept)
        status = f"status {answer.status} {phrase_of(answer.status)}".rstrip()
        shown = f"url: {answer.url}\n{about}".rstrip("\n")
        return f"{method}: {status}\n{marked(shown, args['url'])}"
    data: Plain = text or kept
    if text and is_json(kind):
        data = as_data(text, answer.status, answer.url, context.mask)
    return {
        "status": answer.status,
        "headers": dict(answer.headers),
        "url": answer.url,
        "body": data,
    }


TOOLS: dict[str, Tool] = {
    "http": {
        "description": "Sends an HTTP request to an API or a page. Gives its status, headers and "
        "body.",
        "args": record(
            {
                "url": {**TEXT, "description": "https://…"},
                "method": {
                    "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
                    "default": "GET",
                },
                "query": {"type": "object", "description": "Values by name."},
                "headers": {"type": "object", "additionalProperties": TEXT},
                "body": {"description": "Text is sent unchanged, any other value as JSON."},
            },
            ["url"],
        ),
        "returns": record(
            {"status": WHOLE, "headers": {"type": "object"}, "url": TEXT, "body": {}}
        ),
        "effect": "once",
        "environments": {PLACE: ["flowengine_envs.kinds.http.WebClient"]},
    }
}
"""The tool, with its arguments and result."""
