"""AG-UI at `/ag-ui/{flow}` of the server, with the bearer tokens of the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.routing import Route as PathRoute

from flowengine.errors import FlowEngineError, InputError
from flowengine.sdk.threads import on_thread
from flowengine.server.application import address_of
from flowengine.server.problems import RequestRefused, problem_response
from flowengine.server.streams import HEARTBEAT_SECONDS, SEND_SECONDS

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from flowengine.server.ag_ui.runs import AgUiRun
    from flowengine.server.application import Application

PATH = "/ag-ui/{flow}"


def ag_ui_routes(application: Application) -> list[PathRoute]:
    """Return the routes of AG-UI."""
    return [PathRoute(PATH, _Door(application))]


class _Door:
    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from sse_starlette import EventSourceResponse
        from sse_starlette.sse import AppStatus

        # The server ends its streams itself when it stops.
        AppStatus.enable_automatic_graceful_drain = False
        request = Request(scope, receive)
        response: Any
        try:
            pieces = _pieces(await self._run(request))
            response = EventSourceResponse(
                pieces, ping=HEARTBEAT_SECONDS, send_timeout=SEND_SECONDS, sep="\n"
            )
        except FlowEngineError as error:
            if isinstance(error, RequestRefused):
                await self._application.note(request, None, error.status, error.message)
            response = problem_response(error)
        await response(scope, receive, send)

    async def _run(self, request: Request) -> AgUiRun:
        """Return the run that a request asks for.

        Raises:
            RequestRefused: The credential, the method or the body is not valid, or the package is
                missing.
            InputError: The body is not that of a run.
        """
        from pydantic import ValidationError

        principal = await self._application.admit(request)
        if request.method != "POST":
            raise RequestRefused(405, "a run is a POST", headers={"allow": "POST"})
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise RequestRefused(415, "the body of a run is JSON", hint="send application/json")
        try:
            input_type, run_type = await on_thread(_load)
        except ModuleNotFoundError as error:
            raise RequestRefused(
                501,
                f"AG-UI needs the package {error.name} on the server",
                hint="pip install 'flowengine[ag-ui]'",
            ) from None
        try:
            given = input_type.model_validate_json(await request.body())
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise InputError(f"'{place}': {first['msg']}", field=place) from None
        flow = request.path_params["flow"]
        run: AgUiRun = run_type(self._application, principal, address_of(request), flow, given)
        return run


def _load() -> tuple[Any, Any]:
    """Import the package of the protocol, which takes some time."""
    from ag_ui.core import RunAgentInput

    from flowengine.server.ag_ui.runs import AgUiRun

    return RunAgentInput, AgUiRun


async def _pieces(run: AgUiRun) -> AsyncIterator[bytes]:
    async for event in run.events():
        yield f"data: {event.model_dump_json(by_alias=True)}\n\n".encode("utf-8", "replace")
