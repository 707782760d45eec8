"""Tests of a table: one test for many small cases of one kind.

A test of its own costs five milliseconds, which is more than most of these cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import Any

import pytest


def each_row(names: str | tuple[str, ...], table: Iterable[Any]) -> Callable[..., Any]:
    """Decorate a test that is called with each row of a table. All that fail are reported.

    Cases that need fixtures, marks or an address of their own are `pytest.mark.parametrize`.

    Args:
        names: Names of its arguments.
        table: Their values: a tuple per row, or one value if there is one name.
    """
    keys = names.replace(" ", "").split(",") if isinstance(names, str) else names
    rows = [dict(zip(keys, row if len(keys) > 1 else [row], strict=True)) for row in table]
    assert rows, "the table is empty"

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def played(**more: Any) -> None:
            errors = []
            for row in rows:
                try:
                    test(**row, **more)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"in the row {row}")
                    errors.append(error)
            if len(errors) == 1:
                raise errors[0]
            if errors:
                raise BaseExceptionGroup(f"{len(errors)} of {len(rows)} rows", errors)

        given = signature(test)
        left = [one for name, one in given.parameters.items() if name not in keys]
        played.__signature__ = given.replace(parameters=left)  # type: ignore[attr-defined]
        return played

    return decorated
