"""Functions whose schemas are derived both from source and from the running program."""

# mypy: disable-error-code="empty-body,no-untyped-def,type-arg"
# ruff: noqa: UP006, UP007, UP045 - old spellings are read, too
from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import ipaddress
import socket
import typing as t
import uuid as ids
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal as Exact
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union

from pydantic import BaseModel, ConfigDict, Field, HttpUrl


class Color(enum.Enum):
    """Hues."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Place(TypedDict):
    name: str
    zip: NotRequired[str]


@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)


@dataclasses.dataclass(order=True)
class Pixel(Point):
    """A point with a color."""

    color: Color = Color.RED
    _seen: t.ClassVar[int] = 0


class Line(BaseModel):
    """A line of an order."""

    article: str = Field(min_length=2, pattern="^[A-Z]", description="its number")
    count: int = Field(1, ge=1, le=99)
    price: Annotated[float, Field(gt=0)] = 1.0


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lines: list[Line]
    gift: bool = False
    note: str | None = None


class Rush(Order):
    by: datetime.date


class Tree(BaseModel):
    name: str
    parts: list[Tree] = []


class Bill(BaseModel):
    due: datetime.date
    total: Exact = Field(gt=0)
    paid: list[Exact] = []


Size = Union[int, None]


def scalars(a: str, b: int, c: float, d: bool, e: None, f: bytes) -> None: ...
def defaults(a: str, b: int = 3, c: Optional[str] = None, d: float = -1.5, e: Size = 2) -> int: ...
def containers(
    a: list[int], b: dict[str, float], c: tuple[int, str], d: set[str], e: frozenset[int]
) -> list[dict[str, int]]: ...
def bare(a: list, b: dict, c: tuple, d: set, e: Any, f, g: tuple[int, ...] = ()) -> Any: ...
def abstract(a: Sequence[str], b: Mapping[str, int], c: t.List[t.Dict[str, t.Any]]) -> None: ...
def choices(
    a: Literal["a", "b"], b: Color, c: Level, d: Literal[1, 2], e: Literal["x"] | None = None
) -> Color: ...
def unions(a: int | str, b: Line | Point, c: Color | None, d: list[int] | None = None) -> None: ...
def described(
    a: Annotated[int, "in cents"],
    b: Annotated[str, Field(description="a word", max_length=9)],
    c: Annotated[list[int], Field(min_length=1)],
) -> None: ...
def records(a: Point, b: Pixel, c: Place, d: Order) -> Point: ...
def shared(a: Line, b: list[Line], c: Line | None = None) -> None: ...
def recursive(a: Tree, b: Tree | None = None) -> Tree: ...
def inherited(a: Rush, b: HttpUrl) -> None: ...
def library(
    a: datetime.date,
    b: list[datetime.datetime],
    c: datetime.time,
    d: datetime.timedelta,
    e: Exact,
    f: ids.UUID,
    g: Path,
    h: ipaddress.IPv4Address,
    i: Bill,
    j: Exact | None = None,
    k: Annotated[Exact, Field(gt=0, le=9, description="a share")] = Exact(1),
) -> datetime.date: ...
def rest(a: int, *, b: str = "b", **more: int) -> None: ...
def injected(context_variables: dict[str, Any], runtime_resources: Any, a: int) -> None: ...
def nothing() -> None: ...


@functools.cache
def decorated(a: int) -> int:
    """Do it."""
    return a


def opened(a: socket.socket) -> None: ...


def google(city: str, days: int = 1) -> str:
    """Tell the weather.

    In words.

    Args:
        city: where it is,
            with its country
        days (int, optional): how many
        context_variables: not for models
    """
    return ""


def numpy(city: str, days: int = 1) -> str:
    """Tell the weather.

    In words.

    Parameters
    ----------
    city : str
        where it is,
        with its country
    days : int, optional
        how many
    """
    return ""


def rest_style(city: str, days: int = 1) -> str:
    """Tell the weather.

    In words.

    :param city: where it is,
        with its country
    :type city: str
    :param int days: how many
    """
    return ""


def annotated(
    city: Annotated[str, "where it is, with its country"], days: Annotated[int, "how many"] = 1
) -> str:
    """Tell the weather.

    In words.
    """
    return ""


class Counter:
    """Counts."""

    def add(self, n: int) -> int:
        """Add to it."""
        return n

    def __call__(self, n: int, *, step: int = 1) -> int:
        return n
