"""Functions receive their arguments converted to their type hints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flowengine.engines.attempts.outcome import AttemptFailed
from tests.nodes.conftest import Bench

Write = Callable[..., str]

HEAD = """
from __future__ import annotations
import datetime, enum
from dataclasses import dataclass
from typing import Any, TypedDict
from flowengine import quick
from flowengine.sdk import StepContext
from pydantic import BaseModel, Field
class Color(enum.Enum):
    RED = "red"
@dataclass
class Point:
    x: int
    y: int = 5
class Line(BaseModel):
    article: str = Field(min_length=2)
    count: int = 1
class Row(TypedDict):
    a: int
"""


def call(bench: Bench, module: Write, source: str, **arguments: Any) -> Any:
    folder = module(m=f"{HEAD}{source}\n")
    task = {"function": "m:f", "folder": folder}
    return bench.do("python", task, {"args": arguments})


def test_a_field_as_default_is_checked_and_never_reaches_the_function(
    bench: Bench, module: Write
) -> None:
    source = (
        "def f(a: int = Field(5, ge=1), b: list = Field(default_factory=list), *,"
        " c: str = Field(min_length=2)): return repr((a, b, c))"
    )

    assert call(bench, module, source, c="ab") == "(5, [], 'ab')"
    assert call(bench, module, source, a=2, b=[1], c="ab") == "(2, [1], 'ab')"
    with pytest.raises(AttemptFailed, match="'a' must be 1 or more; 'c' must be text of at least"):
        call(bench, module, source, a=0, c="a")


def test_everything_that_is_wrong_is_told_at_once_and_nothing_runs(
    bench: Bench, module: Write
) -> None:
    folder = module(m=f"{HEAD}def f(a: Color, b: list[Line], c: Point): raise SystemExit\n")
    arguments = {"a": "green", "b": [{"article": "A"}], "c": {"y": 1}}

    error = bench.fail("python", {"function": "m:f", "folder": folder}, {"args": arguments})

    assert error["type"] == "ValidationError"
    assert error["data"]["fields"] == {
        "a": "must be 'red'",
        "b.0.article": "must be text of at least 2 characters",
        "c.x": "is missing",
    }
    assert "'c.x' is missing" in error["message"]
