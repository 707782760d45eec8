"""What a function of the page returns, and the parameters that it takes."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import ValidationError

from flowengine.errors import InputError
from flowengine.server.models import Query

LIMIT = 50
"""Entries of a list in one view."""


class View(NamedTuple):
    """A template with its data, or the path of another view."""

    template: str
    context: dict[str, Any]
    status: int = 200
    redirect: str | None = None


def checked_query(model: type[Query], given: dict[str, Any]) -> Any:
    """Return the parameters of a list, checked.

    Raises:
        InputError: One is not valid.
    """
    try:
        return model.model_validate({"limit": LIMIT, **given})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"{first['loc'][0]}: {first['msg']}") from None
