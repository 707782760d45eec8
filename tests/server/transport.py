"""Requests of a blocking client to a server in the process of the tests."""

from __future__ import annotations

import asyncio

import httpx2

from tests.server.api import HOST, Api


class Transport(httpx2.BaseTransport):
    """Answers with the application of an `Api`.

    Args:
        api: The server.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the whole answer to a request."""

        async def send() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=self._api.application.asgi)
            async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as one:
                return await one.request(
                    request.method,
                    request.url,
                    headers=request.headers,
                    content=request.read(),
                )

        answer = asyncio.run(send())
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)
