# Shows V30, V31
"""The OpenAPI document: it is valid, and no request finds an answer that it does not describe."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from flowengine.server.openapi import document
from flowengine.server.routes import ROUTES
from tests.server.api import HOST, LOCAL, Api

EXAMPLES = 6
"""Requests of each route. More are drawn with --hypothesis-profile=explore."""


def test_the_document_names_every_route_and_needs_no_credential(api: Api) -> None:
    found = api("GET", "/v1/openapi.json", token=None, code=200)
    named = {(method.upper(), path) for path, item in found["paths"].items() for method in item}
    assert named == {(route.method, route.path) for route in ROUTES}
    ids = [
        operation["operationId"] for item in found["paths"].values() for operation in item.values()
    ]
    assert len(set(ids)) == len(ids)


def test_no_reference_leads_nowhere() -> None:
    found = document()

    def check(part: Any) -> None:
        if isinstance(part, dict):
            reference = part.get("$ref")
            if isinstance(reference, str):
                target: Any = found
                for name in reference.removeprefix("#/").split("/"):
                    target = target[name]
            for inner in part.values():
                check(inner)
        elif isinstance(part, list):
            for inner in part:
                check(inner)

    check(found)


def route_document(route: Any) -> dict[str, Any]:
    """Return the document of one route that needs no credential."""
    operation = {**document()["paths"][route.path][route.method.lower()], "security": []}
    return {**document(), "paths": {route.path: {route.method.lower(): operation}}}


def _requests(operation: Any) -> Any:
    """Requests as the document describes them, and others."""
    from schemathesis import GenerationMode

    right = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    if not (operation.body or operation.query):
        return right
    return right | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)


@pytest.mark.endurance
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_request_finds_a_failure_or_an_undocumented_answer(api: Api, route: Any) -> None:
    import schemathesis  # here, so that other processes do not load it
    from schemathesis.checks import load_all_checks
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    load_all_checks()
    # A value of the right form can still be refused: a cursor, a date, a message of a signal.
    semantic = [positive_data_acceptance]
    # The token is ours: a request with another one is a matter of test_access.
    schema = schemathesis.openapi.from_dict(route_document(route))
    schema.app = api.application.asgi
    operation = schema[route.path][route.method]
    execution, wait = api.started()
    known = {"execution": execution, "approval": wait, "flow": "expense", "name": "arrived"}
    known |= {"grant": wait, "environment": "none"}
    known |= {"other": execution, "sha256": "0" * 64}

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(case=_requests(operation))
    def check(case: Any) -> None:
        headers = {"authorization": f"Bearer {LOCAL}"}
        if len(case.path_parameters or ()) and len(str(case.body)) % 2:
            case.path_parameters = {name: known[name] for name in case.path_parameters}
        response = case.call(base_url=f"http://{HOST}", headers=headers)
        case.validate_response(response, headers=headers, excluded_checks=semantic)

    check()
