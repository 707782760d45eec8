"""Requests of a blocking client to a server in the process of the tests."""

from __future__ import annotations

import asyncio
import json
import re
from functools import cache
from typing import Any

import httpx2
import jsonschema_rs

from flowengine.server.openapi import document as openapi
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
                    request.method, request.url, headers=request.headers, content=request.read()
                )

        answer = asyncio.run(send())
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)


class Documented(Transport):
    """Checks each request and its answer against the OpenAPI document, as a client made from it."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the whole answer to a request that the document describes."""
        operation = self._operation(request)
        known = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
        assert {*request.url.params} <= known, request.url
        body = request.read()
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]
            if "application/json" in content:
                _check(content["application/json"]["schema"], json.loads(body))
        else:
            assert not body, request.url
        answer = super().handle_request(request)
        assert str(answer.status_code) in operation["responses"], (request.url, answer.text)
        described = operation["responses"][str(answer.status_code)]
        if "$ref" in described:
            described = document()["components"]["responses"][str(answer.status_code)]
        content = described["content"]
        kind = answer.headers["content-type"].partition(";")[0]
        if "json" in kind:
            _check(content[kind]["schema"], answer.json())
        return answer

    def _operation(self, request: httpx2.Request) -> Any:
        path, method = request.url.path, request.method.lower()
        found = [
            item[method]
            for template, item in document()["paths"].items()
            if method in item and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path)
        ]
        assert found, f"{method} {path} is not documented"
        return found[0]


def _check(schema: Any, data: Any) -> None:
    _validator(json.dumps(schema)).validate(data)


@cache
def _validator(schema: str) -> Any:
    whole = {**json.loads(schema), "components": document()["components"]}
    return jsonschema_rs.validator_for(whole)


@cache
def document() -> Any:
    """Return the OpenAPI document, as it is served."""
    return json.loads(json.dumps(openapi()))
