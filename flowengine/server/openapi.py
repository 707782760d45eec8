"""The OpenAPI document, made from the routes and their models."""

from __future__ import annotations

import re
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import Any

from flowengine import __version__
from flowengine.sdk.python.live_types import schema_of
from flowengine.server.problems import MEDIA_TYPE
from flowengine.server.rights import Right
from flowengine.server.routes import ROUTES, Route

_REFUSALS = {
    "400": "the request is not valid",
    "401": "no valid credential",
    "403": "a right is missing, or the approval is not addressed to the user",
    "404": "it does not exist, or is not visible to the user",
    "405": "the path has no such method",
    "409": "it is already decided, or in the wrong status",
    "413": "the body is too large",
    "415": "the body is not JSON",
    "421": "the header `Host` names another server",
    "422": "a value does not match its schema",
    "429": "too many invalid credentials",
    "500": "the server failed",
    "503": "the store cannot be read or written",
}
_PROBLEM = {
    "type": "object",
    "description": "An error, by RFC 9457. `code` is that of the command line.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "hint": {"type": "string"},
        "cli_hint": {"type": "string", "description": "the same on the command line"},
        "field": {"type": "string", "description": "dotted path of the value at fault"},
        "errors": {"type": "array", "items": {"type": "object"}},
        "standing": {"type": "object", "description": "what counts instead"},
    },
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    "description": "The same key with the same request gives the same answer, for a day.",
}


@cache
def document() -> dict[str, Any]:
    """Return the document."""
    schemas: dict[str, Any] = {"Problem": _PROBLEM}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "flowengine", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                status: {
                    "description": text,
                    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
                for status, text in _REFUSALS.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {"application/octet-stream": {}}
    if route.response is not Path:
        name = route.response.__name__
        schemas[name] = _inlined(_moved(schema_of(route.response)), schemas)
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    if route.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    query = _inlined(route.query.model_json_schema(ref_template=_TEMPLATE), schemas)
    in_query = [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": part.pop("description", ""),
            "schema": _without_null(part),
        }
        for name, part in query.get("properties", {}).items()
    ]
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": (getdoc(route.answer) or "").partition("\n")[0],
        "description": _need(route),
        "parameters": [*in_path, *in_query],
        "responses": {
            str(route.status): {"description": "the answer", "content": content},
            **{status: {"$ref": f"#/components/responses/{status}"} for status in _REFUSALS},
        },
        "security": [] if route.need in ("public", "signed") else [{"token": []}],
    }
    if route.need == "signed":
        operation["requestBody"] = {"content": {"application/json": {"schema": {}}}}
    if route.uploads:
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    if route.body is not None:
        operation["parameters"].append(_KEY)
        name = route.body.__name__
        schemas[name] = _inlined(route.body.model_json_schema(ref_template=_TEMPLATE), schemas)
        operation["requestBody"] = {
            "required": any(field.is_required() for field in route.body.model_fields.values()),
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}},
        }
    return operation


def _need(route: Route) -> str:
    if isinstance(route.need, Right):
        return f"Needs the right `{route.need.value}`."
    if route.need == "signed":
        return "Needs a signature of the body, as the hook's service makes it."
    return "Needs no credential." if route.need == "public" else "Needs any valid credential."


_TEMPLATE = "#/components/schemas/{model}"


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter, which is left out where a model has None."""
    schema = {key: value for key, value in schema.items() if key != "title"}
    choices = schema.pop("anyOf", None)
    if choices is None:
        return schema
    if schema.get("default", ...) is None:
        del schema["default"]
    [only] = [choice for choice in choices if choice != {"type": "null"}]
    return {**only, **schema}


def _moved(schema: Any) -> Any:
    """Return a schema whose references lead to the components of the document."""
    if isinstance(schema, list):
        return [_moved(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value.replace("#/$defs/", "#/components/schemas/")
        if key == "$ref" and isinstance(value, str)
        else _moved(value)
        for key, value in schema.items()
    }


def _inlined(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose definitions have moved to the components."""
    schemas.update(schema.pop("$defs", {}))
    return schema
