"""Types of answers: for each, a right answer as JSON, its value, and wrong answers as JSON."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypeVar
from uuid import UUID

from annotated_types import Ge, Len
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    RootModel,
    computed_field,
    field_validator,
    model_validator,
)
from typing_extensions import TypeAliasType, TypedDict

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class City(BaseModel):
    """A city."""

    name: str
    people: int


class Bounded(BaseModel):
    price: float = Field(gt=0, le=100)
    code: str = Field(pattern="^[A-Z]{2}$")
    lines: list[int] = Field(min_length=1, max_length=3)
    note: str = Field(min_length=2, max_length=9)


class Checked(BaseModel):
    amount: int

    @field_validator("amount")
    @classmethod
    def is_even(cls, amount: int) -> int:
        if amount % 2:
            raise ValueError(f"{amount} is odd")
        return amount


class Period(BaseModel):
    begin: date
    end: date

    @model_validator(mode="after")
    def is_in_order(self) -> Period:
        if self.begin > self.end:
            raise ValueError("it ends before it begins")
        return self


class Computed(BaseModel):
    width: int
    height: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width * self.height


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    first_name: str = Field(alias="firstName")
    kind: str = Field(validation_alias="theKind")


class Defaults(BaseModel):
    number: int = 5
    words: list[str] = Field(default_factory=list)


class Optional_(BaseModel):
    name: str
    nick: str | None = None


class Nested(BaseModel):
    city: City
    others: list[City]
    by_name: dict[str, City]


class Tree(BaseModel):
    name: str
    children: list[Tree]


class Chain(BaseModel):
    name: str
    next: Chain | None = None


class Ping(BaseModel):
    pong: Pong | None = None


class Pong(BaseModel):
    pings: list[Ping] = []


class Box(BaseModel, Generic[T]):
    item: T
    label: str


class Money(BaseModel):
    amount: Decimal
    since: timedelta
    data: bytes


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Accept(BaseModel):
    reason: str


class Reject(BaseModel):
    reason: str


class Flight(BaseModel):
    price: float
    on: date


class NoFlight(BaseModel):
    """There is none."""


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str


class Numbers(RootModel[list[int]]):
    pass


@dataclass
class Point:
    x: float
    y: float = 0.0


@dataclass
class Branch:
    name: str
    twigs: list[Branch] = field(default_factory=list)


class Size(TypedDict):
    width: int
    unit: NotRequired[str]


class Loose(TypedDict, total=False):
    a: int
    b: str


class Pair(NamedTuple):
    left: int
    right: str


UserId = NewType("UserId", int)
Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | None")
Names = TypeAliasType("Names", list[str])


def _upper(text: str) -> str:
    if not text.isupper():
        raise ValueError("it is not in capitals")
    return text


OSLO: Any = {"name": "Oslo", "people": 3}
DAY = "2026-01-31"
TREE = {"name": "a", "children": [{"name": "b", "children": []}]}
ACCEPTED = {"kind": "Accept", "value": {"reason": "b"}}
GUID = "00000000-0000-0000-0000-000000000007"

CASES: dict[str, tuple[Any, Any, Any, list[Any]]] = {
    "int": (int, 5, 5, ["five", None]),
    "float": (float, 2.5, 2.5, ["much"]),
    "bool": (bool, True, True, [5]),
    "literal": (Literal["yes", "no"], "yes", "yes", ["maybe"]),
    "enum": (Color, "red", Color.RED, ["green"]),
    "int enum": (Level, 2, Level.HIGH, [3]),
    "optional": (int | None, None, None, ["none"]),
    "union of scalars": (int | str, 5, 5, [[5]]),
    "constrained": (Annotated[int, Ge(3)], 3, 3, [2]),
    "validated": (Annotated[str, AfterValidator(_upper)], "A", "A", ["a"]),
    "list": (list[int], [1, 2], [1, 2], [["a"], 5, {"a": 1}]),
    "list of models": (list[City], [OSLO], [City(**OSLO)], [[{"name": "Oslo"}]]),
    "bounded list": (Annotated[list[int], Len(2, 3)], [1, 2], [1, 2], [[1], [1, 2, 3, 4]]),
    "sequence": (Sequence[date], [DAY], [date(2026, 1, 31)], [["someday"]]),
    "set": (set[str], ["a", "b"], {"a", "b"}, [["a", "a"]]),
    "frozenset": (frozenset[int], [1], frozenset([1]), [["a"]]),
    "tuple": (tuple[int, str], [1, "a"], (1, "a"), [[1], ["a", 1]]),
    "long tuple": (tuple[int, ...], [1, 2], (1, 2), [["a"]]),
    "dict": (dict[str, int], {"a": 1}, {"a": 1}, [{"a": "b"}, []]),
    "dict of numbers": (dict[int, float], {"1": 2.5}, {1: 2.5}, [{"a": 2.5}]),
    "dict of choices": (dict[Literal["a", "b"], int], {"a": 1}, {"a": 1}, [{"c": 1}]),
    "date": (date, DAY, date(2026, 1, 31), ["2026-02-31"]),
    "datetime": (datetime, f"{DAY}T09:30:00Z", datetime(2026, 1, 31, 9, 30, tzinfo=UTC), ["now"]),
    "time": (time, "09:30:00Z", time(9, 30, tzinfo=UTC), ["noon"]),
    "timedelta": (timedelta, "PT15M", timedelta(minutes=15), ["soon"]),
    "decimal": (Decimal, "1.50", Decimal("1.50"), ["much"]),
    "uuid": (UUID, GUID, UUID(GUID), ["seven"]),
    "bytes": (bytes, "AP8=", b"\x00\xff", ["no base64!"]),
    "url": (AnyUrl, "https://example.com/", AnyUrl("https://example.com/"), ["nowhere"]),
    "address": (IPv4Address, "192.0.2.1", IPv4Address("192.0.2.1"), ["192.0.2.999"]),
    "model": (City, OSLO, City(**OSLO), [{"name": "Oslo"}, {"name": 1, "people": 3}, [], "Oslo"]),
    "bounds": (
        Bounded,
        {"price": 1.5, "code": "AB", "lines": [1], "note": "ok"},
        Bounded(price=1.5, code="AB", lines=[1], note="ok"),
        [
            {"price": 0, "code": "AB", "lines": [1], "note": "ok"},
            {"price": 1, "code": "ab", "lines": [1], "note": "ok"},
            {"price": 1, "code": "AB", "lines": [], "note": "ok"},
            {"price": 1, "code": "AB", "lines": [1], "note": "o"},
        ],
    ),
    "validator": (Checked, {"amount": 4}, Checked(amount=4), [{"amount": 3}]),
    "model validator": (
        Period,
        {"begin": DAY, "end": "2026-02-01"},
        Period(begin=date(2026, 1, 31), end=date(2026, 2, 1)),
        [{"begin": DAY, "end": "2026-01-01"}],
    ),
    "computed field": (
        Computed, {"width": 2, "height": 3}, Computed(width=2, height=3), [{"width": 2}],
    ),
    "aliases": (
        Aliased, {"firstName": "Ana", "theKind": "b"}, Aliased(firstName="Ana", theKind="b"),  # type: ignore[call-arg]
        [{"first": "Ana", "theKind": "b"}],
    ),
    "defaults": (Defaults, {}, Defaults(), [{"number": "many"}]),
    "optional field": (
        Optional_, {"name": "Ana", "nick": None}, Optional_(name="Ana"), [{"nick": None}],
    ),
    "nested": (
        Nested,
        {"city": OSLO, "others": [OSLO], "by_name": {"a": OSLO}},
        Nested(city=City(**OSLO), others=[City(**OSLO)], by_name={"a": City(**OSLO)}),
        [{"city": OSLO, "others": [OSLO], "by_name": {"a": 1}}],
    ),
    "tree": (
        Tree, TREE, Tree(name="a", children=[Tree(name="b", children=[])]),
        [{"name": "a", "children": [{"name": "b"}]}],
    ),
    "chain": (
        Chain, {"name": "a", "next": {"name": "b", "next": None}},
        Chain(name="a", next=Chain(name="b")), [{"name": "a", "next": {}}],
    ),
    "two that contain each other": (
        Ping, {"pong": {"pings": [{"pong": None}]}}, Ping(pong=Pong(pings=[Ping()])),
        [{"pong": {"pings": [1]}}],
    ),
    "generic": (
        Box[City], {"item": OSLO, "label": "a"}, Box[City](item=City(**OSLO), label="a"),
        [{"item": {}, "label": "a"}],
    ),
    "decimals and bytes": (
        Money, {"amount": "1.5", "since": "PT1H", "data": "AP8="},
        Money(amount=Decimal("1.5"), since=timedelta(hours=1), data=b"\x00\xff"),
        [{"amount": "much", "since": "PT1H", "data": "AP8="}],
    ),
    "tagged union": (
        Annotated[Dog | Cat, Discriminator("kind")], {"kind": "cat", "lives": 7},
        Cat(kind="cat", lives=7), [{"kind": "dog", "lives": 7}, {"kind": "cow"}],
    ),
    "union of models": (
        Flight | NoFlight, {"price": 5.5, "on": DAY}, Flight(price=5.5, on=date(2026, 1, 31)),
        [{"price": "cheap", "on": DAY}, {"fare": 5}],
    ),
    "empty member of a union": (Flight | NoFlight, {}, NoFlight(), [{"price": 1}]),
    "union of equal models": (
        Accept | Reject, {"kind": "Reject", "value": {"reason": "no"}}, Reject(reason="no"),
        [{"reason": "no"}, {"kind": "Neither", "value": {"reason": "no"}}],
    ),
    "list of equal models": (
        list[Accept | Reject],
        [{"kind": "Reject", "value": {"reason": "a"}}, ACCEPTED],
        [Reject(reason="a"), Accept(reason="b")],
        [[{"reason": "no"}]],
    ),
    "model or text": (City | str, "none", "none", [{"name": "Oslo"}]),
    "model or none": (City | None, None, None, [{"name": "Oslo"}]),
    "other keys": (
        Extra, {"name": "a", "more": 1}, Extra(name="a", more=1), [{"more": 1}],  # type: ignore[call-arg]
    ),
    "no other keys": (Forbidding, {"name": "a"}, Forbidding(name="a"), [{"name": "a", "b": 1}]),
    "root model": (Numbers, [1, 2], Numbers([1, 2]), [["a"]]),
    "dataclass": (Point, {"x": 1.5, "y": 2.0}, Point(1.5, 2.0), [{"y": 2.0}]),
    "recursive dataclass": (
        Branch, {"name": "a", "twigs": [{"name": "b", "twigs": []}]}, Branch("a", [Branch("b")]),
        [{"name": "a", "twigs": [1]}],
    ),
    "typed dict": (Size, {"width": 3}, {"width": 3}, [{"unit": "m"}]),
    "loose dict": (Loose, {"b": "x"}, {"b": "x"}, [{"a": "x"}]),
    "named tuple": (Pair, [1, "a"], Pair(1, "a"), [[1]]),
    "new type": (UserId, 5, 5, ["five"]),
    "alias": (Names, ["a"], ["a"], [[1]]),
    "recursive alias": (Json, {"a": [1, None, "b"]}, {"a": [1, None, "b"]}, [[2.5]]),
    "anything": (Any, {"answer": 5}, {"answer": 5}, []),
    "schema": (
        {"type": "array", "items": {"type": "integer"}, "minItems": 1}, [1], [1], [[], ["a"]],
    ),
}  # fmt: skip
