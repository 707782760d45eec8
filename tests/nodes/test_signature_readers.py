"""Signatures read from source allow what the live function allows, and lose as little as possible.

A hint is equal to that of the live function, or looser where only running the code shows more.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.text_calls.requests import example_of
from flowengine.errors import UsageError
from flowengine.sdk.python.imported_modules import import_function
from flowengine.sdk.python.live_signature import read_function
from flowengine.sdk.python.signature import derive
from flowengine.sdk.steps.step_kind import SignatureError
from flowengine.sdk.values.validation import shared
from tests.rows import each_row

LIMITS = """
from enum import Enum
LOWEST = 3
SIZES = [1, 2]
class Limits:
    TOP = 9
class Level(Enum):
    LOW = "low"
    HIGH = "high"
"""
MODULE = '''
from __future__ import annotations
import enum, re, typing
import annotated_types
import limits
import pydantic as p
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar, Union
from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MaxLen, MinLen, MultipleOf, Predicate
from limits import LOWEST, Level, Limits
from pydantic import (
    AfterValidator, AnyUrl, AwareDatetime, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field,
    Field as F, FutureDate, HttpUrl, HttpUrl as U, IPvAnyAddress, Json, NaiveDatetime,
    NonNegativeInt, PlainValidator, PositiveFloat, PostgresDsn, SerializeAsAny, Strict, StrictInt,
    StringConstraints, UUID4, WithJsonSchema, conbytes, condate, condecimal, conint, conlist,
    conset, constr, field_validator,
)
from pydantic.types import UUID7

MOST = 10
NAME = "ada"
NOTHING = None
CHANGED = 1
CHANGED += 1
COMPUTED = len(NAME)
Positive = Field(gt=0)
Count = Annotated[int, Positive, "How many"]
UserId = NewType("UserId", int)
CONFIG = ConfigDict(extra="forbid")
T = TypeVar("T")

class Color(Enum):
    RED = "red"
    BLUE = "blue"
class Auto(StrEnum):
    A = enum.auto()
class Number(IntEnum):
    ONE = 1
    TWO = MOST
class Marker: ...
class Hooked:
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        from pydantic_core import core_schema
        return core_schema.str_schema()
def registered(cls): return cls

class Order(BaseModel):
    """An order."""
    model_config = ConfigDict(title="Order", str_strip_whitespace=True)
    id: int = F(ge=LOWEST, description="Its number")
    color: Color = Color.RED
    tags: Annotated[list[str], Field(min_length=1)] = field(default_factory=list)
    size: int = MOST
    @field_validator("id")
    @classmethod
    def check(cls, id): return id
    @registered
    def helper(self): ...
class Closed(BaseModel):
    model_config = CONFIG
    n: int
class Aliased(BaseModel):
    n: int = Field(alias="number")
class Generated(BaseModel):
    model_config = ConfigDict(alias_generator=str.upper)
    n: int
class Odd(BaseModel):
    n: int = Field(gt=COMPUTED, le=MOST)
    when: datetime
@registered
class Registered(BaseModel):
    n: int
class Box(BaseModel, Generic[T]):
    name: str
    held: T
@dataclass
class Point:
    x: float
    y: float = field(default=LOWEST)
class Left(BaseModel):
    right: list[Right] = []
@dataclass
class Right:
    left: Left | None = None
class Row(typing.TypedDict, total=False):
    rows: typing.Required[list[Row]]
    right: Right
class Names(p.RootModel[list[str]]): ...
class Pair(typing.NamedTuple):
    name: str
    other: int = LOWEST
class Total(BaseModel, extra="forbid"):
    n: int
    @p.computed_field
    @property
    def twice(self) -> int: return 2 * self.n
class Cat(BaseModel):
    kind: Literal["cat"]
class Dog(Cat):
    kind: Literal["dog"]
'''
EQUAL = """
Annotated[int, Field(ge=1)] ; Annotated[int, Field(description="d", ge=1, title="T")]
Annotated[int, F(ge=1)] ; Annotated[int, p.Field(ge=1)] ; Annotated[int, Field(ge=MOST)]
Annotated[int, Field(ge=LOWEST, le=3600)] ; Annotated[int, Field(ge=-10)]
Annotated[int, Field(ge=limits.LOWEST)] ; Annotated[int, Field(ge=1, strict=True)]
Annotated[int, Strict(), Field(ge=1)] ; Annotated[int, Ge(1), Lt(MOST)]
Annotated[int, Gt(1), Le(9), MultipleOf(3)] ; Annotated[int, annotated_types.Ge(2)]
Annotated[int, Ge(ge=1)] ; Annotated[float, Interval(ge=0, lt=1)] ; Annotated[str, Len(1, 5)]
Annotated[str, MinLen(2), MaxLen(4)] ; Annotated[list[int], Len(2)]
Annotated[str, StringConstraints(min_length=1, max_length=MOST, pattern="^a")]
Annotated[str, StringConstraints(to_lower=True, strip_whitespace=True, min_length=2)]
Annotated[str, Field(pattern="^[a-z]+$", max_length=5)]
Annotated[str, Field(examples=["a", "b"])] ; Annotated[int, AfterValidator(abs), "A number"]
Annotated[int, BeforeValidator(int)] ; Annotated[int, Marker()] ; Annotated[int, Marker]
Annotated[int, Predicate(bool)] ; Annotated[Optional[int], "A number"] ; Count ; UserId
NonNegativeInt ; PositiveFloat ; p.PositiveInt ; StrictInt ; conint(ge=1, le=MOST)
constr(min_length=2, pattern="^a") ; conlist(int, min_length=2)
conset(AwareDatetime, max_length=MOST) ; condecimal(max_digits=4, gt=LOWEST)
conbytes(min_length=2) ; HttpUrl ; U ; p.AnyUrl ; list[HttpUrl] ; HttpUrl | None
Annotated[HttpUrl, Field(description="Where")] ; PostgresDsn ; AwareDatetime ; NaiveDatetime
FutureDate ; dict[str, UUID4] ; UUID7 ; IPvAnyAddress ; ByteSize ; Json ; SerializeAsAny[int]
Literal[Color.RED] ; Literal[Color.RED, Color.BLUE] ; Literal[Level.LOW, "none"]
Literal[limits.Level.LOW] ; Literal[-1, True, None] ; list[Annotated[int, Field(ge=LOWEST)]]
dict[str, Annotated[int, Ge(0)]] ; Annotated[int, Field(ge=1)] | None ; Color ; Number ; Order
Closed ; Registered ; Point
Annotated[Optional[int], Field(ge=1)] ; Annotated[int | str, Field(description='d')] ; Aliased
Annotated[int, AfterValidator(abs), Field(ge=1)] ; Box[int] ; Annotated[bytes, Field(min_length=9)]
Annotated[str, StringConstraints(pattern=re.compile('^a'))]
Annotated[int, BeforeValidator(int, json_schema_input_type=str)] ; Optional[Point]
int | list[str] | None
Left ; list[Right] ; Row ; Names ; Pair ; Total
Annotated[Cat | Dog, Field(discriminator="kind")]
"""
SAME = EQUAL.strip().replace("\n", " ; ").split(" ; ")
LOOSER = {
    "Annotated[int, Field(ge=COMPUTED, le=9)]": {"type": "integer", "maximum": 9},
    "Annotated[int, Field(ge=CHANGED, le=9)]": {"type": "integer", "maximum": 9},
    "Auto": {"type": "string"},
    "Annotated[int, Field(json_schema_extra={'a': 1}, ge=1)]": {"type": "integer", "minimum": 1},
    "Annotated[int, Field(ge=1, le=2 * MOST)]": {"type": "integer", "minimum": 1},
    "Annotated[int, Field(ge=1, le=Limits.TOP)]": {"type": "integer", "minimum": 1},
    "Odd": {"type": "object", "properties": {
        "n": {"type": "integer", "maximum": 10},
        "when": {"type": "string", "format": "iso-date-time"}}, "required": ["n", "when"]},
    **{hint: {} for hint in (
        "Generated", "Annotated[int, WithJsonSchema({'type': 'string'})]",
        "Hooked", "Annotated[int, Hooked()]", "Annotated[int, PlainValidator(int)]")},
}  # fmt: skip
HINTS = [*SAME, *LOOSER]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a function that reads both signatures of a parameter of the module."""
    folder = tmp_path_factory.mktemp("readers")
    texts = [f"x: {hint}" for hint in HINTS]
    functions = [f"def f{place}({text}): ..." for place, text in enumerate(texts)]
    (folder / "limits.py").write_text(LIMITS)
    (folder / "hinted.py").write_text("\n".join([MODULE, *functions]))
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("hinted", folder / "hinted.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["hinted"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

        def both(text: str) -> tuple[Any, Any]:
            name = f"f{texts.index(f'x: {text}')}"
            static = derive(f"hinted:{name}", str(folder)).args
            return static, read_function(getattr(module, name)).args

        yield both
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("hinted", None)
        sys.modules.pop("limits", None)


def of_parameter(args: Any) -> Any:
    """Return the schema of the parameter, with its definitions."""
    definitions = {"$defs": args["$defs"]} if "$defs" in args else {}
    return {**args["properties"]["x"], **definitions}


def normal(schema: Any) -> Any:
    """Return a schema without the differences that change nothing."""
    if isinstance(schema, list):
        return [normal(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: normal(part) for key, part in schema.items() if key != "default"}


@each_row("hint", SAME)
def test_source_shows_the_same_as_the_function(hint: str, read: Any) -> None:
    static, live = map(of_parameter, read(hint))

    assert normal(static) == normal(live)


@each_row("hint", LOOSER)
def test_a_part_that_is_unknown_leaves_the_rest(hint: str, read: Any) -> None:
    static, live = map(of_parameter, read(hint))

    assert static == LOOSER[hint]
    whole = {"type": "object", "properties": {"x": live}, "required": ["x"]}
    definitions = live.pop("$defs", None)
    example = example_of(whole if definitions is None else {**whole, "$defs": definitions})
    assert example is not None, json.dumps(live)
    assert shared(static).misfits(example["x"]) == []


ROOT = Path(__file__).parents[2]
PROGRAMS = ("mcp_server", "prying_server")
"""They run when they are imported."""
APART = {
    "tests.agents.door_tools:transfer_to_second": "a class of the engine, made at run time",
    "tests.proof.recording:*": "a class under TYPE_CHECKING, which the function does not see",
    "tests.simulation.explorer:*": "its types name others under TYPE_CHECKING",
    "tests.testing.disturbed:*": "its types name others under TYPE_CHECKING",
    "tests.testing.stalls:*": "its types name others under TYPE_CHECKING",
    "tests.flow.graphs:flow_of": "its types name others under TYPE_CHECKING",
    "tests.cases.*:*": "a class with a class that has no form, so nobody can give them one",
    "tests.testing.store_conformance.*:*": "a decorator gives them other parameters",
}  # fmt: skip
"""Functions whose source says something else than the function → why."""


def functions() -> Iterator[tuple[str, str | None]]:
    """Yield the public functions of the examples and of the tests, with the directory of a flow."""
    for file in sorted([*ROOT.glob("examples/**/*.py"), *ROOT.glob("tests/**/*.py")]):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        of_test = file.stem.startswith("test_") or file.stem == "conftest"
        if of_test or file.stem in PROGRAMS or "broken" in file.parts:
            continue
        is_example = module.startswith("examples.")
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                name = f"{file.stem if is_example else module}:{node.name}"
                yield name, str(file.parent) if is_example else None


def is_looser(static: Any, live: Any) -> bool:
    """Return whether a schema says the same as another one, or less."""
    if isinstance(static, list) and isinstance(live, list):
        return len(static) == len(live) and all(map(is_looser, static, live))
    if static == {} or not isinstance(static, dict) or not isinstance(live, dict):
        return static in ({}, live)
    fields = [set(one.get("properties", ())) for one in (static, live)]
    return fields[0] == fields[1] and all(
        key in live and is_looser(part, live[key]) for key, part in static.items()
    )


def said(read: Any) -> Any:
    """Return a signature, or None if it is refused."""
    try:
        return read()
    except (SignatureError, UsageError):
        return None


@pytest.mark.endurance
def test_functions_have_one_signature_in_both() -> None:
    """The source shows what the function shows, or less: of tuples with names, of defaults."""
    differing, equal, count = [], 0, 0
    for name, folder in functions():
        if any(fnmatchcase(name, pattern) for pattern in APART):
            continue
        found = import_function(name, folder)
        static = said(lambda name=name, folder=folder: derive(name, folder or str(ROOT)))
        live = said(lambda found=found: read_function(found, lenient=True))
        count += 1
        if static is None or live is None:
            differing += [name] if static is not live else []
            continue
        equal += (static.args, static.returns) == (live.args, live.returns)
        properties = (live.args or {}).get("properties", {})
        loose = {key for key in static.classes if properties[key].keys() - {"description"}}
        if not (
            list((static.args or {})["properties"]) == list(properties)
            and is_looser([static.args, static.returns], [live.args, live.returns])
            and static[3:6] == live[3:6]
            and static.description == live.description
            and static.classes.keys() - loose <= live.classes.keys()
        ):
            differing.append(name)
    assert not differing, "\n".join(differing)
    assert (count > 300, count - equal < 30) == (True, True), (count, equal)
