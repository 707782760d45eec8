"""The routes of conversations, for front ends that speak AG-UI or the API of OpenAI.

A protocol is a module that is imported with its first request: its package need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.routing import Route as PathRoute

from flowengine.errors import FlowEngineError
from flowengine.sdk.user_code import on_thread
from flowengine.server.problems import RequestRefused, problem_response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from flowengine.server.application import Application

AG_UI = "/ag-ui/{flow}"
OPENAI = "/openai/v1"


def talk_routes(application: Application) -> list[PathRoute]:
    """Return the routes."""
    return [
        PathRoute(AG_UI, TalkDoor(application, "POST", "ag_ui", "run")),
        PathRoute(
            f"{OPENAI}/chat/completions", TalkDoor(application, "POST", "openai_chat", "chat")
        ),
        PathRoute(f"{OPENAI}/models", TalkDoor(application, "GET", "openai_chat", "models")),
    ]


class TalkDoor:
    """Checks the credential of each request, and answers refusals as its protocol does.

    Args:
        application: The server.
        method: The only method.
        protocol: The module, which may have a function `refusal`.
        name: Name of the function that answers.
    """

    def __init__(self, application: Application, method: str, protocol: str, name: str) -> None:
        self._application = application
        self._method = method
        self._protocol = protocol
        self._name = name
        self._module: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        refusal: Callable[[FlowEngineError], Any] = problem_response
        try:
            module = self._module = self._module or await on_thread(self._imported)
            refusal = getattr(module, "refusal", refusal)
            principal = await self._application.admit(request)
            if request.method != self._method:
                raise RequestRefused(
                    405, f"use {self._method} for this path", headers={"allow": self._method}
                )
            response = await getattr(module, self._name)(self._application, principal, request)
        except FlowEngineError as error:
            if isinstance(error, RequestRefused):
                await self._application.note(request, None, error.status, error.message)
            response = refusal(error)
        await response(scope, receive, send)

    def _imported(self) -> Any:
        try:
            return import_module(f"flowengine.server.{self._protocol}")
        except ModuleNotFoundError as error:
            package, extra = str(error.name).partition(".")[0], self._protocol.replace("_", "-")
            raise RequestRefused(
                501,
                f"this path needs the package {package} on the server",
                hint=f"pip install 'flowengine[{extra}]'",
            ) from None
