"""The route of conversations, for front ends that speak AG-UI."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute

from flowengine.sdk.python.user_code import on_thread
from flowengine.server.application import Application
from flowengine.server.problems import MethodsOfPath
from flowengine.server.refusals import RequestRefused

AG_UI = "/ag-ui/{flow}"


def talk_routes(application: Application) -> list[PathRoute]:
    """Return the route. AG-UI is imported with the first request: it need not be installed."""

    async def run(request: Request) -> Response:
        principal = None
        try:
            module = await on_thread(_imported)
            principal = await application.admit(request)
            response: Response = await module.run(application, principal, request)
            return response
        except RequestRefused as error:
            await application.note(request, principal, error.status, error.message)
            raise

    return [PathRoute(AG_UI, MethodsOfPath({"POST": run}))]


def _imported() -> Any:
    try:
        return import_module("flowengine.server.ag_ui")
    except ModuleNotFoundError as error:
        raise RequestRefused(
            501,
            f"this path needs the package {str(error.name).partition('.')[0]} on the server",
            hint="pip install 'flowengine[ag-ui]'",
        ) from None
