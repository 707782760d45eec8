"""Signatures read from source: no module is imported, regardless of its contents."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from flowengine.sdk import SignatureError
from flowengine.sdk.python.docstrings import parse
from flowengine.sdk.python.live_signature import Signature
from flowengine.sdk.python.signature import derive, type_schema
from flowengine.sdk.python.tagged_unions import schema_for_models
from tests.rows import each_row

Write = Callable[..., str]

HEAD = """
from __future__ import annotations
import typing, typing as t
from typing import Annotated, Any, List as L, Literal, NotRequired, Optional, Required, TypedDict
from typing import Union
from collections.abc import Sequence
from pydantic import Field
raise SystemExit("imported")
"""


def parameter(module: Write, hint: str, before: str = "", default: str = "") -> Any:
    """Return the schema of one parameter with a type hint."""
    value = f" = {default}" if default else ""
    folder = module(m=f"{HEAD}{before}\ndef f(x: {hint}{value}): ...\n")
    args = derive("m:f", folder).args
    assert args is not None
    return args["properties"]["x"]


@each_row(
    ("hint", "schema"),
    [
        ("str", {"type": "string"}),
        ("int", {"type": "integer"}),
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("Any", {}),
        ("SomethingElse", {}),
        ("pathlib.Path", {}),
        ("list[int]", {"type": "array", "items": {"type": "integer"}}),
        ("Sequence[str]", {"type": "array", "items": {"type": "string"}}),
        ("tuple[int, ...]", {"type": "array", "items": {"type": "integer"}}),
        (
            "tuple[int, str]",
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        ("dict[str, bool]", {"type": "object", "additionalProperties": {"type": "boolean"}}),
        ("int | None", {"type": ["integer", "null"]}),
        ("int | Any", {}),
        ("Literal['a', 'b']", {"type": "string", "enum": ["a", "b"]}),
        ("Annotated[int, 'in cents']", {"type": "integer", "description": "in cents"}),
        ("'list[\"int\"]'", {"type": "array", "items": {"type": "integer"}}),
        ("'not a hint ('", {}),
    ],
)
# Shows M33, M35
def test_hint_becomes_a_schema(module: Write, hint: str, schema: Any) -> None:
    assert parameter(module, hint) == schema


def test_types_beside_the_flow_and_in_the_same_package_are_followed(module: Write) -> None:
    folder = module(kinds="from typing import TypedDict\nclass Money(TypedDict):\n    cents: int\n")
    module(
        "pkg",
        __init__="",
        inner="Name = str\n",
        m="from .inner import Name as N\n"
        "from kinds import Money\nfrom email.message import Message\n"
        "def f(a: N, b: Money, c: Message): ...\n",
    )

    signature = derive("pkg.m:f", folder)

    assert signature.args is not None
    assert signature.args["properties"] == {
        "a": {"type": "string"},
        "b": {
            "type": "object",
            "properties": {"cents": {"type": "integer"}},
            "required": ["cents"],
        },
        "c": {},
    }
    assert signature.paths == [f"{folder}/pkg/m.py", f"{folder}/pkg/inner.py", f"{folder}/kinds.py"]


def test_parameters_make_a_closed_object_without_those_the_engine_gives(module: Write) -> None:
    folder = module(
        m="def f(a, b=1, *rest, c, runtime_resources, at: 'StepContext', "
        "also: sdk.StepContext): ...\n"
        "def g(a, **more): ...\n"
    )

    signature = derive("m:f", folder)

    assert signature.args == {
        "type": "object",
        "properties": {"a": {}, "b": {"default": 1}, "c": {}},
        "required": ["a", "c"],
        "additionalProperties": False,
    }
    assert signature.takes_resources
    assert derive("m:g", folder).args == {
        "type": "object",
        "properties": {"a": {}},
        "required": ["a"],
    }


@each_row(
    ("docstring", "text", "descriptions"),
    [
        (
            "Args:\n    to (str) : who\n    n : int\n        how many",
            "",
            {"to": "who", "n": "how many"},
        ),
        ("Args:\n    to\n        list[str] | None\n        Who.", "", {"to": "Who."}),
        (
            ":param a: How.\n:type a: one of 'x',\n  'y'\n:type b: :class:`B` or None\n"
            ":param b: so\n:param {'x'} c: so\n:param str d: so\n:type e: str\n:type f: 1 to 5",
            "",
            {
                "a": "How. (one of 'x', 'y')",
                "b": "so",
                "c": "({'x'}) so",
                "d": "so",
                "f": "(1 to 5)",
            },
        ),
        (
            "Parameters\n----------\na : {'x', 'y'}, optional\n    How.\nb : Foo\n    so",
            "",
            {"a": "({'x', 'y'}, optional) How.", "b": "so"},
        ),
        ("Send.\n\nArgs:\n    **to** (str, optional): who", "Send.", {"to": "who"}),
        ("Args:\n    to: who gets\n    it\n    to: or not", "", {"to": "who gets it or not"}),
        (
            "Send.\n\nArgs:\n    See the manual: all of it.",
            "Send.\n\nArgs:\n    See the manual: all of it.",
            {},
        ),
        (
            "Args:\n    Never twice, please.\n    to: who",
            "Args:\n    Never twice, please.",
            {"to": "who"},
        ),
    ],
)
def test_what_a_docstring_says_about_parameters_is_theirs_and_the_rest_stays(
    docstring: str, text: str, descriptions: Any
) -> None:
    assert parse(docstring) == (text, descriptions)


@each_row(
    ("source", "is_async", "quick", "returns"),
    [
        ("def f() -> int: ...", False, False, {"type": "integer"}),
        ("async def f() -> list[str]: ...", True, False,
         {"type": "array", "items": {"type": "string"}}),
        ("@quick\ndef f() -> None: ...", False, True, {"type": "null"}),
        ("@flowengine.quick\ndef f(): ...", False, True, None),
        ("@cache(size=1)\ndef f() -> Unknown: ...", False, False, {}),
        ("if X:\n    def f() -> int: ...\nelse:\n    def f() -> str: ...", False, False,
         {"type": "string"}),
        ("try:\n    import x\nexcept ImportError:\n    def f() -> int: ...", False, False,
         {"type": "integer"}),
        ("@overload\ndef f() -> str: ...\ndef f() -> int: ...\n@overload\ndef f() -> str: ...",
         False, False, {"type": "integer"}),
    ],
)  # fmt: skip
def test_kind_and_result_of_a_function(
    module: Write, source: str, is_async: bool, quick: bool, returns: Any
) -> None:
    signature = derive("m:f", module(m=source))

    assert (signature.is_async, signature.quick, signature.returns) == (is_async, quick, returns)


SEARCHES = """
import functools, helper
from functools import partial
from typing import Any
from everything import *
from helper import real as imported

def _search(q: str, n: int = 3) -> str: ...
class Service(Base):
    def find(self, q: str) -> str: ...
    @classmethod
    def make(cls, q: str): ...
    @staticmethod
    def plain(q: str): ...
    @property
    def value(self): ...
service = Service("x")

alias = _search
again = alias
by_name = partial(_search, n=2)
by_place = functools.partial(_search, "x")
of_partial = partial(by_name, "x")
method = service.find
made = service.make
static = service.plain
unbound = Service.find
of_module = helper.real
with_words = partial(_search, **words)
decorated = deco(_search)
circle = circled
circled = circle
"""


@each_row(
    ("name", "parameters"),
    [
        ("alias", ["q", "n"]),
        ("by_name", ["q"]),
        ("by_place", ["n"]),
        ("of_partial", []),
        ("method", ["q"]),
        ("made", ["q"]),
        ("static", ["q"]),
        ("unbound", ["self", "q"]),
        ("of_module", ["a"]),
        ("imported", ["a"]),
        ("starred", ["b"]),
        ("with_words", None),
        ("decorated", None),
        ("circle", None),
        ("_hidden", None),
    ],
)
def test_a_name_stands_for_a_function(
    module: Write, name: str, parameters: list[str] | None
) -> None:
    folder = module(
        m=SEARCHES,
        helper="def real(a: int): ...\n",
        everything="def starred(b: int): ...\ndef _hidden(): ...\n",
    )
    args = derive(f"m:{name}", folder).args

    assert (None if args is None else [*args["properties"]]) == parameters


@each_row("function", ["m:partial", "m:starred", "math:sqrt", "m:Class"])
def test_what_has_no_source_to_read_is_accepted_without_a_schema(
    module: Write, function: str
) -> None:
    folder = module(m="from os import *\npartial = make(1)\nclass Class: ...\n")

    signature = derive(function, folder)

    assert isinstance(signature, Signature)
    assert signature.args is None


def test_installed_modules_are_found_without_importing_them_or_their_parents() -> None:
    import subprocess

    program = (
        "import sys; from flowengine.sdk.python.signature import derive;"
        "print(derive('wsgiref.util:guess_scheme', '/nowhere').paths, 'wsgiref' in sys.modules)"
    )

    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert said.endswith("wsgiref/util.py'] False\n")


@each_row(
    ("function", "message", "hint", "line"),
    [
        ("m", "'m' does not name a function", "write it as package.module:function", None),
        ("m:", "'m:' does not name a function", "write it as package.module:function", None),
        (
            "../m:f",
            "'../m:f' does not name a function",
            "write it as package.module:function",
            None,
        ),
        ("nope:f", "there is no module 'nope'", "modules are searched in", None),
        ("m.inner:f", "there is no module 'm.inner'", "modules are searched in", None),
        ("m:sned", "module 'm' has no function 'sned'", "did you mean 'send'?", None),
        (
            "m:by_position",
            "the parameter 'a' of by_position can only be given by position",
            "'/'",
            2,
        ),
        ("broken:f", "module 'broken' cannot be read", None, 1),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    module: Write, function: str, message: str, hint: str | None, line: int | None
) -> None:
    folder = module(m="def send(): ...\ndef by_position(a, /): ...\n", broken="def f(:\n")

    with pytest.raises(SignatureError) as refused:
        derive(function, folder)

    assert refused.value.message.startswith(message)
    assert hint is None or hint in (refused.value.hint or "")
    assert refused.value.line == line


HOSTILE = """
from __future__ import annotations
import typing
from enum import Enum
from typing import Annotated, Literal, NamedTuple, Optional, TypedDict, Union
from pydantic import BaseModel, BeforeValidator, Field, ImportString, TypeAdapter
from pydantic import WithJsonSchema, conlist, create_model
A = Union[{As}]
B = Union[{Bs}]
C = [{Cs}]
D = [{Ds}]
T0 = int
{tuples}
class Itself(Itself): ...
class Left(Right): x: int
class Right(Left, BaseModel): y: int
class Order(BaseModel): ...
class Below(Order): x: int
class Unordered(BaseModel, Below): y: int
class Odd(BaseModel): x: str = Field(pattern="(")
class Renamed(BaseModel): x: int = Field(alias=ends())
class Mro(Enum): mro = 1
class Twice(Enum): A = 1; A = 2
Made = create_model("Made", x=(int, ends()))
POWER = 9**9**9; TEXT = "a" * 10**10
OTHER = WithJsonSchema(ends()); PASSED = BeforeValidator(ends, json_schema_input_type=ends())
def f(
    a: A, b: T39, c: Itself, d: Left, e: Unordered, f: Odd, g: list[Renamed], h: Mro, i: Twice,
    j: Made, k: "ends()", l: list["ends()"], m: ends().x, n: TypeAdapter(ends()), o: list(int),
    p: Literal[[1]], q: Annotated[int, [1]], r: Union[[1], 2], s: typing.sys.modules,
    t: int.__class__, u: conlist(int, min_length=-1), v: Annotated[str, Field(pattern="(")],
    w: Annotated[int, Field(ge="x")], x: Annotated[int, Field(alias=ends())], y: NamedTuple[int],
    ag: Annotated[int, Field(json_schema_extra={{"type": 5}})], ah: Annotated[int, OTHER],
    ai: Annotated[int, WithJsonSchema({{"anyOf": 3}})], aj: Annotated[int, PASSED],
    z: int = C, aa: int = POWER, ab: str = TEXT, ac: Annotated[int, Field(ge=C)] = 1,
    ad: ImportString = "ends", ae: int = (lambda: ends())(), af: int = {minus}1,
): ...
def ends(): raise SystemExit("called")
ends()
"""


def test_whatever_a_module_declares_no_code_of_it_runs_and_reading_ends(module: Write) -> None:
    words = {f"{one}s": ", ".join([other] * 40) for one, other in ("AB", "BA", "CD", "DC")}
    tuples = "\n".join(f"T{i + 1} = Optional[tuple[T{i}, T{i}]]" for i in range(39))
    text = HOSTILE.format(**words, tuples=tuples, minus="-" * 300)
    args = derive("m:f", module(m=text)).args

    assert args is not None
    assert len(args["properties"]) == 36
    assert args["properties"]["ag"] == {"type": "integer"}
    assert [args["properties"][name] for name in ("ah", "ai", "aj")] == [{}, {}, {}]
    assert args["properties"]["g"] == {"type": "array"}


TYPES = """
from dataclasses import dataclass
from pydantic import BaseModel, Field, field_validator
class Report(BaseModel):
    title: str = Field(min_length=3)
    @field_validator("title")
    def ends(cls, value): raise SystemExit
@dataclass
class City:
    name: str
    size: int = 0
Either = list[City] | Report
Made = type("Made", (), {})
def function(a: int): ...
"""


def test_the_schema_of_a_type_is_read_from_its_source(
    module: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = module(answer_forms=TYPES)
    monkeypatch.syspath_prepend(folder)
    live = import_module("answer_forms")

    for name in ("Report", "City", "Either"):
        read = type_schema(f"answer_forms:{name}", folder)[0]
        assert read == schema_for_models(getattr(live, name)), name
    for name in ("Made", "function"):
        with pytest.raises(SignatureError, match="is in no source that can be read"):
            type_schema(f"answer_forms:{name}", folder)
    with pytest.raises(SignatureError, match="'answer_forms' has no type 'Citty'") as raised:
        type_schema("answer_forms:Citty", folder)
    assert raised.value.hint == "did you mean 'City'?"
