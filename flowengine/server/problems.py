"""Errors as problems of RFC 9457, with the code of the command line, and a hint for clients."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from flowengine.errors import (
    Conflict,
    FlowEngineError,
    FlowFileError,
    InputError,
    NotAllowed,
    NotFound,
    StoreError,
    Surface,
    UsageError,
)
from flowengine.kernel.notation.times import format_time
from flowengine.sdk.texts.json_values import plain
from flowengine.server.refusals import RequestRefused

_log = logging.getLogger("flowengine.server")
MEDIA_TYPE = "application/problem+json"
_STATUSES: dict[type[FlowEngineError], int] = {
    UsageError: 400,
    FlowFileError: 422,
    InputError: 422,
    NotFound: 404,
    Conflict: 409,
    NotAllowed: 403,
    StoreError: 503,
}
_TIMES = ("at", "sent", "expired_at")


def status_of(error: FlowEngineError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, RequestRefused):
        return error.status
    return next((_STATUSES[cls] for cls in type(error).__mro__ if cls in _STATUSES), 500)


def problem_of(error: FlowEngineError, surface: Surface = "http") -> dict[str, Any]:
    """Return an error as a problem, with the hint for a surface."""
    status = status_of(error)
    phrase = HTTPStatus(status).phrase
    code = phrase.title().replace(" ", "").replace("-", "")
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": phrase,
        "status": status,
        "code": code if isinstance(error, RequestRefused) else type(error).__name__,
        "detail": error.message,
    }
    if hint := error.hint_for(surface):
        problem["hint"] = hint
    if surface == "http" and hint != "" and (command := error.hint_for("cli")) not in (None, hint):
        problem["cli_hint"] = command
    if isinstance(error, InputError) and error.field:
        problem["field"] = error.field
    if isinstance(error, FlowFileError):
        problem["errors"] = [diagnostic.as_dict() for diagnostic in error.diagnostics]
    if isinstance(error, Conflict) and isinstance(error.standing, dict):
        problem["standing"] = {
            name: format_time(value) if name in _TIMES and isinstance(value, int) else value
            for name, value in error.standing.items()
        }
    return problem


def problem_response(error: FlowEngineError) -> Response:
    """Return the answer to a request that failed."""
    headers = error.headers if isinstance(error, RequestRefused) else {}
    return Response(as_json(problem_of(error)), status_of(error), headers, MEDIA_TYPE)


def as_json(value: Any) -> bytes:
    """Return a value of the API as JSON."""
    return json.dumps(value, ensure_ascii=False, default=plain).encode("utf-8", "backslashreplace")


class MethodsOfPath:
    """The methods of one path. Every other one is refused with 405, and failures are logged.

    Args:
        methods: Method → answers a request.
        show: Returns the response for an error.
    """

    def __init__(
        self,
        methods: Mapping[str, Callable[[Request], Awaitable[Response]]],
        show: Callable[[FlowEngineError], Response] = problem_response,
    ) -> None:
        self._methods = methods
        self._show = show

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer = self._methods.get("GET" if request.method == "HEAD" else request.method)
        try:
            if answer is None:
                allowed = ", ".join(
                    sorted({*self._methods, *(["HEAD"] if "GET" in self._methods else [])})
                )
                raise RequestRefused(
                    405,
                    f"this path has no method {request.method}",
                    hint=f"it has: {allowed}",
                    headers={"allow": allowed},
                )
            response = await answer(request)
        except FlowEngineError as error:
            response = self._show(error)
        except Exception:
            _log.exception("%s %s failed", request.method, request.url.path)
            refused = RequestRefused(500, "the server failed", hint="its log has the reason")
            response = self._show(refused)
        await response(scope, receive, send)
