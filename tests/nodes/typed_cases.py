"""Types and values of them, as the source of a module with functions that make and take each."""

from __future__ import annotations

TYPES = """
from __future__ import annotations
import collections, dataclasses, enum, ipaddress, pathlib, re, typing, uuid, zoneinfo
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict
import typing_extensions
import pydantic
from pydantic import (
    AliasChoices, AliasPath, AwareDatetime, Base64Bytes, Base64Str, BaseModel, BeforeValidator,
    ByteSize, ConfigDict, Field, FutureDate, HttpUrl, IPvAnyAddress, IPvAnyNetwork, Json, JsonValue,
    PastDatetime, PlainSerializer, PositiveInt, PostgresDsn, RootModel, Strict, UUID4,
    computed_field, conbytes, condate, condecimal, conlist, conset, constr, model_serializer,
)
from pydantic_core import core_schema
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as checked_dataclass
T = typing.TypeVar("T")
class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2
@dataclass
class Point:
    x: float
    at: date = date(2026, 1, 2)
@dataclass
class Box:
    content: bytes
    prices: dict[int, Decimal]
    points: list[Point]
    tags: set[int] = field(default_factory=set)
    code: int = field(init=False, default=7)
@dataclass
class Node:
    name: str
    inner: list[Node] = field(default_factory=list)
@checked_dataclass
class Checked:
    at: date
    key: int = Field(alias="theKey")
class Tree(BaseModel):
    data: bytes
    inner: list[Tree] = []
class Branch(TypedDict):
    at: date
    inner: NotRequired[list[Branch]]
class Day(TypedDict):
    at: date
    price: NotRequired[Decimal]
@dataclass
class Week:
    days: list[Day]
class Aliased(BaseModel):
    order_id: int = Field(alias="orderId")
    kind: str = Field("a", validation_alias="theKind")
    shown: int = Field(1, serialization_alias="isShown")
    either: int = Field(2, validation_alias=AliasChoices("one", "other"))
    deep: int = Field(3, validation_alias=AliasPath("list", 0))
class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    unit_price: Decimal
    line_items: list[Aliased] = []
class Total(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)
    unit_price: Decimal
    count: int = 1
    @computed_field
    @property
    def whole_price(self) -> Decimal:
        return self.unit_price * self.count
class Totals(BaseModel):
    totals: list[Total]
    best: Total | None = None
class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str
    @computed_field
    @property
    def size(self) -> int:
        return len(self.name)
class Exact(BaseModel):
    model_config = ConfigDict(strict=True)
    at: date
    when: datetime
    price: Decimal
    color: Color
    tags: set[int]
    pair: tuple[int, str]
    prices: dict[int, float]
    data: bytes
    key: uuid.UUID
class StrictTotal(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    at: date
    @computed_field
    @property
    def year(self) -> int:
        return self.at.year
class Cat(BaseModel):
    kind: Literal["cat"]
    photo: bytes
class Dog(BaseModel):
    kind: Literal["dog"]
    born: date
class ByColor(BaseModel):
    color: Literal[Color.RED] = Color.RED
    data: bytes
class ByOther(BaseModel):
    color: Literal[Color.BLUE] = Color.BLUE
    others: list[ByColored] = []
ByColored = Annotated[typing.Union[ByColor, "ByOther"], Field(discriminator="color")]
@dataclass
class Tinted:
    color: Literal[Level.LOW, Level.HIGH]
@dataclass
class Level3:
    color: Literal[3]
class Noted(BaseModel):
    json_text: Json[dict[str, list[bytes]]]
    noted: list[Annotated[date, {"unit": "day"}]]
class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    anything: Any = None
class Written(BaseModel):
    model_config = ConfigDict(ser_json_timedelta="float", val_json_bytes="hex")
    took: timedelta
    data: bytes
class Pair(NamedTuple):
    at: date
    price: Decimal
class Spread(NamedTuple):
    price: Decimal
    photos: dict[date, bytes]
class Partial(typing_extensions.TypedDict, total=False):
    at: typing_extensions.Required[date]
    price: Decimal
class Numbers(RootModel[list[Decimal]]):
    pass
class Page(BaseModel, typing.Generic[T]):
    items: list[T]
    next: Page[T] | None = None
class Kind(enum.Enum):
    PAIR = (1, 2)
    DAY = date(2026, 1, 2)
class Access(enum.Flag):
    READ = 1
    WRITE = 2
class Money:  # says itself how pydantic reads and writes it
    def __init__(self, cents):
        self.cents = cents
    def __eq__(self, other):
        return self.cents == other.cents
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.int_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda it: it.cents),
        )
class Folder(BaseModel):
    name: str
    inner: dict[int, Folder] = {}
    @computed_field
    @property
    def size(self) -> int:
        return len(self.inner)
class Choice(BaseModel):
    of: Annotated[Kept | Cat, Field(discriminator="kind")]
    more: list[Kept | Dog] = []
class Kept(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["kept"] = "kept"
    @computed_field
    @property
    def code(self) -> str:
        return self.kind.upper()
def make_total() -> Total:
    return Total(unitPrice=Decimal("1.5"), count=2)
def make_kept() -> Kept:
    return Kept()
class StrictFields(BaseModel):
    at: date = Field(strict=True)
    data: Annotated[bytes, Strict()]
    tags: Annotated[set[int], Strict()]
class Puppy(Dog):
    price: Decimal
class Whole(BaseModel):
    at: date
    @model_serializer
    def write(self) -> dict[str, Any]:
        return {"at": self.at}
class Others(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str
class Loose(BaseModel):
    any: Any
    many: dict[str, object] = {}
@dataclass
class Item(typing.Generic[T]):
    value: T
    next: Item[T] | None = None
@dataclass
class Named:
    number: Annotated[int, Field(alias="theNumber")]
    at: date = Field(date(2026, 1, 2), alias="theDate")
@dataclass(slots=True, frozen=True, kw_only=True)
class Frozen:
    at: date
    prices: tuple[Decimal, ...] = ()
class Session:  # unknown to pydantic
    pass
@dataclass
class Settings:
    at: date
    session: Session | None = None
    others: list[Settings] = field(default_factory=list)
Id = NewType("Id", int)
Epoch = Annotated[
    datetime,
    PlainSerializer(lambda at: int(at.timestamp())),
    BeforeValidator(lambda at: datetime.fromtimestamp(at, UTC) if isinstance(at, int) else at),
]
Forest = typing_extensions.TypeAliasType("Forest", "dict[str, Forest] | list[Forest] | int")
GOT = {}
def check(name, value, wanted):
    fits = value == wanted and _types(value) == _types(wanted)
    assert fits, f"{name}: {value!r} is no {wanted!r}"
    GOT[name] = GOT.get(name, 0) + 1
def _types(value):
    inside = value
    if isinstance(value, BaseModel):
        inside = {**value.__dict__, **(value.__pydantic_extra__ or {})}
    elif dataclasses.is_dataclass(value):
        inside = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(inside, dict):
        return type(value), {(type(key), key): _types(item) for key, item in inside.items()}
    if isinstance(inside, list | tuple):
        return type(value), [_types(item) for item in inside]
    if isinstance(inside, set | frozenset):
        return type(value), {str(_types(item)) for item in inside}
    return type(value)
"""
BYTES = r"b'\xff\x00a'"
CASES = [
    ("bytes", BYTES),
    ("list[bytes]", f"[{BYTES}, b'aaaa']"),
    ("dict[str, bytes]", f"{{'a': {BYTES}}}"),
    ("bytes | None", "b'aaaa'"),
    ("Base64Bytes", "b'abc'"),
    ("HttpUrl", "HttpUrl('https://example.com/a?b=%C3%BC')"),
    ("list[HttpUrl] | None", "[HttpUrl('https://m\\xfcnchen.de/')]"),
    ("PostgresDsn", "PostgresDsn('postgres://u@one,two/d')"),
    ("dict[str, PastDatetime]", "{'a': datetime(2026, 1, 2, tzinfo=UTC)}"),
    ("FutureDate", "date(2926, 1, 2)"),
    ("condecimal(max_digits=4, gt=0)", "Decimal('1.10')"),
    ("conset(UUID4, max_length=3)", "{uuid.UUID('3f2b8c1e-7d4a-4e0b-9c55-0a6f1d2e3b4c')}"),
    ("constr(min_length=2, to_upper=True)", "'ABC'"),
    ("UUID4", "uuid.UUID('3f2b8c1e-7d4a-4e0b-9c55-0a6f1d2e3b4c')"),
    ("IPvAnyAddress", "ipaddress.IPv6Address('::1')"),
    ("IPvAnyNetwork", "ipaddress.IPv4Network('192.0.2.0/24')"),
    ("ByteSize", "ByteSize(1024)"),
    ("PositiveInt", "5"),
    ("Base64Str", "'abc'"),
    ("Json", "{'a': [1, None]}"),
    ("Json[list[date]]", "[date(2026, 1, 2)]"),
    ("JsonValue", "{'a': [1, None]}"),
    ("Decimal", "Decimal('1.10')"),
    ("Decimal", "Decimal('1E+5')"),
    ("frozenset[date]", "frozenset({date(2026, 1, 2), date(2025, 1, 2)})"),
    ("set[tuple[int, str]]", "{(1, 'a'), (2, 'b')}"),
    ("timedelta", "timedelta(days=1, hours=2, microseconds=5)"),
    ("timedelta", "-timedelta(minutes=90)"),
    ("time", "time(10, 30, tzinfo=UTC)"),
    ("date", "date(2026, 1, 2)"),
    ("datetime", "datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)"),
    ("uuid.UUID", "uuid.UUID(int=7)"),
    ("pathlib.Path", "pathlib.Path('/a/b')"),
    ("ipaddress.IPv4Address", "ipaddress.IPv4Address('10.0.0.1')"),
    ("re.Pattern[str]", "re.compile('a+')"),
    ("complex", "1 + 2j"),
    ("tuple[int, date]", "(1, date(2026, 1, 2))"),
    ("Color", "Color.RED"),
    ("Level", "Level.HIGH"),
    ("Literal[Color.RED]", "Color.RED"),
    ("dict[int, str]", "{1: 'a', -2: 'b'}"),
    ("dict[float, int]", "{1.5: 1}"),
    ("dict[bool, int]", "{True: 1}"),
    ("dict[Color, Decimal]", "{Color.RED: Decimal('1.5')}"),
    ("dict[Literal[1, 'a', True], bytes]", f"{{1: {BYTES}, 'a': b''}}"),
    ("dict[date, list[Point]]", "{date(2026, 1, 2): [Point(1.0)]}"),
    ("dict[bytes, int]", f"{{{BYTES}: 1}}"),
    ("dict[datetime, set[Id]]", "{datetime(2026, 1, 2, tzinfo=UTC): {1}}"),
    ("typing.Sequence[bytes]", f"[{BYTES}]"),
    ("dict[Access, int]", "{Access.READ: 1, Access.READ | Access.WRITE: 3}"),
    ("dict[Kind | int, str]", "{Kind.DAY: 'b', 5: 'c'}"),
    ("dict[Decimal, list[Decimal]]", "{Decimal('-1.5'): [Decimal('2')]}"),
    ("dict[str, collections.abc.Sequence[Day]]", "{'a': [{'at': date(2026, 1, 2)}]}"),
    ("Spread", f"Spread(Decimal('1.10'), {{date(2026, 1, 2): {BYTES}}})"),
    ("Partial", "{'at': date(2026, 1, 2)}"),
    ("Settings", "Settings(date(2026, 1, 2), others=[Settings(date(2025, 1, 2))])"),
    ("float", "5.0"),
    ("tuple[float, int]", "(5.0, 5)"),
    ("int | float", "5"),
    ("Point", "Point(5.0)"),
    ("Box", "Box(b'\\xff', {1: Decimal('1.5')}, [Point(2.0)], {3, 4})"),
    ("Node", "Node('a', [Node('b'), Node('c', [Node('d')])])"),
    ("Checked", "Checked(at=date(2026, 1, 2), theKey=3)"),
    ("Tree", "Tree(data=b'\\xff', inner=[Tree(data=b'aaaa')])"),
    ("Branch", "{'at': date(2026, 1, 2), 'inner': [{'at': date(2025, 1, 2)}]}"),
    ("Forest", "{'a': [1, {'b': 2}]}"),
    ("Day", "{'at': date(2026, 1, 2), 'price': Decimal('1.5')}"),
    ("Week", "Week([{'at': date(2026, 1, 2)}])"),
    ("Aliased", "Aliased(orderId=1, theKind='k', shown=5, other=6, list=[7])"),
    ("Camel", "Camel(unitPrice=Decimal('1.5'), lineItems=[Aliased(orderId=1)])"),
    ("Total", "Total(unitPrice=Decimal('1.5'), count=2)"),
    (
        "Totals",
        "Totals(totals=[Total(unitPrice=Decimal('1.5'))], best=Total(unitPrice=Decimal(1)))",
    ),
    ("Open", "Open(name='ana', more=[1])"),
    (
        "Exact",
        "Exact(at=date(2026, 1, 2), when=datetime(2026, 1, 2, tzinfo=UTC), price=Decimal('1.5'),"
        f" color=Color.RED, tags={{1}}, pair=(1, 'a'), prices={{1: 2.5}}, data={BYTES},"
        " key=uuid.UUID(int=7))",
    ),
    ("StrictTotal", "StrictTotal(at=date(2026, 1, 2))"),
    ("Cat | Dog", "Dog(kind='dog', born=date(2026, 1, 2))"),
    ("Owner", f"Owner(pet=Cat(kind='cat', photo={BYTES}))"),
    ("Written", f"Written(took=timedelta(seconds=1.5), data={BYTES})"),
    ("Pair", "Pair(date(2026, 1, 2), Decimal('1.5'))"),
    ("Numbers", "Numbers([Decimal('1.5')])"),
    ("Id", "Id(5)"),
    ("Page[bytes]", f"Page[bytes](items=[{BYTES}], next=Page[bytes](items=[]))"),
    ("Kind", "Kind.PAIR"),
    ("Access", "Access.READ | Access.WRITE"),
    ("Money", "Money(5)"),
    ("zoneinfo.ZoneInfo", "zoneinfo.ZoneInfo('Europe/Berlin')"),
    ("collections.deque[date]", "collections.deque([date(2026, 1, 2)])"),
    ("collections.Counter[str]", "collections.Counter('aab')"),
    ("collections.OrderedDict[int, date]", "collections.OrderedDict({1: date(2026, 1, 2)})"),
    ("Folder", "Folder(name='a', inner={3: Folder(name='b')})"),
    ("Choice", "Choice(of=Kept(), more=[Kept(), Dog(kind='dog', born=date(2026, 1, 2))])"),
    ("StrictFields", f"StrictFields(at=date(2026, 1, 2), data={BYTES}, tags={{1}})"),
    ("Puppy", "Puppy(kind='dog', born=date(2026, 1, 2), price=Decimal('1.5'))"),
    ("Whole", "Whole(at=date(2026, 1, 2))"),
    ("Item[Item[bytes]]", f"Item(Item({BYTES}), Item(Item(b'')))"),
    ("Named", "Named(1, date(2026, 1, 3))"),
    ("Frozen", "Frozen(at=date(2026, 1, 2), prices=(Decimal('1.5'),))"),
    ("set[Frozen]", "{Frozen(at=date(2026, 1, 2)), Frozen(at=date(2025, 1, 2))}"),
    ("tuple[()]", "()"),
    ("str | bytes", "'aaaa'"),
    ("bytes | str", BYTES),
    ("Loose", f"Loose(any={BYTES}, many={{'a': [{BYTES}]}})"),
    ("Epoch", "datetime(2026, 1, 2, tzinfo=UTC)"),
    ("list[Epoch]", "[datetime(2026, 1, 2, tzinfo=UTC)]"),
    ("Others", "Others(name='ana', more=1, inner={'a': ['b']})"),
    ("Noted", f"Noted.model_construct(json_text={{'a': [{BYTES}]}}, noted=[date(2026, 1, 2)])"),
    ("Annotated[list[Annotated[date, ['day']]], pydantic.FailFast()]", "[date(2026, 1, 2)]"),
    ("dict[Annotated[int, {'unit': 'm'}], tuple[Annotated[float, []], ...]]", "{1: (5.0,)}"),
    ("ByOther", f"ByOther(others=[ByOther(), ByColor(data={BYTES})])"),
    (
        "list[Annotated[Tinted | Level3, Field(discriminator='color')]]",
        "[Level3(3), Tinted(Level.HIGH)]",
    ),
]
NAMES = [f"v{number}" for number in range(len(CASES))]
NOT_JSON = {"bytes | str", "Loose", "Others"}
"""Types that JSON cannot tell from text."""
OWN = NOT_JSON | {
    "Settings",
    "Base64Bytes",
    "Base64Str",
    "Json",
    "Json[list[date]]",
    "Epoch",
    "list[Epoch]",
}
"""Types whose plain form depends also on their own code, which a flow does not know."""
UNSHOWN = NOT_JSON | {"Epoch", "list[Epoch]", "Settings"}
"""Types whose schema is not that of their plain form."""
WRITTEN = [name for name, (hint, _) in zip(NAMES, CASES, strict=True) if hint not in OWN]
SHOWN = [name for name, (hint, _) in zip(NAMES, CASES, strict=True) if hint not in UNSHOWN]
ALONE = ("list[bytes]", "dict[int, str]", "Node", "Tree", "Branch", "Forest", "Total", "Cat | Dog")


def source() -> str:
    """Return the source of the module: `make_NAME`, `take_NAME` and `again_NAME` for each case."""
    text = TYPES
    for name, (hint, value) in zip(NAMES, CASES, strict=True):
        text += f"\n\ndef make_{name}() -> {hint}:\n    return {value}\n"
        for use in ("take", "again"):
            text += f"\n\ndef {use}_{name}(value: {hint}) -> None:\n"
            text += f"    check('{name}', value, {value})\n"
    text += "\n\nclass Everything(TypedDict):\n"
    for name in SHOWN:
        text += f"    {name}: {CASES[NAMES.index(name)][0]}\n"
    return text
