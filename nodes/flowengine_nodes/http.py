"""`http`: one request.

Redirects of GET and HEAD are followed to public addresses, and to those of the same kind as the
address that the flow names. To another host, the step's headers are not sent, so that a token goes
only to the server named by the flow. Any other redirect is the result. Proxies are taken from the
usual environment variables. A request that may change data contains the step's idempotency key in a
header, so that a server can recognize a repeated request. A body that is text or JSON is returned
as data, any other body as a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import IO, Any

from flowengine.sdk import (
    Effect,
    HttpError,
    Plain,
    StepContext,
    StepKind,
    Synonym,
    Timeout,
    ValidationError,
)
from flowengine.sdk.processes import scratch_folder
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.tools.schemas import TEXT, record
from flowengine.sdk.web.connections import Network, PlaceRefused, Rules
from flowengine.sdk.web.responses import (
    BadAnswer,
    ResponseHead,
    TooLarge,
    WebRequest,
    body_failure,
    check_headers,
    failure_reason,
    followed,
    phrase_of,
    retry_after,
)
from flowengine.sdk.web.urls import PORTS, Url, UrlRefused, read_url, scheme_of
from flowengine_nodes.http_bodies import (
    ERROR_TEXT,
    KEY_HEADER,
    as_data,
    as_text,
    beginning,
    decoded,
    is_json,
    is_text,
    request_body,
    with_query,
)
from flowengine_nodes.mcp import headers_and_body

LARGEST_TEXT = 8 * 1024 * 1024
"""Maximum bytes of a text or JSON body, which becomes part of the execution."""
LARGEST_FILE = 1024 * 1024 * 1024
"""Maximum bytes of any other body, which is kept as a file."""
LONGEST_URL = 65_536
TRACE_HEADER = "traceparent"
"""W3C Trace Context, level 1."""
READ_SECONDS = 300.0
"""Maximum time without a byte, if the step sets no `timeout`."""

_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""Characters allowed in a header unchanged. All others in a key are sent as `%` and their bytes."""
_KEPT_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})


class Http(StepKind):
    """Sends a request and returns `{status, headers, body}`."""

    foreign = True
    constants = ("accept", "as")
    secrets = ("url", "headers", "query", "auth")
    idempotent_if = (
        "the server must then answer a second request with the same Idempotency-Key as it "
        "answered the first, and do nothing more"
    )
    synonyms = (
        Synonym("json data payload content form", "write 'body: {…}'", "body"),
        Synonym("params parameters query_params querystring", "write 'query: {…}'", "query"),
        Synonym("uri endpoint href", "write 'url: …'", "url"),
        Synonym("verb", "write 'method: POST'", "method"),
    )

    @classmethod
    def effect_of(cls, configuration: Mapping[str, Plain]) -> Effect:
        """Return `idempotent` for methods that may be repeated."""
        method = configuration.get("method", "GET")
        return "idempotent" if method in ("GET", "HEAD", "PUT", "DELETE") else cls.effect

    @classmethod
    def address(cls, configuration: Mapping[str, Plain]) -> str | None:
        """Return the address of the server."""
        url = configuration.get("url")
        return url if isinstance(url, str) else None

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `http`."""
        named = {"type": "object", "default": {}}
        return {
            "type": "object",
            "x-main": "url",
            "properties": {
                "method": {
                    "type": "string",
                    "default": "GET",
                    "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
                },
                "url": {"type": "string", "examples": ["https://rates.example.com/EUR"]},
                "headers": {
                    **named,
                    "examples": [{"Authorization": "Bearer ${{ secrets.TOKEN }}"}],
                },
                "query": {
                    **named,
                    "description": "Values by name. A list repeats the name, and `null` omits it.",
                    "examples": [{"page": 2}],
                },
                "body": {
                    "description": "A map, list, number or boolean is sent as JSON (or "
                    "as a form, if the header Content-Type declares one). "
                    "Text and bytes are sent unchanged.",
                    "examples": ["${{ args }}"],
                },
                "auth": {
                    "description": "Credentials of the Authorization header.",
                    "anyOf": [
                        record({"bearer": TEXT}),
                        record({"username": TEXT, "password": TEXT}),
                    ],
                    "examples": [{"bearer": "${{ secrets.TOKEN }}"}],
                },
                "accept": {
                    "description": "Statuses that count as success, or `any`. Default: "
                    "all below 400. Others raise `HttpError`.",
                    "anyOf": [
                        {
                            "type": "array",
                            "items": {"type": "integer", "minimum": 100, "maximum": 599},
                        },
                        {"const": "any"},
                    ],
                    "examples": [[200, 404]],
                },
                "as": {
                    "description": "How the body of the response is read: as JSON, as text, or "
                    "kept as a file. Default: by its content type.",
                    "enum": ["json", "text", "file"],
                },
            },
            "required": ["url"],
            "additionalProperties": False,
        }

    @classmethod
    def output(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the result."""
        return {
            "type": "object",
            "properties": {
                "status": {"type": "integer"},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                "body": {},
            },
            "required": ["status", "headers", "body"],
        }

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Send the request and return the response.

        Args:
            context: The attempt.
            task: `accept`, `as`.
            input: `method`, `url`, `headers`, `query`, `body`, `auth`.

        Returns:
            `{status, headers, body}`.

        Raises:
            HttpError: The status is not accepted, or there was no response.
            Timeout: The server stopped responding.
            ValidationError: The input is not a valid request.
        """
        form = task.get("as")
        url, request = _request(input, task, context)
        place = f"{request.method} {_without_query(url)}"
        chain = [url]
        try:
            answer = await _answer(chain, request, form, context, place)
        except TimeoutError as error:
            raise Timeout(f"{place}: {error}") from None
        except PlaceRefused as error:
            raise HttpError(
                f"{place}: {chain[-2].origin} redirects to {chain[-1].origin}, but "
                f"{error.message}. Name that address in the step if it is meant",
                data={"status": None},
                retryable=False,
            ) from None
        except UrlRefused:
            message = f"{place}: {_without_query(chain[-1])} redirects to an invalid URL"
            raise HttpError(message, data={"status": None}, retryable=False) from None
        except (OSError, BadAnswer) as error:
            to = f"redirected to {chain[-1].origin}: " if len(chain) > 1 else ""
            raise HttpError(
                f"{place}: {to}{failure_reason(error)}",
                data={"status": None},
                retryable=isinstance(error, OSError),
            ) from None
        _judge(answer, task.get("accept"), context, place)
        return answer

    def text_for_model(
        self, task: Mapping[str, Plain], input: Mapping[str, Plain], output: Plain, room: int
    ) -> str | None:
        """Return status, relevant headers and body."""
        about = headers_and_body(output["headers"], output["body"])
        return f"status {output['status']}\n{about}".rstrip("\n")


# Request


def _request(
    input: Mapping[str, Any], task: Mapping[str, Any], context: StepContext
) -> tuple[Url, WebRequest]:
    """Return the address and the request that a step declares.

    Raises:
        ValidationError: It is not a valid request.
    """
    method = (input.get("method") or "GET").upper()
    given = input.get("headers") or {}
    headers = {
        name: as_text(value).strip(" \t") for name, value in given.items() if value is not None
    }
    if input.get("auth"):
        headers["Authorization"] = _authorization(input["auth"])
    try:
        url = _url(input["url"], input.get("query") or {})
        body = request_body(input.get("body"), headers)
        changes = method not in ("GET", "HEAD", "OPTIONS")
        if changes and KEY_HEADER.lower() not in map(str.lower, given):
            from urllib.parse import quote

            headers[KEY_HEADER] = quote(context.idempotency_key, safe=_PLAIN)
        if context.traceparent is not None and TRACE_HEADER not in map(str.lower, headers):
            headers[TRACE_HEADER] = context.traceparent
        check_headers(headers)
    except (TypeError, ValueError) as error:
        raise ValidationError(f"this is not a valid request: {error}") from None
    kept = {name: value for name, value in headers.items() if name.lower() in _KEPT_HEADERS}
    own = {name: value for name, value in headers.items() if name.lower() not in _KEPT_HEADERS}
    largest = partial(_largest, form=task.get("as"))
    return url, WebRequest({"user-agent": "flowengine", **kept}, own, largest, method, body)


def _url(text: str, query: Mapping[str, Any]) -> Url:
    if scheme_of(text.strip()) not in PORTS:
        raise ValidationError("a URL starts with https:// or http:// and a host")
    try:
        return read_url(with_query(text, query), longest=LONGEST_URL)
    except UrlRefused as error:
        # Without the quoted text: a piece of a secret could not be recognized as one.
        *_, reason = re.split("['\"]", error.message)
        reason = reason.strip(" :,").removeprefix("the address ") or "is not a valid address"
        raise ValueError(f"its url {reason}") from None


def _without_query(url: Url) -> str:
    return str(url).partition("?")[0]


def _authorization(auth: Mapping[str, str]) -> str:
    import base64

    if "bearer" in auth:
        return f"Bearer {auth['bearer']}"
    pair = f"{auth['username']}:{auth['password']}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


# Response


def _form(head: ResponseHead, form: Any) -> str:
    """Return how a body is read: as `json`, `text` or `file`."""
    kind = head.headers.get("content-type", "")
    return str(form) if form else "json" if is_json(kind) else "text" if is_text(kind) else "file"


def _largest(head: ResponseHead, form: Any) -> int:
    return LARGEST_FILE if _form(head, form) == "file" else LARGEST_TEXT


async def _answer(
    chain: list[Url], request: WebRequest, form: Any, context: StepContext, place: str
) -> dict[str, Plain]:
    """Send a request, follow its redirects and read the response."""
    import tempfile

    from flowengine.sdk.web.client import HttpClient

    silence = None if context.timed else READ_SECONDS
    client = HttpClient(Network(Rules(public=True, named=True)), silence=silence, proxies=True)
    with tempfile.SpooledTemporaryFile(max_size=LARGEST_TEXT) as file:
        async with followed(client, chain, request) as (head, pieces):
            try:
                async for piece in pieces:
                    file.write(piece)
            except TooLarge as error:
                hint = "" if error.limit == LARGEST_FILE else ". Keep it with 'as: file'"
                raise HttpError(
                    f"{place}: the answer has more than {size_text(error.limit)}{hint}",
                    data={"status": head.status},
                    retryable=False,
                ) from None
            except (BadAnswer, OSError) as error:  # the request was made
                file.seek(0)
                text = decoded(file.read(LARGEST_TEXT), head.headers.get("content-type", ""))
                data: dict[str, Plain] = {"status": head.status, "headers": dict(head.headers)}
                data["body"] = beginning(text, context.mask)  # the part that was received
                message = f"{place}: {body_failure(head, error)}"
                if isinstance(error, TimeoutError):
                    raise Timeout(message, data=data) from None
                again = isinstance(error, OSError)
                raise HttpError(message, data=data, retryable=again) from None
        return {
            "status": head.status,
            "headers": dict(head.headers),
            "body": await _body(file, head, _form(head, form), chain[-1], context, place),
        }


async def _body(
    file: IO[bytes], head: ResponseHead, form: str, url: Url, context: StepContext, place: str
) -> Plain:
    if file.tell() == 0:
        return None
    if form == "file":
        return await context.on_thread(lambda: _kept(file, url, context))
    file.seek(0)
    text = decoded(file.read(), head.headers.get("content-type", ""))
    if form == "text":
        return text
    try:
        return as_data(text, head.status, place, context.mask)
    except HttpError as error:
        if isinstance(error.data, dict) and len(text) > ERROR_TEXT:
            error.data["file"] = await context.on_thread(lambda: _kept(file, url, context))
        raise


def _kept(file: IO[bytes], url: Url, context: StepContext) -> Plain:
    """Keep a body as a file, under its name in the URL."""
    import shutil
    from urllib.parse import unquote

    path = unquote(url.target.partition("?")[0])
    name = path.rstrip("/").rpartition("/")[2] or "body"
    with scratch_folder() as folder:
        kept = folder / "body"
        with kept.open("wb") as copy:
            file.seek(0)
            shutil.copyfileobj(file, copy)
        return dict(context.execution.artifacts.put(kept, name))


def _judge(answer: Mapping[str, Any], accept: Any, context: StepContext, place: str) -> None:
    status = answer["status"]
    if accept == "any" or (status < 400 if accept is None else status in accept):
        return
    body = answer["body"]
    if isinstance(body, str):
        body = beginning(body, context.mask)
    phrase = phrase_of(status)
    raise HttpError(
        f"{place}: status {status}" + (f" ({phrase})" if phrase else ""),
        data={**answer, "body": body},
        retryable=status >= 500 or status in (408, 429),
        retry_after=retry_after(answer["headers"].get("retry-after")),
    )
