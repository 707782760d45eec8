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


@pytest.mark.parametrize(
    ("hint", "value", "got"),
    [
        ("Color", "red", "Color.RED"),
        ("Point", {"x": 1}, "Point(x=1, y=5)"),
        ("Line | None", {"article": "AB"}, "Line(article='AB', count=1)"),
        ("list[Point]", [{"x": 1}], "[Point(x=1, y=5)]"),
        ("dict[str, Color]", {"a": "red"}, "{'a': <Color.RED: 'red'>}"),
        ("datetime.date", "2026-01-02", "datetime.date(2026, 1, 2)"),
        ("tuple[int, str]", [1, "a"], "(1, 'a')"),
        ("set[int]", [1, 1], "{1}"),
        ("bytes", "aGk=", "b'hi'"),
        ("bytes", b"\xff", "b'\\xff'"),
        ("Row", {"a": 1}, "{'a': 1}"),
        ("Any", {"a": 1}, "{'a': 1}"),
        ("list[int]", [1], "[1]"),
    ],
)
@pytest.mark.parametrize("mark", ["", "@quick\n", "async "])
# Shows M40
def test_an_argument_is_what_the_hint_names(
    bench: Bench, module: Write, hint: str, value: Any, got: str, mark: str
) -> None:
    source = f"{mark}def f(a: {hint}, context: StepContext = None): return repr(a)"

    said = call(bench, module, source, a=value)

    assert said.replace("<Color.RED: 'red'>", "Color.RED") == got.replace(
        "<Color.RED: 'red'>", "Color.RED"
    )


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
