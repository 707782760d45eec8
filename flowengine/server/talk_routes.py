"""The route of conversations, for front ends that speak AG-UI."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from starlette.requests import Request
from starlette.routing import Route as PathRoute
from starlette.types import Receive, Scope, Send

from flowengine.errors import FlowEngineError
from flowengine.sdk.python.user_code import on_thread
from flowengine.server.application import Application
from flowengine.server.problems import problem_response
from flowengine.server.refusals import RequestRefused

AG_UI = "/ag-ui/{flow}"


def talk_routes(application: Application) -> list[PathRoute]:
    return [PathRoute(AG_UI, TalkDoor(application))]


class TalkDoor:
    """Checks the credential of each request. AG-UI is imported with the first one.

    Its package need not be installed.

    Args:
        application: The server.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._module: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        try:
            module = self._module = self._module or await on_thread(_imported)
            principal = await self._application.admit(request)
            if request.method != "POST":
                raise RequestRefused(405, "use POST for this path", headers={"allow": "POST"})
            response = await module.run(self._application, principal, request)
        except FlowEngineError as error:
            if isinstance(error, RequestRefused):
                await self._application.note(request, None, error.status, error.message)
            response = problem_response(error)
        await response(scope, receive, send)


def _imported() -> Any:
    try:
        return import_module("flowengine.server.ag_ui")
    except ModuleNotFoundError as error:
        raise RequestRefused(
            501,
            f"this path needs the package {str(error.name).partition('.')[0]} on the server",
            hint="pip install 'flowengine[ag-ui]'",
        ) from None
