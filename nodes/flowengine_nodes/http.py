"""`http`: one request.

Redirects of GET and HEAD are followed; to another host without the step's own headers, so that a
token goes only where the flow sends it. Any other redirect is the answer. Proxies are taken from
the usual environment variables, but never for this machine itself; certificates are checked against
those that the system trusts. A request that may change something has the step's idempotency key in
a header, so that a server can tell a repeated request from a new one. A body that is
text or JSON comes as such, anything else as a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

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
from flowengine.sdk.validation_messages import parser_reason
from flowengine_nodes.http_bodies import KEY_HEADER, as_data, beginning, encoding, is_text

if TYPE_CHECKING:
    import ssl

    import httpx2

LARGEST_TEXT = 8 * 1024 * 1024
"""Bytes of a text or JSON body, which goes into the execution."""
LARGEST_FILE = 1024 * 1024 * 1024
"""Bytes of any other body, which is kept as a file."""
CONNECT_SECONDS = 15.0
READ_SECONDS = 300.0
"""Without a byte, if the step does not say its own `timeout`."""
REDIRECTS = 10

_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What may stand in a header as it is; the rest of a key is sent as `%` and its bytes."""
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_RETRYABLE = frozenset({408, 429})
_KEPT_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
_trust: list[ssl.SSLContext] = []


class Http(StepKind):
    """Sends a request and returns `{status, headers, body}`."""

    foreign = True
    constants = ("accept", "idempotency_header")
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
        return "idempotent" if method in _REPEATABLE else cls.effect

    @classmethod
    def address(cls, configuration: Mapping[str, Plain]) -> str | None:
        """Return the address of the server."""
        url = configuration.get("url")
        return url if isinstance(url, str) else None

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of what stands behind `http`."""
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
                    "description": "A map, list, number or boolean is sent as JSON, or as a form "
                    "if the header Content-Type requires it. Text and bytes are "
                    "sent unchanged.",
                    "examples": ["${{ args }}"],
                },
                "auth": {
                    "description": "Credentials of the Authorization header.",
                    "anyOf": [
                        _closed("bearer"),
                        _closed("username", "password"),
                    ],
                    "examples": [{"bearer": "${{ secrets.TOKEN }}"}],
                },
                "idempotency_header": {
                    "description": "Name of the header with the idempotency key of requests other "
                    "than GET, HEAD and OPTIONS. `false`: no header.",
                    "anyOf": [
                        {"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"},
                        {"const": False},
                    ],
                    "default": KEY_HEADER,
                    "examples": ["X-Request-Id"],
                },
                "accept": {
                    "description": "Statuses that count as success, or `any`. Default: all below "
                    "400. Others raise `HttpError`.",
                    "anyOf": [
                        {
                            "type": "array",
                            "items": {"type": "integer", "minimum": 100, "maximum": 599},
                        },
                        {"const": "any"},
                    ],
                    "examples": [[200, 404]],
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
        """Send the request and return the answer.

        Args:
            task: `accept`, `idempotency_header`.
            input: `method`, `url`, `headers`, `query`, `body`, `auth`.

        Returns:
            `{status, headers, body}`.

        Raises:
            HttpError: The status is not accepted, or there was no answer.
            Timeout: The other side fell silent.
            ValidationError: This is no request.
        """
        import httpx2

        try:
            request = _request(input)
            _add_key(request, task.get("idempotency_header", KEY_HEADER), context)
            place = f"{request.method} {request.url.copy_with(query=None, userinfo=b'')}"
        except httpx2.InvalidURL as error:
            raise ValidationError(
                f"this is not a valid request: its url is none: {parser_reason(error)}"
            ) from None
        except (TypeError, ValueError) as error:
            raise ValidationError(f"this is not a valid request: {error}") from None
        try:
            async with _client(request, context) as client:
                response = await _send(client, request)
                try:
                    answer = await _answer(response, context, place)
                finally:
                    await response.aclose()
        except httpx2.TimeoutException as error:
            raise Timeout(f"{place}: {_said(error)}") from None
        except httpx2.TransportError as error:
            raise HttpError(
                f"{place}: {_said(error)}", data={"status": None}, retryable=True
            ) from None
        _judge(answer, task.get("accept"), context, place)
        return answer

    def text_for_model(
        self, task: Mapping[str, Plain], input: Mapping[str, Plain], output: Plain, room: int
    ) -> str | None:
        """Return status, headers that matter and body."""
        from flowengine_nodes.tool_texts import http_text

        return http_text(output)


def _closed(*names: str) -> dict[str, Plain]:
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
        "additionalProperties": False,
    }


# Asking


def _request(input: Mapping[str, Any]) -> httpx2.Request:
    import httpx2

    url = httpx2.URL(input["url"])
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValidationError("a URL starts with https:// or http:// and a host")
    headers = {
        name: _text(value)
        for name, value in (input.get("headers") or {}).items()
        if value is not None
    }
    headers.setdefault("User-Agent", "flowengine")
    auth = input.get("auth")
    if auth:
        headers["Authorization"] = _authorization(auth)
    body = _body(input.get("body"), headers)
    method = (input.get("method") or "GET").upper()
    url = _with_query(url, input.get("query") or {})
    request = httpx2.Request(method, url, headers=headers, **body)
    for name, value in request.headers.multi_items():
        if re.search(r"[\0\r\n]", value):
            raise ValidationError(f"the header {name} contains a line break")
    return request


def _add_key(request: httpx2.Request, header: str | bool | None, context: StepContext) -> None:
    """Send the idempotency key with what may change something, unless the flow sets the header."""
    if request.method in _HARMLESS or header is False:
        return
    name = KEY_HEADER if header is None else str(header)
    if name not in request.headers:
        from urllib.parse import quote

        request.headers[name] = quote(context.idempotency_key, safe=_PLAIN)


def _with_query(url: httpx2.URL, query: Mapping[str, Any]) -> httpx2.URL:
    for name, value in query.items():
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                url = url.copy_add_param(name, _text(item))
    return url


def _text(value: Any) -> str:
    """Return a value as text: numbers and truth values as JSON has them."""
    return value if isinstance(value, str) else json.dumps(value)


def _authorization(auth: Mapping[str, str]) -> str:
    import base64

    if "bearer" in auth:
        return f"Bearer {auth['bearer']}"
    pair = f"{auth['username']}:{auth['password']}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _body(body: Any, headers: dict[str, str]) -> dict[str, Any]:
    """Return the arguments that make a body; its type goes to the headers if they name none."""
    if body is None:
        return {}
    kind = next((value for name, value in headers.items() if name.lower() == "content-type"), None)
    if isinstance(body, dict) and (kind or "").startswith("application/x-www-form-urlencoded"):
        return {"data": {name: value for name, value in body.items() if value is not None}}
    if isinstance(body, bytes):
        return {"content": body}
    if kind is None:
        headers["Content-Type"] = (
            "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
        )
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, allow_nan=False)
    return {"content": text.encode()}


def _client(request: httpx2.Request, context: StepContext) -> httpx2.AsyncClient:
    """Return a client for one request: nothing of it is left over for another step."""
    import httpx2

    if not _trust:
        _trust.append(httpx2.create_ssl_context())
    return httpx2.AsyncClient(
        verify=_trust[0],
        trust_env=not _is_here(request.url.host),
        timeout=httpx2.Timeout(None if context.timed else READ_SECONDS, connect=CONNECT_SECONDS),
    )


def _is_here(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


async def _send(client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    """Send a request and follow redirects; the body of the answer is still to be read."""
    import httpx2

    for _ in range(REDIRECTS):
        response = await client.send(request, stream=True)
        if request.method not in {"GET", "HEAD"} or not response.has_redirect_location:
            return response
        await response.aclose()
        try:
            target = request.url.join(response.headers["Location"])
        except (httpx2.InvalidURL, ValueError) as error:
            raise HttpError(
                f"{request.method} {request.url.copy_with(query=None)}: it redirects to what is "
                f"no URL: {parser_reason(error)}",
                data={"status": response.status_code},
                retryable=False,
            ) from None
        headers = request.headers
        if not _same_host(request.url, target):
            headers = httpx2.Headers(
                [item for item in headers.multi_items() if item[0] in _KEPT_HEADERS]
            )
        else:
            headers = headers.copy()
            headers.pop("host", None)
        request = httpx2.Request(request.method, target, headers=headers)
    raise HttpError(
        f"{request.method} {request.url.copy_with(query=None)}: more than {REDIRECTS} redirects",
        data={"status": None},
        retryable=False,
    )


def _same_host(one: httpx2.URL, other: httpx2.URL) -> bool:
    """Return whether it is the same server, or the same by an encrypted way."""
    if one.host != other.host:
        return False
    ports = {"http": 80, "https": 443}
    here, there = (url.port or ports.get(url.scheme) for url in (one, other))
    return (one.scheme, here) == (other.scheme, there) or (
        (one.scheme, here, other.scheme, there) == ("http", 80, "https", 443)
    )


# The answer


async def _answer(response: httpx2.Response, context: StepContext, place: str) -> dict[str, Plain]:
    headers: dict[str, Plain] = {}
    for name, value in response.headers.multi_items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return {
        "status": response.status_code,
        "headers": headers,
        "body": await _read(response, context, place),
    }


async def _read(response: httpx2.Response, context: StepContext, place: str) -> Plain:
    import tempfile

    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    textual = is_text(kind)
    with tempfile.SpooledTemporaryFile(max_size=LARGEST_TEXT) as file:
        size = await _spool(response, file, LARGEST_TEXT if textual else LARGEST_FILE, place)
        if size == 0:
            return None
        file.seek(0)
        if textual:
            text = file.read().decode(encoding(response.charset_encoding), errors="replace")
            return as_data(text, kind, response.status_code, place, context.mask)
        return await context.on_thread(lambda: _kept(file, response, context))


async def _spool(response: httpx2.Response, file: IO[bytes], limit: int, place: str) -> int:
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > limit:
            raise HttpError(
                f"{place}: the answer has more than {limit} bytes",
                data={"status": response.status_code},
                retryable=False,
            )
        file.write(chunk)
    return size


def _kept(file: IO[bytes], response: httpx2.Response, context: StepContext) -> Plain:
    """Keep a body that is no text as a file, under the name that it has in the URL."""
    import shutil

    from flowengine.sdk.scratch import scratch_folder

    name = response.url.path.rstrip("/").rpartition("/")[2] or "body"
    with scratch_folder() as folder:
        path = folder / "body"
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        return dict(context.execution.artifacts.put(path, name))


def _judge(answer: Mapping[str, Any], accept: Any, context: StepContext, place: str) -> None:
    status = answer["status"]
    if accept == "any" or (status < 400 if accept is None else status in accept):
        return
    body = answer["body"]
    if isinstance(body, str):
        body = beginning(body, context.mask)
    raise HttpError(
        f"{place}: status {status}{_reason(status)}",
        data={**answer, "body": body},
        retryable=status >= 500 or status in _RETRYABLE,
        retry_after=_retry_after(answer["headers"].get("retry-after")),
    )


def _reason(status: int) -> str:
    from http import HTTPStatus

    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""


def _retry_after(header: str | None) -> float | None:
    """Return the seconds that a server asks to wait; it says a number or a date."""
    import time
    from email.utils import parsedate_to_datetime

    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError, TypeError):
        return None


def _said(error: Exception) -> str:
    text = str(error)
    return text[:1].lower() + text[1:] if text else type(error).__name__
