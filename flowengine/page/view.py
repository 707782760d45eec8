"""The return value of the page's functions, and the parameters that they take."""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from flowengine.errors import FlowEngineError, InputError
from flowengine.server import approvals
from flowengine.server.calls import ApiCall
from flowengine.server.models import Query, WaitsQuery
from flowengine.server.problems import status_of

LIMIT = 50
"""Entries of a list in one view."""


class Noted(NamedTuple):
    """A change for the audit record, of one object of several."""

    path: str
    """As if it had been changed alone."""
    status: int
    why: str | None


class PageView(NamedTuple):
    """A template with its data, or the path of another view."""

    template: str
    context: dict[str, Any]
    status: int = 200
    redirect: str | None = None
    is_kept: bool = False
    """Whether it is the result of a form as plain data, stored for the same form sent again."""
    noted: tuple[Noted, ...] = ()


def with_error(template: str, context: dict[str, Any], error: FlowEngineError | None) -> PageView:
    """Return a view that shows why its form was refused, if it was, and what to do."""
    hint = None if error is None else error.hint_for("page")
    status = 200 if error is None else status_of(error)
    return PageView(template, {**context, "error": error, "hint": hint}, status)


def new_id() -> str:
    """Return a random id."""
    return secrets.token_hex(13)


def checked_query(model: type[Query], given: dict[str, Any]) -> Any:
    """Return the parameters of a list, checked. See `checked`."""
    return checked(model, {"limit": LIMIT, **given})


def waits_in(call: ApiCall, **wanted: Any) -> Any:
    """Return a page of the list of waits, as the user may see them."""
    return approvals.list_approvals(call._replace(query=checked_query(WaitsQuery, wanted)))


def checked(model: type[BaseModel], given: dict[str, Any]) -> Any:
    """Return parameters or fields of a form, checked.

    Raises:
        InputError: One is not valid.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"{first['loc'][0]}: {first['msg']}") from None
